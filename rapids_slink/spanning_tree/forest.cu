// Boruvka's steps on neighbour lists; forest.py says what each means and why a certified edge is in the tree.
//
// Components are trees of parent pointers over the points; between rounds component[v] is the root.
#include "ordering.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"
#include "spanning_tree/find_root.cuh"

extern "C" __global__ void reset_components(
    long long n, const int* __restrict__ component, double* __restrict__ best_weight, long long* __restrict__ best_code,
    bool* __restrict__ certified) {
    long long v = thread_index();
    if (v < n && component[v] == v) best_weight[v] = 1.0 / 0.0, best_code[v] = NO_EDGE, certified[v] = true;
}

// The far end of v's proposal, -1 if it has none: of its list or, if that is nearer, what a search has found.
__device__ __forceinline__ int proposal(
    long long v, int k, const int* ids, const double* weights, const int* component, int cursor, const int* nearest_outside,
    const double* nearest_outside_weight, double& weight) {
    int other = -1, nearest = nearest_outside[v];
    weight = 1.0 / 0.0;
    if (cursor < k) other = ids[v * k + cursor], weight = weights[v * k + cursor];
    if (nearest >= 0 && component[nearest] != component[v]
        && (other < 0 || before(nearest_outside_weight[v], nearest, weight, other)))
        other = nearest, weight = nearest_outside_weight[v];
    return other;
}

// Moves each point's cursor to its first listed neighbour outside its component and offers that edge to both ends.
extern "C" __global__ void propose_weights(
    long long n, int k, const int* __restrict__ ids, const double* __restrict__ weights, const int* __restrict__ component,
    int* __restrict__ cursor, const int* __restrict__ nearest_outside, const double* __restrict__ nearest_outside_weight, double* best_weight) {
    long long v = thread_index();
    if (v >= n) return;
    int at = cursor[v], own = component[v];
    while (at < k && component[ids[v * k + at]] == own) at++;
    cursor[v] = at;
    double weight;
    int other = proposal(v, k, ids, weights, component, at, nearest_outside, nearest_outside_weight, weight);
    if (other < 0) return;
    atomic_min(best_weight + own, weight);
    atomic_min(best_weight + component[other], weight);
}

// Among the proposals of a component's least weight, the least pair of ids.
extern "C" __global__ void propose_codes(
    long long n, int k, const int* __restrict__ ids, const double* __restrict__ weights, const int* __restrict__ component,
    const int* __restrict__ cursor, const int* __restrict__ nearest_outside, const double* __restrict__ nearest_outside_weight,
    const double* __restrict__ best_weight, long long* best_code) {
    long long v = thread_index();
    if (v >= n) return;
    double weight;
    int other = proposal(v, k, ids, weights, component, cursor[v], nearest_outside, nearest_outside_weight, weight);
    if (other < 0) return;
    int own = component[v], across = component[other];
    long long code = edge_code((int)v, other);
    if (weight == best_weight[own]) atomic_min(best_code + own, code);
    if (weight == best_weight[across]) atomic_min(best_code + across, code);
}

// A point knows only that what it does not list comes after its lower bound.
extern "C" __global__ void certify(
    long long n, const int* __restrict__ component, const double* __restrict__ bound_weight,
    const long long* __restrict__ bound_code, const double* __restrict__ best_weight,
    const long long* __restrict__ best_code, bool* certified) {
    long long v = thread_index();
    if (v >= n) return;
    int own = component[v];
    if (best_code[own] == NO_EDGE || lighter(bound_weight[v], bound_code[v], best_weight[own], best_code[own]))
        certified[own] = false;
}

// counts[0] components, of which counts[1] are certified, if that is known.
extern "C" __global__ void count_components(
    long long n, const int* __restrict__ component, const bool* __restrict__ certified, int* counts) {
    long long v = thread_index();
    bool root = v < n && component[v] == v;
    int roots = __syncthreads_count(root), sure = __syncthreads_count(root && certified && certified[v]);
    if (threadIdx.x == 0 && roots) {
        atomicAdd(counts, roots);
        atomicAdd(counts + 1, sure);
    }
}

