// operand.py's converse: what a kernel value is at most, by a filter's product; and the k-th least of such.
#pragma once

constexpr int WARP = 32;
constexpr unsigned ALL = 0xffffffffu;
constexpr int CLOSE = 1 << 8;  // float32 keys so few spacings apart need not be told from each other

struct Ceiling {
    double excess, lost, unscale, more, factor, off;
    // By which a row's pairs order: the root of half the squared distance, over which `half` is short, plus the other's error.
    // Of its float32 roundings those of `half` are below 4 * 2^-24 of it, those of the norms are in the slack of `excess`, and
    // root, sum and product stay below 2^-20. What underflow takes is nothing beside `lost`.
    __device__ __forceinline__ float key(float half, float half_norm, float other_half_norm, float other_error) const {
        float norms = half_norm + other_half_norm;
        float square = half + fabsf(half) * 0x1p-22f + (float)excess * norms + (float)lost, root;
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(fmaxf(square, 0)));  // off by 2^-23 of itself
        return (root + other_error) * (1 + 0x1p-20f);
    }
    __device__ __forceinline__ double value(float key, float error) const {
        double distance = ((double)key + error) * unscale + more;
        return distance * distance * factor + off;
    }
};

// The least and the largest number of a warp, and their sum.
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ int warp_min(int x) { return __reduce_min_sync(ALL, x); }
__device__ __forceinline__ int warp_sum(int x) { return __reduce_add_sync(ALL, x); }
#else
__device__ __forceinline__ int warp_min(int x) {
    for (int step = WARP / 2; step; step /= 2) x = min(x, __shfl_xor_sync(ALL, x, step));
    return x;
}
__device__ __forceinline__ int warp_sum(int x) {
    for (int step = WARP / 2; step; step /= 2) x += __shfl_xor_sync(ALL, x, step);
    return x;
}
#endif
__device__ __forceinline__ int warp_max(int x) { return ~warp_min(~x); }

// The k-th least of a warp's n keys, N at most of every lane, or one of those that follow by less than `close`; the largest if
// there are fewer than k. Keys are below NOBODY, which fills up what is left of the lanes' room.
constexpr int NOBODY = 0x7fffffff;
template <int N> __device__ __forceinline__ int kth_least(const int (&key)[N], int n, int k, int close) {
    int least = NOBODY, most = -NOBODY;
#pragma unroll
    for (int e = 0; e < N; e++) {
        least = min(least, key[e]);
        if (key[e] < NOBODY) most = max(most, key[e]);
    }
    least = warp_min(least), most = warp_max(most);
    // Of the keys `under` are below `least`, fewer than k, and `upto`, maybe as many as k, are up to `most`. A cut is guessed as
    // if they were spread evenly in between, and in the middle every other time.
    int under = 0, upto = n;
    for (bool halve = false; most - least >= close && upto != k; halve = !halve) {
        float share = halve ? 0.5f : __fdividef(k - under - 0.5f, upto - under);
        int cut = least + min((int)(share * (float)(most - least)), most - least - 1), below = 0;
#pragma unroll
        for (int e = 0; e < N; e++) below += key[e] <= cut;
        below = warp_sum(below);
        if (below >= k) most = cut, upto = below;
        else least = cut + 1, under = below;
    }
    least = -NOBODY;
#pragma unroll
    for (int e = 0; e < N; e++)
        if (key[e] <= most) least = max(least, key[e]);
    return warp_max(least);
}
