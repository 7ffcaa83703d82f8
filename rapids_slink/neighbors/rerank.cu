// Exact kernel values of candidates, and each row's least k of them in the total order. One warp a row.
//
// The value is the canonical squared Euclidean distance: float64, features in order, no fused multiply-add. A warp
// brings 32 candidates' features into shared memory, a few hundred bytes of each at a time, and each lane sums its own
// candidate. With bytes for values, all sums are integers below 2^32 and the order does not matter: d is below 2^16 then,
// and a multiple of 16.
#include "neighbors/canonical.cuh"
#include "ordering.cuh"

typedef unsigned char byte;  // for integers from 0 to 255
#ifndef VALUE
#define VALUE float
#endif

constexpr int WARP = 32;
constexpr int FEW_FEATURES = 8;       // below this a lane reads its candidate directly
constexpr unsigned ALL = 0xffffffffu;
constexpr int NOBODY = 0x7fffffff;    // an empty entry: after every id

__device__ __forceinline__ double widen(byte x) { return x; }

__device__ __forceinline__ double add_feature(double total, VALUE x, VALUE y) {
    return add_square(total, __dsub_rn(widen(x), widen(y)));
}

// Four squared differences of bytes.
__device__ __forceinline__ unsigned add_squares(unsigned total, unsigned x, unsigned y) {
    unsigned apart = __vabsdiffu4(x, y);
    return __dp4a(apart, apart, total);
}

// Copies 4, 8 or 16 bytes into shared memory, without waiting where the GPU can.
template <int BYTES>
__device__ __forceinline__ void copy(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES) : "memory");
#else
    for (int i = 0; i < BYTES / 4; i++) ((int*)to)[i] = ((const int*)from)[i];
#endif
}
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncwarp();
}

// A warp's room for features: `width` of the row as float64, and of each lane's candidate, `pitch` bytes apart, which
// is an odd multiple of 16 so that no two lanes of a quarter warp share a bank.
struct Room {
    double* row;
    char* tile;
    int width, pitch;
    bool aligned;  // rows of `values` start at multiples of 16 bytes

    // Brings `n` features from `start` on of each lane's candidate, BYTES at a time.
    template <int BYTES>
    __device__ void bring(const VALUE* __restrict__ values, int d, int id, int start, int n) {
        int lane = threadIdx.x % WARP, pieces = n * (int)sizeof(VALUE) / BYTES;
        if (pieces >= WARP) {
            for (int c = 0; c < WARP; c++) {
                int other = __shfl_sync(ALL, id, c);
                if (other < 0) continue;
                const char* from = (const char*)(values + (size_t)other * d + start);
                for (int p = lane; p < pieces; p += WARP) copy<BYTES>(tile + c * pitch + p * BYTES, from + p * BYTES);
            }
        } else {
            for (int t = lane; t < WARP * pieces; t += WARP) {
                int c = t / pieces, p = t % pieces, other = __shfl_sync(ALL, id, c);
                const char* from = (const char*)(values + (size_t)max(other, 0) * d + start);
                if (other >= 0) copy<BYTES>(tile + c * pitch + p * BYTES, from + p * BYTES);
            }
        }
    }
};

