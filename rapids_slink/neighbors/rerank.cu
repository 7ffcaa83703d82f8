// Exact kernel values of candidates, and each row's least k of them in the total order. One warp a row.
//
// The value is the canonical squared Euclidean distance: float64, features in order, no fused multiply-add. A warp
// brings 32 candidates' features into shared memory 32 at a time, coalesced, and each lane sums its own candidate.
#include "neighbors/canonical.cuh"
#include "ordering.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int WARP = 32;
constexpr int PADDED = WARP + 1;      // a lane reads down its own row of the tile: no two lanes share a bank
constexpr int FEW_FEATURES = 8;       // below this a lane reads its candidate directly
constexpr unsigned ALL = 0xffffffffu;
constexpr int NOBODY = 0x7fffffff;    // an empty entry: after every id

__device__ __forceinline__ bool before(double w, int id, double other_w, int other_id) {
    return w < other_w || (w == other_w && id < other_id);
}

__device__ __forceinline__ double add_feature(double total, VALUE x, VALUE y) {
    return add_square(total, __dsub_rn(widen(x), widen(y)));
}

// The canonical value of (x, values[id]) for each lane's id; lanes with id < 0 take part and get rubbish.
__device__ double canonical(const VALUE* __restrict__ x, const VALUE* __restrict__ values, int d, int id, VALUE* tile) {
    int lane = threadIdx.x % WARP;
    double total = 0;
    if (d <= FEW_FEATURES) {
        const VALUE* y = values + (size_t)max(id, 0) * d;
        for (int f = 0; f < d; f++) total = add_feature(total, x[f], y[f]);
        return total;
    }
    VALUE* mine = tile + WARP * PADDED;
    for (int start = 0; start < d; start += WARP) {
        int f = start + lane;
        __syncwarp();
        mine[lane] = f < d ? x[f] : 0;
#pragma unroll 8
        for (int c = 0; c < WARP; c++) {
            int other = max(__shfl_sync(ALL, id, c), 0);
            tile[c * PADDED + lane] = f < d ? values[(size_t)other * d + f] : 0;
        }
        __syncwarp();
        int width = min(WARP, d - start);
        for (int g = 0; g < width; g++) total = add_feature(total, mine[g], tile[lane * PADDED + g]);
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
        int lane = threadIdx.x % WARP;
        for (int i = k + waiting + lane; i < size; i += WARP) w[i] = 1.0 / 0.0, id[i] = NOBODY;
        sort_entries(w, id, size);
        waiting = 0;
    }
};

// A warp's part of the block's shared memory: `size` weights, `size` ids, then the tile of canonical().
__device__ TopK warp_space(char* shared, int k, int size, VALUE*& tile) {
    size_t bytes = (size_t)size * 12 + (WARP * PADDED + WARP) * sizeof(VALUE);
    bytes = (bytes + 7) / 8 * 8;
    char* mine = shared + bytes * (threadIdx.x / WARP);
    tile = (VALUE*)(mine + (size_t)size * 12);
    return TopK{(double*)mine, (int*)(mine + (size_t)size * 8), k, size, 0};
}

// Merges row i's candidates, as far as they are at most upper[i], into its list (top_ids, top_weights). They stand in
// `parts` (at most 32) parts of the same capacity, as ids or, if `order` is given, as places in it.
extern "C" __global__ void rerank(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ candidates, const int* __restrict__ count, int parts, int capacity,
    const int* __restrict__ order, const int* __restrict__ row_group, const int* __restrict__ column_group,
    const double* __restrict__ upper, int k, int size, int* __restrict__ top_ids, double* __restrict__ top_weights) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP, i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (i >= n_rows) return;
    VALUE* tile;
    TopK top = warp_space(shared, k, size, tile);
    for (int e = lane; e < k; e += WARP) {
        int id = top_ids[(size_t)i * k + e];
        top.w[e] = top_weights[(size_t)i * k + e];
        top.id[e] = id < 0 ? NOBODY : id;
    }
    __syncwarp();
    const VALUE* x = queries + (size_t)rows[i] * d;
    // The parts' candidates one after the other: lane p knows where part p begins and ends.
    int end = lane < parts ? min(count[(size_t)i * parts + lane], capacity) : 0;
    for (int step = 1; step < WARP; step *= 2) {
        int before = __shfl_up_sync(ALL, end, step);
        if (lane >= step) end += before;
    }
    int m = __shfl_sync(ALL, end, WARP - 1);
    for (int c = 0; c < m; c += WARP) {
        int part = 0, begin = 0;
        for (int p = 0; p < parts - 1; p++) {
            int border = __shfl_sync(ALL, end, p);
            if (c + lane >= border) part = p + 1, begin = border;
        }
        int id = c + lane < m ? candidates[((size_t)i * parts + part) * capacity + c + lane - begin] : -1;
        if (order && id >= 0) id = order[id];
        if (id >= 0 && column_group[id] == row_group[i]) id = -1;
        double weight = canonical(x, values, d, id, tile);
        top.offer(weight, id, id >= 0 && weight <= upper[i]);
    }
    top.merge();
    for (int e = lane; e < k; e += WARP) {
        top_ids[(size_t)i * k + e] = top.id[e] == NOBODY ? -1 : top.id[e];
        top_weights[(size_t)i * k + e] = top.w[e];
    }
}

// The lists of all columns of another group, a row's columns dealt out to `parts` warps with a list each.
extern "C" __global__ void rerank_all(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ row_group, const int* __restrict__ column_group, int n_columns, int parts,
    const double* __restrict__ upper, int k, int size, int* __restrict__ part_ids) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP;
    long long job = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (job >= (long long)n_rows * parts) return;
    int i = job / parts, part = job % parts;
    VALUE* tile;
    TopK top = warp_space(shared, k, size, tile);
    for (int e = lane; e < k; e += WARP) top.w[e] = 1.0 / 0.0, top.id[e] = NOBODY;
    __syncwarp();
    const VALUE* x = queries + (size_t)rows[i] * d;
    for (long long c = (long long)part * WARP; c < n_columns; c += (long long)parts * WARP) {
        int id = c + lane < n_columns && column_group[c + lane] != row_group[i] ? (int)c + lane : -1;
        double weight = canonical(x, values, d, id, tile);
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
