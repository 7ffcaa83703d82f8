// Here are a bounding volume hierarchy over points sorted along a space-filling (Morton) curve, and a way through it.
//
// It is the radix tree of the points' codes (Karras 2012), whose nodes are stretches of the curve. The largest of at most
// LEAF points are the leaves, numbered along the curve: leaf i is node 2i, and the node whose children meet between leaves i
// and i + 1 is node 2i + 1.
#pragma once

#include "neighbors/exact/formulas.cuh"
#include "ordering.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/resident.cuh"

#ifndef VALUE
#define VALUE float
#endif
#ifndef FEATURES
#define FEATURES 3
#endif

constexpr int LEAF = 8;               // points at most
constexpr int MIXED = -1;             // the exclusion id of a node whose points have several
constexpr int NO_NODE = -1;
constexpr double INFINITE = 1.0 / 0.0;

struct __align__(16) Node {
    VALUE low[FEATURES], high[FEATURES];
    int least;           // id of its points
    int group;           // the exclusion id that all its points share, or MIXED
    int left, right;     // children; of a leaf the first position, and the bits of the last inverted, which is negative
    int next, previous;  // along the curve, when all of this node is done: the largest nodes that begin after it, end before it
};

// A span has the first and the last position of a node's points.
struct Span { int first, last; };

// Writes the exclusion ids of points along the curve into the nodes whose points share one; `changes`, with room for a number a
// point, counts how often the id has changed up to each. The next step has to wait.
__device__ __forceinline__ void group_nodes(
    ResidentBlocks& blocks, const int* group, long long n, int leaves, const Span* __restrict__ spans, Node* nodes,
    unsigned* changes, unsigned* of_blocks) {
    blocks.running_sums(0, n, 0, changes, of_blocks, [&](long long p) { return p && group[p] != group[p - 1]; });
    blocks.each(2ll * leaves - 1, [&](long long v) {
        Span span = spans[v];
        nodes[v].group = changes[span.first] == changes[span.last] ? group[span.first] : MIXED;
    });
}

// Returns no more than x - y as the formulas round it: the difference of float32 numbers is rounded down, to a number that float64
// holds too. It is in PTX, because CuPy compiles with -ftz=true, by which __fsub_rd takes subnormal numbers for zeros.
__device__ __forceinline__ float minus_down(float x, float y) {
    float difference;
    asm("sub.rm.f32 %0, %1, %2;" : "=f"(difference) : "f"(x), "f"(y));
    return difference;
}
__device__ __forceinline__ double minus_down(double x, double y) { return minus(x, y); }
__device__ __forceinline__ float plus_down(float x, float y) {
    float sum;
    asm("add.rm.f32 %0, %1, %2;" : "=f"(sum) : "f"(x), "f"(y));
    return sum;
}
__device__ __forceinline__ double plus_down(double x, double y) { return plus(x, y); }

// Returns the least difference between a point's coordinate and a box's, by how far the point is below the box and above it.
template <class Sum> __device__ __forceinline__ VALUE least_gap(const Sum&, VALUE below, VALUE above, int) {
    return max(below, above);
}
// Returns that of the nearest image: the other way round, past the end of the box, the difference is at least its length less the
// largest.
template <class Sum> __device__ __forceinline__ VALUE least_gap(const periodic<Sum>&, VALUE below, VALUE above, int f) {
    VALUE period = sizeof(VALUE) < 8 ? (VALUE)SPACE.below[f] : (VALUE)SPACE.period[f];
    return min(max(below, above), plus_down(period, min(below, above)));
}

// Returns a lower bound of the surrogate distances from x to the points of a box: the formula of the gaps, summed in the same order.
// Rounding is monotone, so it never exceeds the surrogate distance of a point inside.
__device__ __forceinline__ double lower_bound(const VALUE* x, const VALUE* low, const VALUE* high) {
    FORMULA sum;
#pragma unroll
    for (int f = 0; f < FEATURES; f++) {
        VALUE gap = least_gap(sum, minus_down(low[f], x[f]), minus_down(x[f], high[f]), f);
        sum.add_gap(widen(max(gap, (VALUE)0)));
    }
    return sum.of_gaps();
}

// A way along the curve goes from a leaf on to the end and, from the leaf before, back to the beginning. ALTERNATE takes a node of
// either in turn, BOTH one after the other, and ONWARD goes only onward.
enum Way { ALTERNATE, BOTH, ONWARD };

struct Never {
    __device__ bool operator()() const { return false; }
};

// Visits the leaves by their first and last positions, until all is done. Where pass_over(node, its number) is true, all below is
// left out.
template <class PassOver, class Visit, class Done = Never>
__device__ __forceinline__ void walk(
    const Node* nodes, int leaf, Way way, PassOver pass_over, Visit visit, Done is_done = Never()) {
    bool forward = true;
    int v = 2 * leaf, other = way == ONWARD ? NO_NODE : nodes[v].previous;
    while (!is_done()) {
        Node node = nodes[v];
        bool passed = pass_over(node, v), opens = !passed && node.right >= 0;
        if (!passed && !opens) visit(node.left, ~node.right);
        if (opens) v = forward ? node.left : node.right;
        else v = forward ? node.next : node.previous;
        if (v == NO_NODE && other == NO_NODE) return;
        if (other != NO_NODE && (way == ALTERNATE || v == NO_NODE)) {
            int swap = v;
            v = other, other = swap, forward = !forward;
        }
    }
}

// Loads a point's coordinates into registers.
__device__ __forceinline__ void load(const VALUE* __restrict__ points, long long row, VALUE* x) {
    for (int f = 0; f < FEATURES; f++) x[f] = points[row * FEATURES + f];
}

// Returns the surrogate distance from x to a point.
__device__ __forceinline__ double distance_to(const VALUE* x, const VALUE* __restrict__ points, long long q) {
    return surrogate_distance(x, points + q * FEATURES, FEATURES);
}
