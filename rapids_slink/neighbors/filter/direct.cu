// This is the direct filter: it sums float32 terms of every row with every point of a tile, and tests the sums as cuda.py says.
// Only the pairs that pass are written. FORMULA names what is summed; of `minkowski`, HALVES is twice the
// exponent.
//
// The tests' slack covers any order of the sums, fused multiply-add, and zeros in place of subnormal numbers.
#ifndef FORMULA
#define FORMULA manhattan
#define HALVES 2
#endif

constexpr int THREADS = 256, SIDE = 16;            // a block has these threads, SIDE along either side of its tile
constexpr int ADJACENT = 4, EACH = 2 * ADJACENT;   // rows, and points, that a thread reads at once, and that it has
constexpr int TILE = SIDE * EACH, STEP = 8;        // rows, and points, of a block, and features in shared memory at a time

// Returns t to the power HALVES / 2.
__device__ __forceinline__ float power(float t) {
    float result = HALVES % 2 ? sqrtf(t) : 1;
#pragma unroll
    for (int i = 0; i < HALVES / 2; i++) result *= t;
    return result;
}

struct threshold {
    float sum = 0;
    __device__ bool near(float radius, float, float) const { return sum <= radius; }
};
struct canberra : threshold {
    __device__ void add(float x, float y) {
        float below = fabsf(x) + fabsf(y);
        if (below >= 0x1p-100f) sum += __fdividef(fabsf(x - y), below);
    }
};

struct norm : threshold {
    __device__ bool near(float radius, float, float point_error) const { return sum <= power(radius + point_error); }
};
struct manhattan : norm {
    __device__ void add(float x, float y) { sum += fabsf(x - y); }
};
struct chebyshev : norm {
    __device__ void add(float x, float y) { sum = fmaxf(sum, fabsf(x - y)); }
};
struct minkowski : norm {
    __device__ void add(float x, float y) { sum += power(fabsf(x - y)); }
};

struct braycurtis : threshold {
    float denominator = 0;
    __device__ void add(float x, float y) { sum += fabsf(x - y), denominator += fabsf(x + y); }
    __device__ bool near(float radius, float error, float point_error) const {
        float q = error + point_error;
        return sum <= radius * (denominator + q) + q;
    }
};

struct inner_product : threshold {
    __device__ void add(float x, float y) { sum -= x * y; }
    __device__ bool near(float radius, float error, float point_error) const { return sum <= radius + error * point_error; }
};

// Appends ids[j] to row i's candidates for every pair that passes and whose exclusion ids differ; `count` goes on past `capacity`,
// which shows that a row lost candidates. Zeros beyond the last feature add nothing to any sum.
extern "C" __global__ void __launch_bounds__(THREADS) append_candidates(
    const float* __restrict__ y, int rows, const float* __restrict__ point_y, int points, int d,
    const float* __restrict__ radius, const float* __restrict__ error, const float* __restrict__ point_error,
    const int* __restrict__ row_group, const int* __restrict__ point_group, const int* __restrict__ ids,
    int capacity, int* __restrict__ out, int* __restrict__ count) {
    __shared__ __align__(16) float row_tile[STEP][TILE + ADJACENT], point_tile[STEP][TILE + ADJACENT];
    int first_row = blockIdx.y * TILE, first_point = blockIdx.x * TILE, across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    auto position = [](int k, int thread) { return k / ADJACENT * (TILE / 2) + thread * ADJACENT + k % ADJACENT; };
    FORMULA sum[EACH][EACH];
    for (int start = 0; start < d; start += STEP) {
        __syncthreads();
        for (int e = threadIdx.x; e < TILE * STEP; e += THREADS) {
            int t = e / STEP, f = e % STEP, i = first_row + t, j = first_point + t;
            row_tile[f][t] = i < rows && start + f < d ? y[(size_t)i * d + start + f] : 0;
            point_tile[f][t] = j < points && start + f < d ? point_y[(size_t)j * d + start + f] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int f = 0; f < STEP; f++) {
            float a[EACH], b[EACH];
#pragma unroll
            for (int k = 0; k < EACH; k++)
                a[k] = row_tile[f][position(k, down)], b[k] = point_tile[f][position(k, across)];
#pragma unroll
            for (int r = 0; r < EACH; r++)
#pragma unroll
                for (int c = 0; c < EACH; c++) sum[r][c].add(a[r], b[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < EACH; c++)
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            int i = first_row + position(r, down), j = first_point + position(c, across);
            if (i >= rows || j >= points || !sum[r][c].near(radius[i], error[i], point_error[j])) continue;
            int id = ids[j];
            if (point_group[id] == row_group[i]) continue;
            int slot = atomicAdd(count + i, 1);
            if (slot < capacity) out[(size_t)i * capacity + slot] = id;
        }
}