// size[c] grows by the number of points of component c; the lanes of a warp with one label add across together.
extern "C" __global__ void count_members(long long n, const int* __restrict__ component, int* size) {
    long long v = thread_index();
    unsigned active = __ballot_sync(~0u, v < n);
    if (v >= n) return;
    int own = component[v];
    unsigned same = __match_any_sync(active, own);
    if (threadIdx.x % 32 == __ffs(same) - 1) atomicAdd(size + own, __popc(same));
}

// Raises `largest` to the size of a component and ~label, of as large ones the least label's.
extern "C" __global__ void find_largest(long long n, const int* __restrict__ size, unsigned long long* largest) {
    long long c = thread_index();
    unsigned long long most = c < n && size[c] ? (unsigned long long)size[c] << 32 | ~(unsigned)c : 0;
    for (int step = 16; step; step /= 2) most = max(most, __shfl_xor_sync(~0u, most, step));
    if (threadIdx.x % 32 == 0 && most) atomicMax(largest, most);
}

// The points of components that are not certified, but the largest, that may have an edge lighter than their best.
extern "C" __global__ void list_rows_to_search(
    long long n, const int* __restrict__ component, const unsigned long long* __restrict__ largest,
    const double* __restrict__ bound_weight, const long long* __restrict__ bound_code,
    const double* __restrict__ best_weight, const long long* __restrict__ best_code, const bool* __restrict__ certified,
    int* __restrict__ rows, int* count) {
    long long v = thread_index();
    bool wanted = false;
    if (v < n) {
        int c = component[v];
        bool searches = c != (int)~(unsigned)*largest && !certified[c];
        wanted = searches && lighter(bound_weight[v], bound_code[v], best_weight[c], best_code[c]);
    }
    int slot = claim_in_warp(wanted, count);
    if (wanted) rows[slot] = v;
}

// What a search has found for each row, and the bound that it has raised.
extern "C" __global__ void record_search(
    long long m, const int* __restrict__ rows, const int* __restrict__ ids, const double* __restrict__ weights,
    const double* __restrict__ upper, int* __restrict__ nearest_outside, double* __restrict__ nearest_outside_weight,
    double* __restrict__ bound_weight, long long* __restrict__ bound_code) {
    long long i = thread_index();
    if (i >= m) return;
    int v = rows[i];
    nearest_outside[v] = ids[i], nearest_outside_weight[v] = weights[i];
    if (ids[i] >= 0)
        bound_weight[v] = weights[i], bound_code[v] = edge_code(v, ids[i]);
    else if (upper[i] >= bound_weight[v])
        bound_weight[v] = upper[i], bound_code[v] = NO_EDGE;
}

// Points every certified component at the one across its edge and records the edge. All keys differ, so the only cycles
// are pairs that chose the same edge: of such a pair the smaller label stays a root and the larger records. Edges go behind the
// taken[0] that are there.
extern "C" __global__ void hook_components(
    long long n, const int* __restrict__ component, const double* __restrict__ best_weight,
    const long long* __restrict__ best_code, const bool* __restrict__ certified, int* __restrict__ parent,
    int* __restrict__ taken, int* __restrict__ src, int* __restrict__ dst, double* __restrict__ weight) {
    long long c = thread_index();
    if (c >= n) return;
    parent[c] = component[c];
    if (component[c] != c || !certified[c]) return;
    int low = best_code[c] >> 32, high = best_code[c] & 0xffffffff;
    int other = component[low] == c ? component[high] : component[low];
    if (certified[other] && best_code[other] == best_code[c] && c < other) return;
    parent[c] = other;
    int slot = atomicAdd(taken, 1);
    src[slot] = low, dst[slot] = high, weight[slot] = best_weight[c];
}

extern "C" __global__ void relabel(long long n, int* parent, int* __restrict__ component) {
    long long v = thread_index();
    if (v < n) component[v] = find_root(parent, component[v]);
}

// Joins the trees of the two ends of every listed pair: the larger root goes under the smaller.
extern "C" __global__ void join_neighbors(long long n, int k, const int* __restrict__ ids, int* parent) {
    long long pair = thread_index();
    if (pair >= n * k) return;
    int a = find_root(parent, pair / k), b = find_root(parent, ids[pair]);
    while (a != b) {
        if (a < b) { int swap = a; a = b; b = swap; }
        int seen = atomicCAS(parent + a, a, b);
        if (seen == a) return;
        a = find_root(parent, seen), b = find_root(parent, b);
    }
}
