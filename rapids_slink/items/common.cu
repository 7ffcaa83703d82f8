// What some rows have in common with every row, from the rows that hold each of their columns, in the order of the columns: of sets
// the number of common elements, of rows of VALUEs the dot products of cpu.py, operation by operation.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"

constexpr int THREADS = 256, WARPS = THREADS / WARP;
constexpr int COUNTED = 512, SUMMED = 384;  // rows of a warp, whose counts or sums are in shared memory
#ifdef VALUE
typedef double Sum;
constexpr int SIDES = 2, ROWS = SUMMED;  // even and odd columns
#else
#define VALUE float
typedef int Sum;
constexpr int SIDES = 1, ROWS = COUNTED;
#endif
#ifndef COLUMN
#define COLUMN int
#endif

// The place of the first of ascending rows that is not before `row`.
__device__ long long place_of(int row, const int* __restrict__ rows, long long begin, long long end) {
    while (begin < end) {
        long long middle = (begin + end) / 2;
        if (rows[middle] < row) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

// out[i * n + j] of rows first_row + i and j. Rows have `numbers` of columns, whose `holders` begin at `begins`, each with the value
// `held`. A warp takes a row and ROWS others, and a column at a time: so no two lanes add to one sum.
extern "C" __global__ void __launch_bounds__(THREADS) put_sums(
    const long long* __restrict__ starts, const int* __restrict__ numbers, const COLUMN* __restrict__ columns,
    const VALUE* __restrict__ values, const long long* __restrict__ begins, const int* __restrict__ holders,
    const VALUE* __restrict__ held, int n, long long d, int first_row, Sum* __restrict__ out) {
    __shared__ Sum shared[WARPS][SIDES][ROWS];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, row = first_row + blockIdx.x;
    int first = (blockIdx.y * WARPS + warp) * ROWS, last = min(n, first + ROWS);
    if (first >= n) return;
    auto& sums = shared[warp];
    for (int j = lane; j < ROWS; j += WARP)
        for (int side = 0; side < SIDES; side++) sums[side][j] = 0;
    __syncwarp();
    long long end = starts[row + 1];
    for (long long e = starts[row]; e < end; e += WARP) {
        long long begin = 0, stop = 0;
        if (e + lane < end) {
            int number = numbers[e + lane];
            begin = place_of(first, holders, begins[number], begins[number + 1]);
            stop = place_of(last, holders, begin, begins[number + 1]);
        }
        for (unsigned lanes = __ballot_sync(ALL_LANES, begin < stop); lanes; lanes &= lanes - 1) {
            int next = __ffs(lanes) - 1;
            long long h = __shfl_sync(ALL_LANES, begin, next) + lane, h_end = __shfl_sync(ALL_LANES, stop, next);
            if constexpr (SIDES == 1) {
                for (; h < h_end; h += WARP) sums[0][holders[h] - first]++;
            } else {
                long long column = columns[e + next];
                double x = widen(values[e + next]);
                if (column == d - 1 && column % 2 == 0) {  // of an odd number of columns the last is added at the end
                    for (int j = lane; j < ROWS; j += WARP) sums[0][j] = plus(sums[0][j], sums[1][j]), sums[1][j] = 0;
                    __syncwarp();
                }
                Sum* side = sums[column % 2];
                for (; h < h_end; h += WARP) side[holders[h] - first] = plus(side[holders[h] - first], times(x, widen(held[h])));
            }
            __syncwarp();
        }
    }
    for (int j = lane; first + j < last; j += WARP) {
        Sum sum = sums[0][j];
        if constexpr (SIDES == 2) sum = plus(sum, sums[1][j]);
        out[(long long)blockIdx.x * n + first + j] = sum;
    }
}
