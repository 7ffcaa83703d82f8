// Borůvka on a bounding volume hierarchy, all rounds in one cooperative launch; the package says what is known of points and
// components.
//
// Points go by their positions along the curve, components by that of one of their points, their root. The largest component
// waits: it searches nothing and is merged by others alone.
#include "neighbors/trees/bvh.cuh"
#include "spanning_tree/find_root.cuh"

constexpr int THREADS = 256, BLOCKS = 6;  // a multiprocessor holds so many blocks

// What a search reads: the points and their tree.
struct Points {
    const VALUE* __restrict__ features;
    const int* __restrict__ order;
    const int* __restrict__ leaf_of;
    long long n;
    const Node* nodes;
};

// What is known, by point or by root: see the package. `least` is the code of the component's lightest edge.
struct Growth {
    int *component, *candidate, *size, *parent;
    double *weight, *bound;
    long long* least;
};

// Zeros at first. The largest component: its size << 32 | its root; and the next point to search.
struct Round { unsigned long long largest, next; };
constexpr int MAX_ROUNDS = 64;  // as in cuda.py
struct Counters { unsigned long long arrived, taken, searched, rounds; Round round[MAX_ROUNDS]; };

// The candidates of the points of a warp that may know of a lighter edge than their components do. These points, which follow
// each other on the curve, search together: a node is passed over if none of them has to look at it. A bound that is read late
// is too high, which costs time and never an edge.
__device__ __forceinline__ void search(const Points& points, const Growth& known, long long first, int waiting, Counters* counters) {
    const int* component = known.component;
    long long p = first + threadIdx.x % WARP;
    int own = p < points.n ? component[p] : MIXED, other = -1, other_id = EMPTY_ID;
    volatile double* bound = known.bound;
    bool active = p < points.n && known.candidate[p] < 0 && own != waiting && known.weight[p] <= bound[own];
    unsigned votes = __ballot_sync(ALL_LANES, active);
    if (!votes) return;
    if (p == first) atomicAdd(&counters->searched, (unsigned long long)__popc(votes));
    VALUE x[FEATURES];
    for (int f = 0; f < FEATURES; f++) x[f] = points.features[min(p, points.n - 1) * FEATURES + f];
    double least = INFINITE, reach = active ? bound[own] : -1;  // nothing is as near
    walk(
        points.nodes, points.leaf_of[first], false,
        [&](const Node& node, int) {
            double gap = lower_bound(x, node.low, node.high);
            bool pass = node.group == own || gap > reach || (gap == least && node.least > other_id);
            return __all_sync(ALL_LANES, pass);
        },
        [&](int begin, int end) {
            double found = least;
            for (int q = begin; q <= end; q++) {
                const VALUE* y = points.features + (long long)q * FEATURES;
                if (component[q] == own || lower_bound(x, y, y) > reach) continue;
                double w = surrogate_distance(x, y, FEATURES);
                if (w > reach || !before(w, points.order[q], least, other_id)) continue;
                least = reach = w, other = q, other_id = points.order[q];
            }
            if (least < found) atomic_min(known.bound + own, least);
            if (active) reach = fmin(reach, bound[own]);
        });
    if (!active) return;
    bool leads = other >= 0 && least <= reach;
    if (leads) known.candidate[p] = other, atomic_min(known.bound + component[other], least);
    known.weight[p] = fmax(known.weight[p], reach);
}

// The tree's edges in no order, as many as counters->taken says; `position` is the inverse of the points' order.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) grow_tree(
    const VALUE* __restrict__ features, const int* __restrict__ order, const int* __restrict__ position,
    const int* __restrict__ leaf_of, long long n, int leaves, const Span* __restrict__ spans, Node* nodes, int* component,
    int* candidate, int* size, int* parent, double* weight, double* bound, long long* least, unsigned* changes,
    unsigned* of_blocks, int* __restrict__ src, int* __restrict__ dst, double* __restrict__ edge_weight, Counters* counters) {
    const Points points{features, order, leaf_of, n, nodes};
    const Growth known{component, candidate, size, parent, weight, bound, least};
    ResidentBlocks blocks{&counters->arrived};
    blocks.each(n, [&](long long p) { component[p] = p, candidate[p] = -1, weight[p] = 0, size[p] = 1; });
    blocks.wait();
    for (Round* round = counters->round; *(volatile unsigned long long*)&counters->taken < n - 1; round++) {
        group_nodes(blocks, component, n, leaves, spans, nodes, changes, of_blocks);
        blocks.each(n, [&](long long p) {
            bound[p] = INFINITE, least[p] = NO_EDGE;
            unsigned long long own = (unsigned long long)size[p] << 32 | (unsigned)p;
            // Not if one of that size is known: else nearly all of the first round would have to wait for each other.
            if (component[p] == p && own >> 32 > *(volatile unsigned long long*)&round->largest >> 32) atomicMax(&round->largest, own);
        });
        blocks.wait();
        int waiting = (unsigned)round->largest;
        // Drops the candidates that no longer leave their components, and bounds those that the others join.
        blocks.each(n, [&](long long p) {
            if (candidate[p] < 0) return;
            int own = component[p], other = component[candidate[p]];
            if (own == other) candidate[p] = -1;
            else atomic_min(bound + own, weight[p]), atomic_min(bound + other, weight[p]);
        });
        blocks.wait();
        while (true) {
            unsigned long long first = threadIdx.x % WARP ? 0 : atomicAdd(&round->next, (unsigned long long)WARP);
            first = __shfl_sync(ALL_LANES, first, 0);
            if (first >= n) break;
            search(points, known, first, waiting, counters);
            __syncwarp();
        }
        blocks.wait();
        // Each component's lightest edge, by what bounds it and then by the ends.
        blocks.each(n, [&](long long p) {
            if (candidate[p] < 0) return;
            long long code = edge_code(order[p], order[candidate[p]]);
            int own = component[p], other = component[candidate[p]];
            if (weight[p] == bound[own]) atomic_min(least + own, code);
            if (weight[p] == bound[other]) atomic_min(least + other, code);
        });
        blocks.wait();
        // Hooks each component that does not wait under the one that its lightest edge leads to. All keys differ, so the only
        // cycles are pairs that chose the same edge: the smaller root of a pair stays one.
        blocks.each_in_blocks(n, [&](long long p) {
            int root = p, across = p, low = 0, high = 0;
            if (p < n && component[p] == root && root != waiting) {
                low = least[p] >> 32, high = least[p] & 0xffffffff;
                across = component[position[low]] == root ? component[position[high]] : component[position[low]];
                if (across != waiting && least[across] == least[p] && root < across) across = root;
            }
            unsigned long long slot = claim_in_warp(across != root, &counters->taken);
            if (across != root) src[slot] = low, dst[slot] = high, edge_weight[slot] = bound[root];
            if (p < n) parent[p] = across;
        });
        blocks.wait();
        blocks.each(n, [&](long long p) {
            int old = component[p], root = find_root(parent, old);
            if (old == p && root != p) atomicAdd(size + root, size[p]);
            component[p] = root;
        });
        if (thread_index() == 0) counters->rounds++;
        blocks.wait();
    }
}
