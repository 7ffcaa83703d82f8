// The nearest columns of rows of a distance matrix, whose numbers are VALUEs.
#include "neighbors/exact/formulas.cuh"
#include "ordering.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif
constexpr int THREADS = 256;

// The nearest column of another group for each row, if its weight is at most the row's `upper`, which is tightened to it. With
// core distances a column weighs mutual reachability. A block a row; neighbouring threads read neighbouring columns.
extern "C" __global__ void __launch_bounds__(THREADS) find_nearest(
    const VALUE* __restrict__ matrix, long long n, const int* __restrict__ rows, const int* __restrict__ row_group,
    const int* __restrict__ column_group, const double* __restrict__ core, double* __restrict__ upper, int* __restrict__ ids,
    double* __restrict__ weights) {
    __shared__ double of_warp[THREADS / WARP];
    __shared__ int id_of_warp[THREADS / WARP];
    long long i = blockIdx.x;
    int row = rows[i], group = row_group[i], id = EMPTY_ID, lane = threadIdx.x % WARP;
    const VALUE* values = matrix + row * n;
    double weight = upper[i], infinity = 1.0 / 0.0;
    for (int j = threadIdx.x; j < n; j += THREADS) {
        double w = widen(values[j]);
        if (w <= weight && column_group[j] != group) {
            if (core) w = reachability(w, core[row], core[j]);
            if (before(w, j, weight, id)) weight = w, id = j;
        }
    }
    for (int offset = WARP / 2; offset; offset /= 2) exchange(weight, id, offset, true);
    if (lane == 0) of_warp[threadIdx.x / WARP] = weight, id_of_warp[threadIdx.x / WARP] = id;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    bool real = lane < THREADS / WARP;
    weight = real ? of_warp[lane] : infinity, id = real ? id_of_warp[lane] : EMPTY_ID;
    for (int offset = WARP / 2; offset; offset /= 2) exchange(weight, id, offset, true);
    if (lane) return;
    bool found = id != EMPTY_ID;
    ids[i] = found ? id : -1;
    weights[i] = found ? weight : infinity;
    if (found) upper[i] = weight;
}
