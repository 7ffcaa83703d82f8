// Search in few dimensions: a bounding volume hierarchy over points sorted along a space-filling (Morton) curve.
//
// The tree is complete and implicit: node v has the children 2v + 1 and 2v + 2, and each of the lowest level's `leaves`
// (a power of two) holds LEAF points that follow each other on the curve. The formula of a point and the nearest of a
// box is computed as that of two points is, feature by feature in the same order, and rounding is monotone, so it never
// exceeds the surrogate distance of a point inside.
#include "neighbors/exact/formulas.cuh"
#include "ordering.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif
#ifndef FEATURES
#define FEATURES 3
#endif
#ifndef LIST
#define LIST 8
#endif

constexpr int LEAF = 8;
constexpr int MIXED = -1;           // a node whose points are of several groups
constexpr int EMPTY_ID = 0x7fffffff;  // an empty entry: after every id
constexpr double INFINITE = 1.0 / 0.0;

// The Morton code of each point: the leading bits of all features, interleaved. It only decides how fast the search is.
extern "C" __global__ void morton_codes(
    const VALUE* __restrict__ values, long long n, const double* __restrict__ low, const double* __restrict__ scale,
    int bits, unsigned long long* __restrict__ codes) {
    long long i = thread_index();
    if (i >= n) return;
    unsigned long long cell[FEATURES], code = 0;
    for (int f = 0; f < FEATURES; f++)
        cell[f] = (unsigned long long)fmin((widen(values[i * FEATURES + f]) - low[f]) * scale[f], (double)((1ll << bits) - 1));
    for (int b = bits - 1; b >= 0; b--)
        for (int f = 0; f < FEATURES; f++) code = code << 1 | (cell[f] >> b & 1);
    codes[i] = code;
}

// The boxes of one level's nodes, and the least id in each: of the leaves from their points, else from their children.
extern "C" __global__ void bound_nodes(
    const VALUE* __restrict__ points, const int* __restrict__ order, long long n, long long first, long long leaves,
    VALUE* __restrict__ low, VALUE* __restrict__ high, int* __restrict__ least) {
    long long v = first + thread_index();
    if (v > 2 * first) return;
    bool leaf = first == leaves - 1;
    long long begin = leaf ? (v - first) * LEAF : 2 * v + 1, end = leaf ? min(begin + LEAF, n) : 2 * v + 3;
    const VALUE *from = leaf ? points : low, *to = leaf ? points : high;
    VALUE lo[FEATURES], hi[FEATURES];
    int id = EMPTY_ID;
    for (int f = 0; f < FEATURES; f++) lo[f] = INFINITE, hi[f] = -INFINITE;
    for (long long p = begin; p < end; p++) {
        id = min(id, leaf ? order[p] : least[p]);
        for (int f = 0; f < FEATURES; f++) {
            // In float64, where subnormal float32 values are not taken for zeros.
            if (widen(from[p * FEATURES + f]) < widen(lo[f])) lo[f] = from[p * FEATURES + f];
            if (widen(to[p * FEATURES + f]) > widen(hi[f])) hi[f] = to[p * FEATURES + f];
        }
    }
    least[v] = id;
    for (int f = 0; f < FEATURES; f++) low[v * FEATURES + f] = lo[f], high[v * FEATURES + f] = hi[f];
}

// The group that all points of a node share, or MIXED; level by level, like the boxes. Nodes without points are MIXED.
extern "C" __global__ void group_nodes(
    const int* __restrict__ group, long long n, long long first, long long leaves, int* __restrict__ node_group) {
    long long v = first + thread_index();
    if (v > 2 * first) return;
    bool leaf = first == leaves - 1;
    long long begin = leaf ? (v - first) * LEAF : 2 * v + 1, end = leaf ? min(begin + LEAF, n) : 2 * v + 3;
    const int* from = leaf ? group : node_group;
    int shared = begin < end ? from[begin] : MIXED;
    for (long long p = begin + 1; p < end; p++)
        if (from[p] != shared) shared = MIXED;
    node_group[v] = shared;
}

// The least core distance in each node, likewise.
extern "C" __global__ void core_nodes(
    const double* __restrict__ core, long long n, long long first, long long leaves, double* __restrict__ least_core) {
    long long v = first + thread_index();
    if (v > 2 * first) return;
    bool leaf = first == leaves - 1;
    long long begin = leaf ? (v - first) * LEAF : 2 * v + 1, end = leaf ? min(begin + LEAF, n) : 2 * v + 3;
    const double* from = leaf ? core : least_core;
    double least = INFINITE;
    for (long long p = begin; p < end; p++) least = fmin(least, from[p]);
    least_core[v] = least;
}

struct Query {
    double x[FEATURES];
    double weight[LIST];  // the least found, sorted
    int id[LIST];
    double bound;         // nothing above this is wanted

