// Borůvka on a bounding volume hierarchy, all rounds in one cooperative launch. boxes.py explains the state of points and
// components.
//
// A point is its position along the curve, and a component is the position of one of its points, its root. The largest
// component waits: it searches nothing, and only edges of other components connect it.
#include "neighbors/bvh.cuh"
#include "spanning_tree/boruvka.cuh"

constexpr int THREADS = 256, BLOCKS = 6;  // BLOCKS of THREADS fit on a multiprocessor
constexpr int NEAREST = 5;                // others that each point finds at first
constexpr int NO_POINT = -1;
constexpr double SEARCH_MARGIN = 1.5;     // a search looks this many times as far as the bound, which saves later searches

// This is the input of a search: the points, their tree, and the leaf in which each warp's points begin.
struct Points {
    const VALUE* __restrict__ features;
    const int* __restrict__ order;
    const int* __restrict__ first_leaf;
    long long n;
    const Node* nodes;
};

// This is the state of each point or root: see boxes.py. `chosen` is the point whose candidate is the component's lightest edge.
// `following` has NEAREST - 1 rows, a point's nearest others except the first, as the number of positions from the point. It is
// 0 from the first neighbour on that is missing or does not fit into 16 bits, and in the first row once all have been used.
struct Growth {
    int *component, *candidate, *size, *parent, *chosen;
    short* following;
    double *weight, *bound;
};

// Zeros at first. The largest component as its size << 32 | its root; and the next point to search.
struct Round { unsigned long long largest, next; };
constexpr int MAX_ROUNDS = 64;  // more than can occur: each connects at least half of the components that search
struct Counters { unsigned long long arrived, taken, searched, rounds; Round round[MAX_ROUNDS]; };

// Finds the nearest others of each point, up to `limit`; the first is its candidate. The points of a warp search together.
extern "C" __global__ void __launch_bounds__(THREADS) find_nearest(
    const VALUE* __restrict__ features, const int* __restrict__ order, const int* __restrict__ first_leaf, long long n,
    const Node* __restrict__ nodes, double limit, int* __restrict__ candidate, short* __restrict__ following,
    double* __restrict__ weight) {
    long long p = thread_index(), first = p - threadIdx.x % WARP;
    if (first >= n) return;
    VALUE x[FEATURES];
    load(features, min(p, n - 1), x);
    double least[NEAREST];
    int nearest[NEAREST];
#pragma unroll
    for (int e = 0; e < NEAREST; e++) least[e] = p < n ? limit : -INFINITE, nearest[e] = -1;
    double& last = least[NEAREST - 1];
    int last_id = EMPTY_ID;
    auto id_of = [&](int q) { return q < 0 ? EMPTY_ID : order[q]; };
    walk(
        nodes, first_leaf[first / WARP], ALTERNATE,
        [&](const Node& node, int) {
            double gap = lower_bound(x, node.low, node.high);
            return __all_sync(ALL_LANES, gap > last || (gap == last && node.least > last_id));
        },
        [&](int begin, int end) {
            for (int q = begin; q <= end; q++) {
                double w = distance_to(x, features, q);
                if (q == p || w > last || !before(w, order[q], last, last_id)) continue;
#pragma unroll
                for (int e = NEAREST - 1; e >= 0; e--) {
                    bool moves = e > 0 && (w < least[e - 1] || (w == least[e - 1] && order[q] < id_of(nearest[e - 1])));
                    least[e] = moves ? least[e - 1] : w;
                    nearest[e] = moves ? nearest[e - 1] : q;
                    if (!moves) break;
                }
                last_id = id_of(nearest[NEAREST - 1]);
            }
        });
    if (p >= n) return;
    candidate[p] = nearest[0], weight[p] = least[0];
    bool known = true;
    for (int e = 1; e < NEAREST; e++) {
        long long step = nearest[e] - p;
        known = known && nearest[e] >= 0 && step == (short)step;
        following[(e - 1) * n + p] = known ? step : 0;
    }
}

// Makes the nearest known point of another component the candidate of p. If there is none, no such point is nearer than the
// last one known.
__device__ __forceinline__ void next_candidate(const Points& points, const Growth& known, long long p) {
    auto distance = [&](long long q) {
        return surrogate_distance(points.features + p * FEATURES, points.features + q * FEATURES, FEATURES);
    };
    int last = -1;
    known.candidate[p] = -1;
    for (int e = 0; e < NEAREST - 1; e++) {
        int step = known.following[e * points.n + p], q = p + step;
        if (!step) break;
        if (known.component[q] != known.component[p]) {
            known.candidate[p] = q, known.weight[p] = distance(q);
            return;
        }
        last = q;
    }
    if (last >= 0) known.weight[p] = distance(last), known.following[p] = 0;
}

