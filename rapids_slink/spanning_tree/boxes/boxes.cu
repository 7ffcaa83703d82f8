// Borůvka on a bounding volume hierarchy; the package says what is known of points and components.
//
// Points go by their positions along the curve, components by that of one of their points, their root. A component that
// `waits` searches nothing and is merged by others alone.
#include "neighbors/trees/bvh.cuh"
#include "spanning_tree/find_root.cuh"

// Every point a component of its own, of which nothing is known.
extern "C" __global__ void start(long long n, int* component, int* candidate, double* weight, int* size) {
    long long p = thread_index();
    if (p < n) component[p] = p, candidate[p] = -1, weight[p] = 0, size[p] = 1;
}

// Sets what the components know back, and the largest of them: its size << 32 | its root.
extern "C" __global__ void begin_round(
    long long n, const int* __restrict__ component, const int* __restrict__ size, double* bound, long long* best_code,
    unsigned long long* largest) {
    long long p = thread_index();
    if (p >= n) return;
    bound[p] = INFINITE, best_code[p] = NO_EDGE;
    // Not if one of that size is known: else nearly all of the first round would have to wait for each other.
    unsigned long long from = (unsigned long long)size[p] << 32;
    if (component[p] == p && from > *(volatile unsigned long long*)largest) atomicMax(largest, from | p);
}

__device__ __forceinline__ bool waits(int root, const unsigned long long* largest) { return root == (unsigned)*largest; }

// Drops the candidates that no longer leave their components, and bounds those that the others join.
extern "C" __global__ void bound_components(
    long long n, const int* __restrict__ component, int* __restrict__ candidate, const double* __restrict__ weight, double* bound) {
    long long p = thread_index();
    if (p >= n || candidate[p] < 0) return;
    int own = component[p], other = component[candidate[p]];
    if (own == other) candidate[p] = -1;
    else atomic_min(bound + own, weight[p]), atomic_min(bound + other, weight[p]);
}

// The candidates of the points that may know of a lighter edge than their components do. A warp's points, which follow each
// other on the curve, search together: a node is passed over if none of them has to look at it. A bound that is read late is
// too high, which costs time and never an edge.
extern "C" __global__ void search(
    const VALUE* __restrict__ points, const int* __restrict__ order, long long n, const int* __restrict__ leaf_of,
    const Node* __restrict__ nodes, const int* __restrict__ component, const unsigned long long* __restrict__ largest,
    int* __restrict__ candidate, double* __restrict__ weight, double* bound, int* searched) {
    long long p = thread_index(), first = p - threadIdx.x % WARP;
    int own = p < n ? component[p] : MIXED, other = -1, other_id = EMPTY_ID;
    bool active = p < n && candidate[p] < 0 && !waits(own, largest) && weight[p] <= ((volatile double*)bound)[own];
    unsigned votes = __ballot_sync(ALL_LANES, active);
    if (!votes) return;
    if (p == first) atomicAdd(searched, __popc(votes));
    VALUE x[FEATURES];
    for (int f = 0; f < FEATURES; f++) x[f] = points[min(p, n - 1) * FEATURES + f];
    double least = INFINITE, reach = active ? ((volatile double*)bound)[own] : -1;  // nothing is as near
    walk(
        nodes, leaf_of[first], false,
        [&](const Node& node, int) {
            double gap = lower_bound(x, node.low, node.high);
            bool pass = node.group == own || gap > reach || (gap == least && node.least > other_id);
            return __all_sync(ALL_LANES, pass);
        },
        [&](int begin, int end) {
            double found = least;
            for (int q = begin; q <= end; q++) {
                const VALUE* y = points + (long long)q * FEATURES;
                if (component[q] == own || lower_bound(x, y, y) > reach) continue;
                double w = surrogate_distance(x, y, FEATURES);
                if (w > reach || !before(w, order[q], least, other_id)) continue;
                least = reach = w, other = q, other_id = order[q];
            }
            if (least < found) atomic_min(bound + own, least);
            if (active) reach = fmin(reach, ((volatile double*)bound)[own]);
        });
    if (!active) return;
    bool leads = other >= 0 && least <= reach;
    if (leads) candidate[p] = other, atomic_min(bound + component[other], least);
    weight[p] = fmax(weight[p], reach);
}

// Each component's lightest edge, by what bounds it and then by the ends.
extern "C" __global__ void choose(
    const int* __restrict__ order, long long n, const int* __restrict__ component, const int* __restrict__ candidate,
    const double* __restrict__ weight, const double* __restrict__ bound, long long* best_code) {
    long long p = thread_index();
    if (p >= n || candidate[p] < 0) return;
    long long code = edge_code(order[p], order[candidate[p]]);
    int own = component[p], other = component[candidate[p]];
    if (weight[p] == bound[own]) atomic_min(best_code + own, code);
    if (weight[p] == bound[other]) atomic_min(best_code + other, code);
}

// Hooks each component that does not wait under the one that its lightest edge leads to. All keys differ, so the only cycles
// are pairs that chose the same edge: the smaller root of a pair stays one.
extern "C" __global__ void merge(
    const int* __restrict__ position, long long n, const int* __restrict__ component, const double* __restrict__ bound,
    const long long* __restrict__ best_code, const unsigned long long* __restrict__ largest, int* __restrict__ parent,
    int* taken, int* __restrict__ src, int* __restrict__ dst, double* __restrict__ weight) {
    long long p = thread_index();
    int root = p, across = p, low = 0, high = 0;
    if (p < n && component[p] == root && !waits(root, largest)) {
        low = best_code[p] >> 32, high = best_code[p] & 0xffffffff;
        across = component[position[low]] == root ? component[position[high]] : component[position[low]];
        if (!waits(across, largest) && best_code[across] == best_code[p] && root < across) across = root;
    }
    int slot = claim_in_warp(across != root, taken);
    if (across != root) src[slot] = low, dst[slot] = high, weight[slot] = bound[root];
    if (p < n) parent[p] = across;
}

// Every point's new component, and how many points the roots that stay have.
extern "C" __global__ void relabel(long long n, int* parent, int* __restrict__ component, int* size) {
    long long p = thread_index();
    if (p >= n) return;
    int old = component[p], root = find_root(parent, old);
    if (old == p && root != p) atomicAdd(size + root, size[p]);
    component[p] = root;
}
