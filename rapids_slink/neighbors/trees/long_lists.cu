// Lists of neighbours of any length by the bounding volume hierarchy of bvh.cuh: a warp a query, its list in shared memory.
#include "neighbors/exact/top_k.cuh"
#include "neighbors/trees/bvh.cuh"

// The `k` nearest points of each query; see `search` of bvh.cu. All nodes of at most a warp's points are visited whole, a
// point a lane. Each warp has shared memory for a list of `size` entries and the points that wait to be merged into it.
extern "C" __global__ void search_by_warp(
    const VALUE* __restrict__ queries, const int* __restrict__ rows, long long m, const int* __restrict__ start,
    const int* __restrict__ row_group, const VALUE* __restrict__ points, const int* __restrict__ order,
    const int* __restrict__ group, const int* __restrict__ leaf_of, const Span* __restrict__ spans,
    const Node* __restrict__ nodes, const double* __restrict__ core, const double* __restrict__ least_core,
    const int* __restrict__ at, int k, int size, double* __restrict__ upper, int* __restrict__ ids,
    double* __restrict__ weights) {
    extern __shared__ __align__(16) char shared[];
    int warp = threadIdx.x / WARP, warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    long long t = (long long)blockIdx.x * warps + warp;
    if (t >= m) return;
    int entries = size + waiting_room(size);
    double* weights_of_warps = (double*)shared;
    int* ids_of_warps = (int*)(weights_of_warps + warps * entries);
    TopK top{weights_of_warps + warp * entries, ids_of_warps + warp * entries, k, size, 0};
    top.load(nullptr, nullptr);
    int i = at[t], row = rows[i], own_group = row_group[row];
    VALUE x[FEATURES];
    for (int f = 0; f < FEATURES; f++) x[f] = queries[(long long)row * FEATURES + f];
    double own_core = core ? core[start[i]] : 0, bound = upper[i];
    auto offer = [&](Span span) {
        int p = span.first + lane;
        bool wanted = p <= span.last && group[p] != own_group && !(core && core[p] > bound);
        double weight = INFINITE;
        if (wanted) weight = surrogate_distance(x, points + (long long)p * FEATURES, FEATURES);
        if (wanted && core) weight = reachability(weight, own_core, core[p]);
        top.offer(weight, wanted ? order[p] : EMPTY_ID, wanted && weight <= bound);
        bound = fmin(bound, top.last_weight());
    };
    walk(
        nodes, leaf_of[start[i]], true,
        [&](const Node& node, int v) {
            double gap = lower_bound(x, node.low, node.high);
            if (core) gap = reachability(gap, own_core, least_core[v]);
            if (gap > bound || (gap == top.last_weight() && node.least > top.last_id())) return true;
            Span span = spans[v];
            if (span.last - span.first >= WARP) return false;
            offer(span);
            return true;
        },
        [](int, int) {});
    top.finish();
    bound = fmin(bound, top.last_weight());
    top.store(ids + (size_t)i * k, weights + (size_t)i * k);
    if (lane == 0) upper[i] = bound;
}