    __device__ double to_box(const VALUE* low, const VALUE* high) const {
        FORMULA sum;
#pragma unroll
        for (int f = 0; f < FEATURES; f++)
            sum.add_gap(fmax(fmax(minus(widen(low[f]), x[f]), minus(x[f], widen(high[f]))), 0.0));
        return sum.of_gaps();
    }
    __device__ double to_point(const VALUE* y) const {
        FORMULA sum;
#pragma unroll
        for (int f = 0; f < FEATURES; f++) sum.add(x[f], widen(y[f]));
        return sum.value(x, x, FEATURES);
    }
    // Whether something at least `w` away, of ids from `at_least` on, cannot come into the list.
    __device__ bool too_far(double w, int at_least) const {
        return w > bound || (w == weight[LIST - 1] && at_least > id[LIST - 1]);
    }
    __device__ void offer(double w, int candidate) {
        if (w > bound || (w == weight[LIST - 1] && candidate > id[LIST - 1])) return;
#pragma unroll
        for (int e = LIST - 1; e >= 0; e--) {
            bool before = e > 0 && (w < weight[e - 1] || (w == weight[e - 1] && candidate < id[e - 1]));
            weight[e] = before ? weight[e - 1] : w;
            id[e] = before ? id[e - 1] : candidate;
            if (!before) break;
        }
        bound = fmin(bound, weight[LIST - 1]);
    }
};

// The lists of queries `at`. One whose own position on the curve is given (start, else null) begins at its leaf and climbs: at
// each step up it searches the sibling's subtree, nearer child first. `minima`, if given, bounds each group by the least
// value that any of its queries has found; read late it is only too high. If the points have core distances (`core`, along the
// curve, and `least_core` of each node; else null), what is sought is mutual reachability, which is no less than either.
extern "C" __global__ void search(
    const VALUE* __restrict__ queries, const int* __restrict__ rows, long long m, const int* __restrict__ start,
    const int* __restrict__ row_group, const VALUE* __restrict__ points, const int* __restrict__ order, long long n,
    const int* __restrict__ group, long long leaves, const VALUE* __restrict__ low, const VALUE* __restrict__ high,
    const int* __restrict__ least, const int* __restrict__ node_group, const double* __restrict__ core,
    const double* __restrict__ least_core, const int* __restrict__ at, double* __restrict__ upper, double* minima,
    int* __restrict__ ids, double* __restrict__ weights) {
    long long t = thread_index();
    if (t >= m) return;
    int i = at[t], row = rows[i], own_group = row_group[row];
    Query query;
    for (int f = 0; f < FEATURES; f++) query.x[f] = widen(queries[(long long)row * FEATURES + f]);
    for (int e = 0; e < LIST; e++) query.weight[e] = INFINITE, query.id[e] = EMPTY_ID;
    double own_core = core ? core[start[i]] : 0;
    query.bound = minima ? fmin(upper[i], ((volatile double*)minima)[own_group]) : upper[i];
    int stack[64];
    long long v = start ? leaves - 1 + start[i] / LEAF : 0, visit = v;
    while (true) {
        int height = 0;
        stack[height++] = (int)visit;
        while (height) {
            int node = stack[--height];
            if (node_group && node_group[node] == own_group) continue;
            double gap = query.to_box(low + (long long)node * FEATURES, high + (long long)node * FEATURES);
            if (core) gap = reachability(gap, own_core, least_core[node]);
            if (query.too_far(gap, least[node])) continue;
            if (node < leaves - 1) {
                int left = 2 * node + 1, right = left + 1;
                bool swap = query.to_box(low + (long long)left * FEATURES, high + (long long)left * FEATURES)
                          > query.to_box(low + (long long)right * FEATURES, high + (long long)right * FEATURES);
                stack[height++] = swap ? left : right;
                stack[height++] = swap ? right : left;
                continue;
            }
            long long begin = (node - (leaves - 1)) * LEAF, end = min(begin + LEAF, n);
            for (long long p = begin; p < end; p++) {
                if (group[p] == own_group || (core && core[p] > query.bound)) continue;
                double weight = query.to_point(points + p * FEATURES);
                query.offer(core ? reachability(weight, own_core, core[p]) : weight, order[p]);
            }
            if (minima) query.bound = fmin(query.bound, ((volatile double*)minima)[own_group]);
        }
        if (v == 0) break;
        visit = v & 1 ? v + 1 : v - 1;
        v = (v - 1) / 2;
    }
    if (minima && query.weight[0] < INFINITE) atomic_min(minima + own_group, query.weight[0]);
    upper[i] = query.bound;
    for (int e = 0; e < LIST; e++) {
        ids[(long long)i * LIST + e] = query.id[e] == EMPTY_ID ? -1 : query.id[e];
        weights[(long long)i * LIST + e] = query.weight[e];
    }
}
