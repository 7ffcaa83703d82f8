// These kernels make the bounding volume hierarchy of bvh.cuh.
#include "neighbors/bvh.cuh"

constexpr int THREADS = 256, BLOCKS = 8;  // BLOCKS of THREADS fit on a multiprocessor, where blocks wait for each other
constexpr int HIGHEST = 255;             // it is above all levels, and stands where the curve ends

// Writes the box of all points: by feature the least value and, behind those, the least of the negatives. They are infinite at first.
extern "C" __global__ void find_box(const VALUE* __restrict__ values, long long n, double* box) {
    double least[2 * FEATURES];
    for (int f = 0; f < 2 * FEATURES; f++) least[f] = INFINITE;
    for (long long i = thread_index(); i < n; i += (long long)gridDim.x * blockDim.x)
        for (int f = 0; f < FEATURES; f++) {
            double x = widen(values[i * FEATURES + f]);
            least[f] = fmin(least[f], x), least[FEATURES + f] = fmin(least[FEATURES + f], -x);
        }
    for (int f = 0; f < 2 * FEATURES; f++) {
        for (int step = WARP / 2; step; step /= 2) least[f] = fmin(least[f], __shfl_xor_sync(ALL_LANES, least[f], step));
        if (threadIdx.x % WARP == 0) atomic_min(box + f, least[f]);
    }
}

// Writes the Morton code of each point: the leading bits, interleaved, of its coordinates in the box. Points outside are moved to
// the box's sides. Codes only decide how fast the search is.
extern "C" __global__ void morton_codes(
    const VALUE* __restrict__ values, long long n, const double* __restrict__ box, int bits,
    unsigned long long* __restrict__ codes) {
    long long i = thread_index();
    if (i >= n) return;
    unsigned long long on_grid[FEATURES], code = 0;
    for (int f = 0; f < FEATURES; f++) {
        double coordinate = (widen(values[i * FEATURES + f]) - box[f]) / (-box[FEATURES + f] - box[f]);  // NaN where none is wide
        on_grid[f] = (unsigned long long)(fmin(fmax(coordinate, 0.0), 1.0) * (double)((1ll << bits) - 1));
    }
    for (int b = bits - 1; b >= 0; b--)
        for (int f = 0; f < FEATURES; f++) code = code << 1 | (on_grid[f] >> b & 1);
    codes[i] = code;
}

// Returns the highest bit in which the codes of two neighbours on the curve differ or, if these are equal, their positions.
__device__ __forceinline__ unsigned char level_between(unsigned long long code, unsigned long long next, long long p) {
    return code == next ? 31 - __clz((int)(p ^ (p + 1))) : 95 - __clzll(code ^ next);
}

// Writes points, ids and levels along the curve; `along` has the ids in the order of their codes.
extern "C" __global__ void arrange(
    const VALUE* __restrict__ values, const unsigned long long* __restrict__ codes, const long long* __restrict__ along,
    long long n, VALUE* __restrict__ points, int* __restrict__ order, unsigned char* __restrict__ level) {
    long long p = thread_index();
    if (p >= n) return;
    long long id = along[p];
    order[p] = id;
    for (int f = 0; f < FEATURES; f++) points[p * FEATURES + f] = values[id * FEATURES + f];
    level[p] = p < n - 1 ? level_between(codes[id], codes[along[p + 1]], p) : HIGHEST;
}

// Marks the positions at which a leaf begins: the nodes around a position are tried, each the least that holds the one before.
extern "C" __global__ void find_leaves(const unsigned char* __restrict__ level, long long n, int* __restrict__ begins) {
    long long p = thread_index(), a = p, b = p;
    if (p >= n) return;
    while (true) {
        int left = a > 0 ? level[a - 1] : HIGHEST, right = level[b], highest = min(left, right);
        long long first = a, last = b;
        if (highest == HIGHEST) break;
        if (right < left)
            do last++;
            while (last - a < LEAF && level[last] < highest);
        else
            do first--;
            while (b - first < LEAF && first > 0 && level[first - 1] < highest);
        if (last - first >= LEAF) break;
        a = first, b = last;
    }
    begins[p] = a == p;
}

// Writes where each leaf begins; `leaf_of` has the number of each point's leaf.
extern "C" __global__ void list_leaves(const int* __restrict__ leaf_of, long long n, int* __restrict__ start) {
    long long p = thread_index();
    if (p < n && (p == 0 || leaf_of[p] != leaf_of[p - 1])) start[leaf_of[p]] = p;
}

// Takes the lower of each two lower bounds and the higher of each two upper bounds into a node's box.
__device__ __forceinline__ void extend(Node& node, const VALUE* low, const VALUE* high, int least) {
    node.least = min(node.least, least);
    for (int f = 0; f < FEATURES; f++) {
        // Numbers are compared in float64, where subnormal float32 values are not taken for zeros.
        if (widen(low[f]) < widen(node.low[f])) node.low[f] = low[f];
        if (widen(high[f]) > widen(node.high[f])) node.high[f] = high[f];
    }
}

// Extends a node's box by a child's. The child is read from L2, because another block may just have written it.
__device__ __forceinline__ void extend(Node& node, const Node* child) {
    VALUE low[FEATURES], high[FEATURES];
    for (int f = 0; f < FEATURES; f++) low[f] = __ldcg(child->low + f), high[f] = __ldcg(child->high + f);
    extend(node, low, high, __ldcg(&child->least));
}

