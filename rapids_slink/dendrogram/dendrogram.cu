// These kernels make a dendrogram from ranked tree edges, and labels from a dendrogram. cuda.py explains each step and proves
// it. Each kernel is one cooperative launch, because most steps take less time than a launch.
//
// A *part* is a set of nodes: parts 0..n-1 are the leaves, and contraction makes those of higher numbers.
// lightest_exit[part] is (rank of the lightest edge that leaves the part) << 32 | x. First x is the part across that edge, later
// the part that contains this one. It is NO_EDGE if no edge leaves. Ranks and parts fit in 31 bits.
#include "ordering.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/resident.cuh"

constexpr int THREADS = 512, BLOCKS = 2;  // BLOCKS of THREADS fit on a multiprocessor
constexpr int HOPS = 3, MAX_LEVELS = 32, SAMPLED = 32;

struct Pair { int a, b; };

// The levels of a contraction: their number, and the first part of each, closed by one past the last part. All are zero at first.
struct Levels { int count, has_cycle, first[MAX_LEVELS + 2]; };

__device__ __forceinline__ int upper(long long packed) { return packed >> 32; }
__device__ __forceinline__ int lower(long long packed) { return packed & 0xffffffff; }
__device__ __forceinline__ long long pack(int upper, int lower) { return ((long long)upper << 32) | (unsigned)lower; }

// Returns a slot, counted from `counter`, for every thread of the block that wants one.
__device__ __forceinline__ int claim(bool wanted, int* counter) {
    const bool one[1] = {wanted};
    int slot[1];
    claim_in_block(one, slot, counter);
    return slot[0];
}

// Doubles pointers until they lead to their ends, which are entries below zero. Each entry that takes part becomes the end to
// which its pointers lead through other such entries. A stale pointer is only shorter: at the start of a round pointers lead at
// least (HOPS + 1)^round steps, at its end (HOPS + 1) times as many. Each round uses one of the zeros at `pending`; returns the
// unused ones.
template <class TakesPart>
__device__ int* follow_pointers(ResidentBlocks& blocks, long long count, int* pointer, int* pending, TakesPart takes_part) {
    do {
        blocks.each(count, [&](long long i) {
            if (!takes_part(i)) return;
            int at = pointer[i];
            if (at < 0) return;
            for (int hop = 0; hop < HOPS && at >= 0; hop++) at = ((volatile int*)pointer)[at];
            pointer[i] = at;
            if (at >= 0 && !*(volatile int*)pending) *pending = 1;
        });
        blocks.wait();
    } while (*pending++);
    return pending;
}

// --- contraction -----------------------------------------------------------------------------------------------------

