// The product filter's kernels for tiles y_i . y_j in memory, as the library's matrix product writes them.
// bounds.py derives the test: a pair passes iff
//     product >= half_norm_i + half_norm_j - (radius_i + error_j)^2.
// It may be compiled with fused multiply-add: the test's slack covers any rounding of its right-hand side.
#include "neighbors/filter/upper_bound.cuh"

#ifndef REAL
#define REAL float
#endif
#ifndef KEYS_PER_LANE
#define KEYS_PER_LANE 1
#endif

constexpr int THREADS = 256;
constexpr int POINTS_PER_THREAD = 4;
constexpr int ROWS_PER_BLOCK = 32;

// Appends ids[j] to row i's candidates for every pair that passes and whose groups differ; `count` goes on past
// `capacity`, which shows that a row lost candidates. A block keeps its points in registers and loops over its rows.
extern "C" __global__ void append_candidates(
    const REAL* __restrict__ product, int rows, int points,
    const REAL* __restrict__ half_norm, const REAL* __restrict__ radius,
    const REAL* __restrict__ point_half_norm, const REAL* __restrict__ point_error,
    const int* __restrict__ row_group, const int* __restrict__ point_group, const int* __restrict__ ids,
    int capacity, int* __restrict__ out, int* __restrict__ count) {
    const REAL infinite = 1.0 / 0.0;
    int point[POINTS_PER_THREAD];
    REAL norm[POINTS_PER_THREAD], error[POINTS_PER_THREAD];
    for (int w = 0; w < POINTS_PER_THREAD; w++) {
        int j = (blockIdx.x * POINTS_PER_THREAD + w) * THREADS + threadIdx.x;
        bool inside = j < points;
        point[w] = inside ? j : points - 1;
        norm[w] = inside ? point_half_norm[j] : infinite;
        error[w] = inside ? point_error[j] : 0;
    }
    int first = blockIdx.y * ROWS_PER_BLOCK, last = min(first + ROWS_PER_BLOCK, rows);
#pragma unroll 2
    for (int i = first; i < last; i++) {
        REAL own_norm = half_norm[i], own_radius = radius[i];
        const REAL* row = product + (size_t)i * points;
        REAL value[POINTS_PER_THREAD];
        for (int w = 0; w < POINTS_PER_THREAD; w++) value[w] = row[point[w]];
        for (int w = 0; w < POINTS_PER_THREAD; w++) {
            REAL q = own_radius + error[w];
            if (value[w] >= own_norm + norm[w] - q * q) {
                int id = ids[point[w]];
                if (point_group[id] != row_group[i]) {
                    int slot = atomicAdd(count + i, 1);
                    if (slot < capacity) out[(size_t)i * capacity + slot] = id;
                }
            }
        }
    }
}

// Tightens bound[i], for each row (a block), to what the k-th nearest point of another group is at most, taken from the nearest
// of each of KEYS_PER_LANE times 32 buckets, at least k, of every so manieth point. If points have core distances, those of row
// rows[i] and of the points count too.
extern "C" __global__ void seed_bounds(
    const float* __restrict__ product, int points, const float* __restrict__ half_norm, const float* __restrict__ error,
    const float* __restrict__ point_half_norm, const float* __restrict__ point_error,
    const int* __restrict__ row_group, const int* __restrict__ point_group, const int* __restrict__ ids, int k,
    const UpperBound upper_bound, const int* __restrict__ rows, const double* __restrict__ core, double* __restrict__ bound) {
    constexpr int BUCKETS = KEYS_PER_LANE * WARP, UNROLLED = KEYS_PER_LANE <= 32 ? KEYS_PER_LANE : 1;
    __shared__ int keys[BUCKETS], nearest[BUCKETS];
    int i = blockIdx.x, group = row_group[i];
    const float* row = product + (size_t)i * points;
    const float infinite = 1.0 / 0.0;
    for (int bucket = threadIdx.x; bucket < BUCKETS; bucket += blockDim.x) {
        int best = -1;
        float least = infinite;
#pragma unroll 8
        for (int j = bucket; j < points; j += BUCKETS) {
            float half = point_half_norm[j] - row[j];
            if (half < least) least = half, best = j;
        }
        if (best >= 0 && point_group[ids[best]] == group) {  // rare: search again, testing each point's group
            least = infinite, best = -1;
            for (int j = bucket; j < points; j += BUCKETS) {
                float half = point_half_norm[j] - row[j];
                if (half < least && point_group[ids[j]] != group) least = half, best = j;
            }
        }
        float key = best < 0 ? infinite
                             : upper_bound.key(half_norm[i] + least, half_norm[i], point_half_norm[best], point_error[best]);
        keys[bucket] = __float_as_int(key), nearest[bucket] = best;
    }
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    int own_keys[KEYS_PER_LANE];
#pragma unroll UNROLLED
    for (int e = 0; e < KEYS_PER_LANE; e++) own_keys[e] = keys[e * WARP + threadIdx.x];
    int kth = kth_least(own_keys, BUCKETS, k, KEY_TOLERANCE);
    double surrogate = upper_bound.surrogate(__int_as_float(kth), error[i]);
    if (core) {
        surrogate = fmax(surrogate, core[rows[i]]);
        for (int b = threadIdx.x; b < BUCKETS; b += WARP)
            if (nearest[b] >= 0 && keys[b] <= kth) surrogate = fmax(surrogate, core[ids[nearest[b]]]);
        surrogate = warp_max(surrogate);
    }
    if (threadIdx.x == 0) bound[i] = fmin(bound[i], surrogate);
}