// Makes the nodes, their boxes and their parents, from the leaves up (Apetrei 2014). A node and the neighbour from
// which it differs less have a parent, which the second of the two to come makes. The end of it that the other needs to know waits
// in `end`, which is NO_NODE to start with. `next` and `previous` are at first the node's last and first leaf.
extern "C" __global__ void build(
    const VALUE* __restrict__ points, const int* __restrict__ order, long long n, const unsigned char* __restrict__ level,
    const int* __restrict__ start, int leaves, Node* nodes, Span* __restrict__ spans, int* __restrict__ parent, int* end) {
    int a = thread_index(), b = a, v = 2 * a;
    if (a >= leaves) return;
    Node node;
    for (int f = 0; f < FEATURES; f++) node.low[f] = INFINITE, node.high[f] = -INFINITE;
    node.least = EMPTY_ID;
    long long first = start[a], last = (a < leaves - 1 ? start[a + 1] : n) - 1;
    for (long long p = first; p <= last; p++) extend(node, points + p * FEATURES, points + p * FEATURES, order[p]);
    nodes[v].left = first, nodes[v].right = ~(int)last;
    while (true) {
        for (int f = 0; f < FEATURES; f++) nodes[v].low[f] = node.low[f], nodes[v].high[f] = node.high[f];
        nodes[v].least = node.least, nodes[v].group = MIXED, nodes[v].next = b, nodes[v].previous = a;
        spans[v] = {start[a], (int)(b < leaves - 1 ? start[b + 1] : n) - 1};
        int left = a > 0 ? level[start[a] - 1] : HIGHEST, right = b < leaves - 1 ? level[start[b + 1] - 1] : HIGHEST;
        if (left == right) {  // the root
            parent[v] = NO_NODE;
            return;
        }
        bool is_left = right < left;
        int split = is_left ? b : a - 1, above = 2 * split + 1;
        parent[v] = above;
        if (is_left) nodes[above].left = v;
        else nodes[above].right = v;
        __threadfence();
        int other = atomicExch(end + split, is_left ? a : b);
        if (other == NO_NODE) return;
        __threadfence();
        (is_left ? b : a) = other;
        extend(node, nodes + __ldcg(is_left ? &nodes[above].right : &nodes[above].left));
        v = above;
    }
}

// Writes the ways along the curve: each node points at the child that begins after its last leaf, and at that which ends before its
// first.
extern "C" __global__ void link(int leaves, Node* nodes) {
    int v = thread_index();
    if (v >= 2 * leaves - 1) return;
    int first = nodes[v].previous, last = nodes[v].next;
    nodes[v].next = last < leaves - 1 ? nodes[2 * last + 1].right : NO_NODE;
    nodes[v].previous = first > 0 ? nodes[2 * first - 1].left : NO_NODE;
}

// Writes the exclusion ids of nodes, by those of the points along the curve.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) write_groups(
    const int* __restrict__ group, long long n, int leaves, const Span* __restrict__ spans, Node* nodes, unsigned* changes,
    unsigned* of_blocks, unsigned long long* counters) {
    ResidentBlocks blocks{counters};
    group_nodes(blocks, group, n, leaves, spans, nodes, changes, of_blocks);
}

// Adds up how many nodes some warps visit, `step` points apart, if the points of a warp search for their nearest others together.
// At most `limit` nodes count for a warp. The last begins before `end`.
extern "C" __global__ void count_visits(
    const VALUE* __restrict__ points, long long n, const int* __restrict__ leaf_of, const Node* __restrict__ nodes,
    long long step, long long end, int limit, unsigned long long* total) {
    long long first = thread_index() / WARP * step, p = first + threadIdx.x % WARP;
    if (first >= end) return;
    VALUE x[FEATURES];
    load(points, min(p, n - 1), x);
    double nearest = INFINITE;
    int visits = 0;
    walk(
        nodes, leaf_of[first], ALTERNATE,
        [&](const Node& node, int) {
            return ++visits > limit || __all_sync(ALL_LANES, lower_bound(x, node.low, node.high) > nearest);
        },
        [&](int begin, int end) {
            for (int q = begin; q <= end; q++)
                if (q != p) nearest = fmin(nearest, distance_to(x, points, q));
        });
    if (p == first) atomicAdd(total, (unsigned long long)min(visits, limit));
}

// Writes the least core distance in each node, from the leaves up: the second of a node's children to come fills it. `arrived` has
// zeros.
extern "C" __global__ void core_nodes(
    const double* __restrict__ core, int leaves, const Node* __restrict__ nodes, const int* __restrict__ parent,
    unsigned* arrived, double* least_core) {
    int leaf = thread_index();
    if (leaf >= leaves) return;
    double least = INFINITE;
    for (int p = nodes[2 * leaf].left; p <= ~nodes[2 * leaf].right; p++) least = fmin(least, core[p]);
    least_core[2 * leaf] = least;
    for (int v = parent[2 * leaf]; v != NO_NODE; v = parent[v]) {
        __threadfence();
        if (!atomicAdd(arrived + v / 2, 1u)) return;
        __threadfence();
        least_core[v] = fmin(__ldcg(least_core + nodes[v].left), __ldcg(least_core + nodes[v].right));
    }
}
