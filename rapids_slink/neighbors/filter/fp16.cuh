// Features as they are read, and numbers to fp16 and back.
#pragma once

typedef unsigned short u16;

__device__ __forceinline__ u16 to_half(float x) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
__device__ __forceinline__ float from_half(u16 h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

// N features of a row from f on, of its d; zeros beyond the last. `aligned`: rows start at multiples of 16 bytes.
template <int N, class V> __device__ __forceinline__ void load_features(const V* x, int f, int d, bool aligned, V (&to)[N]) {
    constexpr int VECTORS = N * sizeof(V) / 16;
    if (aligned && f + N <= d) {
        union { uint4 vector[VECTORS]; V value[N]; } loaded;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) loaded.vector[v] = ((const uint4*)(x + f))[v];
#pragma unroll
        for (int e = 0; e < N; e++) to[e] = loaded.value[e];
    } else {
#pragma unroll
        for (int e = 0; e < N; e++) to[e] = f + e < d ? x[f + e] : 0;
    }
}