// The canonical value of (x, values[id]) for each lane's id; lanes with id < 0 take part and get rubbish.
__device__ double canonical(const VALUE* __restrict__ x, const VALUE* __restrict__ values, int d, int id, Room room) {
    int lane = threadIdx.x % WARP;
    double total = 0;
    if (d <= FEW_FEATURES) {
        const VALUE* y = values + (size_t)max(id, 0) * d;
        for (int f = 0; f < d; f++) total = add_feature(total, x[f], y[f]);
        return total;
    }
    for (int start = 0; start < d; start += room.width) {
        int n = min(room.width, d - start);
        __syncwarp();
        if (room.aligned) room.bring<16>(values, d, id, start, n);
        else room.bring<(sizeof(VALUE) < 4 ? 16 : sizeof(VALUE))>(values, d, id, start, n);
        if constexpr (sizeof(VALUE) == 1) {
            for (int f = lane; f < n / 4; f += WARP) ((int*)room.row)[f] = ((const int*)(x + start))[f];
        } else {
            for (int f = lane; f < n; f += WARP) room.row[f] = widen(x[start + f]);
        }
        wait_for_copies();
        if (id < 0) continue;
        const VALUE* mine = (const VALUE*)(room.tile + lane * room.pitch);
        if constexpr (sizeof(VALUE) == 1) {
            const uint4 *ours = (const uint4*)room.row, *theirs = (const uint4*)mine;
            unsigned squares = 0;
            for (int f = 0; f < n / 16; f++) {
                uint4 a = ours[f], b = theirs[f];
                squares = add_squares(squares, a.x, b.x), squares = add_squares(squares, a.y, b.y);
                squares = add_squares(squares, a.z, b.z), squares = add_squares(squares, a.w, b.w);
            }
            total += squares;
            continue;
        }
        int f = 0;
        for (; f + 4 <= n; f += 4) {
            union { uint4 all[(sizeof(VALUE) + 3) / 4]; VALUE of[4]; } y;
            for (int i = 0; i < sizeof(VALUE) / 4; i++) y.all[i] = ((const uint4*)(mine + f))[i];
#pragma unroll
            for (int i = 0; i < 4; i++) total = add_square(total, __dsub_rn(room.row[f + i], widen(y.of[i])));
        }
        for (; f < n; f++) total = add_square(total, __dsub_rn(room.row[f], widen(mine[f])));
    }
    return total;
}

// Bitonic sort of `size` (a power of two) entries by one warp.
__device__ void sort_entries(double* w, int* id, int size) {
    int lane = threadIdx.x % WARP;
    for (int block = 2; block <= size; block *= 2)
        for (int stride = block / 2; stride > 0; stride /= 2) {
            __syncwarp();
            for (int t = lane; t < size / 2; t += WARP) {
                int a = 2 * t - (t & (stride - 1)), b = a + stride;
                bool up = (a & block) == 0;
                if (before(w[b], id[b], w[a], id[a]) == up && !(w[a] == w[b] && id[a] == id[b])) {
                    double other = w[a]; w[a] = w[b]; w[b] = other;
                    int swap = id[a]; id[a] = id[b]; id[b] = swap;
                }
            }
        }
    __syncwarp();
}

// A warp's sorted list of k entries, followed by entries that wait to be merged into it.
struct TopK {
    double* w;
    int* id;
    int k, size, waiting;

    __device__ void offer(double weight, int candidate, bool wanted) {
        int lane = threadIdx.x % WARP;
        wanted = wanted && before(weight, candidate, w[k - 1], id[k - 1]);
        unsigned votes = __ballot_sync(ALL, wanted);
        if (!votes) return;
        int slot = k + waiting + __popc(votes & ((1u << lane) - 1));
        if (wanted) w[slot] = weight, id[slot] = candidate;
        waiting += __popc(votes);
        __syncwarp();
        if (k + waiting + WARP > size) merge();
    }
    __device__ void merge() {
        int lane = threadIdx.x % WARP, used = 2;
        while (used < k + waiting) used *= 2;
        for (int i = k + waiting + lane; i < used; i += WARP) w[i] = 1.0 / 0.0, id[i] = NOBODY;
        sort_entries(w, id, used);
        waiting = 0;
    }
};

// A warp's part of the block's shared memory: `width` features of its row, the candidates' tile, then `size` weights and
// ids.
__device__ TopK warp_space(char* shared, int k, int size, int width, int pitch, bool aligned, Room& room) {
    size_t bytes = ((size_t)width * 8 + WARP * pitch + (size_t)size * 12 + 15) / 16 * 16;
    char* mine = shared + bytes * (threadIdx.x / WARP);
    char* list = mine + (size_t)width * 8 + WARP * pitch;
    room = Room{(double*)mine, mine + (size_t)width * 8, width, pitch, aligned};
    return TopK{(double*)list, (int*)(list + (size_t)size * 8), k, size, 0};
}