// Contracts a forest of m edges in ascending order: writes its levels, and the key (chain, rank) of each edge.
//
// children[rank] is the part whose lightest edge it was, and -1, or both parts if it was the lightest at both its ends. `kept` has
// room for six numbers per edge. `counters` are zeros: the first counts arrivals, and each of the others is used once.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) contract(
    int m, int n, const int* __restrict__ src, const int* __restrict__ dst, long long* lightest_exit, Pair* children,
    int* pointer, int* kept, long long* key, Levels* levels, unsigned long long* counters) {
    ResidentBlocks blocks{counters};
    int* zeros = (int*)(counters + 1);
    const int *u = src, *v = dst, *rank = nullptr;  // an edge's rank is its position at first
    int edges = m, first = 0, parts = n, level = 0;
    bool is_first_thread = thread_index() == 0;
    if (is_first_thread) levels->first[1] = n;
    blocks.each(2ll * n, [&](long long part) { lightest_exit[part] = NO_EDGE; });
    blocks.wait();
    while (edges) {
        int *n_made = zeros++, *n_kept = zeros++, next = first + parts;
        blocks.each(edges, [&](long long i) {
            int r = rank ? rank[i] : (int)i;
            atomic_min(lightest_exit + u[i], pack(r, v[i]));
            atomic_min(lightest_exit + v[i], pack(r, u[i]));
        });
        blocks.wait();
        // Each part points at the part across its lightest edge. Ranks fall along these pointers, so the only cycles are
        // pairs that share their lightest edge: the smaller number becomes the root. A root gets the number of a part of
        // the next level and holds ~number. A part that no edge leaves is not followed further.
        blocks.each_in_blocks(parts, [&](long long i) {
            long long own = i < parts ? lightest_exit[first + i] : NO_EDGE;
            int across = lower(own);
            bool leaves = own != NO_EDGE;
            bool root = leaves && upper(lightest_exit[across]) == upper(own) && first + i <= across;
            int slot = claim(root, n_made);
            if (i < parts) pointer[i] = root ? ~(next + slot) : leaves ? across - first : -1;
        });
        blocks.wait();
        zeros = follow_pointers(blocks, parts, pointer, zeros, [](int) { return true; });
        blocks.each(parts, [&](long long i) {
            long long* own = lightest_exit + first + i;
            if (*own != NO_EDGE) *own = pack(upper(*own), ~pointer[i]);
        });
        // An edge that is the lightest at an end is contracted. The others are kept, between parts of the next level.
        int *kept_u = kept + (level % 2 ? 3ll * m : 0), *kept_v = kept_u + m, *kept_rank = kept_v + m;
        blocks.each_in_blocks(edges, [&](long long i) {
            bool keep = false;
            int r = 0, a = 0, b = 0;
            if (i < edges) {
                r = rank ? rank[i] : (int)i, a = u[i], b = v[i];
                bool at_a = upper(lightest_exit[a]) == r, at_b = upper(lightest_exit[b]) == r;
                keep = !at_a && !at_b;
                if (!keep) children[r] = {at_a ? a : b, at_a && at_b ? b : -1};
                bool loop = a == b;
                if (keep) a = ~pointer[a - first], b = ~pointer[b - first];
                if (loop || (keep && a == b)) levels->has_cycle = 1;
            }
            int slot = claim(keep, n_kept);
            if (keep) kept_u[slot] = a, kept_v[slot] = b, kept_rank[slot] = r;
        });
        blocks.wait();
        if (levels->has_cycle) return;
        u = kept_u, v = kept_v, rank = kept_rank;
        first = next, parts = *n_made, edges = *n_kept, level++;
        if (is_first_thread) levels->count = level, levels->first[level + 1] = first + parts;
    }
    // An edge's chain has the number of the first part around it whose exits are all heavier.
    blocks.each(m, [&](long long r) {
        int part = children[r].a;
        long long from = lightest_exit[part];
        do {
            part = lower(from);
            from = lightest_exit[part];
        } while (upper(from) < r);
        key[r] = pack(part, (int)r);
    });
}

// --- chains ----------------------------------------------------------------------------------------------------------

// Writes the linkage's columns from the sorted keys, unless there was a cycle.
//
// start[chain - n] is where a chain starts in the keys; no chain is empty, and one more entry closes the last. `sum` is the
// running sum of the leaves that the edges of all chains merge, modulo 2^32, which keeps differences right.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) merge_along_chains(
    int m, int n, const Levels* __restrict__ levels, const Pair* __restrict__ children, const long long* __restrict__ key,
    int* start, unsigned* sum, unsigned* block_sums, int* __restrict__ left, int* __restrict__ right, int* __restrict__ size,
    unsigned long long* counters) {
    if (levels->has_cycle) return;
    ResidentBlocks blocks{counters};
    blocks.each(m, [&](long long p) {
        int chain = upper(key[p]);
        if (p == 0 || upper(key[p - 1]) != chain) start[chain - n] = p;
        if (p == 0) start[levels->first[levels->count + 1] - n] = m;
    });
    blocks.wait();
    auto sum_before = [&](int p) { return p ? sum[p - 1] : 0; };
    auto leaves_of = [&](int part) {  // returns the leaves of the whole chain of a part of a lower level
        return part < n ? 1 : sum_before(start[part - n + 1]) - sum_before(start[part - n]);
    };
    for (int level = 1; level <= levels->count; level++) {
        int low = start[levels->first[level] - n], high = start[levels->first[level + 1] - n];
        blocks.running_sums(low, high, sum_before(low), sum, block_sums, [&](long long p) {
            Pair parts = children[lower(key[p])];
            return leaves_of(parts.a) + (parts.b < 0 ? 0 : leaves_of(parts.b));
        });
    }
    auto cluster_of = [&](int part) {  // returns the cluster in which the chain of a part ends
        return part < n ? part : n + lower(key[start[part - n + 1] - 1]);
    };
    // An edge merges its child with the cluster of the edge before it in its chain. A chain's first edge merges the parts at
    // its ends.
    blocks.each(m, [&](long long p) {
        int chain = upper(key[p]), r = lower(key[p]);
        Pair parts = children[r];
        int a = cluster_of(parts.a), b = parts.b >= 0 ? cluster_of(parts.b) : n + lower(key[p - 1]);
        left[r] = min(a, b), right[r] = max(a, b);
        size[r] = sum[p] - sum_before(start[chain - n]);
    });
}

