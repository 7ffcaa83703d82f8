// The direct filter: sums of float32 terms of every row with every column of a tile, and direct.py's test of them, which
// nothing is written for but the pairs that pass. FORM names what is summed; of `powers`, HALVES is twice the exponent.
//
// The tests' slack covers any order of the sums, fused multiply-add, and zeros in place of subnormal numbers.
#ifndef FORM
#define FORM absolutes
#endif
#ifndef HALVES
#define HALVES 2
#endif

constexpr int THREADS = 256;
constexpr int TILE = 128;  // rows, and columns, of a block
constexpr int STEP = 8;    // features in shared memory at a time
constexpr int SIDE = 16;   // threads along either side of the tile
constexpr int EACH = 4;    // neighbouring rows, and columns, that a thread reads at once; it has two such sets of each
constexpr int PITCH = TILE + 4;

// t to the HALVES / 2.
__device__ __forceinline__ float power(float t) {
    float result = HALVES % 2 ? sqrtf(t) : 1;
#pragma unroll
    for (int i = 0; i < HALVES / 2; i++) result *= t;
    return result;
}

struct norm {
    static __device__ bool near(float sum, float, float radius, float, float column_error) {
        return sum <= power(radius + column_error);
    }
};
struct absolutes : norm {
    static __device__ void add(float& sum, float&, float x, float y) { sum += fabsf(x - y); }
};
struct largest : norm {
    static __device__ void add(float& sum, float&, float x, float y) { sum = fmaxf(sum, fabsf(x - y)); }
};
struct powers : norm {
    static __device__ void add(float& sum, float&, float x, float y) { sum += power(fabsf(x - y)); }
};

struct bare {
    static __device__ bool near(float sum, float, float radius, float, float) { return sum <= radius; }
};
struct canberra : bare {
    static __device__ void add(float& sum, float&, float x, float y) {
        float below = fabsf(x) + fabsf(y);
        if (below >= 0x1p-100f) sum += __fdividef(fabsf(x - y), below);
    }
};
struct mismatches : bare {
    static __device__ void add(float& sum, float&, float x, float y) { sum += x != y ? 1.0f : 0.0f; }
};

struct ratio {
    static __device__ bool near(float sum, float other, float radius, float error, float column_error) {
        float q = error + column_error;
        return sum <= radius * (other + q) + q;
    }
};
struct braycurtis : ratio {
    static __device__ void add(float& sum, float& other, float x, float y) { sum += fabsf(x - y), other += fabsf(x + y); }
};
struct jaccard : ratio {
    static __device__ void add(float& sum, float& other, float x, float y) { sum += fabsf(x - y), other += fmaxf(x, y); }
};

struct inner_product {
    static __device__ void add(float& sum, float&, float x, float y) { sum -= x * y; }
    static __device__ bool near(float sum, float, float radius, float error, float column_error) {
        return sum <= radius + error * column_error;
    }
};

// Features start .. start + STEP of TILE rows from `first` on, feature by feature; zeros, which add nothing to any sum, beyond
// the last.
__device__ __forceinline__ void bring(
    float (*to)[PITCH], const float* __restrict__ y, long long first, long long n, int d, int start) {
    for (int e = threadIdx.x; e < TILE * STEP; e += THREADS) {
        int r = e / STEP, f = e % STEP;
        to[f][r] = first + r < n && start + f < d ? y[(first + r) * d + start + f] : 0;
    }
}

// Where a thread's k-th row, or column, is in the tile.
__device__ __forceinline__ int place(int k, int thread) { return k / EACH * (TILE / 2) + thread * EACH + k % EACH; }

// Appends ids[j] to row i's candidates for every pair that passes and whose groups differ; `count` goes on past `capacity`,
// so that a row that lost a candidate shows.
extern "C" __global__ void __launch_bounds__(THREADS) keep_near(
    const float* __restrict__ y, long long rows, const float* __restrict__ column_y, long long columns, int d,
    const float* __restrict__ radius, const float* __restrict__ error, const float* __restrict__ column_error,
    const int* __restrict__ row_group, const int* __restrict__ column_group, const int* __restrict__ ids,
    int capacity, int* __restrict__ out, int* __restrict__ count) {
    __shared__ __align__(16) float mine[STEP][PITCH];
    __shared__ __align__(16) float theirs[STEP][PITCH];
    long long first_row = (long long)blockIdx.y * TILE, first_column = (long long)blockIdx.x * TILE;
    int across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    float sum[2 * EACH][2 * EACH] = {}, other[2 * EACH][2 * EACH] = {};
    for (int start = 0; start < d; start += STEP) {
        __syncthreads();
        bring(mine, y, first_row, rows, d, start);
        bring(theirs, column_y, first_column, columns, d, start);
        __syncthreads();
#pragma unroll
        for (int f = 0; f < STEP; f++) {
            float a[2 * EACH], b[2 * EACH];
#pragma unroll
            for (int k = 0; k < 2 * EACH; k++) a[k] = mine[f][place(k, down)], b[k] = theirs[f][place(k, across)];
#pragma unroll
            for (int r = 0; r < 2 * EACH; r++)
#pragma unroll
                for (int c = 0; c < 2 * EACH; c++) FORM::add(sum[r][c], other[r][c], a[r], b[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < 2 * EACH; c++) {
        long long j = first_column + place(c, across);
        if (j >= columns) continue;
        float far = column_error[j];
#pragma unroll
        for (int r = 0; r < 2 * EACH; r++) {
            long long i = first_row + place(r, down);
            if (i >= rows || !FORM::near(sum[r][c], other[r][c], radius[i], error[i], far)) continue;
            int id = ids[j];
            if (column_group[id] == row_group[i]) continue;
            int slot = atomicAdd(count + i, 1);
            if (slot < capacity) out[i * capacity + slot] = id;
        }
    }
}
