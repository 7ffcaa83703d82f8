// First bounds from products y_i . y_j in memory, as the library's matrix product writes them.
#include "neighbors/filter/upper_bound.cuh"

#ifndef KEYS_PER_LANE
#define KEYS_PER_LANE 1
#endif

// Tightens bound[i], for each row (a block), to an upper bound of the distance of its k-th nearest point with another exclusion id.
// The points are one in `step`, in KEYS_PER_LANE times 32 buckets, at least k, of which the nearest count. If points have core
// distances, those of row rows[i] and of the points count too.
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
        if (best >= 0 && point_group[ids[best]] == group) {  // this is rare: search again, and test each point's exclusion id
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
