// Surrogate distances of a row and 32 candidates, by a warp.
//
// A warp copies 32 candidates' features into shared memory, a few hundred bytes of each at a time, and each lane sums its
// own candidate. With bytes for values, which only squared_euclidean has, all sums are integers below 2^32 and the order does
// not matter: d is below 2^16 then, and a multiple of 16.
typedef unsigned char byte;  // it holds integers from 0 to 255

#include "neighbors/exact/formulas.cuh"
#include "neighbors/exact/top_k.cuh"
#include "runtime/include/copies.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int THREADS = 2 * WARP;      // the most threads of a block, in the kernels that give each row a warp
constexpr int BLOCKS = 16;             // resident blocks: more warps hide the latency of memory
constexpr int FEW_FEATURES = 8;        // up to here a lane reads its candidate directly
constexpr int SEGMENT = 128;           // bytes of a candidate that are copied at a time

// Four squared differences of bytes.
__device__ __forceinline__ unsigned add_squares(unsigned total, unsigned x, unsigned y) {
    unsigned difference = __vabsdiffu4(x, y);
    return __dp4a(difference, difference, total);
}

__device__ __forceinline__ void add_exactly(squared_euclidean& sum, unsigned squared) { sum.total += squared; }
template <class S> __device__ void add_exactly(S&, unsigned) {}  // no other formula has bytes

__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncwarp();
}

// This is a warp's shared memory for features: `width` of the row as float64, and those of each lane's candidate, `pitch` bytes from
// one to the next. `pitch` is an odd multiple of 16, so that no two lanes of a quarter warp share a bank.
struct Features {
    double* row;
    char* tile;
    int width, pitch;
    int alignment;  // 16, 8 or 4: rows of `values` start at multiples of these bytes

    // Copies `n` features from `start` on of each lane's candidate, `alignment` bytes at a time, the last of which may go on to the row's
    // end: a formula need not sum its last columns.
    __device__ void load(const VALUE* __restrict__ values, int d, int id, int start, int n) {
        if (sizeof(VALUE) < 4 || alignment == 16) load_by<16>(values, d, id, start, n);
        else if (sizeof(VALUE) == 8 || alignment == 8) load_by<8>(values, d, id, start, n);
        else load_by<4>(values, d, id, start, n);
    }
    template <int BYTES>
    __device__ void load_by(const VALUE* __restrict__ values, int d, int id, int start, int n) {
        constexpr int LANES = SEGMENT / BYTES;  // these lanes copy a candidate's
        int lane = threadIdx.x % WARP, piece = lane % LANES * BYTES, bytes = n * (int)sizeof(VALUE);
#pragma unroll 8
        for (int first = 0; first < WARP; first += WARP / LANES) {
            int c = first + lane / LANES, other = __shfl_sync(ALL_LANES, id, c);
            if (other >= 0 && piece < bytes)
                copy<BYTES>(tile + c * pitch + piece, (const char*)(values + (size_t)other * d + start) + piece);
        }
    }
};

// Returns the surrogate distance of (x, values[id]) for each lane's id; lanes with id < 0 take part, and their result is meaningless.
__device__ double exact_distance(const VALUE* __restrict__ x, const VALUE* __restrict__ values, int d, int id, Features features) {
    int lane = threadIdx.x % WARP, last = FORMULA::summed(d);
    const VALUE* y = values + (size_t)max(id, 0) * d;
    if (d <= FEW_FEATURES) return surrogate_distance(x, y, d);
    FORMULA sum;
    for (int start = 0; start < last; start += features.width) {
        int n = min(features.width, last - start);
        __syncwarp();
        features.load(values, d, id, start, n);
        if constexpr (sizeof(VALUE) == 1) {
            for (int f = lane; f < n / 4; f += WARP) ((int*)features.row)[f] = ((const int*)(x + start))[f];
        } else {
            for (int f = lane; f < n; f += WARP) features.row[f] = widen(x[start + f]);
        }
        wait_for_copies();
        if (id < 0) continue;
        const VALUE* mine = (const VALUE*)(features.tile + lane * features.pitch);
        if constexpr (sizeof(VALUE) == 1) {
            const uint4 *ours = (const uint4*)features.row, *theirs = (const uint4*)mine;
            unsigned squared = 0;
            for (int f = 0; f < n / 16; f++) {
                uint4 a = ours[f], b = theirs[f];
                squared = add_squares(squared, a.x, b.x), squared = add_squares(squared, a.y, b.y);
                squared = add_squares(squared, a.z, b.z), squared = add_squares(squared, a.w, b.w);
            }
            add_exactly(sum, squared);
            continue;
        }
        int f = 0;
#pragma unroll 4
        for (; f + 4 <= n; f += 4) {
            union { uint4 all[(sizeof(VALUE) + 3) / 4]; VALUE of[4]; } theirs;
            for (int i = 0; i < sizeof(VALUE) / 4; i++) theirs.all[i] = ((const uint4*)(mine + f))[i];
            double2 a = *(const double2*)(features.row + f), b = *(const double2*)(features.row + f + 2);
            sum.add(a.x, widen(theirs.of[0])), sum.add(a.y, widen(theirs.of[1]));
            sum.add(b.x, widen(theirs.of[2])), sum.add(b.y, widen(theirs.of[3]));
        }
        for (; f < n; f++) sum.add(features.row[f], widen(mine[f]));
    }
    return sum.value(x, y, d);
}

// A layout has a list of k entries with room for `size`, and the shape of a `Features`.
struct WarpLayout {
    int k, size, width, pitch, alignment;
};

// Returns the list in a warp's part of the block's shared memory. The part has `width` features of the warp's row, the candidates' tile,
// and then the list's weights and ids, with room for those that wait.
__device__ TopK divide_shared_memory(char* shared, const WarpLayout& layout, Features& features) {
    int width = layout.width, pitch = layout.pitch, entries = layout.size + waiting_room(layout.size);
    size_t bytes = ((size_t)width * 8 + WARP * pitch + (size_t)entries * 12 + 15) / 16 * 16;
    char* mine = shared + bytes * (threadIdx.x / WARP);
    char* list = mine + (size_t)width * 8 + WARP * pitch;
    features = Features{(double*)mine, mine + (size_t)width * 8, width, pitch, layout.alignment};
    return TopK{(double*)list, (int*)(list + (size_t)entries * 8), layout.k, layout.size, 0};
}
