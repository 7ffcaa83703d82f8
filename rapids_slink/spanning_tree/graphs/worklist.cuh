// The edges of a round, and the keys by which they are compared.
typedef unsigned long long word_t;

constexpr word_t NOTHING = ~0ull;
constexpr int ITEMS = 4;            // edges or components per thread
constexpr int THREADS = 512, BLOCKS = 2;  // of `boruvka_rounds`: per block, resident per multiprocessor
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

// The j-th item of this thread in a tile, the items that a block processes together; by default the tile of its number.
__device__ __forceinline__ long long item(int j, long long tile = blockIdx.x) {
    return (tile * ITEMS + j) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ word_t pair(int a, int b) { return (word_t)a << 32 | (unsigned)b; }
__device__ __forceinline__ int upper(word_t ends) { return (int)(ends >> 32); }
__device__ __forceinline__ int lower(word_t ends) { return (int)(ends & 0xffffffff); }

// The bits of a weight as an unsigned integer of the same order; both zeros are one. It uses integer arithmetic only, because
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
