// This kernel lists nearest points by the bounding volume hierarchy of bvh.cuh. A thread keeps a list of 1, 8 or 16 entries in registers, and
// a warp one of any length in shared memory: LIST is 0 then.
#include "neighbors/exact/top_k.cuh"
#include "neighbors/bvh.cuh"

#ifndef LIST
#define LIST 8
#endif

#if LIST
constexpr int LANES = 1;  // a query has one lane
// A thread's list does what `TopK` does for a warp. Nothing above the bound is wanted.
struct List {
    double weight[LIST], bound;
    int id[LIST];

    __device__ List(int, int) {
        for (int e = 0; e < LIST; e++) weight[e] = INFINITE, id[e] = EMPTY_ID;
    }
    __device__ double last_weight() const { return weight[LIST - 1]; }
    __device__ int last_id() const { return id[LIST - 1]; }
    __device__ void offer(double w, int candidate, bool wanted) {
        if (!wanted || w > bound || !before(w, candidate, last_weight(), last_id())) return;
#pragma unroll
        for (int e = LIST - 1; e >= 0; e--) {
            bool moves = e > 0 && before(w, candidate, weight[e - 1], id[e - 1]);
            weight[e] = moves ? weight[e - 1] : w;
            id[e] = moves ? id[e - 1] : candidate;
            if (!moves) break;
        }
        bound = fmin(bound, last_weight());
    }
    __device__ void finish() {}
    __device__ void store(int* ids, double* weights) const {
        for (int e = 0; e < LIST; e++) ids[e] = id[e] == EMPTY_ID ? -1 : id[e], weights[e] = weight[e];
    }
};
#else
constexpr int LANES = WARP;
struct List : TopK {
    double bound;

    __device__ List(int k, int size) : TopK{nullptr, nullptr, k, size, 0} {
        extern __shared__ __align__(16) char shared[];
        int warp = threadIdx.x / WARP, warps = blockDim.x / WARP, entries = size + waiting_room(size);
        w = (double*)shared + warp * entries, id = (int*)((double*)shared + warps * entries) + warp * entries;
        load(nullptr, nullptr);
    }
    __device__ void offer(double weight, int candidate, bool wanted) {
        TopK::offer(weight, candidate, wanted && weight <= bound);
        bound = fmin(bound, last_weight());
    }
    __device__ void finish() {
        TopK::finish();
        bound = fmin(bound, last_weight());
    }
};
#endif

// Writes the lists of queries `at`, of k entries. The searches begin near positions `start` of the curve, a point at its own.
// `minima`, if given, bounds each exclusion id by the least value that any of its queries has found; read late it is only too high.
// If the points have core distances (`core`, along the curve, and `least_core` of each node; else null), what is sought is mutual
// reachability, which is no less than either. A warp visits nodes of at most WARP points whole, a point a lane; `size` is the room
// of its list.
extern "C" __global__ void search(
    const VALUE* __restrict__ queries, const int* __restrict__ rows, long long m, const int* __restrict__ start,
    const int* __restrict__ row_group, const VALUE* __restrict__ points, const int* __restrict__ order,
    const int* __restrict__ group, const int* __restrict__ leaf_of, const Span* __restrict__ spans,
    const Node* __restrict__ nodes, const double* __restrict__ core, const double* __restrict__ least_core,
    const int* __restrict__ at, int k, int size, double* __restrict__ upper, double* minima, int* __restrict__ ids,
    double* __restrict__ weights) {
    long long t = thread_index() / LANES;
    if (t >= m) return;
    int i = at[t], row = rows[i], own_group = row_group[row], lane = threadIdx.x % LANES;
    VALUE x[FEATURES];
    load(queries, row, x);
    List list(k, size);
    list.bound = upper[i];
    double own_core = core ? core[start[i]] : 0;
    auto tighten = [&] {
        if (LANES == 1 && minima) list.bound = fmin(list.bound, ((volatile double*)minima)[own_group]);
    };
    auto offer = [&](int p, bool wanted) {
        wanted = wanted && group[p] != own_group && !(core && core[p] > list.bound);
        double weight = wanted ? distance_to(x, points, p) : INFINITE;
        if (wanted && core) weight = reachability(weight, own_core, core[p]);
        list.offer(weight, wanted ? order[p] : EMPTY_ID, wanted);
    };
    tighten();
    walk(
        nodes, leaf_of[start[i]], ALTERNATE,
        [&](const Node& node, int v) {
            if (LANES == 1 && minima && node.group == own_group) return true;
            double gap = lower_bound(x, node.low, node.high);
            if (core) gap = reachability(gap, own_core, least_core[v]);
            if (gap > list.bound || (gap == list.last_weight() && node.least > list.last_id())) return true;
            if (LANES == 1) return false;
            Span span = spans[v];
            if (span.last - span.first >= LANES) return false;
            offer(span.first + lane, span.first + lane <= span.last);
            return true;
        },
        [&](int first, int last) {
            for (int p = first; LANES == 1 && p <= last; p++) offer(p, true);
            tighten();
        });
    list.finish();
    long long begin = (long long)i * k;
    list.store(ids + begin, weights + begin);
    if (lane == 0) upper[i] = list.bound;
    if (LANES == 1 && minima && weights[begin] < INFINITE) atomic_min(minima + own_group, weights[begin]);
}
