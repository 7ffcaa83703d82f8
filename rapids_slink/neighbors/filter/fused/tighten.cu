// These kernels compute the radii of the fused filter's test, and tighten bounds by what has passed.
//
// KEYS_PER_LANE times the lanes of a warp is at least the capacity for a row's survivors.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fused/image.cuh"
#include "neighbors/filter/measured.cuh"
#include "neighbors/filter/radius.cuh"
#include "neighbors/filter/upper_bound.cuh"
#include "ordering.cuh"
#include "runtime/include/threads.cuh"

#ifndef KEYS_PER_LANE
#define KEYS_PER_LANE 4
#define INT8 0
#endif
#ifndef VALUE
#define VALUE float
#endif
// These read a survivor's half squared distance, and the key that orders survivors by it. With int8, the half of a survivor that was
// measured is kept as -2 - half, rounded up: halves of products are -1 at least.
#if INT8
typedef int sum_t;
__device__ __forceinline__ bool is_measured(int half) { return half < -1; }
__device__ __forceinline__ int key_of(int half) { return is_measured(half) ? -2 - half : half; }
__device__ __forceinline__ float half_of(int key) { return key; }
#else
typedef float sum_t;
__device__ __forceinline__ bool is_measured(float) { return false; }
__device__ __forceinline__ int key_of(float half) { return __float_as_int(fmaxf(half, 0)); }
__device__ __forceinline__ float half_of(int key) { return __int_as_float(key); }
#endif

constexpr double INFINITE = 1.0 / 0.0;
constexpr int WARPS = 2;  // warps of a block
constexpr float SIMILAR = 4;  // keys are squared distances
// Keys that are closer count as equal: by a row's scaled bound, squared, and by spacings of float32.
constexpr double INT8_TOLERANCE = 0x1p-12;
constexpr int FLOAT_TOLERANCE = 1 << 12;
constexpr float LIKELY = INT8 ? 0.499 : 0.495;  // a bound comes down if the half, twice, is below this share of its square
constexpr int UNROLLED = KEYS_PER_LANE <= 32 ? KEYS_PER_LANE : 1;  // long loops would take many seconds to compile

// Writes keys by which a sort orders numbers: their bits in float32 above their positions.
extern "C" __global__ void pack_keys(long long n, const double* __restrict__ values, unsigned long long* __restrict__ key) {
    long long i = thread_index();
    if (i < n) key[i] = (unsigned long long)ascending(values[i]) << 32 | i;
}

// Position i of `order` gets points of `sorted`, of pack_keys, by whole tiles: `dealt` tiles that follow each other share out their
// points one by one, if no number exceeds SIMILAR times another, and tile i times `stride` modulo their number comes i-th. What is no
// whole tile stays at the end.
extern "C" __global__ void stride_tiles(
    long long n, long long stride, long long dealt, const unsigned long long* __restrict__ sorted, int* __restrict__ order) {
    auto key = [&](long long at) { return from_ascending(sorted[at] >> 32); };
    long long i = thread_index(), tiles = n / TILE, tile = i / TILE;
    if (i >= n) return;
    if (tile >= tiles) {
        order[i] = sorted[i];
        return;
    }
    tile = tile * stride % tiles;
    long long first = tile / dealt * dealt, among = dealt < tiles - first ? dealt : tiles - first;
    bool are_similar = key((first + among) * TILE - 1) <= SIMILAR * key(first * TILE);
    order[i] = sorted[are_similar ? first * TILE + i % TILE * among + tile - first : tile * TILE + i % TILE];
}

// Counts the rows, of m, that have more than `capacity` survivors.
extern "C" __global__ void count_overflowed(long long m, const int* __restrict__ count, int capacity, int* overflowed) {
    long long i = thread_index();
    int of_warp = warp_sum(int(i < m && count[i] > capacity));
    if (threadIdx.x % WARP == 0 && of_warp) atomicAdd(overflowed, of_warp);
}

// Work items of the fused filter: a range of tiles in `splits` parts for each block of rows. Unless n is 0, the range counts from a
// block's own tile, modulo the n tiles from `begin` on, and may go on after the last of these.
extern "C" __global__ void list_items(
    long long items, int splits, int first, int last, int begin, int n, int4* __restrict__ item) {
    long long i = thread_index();
    if (i >= items) return;
    int part = (last - first + splits - 1) / splits, at = first + i % splits * part, row_tile = i / splits * 2;
    int size = min(part, last - at);
    if (n) at = begin + (row_tile + at) % n;
    item[i] = make_int4(row_tile, at, at + size, n);
}

// Writes the largest error of each tile. A block takes a tile.
extern "C" __global__ void largest_of_tiles(const float* __restrict__ error, float* __restrict__ tile_error) {
    put_largest(error[thread_index()], tile_error + blockIdx.x);
}

// Writes the radii of m rows with these bounds and, if there are any, errors; 0 for the rows after them. A block takes a tile.
extern "C" __global__ void radius_of_rows(
    long long m, const double* __restrict__ bound, const float* __restrict__ error, const FilterRadius radius,
    float* __restrict__ of_row, float* __restrict__ of_tile) {
    long long r = thread_index();
    of_row[r] = r < m ? radius.of(bound[r], error ? error[r] : 0) : 0;
    put_largest(of_row[r], of_tile + blockIdx.x);
}

// This is a row, whose survivors a warp measures by their slots.
struct MeasuredRow {
    const VALUE *points, *x;
    const int *order, *ids;
    sum_t* half_sq_dist;
    int d, lane, alignment;
    const SquareBound& square_bound;
    double scale, inverse;  // what a square is multiplied by to be a half in the image, and a half to be a square
    int* slots;    // in shared memory, with room for 2 * WARP
    int waiting;
    double farthest;  // its square