// Merges row i's candidates, as far as they are at most upper[i], into its list (top_ids, top_weights). They are ids or,
// if `order` is given, places in it. Those of the row's own group are passed over, if there are groups. If points have
// cores, a candidate's value is its mutual reachability, which is no less than its core.
extern "C" __global__ void rerank(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ candidates, const int* __restrict__ count, int capacity,
    const int* __restrict__ order, const int* __restrict__ row_group, const int* __restrict__ column_group,
    const double* __restrict__ core, const double* __restrict__ upper, int k, int size, int width, int pitch, bool aligned, int* __restrict__ top_ids,
    double* __restrict__ top_weights) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP, i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (i >= n_rows) return;
    Room room;
    TopK top = warp_space(shared, k, size, width, pitch, aligned, room);
    for (int e = lane; e < k; e += WARP) {
        int id = top_ids[(size_t)i * k + e];
        top.w[e] = top_weights[(size_t)i * k + e];
        top.id[e] = id < 0 ? NOBODY : id;
    }
    __syncwarp();
    const VALUE* x = queries + (size_t)rows[i] * d;
    int m = min(count[i], capacity);
    for (int c = 0; c < m; c += WARP) {
        int id = c + lane < m ? candidates[(size_t)i * capacity + c + lane] : -1;
        if (order && id >= 0) id = order[id];
        if (id >= 0 && column_group && column_group[id] == row_group[i]) id = -1;
        if (id >= 0 && core && core[id] > upper[i]) id = -1;
        double weight = canonical(x, values, d, id, room);
        if (id >= 0 && core) weight = reachability(weight, core[rows[i]], core[id]);
        top.offer(weight, id, id >= 0 && weight <= upper[i]);
    }
    if (top.waiting) top.merge();
    for (int e = lane; e < k; e += WARP) {
        top_ids[(size_t)i * k + e] = top.id[e] == NOBODY ? -1 : top.id[e];
        top_weights[(size_t)i * k + e] = top.w[e];
    }
}

// The lists of all columns of another group, a row's columns dealt out to `parts` warps with a list each.
extern "C" __global__ void rerank_all(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ row_group, const int* __restrict__ column_group, int n_columns, int parts,
    const double* __restrict__ core, const double* __restrict__ upper, int k, int size, int width, int pitch, bool aligned, int* __restrict__ part_ids) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP;
    long long job = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (job >= (long long)n_rows * parts) return;
    int i = job / parts, part = job % parts;
    Room room;
    TopK top = warp_space(shared, k, size, width, pitch, aligned, room);
    for (int e = lane; e < k; e += WARP) top.w[e] = 1.0 / 0.0, top.id[e] = NOBODY;
    __syncwarp();
    const VALUE* x = queries + (size_t)rows[i] * d;
    for (long long c = (long long)part * WARP; c < n_columns; c += (long long)parts * WARP) {
        int id = c + lane < n_columns && column_group[c + lane] != row_group[i] ? (int)c + lane : -1;
        if (id >= 0 && core && core[id] > upper[i]) id = -1;
        double weight = canonical(x, values, d, id, room);
        if (id >= 0 && core) weight = reachability(weight, core[rows[i]], core[id]);
        top.offer(weight, id, id >= 0 && weight <= upper[i]);
    }
    top.merge();
    for (int e = lane; e < k; e += WARP) part_ids[job * k + e] = top.id[e] == NOBODY ? -1 : top.id[e];
}

// out[i, j] = the kernel value of (rows[i], j), infinite within a group: for lists too long for shared memory.
extern "C" __global__ void all_values(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ row_group, const int* __restrict__ column_group, int n_columns, double* __restrict__ out) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)n_rows * n_columns) return;
    int i = at / n_columns, j = at % n_columns;
    double total = 0;
    for (int f = 0; f < d; f++) total = add_feature(total, queries[(size_t)rows[i] * d + f], values[(size_t)j * d + f]);
    out[at] = column_group[j] == row_group[i] ? 1.0 / 0.0 : total;
}

// group_least[group[i]] = min(itself, value[i]).
extern "C" __global__ void lower_groups(
    int n, const int* __restrict__ group, const double* __restrict__ value, int stride, double* group_least) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomic_min(group_least + group[i], value[(size_t)i * stride]);
}

// The kernel values of pairs of rows of `values`.
extern "C" __global__ void pair_values(
    const VALUE* __restrict__ values, int d, long long n, const int* __restrict__ src, const int* __restrict__ dst,
    double* __restrict__ out) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    const VALUE *x = values + (size_t)src[at] * d, *y = values + (size_t)dst[at] * d;
    double total = 0;
    for (int f = 0; f < d; f++) total = add_feature(total, x[f], y[f]);
    out[at] = total;
}
