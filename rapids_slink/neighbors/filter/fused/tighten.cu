// The radii of the fused filter's test, and bounds tightened by what has passed.
//
// KEYS_PER_LANE times the lanes of a warp is at least the capacity for a row's survivors.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/radius.cuh"
#include "neighbors/filter/upper_bound.cuh"
#include "runtime/include/threads.cuh"

#ifndef KEYS_PER_LANE
#define KEYS_PER_LANE 4
#endif
#ifndef INT8
#define INT8 0
#endif
#ifndef VALUE
#define VALUE float
#endif
// A survivor's half squared distance, and what orders these.
#if INT8
typedef int sum_t;
constexpr int TOLERANCE = 1;
__device__ __forceinline__ int key_of(int half) { return half; }
__device__ __forceinline__ float half_of(int key) { return key; }
#else
typedef float sum_t;
constexpr int TOLERANCE = KEY_TOLERANCE;
__device__ __forceinline__ int key_of(float half) { return __float_as_int(fmaxf(half, 0)); }
__device__ __forceinline__ float half_of(int key) { return __int_as_float(key); }
#endif

constexpr int TILE = 128;  // rows, as in pass.cuh
constexpr int UNROLLED = KEYS_PER_LANE <= 32 ? KEYS_PER_LANE : 1;  // long loops would take many seconds to compile

// Position i of `order` gets points of `sorted`: whole tiles of them in a low-discrepancy order, tile i times `stride` modulo
// their number; what is no whole tile stays at the end.
extern "C" __global__ void stride_tiles(
    long long n, long long stride, const long long* __restrict__ sorted, int* __restrict__ order) {
    long long i = thread_index(), tiles = n / TILE, tile = i / TILE;
    if (i < n) order[i] = sorted[tile < tiles ? tile * stride % tiles * TILE + i % TILE : i];
}

// The largest value of this block's tile of rows, a thread each.
__device__ __forceinline__ void put_largest(float value, float* of_tile) {
    __shared__ float of_warp[TILE / WARP];
    value = warp_max<float>(value);
    __syncthreads();  // a previous call may still read
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    if (threadIdx.x == 0) of_tile[blockIdx.x] = max(max(of_warp[0], of_warp[1]), max(of_warp[2], of_warp[3]));
}

// The largest error of each tile of m rows; rows after them have none.
extern "C" __global__ void largest_of_tiles(long long m, const float* __restrict__ error, float* __restrict__ tile_error) {
    long long r = thread_index();
    put_largest(r < m ? error[r] : 0, tile_error);
}

// What a surrogate distance is at most by the points' distance times `scale`, a power of two: `Metric.surrogate_bound_terms`.
struct SurrogateBound {
    double scale, more, factor, error;
    __device__ double of(float distance) const {
        double longer = (double)distance / scale + more;
        return longer * longer * factor + error;
    }
};

// The radii of m rows with these bounds and errors, if there are any; 0 for the rows after them. A block a tile.
extern "C" __global__ void radius_of_rows(
    long long m, const double* __restrict__ bound, const float* __restrict__ error, const FilterRadius radius,
    float* __restrict__ of_row, float* __restrict__ of_tile) {
    long long r = thread_index();
    of_row[r] = r < m ? radius.of(bound[r], error ? error[r] : 0) : 0;
    put_largest(of_row[r], of_tile);
}
// The distance of two points times `scale`, rounded up, by a warp in float32. A difference is off by 2^-24 of itself, a square by
// as much more, a lane's sum and the warp's by d / 32 + 5 roundings; underflow loses less than 2^-126 of each square.
__device__ __forceinline__ float distance_bound(const VALUE* x, const VALUE* y, int d, double scale, int lane) {
    float sum = 0;
    for (int f = lane; f < d; f += WARP) {
        float difference = (float)times(minus(widen(x[f]), widen(y[f])), scale);
        sum += difference * difference;
    }
    return sqrtf(warp_sum(sum) + d * 0x1p-125f) * (1 + (d / WARP + 12) * 0x1p-24f);
}

// Tightens each row's bound to what the farthest of its k nearest survivors, by their halves, is at most, and keeps those
// survivors that may be within the bound. Half a squared distance exceeds the half by at most `moved`: if that and the errors
// are small, halves bound the farthest, and otherwise its distance is computed. A row with more than `capacity` survivors,
// some of which are lost, keeps all. A warp a row.
extern "C" __global__ void tighten(
    int m, int k, int capacity, const VALUE* __restrict__ points, int d, const int* __restrict__ order,
    const float* __restrict__ error, const float* __restrict__ tile_error, const FilterRadius radius, const SurrogateBound known,
    float moved, double* __restrict__ bound, int* __restrict__ ids, sum_t* __restrict__ half_sq_dist, int* __restrict__ count) {
    int lane = threadIdx.x % WARP, i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (i >= m || count[i] < k) return;
    bool overflowed = count[i] > capacity;
    int n = overflowed ? capacity : count[i], id[KEYS_PER_LANE], key[KEYS_PER_LANE];
    sum_t half[KEYS_PER_LANE];
    ids += (size_t)i * capacity, half_sq_dist += (size_t)i * capacity;
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) {
        bool real = e * WARP + lane < n;
        id[e] = real ? ids[e * WARP + lane] : 0, half[e] = real ? half_sq_dist[e * WARP + lane] : 0;
        key[e] = real ? key_of(half[e]) : EMPTY_KEY;
    }
    int cut = kth_least(key, n, k, TOLERANCE), measured = 0;
    const VALUE* x = points + (size_t)order[i] * d;
    float half_cut = half_of(cut), root = sqrtf(fmaxf(half_cut, 0) + moved) * (1 + 0x1p-20f), farthest = 0, worst = 0;
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++)
        if (key[e] <= cut) worst = fmaxf(worst, tile_error[id[e] / TILE]);
    root += error[i] + warp_max(worst);
    // Points are read only if the bound is likely to come down by more than a hundredth.
    double own = bound[i], scaled = radius.scaled_distance(own);
    bool by_halves = root * root <= 1.005f * half_cut, measures = !by_halves && half_cut < 0.495 * scaled * scaled;
    if (by_halves) farthest = root * (1.4142136 * known.scale / radius.scale);
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE && measures; e++) {
        if (e * WARP >= n) break;
        for (unsigned near = __ballot_sync(ALL_LANES, key[e] <= cut); near && measured < k; near &= near - 1, measured++) {
            int other = __shfl_sync(ALL_LANES, id[e], __ffs(near) - 1);
            farthest = fmaxf(farthest, distance_bound(x, points + (size_t)order[other] * d, d, known.scale, lane));
        }
    }
    double within = by_halves || measures ? fmin(own, known.of(farthest)) : own;
    float threshold = radius.of(within, error[i]);
    __syncwarp();
    if (lane == 0) bound[i] = within;
    if (overflowed) return;
    int kept = 0;
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) {
        if (e * WARP >= n) break;
        float q = threshold + tile_error[id[e] / TILE];
        bool passes = e * WARP + lane < n && half[e] <= q * q;
        unsigned votes = __ballot_sync(ALL_LANES, passes);
        int slot = kept + __popc(votes & ((1u << lane) - 1));
        if (passes) ids[slot] = id[e], half_sq_dist[slot] = half[e];
        kept += __popc(votes);
    }
    if (lane == 0) count[i] = kept;
}
