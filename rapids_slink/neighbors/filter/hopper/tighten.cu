// The thresholds of fused.cu's test, and bounds tightened by what has passed.
//
// KEYS_PER_LANE times the lanes of a warp is at least the capacity for a row's survivors.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/radius.cuh"
#include "neighbors/filter/upper_bound.cuh"
#include "runtime/include/threads.cuh"

#ifndef KEYS_PER_LANE
#define KEYS_PER_LANE 4
#endif

constexpr int TILE = 128;  // rows, as in fused.cu
constexpr int UNROLLED = KEYS_PER_LANE <= 32 ? KEYS_PER_LANE : 1;  // long loops would take many seconds to compile

// Position i of `order` gets points of `sorted`: whole tiles of them in a low-discrepancy order, tile i times `stride` modulo
// their number; what is no whole tile stays at the end.
extern "C" __global__ void stride_tiles(
    long long n, long long stride, const long long* __restrict__ sorted, int* __restrict__ order) {
    long long i = thread_index(), tiles = n / TILE, tile = i / TILE;
    if (i < n) order[i] = sorted[tile < tiles ? tile * stride % tiles * TILE + i % TILE : i];
}

// The largest value of this block's tile of rows, a thread each.
template <class REAL> __device__ __forceinline__ void put_largest(REAL value, REAL* of_tile) {
    __shared__ REAL of_warp[TILE / WARP];
    value = warp_max<REAL>(value);
    __syncthreads();  // a previous call may still read
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    if (threadIdx.x == 0) of_tile[blockIdx.x] = max(max(of_warp[0], of_warp[1]), max(of_warp[2], of_warp[3]));
}

// The largest half norm and error of each tile of m rows; rows after them have none.
extern "C" __global__ void largest_of_tiles(
    long long m, const float* __restrict__ half_norm, const float* __restrict__ error, float* __restrict__ tile_norm,
    float* __restrict__ tile_error) {
    long long r = thread_index();
    put_largest(r < m ? half_norm[r] : 0, tile_norm);
    put_largest(r < m ? error[r] : 0, tile_error);
}

// The threshold for bytes: half of a bound, rounded down, or `unbounded`.
__device__ __forceinline__ int half_of(double bound, int unbounded) { return (int)fmin(bound / 2, (double)unbounded); }

// The radii of m rows with these bounds and errors, if there are any; 0 for the rows after them. A block a tile.
extern "C" __global__ void radius_of_rows(
    long long m, const double* __restrict__ bound, const float* __restrict__ error, const FilterRadius radius,
    float* __restrict__ of_row, float* __restrict__ of_tile) {
    long long r = thread_index();
    of_row[r] = r < m ? radius.of(bound[r], error ? error[r] : 0) : 0;
    put_largest(of_row[r], of_tile);
}
extern "C" __global__ void radius_of_bytes(
    long long m, const double* __restrict__ bound, int unbounded, int* __restrict__ of_row, int* __restrict__ of_tile) {
    long long r = thread_index();
    of_row[r] = r < m ? half_of(bound[r], unbounded) : 0;
    put_largest(of_row[r], of_tile);
}

// Row i's survivors by half their squared distances: a key in their order, an upper bound of the surrogate distance by the key,
// and whether one may be within a bound. Survivors' norms and errors are bounded by those of their tiles.
struct Halves {
    static constexpr int TOLERANCE = KEY_TOLERANCE;
    const float *half_norm, *error, *tile_norm, *tile_error;
    FilterRadius radius;
    UpperBound upper_bound;
    __device__ int key(int i, int id, float half) const {
        return __float_as_int(upper_bound.key(half, half_norm[i], tile_norm[id / TILE], tile_error[id / TILE]));
    }
    __device__ double surrogate(int i, int key) const { return upper_bound.surrogate(__int_as_float(key), error[i]); }
    __device__ float threshold(int i, double bound) const { return radius.of(bound, error[i]); }
    __device__ bool passes(float threshold, int id, float half) const {
        float q = threshold + tile_error[id / TILE];
        return half <= q * q;
    }
};

// Of bytes, whose halves are rounded down, by at most 1; see fused.cu.
struct HalvesOfBytes {
    static constexpr int TOLERANCE = 1;
    int unbounded;
    __device__ int key(int, int, int half) const { return half; }
    __device__ double surrogate(int, int key) const { return 2.0 * key + 2; }
    __device__ int threshold(int, double bound) const { return half_of(bound, unbounded); }
    __device__ bool passes(int threshold, int, int half) const { return half <= threshold; }
};

// Tightens each row's bound to what its k-th survivor is at most, and keeps those survivors that may be within the bound. A row
// with more than `capacity` of them, some of which are lost, keeps all. A warp a row.
template <class Known, class REAL>
__device__ __forceinline__ void tighten_bounds(
    const Known& known, int m, int k, int capacity, double* bound, int* ids, REAL* half_sq_dist, int* count) {
    int lane = threadIdx.x % WARP, i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (i >= m || count[i] < k) return;
    bool overflowed = count[i] > capacity;
    int n = overflowed ? capacity : count[i], id[KEYS_PER_LANE], key[KEYS_PER_LANE];
    REAL half[KEYS_PER_LANE];
    ids += (size_t)i * capacity, half_sq_dist += (size_t)i * capacity;
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) {
        bool real = e * WARP + lane < n;
        id[e] = real ? ids[e * WARP + lane] : 0, half[e] = real ? half_sq_dist[e * WARP + lane] : 0;
    }
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) {
        key[e] = EMPTY_KEY;
        if (e * WARP >= n) continue;
        int found = known.key(i, id[e], half[e]);
        if (e * WARP + lane < n) key[e] = found;
    }
    double within = fmin(bound[i], known.surrogate(i, kth_least(key, n, k, Known::TOLERANCE)));
    REAL threshold = known.threshold(i, within);
    __syncwarp();
    if (lane == 0) bound[i] = within;
    if (overflowed) return;
    int kept = 0;
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) {
        if (e * WARP >= n) break;
        bool passes = e * WARP + lane < n && known.passes(threshold, id[e], half[e]);
        unsigned votes = __ballot_sync(ALL_LANES, passes);
        int slot = kept + __popc(votes & ((1u << lane) - 1));
        if (passes) ids[slot] = id[e], half_sq_dist[slot] = half[e];
        kept += __popc(votes);
    }
    if (lane == 0) count[i] = kept;
}
extern "C" __global__ void tighten(
    int m, int k, int capacity, const float* __restrict__ half_norm, const float* __restrict__ error,
    const float* __restrict__ tile_norm, const float* __restrict__ tile_error, const FilterRadius radius,
    const UpperBound upper_bound, double* __restrict__ bound, int* __restrict__ ids, float* __restrict__ half_sq_dist,
    int* __restrict__ count) {
    const Halves known{half_norm, error, tile_norm, tile_error, radius, upper_bound};
    tighten_bounds(known, m, k, capacity, bound, ids, half_sq_dist, count);
}
extern "C" __global__ void tighten_bytes(
    int m, int k, int capacity, int unbounded, double* __restrict__ bound, int* __restrict__ ids,
    int* __restrict__ half_sq_dist, int* __restrict__ count) {
    tighten_bounds(HalvesOfBytes{unbounded}, m, k, capacity, bound, ids, half_sq_dist, count);
}
