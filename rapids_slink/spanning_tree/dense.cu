// This finds the spanning tree of points by a matrix of all their distances, VALUEs, in Borůvka's rounds of one cooperative launch.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/resident.cuh"
#include "spanning_tree/boruvka.cuh"

#ifndef VALUE
#define VALUE double
#endif
constexpr int THREADS = 256, BLOCKS = 4;  // BLOCKS of THREADS fit on a multiprocessor
constexpr int TOGETHER = 8;               // values that a lane reads at once
constexpr double INFINITE = 1.0 / 0.0;
constexpr bool LOOKS_LATER = sizeof(VALUE) < sizeof(int);  // components are read late if they take longer to read than values

// Finds, by a warp, the first (weight, column) of a row of n VALUEs that is `wanted` and comes before the given one, for every lane.
// No weight is below its value. Columns that are not `open` are not read.
template <class Open, class Weigh, class Wanted>
__device__ void find_least(
    const VALUE* __restrict__ values, int n, Open open, Weigh weigh, Wanted wanted, double& weight, int& id) {
    for (int first = threadIdx.x % WARP; first < n; first += TOGETHER * WARP) {
        VALUE value[TOGETHER];
        bool is_open[TOGETHER];
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) is_open[t] = first + t * WARP < n && open(first + t * WARP);
#pragma unroll
        for (int t = 0; t < TOGETHER; t++)
            if (is_open[t]) value[t] = values[first + t * WARP];
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            int j = first + t * WARP;
            if (!is_open[t] || widen(value[t]) > weight) continue;
            double w = weigh(j, widen(value[t]));
            if (before(w, j, weight, id) && wanted(j, w)) weight = w, id = j;
        }
    }
    for (int offset = WARP / 2; offset; offset /= 2) exchange(weight, id, offset, true);
}

// Writes each point's distance from its min_samples-th neighbour. A warp takes a row, which it reads min_samples times. If a point
// stands for `counts` equal ones, all of these are neighbours.
extern "C" __global__ void find_cores(
    const VALUE* __restrict__ matrix, int n, int min_samples, const long long* __restrict__ counts, double* __restrict__ core) {
    int row = thread_index() / WARP;
    if (row >= n) return;
    const VALUE* values = matrix + (long long)row * n;
    long long lacking = min_samples - (counts ? counts[row] - 1 : 0);
    double weight = lacking > 0 ? -INFINITE : 0, last;
    int id = -1, last_id;
    while (lacking > 0 && id != EMPTY_ID) {
        last = weight, last_id = id, weight = INFINITE, id = EMPTY_ID;
        find_least(
            values, n, [&](int j) { return j != row; }, [](int, double w) { return w; },
            [&](int j, double w) { return before(last, last_id, w, j); }, weight, id);
        if (id != EMPTY_ID) lacking -= counts ? counts[id] : 1;
    }
    if (threadIdx.x % WARP == 0) core[row] = weight;
}

// Writes the minimum spanning tree of a complete graph, n - 1 edges in the total order. With core distances the weights are mutual
// reachability.
//
// A round finds each component's lightest edge to another, by root (`best_weight`, `best_code`), from those of its points (`lightest`,
// `code`). A point's edge stays its lightest until its other end is in the component. Then the row is read again, unless the bound on
// the row's edges rules it out: its component has a lighter one. So `lightest` is a lower bound if there is no
// `code`. Edges are taken in any order (`taken_weight`, `taken_code`) and sorted at the end by counting, for each, the lighter ones.
// `state`, 2 + 7 n zeros, is one array since each takes the host a while: it counts the blocks at a barrier and the edges taken,
// and then holds these.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) grow_tree_of_matrix(
    const VALUE* __restrict__ matrix, int n, const double* __restrict__ core, unsigned long long* state, int* __restrict__ src,
    int* __restrict__ dst, double* __restrict__ weight) {
    ResidentBlocks blocks{state};
    unsigned long long* taken = state + 1;
    double *lightest = (double*)(state + 2), *best_weight = lightest + n, *taken_weight = best_weight + n;
    long long *code = (long long*)(taken_weight + n), *best_code = code + n, *taken_code = best_code + n;
    int *component = (int*)(taken_code + n), *parent = component + n;
    int warp = thread_index() / WARP, warps = gridDim.x * THREADS / WARP, lane = threadIdx.x % WARP;
    blocks.each(n, [&](int v) {
        component[v] = v, best_weight[v] = INFINITE, best_code[v] = NO_EDGE;
        lightest[v] = -INFINITE, code[v] = NO_EDGE;
    });
    do {
        blocks.wait();
        for (int v = warp; v < n; v += warps) {
            int own = component[v], other = EMPTY_ID;
            double least = lightest[v], limit = __shfl_sync(ALL_LANES, ((volatile double*)best_weight)[own], 0);  // the limit may fall
            long long ends = code[v];
            bool is_known = ends != NO_EDGE && component[ends >> 32] != component[(int)ends];
            if (!is_known && least <= limit) {
                least = limit;
                auto is_outside = [&](int j) { return component[j] != own; };
                find_least(
                    matrix + (long long)v * n, n, [&](int j) { return LOOKS_LATER || is_outside(j); },
                    [&](int j, double w) { return core ? reachability(w, core[v], core[j]) : w; },
                    [&](int j, double) { return !LOOKS_LATER || is_outside(j); }, least, other);
                ends = other == EMPTY_ID ? NO_EDGE : edge_code(v, other);
                is_known = other != EMPTY_ID;
            }
            if (lane == 0) {
                lightest[v] = least, code[v] = is_known ? ends : NO_EDGE;
                if (is_known) atomic_min(best_weight + own, least);
            }
        }
        blocks.wait();
        blocks.each(n, [&](int v) {
            int own = component[v];
            if (lightest[v] == best_weight[own]) atomic_min(best_code + own, code[v]);
        });
        blocks.wait();
        hook_components(blocks, n, component, parent, best_code, [](int) { return true; }, [&](int c, long long code) {
            int slot = atomicAdd(taken, 1ull);
            taken_weight[slot] = best_weight[c], taken_code[slot] = code;
        });
        blocks.wait();
        blocks.each(n, [&](int v) {
            component[v] = find_root(parent, component[v]), best_weight[v] = INFINITE, best_code[v] = NO_EDGE;
        });
    } while (*(volatile unsigned long long*)taken < n - 1);
    for (int edge = warp; edge < n - 1; edge += warps) {
        double own = taken_weight[edge];
        long long ends = taken_code[edge];
        int rank = 0;
        for (int other = lane; other < n - 1; other += WARP)
            rank += lighter(taken_weight[other], taken_code[other], own, ends);
        rank = warp_sum(rank);
        if (lane == 0) src[rank] = ends >> 32, dst[rank] = ends, weight[rank] = own;
    }
}
