// From ranked tree edges to a dendrogram; cuda.py says what each step means and why it is right.
//
// A *part* is a set of nodes: numbers 0..n-1 are the leaves themselves, higher ones what contraction made of them.
// lightest_exit[part] is (rank of the lightest edge that leaves the part) << 32 | x, where x is first the part across that
// edge and later the part that this one becomes a piece of; NO_EDGE where no edge leaves. Ranks and parts fit in 31 bits.
// Launches order all that one kernel writes and another reads.
#include "ordering.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

constexpr int HOPS = 3;

struct Pair { int a, b; };

__device__ __forceinline__ int upper(long long packed) { return packed >> 32; }
__device__ __forceinline__ int lower(long long packed) { return packed & 0xffffffff; }
__device__ __forceinline__ long long pack(int upper, int lower) { return ((long long)upper << 32) | (unsigned)lower; }

// A slot, counted from `counter`, for every thread of the block that wants one.
__device__ __forceinline__ int claim(bool wanted, int* counter) {
    const bool one[1] = {wanted};
    int slot[1];
    claim_in_block(one, slot, counter);
    return slot[0];
}

// --- contraction -----------------------------------------------------------------------------------------------------

// Offers every edge to the parts at its two ends. Without `rank`, an edge's rank is its position.
extern "C" __global__ void offer_edges(
    long long m, const int* __restrict__ u, const int* __restrict__ v, const int* __restrict__ rank, long long* lightest_exit) {
    long long i = thread_index();
    if (i >= m) return;
    int r = rank ? rank[i] : (int)i;
    atomic_min(lightest_exit + u[i], pack(r, v[i]));
    atomic_min(lightest_exit + v[i], pack(r, u[i]));
}

// Points each of the level's parts (first, first + 1, ...) at the part across its lightest edge. Along these pointers ranks
// fall, so the only cycles are pairs that share their lightest edge: the smaller number becomes the root. A root gets
// the number of a part of the next level and holds ~number; a part that no edge leaves is not followed any more.
extern "C" __global__ void hook_parts(
    long long parts, int first, int next, const long long* __restrict__ lightest_exit, int* __restrict__ pointer, int* counts) {
    long long i = thread_index();
    long long own = i < parts ? lightest_exit[first + i] : NO_EDGE;
    int across = lower(own);
    bool leaves = own != NO_EDGE;
    bool root = leaves && upper(lightest_exit[across]) == upper(own) && first + i <= across;
    int slot = claim(root, counts);
    if (i < parts) pointer[i] = root ? ~(next + slot) : leaves ? across - first : -1;
}

// One round of pointer doubling: entries below zero are ends, and an entry becomes the end that its pointers lead to. A
// pointer read late only lags behind: what a round starts with leads at least (HOPS + 1)^round steps on, so it ends with
// (HOPS + 1) times that. pending[round] tells the next round whether anything is left to do.
extern "C" __global__ void follow_pointers(long long size, int* pointer, int* pending, int round) {
    long long i = thread_index();
    if (i >= size || (round && !pending[round - 1])) return;
    int at = pointer[i];
    if (at < 0) return;
    for (int hop = 0; hop < HOPS && at >= 0; hop++) at = ((volatile int*)pointer)[at];
    pointer[i] = at;
    if (at >= 0 && !((volatile int*)pending)[round]) pending[round] = 1;
}

// From here on a part's `lightest_exit` names the part of the next level that it is a piece of.
extern "C" __global__ void name_successors(
    long long parts, int first, const int* __restrict__ pointer, long long* __restrict__ lightest_exit) {
    long long i = thread_index();
    if (i >= parts || lightest_exit[first + i] == NO_EDGE) return;
    lightest_exit[first + i] = pack(upper(lightest_exit[first + i]), ~pointer[i]);
}

// An edge that is the lightest at an end is contracted: `children` gets those ends, the second -1 if there is but one. The
// others are counted in counts[1] and kept, between parts of the next level. counts[2] tells of a cycle.
extern "C" __global__ void contract_edges(
    long long m, const int* __restrict__ u, const int* __restrict__ v, const int* __restrict__ rank,
    const long long* __restrict__ lightest_exit, Pair* __restrict__ children, int* __restrict__ kept_u, int* __restrict__ kept_v,
    int* __restrict__ kept_rank, int* counts) {
    long long i = thread_index();
    bool kept = false;
    int r = 0, a = 0, b = 0;
    if (i < m) {
        r = rank ? rank[i] : (int)i, a = u[i], b = v[i];
        long long from_a = lightest_exit[a], from_b = lightest_exit[b];
        bool at_a = upper(from_a) == r, at_b = upper(from_b) == r;
        kept = !at_a && !at_b;
        if (!kept) children[r] = {at_a ? a : b, at_a && at_b ? b : -1};
        bool loop = a == b;
        if (kept) a = lower(from_a), b = lower(from_b);
        if (loop || (kept && a == b)) counts[2] = 1;
    }
    int slot = claim(kept, counts + 1);
    if (kept) kept_u[slot] = a, kept_v[slot] = b, kept_rank[slot] = r;
}

