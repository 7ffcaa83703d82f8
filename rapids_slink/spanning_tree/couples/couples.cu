// What __init__.py looks at: how far components reach towards each other, and the pairs of points that this leaves.
//
// A couple's shadows are float64 numbers in a row: those of its first component's points, then of the second's. end[c] is
// where couple c's end.
#include "neighbors/canonical.cuh"
#include "neighbors/reach.cuh"
#include "ordering.cuh"
#include "threads.cuh"

#ifndef VALUE
#define VALUE float
#endif
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARP = 32;
constexpr int ROWS = 64;           // of products, that a thread looks at
constexpr int AT_A_TIME = 4;       // points whose shadows a warp sums
constexpr int POINTS = 128;        // whose shadows a block of THREADS sums
constexpr int THREADS = 128;
constexpr int FACING = 1024;       // points that face those of a block
constexpr int SAMPLED = 64;        // points of a component

// --- Components --------------------------------------------------------------------------------------------------------------

// Points sorted by component, as narrow numbers, and where another component than that of the one before begins.
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

// Some points of each component, of small ones several times, and their mean, in which features that are no numbers are those of
// `otherwise`. A block a component.
extern "C" __global__ void __launch_bounds__(THREADS) sample_components(
    const VALUE* __restrict__ values, int d, const int* __restrict__ order, const long long* __restrict__ start,
    const double* __restrict__ otherwise, int* __restrict__ sample, double* __restrict__ middle) {
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
        middle[a * d + f] = isfinite(mean) ? mean : otherwise[f];
    }
}

// Raises the largest half norm, and error if these are given, to those of n rows. None is negative.
extern "C" __global__ void raise_largest(
    long long n, const float* __restrict__ half_norm, const float* __restrict__ error, int* __restrict__ largest) {
    long long i = thread_index();
    int norm = i < n ? __float_as_int(half_norm[i]) : 0, moved = i < n && error ? __float_as_int(error[i]) : 0;
    for (int step = WARP / 2; step; step /= 2) {
        norm = max(norm, __shfl_xor_sync(~0u, norm, step));
        moved = max(moved, __shfl_xor_sync(~0u, moved, step));
    }
    if (threadIdx.x % WARP == 0) atomicMax(largest, norm), atomicMax(largest + 1, moved);
}

// --- Couples -----------------------------------------------------------------------------------------------------------------

