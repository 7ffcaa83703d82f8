// What __init__.py measures and lists: how far components reach towards each other, and the pairs of points that this leaves.
//
// A pair of components has its projections in a row: those of its first component's points, then of the second's. end[c] is
// where pair c's end.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/radius.cuh"
#include "ordering.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int ROWS = 64;           // of products, that a thread looks at
constexpr int AT_A_TIME = 4;       // points that a warp projects
constexpr int POINTS = 128;        // that a block of THREADS projects
constexpr int THREADS = 128;
constexpr int FACING = 1024;       // points that face those of a block
constexpr int SAMPLED = 64;        // points of a component

// --- Components --------------------------------------------------------------------------------------------------------------

// Points sorted by component, as int32, and where another component than that of the one before begins.
extern "C" __global__ void mark_starts(
    long long n, const int* __restrict__ component, const long long* __restrict__ sorted, int* __restrict__ order,
    int* __restrict__ begins) {
    long long i = thread_index();
    if (i >= n) return;
    order[i] = sorted[i];
    begins[i] = i && component[sorted[i]] != component[sorted[i - 1]];
}

// Where each of k components starts, and n; and the number of each point's.
extern "C" __global__ void list_starts(
    long long n, int k, const int* __restrict__ order, const int* __restrict__ number, long long* __restrict__ start,
    int* __restrict__ of_point) {
    long long i = thread_index();
    if (i >= n) return;
    of_point[order[i]] = number[i];
    if (!i || number[i] != number[i - 1]) start[number[i]] = i;
    if (i == n - 1) start[k] = n;
}

// Some points of each component, of small ones several times, and their mean, in which features that are not finite are those
// of `otherwise`. A block a component.
extern "C" __global__ void __launch_bounds__(THREADS) sample_components(
    const VALUE* __restrict__ values, int d, const int* __restrict__ order, const long long* __restrict__ start,
    const double* __restrict__ otherwise, int* __restrict__ sample, double* __restrict__ centroid) {
    __shared__ int of[SAMPLED];
    long long a = blockIdx.x, size = start[a + 1] - start[a];
    if (threadIdx.x < SAMPLED)
        sample[a * SAMPLED + threadIdx.x] = of[threadIdx.x] = order[start[a] + threadIdx.x * size / SAMPLED];
    __syncthreads();
    for (int f = threadIdx.x; f < d; f += THREADS) {
        double sum = 0;
#pragma unroll 16
        for (int s = 0; s < SAMPLED; s++) sum += widen(values[(size_t)of[s] * d + f]);
        double mean = sum / SAMPLED;
        centroid[a * d + f] = isfinite(mean) ? mean : otherwise[f];
    }
}

// --- Pairs -----------------------------------------------------------------------------------------------------------------

// support[a, b]: how much larger the product with b's centroid is than that with a's, at most, and where: of m rows of products
// with k centroids, which are of the points from position `first` on.
extern "C" __global__ void update_supports(
    const float* __restrict__ product, int m, int k, int first, const int* __restrict__ number, u64* __restrict__ support) {
    int b = blockIdx.y * blockDim.x + threadIdx.x, begin = blockIdx.x * ROWS;
    if (b >= k) return;
    int end = min(begin + ROWS, m);
    for (int r = begin; r < end;) {
        u64 best = 0;
        int a = number[r], stop = r + 1;
        while (stop < end && number[stop] == a) stop++;
#pragma unroll 8
        for (; r < stop; r++) {
            float more = product[(size_t)r * k + b] - product[(size_t)r * k + a];
            best = max(best, (u64)ascending(more) << 32 | ~(u32)(first + r));
        }
        atomicMax(support + (size_t)a * k + b, best);
    }
}

struct SeparationErrors {
    double products, sq_distance, moved;
};

// All pairs of k components: their separation, and the support points, which are in this order. `inner` are the centroids'
// products with each other.
extern "C" __global__ void measure_pairs(
    int k, const u64* __restrict__ support, const int* __restrict__ order, const double* __restrict__ inner,
    const SeparationErrors errors, int* __restrict__ first, int* __restrict__ second, double* __restrict__ separation,
    int* __restrict__ support_first, int* __restrict__ support_second) {
    long long i = thread_index(), a = i / k, b = i % k;
    if (i >= (long long)k * k || a >= b) return;
    long long pair = a * (2 * k - a - 1) / 2 + b - a - 1;
    u64 forth = support[a * k + b], back = support[b * k + a];
    double sq_length = inner[a * k + a] + inner[b * k + b] - 2 * inner[a * k + b] + errors.sq_distance;
    double between = -((double)from_ascending(forth >> 32) + from_ascending(back >> 32)) - errors.products;
    first[pair] = a, second[pair] = b;
    separation[pair] = (between > 0 ? between / sqrt(sq_length) : -1.0 / 0.0) - errors.moved;
    support_first[pair] = order[~(u32)forth], support_second[pair] = order[~(u32)back];
}

