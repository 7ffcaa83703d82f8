// These kernels run Boruvka's rounds on a list of edges. __init__.py explains each step and why the result is the tree.
//
// An edge is (weight, row), and its key is an unsigned integer in the order of the weights. Components compare *words*. With
// packed rows a word is key << 32 | row, an altered weight that is exact and unique to the edge. Otherwise it is the key alone,
// and the edges of the least key then compare their rows. A worklist is a block of planes, `capacity` words each: the two ends
// (roots when the list was written, in the upper and the lower half), the word and, if it is not in the word, the row.
//
// Between rounds every root's `best` is NOTHING.
#include "runtime/include/atomics.cuh"
#include "runtime/include/resident.cuh"

typedef unsigned long long word_t;

constexpr word_t NOTHING = ~0ull;
constexpr int ITEMS = 4;            // edges or components per thread
constexpr int THREADS = 512, BLOCKS = 2;  // BLOCKS of THREADS of `boruvka_rounds` fit on a multiprocessor
constexpr int JUMPS = 16;           // steps towards the root at a time
constexpr int SINGLE_BLOCK = 4096;  // edges and components up to which one block works alone
constexpr int UNSIGNED = 0, SIGNED = 1, FLOATING = 2;  // kinds of weights
constexpr int ALL = 0, LIGHTEST = 1, REST = 2;         // parts of the edges

struct Weights {
    const void* values;
    int bytes;  // 4 or 8
    int kind;
    int maximum;
};

struct Worklist {
    word_t* ends;
    word_t* words;
    word_t* rows;  // null if they are packed

    __device__ Worklist(word_t* planes, long long capacity, int packed)
        : ends(planes), words(planes + capacity), rows(packed ? nullptr : planes + 2 * capacity) {}
    __device__ word_t row(long long i) const { return rows ? rows[i] : words[i] & 0xffffffff; }
};

// Returns the j-th item of this thread in a tile, which has the items that a block processes together; by default the tile of its number.
__device__ __forceinline__ long long item(int j, long long tile = blockIdx.x) {
    return (tile * ITEMS + j) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ word_t pair(int a, int b) { return (word_t)a << 32 | (unsigned)b; }
__device__ __forceinline__ int upper(word_t ends) { return (int)(ends >> 32); }
__device__ __forceinline__ int lower(word_t ends) { return (int)(ends & 0xffffffff); }

// Returns the bits of a weight as an unsigned integer of the same order; both zeros are one. It uses integer arithmetic only, because
// CuPy's -ftz=true would turn subnormal numbers into zeros.
__device__ __forceinline__ word_t key_of(Weights weights, long long row) {
    word_t top = 1ull << (8 * weights.bytes - 1), ones = top | (top - 1);
    word_t key = weights.bytes == 4 ? ((const unsigned*)weights.values)[row] : ((const word_t*)weights.values)[row];
    if (weights.kind == FLOATING) {
        if (key == top) key = 0;
        key ^= key & top ? ones : top;
    } else if (weights.kind == SIGNED) {
        key ^= top;
    }
    return weights.maximum ? key ^ ones : key;
}

__device__ __forceinline__ long long id_at(const void* ids, int bytes, long long row) {
    return bytes == 4 ? ((const int*)ids)[row] : ((const long long*)ids)[row];
}

// Offers edges to the components of both their ends. All reads come first, so that a thread waits for memory once.
__device__ __forceinline__ void offer(
    const bool (&kept)[ITEMS], const int (&a)[ITEMS], const int (&b)[ITEMS], const word_t (&words)[ITEMS],
    word_t* best) {
    volatile word_t* now = best;
    word_t of_a[ITEMS], of_b[ITEMS];
    for (int j = 0; j < ITEMS; j++)
        if (kept[j]) of_a[j] = now[a[j]], of_b[j] = now[b[j]];
    for (int j = 0; j < ITEMS; j++) {
        if (kept[j] && words[j] < of_a[j]) atomicMin(best + a[j], words[j]);
        if (kept[j] && words[j] < of_b[j]) atomicMin(best + b[j], words[j]);
    }
}

// Sets the initial state: each of n nodes is a component without an offer, and none of m edges is taken.
extern "C" __global__ void start_forest(
    long long n, long long m, int* __restrict__ parent, word_t* __restrict__ best, word_t* __restrict__ best_row,
    bool* __restrict__ taken) {
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        long long i = item(j);
        if (i < m) taken[i] = false;
        if (i >= n) continue;
        parent[i] = i, best[i] = NOTHING;
        if (best_row) best_row[i] = NOTHING;
    }
}

