// The pairs within a bound, and their numbers, by the bounding volume hierarchy of bvh.cuh.
#include "neighbors/trees/bvh.cuh"

constexpr int THREADS = 256;

// Calls found(position, distance) for the points within the limit of x: of one set of points and all rows (`onward`) those that
// follow position `at` on the curve, so that each pair is found once; otherwise all, from both sides of `at`.
template <class Found>
__device__ __forceinline__ void each_within(
    const VALUE* x, int at, bool onward, const VALUE* __restrict__ points, const int* __restrict__ leaf_of,
    const Node* __restrict__ nodes, double limit, Found found) {
    auto pass_over = [&](const Node& node, int) { return lower_bound(x, node.low, node.high) > limit; };
    auto visit = [&](int first, int last) {
        for (int q = onward ? max(first, at + 1) : first; q <= last; q++) {
            double distance = surrogate_distance(x, points + (long long)q * FEATURES, FEATURES);
            if (distance <= limit) found(q, distance);
        }
    };
    if (!onward) return walk(nodes, leaf_of[at], false, pass_over, visit);
    for (int v = 2 * leaf_of[at]; v != NO_NODE;) {
        Node node = nodes[v];
        bool passed = pass_over(node, v), opens = !passed && node.right >= 0;
        if (!passed && !opens) visit(node.left, ~node.right);
        v = opens ? node.left : node.next;
    }
}

__device__ __forceinline__ void load(const VALUE* __restrict__ from, long long row, VALUE* x) {
    for (int f = 0; f < FEATURES; f++) x[f] = from[row * FEATURES + f];
}

// Appends the pairs of m rows, which are near positions `at` of the curve. `queries` is null if the rows are points themselves,
// at these positions: then pairs have the smaller id first and, unless `onward`, the row's. `count` goes on past `capacity`.
extern "C" __global__ void __launch_bounds__(THREADS) append_within(
    const VALUE* __restrict__ queries, const int* __restrict__ rows, const int* __restrict__ at, long long m, bool onward,
    const VALUE* __restrict__ points, const int* __restrict__ order, const int* __restrict__ leaf_of,
    const Node* __restrict__ nodes, double limit, long long capacity, unsigned long long* count, long long* __restrict__ pair,
    double* __restrict__ weight) {
    long long t = thread_index();
    if (t >= m) return;
    int row = rows[t];
    VALUE x[FEATURES];
    load(queries ? queries : points, queries ? row : at[t], x);
    each_within(x, at[t], onward, points, leaf_of, nodes, limit, [&](int q, double distance) {
        int id = order[q], first = onward ? min(row, id) : row, second = onward ? max(row, id) : id;
        if (!queries && second <= first) return;
        long long slot = atomicAdd(count, 1ull);
        if (slot < capacity) pair[slot] = (long long)first << 32 | second, weight[slot] = distance;
    });
}

// Adds up how many pairs of m rows are within each of some limits, which ascend, and above the one before. Other arguments as
// above; counts are of 64 bits, and shared memory holds as many.
extern "C" __global__ void __launch_bounds__(THREADS) count_within(
    const VALUE* __restrict__ queries, const int* __restrict__ rows, const int* __restrict__ at, long long m, bool onward,
    const VALUE* __restrict__ points, const int* __restrict__ order, const int* __restrict__ leaf_of,
    const Node* __restrict__ nodes, const double* __restrict__ limits, int n_limits, unsigned long long* counts) {
    extern __shared__ unsigned long long own[];
    for (int i = threadIdx.x; i < n_limits; i += blockDim.x) own[i] = 0;
    __syncthreads();
    long long t = thread_index();
    if (t < m) {
        int row = rows[t];
        VALUE x[FEATURES];
        load(queries ? queries : points, queries ? row : at[t], x);
        unsigned long long within_first = 0;
        each_within(x, at[t], onward, points, leaf_of, nodes, limits[n_limits - 1], [&](int q, double distance) {
            if (!queries && !onward && order[q] <= row) return;
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
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n_limits; i += blockDim.x)
        if (own[i]) atomicAdd(counts + i, own[i]);
}
