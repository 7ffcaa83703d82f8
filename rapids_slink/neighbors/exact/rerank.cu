// Surrogate distances of candidates, and each row's least k of them in the total order. One warp a row, or a few rows.
//
// A warp copies 32 candidates' features into shared memory, a few hundred bytes of each at a time, and each lane sums its
// own candidate. With bytes for values, which only squared_euclidean has, all sums are integers below 2^32 and the order does
// not matter: d is below 2^16 then, and a multiple of 16.
typedef unsigned char byte;  // for integers from 0 to 255

#include "neighbors/exact/formulas.cuh"
#include "neighbors/exact/top_k.cuh"
#include "runtime/include/copies.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int THREADS = 2 * WARP;      // of a block at most, in the kernels that give each row a warp,
constexpr int BLOCKS = 16;             // and resident blocks: more warps hide the latency of memory
constexpr int FEW_FEATURES = 8;        // up to here a lane reads its candidate directly
constexpr int SEGMENT = 128;           // bytes of a candidate that are copied at a time

#ifndef SCAN_ROWS
#define SCAN_ROWS 1  // that share what a warp of `scan` copies; the sums and lists of several take more registers
#endif

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

// A warp's shared memory for features: `width` of each of its rows as float64, and of each lane's candidate, `pitch` bytes from
// one to the next, which is an odd multiple of 16 so that no two lanes of a quarter warp share a bank.
struct Features {
    double* rows;
    char* tile;
    int width, pitch;
    bool aligned;  // rows of `values` start at multiples of 16 bytes

    // Copies `n` features from `start` on of each lane's candidate, BYTES at a time, the last of which may go on to the row's end:
    // a formula need not sum its last columns.
    template <int BYTES>
    __device__ void load(const VALUE* __restrict__ values, int d, int id, int start, int n) {
        int lane = threadIdx.x % WARP, pieces = (n * (int)sizeof(VALUE) + BYTES - 1) / BYTES;
        constexpr int FULL = SEGMENT / BYTES;  // the usual case, without divisions
        if (BYTES == 16 && pieces == FULL) {
            const char* from = (const char*)(values + start) + lane % FULL * BYTES;
            char* to = tile + lane / FULL * pitch + lane % FULL * BYTES;
#pragma unroll
            for (int c = 0; c < WARP; c += WARP / FULL) {
                int other = __shfl_sync(ALL_LANES, id, c + lane / FULL);
                if (other >= 0) copy<BYTES>(to + c * pitch, from + (size_t)other * (d * sizeof(VALUE)));
            }
        } else if (pieces >= WARP) {
            for (int c = 0; c < WARP; c++) {
                int other = __shfl_sync(ALL_LANES, id, c);
                if (other < 0) continue;
                const char* from = (const char*)(values + (size_t)other * d + start);
                for (int p = lane; p < pieces; p += WARP) copy<BYTES>(tile + c * pitch + p * BYTES, from + p * BYTES);
            }
        } else {
            for (int t = lane; t < WARP * pieces; t += WARP) {
                int c = t / pieces, p = t % pieces, other = __shfl_sync(ALL_LANES, id, c);
                const char* from = (const char*)(values + (size_t)max(other, 0) * d + start);
                if (other >= 0) copy<BYTES>(tile + c * pitch + p * BYTES, from + p * BYTES);
            }
        }
    }
};

