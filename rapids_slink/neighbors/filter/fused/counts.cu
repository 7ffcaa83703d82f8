// These kernels write rows of zeros and ones as bits, and which counts of common bits leave two rows within a bound.
//
// Let c be the count, and v and w the two rows' numbers of ones. The distance is at most t only if
//
//     bit_hamming       v + w - 2c <= t
//     bit_jaccard       c(2 - t) >= (1 - t)(v + w), from (v + w - 2c) / (v + w - c) <= t
//     bit_braycurtis    2c >= (1 - t)(v + w)
//     bit_containment   c >= (1 - t) min(v, w)
//
// which is a line in v: c >= slope·v + intercept. Of the last it is the chord of the bound from the least to the most ones that
// a point has, since the bound bends down. With at most 2^24 bits float64 errs by less than SLACK in it, the roundings of
// the distance included. Slope and intercept are rounded down to float32, and v >= 0. A `Line` has them negated, as errors are
// numbers of ones, negated: of all a tile takes the largest.
#ifndef FORMULA
#define FORMULA bit_jaccard
#endif
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fused/image.cuh"
#include "neighbors/filter/fused/line.cuh"
#include "neighbors/filter/upper_bound.cuh"
#include "runtime/include/threads.cuh"

#ifndef KEYS_PER_LANE
#define KEYS_PER_LANE 4
#endif
constexpr double SLACK = 1e-6, INFINITE = 1.0 / 0.0;
constexpr int UNROLLED = KEYS_PER_LANE <= 32 ? KEYS_PER_LANE : 1;

struct __align__(16) Chunk {
    unsigned long long bits[2];
};

// Writes the image of m rows of d columns, filled up by padding, and their errors. A warp takes a row, whose last column is its number
// of ones.
extern "C" __global__ void put_bits(
    const word* __restrict__ values, int d, const int* __restrict__ rows, long long m, int atoms, Chunk* __restrict__ image,
    int* __restrict__ half_norm, float* __restrict__ error) {
    int lane = threadIdx.x, count = 0;
    long long r = blockIdx.x;
    const word* x = values + (size_t)(r < m ? rows[r] : 0) * d;
    auto word_at = [&](int i) { return r < m && i < d - 1 ? x[i] : 0; };
    for (int c = lane; c < atoms * ATOM; c += WARP) {
        Chunk chunk{{word_at(2 * c), word_at(2 * c + 1)}};
        image[place_in_image(r, c, atoms)] = chunk;
        count += __popcll(chunk.bits[0]) + __popcll(chunk.bits[1]);
    }
    count = warp_sum(count);
    if (lane == 0) half_norm[r] = r < m ? 0 : -PADDING_NORM, error[r] = r < m ? -count : -INFINITE;
}

struct Bound {
    double slope, intercept;
};
__device__ Bound least_count(bit_hamming, double t, double w, double, double) { return {0.5, (w - t) / 2}; }
__device__ Bound least_count(bit_jaccard, double t, double w, double, double) {
    double slope = t < 1 ? (1 - t) / (2 - t) : 0;
    return {slope, slope * w};
}
__device__ Bound least_count(bit_braycurtis, double t, double w, double, double) {
    double slope = t < 1 ? (1 - t) / 2 : 0;
    return {slope, slope * w};
}
__device__ Bound least_count(bit_containment, double t, double w, double least, double most) {
    double share = t < 1 ? 1 - t : 0, low = fmin(least, w), high = fmin(most, w);
    double slope = most > least ? (high - low) / (most - least) : 0;
    return {share * slope, share * (low - slope * least)};
}

// Writes the lines of m rows with these bounds, and a line above those of each tile; it is 0 for the rows after them. Points have from
// `least` to `most` ones. A block takes a tile.
extern "C" __global__ void lines_of_rows(
    long long m, const double* __restrict__ bound, const float* __restrict__ error, double least, double most,
    Line* __restrict__ of_row, Line* __restrict__ of_tile) {
    long long r = thread_index();
    Bound count = r < m ? least_count(FORMULA{}, bound[r], fabsf(error[r]), least, most) : Bound{0, 0};
    Line line{-__double2float_rd(count.slope), -__double2float_rd(count.intercept - SLACK)};
    of_row[r] = line;
    put_largest(line.slope, &of_tile[blockIdx.x].slope);
    put_largest(line.intercept, &of_tile[blockIdx.x].intercept);
}

__device__ double distance_of(int common, double w, double v) {
    FORMULA sum;
    sum.common = common;
    return sum.of(w, v);
}

// Tightens each row's bound to its k-th survivor's distance, and keeps those within it. A row with more than `capacity`
// survivors, some of which are lost, keeps all. A warp a row.
extern "C" __global__ void tighten(
    int m, int k, int capacity, const float* __restrict__ error, double* __restrict__ bound, int* __restrict__ ids,
    int* __restrict__ negative_counts, int* __restrict__ count) {
    int lane = threadIdx.x % WARP, i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (i >= m || count[i] < k) return;
    bool overflowed = count[i] > capacity;
    int n = overflowed ? capacity : count[i], id[KEYS_PER_LANE], common[KEYS_PER_LANE], key[KEYS_PER_LANE];
    ids += (size_t)i * capacity, negative_counts += (size_t)i * capacity;
    double own = fabsf(error[i]);  // zero must not be negative, as its key would be
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) {
        bool real = e * WARP + lane < n;
        id[e] = real ? ids[e * WARP + lane] : 0, common[e] = real ? -negative_counts[e * WARP + lane] : 0;
        key[e] = real ? __float_as_int(__double2float_ru(distance_of(common[e], own, fabsf(error[id[e]])))) : EMPTY_KEY;
    }
    int cut = kth_least(key, n, k, 1), kept = 0;
    double within = fmin(bound[i], (double)__int_as_float(cut));
    __syncwarp();
    if (lane == 0) bound[i] = within;
    if (overflowed) return;
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) {
        if (e * WARP >= n) break;
        bool passes = key[e] <= cut;
        unsigned votes = __ballot_sync(ALL_LANES, passes);
        int slot = kept + __popc(votes & ((1u << lane) - 1));
        if (passes) ids[slot] = id[e], negative_counts[slot] = -common[e];
        kept += __popc(votes);
    }
    if (lane == 0) count[i] = kept;
}
