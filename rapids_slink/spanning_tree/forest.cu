// Boruvka's steps on neighbour lists, which lists.py explains.
//
// Components are trees of parent pointers over the points; between rounds component[v] is the root.
#include "runtime/include/atomics.cuh"
#include "runtime/include/resident.cuh"
#include "spanning_tree/boruvka.cuh"

constexpr int THREADS = 512, BLOCKS = 2;  // BLOCKS of THREADS fit on a multiprocessor
// More rounds than can connect components if points have the bounds that lists.py describes: the certified components at least
// halve from round to round, so of up to 2^30 points at most 31 rounds connect any, and one more finds none.
//
// An edge connects each certified component to another. It remains to show that a union U with a component D that was not certified is not
// certified either. All other components of U were: pointers lead from them to D, along ever lighter edges of which the last was
// proposed to D. Let e = {x, y} be the lightest proposal to U in the next round, x in U. If U were certified, no bound of its
// points would come before e.
//   x in D: Then x lists y, or a search has found y for it, since all other edges of x come after its bound. So x proposed an edge
//     out of D that does not come after e, and best(D) does not either. D was not certified: a bound in D comes before best(D).
//   x in a certified S: best(S) is the lightest edge out of S and so does not come after e, and best(D) not after best(S), by the
//     pointers. Again a bound in D comes before best(D), and so before e.
//
// Where bounds hold for no unlisted edge (lists.py) there may be more rounds: all but MAX_ROUNDS - 1 are left out.
constexpr int MAX_ROUNDS = 64;

// Zeros at first: the counts of all rounds, and the counts of each round.
struct Rounds {
    unsigned long long arrived;
    int at_first, components, chosen, rounds;
    struct { int components, certified; } found[MAX_ROUNDS];
};

// Returns the other end of v's proposal, -1 if it has none: the next point of its list or the point found by a search, the nearer.
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

// Runs rounds until the lists certify no more components; the last only counts them. Edges are appended after the taken[0] that are
// there.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) grow_forest(
    long long n, int k, const int* __restrict__ ids, const double* __restrict__ weights, int* component, int* __restrict__ cursor,
    const int* __restrict__ nearest_outside, const double* __restrict__ nearest_outside_weight,
    const double* __restrict__ bound_weight, const long long* __restrict__ bound_code, double* best_weight, long long* best_code,
    bool* certified, int* parent, int* taken, int* __restrict__ src, int* __restrict__ dst, double* __restrict__ weight,
    Rounds* rounds) {
    ResidentBlocks blocks{&rounds->arrived};
    auto propose = [&](long long v, double& w) {
        return proposal(v, k, ids, weights, component, cursor[v], nearest_outside, nearest_outside_weight, w);
    };
    bool is_first_thread = thread_index() == 0;
    for (int round = 0;; round++) {
        auto* found = rounds->found + round;
        blocks.each(n, [&](long long v) {
            if (component[v] == v) best_weight[v] = 1.0 / 0.0, best_code[v] = NO_EDGE, certified[v] = true;
        });
        blocks.wait();
        // Moves each point's cursor to its first listed neighbour outside its component and offers that edge to both ends.
        blocks.each(n, [&](long long v) {
            int at = cursor[v], own = component[v];
            while (at < k && component[ids[v * k + at]] == own) at++;
            cursor[v] = at;
            double w;
            int other = propose(v, w);
            if (other >= 0) atomic_min(best_weight + own, w), atomic_min(best_weight + component[other], w);
        });
        blocks.wait();
        // Keeps the least pair of ids among a component's proposals of least weight.
        blocks.each(n, [&](long long v) {
            double w;
            int other = propose(v, w);
            if (other < 0) return;
            int own = component[v], across = component[other];
            long long code = edge_code((int)v, other);
            if (w == best_weight[own]) atomic_min(best_code + own, code);
            if (w == best_weight[across]) atomic_min(best_code + across, code);
        });
        blocks.wait();
        // Edges to unlisted points come after a point's lower bound.
        blocks.each(n, [&](long long v) {
            int own = component[v];
            if (best_code[own] == NO_EDGE || lighter(bound_weight[v], bound_code[v], best_weight[own], best_code[own]))
                certified[own] = false;
        });
        blocks.wait();
        blocks.each_in_blocks(n, [&](long long v) {
            bool root = v < n && component[v] == v;
            int roots = __syncthreads_count(root), sure = __syncthreads_count(root && certified[v]);
            if (threadIdx.x == 0 && roots) atomicAdd(&found->components, roots), atomicAdd(&found->certified, sure);
        });
        blocks.wait();
        int components = found->components, sure = found->certified;
        bool goes_on = round < MAX_ROUNDS - 1 && components > 1 && sure;
        if (is_first_thread) {
            if (round == 0) rounds->at_first = components;
            rounds->components = components;
            if (goes_on) rounds->rounds++, rounds->chosen += sure;
        }
        if (!goes_on) return;
        hook_components(blocks, n, component, parent, best_code, [&](int c) { return certified[c]; }, [&](int c, long long code) {
            int slot = atomicAdd(taken, 1);
            src[slot] = code >> 32, dst[slot] = code, weight[slot] = best_weight[c];
        });
        blocks.wait();
        blocks.each(n, [&](long long v) { component[v] = find_root(parent, component[v]); });
        blocks.wait();
    }
}

// Adds the number of points of component c to size[c]. The lanes of a warp with the same label add once together.
extern "C" __global__ void count_members(long long n, const int* __restrict__ component, int* size) {
    long long v = thread_index();
    unsigned active = __ballot_sync(~0u, v < n);
    if (v >= n) return;
    int own = component[v];
    unsigned same = __match_any_sync(active, own);
    if (threadIdx.x % 32 == __ffs(same) - 1) atomicAdd(size + own, __popc(same));
}

// Raises `largest` to the size of a component << 32 | ~label, so that the least label wins among equal sizes.
extern "C" __global__ void find_largest(long long n, const int* __restrict__ size, unsigned long long* largest) {
    long long c = thread_index();
    unsigned long long most = c < n && size[c] ? (unsigned long long)size[c] << 32 | ~(unsigned)c : 0;
    most = warp_max(most);
    if (threadIdx.x % 32 == 0 && most) atomicMax(largest, most);
}

// Lists the points of uncertified components, except the largest, that may have an edge lighter than their component's best.
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

// Stores the point that a search found for each row, and the row's raised lower bound.
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

// Unites the trees of the two ends of m pairs: the larger root goes under the smaller. Without `src` the pairs are those of lists of k.
extern "C" __global__ void unite_pairs(
    long long m, int k, const int* __restrict__ src, const int* __restrict__ dst, int* parent) {
    long long pair = thread_index();
    if (pair < m) unite(parent, src ? src[pair] : pair / k, dst[pair]);
}

// Writes the weight and the code of the edge to the last entry of each of n lists of k.
extern "C" __global__ void last_listed(
    long long n, int k, const int* __restrict__ ids, const double* __restrict__ weights, double* __restrict__ weight,
    long long* __restrict__ code) {
    long long v = thread_index(), last = (v + 1) * k - 1;
    if (v < n) weight[v] = weights[last], code[v] = edge_code(v, ids[last]);
}

extern "C" __global__ void count_roots(long long n, const int* __restrict__ parent, int* count) {
    long long v = thread_index();
    int roots = __syncthreads_count(v < n && parent[v] == v);
    if (threadIdx.x == 0 && roots) atomicAdd(count, roots);
}