// Pairs whose separation is less than half of how far two points are apart at most that weigh as much as the pair.
extern "C" __global__ void list_overlapping(
    long long pairs, const double* __restrict__ separation, const double* __restrict__ weight, const FilterRadius radius,
    int* __restrict__ at, int* __restrict__ count) {
    long long c = thread_index();
    bool overlaps = c < pairs && separation[c] < radius.scaled_distance(weight[c]) / 2;
    int slot = claim_in_warp(overlaps, count);
    if (overlaps) at[slot] = c;
}

// Every sampled point of the first component with every one of the second, and the pair, of each pair: `taken` of either,
// `step` apart.
extern "C" __global__ void pair_samples(
    long long pairs, const int* __restrict__ sample, const int* __restrict__ first, const int* __restrict__ second,
    const int* __restrict__ pair, int taken, int step, int* __restrict__ a, int* __restrict__ b, int* __restrict__ of_pair) {
    long long i = thread_index();
    if (i >= pairs) return;
    int of = pair[i / (taken * taken)], two = i % (taken * taken);
    a[i] = sample[first[of] * SAMPLED + two / taken * step], b[i] = sample[second[of] * SAMPLED + two % taken * step];
    of_pair[i] = of;
}

// Pairs whose separation is at most how far points are apart that weigh as much as their bottleneck, and that. A path's is the
// larger of two overlapping power-of-two ranges of heights that cover it: in `table` a row of n for each length follows one of
// the nodes' positions.
extern "C" __global__ void list_within_bottlenecks(
    long long pairs, const int* __restrict__ first, const int* __restrict__ second, const double* __restrict__ separation,
    const double* __restrict__ table, int n, const FilterRadius radius, int* __restrict__ at, double* __restrict__ upper,
    int* __restrict__ count) {
    long long c = thread_index();
    bool within = false;
    double bottleneck = 0;
    if (c < pairs) {
        int a = table[first[c]], b = table[second[c]], low = min(a, b), high = max(a, b);
        int level = 31 - __clz(high - low);
        const double* largest = table + (size_t)(1 + level) * n;
        bottleneck = fmax(largest[low], largest[high - (1 << level)]);
        within = separation[c] <= radius.scaled_distance(bottleneck);
    }
    int slot = claim_in_warp(within, count);
    if (within) at[slot] = c, upper[slot] = bottleneck;
}

// The first of the n ascending numbers that is above x.
__device__ __forceinline__ int first_above(const long long* __restrict__ ends, int n, long long x) {
    int low = 0, high = n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (ends[middle] > x) high = middle;
        else low = middle + 1;
    }
    return low;
}

struct ComponentPair {
    int a, b;
    long long size_a, size_b, begin;
    __device__ ComponentPair(int c, const int* first, const int* second, const long long* start, const long long* end) {
        a = first[c], b = second[c];
        size_a = start[a + 1] - start[a], size_b = start[b + 1] - start[b];
        begin = end[c] - size_a - size_b;
    }
    // The position among the sorted points of its i-th.
    __device__ long long position(const long long* start, long long i) const {
        return i < size_a ? start[a] + i : start[b] + i - size_a;
    }
};

// value = (x - origin) . (centroid of the second - centroid of the first). A block has POINTS of one pair, a warp some at a
// time.
extern "C" __global__ void __launch_bounds__(THREADS) project(
    const VALUE* __restrict__ values, int d, const double* __restrict__ origin, const int* __restrict__ order,
    const long long* __restrict__ start, const double* __restrict__ centroids, int pairs, const int* __restrict__ first,
    const int* __restrict__ second, const long long* __restrict__ end, const long long* __restrict__ last_block,
    double* __restrict__ value) {
    int c = first_above(last_block, pairs, blockIdx.x), lane = threadIdx.x % WARP;
    ComponentPair pair(c, first, second, start, end);
    const double *from = centroids + (size_t)pair.a * d, *to = centroids + (size_t)pair.b * d;
    long long block = blockIdx.x - (c ? last_block[c - 1] : 0), size = pair.size_a + pair.size_b;
    long long begin = block * POINTS + threadIdx.x / WARP * (POINTS * WARP / THREADS);
    for (long long i = begin; i < min(begin + POINTS * WARP / THREADS, size); i += AT_A_TIME) {
        const VALUE* x[AT_A_TIME];
        double sum[AT_A_TIME];
#pragma unroll
        for (int p = 0; p < AT_A_TIME; p++)
            x[p] = values + (size_t)order[pair.position(start, min(i + p, size - 1))] * d, sum[p] = 0;
        for (int f = lane; f < d; f += WARP) {
            double w = to[f] - from[f], o = origin[f];
#pragma unroll
            for (int p = 0; p < AT_A_TIME; p++) sum[p] += (widen(x[p][f]) - o) * w;
        }
#pragma unroll
        for (int p = 0; p < AT_A_TIME; p++) {
            for (int step = WARP / 2; step; step /= 2) sum[p] += __shfl_xor_sync(~0u, sum[p], step);
            if (lane == 0 && i + p < size) value[pair.begin + i + p] = sum[p];
        }
    }
}