// Writes the edges of a part whose ends are in two components into a worklist and offers each to both. An edge is light up to
// the edge in row `limit`. Edges beyond `capacity` are only counted.
extern "C" __global__ void collect_edges(
    long long m, const void* __restrict__ src, const void* __restrict__ dst, int id_bytes,
    const void* __restrict__ weight, int weight_bytes, int kind, int maximum, int part, long long limit,
    const int* __restrict__ component, long long capacity, word_t* __restrict__ list, int packed, word_t* best,
    word_t* count) {
    Weights weights{weight, weight_bytes, kind, maximum};
    Worklist out(list, capacity, packed);
    word_t limit_key = part == ALL ? 0 : key_of(weights, limit);
    bool kept[ITEMS];
    int a[ITEMS], b[ITEMS];
    word_t words[ITEMS];
    word_t slot[ITEMS];
    for (int j = 0; j < ITEMS; j++) {
        long long row = item(j);
        kept[j] = row < m;
        if (kept[j]) words[j] = key_of(weights, row);
    }
    for (int j = 0; j < ITEMS; j++) {
        long long row = item(j);
        bool light = words[j] < limit_key || (words[j] == limit_key && row <= limit);
        kept[j] = kept[j] && (part == ALL || light == (part == LIGHTEST));
        if (kept[j]) a[j] = (int)id_at(src, id_bytes, row), b[j] = (int)id_at(dst, id_bytes, row);
        if (packed) words[j] = words[j] << 32 | (word_t)row;
    }
    for (int j = 0; j < ITEMS; j++) {
        if (component && kept[j]) a[j] = component[a[j]], b[j] = component[b[j]];
        kept[j] = kept[j] && a[j] != b[j];
    }
    offer(kept, a, b, words, best);
    claim_in_block(kept, slot, count);
    for (int j = 0; j < ITEMS; j++) {
        if (!kept[j] || slot[j] >= capacity) continue;
        out.ends[slot[j]] = pair(a[j], b[j]);
        out.words[slot[j]] = words[j];
        if (!packed) out.rows[slot[j]] = item(j);
    }
}