// --- cuts ------------------------------------------------------------------------------------------------------------

// Returns whether a merge is in the sample. A hash chooses one in SAMPLED, whatever the pattern in which merges point at each
// other.
__device__ __forceinline__ bool is_sampled(unsigned merge) {
    merge = (merge ^ merge >> 16) * 0x7feb352d;
    return (merge ^ merge >> 15) % SAMPLED == 0;
}

// Labels each leaf and each kept merge with its flat cluster. Flat clusters are numbered in the order of their first leaves.
//
// Clusters are leaves and merges. pointer[cluster] is the kept merge that takes it, or ~itself; at the end it is ~ the last cluster
// that contains it. Pointers are doubled only among a sample of the merges, which all others reach in few steps.
// first_leaf[cluster] is the first leaf of a last cluster; number[leaf] is how many flat clusters begin with a leaf up to this one.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) label_clusters(
    int n, int merges, const int* __restrict__ left, const int* __restrict__ right, int* pointer, int* first_leaf,
    unsigned* number, unsigned* block_sums, int* __restrict__ label, unsigned long long* counters) {
    ResidentBlocks blocks{counters};
    long long clusters = (long long)n + merges;
    int* next_merge = pointer + n;
    blocks.each(clusters, [&](long long c) { pointer[c] = ~(int)c, first_leaf[c] = n; });
    blocks.wait();
    blocks.each(merges, [&](long long i) { pointer[left[i]] = pointer[right[i]] = i; });
    blocks.wait();
    auto to_sample = [&](int at) {
        while (at >= 0 && !is_sampled(at)) at = ((volatile int*)next_merge)[at];
        return at;
    };
    blocks.each(merges, [&](long long i) { if (is_sampled(i)) next_merge[i] = to_sample(next_merge[i]); });
    blocks.wait();
    follow_pointers(blocks, merges, next_merge, (int*)(counters + 1), is_sampled);
    auto to_end = [&](int at) {
        at = to_sample(at);
        return at < 0 ? at : next_merge[at];
    };
    // Threads begin with the last merges, because a merge points at a later one, which may be done already.
    blocks.each(merges, [&](long long later) {
        long long i = merges - 1 - later;
        if (!is_sampled(i)) next_merge[i] = to_end(next_merge[i]);
    });
    blocks.wait();
    blocks.each(n, [&](long long leaf) { pointer[leaf] = to_end(pointer[leaf]); });
    blocks.wait();
    blocks.each(n, [&](long long leaf) {
        if (leaf == 0 || pointer[leaf] != pointer[leaf - 1]) atomic_min(first_leaf + ~pointer[leaf], (int)leaf);
    });
    blocks.wait();
    blocks.running_sums(0, n, 0, number, block_sums, [&](long long leaf) { return first_leaf[~pointer[leaf]] == leaf; });
    blocks.each(clusters, [&](long long c) { label[c] = number[first_leaf[~pointer[c]]] - 1; });
}