// Which points may be in a pair whose projections differ by no more than `most_apart`: their numbers within their component go
// to the beginning of its part of `near`, and how many there are to `count`. If points have core distances, theirs are at most
// `upper`. A block a pair.
extern "C" __global__ void __launch_bounds__(THREADS) list_facing_points(
    const double* __restrict__ value, const int* __restrict__ order, const long long* __restrict__ start,
    const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ end,
    const double* __restrict__ most_apart, const double* __restrict__ upper, const double* __restrict__ core,
    int* __restrict__ near, int* __restrict__ count) {
    __shared__ double extreme[2][THREADS];
    __shared__ int n_facing[2];
    int c = blockIdx.x, t = threadIdx.x;
    ComponentPair pair(c, first, second, start, end);
    const double *of_a = value + pair.begin, *of_b = of_a + pair.size_a;
    double most = -1.0 / 0.0, least = 1.0 / 0.0;
    for (long long i = t; i < pair.size_a; i += THREADS) most = fmax(most, of_a[i]);
    for (long long i = t; i < pair.size_b; i += THREADS) least = fmin(least, of_b[i]);
    extreme[0][t] = most, extreme[1][t] = least;
    if (t < 2) n_facing[t] = 0;
    __syncthreads();
    for (int step = THREADS / 2; step; step /= 2) {
        if (t < step) {
            extreme[0][t] = fmax(extreme[0][t], extreme[0][t + step]);
            extreme[1][t] = fmin(extreme[1][t], extreme[1][t + step]);
        }
        __syncthreads();
    }
    most = extreme[0][0], least = extreme[1][0];
    int* into = near + pair.begin;
    for (int side = 0; side < 2; side++, into += pair.size_a) {
        long long size = side ? pair.size_b : pair.size_a, position = start[side ? pair.b : pair.a];
        for (long long first_of_all = 0; first_of_all < size; first_of_all += THREADS) {
            long long i = first_of_all + t;
            bool faces = i < size && !((side ? of_b[i] - most : least - of_a[i]) > most_apart[c]);
            if (faces && core) faces = core[order[position + i]] <= upper[c];
            int slot = claim_in_warp(faces, n_facing + side);
            if (faces) into[slot] = i;
        }
    }
    __syncthreads();
    if (t < 2) count[2 * c + t] = n_facing[t];
}

// Every two of a pair's facing points whose projections differ by no more than `most_apart`: the points and the pair, as far
// as there is room. A block has THREADS of the first component's and FACING of the second's; last_block[c] is where those of
// pair c end.
extern "C" __global__ void __launch_bounds__(THREADS) list_facing_pairs(
    const double* __restrict__ value, const int* __restrict__ near, const int* __restrict__ count,
    const long long* __restrict__ last_block, const int* __restrict__ order, const long long* __restrict__ start, int pairs,
    const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ end,
    const double* __restrict__ most_apart, int capacity, int* __restrict__ found_a, int* __restrict__ found_b,
    int* __restrict__ found_pair, int* __restrict__ found) {
    __shared__ double of_b[THREADS];
    __shared__ int id_b[THREADS];
    int c = first_above(last_block, pairs, blockIdx.x), t = threadIdx.x, lane = t % WARP;
    ComponentPair pair(c, first, second, start, end);
    long long block = blockIdx.x - (c ? last_block[c - 1] : 0), size_b = count[2 * c + 1];
    long long across = (size_b + FACING - 1) / FACING;
    long long i = block / across * THREADS + t, j = block % across * FACING, last = min(j + FACING, size_b);
    bool real = i < count[2 * c];
    int a = real ? near[pair.begin + i] : 0;
    const double most = most_apart[c], of_a = value[pair.begin + a];
    a = order[start[pair.a] + a];
    near += pair.begin + pair.size_a, value += pair.begin + pair.size_a, order += start[pair.b];
    for (; j < last; j += THREADS) {
        __syncthreads();
        if (j + t < last) {
            int b = near[j + t];
            of_b[t] = value[b], id_b[t] = order[b];
        }
        __syncthreads();
        u32 hits[THREADS / WARP];
        int n = 0;
#pragma unroll
        for (int w = 0; w < THREADS / WARP; w++) {
            hits[w] = 0;
#pragma unroll
            for (int l = 0; l < WARP; l++) hits[w] |= (u32) !(of_b[w * WARP + l] - of_a > most) << l;
            long long left = last - j - w * WARP;
            if (left < WARP) hits[w] &= left > 0 ? (1u << left) - 1 : 0;
            if (!real) hits[w] = 0;
            n += __popc(hits[w]);
        }
        if (!__any_sync(~0u, n)) continue;
        int before = n;
        for (int step = 1; step < WARP; step *= 2) {
            int less = __shfl_up_sync(~0u, before, step);
            if (lane >= step) before += less;
        }
        int slot = lane == WARP - 1 ? atomicAdd(found, before) : 0;
        slot = __shfl_sync(~0u, slot, WARP - 1) + before - n;
        for (int w = 0; w < THREADS / WARP; w++)
            for (u32 left = hits[w]; left; left &= left - 1, slot++)
                if (slot < capacity)
                    found_a[slot] = a, found_b[slot] = id_b[w * WARP + __ffs(left) - 1], found_pair[slot] = c;
    }
}