// Replaces the ends of a worklist's edges by their components' roots. Edges within one component are dropped, the others are
// offered to both.
__device__ __forceinline__ void contract(
    long long tile, long long m, word_t* from, long long from_capacity, word_t* to, long long to_capacity, int packed,
    const int* parent, word_t* best, word_t* count) {
    Worklist in(from, from_capacity, packed), out(to, to_capacity, packed);
    bool kept[ITEMS];
    int a[ITEMS], b[ITEMS];
    word_t words[ITEMS], rows[ITEMS];
    word_t slot[ITEMS];
    for (int j = 0; j < ITEMS; j++) {
        long long i = item(j, tile);
        kept[j] = i < m;
        if (!kept[j]) continue;
        a[j] = upper(in.ends[i]), b[j] = lower(in.ends[i]);
        words[j] = in.words[i];
        if (!packed) rows[j] = in.rows[i];
    }
    for (int j = 0; j < ITEMS; j++) {
        if (kept[j]) a[j] = parent[a[j]], b[j] = parent[b[j]];
        kept[j] = kept[j] && a[j] != b[j];
    }
    offer(kept, a, b, words, best);
    claim_in_block(kept, slot, count);
    for (int j = 0; j < ITEMS; j++) {
        if (!kept[j]) continue;
        out.ends[slot[j]] = pair(a[j], b[j]);
        out.words[slot[j]] = words[j];
        if (!packed) out.rows[slot[j]] = rows[j];
    }
}
// Keeps the least row among a component's edges of the least key. Not needed if rows are packed.
__device__ __forceinline__ void offer_rows_of(
    long long tile, long long m, word_t* list, long long capacity, const word_t* best, word_t* best_row) {
    Worklist edges(list, capacity, 0);
    for (int j = 0; j < ITEMS; j++) {
        long long i = item(j, tile);
        if (i >= m) continue;
        int a = upper(edges.ends[i]), b = lower(edges.ends[i]);
        word_t key = edges.words[i], row = edges.rows[i];
        if (key == best[a]) atomic_min(best_row + a, row);
        if (key == best[b]) atomic_min(best_row + b, row);
    }
}
// Takes every component's best edge and points the component at the one across. No two edges are equal, so the only cycles are
// pairs that chose the same edge: the smaller of such a pair stays a root.
__device__ __forceinline__ void hook(
    long long tile, long long m, word_t* list, long long capacity, int packed, const word_t* best,
    const word_t* best_row, int* parent, bool* taken) {
    Worklist edges(list, capacity, packed);
    int a[ITEMS], b[ITEMS];
    bool from_a[ITEMS], from_b[ITEMS];
    for (int j = 0; j < ITEMS; j++) {
        long long i = item(j, tile);
        from_a[j] = from_b[j] = i < m;
        if (!from_a[j]) continue;
        a[j] = upper(edges.ends[i]), b[j] = lower(edges.ends[i]);
        word_t word = edges.words[i];
        from_a[j] = word == best[a[j]], from_b[j] = word == best[b[j]];
    }
    for (int j = 0; j < ITEMS; j++) {
        if (!from_a[j] && !from_b[j]) continue;
        word_t row = edges.row(item(j, tile));
        if (!packed) {
            from_a[j] = from_a[j] && row == best_row[a[j]];
            from_b[j] = from_b[j] && row == best_row[b[j]];
        }
        if (from_a[j] && (!from_b[j] || b[j] < a[j])) parent[a[j]] = b[j];
        if (from_b[j] && (!from_a[j] || a[j] < b[j])) parent[b[j]] = a[j];
        if (from_a[j] || from_b[j]) taken[row] = true;
    }
}
// Moves v's pointer up to JUMPS pointers on; returns whether that is the root. Only v's thread writes parent[v], and it always
// holds an ancestor when others read it: each pointer followed may skip as many as its own thread has skipped.
__device__ __forceinline__ bool jump(int* parent, int v) {
    volatile int* at = parent;
    int p = at[v];
    for (int step = 0; step < JUMPS; step++) {
        int next = at[p];
        if (next == p) return true;
        at[v] = p = next;
    }
    return at[p] == p;
}

// Points the components of a round (all nodes if `list` is null) at their roots and lists the roots of the next round, those
// that had an edge. A root without an edge is complete. counts[1] counts the roots; counts[2] is set if a pointer is not at its
// root yet.
__device__ __forceinline__ void compress(
    long long tile, long long n, const int* list, int* parent, word_t* best, word_t* best_row, int* roots,
    word_t* counts) {
    bool kept[ITEMS], arrived = true;
    int component[ITEMS];
    word_t slot[ITEMS];
    for (int j = 0; j < ITEMS; j++) {
        long long i = item(j, tile);
        kept[j] = false;
        if (i >= n) continue;
        int c = component[j] = list ? list[i] : (int)i;
        if (parent[c] != c) {
            arrived = jump(parent, c) && arrived;
        } else if ((best_row ? best_row[c] : best[c]) != NOTHING) {
            kept[j] = true;
            best[c] = NOTHING;
            if (best_row) best_row[c] = NOTHING;
        }
    }
    if (!arrived) counts[2] = 1;
    claim_in_block(kept, slot, counts + 1);
    for (int j = 0; j < ITEMS; j++)
        if (kept[j]) roots[slot[j]] = component[j];
}
// Moves the pointers of the listed components, or of all nodes, towards their roots; sets `pending` if one is not there yet.
__device__ __forceinline__ void jump_all(
    long long tile, long long n, const int* list, int* parent, word_t* pending) {
    for (int j = 0; j < ITEMS; j++) {
        long long i = item(j, tile);
        if (i < n && !jump(parent, list ? list[i] : (int)i)) *pending = 1;
    }
}