// The surrogate distances of (x[r], values[id]) for each lane's id; lanes with id < 0 take part, and their result is meaningless.
template <int R>
__device__ __forceinline__ void exact_distances(
    const VALUE* const (&x)[R], const VALUE* __restrict__ values, int d, int id, Features features, double (&distance)[R]) {
    int lane = threadIdx.x % WARP, last = FORMULA::summed(d);
    const VALUE* y = values + (size_t)max(id, 0) * d;
    if (d <= FEW_FEATURES) {
#pragma unroll
        for (int r = 0; r < R; r++) distance[r] = surrogate_distance(x[r], y, d);
        return;
    }
    FORMULA sum[R];
    for (int start = 0; start < last; start += features.width) {
        int n = min(features.width, last - start);
        __syncwarp();
        if (features.aligned) features.load<16>(values, d, id, start, n);
        else features.load<(sizeof(VALUE) < 4 ? 16 : sizeof(VALUE))>(values, d, id, start, n);
#pragma unroll
        for (int r = 0; r < R; r++) {
            double* row = features.rows + r * features.width;
            if constexpr (sizeof(VALUE) == 1) {
                for (int f = lane; f < n / 4; f += WARP) ((int*)row)[f] = ((const int*)(x[r] + start))[f];
            } else {
                for (int f = lane; f < n; f += WARP) row[f] = widen(x[r][start + f]);
            }
        }
        wait_for_copies();
        if (id < 0) continue;
        const VALUE* mine = (const VALUE*)(features.tile + lane * features.pitch);
        if constexpr (sizeof(VALUE) == 1) {
            unsigned squared[R] = {};
            for (int f = 0; f < n / 16; f++) {
                uint4 b = ((const uint4*)mine)[f];
#pragma unroll
                for (int r = 0; r < R; r++) {
                    uint4 a = ((const uint4*)(features.rows + r * features.width))[f];
                    squared[r] = add_squares(squared[r], a.x, b.x), squared[r] = add_squares(squared[r], a.y, b.y);
                    squared[r] = add_squares(squared[r], a.z, b.z), squared[r] = add_squares(squared[r], a.w, b.w);
                }
            }
#pragma unroll
            for (int r = 0; r < R; r++) add_exactly(sum[r], squared[r]);
            continue;
        }
        int f = 0;
#pragma unroll 4
        for (; f + 4 <= n; f += 4) {
            union { uint4 all[(sizeof(VALUE) + 3) / 4]; VALUE of[4]; } theirs;
            for (int i = 0; i < sizeof(VALUE) / 4; i++) theirs.all[i] = ((const uint4*)(mine + f))[i];
            double y0 = widen(theirs.of[0]), y1 = widen(theirs.of[1]), y2 = widen(theirs.of[2]), y3 = widen(theirs.of[3]);
#pragma unroll
            for (int r = 0; r < R; r++) {
                const double* row = features.rows + r * features.width + f;
                double2 a = *(const double2*)row, b = *(const double2*)(row + 2);
                sum[r].add(a.x, y0), sum[r].add(a.y, y1), sum[r].add(b.x, y2), sum[r].add(b.y, y3);
            }
        }
        for (; f < n; f++)
#pragma unroll
            for (int r = 0; r < R; r++) sum[r].add(features.rows[r * features.width + f], widen(mine[f]));
    }
#pragma unroll
    for (int r = 0; r < R; r++) distance[r] = sum[r].value(x[r], y, d);
}

// Lists of k entries in `size`, and the shape of a `Features`.
struct WarpLayout {
    int k, size, width, pitch;
    bool aligned;
};

// A warp's part of the block's shared memory: `width` features of each of R rows, the candidates' tile, then each row's list: its
// weights and ids, with room for those that wait.
template <int R>
__device__ __forceinline__ Features divide_shared_memory(char* shared, const WarpLayout& layout, TopK (&top)[R]) {
    int width = layout.width, pitch = layout.pitch, entries = layout.size + waiting_room(layout.size);
    size_t of_features = (size_t)R * width * 8 + WARP * pitch, bytes = (of_features + (size_t)R * entries * 12 + 15) / 16 * 16;
    char* mine = shared + bytes * (threadIdx.x / WARP);
#pragma unroll
    for (int r = 0; r < R; r++) {
        double* weights = (double*)(mine + of_features) + r * entries;
        int* ids = (int*)((double*)(mine + of_features) + R * entries) + r * entries;
        top[r] = TopK{weights, ids, layout.k, layout.size, 0};
    }
    return Features{(double*)mine, mine + (size_t)R * width * 8, width, pitch, layout.aligned};
}

// Merges row i's candidates, as far as they are at most upper[i], into its list (top_ids, top_weights). They are ids or,
// if `order` is given, positions in it. Those of the row's own group are passed over, if there are groups. If points have core
// distances, a candidate weighs its mutual reachability, which is no less than its core distance. Then upper[i] is tightened to
// the weight of a full list's last entry, overflowed[i] is set if there were more candidates than `capacity`, and count[i] is
// zero. Rows with at most `more_than` candidates are left as they are. A warp has `rows_a_warp` rows, at most 32, and reads
// their counts at once: many rows if most are left.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) rerank(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ candidates, int* __restrict__ count, int more_than, int rows_a_warp, int capacity,
    const int* __restrict__ order, const int* __restrict__ row_group, const int* __restrict__ point_group,
    const double* __restrict__ core, double* __restrict__ upper, const WarpLayout layout, int* __restrict__ top_ids,
    double* __restrict__ top_weights, bool* __restrict__ overflowed) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    int first = (blockIdx.x * warps + threadIdx.x / WARP) * rows_a_warp, mine = first + lane;
    bool due = lane < rows_a_warp && mine < n_rows && count[mine] > more_than;
    for (unsigned pending = __ballot_sync(ALL_LANES, due); pending; pending &= pending - 1) {
        int i = first + __ffs(pending) - 1, m = min(count[i], capacity);
        TopK lists[1], &top = lists[0];
        Features features = divide_shared_memory(shared, layout, lists);
        top.load(top_ids + (size_t)i * layout.k, top_weights + (size_t)i * layout.k);
        const VALUE* const x[1] = {queries + (size_t)rows[i] * d};
        for (int c = 0; c < m; c += WARP) {
            int id = c + lane < m ? candidates[(size_t)i * capacity + c + lane] : -1;
            if (order && id >= 0) id = order[id];
            if (id >= 0 && point_group && point_group[id] == row_group[i]) id = -1;
            if (id >= 0 && core && core[id] > upper[i]) id = -1;
            double distance[1];
            exact_distances(x, values, d, id, features, distance);
            double weight = id >= 0 && core ? reachability(distance[0], core[rows[i]], core[id]) : distance[0];
            top.offer(weight, id, id >= 0 && weight <= upper[i]);
        }
        top.finish();
        top.store(top_ids + (size_t)i * layout.k, top_weights + (size_t)i * layout.k);
        double last = top.last_weight();
        __syncwarp();  // all lanes have read what changes now
        if (lane == 0) {
            if (count[i] > capacity) overflowed[i] = true;
            if (last < upper[i]) upper[i] = last;
            count[i] = 0;
        }
    }
}

