// These kernels find friends of friends on a bounding volume hierarchy: the components of all pairs within a limit. docs/algorithms.md
// has the proof.
//
// A point is its position along the curve. `parent` is a forest over points whose roots are the components; a point's parent
// comes before it.
#include "neighbors/bvh.cuh"
#include "spanning_tree/boruvka.cuh"

constexpr int THREADS = 256, BLOCKS = 8;  // BLOCKS of THREADS fit on a multiprocessor, where blocks wait for each other

// Reduces the values of the points within the limit of each point, itself among them, into its `total`, by its id. Where it
// `adds`, it adds them until they are enough; otherwise the totals are infinite, or those of points that are passed over, and it
// takes the least. `values` are along the curve, null where each is 1.
extern "C" __global__ void __launch_bounds__(THREADS) reduce_near_points(
    const VALUE* __restrict__ points, const int* __restrict__ leaf_of, long long n, const Node* __restrict__ nodes,
    const int* __restrict__ order, const double* __restrict__ values, double limit, double enough, bool adds,
    double* __restrict__ total) {
    long long p = thread_index();
    if (p >= n) return;
    double result = total[order[p]];
    if (!adds && result < INFINITE) return;
    VALUE x[FEATURES];
    load(points, p, x);
    walk(
        nodes, leaf_of[p], BOTH,
        [&](const Node& node, int) { return lower_bound(x, node.low, node.high) > limit; },
        [&](int first, int last) {
            for (int q = first; q <= last; q++) {
                if (distance_to(x, points, q) > limit) continue;
                double value = values ? values[q] : 1;
                result = adds ? result + value : min(result, value);
            }
        },
        [&] { return adds && result >= enough; });
    total[order[p]] = result;
}

// Marks the tight nodes, whose points are all within the limit of each other, by their first point. The formula of the box's sides is no
// less than that of two points inside, because rounding is monotone, and no less than that of their images.
extern "C" __global__ void mark_tight_nodes(int leaves, const Span* __restrict__ spans, double limit, Node* nodes) {
    long long v = thread_index();
    if (v >= 2ll * leaves - 1) return;
    FORMULA sides;
    for (int f = 0; f < FEATURES; f++) sides.add_gap(minus(widen(nodes[v].high[f]), widen(nodes[v].low[f])));
    nodes[v].group = sides.of_gaps() <= limit ? spans[v].first : MIXED;
}

// Makes each point's parent the first point of the largest tight node that holds it, or else the point itself. `others`
// counts the points that are not the first of their tight node.
extern "C" __global__ void __launch_bounds__(THREADS) begin_with_tight_nodes(
    const int* __restrict__ leaf_of, long long n, const Node* __restrict__ nodes, const int* __restrict__ above,
    int* __restrict__ parent, unsigned long long* others) {
    long long p = thread_index();
    int first = p;
    if (p < n) {
        int v = 2 * leaf_of[p];
        for (; v != NO_NODE && nodes[v].group != MIXED; v = above[v]) first = nodes[v].group;
        parent[p] = first;
    }
    unsigned votes = __ballot_sync(ALL_LANES, p < n && first != p);
    if (votes && threadIdx.x % WARP == 0) atomicAdd(others, (unsigned long long)__popc(votes));
}

// Unites points with those within the limit that follow them on the curve: the first points of tight nodes, or all others. A node of
// one component is passed over if that is the point's own, and left at its first point that is near.
extern "C" __global__ void __launch_bounds__(THREADS) unite_near_points(
    const VALUE* __restrict__ points, const int* __restrict__ leaf_of, long long n, const Node* __restrict__ nodes,
    const int* __restrict__ first_point, bool firsts, double limit, int* parent) {
    long long p = thread_index();
    if (p >= n || (first_point[p] == p) != firsts) return;
    VALUE x[FEATURES];
    load(points, p, x);
    int own = find_root(parent, p);
    bool is_mixed;
    walk(
        nodes, leaf_of[p], ONWARD,
        [&](const Node& node, int) {
            is_mixed = node.group == MIXED;
            if (lower_bound(x, node.low, node.high) > limit) return true;
            if (is_mixed) return false;
            own = find_root(parent, own);
            return find_root(parent, node.group) == own;
        },
        [&](int first, int last) {
            for (int q = max(first, (int)p + 1); q <= last; q++) {
                if (distance_to(x, points, q) > limit) continue;
                own = unite(parent, own, q);
                if (!is_mixed) break;
            }
        });
}

// Writes the component of each point.
extern "C" __global__ void find_components(long long n, int* parent, int* __restrict__ component) {
    long long p = thread_index();
    if (p < n) component[p] = find_root(parent, p);
}

// Writes the label of each row, by the order in which clusters appear in the rows. `first` are n each: the first row of each root.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) number_components(
    long long n, const int* __restrict__ order, int* parent, int* first, unsigned* number, unsigned* of_blocks,
    int* __restrict__ label, unsigned long long* counters) {
    ResidentBlocks blocks{counters};
    blocks.each(n, [&](long long p) { first[p] = EMPTY_ID, number[p] = 0; });
    blocks.wait();
    blocks.each(n, [&](long long p) {
        int root = find_root(parent, p);
        atomic_min(first + root, order[p]);
    });
    blocks.wait();
    blocks.each(n, [&](long long p) {
        if (parent[p] == p) number[first[p]] = 1;
    });
    blocks.wait();
    blocks.running_sums(0, n, 0, number, of_blocks, [&](long long row) { return number[row]; });
    blocks.each(n, [&](long long p) { label[order[p]] = number[first[find_root(parent, p)]] - 1; });
}