// These are the blocks of a cooperative launch that have not returned.
struct RemainingBlocks : ResidentBlocks {
    // Returns whether this block is still needed for `items` items; a block that is not returns, the highest numbers first.
    __device__ __forceinline__ bool needs_block_for(long long items) {
        long long tile = (long long)ITEMS * blockDim.x, needed = items <= SINGLE_BLOCK ? 1 : (items + tile - 1) / tile;
        if (needed < blocks) blocks = (unsigned)needed;
        return blockIdx.x < blocks;
    }

    // Does the work on all tiles of n items, then waits for the other blocks. All threads of a block have the same tiles.
    template <typename Work> __device__ __forceinline__ void share(long long n, Work work) {
        for (long long tile = blockIdx.x; tile * ITEMS * blockDim.x < n; tile += blocks) {
            work(tile);
            __syncthreads();  // before `claim_in_block` reuses its shared memory
        }
        if (blocks == 1) __syncthreads();
        else wait();
    }
};

// Makes all rounds in one launch: the late ones take less time than a launch, let alone a synchronization with the host. The
// worklist of `*count` edges has been offered; the components of the first round are all n nodes.
//
// `zeros` holds the blocks' counter, then counts that are used once each: resetting one would need another barrier, after all
// blocks have read it. A round uses three, and one for each time that pointers are moved on after `compress`. That is at most 7
// times, because those that do not arrive lead JUMPS + 1 times as far each time. Each round halves the components that have an
// edge, so there are at most 31 rounds.
//
// No pointer is __restrict__: data that other blocks write must not be read through the read-only cache.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) boruvka_rounds(
    const word_t* count, word_t* list, long long capacity, word_t* next_list, long long next_capacity, int packed,
    word_t* best, word_t* best_row, int* parent, bool* taken, long long n, int* roots, int* next_roots, word_t* zeros) {
    RemainingBlocks grid{zeros};
    const int* listed = nullptr;
    long long active = n;
    word_t* last = zeros;  // the last of the words in use
    long long m = *count;
    while (m && grid.needs_block_for(max(m, active))) {
        if (!packed)
            grid.share(m, [&](long long tile) { offer_rows_of(tile, m, list, capacity, best, best_row); });
        grid.share(m, [&](long long tile) { hook(tile, m, list, capacity, packed, best, best_row, parent, taken); });
        word_t* counts = last;
        grid.share(active, [&](long long tile) {
            compress(tile, active, listed, parent, best, best_row, roots, counts);
        });
        for (last = counts + 2; *last;) {
            word_t* pending = ++last;
            grid.share(active, [&](long long tile) { jump_all(tile, active, listed, parent, pending); });
        }
        active = counts[1];
        int* compressed = roots; roots = next_roots; next_roots = compressed;
        listed = compressed;

        word_t* n_kept = ++last;
        grid.share(m, [&](long long tile) {
            contract(tile, m, list, capacity, next_list, next_capacity, packed, parent, best, n_kept);
        });
        m = *n_kept;
        word_t* worklist = list; list = next_list; next_list = worklist;
        long long list_capacity = capacity; capacity = next_capacity; next_capacity = list_capacity;
    }
}