// --- chains ----------------------------------------------------------------------------------------------------------

// An edge's chain is named by the first part around it that no edge as light leaves; key[rank] = (chain, rank).
extern "C" __global__ void find_chains(
    long long m, const Pair* __restrict__ children, const long long* __restrict__ lightest_exit, long long* __restrict__ key) {
    long long r = thread_index();
    if (r >= m) return;
    int part = children[r].a;
    long long from = lightest_exit[part];
    do {
        part = lower(from);
        from = lightest_exit[part];
    } while (upper(from) < r);
    key[r] = pack(part, (int)r);
}

// start[chain - n]: where in the sorted keys a chain starts. No chain is empty; one more entry closes the last.
extern "C" __global__ void mark_starts(
    long long m, int n, long long chains, const long long* __restrict__ key, int* __restrict__ start) {
    long long p = thread_index();
    if (p >= m) return;
    int chain = upper(key[p]);
    if (p == 0 || upper(key[p - 1]) != chain) start[chain - n] = p;
    if (p == 0) start[chains] = m;
}

// How many leaves the whole chain of a part merges: one for a leaf. `sum` runs over all chains, modulo 2^32, in which
// differences are right.
__device__ __forceinline__ unsigned leaves_of(int part, int n, const int* start, const unsigned* sum) {
    if (part < n) return 1;
    int from = start[part - n], to = start[part - n + 1];
    return sum[to - 1] - (from ? sum[from - 1] : 0);
}

// The leaves of the children of a level's edges, positions from..to-1, all of lower levels; the sum so far comes in at `from`.
extern "C" __global__ void sum_leaves(
    long long from, long long to, int n, const long long* __restrict__ key, const Pair* __restrict__ children,
    const int* __restrict__ start, unsigned* sum) {
    long long p = from + thread_index();
    if (p >= to) return;
    Pair parts = children[lower(key[p])];
    unsigned leaves = leaves_of(parts.a, n, start, sum);
    if (parts.b >= 0) leaves += leaves_of(parts.b, n, start, sum);
    if (p == from && p) leaves += sum[p - 1];
    sum[p] = leaves;
}

// The cluster that the chain of a part ends in.
__device__ __forceinline__ int cluster_of(int part, int n, const long long* key, const int* start) {
    return part < n ? part : n + lower(key[start[part - n + 1] - 1]);
}

// An edge joins its child to the edge before it in its chain; a chain's first edge, with a part at both ends, joins those two.
extern "C" __global__ void write_merges(
    long long m, int n, const long long* __restrict__ key, const Pair* __restrict__ children, const int* __restrict__ start,
    const unsigned* __restrict__ sum, int* __restrict__ left, int* __restrict__ right, int* __restrict__ size) {
    long long p = thread_index();
    if (p >= m) return;
    int chain = upper(key[p]), r = lower(key[p]);
    Pair parts = children[r];
    int a = cluster_of(parts.a, n, key, start);
    int b = parts.b >= 0 ? cluster_of(parts.b, n, key, start) : n + lower(key[p - 1]);
    int from = start[chain - n];
    left[r] = min(a, b);
    right[r] = max(a, b);
    size[r] = sum[p] - (from ? sum[from - 1] : 0);
}

// --- few leaves ------------------------------------------------------------------------------------------------------

// Joins the ends of m edges in turn by union-find over n leaves, as cpu.py does; *merged is m, or less if an edge closes a
// cycle. One block, of which one thread works; 12 bytes of shared memory a leaf.
extern "C" __global__ void merge_few(
    int n, int m, const int* __restrict__ src, const int* __restrict__ dst, int* __restrict__ left, int* __restrict__ right,
    int* __restrict__ size, int* merged) {
    extern __shared__ int parent[];
    int *members = parent + n, *cluster = members + n;  // of a root
    for (int v = threadIdx.x; v < n; v += blockDim.x) parent[v] = cluster[v] = v, members[v] = 1;
    __syncthreads();
    if (threadIdx.x) return;
    auto root = [&](int v) {
        while (parent[v] != v) v = parent[v] = parent[parent[v]];
        return v;
    };
    for (int i = 0; i < m; i++) {
        int u = root(src[i]), v = root(dst[i]);
        *merged = i;
        if (u == v) return;
        if (members[u] < members[v]) { int w = u; u = v, v = w; }
        left[i] = min(cluster[u], cluster[v]), right[i] = max(cluster[u], cluster[v]);
        parent[v] = u, cluster[u] = n + i;
        size[i] = members[u] += members[v];
    }
    *merged = m;
}

// --- cuts ------------------------------------------------------------------------------------------------------------

// first[group] = the least row in the group, by way of atomics that most rows need not make.
extern "C" __global__ void find_first_rows(long long rows, const int* __restrict__ group, int* first) {
    long long row = thread_index();
    if (row < rows && row < ((volatile int*)first)[group[row]]) atomicMin(first + group[row], (int)row);
}
