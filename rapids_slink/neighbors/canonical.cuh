// The canonical squared Euclidean distance's step: float64, no fused multiply-add.
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
