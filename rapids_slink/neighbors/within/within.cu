// These kernels list the pairs within a bound, and count them, by the bounding volume hierarchy of bvh.cuh.
#include "neighbors/bvh.cuh"

constexpr int THREADS = 256;

// Calls found(id of the row, position, id of the point, distance) for the points within the limit of one of m rows, which are near
// positions `at` of the curve: of one set of points and all rows (`onward`) those that follow on the curve, so that each pair is
// found once; otherwise all, from both sides. `queries` is null if the rows are points themselves, at these positions: then a pair is
// passed over from its larger id, unless `onward`.
template <class Found>
__device__ __forceinline__ void each_within(
    const VALUE* __restrict__ queries, const int* __restrict__ rows, const int* __restrict__ at, long long m, bool onward,
    const VALUE* __restrict__ points, const int* __restrict__ order, const int* __restrict__ leaf_of,
    const Node* __restrict__ nodes, double limit, Found found) {
    long long t = thread_index();
    if (t >= m) return;
    int row = rows[t], start = at[t];
    VALUE x[FEATURES];
    load(queries ? queries : points, queries ? row : start, x);
    walk(
        nodes, leaf_of[start], onward ? ONWARD : BOTH,
        [&](const Node& node, int) { return lower_bound(x, node.low, node.high) > limit; },
        [&](int first, int last) {
            for (int q = onward ? max(first, start + 1) : first; q <= last; q++) {
                double distance = distance_to(x, points, q);
                if (distance <= limit && (queries || onward || order[q] > row)) found(row, order[q], distance);
            }
        });
}

// Appends the pairs, the smaller id first if `queries` is null, otherwise the row's. `count` goes on past `capacity`.
extern "C" __global__ void __launch_bounds__(THREADS) append_within(
    const VALUE* __restrict__ queries, const int* __restrict__ rows, const int* __restrict__ at, long long m, bool onward,
    const VALUE* __restrict__ points, const int* __restrict__ order, const int* __restrict__ leaf_of,
    const Node* __restrict__ nodes, double limit, long long capacity, unsigned long long* count, long long* __restrict__ pair,
    double* __restrict__ weight) {
    each_within(queries, rows, at, m, onward, points, order, leaf_of, nodes, limit, [&](int row, int id, double distance) {
        long long slot = atomicAdd(count, 1ull);
        if (slot < capacity) pair[slot] = queries ? (long long)row << 32 | id : edge_code(row, id), weight[slot] = distance;
    });
}

// Adds up how many of the pairs are within each of some limits, which ascend, and above the one before. Counts are of 64 bits, and
// shared memory holds as many.
extern "C" __global__ void __launch_bounds__(THREADS) count_within(
    const VALUE* __restrict__ queries, const int* __restrict__ rows, const int* __restrict__ at, long long m, bool onward,
    const VALUE* __restrict__ points, const int* __restrict__ order, const int* __restrict__ leaf_of,
    const Node* __restrict__ nodes, const double* __restrict__ limits, int n_limits, unsigned long long* counts) {
    extern __shared__ unsigned long long own[];
    for (int i = threadIdx.x; i < n_limits; i += blockDim.x) own[i] = 0;
    __syncthreads();
    unsigned long long within_first = 0;
    double largest = limits[n_limits - 1];
    each_within(queries, rows, at, m, onward, points, order, leaf_of, nodes, largest, [&](int, int, double distance) {
        int low = 0, high = n_limits - 1;
        while (low < high) {
            int middle = (low + high) / 2;
            if (distance <= limits[middle]) high = middle;
            else low = middle + 1;
        }
        if (low) atomicAdd(own + low, 1ull);
        else within_first++;
    });
    if (within_first) atomicAdd(own, within_first);
    __syncthreads();
    for (int i = threadIdx.x; i < n_limits; i += blockDim.x)
        if (own[i]) atomicAdd(counts + i, own[i]);
}
