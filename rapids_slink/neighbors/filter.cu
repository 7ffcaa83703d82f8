// The portable filter's kernels. They read a tile of products y_i . y_j, written by the library's matrix product.
// operand.py derives the test: a pair is kept iff
//     product >= half_norm_i + half_norm_j - (radius_i + error_j)^2.
// Both may be compiled with fused multiply-add: the test's slack covers any rounding of its right-hand side.
#include "neighbors/ceiling.cuh"

#ifndef REAL
#define REAL float
#endif
#ifndef EACH
#define EACH 1
#endif

constexpr int THREADS = 256;
constexpr int COLUMNS_PER_THREAD = 4;
constexpr int ROWS_PER_BLOCK = 32;

// Appends ids[j] to row i's candidates for every pair that passes and whose groups differ; `count` goes on past
// `capacity`, so that a row that lost a candidate shows. A block keeps its columns in registers and walks down its rows.
extern "C" __global__ void keep_near(
    const REAL* __restrict__ product, int rows, int columns,
    const REAL* __restrict__ half_norm, const REAL* __restrict__ radius,
    const REAL* __restrict__ column_half_norm, const REAL* __restrict__ column_error,
    const int* __restrict__ row_group, const int* __restrict__ column_group, const int* __restrict__ ids,
    int capacity, int* __restrict__ out, int* __restrict__ count) {
    const REAL never = 1.0 / 0.0;
    int column[COLUMNS_PER_THREAD];
    REAL norm[COLUMNS_PER_THREAD], error[COLUMNS_PER_THREAD];
    for (int w = 0; w < COLUMNS_PER_THREAD; w++) {
        int j = (blockIdx.x * COLUMNS_PER_THREAD + w) * THREADS + threadIdx.x;
        bool inside = j < columns;
        column[w] = inside ? j : columns - 1;
        norm[w] = inside ? column_half_norm[j] : never;
        error[w] = inside ? column_error[j] : 0;
    }
    int first = blockIdx.y * ROWS_PER_BLOCK, last = min(first + ROWS_PER_BLOCK, rows);
#pragma unroll 2
    for (int i = first; i < last; i++) {
        REAL base = half_norm[i], far = radius[i];
        const REAL* row = product + (size_t)i * columns;
        REAL value[COLUMNS_PER_THREAD];
        for (int w = 0; w < COLUMNS_PER_THREAD; w++) value[w] = row[column[w]];
        for (int w = 0; w < COLUMNS_PER_THREAD; w++) {
            REAL q = far + error[w];
            if (value[w] >= base + norm[w] - q * q) {
                int id = ids[column[w]];
                if (column_group[id] != row_group[i]) {
                    int slot = atomicAdd(count + i, 1);
                    if (slot < capacity) out[(size_t)i * capacity + slot] = id;
                }
            }
        }
    }
}

// Appends the positions (i, j), i < j, of every pair that passes and whose components differ to `pairs`; here a row's
// radius is its own error plus the reach that `table` (components x components) gives for the two components.
extern "C" __global__ void keep_pairs(
    const REAL* __restrict__ product, int rows, int columns, int first_row, int first_column,
    const REAL* __restrict__ half_norm, const REAL* __restrict__ error,
    const REAL* __restrict__ column_half_norm, const REAL* __restrict__ column_error,
    const int* __restrict__ component, const int* __restrict__ column_component,
    const REAL* __restrict__ table, int components, long long capacity, int* __restrict__ pairs,
    unsigned long long* __restrict__ count) {
    const REAL never = 1.0 / 0.0;
    int column[COLUMNS_PER_THREAD], theirs[COLUMNS_PER_THREAD];
    REAL norm[COLUMNS_PER_THREAD], far[COLUMNS_PER_THREAD];
    for (int w = 0; w < COLUMNS_PER_THREAD; w++) {
        int j = (blockIdx.x * COLUMNS_PER_THREAD + w) * THREADS + threadIdx.x;
        bool inside = j < columns;
        column[w] = inside ? j : columns - 1;
        norm[w] = inside ? column_half_norm[j] : never;
        far[w] = inside ? column_error[j] : 0;
        theirs[w] = column_component[column[w]];
    }
    int first = blockIdx.y * ROWS_PER_BLOCK, last = min(first + ROWS_PER_BLOCK, rows);
    for (int i = first; i < last; i++) {
        REAL base = half_norm[i], own = error[i];
        int mine = component[i];
        const REAL *row = product + (size_t)i * columns, *reach = table + (size_t)mine * components;
        for (int w = 0; w < COLUMNS_PER_THREAD; w++) {
            REAL q = reach[theirs[w]] + own + far[w];
            int j = first_column + column[w];
            if (row[column[w]] >= base + norm[w] - q * q && theirs[w] != mine && first_row + i < j) {
                unsigned long long slot = atomicAdd(count, 1ull);
                if (slot < capacity) pairs[2 * slot] = first_row + i, pairs[2 * slot + 1] = j;
            }
        }
    }
}

// Lowers bound[i], for each row (a block), to what the k-th nearest column of another group is at most, taken from the nearest
// of each of EACH times 32 buckets (a thread: every blockDim.x-th column), if there are k of these. If points have cores, those
// of row rows[i] and of the columns count too.
extern "C" __global__ void seed_bounds(
    const float* __restrict__ product, int columns, const float* __restrict__ half_norm, const float* __restrict__ error,
    const float* __restrict__ column_half_norm, const float* __restrict__ column_error,
    const int* __restrict__ row_group, const int* __restrict__ column_group, const int* __restrict__ ids, int k,
    const Ceiling ceiling, const int* __restrict__ rows, const double* __restrict__ core, double* __restrict__ bound) {
    constexpr int buckets = EACH * WARP;
    __shared__ int keys[buckets], nearest[buckets];
    int i = blockIdx.x, group = row_group[i], best = -1;
    const float* row = product + (size_t)i * columns;
    const float never = 1.0 / 0.0;
    float least = never;
#pragma unroll 8
    for (int j = threadIdx.x; j < columns; j += buckets) {
        float value = column_half_norm[j] - row[j];
        if (value < least) least = value, best = j;
    }
    if (best >= 0 && column_group[ids[best]] == group) {  // seldom: then with a look at each
        least = never, best = -1;
        for (int j = threadIdx.x; j < columns; j += buckets) {
            float value = column_half_norm[j] - row[j];
            if (value < least && column_group[ids[j]] != group) least = value, best = j;
        }
    }
    float key = best < 0 ? never : ceiling.key(half_norm[i] + least, half_norm[i], column_half_norm[best], column_error[best]);
    keys[threadIdx.x] = __float_as_int(key), nearest[threadIdx.x] = best;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    int key_of[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) key_of[e] = keys[e * WARP + threadIdx.x];
    int most = kth_least(key_of, buckets, k, CLOSE);
    double value = ceiling.value(__int_as_float(most), error[i]);
    if (core) {
        value = fmax(value, core[rows[i]]);
        for (int b = threadIdx.x; b < buckets; b += WARP)
            if (nearest[b] >= 0 && keys[b] <= most) value = fmax(value, core[ids[nearest[b]]]);
        for (int step = WARP / 2; step; step /= 2) value = fmax(value, __shfl_xor_sync(ALL, value, step));
    }
    if (threadIdx.x == 0) bound[i] = fmin(bound[i], value);
}
