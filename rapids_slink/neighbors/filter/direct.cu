// The direct filter: sums of float32 terms of every row with every point of a tile, and the test of them as cuda.py has
// it. Only the pairs that pass are written. FORMULA names what is summed; of `minkowski`, HALVES is twice the
// exponent.
//
// The tests' slack covers any order of the sums, fused multiply-add, and zeros in position of subnormal numbers.
#ifndef FORMULA
#define FORMULA manhattan
#define HALVES 2
#endif

#include "neighbors/filter/tiles.cuh"

constexpr int STEP = 8;  // features in shared memory at a time; zeros beyond the last add nothing to any sum

// t to the HALVES / 2.
__device__ __forceinline__ float power(float t) {
    float result = HALVES % 2 ? sqrtf(t) : 1;
#pragma unroll
    for (int i = 0; i < HALVES / 2; i++) result *= t;
    return result;
}

struct norm {
    static __device__ bool near(float sum, float, float radius, float, float point_error) {
        return sum <= power(radius + point_error);
    }
};
struct manhattan : norm {
    static __device__ void add(float& sum, float&, float x, float y) { sum += fabsf(x - y); }
};
struct chebyshev : norm {
    static __device__ void add(float& sum, float&, float x, float y) { sum = fmaxf(sum, fabsf(x - y)); }
};
struct minkowski : norm {
    static __device__ void add(float& sum, float&, float x, float y) { sum += power(fabsf(x - y)); }
};

struct threshold {
    static __device__ bool near(float sum, float, float radius, float, float) { return sum <= radius; }
};
struct canberra : threshold {
    static __device__ void add(float& sum, float&, float x, float y) {
        float below = fabsf(x) + fabsf(y);
        if (below >= 0x1p-100f) sum += __fdividef(fabsf(x - y), below);
    }
};

struct braycurtis {
    static __device__ void add(float& sum, float& denominator, float x, float y) {
        sum += fabsf(x - y), denominator += fabsf(x + y);
    }
    static __device__ bool near(float sum, float denominator, float radius, float error, float point_error) {
        float q = error + point_error;
        return sum <= radius * (denominator + q) + q;
    }
};

struct inner_product {
    static __device__ void add(float& sum, float&, float x, float y) { sum -= x * y; }
    static __device__ bool near(float sum, float, float radius, float error, float point_error) {
        return sum <= radius + error * point_error;
    }
};

// Appends ids[j] to row i's candidates for every pair that passes and whose groups differ; `count` goes on past `capacity`,
// which shows that a row lost candidates.
extern "C" __global__ void __launch_bounds__(THREADS) append_candidates(
    const float* __restrict__ y, long long rows, const float* __restrict__ point_y, long long points, int d,
    const float* __restrict__ radius, const float* __restrict__ error, const float* __restrict__ point_error,
    const int* __restrict__ row_group, const int* __restrict__ point_group, const int* __restrict__ ids,
    int capacity, int* __restrict__ out, int* __restrict__ count) {
    __shared__ __align__(16) float row_tile[STEP][PITCH];
    __shared__ __align__(16) float point_tile[STEP][PITCH];
    long long first_row = (long long)blockIdx.y * TILE, first_point = (long long)blockIdx.x * TILE;
    int across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    float sum[PER_THREAD][PER_THREAD] = {}, denominator[PER_THREAD][PER_THREAD] = {};
    for (int start = 0; start < d; start += STEP) {
        __syncthreads();
        load(row_tile, y, first_row, rows, d, start);
        load(point_tile, point_y, first_point, points, d, start);
        __syncthreads();
#pragma unroll
        for (int f = 0; f < STEP; f++) {
            float a[PER_THREAD], b[PER_THREAD];
#pragma unroll
            for (int k = 0; k < PER_THREAD; k++)
                a[k] = row_tile[f][position(k, down)], b[k] = point_tile[f][position(k, across)];
#pragma unroll
            for (int r = 0; r < PER_THREAD; r++)
#pragma unroll
                for (int c = 0; c < PER_THREAD; c++) FORMULA::add(sum[r][c], denominator[r][c], a[r], b[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < PER_THREAD; c++) {
        long long j = first_point + position(c, across);
        if (j >= points) continue;
        float other_error = point_error[j];
#pragma unroll
        for (int r = 0; r < PER_THREAD; r++) {
            long long i = first_row + position(r, down);
            if (i >= rows || !FORMULA::near(sum[r][c], denominator[r][c], radius[i], error[i], other_error)) continue;
            int id = ids[j];
            if (point_group[id] == row_group[i]) continue;
            int slot = atomicAdd(count + i, 1);
            if (slot < capacity) out[i * capacity + slot] = id;
        }
    }
}
