// Surrogate distances of pairs of points.
#include "neighbors/exact/candidates.cuh"

// Writes the surrogate distances of pairs of rows of `values`. A lane takes a pair, and the warp copies both rows' features into
// shared memory.
extern "C" __global__ void __launch_bounds__(THREADS) pair_distances(
    const VALUE* __restrict__ values, int d, long long n, const int* __restrict__ src, const int* __restrict__ dst,
    const WarpLayout layout, double* __restrict__ out) {
    extern __shared__ __align__(16) char shared[];
    long long at = thread_index();
    int lane = threadIdx.x % WARP, last = FORMULA::summed(d), id[2] = {at < n ? src[at] : -1, at < n ? dst[at] : -1};
    const VALUE *x = values + (size_t)max(id[0], 0) * d, *y = values + (size_t)max(id[1], 0) * d;
    if (d <= FEW_FEATURES || (sizeof(VALUE) < 4 && layout.alignment < 16)) {
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
            Features features{nullptr, tile[e], layout.width, layout.pitch, layout.alignment};
            features.load(values, d, id[e], start, m);
        }
        wait_for_copies();
        const VALUE *own = (const VALUE*)(tile[0] + lane * layout.pitch), *other = (const VALUE*)(tile[1] + lane * layout.pitch);
#pragma unroll 4
        for (int f = 0; f < m; f++) sum.add(widen(own[f]), widen(other[f]));
    }
    if (at < n) out[at] = sum.value(x, y, d);
}
