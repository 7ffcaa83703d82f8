// The least distances of rows of a matrix.
#ifndef DISTANCE
#define DISTANCE unsigned short
#endif
#include "neighbors/exact/top_k.cuh"
#include "neighbors/planes/distance.cuh"
#include "runtime/include/threads.cuh"

constexpr int THREADS = 64, BLOCKS = 16;  // of a block at most, and resident
constexpr int TOGETHER = 8;               // distances that a lane reads at once

// The list of each of the m rows, in the total order: the k nearest points outside its group that are at most upper[i] away. Row i
// of the matrix, or where[i], is that of the point or query rows[i]. If there are core distances, weights are mutual reachability.
// A warp a row; `size` is the room for its list, without what waits.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) least_of_rows(
    const DISTANCE* __restrict__ matrix, int n, const int* __restrict__ where, const int* __restrict__ rows, int m,
    const int* __restrict__ row_group, const int* __restrict__ point_group, const double* __restrict__ core,
    const double* __restrict__ upper, int k, int size, int* __restrict__ ids, double* __restrict__ weights) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, i = blockIdx.x * (blockDim.x / WARP) + warp;
    if (i >= m) return;
    int entries = size + waiting_room(size), own = row_group[i];
    char* list = shared + (size_t)entries * 12 * warp;
    TopK top{(double*)list, (int*)(list + (size_t)entries * 8), k, size, 0};
    top.load(nullptr, nullptr);
    const DISTANCE* distances = matrix + (size_t)(where ? where[i] : i) * n;
    double within = upper[i], last = 1.0 / 0.0;
    for (int first = lane; first - lane < n; first += TOGETHER * WARP) {
        double weight[TOGETHER];
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            int j = first + t * WARP;
            weight[t] = j < n ? distance_of(distances[j]) : 1.0 / 0.0;
        }
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            int j = first + t * WARP;
            // Points come in the order of their ids: none is before one of the same weight that is listed.
            bool wanted = weight[t] <= within && weight[t] < last && point_group[j] != own;
            if (core && wanted) weight[t] = reachability(weight[t], core[rows[i]], core[j]), wanted = weight[t] <= within;
            if (!__any_sync(ALL_LANES, wanted)) continue;
            top.offer(weight[t], j, wanted);
            last = top.last_weight();
        }
    }
    top.finish();
    top.store(ids + (size_t)i * k, weights + (size_t)i * k);
}
