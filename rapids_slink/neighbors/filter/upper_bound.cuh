// This is the converse of the test in filter/__init__.py: an upper bound of a surrogate distance by the filter's product, and the k-th
// least of such bounds.
#pragma once
#include "runtime/include/threads.cuh"

constexpr int KEY_TOLERANCE = 1 << 8;  // keys closer than this, in spacings of float32, count as equal

struct UpperBound {
    double norm_slack, absolute_slack, inverse_scale, more, factor, error;
    // Returns the key that orders a row's pairs: the root of half the squared distance, which `half` may fall short of, plus the
    // other's error. Of its float32 roundings those of `half` are below 4 * 2^-24 of it, those of the norms are in
    // `norm_slack`, and root, sum and product stay below 2^-20. What underflow loses is negligible against `absolute_slack`.
    __device__ __forceinline__ float key(float half, float half_norm, float other_half_norm, float other_error) const {
        float norms = half_norm + other_half_norm;
        float square = half + fabsf(half) * 0x1p-22f + (float)norm_slack * norms + (float)absolute_slack, root;
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(fmaxf(square, 0)));  // it is off by 2^-23 of itself
        return (root + other_error) * (1 + 0x1p-20f);
    }
    __device__ __forceinline__ double surrogate(float key, float row_error) const {
        double distance = ((double)key + row_error) * inverse_scale + more;
        return distance * distance * factor + error;
    }
};

// These return the least and the largest integer of a warp, and the sum of all, by one instruction where there is one.
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ int warp_min(int x) { return __reduce_min_sync(ALL_LANES, x); }
__device__ __forceinline__ int warp_sum(int x) { return __reduce_add_sync(ALL_LANES, x); }
#else
__device__ __forceinline__ int warp_min(int x) {
    for (int step = WARP / 2; step; step /= 2) x = min(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}
#endif
__device__ __forceinline__ int warp_max(int x) { return ~warp_min(~x); }

// Returns the k-th least of a warp's n keys, of which a lane has N at most, or a key that follows it by less than `tolerance`; the
// largest if there are fewer than k. Keys are below EMPTY_KEY, which fills up what is left of the lanes' arrays.
constexpr int EMPTY_KEY = 0x7fffffff;
template <int N> __device__ __forceinline__ int kth_least(const int (&key)[N], int n, int k, int tolerance) {
    constexpr int UNROLLED = N <= 32 ? N : 1;  // long loops would take many seconds to compile
    int low = EMPTY_KEY, high = -EMPTY_KEY;
#pragma unroll UNROLLED
    for (int e = 0; e < N; e++) {
        low = min(low, key[e]);
        if (key[e] < EMPTY_KEY) high = max(high, key[e]);
    }
    low = warp_min(low), high = warp_max(high);
    // Invariant: `below` keys < low, below < k; `up_to` keys <= high, up_to >= k if there are k. Cuts alternate between
    // interpolation, as if the keys were spread evenly in between, and bisection.
    int below = 0, up_to = n;
    for (bool bisect = false; high - low >= tolerance && up_to != k; bisect = !bisect) {
        float share = bisect ? 0.5f : __fdividef(k - below - 0.5f, up_to - below);
        int cut = low + min((int)(share * (float)(high - low)), high - low - 1), count = 0;
#pragma unroll UNROLLED
        for (int e = 0; e < N; e++) count += key[e] <= cut;
        count = warp_sum(count);
        if (count >= k) high = cut, up_to = count;
        else low = cut + 1, below = count;
    }
    int found = -EMPTY_KEY;
#pragma unroll UNROLLED
    for (int e = 0; e < N; e++)
        if (key[e] <= high) found = max(found, key[e]);
    return warp_max(found);
}