    // These return the half that stands for a square, rounded up, and what a square with that half is at most.
    __device__ __forceinline__ int half(double square) const { return fmin(square * scale * (1 + 0x1p-20) + 1, 0x1p30); }
    __device__ __forceinline__ double square(int half) const { return half < 1 << 30 ? half * inverse * (1 + 0x1p-20) : INFINITE; }
    __device__ __forceinline__ void measure(int n) {
        for (int s = lane; s - lane < n; s += WARP) {
            int slot = s < n ? slots[waiting - n + s] : -1;
            double square = square_at_most(x, points, d, square_bound, slot < 0 ? -1 : order[ids[slot]], alignment);
            if (slot < 0) continue;
            farthest = fmax(farthest, square);
#if INT8
            if (square < INFINITE) half_sq_dist[slot] = -2 - half(square);  // else a difference has overflowed
#endif
        }
        waiting -= n;
        __syncwarp();
    }
    // Measures the survivors of the lanes that want it, together with others if they are few and not the last.
    __device__ __forceinline__ void add(bool wanted, int slot, bool last) {
        unsigned votes = __ballot_sync(ALL_LANES, wanted);
        if (wanted) slots[waiting + __popc(votes & ((1u << lane) - 1))] = slot;
        waiting += __popc(votes);
        __syncwarp();
        if (waiting >= WARP || last) measure(last ? waiting : WARP);
    }
};

// Tightens each row's bound to an upper bound of the distance of the farthest of its k nearest survivors, by their halves, and
// keeps the survivors that may be within it. Half a squared distance exceeds the half by at most `moved`: if that and the errors
// are small, halves bound the farthest. Otherwise its distance is measured, once. `last`: all that is kept is measured as well. A
// row with more than `capacity` survivors, some of which are lost, keeps all. A warp a row.
extern "C" __global__ void __launch_bounds__(WARPS * WARP, 16) tighten(
    int m, int k, int capacity, const VALUE* __restrict__ points, int d, const int* __restrict__ order,
    const float* __restrict__ error, const float* __restrict__ tile_error, const float* __restrict__ largest_error,
    const FilterRadius radius, const SquareBound square_bound, int alignment, float moved, bool last, double* __restrict__ bound,
    int* __restrict__ ids, sum_t* __restrict__ half_sq_dist, int* __restrict__ count) {
    int lane = threadIdx.x % WARP, i = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (i >= m || count[i] < k) return;
    bool overflowed = count[i] > capacity;
    int n = overflowed ? capacity : count[i], key[KEYS_PER_LANE];
    ids += (size_t)i * capacity, half_sq_dist += (size_t)i * capacity;
    float own_error = error[i];
    double own = bound[i], scaled = radius.scaled_distance(own);
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) key[e] = e * WARP + lane < n ? key_of(half_sq_dist[e * WARP + lane]) : EMPTY_KEY;
    int cut = kth_least(key, n, k, INT8 ? (scaled < 0x1p20 ? max(1, (int)(scaled * scaled * INT8_TOLERANCE)) : 1) : FLOAT_TOLERANCE);
    float half_cut = half_of(cut), root = sqrtf(fmaxf(half_cut, 0) + moved) * (1 + 0x1p-20f) + own_error + *largest_error;
    // Points are read only if the bound is likely to come down.
    bool by_halves = root * root <= 1.005f * half_cut, measures = !by_halves && half_cut < LIKELY * scaled * scaled;
    __shared__ int slots[WARPS][2 * WARP];
    double ratio = radius.scale * square_bound.inverse, converse = square_bound.unit / radius.scale;
    MeasuredRow row{points, points + (size_t)order[i] * d, order, ids, half_sq_dist, d, lane, alignment, square_bound,
                    ratio * ratio / 2, 2 * converse * converse, slots[threadIdx.x / WARP], 0, 0};
    if (by_halves) row.farthest = (double)root * root * row.inverse * (1 + 0x1p-40);
    for (int s = lane; measures && s - lane < n; s += WARP) {
        sum_t half = s < n ? half_sq_dist[s] : 0;
        bool is_near = s < n && key_of(half) <= cut;
        if (is_near && is_measured(half)) row.farthest = fmax(row.farthest, row.square(key_of(half)));
        row.add(is_near && !is_measured(half), s, s - lane + WARP >= n);
    }
    double within = by_halves || measures ? fmin(own, square_bound.of(warp_max(row.farthest))) : own;
    float threshold = radius.of(within, own_error), exact = radius.of(within, 0);
    // It allows for how far measuring rounds up.
    float measured_threshold = exact * exact * (1 + (d / MEASURING + 24) * 0x1p-21f) + 2 + row.scale * d * 0x1p-124;
    if (lane == 0) bound[i] = within;
    if (overflowed) return;
    for (int s = lane; INT8 && last && s - lane < n; s += WARP) {
        sum_t half = s < n ? half_sq_dist[s] : 0;
        float q = threshold + (s < n ? tile_error[ids[s] / TILE] : 0);
        row.add(s < n && !is_measured(half) && half <= q * q, s, s - lane + WARP >= n);
    }
    int kept = 0;
    for (int s = lane; s - lane < n; s += WARP) {
        int id = s < n ? ids[s] : 0;
        sum_t half = s < n ? half_sq_dist[s] : 0;
        float q = threshold + tile_error[id / TILE];
        bool passes = s < n && (is_measured(half) ? key_of(half) <= measured_threshold : half <= q * q);
        unsigned votes = __ballot_sync(ALL_LANES, passes);
        int slot = kept + __popc(votes & ((1u << lane) - 1));
        if (passes) ids[slot] = id, half_sq_dist[slot] = half;
        kept += __popc(votes);
        __syncwarp();
    }
    if (lane == 0) count[i] = kept;
}