// The lists of all points of another group: SCAN_ROWS rows' points dealt out to `parts` warps with a list a row each.
extern "C" __global__ void __launch_bounds__(THREADS, SCAN_ROWS == 1 ? BLOCKS : BLOCKS / 2) scan(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ row_group, const int* __restrict__ point_group, int n_points, int parts,
    const double* __restrict__ core, const double* __restrict__ upper, const WarpLayout layout, int* __restrict__ part_ids) {
    extern __shared__ __align__(16) char shared[];
    constexpr int R = SCAN_ROWS;
    long long job = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, first = job / parts * R;
    if (first >= n_rows) return;
    int lane = threadIdx.x % WARP, part = job % parts, group[R];
    double bound[R], own_core[R], distance[R];
    TopK top[R];
    Features features = divide_shared_memory(shared, layout, top);
    const VALUE* x[R];
#pragma unroll
    for (int r = 0; r < R; r++) {  // beyond the last row it is taken again
        int i = min(first + r, n_rows - 1ll);
        x[r] = queries + (size_t)rows[i] * d, group[r] = row_group[i], bound[r] = upper[i];
        own_core[r] = core ? core[rows[i]] : 0;
        top[r].load(nullptr, nullptr);
    }
    for (long long c = (long long)part * WARP; c < n_points; c += (long long)parts * WARP) {
        int id = c + lane < n_points ? (int)c + lane : -1, other = id < 0 ? 0 : point_group[id];
        double other_core = core && id >= 0 ? core[id] : 0;
        bool any = false;
#pragma unroll
        for (int r = 0; r < R; r++) any |= other != group[r] && other_core <= bound[r];
        if (!any) id = -1;
        exact_distances(x, values, d, id, features, distance);
#pragma unroll
        for (int r = 0; r < R; r++) {
            double weight = core ? reachability(distance[r], own_core[r], other_core) : distance[r];
            top[r].offer(weight, id, id >= 0 && other != group[r] && weight <= bound[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        top[r].finish();
        if (first + r < n_rows) top[r].store(part_ids + ((first + r) * parts + part) * layout.k, nullptr);
    }
}

// The surrogate distances of pairs of rows of `values`, a lane each: the warp copies both rows' features into shared memory.
extern "C" __global__ void __launch_bounds__(THREADS) pair_distances(
    const VALUE* __restrict__ values, int d, long long n, const int* __restrict__ src, const int* __restrict__ dst,
    const WarpLayout layout, double* __restrict__ out) {
    extern __shared__ __align__(16) char shared[];
    long long at = thread_index();
    int lane = threadIdx.x % WARP, last = FORMULA::summed(d), id[2] = {at < n ? src[at] : -1, at < n ? dst[at] : -1};
    const VALUE *x = values + (size_t)max(id[0], 0) * d, *y = values + (size_t)max(id[1], 0) * d;
    if (d <= FEW_FEATURES || (sizeof(VALUE) < 4 && !layout.aligned)) {
        if (at < n) out[at] = surrogate_distance(x, y, d);
        return;
    }
    char* tile[2];
#pragma unroll
    for (int e = 0; e < 2; e++) tile[e] = shared + (threadIdx.x / WARP * 2 + e) * WARP * layout.pitch;
    FORMULA sum;
    for (int start = 0; start < last; start += layout.width) {
        int m = min(layout.width, last - start);
        __syncwarp();
#pragma unroll
        for (int e = 0; e < 2; e++) {
            Features features{nullptr, tile[e], layout.width, layout.pitch, layout.aligned};
            if (layout.aligned) features.load<16>(values, d, id[e], start, m);
            else features.load<(sizeof(VALUE) < 4 ? 16 : sizeof(VALUE))>(values, d, id[e], start, m);
        }
        wait_for_copies();
        const VALUE *own = (const VALUE*)(tile[0] + lane * layout.pitch), *other = (const VALUE*)(tile[1] + lane * layout.pitch);
#pragma unroll 4
        for (int f = 0; f < m; f++) sum.add(widen(own[f]), widen(other[f]));
    }
    if (at < n) out[at] = sum.value(x, y, d);
}
