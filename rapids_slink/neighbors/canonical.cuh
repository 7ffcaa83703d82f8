// The canonical squared Euclidean distance's step: float64, no fused multiply-add. And what cores make of a value.
#pragma once

// CuPy compiles with -ftz=true, which would make zeros of subnormal float32 values on the way: not so this conversion.
__device__ __forceinline__ double widen(float x) {
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(x));
    return wide;
}
__device__ __forceinline__ double widen(double x) { return x; }

__device__ __forceinline__ double add_square(double total, double difference) {
    return __dadd_rn(total, __dmul_rn(difference, difference));
}

// The mutual reachability of two points: the largest of their value and their cores.
__device__ __forceinline__ double reachability(double value, double core, double other_core) {
    double larger = core < other_core ? other_core : core;
    return value < larger ? larger : value;
}
