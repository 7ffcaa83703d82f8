// The portable filter's kernels. They read a tile of products y_i . y_j, written by the library's matrix product.
// operand.py derives the test: a pair is kept iff
//     product >= half_norm_i + half_norm_j - (radius_i + error_j)^2.
// Both may be compiled with fused multiply-add: the test's slack covers any rounding of its right-hand side.
#ifndef REAL
#define REAL float
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

// For each row (a block) the likeliest column of another group, or -1, of each of the `k` likeliest buckets of columns (a
// thread: every blockDim.x-th column).
extern "C" __global__ void seed_candidates(
    const REAL* __restrict__ product, int columns, const REAL* __restrict__ column_half_norm,
    const int* __restrict__ row_group, const int* __restrict__ column_group, const int* __restrict__ ids, int k,
    int* __restrict__ out) {
    extern __shared__ REAL of_bucket[];
    const REAL* row = product + (size_t)blockIdx.x * columns;
    int group = row_group[blockIdx.x], best = -1, rank = 0;
    REAL least = 1.0 / 0.0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) {
        REAL value = column_half_norm[j] - row[j];
        if (value < least && column_group[ids[j]] != group) {
            least = value;
            best = ids[j];
        }
    }
    of_bucket[threadIdx.x] = least;
    __syncthreads();
    for (int b = 0; b < blockDim.x; b++) rank += of_bucket[b] < least || (of_bucket[b] == least && b < threadIdx.x);
    if (rank < k) out[(size_t)blockIdx.x * k + rank] = best;
}
