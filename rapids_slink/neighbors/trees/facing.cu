// Rows and the boxes of other blocks' cells.
#include "neighbors/exact/candidates.cuh"

// For each row bits of cells, (n,) uint32: whether the box of one may hold a point within the larger of the row's bound and the
// limit of both cells. Cells of the row's own block have none.
extern "C" __global__ void facing_blocks(
    const VALUE* __restrict__ rows, int d, long long n, const int* __restrict__ cell_of_row, const double* __restrict__ bound,
    const double* __restrict__ low, const double* __restrict__ high, const double* __restrict__ limit,
    const int* __restrict__ block_of_cell, const int* __restrict__ bit_of_cell, int cells, int own,
    unsigned* __restrict__ out) {
    long long i = thread_index();
    if (i >= n) return;
    const VALUE* x = rows + (size_t)i * d;
    const double* of_cell = limit + (size_t)cell_of_row[i] * cells;
    unsigned found = 0;
    for (int t = 0; t < cells; t++) {
        if (block_of_cell[t] == own || found >> bit_of_cell[t] & 1) continue;
        double most = fmax(bound[i], of_cell[t]);
        const double *lowest = low + (size_t)t * d, *highest = high + (size_t)t * d;
        if (lowest[0] > highest[0]) continue;  // a box of no rows
        FORMULA sum;
        bool is_within = true;
        for (int f = 0; f < d && is_within; f++) {
            double value = widen(x[f]);
            sum.add_gap(fmax(fmax(minus(lowest[f], value), minus(value, highest[f])), 0.0));
            is_within = sum.of_gaps() <= most;
        }
        if (is_within) found |= 1u << bit_of_cell[t];
    }
    out[i] = found;
}

// The least and the greatest value of each column in groups of rows, which `order` has one after the other: a group and one part of
// it for each block of threads, whose warps take rows in turn; (groups, parts, d + 1) each. The last column is the rows' bound.
constexpr int BOX_THREADS = 256;

extern "C" __global__ void __launch_bounds__(BOX_THREADS) box_groups(
    const VALUE* __restrict__ rows, int d, const double* __restrict__ bound, const long long* __restrict__ order,
    const long long* __restrict__ start, double* __restrict__ low, double* __restrict__ high) {
    constexpr int WARPS = BOX_THREADS / WARP;
    __shared__ double least[WARPS][WARP], greatest[WARPS][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, group = blockIdx.x;
    long long end = start[group + 1], first = start[group] + blockIdx.y * WARPS + warp;
    for (int begin = 0; begin <= d; begin += WARP) {
        int f = begin + lane;
        double below = 1.0 / 0.0, above = -1.0 / 0.0;
        for (long long at = first; at < end && f <= d; at += gridDim.y * WARPS) {
            double value = f < d ? widen(rows[(size_t)order[at] * d + f]) : bound[order[at]];
            below = fmin(below, value), above = fmax(above, value);
        }
        least[warp][lane] = below, greatest[warp][lane] = above;
        __syncthreads();
        if (warp == 0 && f <= d) {
            for (int w = 1; w < WARPS; w++) below = fmin(below, least[w][lane]), above = fmax(above, greatest[w][lane]);
            size_t out = ((size_t)group * gridDim.y + blockIdx.y) * (d + 1) + f;
            low[out] = below, high[out] = above;
        }
        __syncthreads();
    }
}