// --- Work for the fused filter -----------------------------------------------------------------------------------------------

// How a pair's products are formed: the larger component's rows, in blocks, by the other's points, in tiles, SPLIT at most to an
// item.
constexpr int SPLIT = 64;
struct PairTiling {
    int rows, points;
    long long blocks, tiles, splits;
    __device__ PairTiling(int a, int b, const long long* start, int of_rows, int of_points) {
        long long size_a = start[a + 1] - start[a], size_b = start[b + 1] - start[b];
        bool larger = size_a >= size_b;
        rows = larger ? a : b, points = larger ? b : a;
        blocks = (max(size_a, size_b) + of_rows - 1) / of_rows;
        tiles = (min(size_a, size_b) + of_points - 1) / of_points;
        splits = (tiles + SPLIT - 1) / SPLIT;
    }
};

// The blocks of each of k components and then the items of each of n pairs. In all there are so many of either, and the items
// form so many tiles, with one more for the start of each.
extern "C" __global__ void count_items(
    long long n, int k, const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ start,
    int of_rows, int of_points, long long* __restrict__ counts, u64* __restrict__ totals) {
    long long i = thread_index();
    u64 count[3] = {0, 0, 0};
    if (i < n) {
        PairTiling tiling(first[i], second[i], start, of_rows, of_points);
        counts[k + i] = count[0] = tiling.blocks * tiling.splits;
        count[2] = tiling.blocks * (tiling.tiles + tiling.splits) * (of_rows / of_points);
    }
    if (i < k) counts[i] = count[1] = (start[i + 1] - start[i] + of_rows - 1) / of_rows;
#pragma unroll
    for (int c = 0; c < 3; c++) {
        for (int step = WARP / 2; step; step /= 2) count[c] += __shfl_xor_sync(~0u, count[c], step);
        if (threadIdx.x % WARP == 0) atomicAdd(totals + c, count[c]);
    }
}

// As fused.cu takes them. `ends` are where each of k components' blocks end and, counted on, each pair's items.
extern "C" __global__ void list_items(
    long long n, int k, int pairs, const int* __restrict__ first, const int* __restrict__ second,
    const long long* __restrict__ start, const long long* __restrict__ ends, int of_rows, int of_points,
    int4* __restrict__ item) {
    long long i = thread_index();
    if (i >= n) return;
    const long long* last_item = ends + k;
    int c = first_above(last_item, pairs, ends[k - 1] + i), tiles_a_block = of_rows / of_points;
    PairTiling tiling(first[c], second[c], start, of_rows, of_points);
    long long of_couple = ends[k - 1] + i - (last_item[c] - tiling.blocks * tiling.splits);
    long long row_block = of_couple / tiling.splits, at = of_couple % tiling.splits * SPLIT;
    long long rows = tiling.rows ? ends[tiling.rows - 1] : 0, points = tiling.points ? ends[tiling.points - 1] : 0;
    int row_tile = (rows + row_block) * tiles_a_block, tile = points * tiles_a_block + at;
    item[i] = make_int4(row_tile, tile, tile + min(tiling.tiles - at, (long long)SPLIT), c);
}

// The sorted points with each component in blocks of its own, filled up with its last point.
extern "C" __global__ void fill_blocks(
    long long n, int components, const int* __restrict__ order, const long long* __restrict__ start,
    const long long* __restrict__ last_block, int of_rows, int* __restrict__ filled) {
    long long i = thread_index();
    if (i >= n) return;
    int c = first_above(last_block, components, i / of_rows);
    long long position = start[c] + i - (c ? last_block[c - 1] : 0) * of_rows;
    filled[i] = order[min(position, start[c + 1] - 1)];
}