// support[a, b]: how much larger the product with b's middle is than that with a's, at most, and where: of m rows of products
// with k middles, which are of the points from place `first` on.
extern "C" __global__ void offer_supports(
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

// All couples of k components: their gap, less `moved`, and the points that face each other, which stand in this order. `inner` are
// the middles' products with each other, of which a squared distance is off by at most `more`; a gap's four products are off by
// `lost` together.
extern "C" __global__ void measure_couples(
    int k, const u64* __restrict__ support, const int* __restrict__ order, const double* __restrict__ inner, double lost,
    double more, double moved, int* __restrict__ first, int* __restrict__ second, double* __restrict__ gap,
    int* __restrict__ facing_second, int* __restrict__ facing_first) {
    long long i = thread_index(), a = i / k, b = i % k;
    if (i >= (long long)k * k || a >= b) return;
    long long couple = a * (2 * k - a - 1) / 2 + b - a - 1;
    u64 forth = support[a * k + b], back = support[b * k + a];
    double apart = inner[a * k + a] + inner[b * k + b] - 2 * inner[a * k + b] + more;
    double between = -((double)from_ascending(forth >> 32) + from_ascending(back >> 32)) - lost;
    first[couple] = a, second[couple] = b;
    gap[couple] = (between > 0 ? between / sqrt(apart) : -1.0 / 0.0) - moved;
    facing_second[couple] = order[~(u32)forth], facing_first[couple] = order[~(u32)back];
}

// The couples at n places.
extern "C" __global__ void take_couples(
    long long n, const int* __restrict__ at, const int* __restrict__ first, const int* __restrict__ second,
    const double* __restrict__ gap, const int* __restrict__ facing_second, const int* __restrict__ facing_first,
    int* __restrict__ to_first, int* __restrict__ to_second, double* __restrict__ to_gap, int* __restrict__ to_facing_second,
    int* __restrict__ to_facing_first) {
    long long i = thread_index();
    if (i >= n) return;
    int c = at[i];
    to_first[i] = first[c], to_second[i] = second[c], to_gap[i] = gap[c];
    to_facing_second[i] = facing_second[c], to_facing_first[i] = facing_first[c];
}

// The couples that were taken for a tree, `room` of them, and their weights: as many numbers each.
extern "C" __global__ void list_tree(
    long long couples, const bool* __restrict__ taken, const int* __restrict__ first, const int* __restrict__ second,
    const double* __restrict__ weight, int room, double* __restrict__ edge, int* __restrict__ count) {
    long long c = thread_index();
    bool set = c < couples && taken[c];
    int slot = claim_in_warp(set, count);
    if (set && slot < room) edge[slot] = first[c], edge[room + slot] = second[c], edge[2 * room + slot] = weight[c];
}

// Couples whose gap is less than half of how far two points are apart at most that weigh as much as the couple.
extern "C" __global__ void keep_close(
    long long couples, const double* __restrict__ gap, const double* __restrict__ weight, const Reach reach, int* __restrict__ at,
    int* __restrict__ count) {
    long long c = thread_index();
    bool close = c < couples && gap[c] < times(reach.scale, reach.distance(weight[c])) / 2;
    int slot = claim_in_warp(close, count);
    if (close) at[slot] = c;
}

// Every sampled point of the first component with every one of the second, and the couple, of each couple: `taken` of either,
// `step` apart.
extern "C" __global__ void pair_samples(
    long long pairs, const int* __restrict__ sample, const int* __restrict__ first, const int* __restrict__ second,
    const int* __restrict__ couple, int taken, int step, int* __restrict__ a, int* __restrict__ b, int* __restrict__ of_pair) {
    long long i = thread_index();
    if (i >= pairs) return;
    int of = couple[i / (taken * taken)], pair = i % (taken * taken);
    a[i] = sample[first[of] * SAMPLED + pair / taken * step], b[i] = sample[second[of] * SAMPLED + pair % taken * step];
    of_pair[i] = of;
}

// Couples whose gap is at most how far the heaviest edge on the way between them reaches, and that edge. A path's is the larger of
// those of two runs of heights, as long as a power of two, that cover it: in `ways` a row of n for each length follows one of the
// nodes' places.
extern "C" __global__ void keep_within(
    long long couples, const int* __restrict__ first, const int* __restrict__ second, const double* __restrict__ gap,
    const double* __restrict__ ways, int n, const Reach reach, int* __restrict__ at, double* __restrict__ upper,
    int* __restrict__ count) {
    long long c = thread_index();
    bool kept = false;
    double edge = 0;
    if (c < couples) {
        int a = ways[first[c]], b = ways[second[c]], low = min(a, b), high = max(a, b);
        int level = 31 - __clz(high - low);
        const double* heaviest = ways + (size_t)(1 + level) * n;
        edge = fmax(heaviest[low], heaviest[high - (1 << level)]);
        kept = gap[c] <= times(reach.scale, reach.distance(edge));
    }
    int slot = claim_in_warp(kept, count);
    if (kept) at[slot] = c, upper[slot] = edge;
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

struct Couple {
    int a, b;
    long long size_a, size_b, begin;
    __device__ Couple(int c, const int* first, const int* second, const long long* start, const long long* end) {
        a = first[c], b = second[c];
        size_a = start[a + 1] - start[a], size_b = start[b + 1] - start[b];
        begin = end[c] - size_a - size_b;
    }
    // The place among the sorted points of its i-th.
    __device__ long long place(const long long* start, long long i) const {
        return i < size_a ? start[a] + i : start[b] + i - size_a;
    }
};

// shadow = (x - origin) . (middle of the second - middle of the first). A block has POINTS of one couple, a warp some at a time.
extern "C" __global__ void __launch_bounds__(THREADS) cast_shadows(
    const VALUE* __restrict__ values, int d, const double* __restrict__ origin, const int* __restrict__ order,
    const long long* __restrict__ start, const double* __restrict__ middles, int couples, const int* __restrict__ first,
    const int* __restrict__ second, const long long* __restrict__ end, const long long* __restrict__ last_block,
    double* __restrict__ shadow) {
    int c = first_above(last_block, couples, blockIdx.x), lane = threadIdx.x % WARP;
    Couple couple(c, first, second, start, end);
    const double *from = middles + (size_t)couple.a * d, *to = middles + (size_t)couple.b * d;
    long long block = blockIdx.x - (c ? last_block[c - 1] : 0), size = couple.size_a + couple.size_b;
    long long begin = block * POINTS + threadIdx.x / WARP * (POINTS * WARP / THREADS);
    for (long long i = begin; i < min(begin + POINTS * WARP / THREADS, size); i += AT_A_TIME) {
        const VALUE* x[AT_A_TIME];
        double sum[AT_A_TIME];
#pragma unroll
        for (int p = 0; p < AT_A_TIME; p++)
            x[p] = values + (size_t)order[couple.place(start, min(i + p, size - 1))] * d, sum[p] = 0;
        for (int f = lane; f < d; f += WARP) {
            double w = to[f] - from[f], o = origin[f];
#pragma unroll
            for (int p = 0; p < AT_A_TIME; p++) sum[p] += (widen(x[p][f]) - o) * w;
        }
#pragma unroll
        for (int p = 0; p < AT_A_TIME; p++) {
            for (int step = WARP / 2; step; step /= 2) sum[p] += __shfl_xor_sync(~0u, sum[p], step);
            if (lane == 0 && i + p < size) shadow[couple.begin + i + p] = sum[p];
        }
    }
}

// Which points may be in a pair whose shadows are no farther apart than `far`: their numbers within their component go to the
// beginning of its part of `near`, and how many there are to `count`. If points have cores, these are at most `upper`.
// A block a couple.
extern "C" __global__ void __launch_bounds__(THREADS) keep_facing(
    const double* __restrict__ shadow, const int* __restrict__ order, const long long* __restrict__ start,
    const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ end,
    const double* __restrict__ far, const double* __restrict__ upper, const double* __restrict__ core,
    int* __restrict__ near, int* __restrict__ count) {
    __shared__ double foremost[2][THREADS];
    __shared__ int kept[2];
    int c = blockIdx.x, t = threadIdx.x;
    Couple couple(c, first, second, start, end);
    const double *of_a = shadow + couple.begin, *of_b = of_a + couple.size_a;
    double most = -1.0 / 0.0, least = 1.0 / 0.0;
    for (long long i = t; i < couple.size_a; i += THREADS) most = fmax(most, of_a[i]);
    for (long long i = t; i < couple.size_b; i += THREADS) least = fmin(least, of_b[i]);
    foremost[0][t] = most, foremost[1][t] = least;
    if (t < 2) kept[t] = 0;
    __syncthreads();
    for (int step = THREADS / 2; step; step /= 2) {
        if (t < step) {
            foremost[0][t] = fmax(foremost[0][t], foremost[0][t + step]);
            foremost[1][t] = fmin(foremost[1][t], foremost[1][t + step]);
        }
        __syncthreads();
    }
    most = foremost[0][0], least = foremost[1][0];
    int* into = near + couple.begin;
    for (int side = 0; side < 2; side++, into += couple.size_a) {
        long long size = side ? couple.size_b : couple.size_a, place = start[side ? couple.b : couple.a];
        for (long long first_of_all = 0; first_of_all < size; first_of_all += THREADS) {
            long long i = first_of_all + t;
            bool faces = i < size && !((side ? of_b[i] - most : least - of_a[i]) > far[c]);
            if (faces && core) faces = core[order[place + i]] <= upper[c];
            int slot = claim_in_warp(faces, kept + side);
            if (faces) into[slot] = i;
        }
    }
    __syncthreads();
    if (t < 2) count[2 * c + t] = kept[t];
}

// Every two of a couple's points that were kept and whose shadows are no farther apart than `far`: the points and the couple, as
// far as there is room. A block has THREADS of the first component's and FACING of the second's; last_block[c] is where those of
// couple c end.
extern "C" __global__ void __launch_bounds__(THREADS) pair_facing(
    const double* __restrict__ shadow, const int* __restrict__ near, const int* __restrict__ count,
    const long long* __restrict__ last_block, const int* __restrict__ order, const long long* __restrict__ start, int couples,
    const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ end,
    const double* __restrict__ far, int capacity, int* __restrict__ found_a, int* __restrict__ found_b,
    int* __restrict__ found_couple, int* __restrict__ found) {
    __shared__ double of_b[THREADS];
    __shared__ int id_b[THREADS];
    int c = first_above(last_block, couples, blockIdx.x), t = threadIdx.x, lane = t % WARP;
    Couple couple(c, first, second, start, end);
    long long block = blockIdx.x - (c ? last_block[c - 1] : 0), size_b = count[2 * c + 1], across = (size_b + FACING - 1) / FACING;
    long long i = block / across * THREADS + t, j = block % across * FACING, last = min(j + FACING, size_b);
    bool real = i < count[2 * c];
    int a = real ? near[couple.begin + i] : 0;
    const double most = far[c], of_a = shadow[couple.begin + a];
    a = order[start[couple.a] + a];
    near += couple.begin + couple.size_a, shadow += couple.begin + couple.size_a, order += start[couple.b];
    for (; j < last; j += THREADS) {
        __syncthreads();
        if (j + t < last) {
            int b = near[j + t];
            of_b[t] = shadow[b], id_b[t] = order[b];
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
                    found_a[slot] = a, found_b[slot] = id_b[w * WARP + __ffs(left) - 1], found_couple[slot] = c;
    }
}

// Pairs that weigh no more than their couple may: their points and these's components, and the weight.
extern "C" __global__ void keep_light(
    long long pairs, const int* __restrict__ a, const int* __restrict__ b, const int* __restrict__ couple,
    const double* __restrict__ weight, const double* __restrict__ upper, const int* __restrict__ of_point, int4* __restrict__ kept,
    double* __restrict__ kept_weight, int* __restrict__ count) {
    long long i = thread_index();
    bool light = i < pairs && weight[i] <= upper[couple[i]];
    int slot = claim_in_warp(light, count);
    if (light) kept[slot] = make_int4(a[i], b[i], of_point[a[i]], of_point[b[i]]), kept_weight[slot] = weight[i];
}

// --- Work for the fused filter -----------------------------------------------------------------------------------------------

// How a couple's pairs are formed: the larger component's rows, in blocks, by the other's columns, in tiles, SPLIT at most to an item.
constexpr int SPLIT = 64;
struct Shape {
    int rows, columns;
    long long blocks, tiles, splits;
    __device__ Shape(int a, int b, const long long* start, int of_rows, int of_columns) {
        long long size_a = start[a + 1] - start[a], size_b = start[b + 1] - start[b];
        bool larger = size_a >= size_b;
        rows = larger ? a : b, columns = larger ? b : a;
        blocks = (max(size_a, size_b) + of_rows - 1) / of_rows;
        tiles = (min(size_a, size_b) + of_columns - 1) / of_columns;
        splits = (tiles + SPLIT - 1) / SPLIT;
    }
};

// The blocks of each of k components and then the items of each of n couples. In all there are so many of either, and the items
// form so many tiles, with one more for the start of each.
extern "C" __global__ void count_items(
    long long n, int k, const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ start,
    int of_rows, int of_columns, long long* __restrict__ counts, u64* __restrict__ totals) {
    long long i = thread_index();
    u64 count[3] = {0, 0, 0};
    if (i < n) {
        Shape shape(first[i], second[i], start, of_rows, of_columns);
        counts[k + i] = count[0] = shape.blocks * shape.splits;
        count[2] = shape.blocks * (shape.tiles + shape.splits) * (of_rows / of_columns);
    }
    if (i < k) counts[i] = count[1] = (start[i + 1] - start[i] + of_rows - 1) / of_rows;
#pragma unroll
    for (int c = 0; c < 3; c++) {
        for (int step = WARP / 2; step; step /= 2) count[c] += __shfl_xor_sync(~0u, count[c], step);
        if (threadIdx.x % WARP == 0) atomicAdd(totals + c, count[c]);
    }
}

// As hopper.cu takes them. `ends` are where each of k components' blocks end and, counted on, each couple's items.
extern "C" __global__ void list_items(
    long long n, int k, int couples, const int* __restrict__ first, const int* __restrict__ second,
    const long long* __restrict__ start, const long long* __restrict__ ends, int of_rows, int of_columns,
    int4* __restrict__ item) {
    long long i = thread_index();
    if (i >= n) return;
    const long long* last_item = ends + k;
    int c = first_above(last_item, couples, ends[k - 1] + i), tiles_a_block = of_rows / of_columns;
    Shape shape(first[c], second[c], start, of_rows, of_columns);
    long long of_couple = ends[k - 1] + i - (last_item[c] - shape.blocks * shape.splits);
    long long row_block = of_couple / shape.splits, at = of_couple % shape.splits * SPLIT;
    long long rows = shape.rows ? ends[shape.rows - 1] : 0, columns = shape.columns ? ends[shape.columns - 1] : 0;
    int row_tile = (rows + row_block) * tiles_a_block, tile = columns * tiles_a_block + at;
    item[i] = make_int4(row_tile, tile, tile + min(shape.tiles - at, (long long)SPLIT), c);
}

// The sorted points with each component in blocks of its own, filled up with its last point.
extern "C" __global__ void fill_blocks(
    long long n, int components, const int* __restrict__ order, const long long* __restrict__ start,
    const long long* __restrict__ last_block, int of_rows, int* __restrict__ filled) {
    long long i = thread_index();
    if (i >= n) return;
    int c = first_above(last_block, components, i / of_rows);
    long long place = start[c] + i - (c ? last_block[c - 1] : 0) * of_rows;
    filled[i] = order[min(place, start[c + 1] - 1)];
}