// Finds candidates for those points of a warp that may have a lighter edge than their component's best. The points follow each
// other on the curve and search together: a node is skipped if none of them has to visit it. A bound that is read late is too
// high, which costs time and never an edge.
__device__ __forceinline__ void search(
    const Points& points, const Growth& known, long long first, int waiting, double limit, Counters* counters) {
    const int* component = known.component;
    long long p = first + threadIdx.x % WARP;
    int own = p < points.n ? component[p] : MIXED, other = -1, other_id = EMPTY_ID;
    volatile double* bound = known.bound;
    bool active = p < points.n && known.candidate[p] < 0 && own != waiting && known.weight[p] <= bound[own];
    unsigned votes = __ballot_sync(ALL_LANES, active);
    if (!votes) return;
    if (p == first) atomicAdd(&counters->searched, (unsigned long long)__popc(votes));
    VALUE x[FEATURES];
    load(points.features, min(p, points.n - 1), x);
    double least = INFINITE, reach = active ? fmin(SEARCH_MARGIN * bound[own], limit) : -1;  // no point is as near
    walk(
        points.nodes, points.first_leaf[first / WARP], BOTH,
        [&](const Node& node, int) {
            double gap = lower_bound(x, node.low, node.high);
            bool pass = node.group == own || gap > reach || (gap == least && node.least > other_id);
            return __all_sync(ALL_LANES, pass);
        },
        [&](int begin, int end) {
            double found = least;
            for (int q = begin; q <= end; q++) {
                if (component[q] == own) continue;
                double w = distance_to(x, points.features, q);
                if (w > reach || !before(w, points.order[q], least, other_id)) continue;
                least = reach = w, other = q, other_id = points.order[q];
            }
            if (least < found) atomic_min(known.bound + own, least);
            if (active) reach = fmin(reach, SEARCH_MARGIN * bound[own]);
        });
    if (!active) return;
    if (other >= 0 && least <= reach) known.candidate[p] = other;
    known.weight[p] = fmax(known.weight[p], reach);
}

// Chooses p for its component unless the candidate of another point, of the same weight, comes first in the total order.
__device__ __forceinline__ void choose(const Points& points, const Growth& known, int p) {
    auto code = [&](int q) { return edge_code(points.order[q], points.order[known.candidate[q]]); };
    int* chosen = known.chosen + known.component[p];
    int seen = *(volatile int*)chosen;
    while (seen == NO_POINT || code(p) < code(seen)) {
        int before = atomicCAS(chosen, seen, p);
        if (before == seen) return;
        seen = before;
    }
}

// Appends the tree's edges up to `most`, counted by counters->taken, in any order. Starts from the result of `find_nearest`.
// `limit` is the next number above `most`: a search that finds nothing up to it is not done again.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) grow_tree_of_boxes(
    const VALUE* __restrict__ features, const int* __restrict__ order, const int* __restrict__ first_leaf, long long n, int leaves,
    const Span* __restrict__ spans, Node* nodes, double most, double limit, int* candidate, short* following, double* weight, int* component, int* size,
    int* chosen, int* parent, double* bound, unsigned* of_blocks, int* __restrict__ src, int* __restrict__ dst,
    double* __restrict__ edge_weight, Counters* counters) {
    const Points points{features, order, first_leaf, n, nodes};
    const Growth known{component, candidate, size, parent, chosen, following, weight, bound};
    ResidentBlocks blocks{&counters->arrived};
    blocks.each(n, [&](long long p) { component[p] = p, size[p] = 1; });
    blocks.wait();
    unsigned long long before = n, taken = 0;  // edges; a round that takes none is the last
    for (Round* round = counters->round; taken < n - 1 && taken != before && round < counters->round + MAX_ROUNDS; round++) {
        // `parent` serves as scratch memory until components are hooked.
        group_nodes(blocks, component, n, leaves, spans, nodes, (unsigned*)parent, of_blocks);
        blocks.each(n, [&](long long p) {
            if (component[p] != p) return;
            bound[p] = most, chosen[p] = NO_POINT;
            unsigned long long own = (unsigned long long)size[p] << 32 | (unsigned)p;
            // No atomic is made if one of this size is known: else nearly all of the first round would wait for each other.
            if (own >> 32 > *(volatile unsigned long long*)&round->largest >> 32) atomicMax(&round->largest, own);
        });
        blocks.wait();
        int waiting = (unsigned)round->largest;
        // Replaces the candidates that no longer leave their components, and bounds the components.
        blocks.each_in_step(n, [&](long long p) {
            int own = component[p];
            if (own == waiting || candidate[p] < 0) return;
            if (component[candidate[p]] == own) next_candidate(points, known, p);
            if (candidate[p] >= 0) atomic_min(bound + own, weight[p]);
        });
        blocks.wait();
        while (true) {
            unsigned long long first = threadIdx.x % WARP ? 0 : atomicAdd(&round->next, (unsigned long long)WARP);
            first = __shfl_sync(ALL_LANES, first, 0);
            if (first >= n) break;
            search(points, known, first, waiting, limit, counters);
            __syncwarp();
        }
        blocks.wait();
        // Finds each component's lightest edge: it weighs as much as the bound, and the ends decide ties.
        blocks.each_in_step(n, [&](long long p) {
            int own = component[p];
            if (own != waiting && candidate[p] >= 0 && weight[p] == bound[own]) choose(points, known, p);
        });
        blocks.wait();
        // Hooks the components that do not wait.
        blocks.each_in_blocks(n, [&](long long p) {
            int root = p, across = p, from = 0, to = 0;
            if (p < n && component[p] == root && root != waiting && chosen[root] != NO_POINT) {
                from = chosen[root], to = candidate[from], across = component[to];
                across = hook(root, across, across != waiting && chosen[across] == to && candidate[to] == from);
            }
            unsigned long long slot = claim_in_warp(across != root, &counters->taken);
            if (across != root) {
                src[slot] = min(order[from], order[to]), dst[slot] = max(order[from], order[to]);
                edge_weight[slot] = bound[root];
            }
            if (p < n && component[p] == root) parent[p] = across;
        });
        blocks.wait();
        blocks.each_in_step(n, [&](long long p) {
            int old = component[p], root = find_root(parent, old);
            if (old == p && root != p) atomicAdd(size + root, size[p]);
            if (root != old) component[p] = root;
        });
        if (thread_index() == 0) counters->rounds++;
        blocks.wait();
        before = taken, taken = *(volatile unsigned long long*)&counters->taken;
    }
}
