// This kernel computes all surrogate distances between some rows and all points, by tiles in shared memory.
#include "neighbors/exact/formulas.cuh"

#ifndef VALUE
#define VALUE float
#endif
constexpr int TILE = 32, STEP = 8, THREADS = TILE * STEP;  // a block makes TILE x TILE distances, each thread TILE / STEP

// Sets out[i, j] to the distance of (rows[i], j). If `rows` is null, the rows are all queries in turn.
extern "C" __global__ void __launch_bounds__(THREADS) all_distances(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ points, int d, const int* __restrict__ rows, int n_rows,
    int n_points, double* __restrict__ out) {
    __shared__ VALUE x[TILE][TILE + 1], y[TILE][TILE + 1];
    int column = threadIdx.x % TILE, first = threadIdx.x / TILE, summed = FORMULA::summed(d);
    int row0 = blockIdx.y * TILE, point0 = blockIdx.x * TILE, j = point0 + column;
    auto query = [&](int i) { return queries + (size_t)(rows ? rows[i] : i) * d; };
    FORMULA sum[TILE / STEP];
    for (int start = 0; start < summed; start += TILE) {
        int width = min(TILE, summed - start);
        for (int i = first; i < TILE && column < width; i += STEP) {
            if (row0 + i < n_rows) x[i][column] = query(row0 + i)[start + column];
            if (point0 + i < n_points) y[i][column] = points[(size_t)(point0 + i) * d + start + column];
        }
        __syncthreads();
        for (int f = 0; f < width; f++) {
            double other = widen(y[column][f]);
#pragma unroll
            for (int s = 0; s < TILE / STEP; s++) sum[s].add(widen(x[first + s * STEP][f]), other);
        }
        __syncthreads();
    }
    if (j >= n_points) return;
#pragma unroll
    for (int s = 0; s < TILE / STEP; s++) {
        int i = row0 + first + s * STEP;
        if (i >= n_rows) return;
        out[(size_t)i * n_points + j] = sum[s].value(query(i), points + (size_t)j * d, d);
    }
}
