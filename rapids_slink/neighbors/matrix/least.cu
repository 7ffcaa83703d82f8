// This kernel lists the least distances of some rows from all points. Distances are VALUEs.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/exact/top_k.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE unsigned short
#endif
constexpr int THREADS = 64, BLOCKS = 16;  // the most threads of a block, and resident blocks
constexpr int TOGETHER = 8;               // distances that a lane reads at once
constexpr double INFINITE = 1.0 / 0.0;

// Returns the largest number below a distance.
__device__ __forceinline__ double below(double distance) {
    return distance > 0 ? __longlong_as_double(__double_as_longlong(distance) - 1) : -1;
}

// Writes the list of each of m rows, in the total order: the k nearest of n points of other exclusion ids, at most upper[i] away.
// If there are core distances, weights are mutual reachability. A warp a row; `size` is the room for its list, without what waits.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) least_of_rows(
    const VALUE* __restrict__ matrix, int n, const int* __restrict__ rows, int m, const int* __restrict__ row_group,
    const int* __restrict__ point_group, const double* __restrict__ core,
    const double* __restrict__ upper, int k, int size, int* __restrict__ ids, double* __restrict__ weights) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, i = blockIdx.x * (blockDim.x / WARP) + warp;
    if (i >= m) return;
    int entries = size + waiting_room(size), group = row_group[i];
    char* list = shared + (size_t)entries * 12 * warp;
    TopK top{(double*)list, (int*)(list + (size_t)entries * 8), k, size, 0};
    top.load(nullptr, nullptr);
    const VALUE* values = matrix + (long long)i * n;
    double limit = fmin(upper[i], OVERFLOW_VALUE);  // distances above it are not wanted from here on
    for (int first = lane; first - lane < n; first += TOGETHER * WARP) {
        double distance[TOGETHER];
        bool any = false;
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            int j = first + t * WARP;
            distance[t] = j < n ? widen(values[j]) : INFINITE;
            any |= distance[t] <= limit;
        }
        if (!__any_sync(ALL_LANES, any)) continue;
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            int j = first + t * WARP;
            bool wanted = distance[t] <= limit && point_group[j] != group;
            if (!__any_sync(ALL_LANES, wanted)) continue;
            double weight = core && wanted ? reachability(distance[t], core[rows[i]], core[j]) : distance[t];
            top.offer(weight, j, wanted && weight <= limit);
            // Points come in the order of their ids: none is before one of the same weight that is listed.
            limit = fmin(limit, below(top.last_weight()));
        }
    }
    top.finish();
    top.store(ids + (size_t)i * k, weights + (size_t)i * k);
}
