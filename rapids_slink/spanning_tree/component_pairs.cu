// Support points and separations of components, points that face each other, and work items of component pairs.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fp16.cuh"
#include "neighbors/filter/radius.cuh"
#include "ordering.cuh"
#include "runtime/include/first_above.cuh"
#include "runtime/include/resident.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int ROWS = 64;     // rows of products of a thread
constexpr int THREADS = 128, BLOCKS = 8;  // BLOCKS of THREADS fit on a multiprocessor
constexpr float UNLIMITED = 1.0 / 0.0;  // the limit of pairs of components that are not listed

// --- Pairs -----------------------------------------------------------------------------------------------------------------

// Raises support[a, b] to the largest difference, over a's points, of the product with b's centroid and the product with a's, and the
// point. The rows of `product` are the products of m points, from position `first` on, with k centroids.
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
    double products, moved;
};

// These are centroids in fp16, of `chunks` times 8 features.
struct Centroids {
    const uint4* y;
    long long chunks;
    // Returns an upper bound of the distance of two. A difference is off by 2^-24 of itself in float32, a square by twice as much and a
    // rounding more, and a sum by a rounding a feature.
    __device__ double distance(long long a, long long b) const {
        float square = 0;
        for (long long c = 0; c < chunks; c++) {
            union Chunk {
                uint4 bits;
                u16 half[8];
            } of_a{y[a * chunks + c]}, of_b{y[b * chunks + c]};
#pragma unroll
            for (int e = 0; e < 8; e++) {
                float gap = from_half(of_a.half[e]) - from_half(of_b.half[e]);
                square += gap * gap;
            }
        }
        return sqrt(square * (1 + (8 * chunks + 8) * 0x1p-23));
    }
};

// Writes the separations and support points of all pairs of k components. `order` has the sorted points.
extern "C" __global__ void measure_pairs(
    int k, const u64* __restrict__ support, const int* __restrict__ order, const Centroids centroids,
    const SeparationErrors errors, int* __restrict__ first, int* __restrict__ second, double* __restrict__ separation,
    int* __restrict__ support_first, int* __restrict__ support_second) {
    long long i = thread_index(), a = i / k, b = i % k;
    if (i >= (long long)k * k || a >= b) return;
    long long pair = a * (2 * k - a - 1) / 2 + b - a - 1;
    u64 forth = support[a * k + b], back = support[b * k + a];
    double between = -((double)from_ascending(forth >> 32) + from_ascending(back >> 32)) - errors.products;
    first[pair] = a, second[pair] = b;
    separation[pair] = (between > 0 ? between / centroids.distance(a, b) : -1.0 / 0.0) - errors.moved;
    support_first[pair] = order[~(u32)forth], support_second[pair] = order[~(u32)back];
}

// --- Facing points ---------------------------------------------------------------------------------------------------------

// Keys sort facing points by set, and in a set those that lack least come first: see `Limit`.
constexpr int BINS = 256;                        // the slack of a pair of components has these bins
constexpr int POINT_BITS = 26, BIN_BITS = 8;     // bits of a point and of a bin in a key; the set is above them

// Returns the key of a point. What it lacks is no number if the slack is none: such a point may be near to all.
__device__ __forceinline__ u64 facing_key(int set, float lacks, int point) {
    int bin = min(max((int)lacks, 0), BINS - 1);
    return ((u64)set << BIN_BITS | bin) << POINT_BITS | (unsigned)point;
}
__device__ __forceinline__ int facing_point(u64 key) { return key & (1 << POINT_BITS) - 1; }
__device__ __forceinline__ int facing_bin(u64 key) { return key >> POINT_BITS & BINS - 1; }

// By measure_pairs' bound a point p of a and a point q of b are within a distance only if -reach <= more(p) + more(q), which are
// `more` of update_supports, at most `most` of a and of b. So p faces b if more(p) is at least -most(b) - reach, its `least`. What it
// lacks of most(a) and what q lacks of most(b) are together at most the slack, most(a) + most(b) + reach: in whole BINS of it, rounded
// down, BINS at most.
struct __align__(16) Limit {
    float least, most, per_slack;  // the last is BINS, or a little less; 0 where this is no number above zero
    int side;  // twice the number of the pair, with one more for the points of b
};

// Writes the limits of a for b, and of b for a, of each pair that is listed.
extern "C" __global__ void put_limits(
    long long pairs, int k, const int* __restrict__ first, const int* __restrict__ second, const double* __restrict__ upper,
    const u64* __restrict__ support, const Centroids centroids, const SeparationErrors errors, const FilterRadius radius,
    Limit* __restrict__ limits) {
    long long c = thread_index();
    if (c >= pairs) return;
    long long a = first[c], b = second[c];
    double reach = (radius.scaled_distance(upper[c]) + errors.moved) * centroids.distance(a, b) + errors.products;
    float most[2] = {from_ascending(support[a * k + b] >> 32), from_ascending(support[b * k + a] >> 32)};
    double slack = (double)most[0] + most[1] + reach + 0x1p-50 * (fabs((double)most[0]) + fabs((double)most[1]) + reach);
    float per_slack = slack > 0 ? __double2float_rd(BINS / slack * (1 - 0x1p-20)) : 0;
    for (int of = 0; of < 2; of++)
        limits[of ? b * k + a : a * k + b] = {__double2float_rd(-(double)most[1 - of] - reach), most[of], per_slack, (int)(2 * c + of)};
}

// Lists those of m points that reach the limits of their component: the side, the bin of what they lack, and the point. A limit that is
// not a number, of what overflows, is reached. The products are as in update_supports, and `count` goes on past `capacity`.
extern "C" __global__ void list_facing(
    const float* __restrict__ product, int m, int k, const int* __restrict__ number, const int* __restrict__ point,
    const Limit* __restrict__ limits, u64 capacity, u64* __restrict__ listed, u64* __restrict__ count) {
    int b = blockIdx.y * blockDim.x + threadIdx.x, begin = blockIdx.x * ROWS, end = min(begin + ROWS, m);
    if (__any_sync(ALL_LANES, *(volatile u64*)count > capacity)) return;  // there is no room for all
    for (int r = begin; r < end; r++) {
        int a = number[r];
        Limit limit{UNLIMITED};
        if (b < k) limit = limits[(size_t)a * k + b];
        float more = b < k ? product[(size_t)r * k + b] - product[(size_t)r * k + a] : 0;
        bool faces = !(limit.least >= UNLIMITED) && !(more < limit.least);
        u64 slot = claim_in_warp(faces, count);
        if (faces && slot < capacity) listed[slot] = facing_key(limit.side, (limit.most - more) * limit.per_slack, point[r]);
    }
}

// --- Work items ------------------------------------------------------------------------------------------------------------

// The products of a pair are those of blocks of rows of the larger component and tiles of points of the other, at most SPLIT tiles
// per item.
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

// Running totals of the blocks of k components, then of the items of n pairs. Also the totals of items, blocks, and tiles that the
// items form, with one more tile for the start of each item. So many items that their running totals overflow are refused.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) count_items(
    long long n, int k, const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ start,
    int of_rows, int of_points, u32* ends, u32* of_blocks, u64* __restrict__ totals, u64* arrived) {
    ResidentBlocks blocks{arrived};
    u64 count[3] = {0, 0, 0};
    blocks.running_sums(0, k + n, 0, ends, of_blocks, [&](long long i) {
        if (i < k) {
            u64 of_component = (start[i + 1] - start[i] + of_rows - 1) / of_rows;
            count[1] += of_component;
            return (u32)of_component;
        }
        PairTiling tiling(first[i - k], second[i - k], start, of_rows, of_points);
        count[0] += tiling.blocks * tiling.splits;
        count[2] += tiling.blocks * (tiling.tiles + tiling.splits) * (of_rows / of_points);
        return (u32)(tiling.blocks * tiling.splits);
    });
#pragma unroll
    for (int c = 0; c < 3; c++) {
        count[c] = warp_sum(count[c]);
        if (threadIdx.x % WARP == 0) atomicAdd(totals + c, count[c]);
    }
}

// Lists the items in the form that mma.cu and wgmma.cu take. A block of rows meets those tiles that have points which may be near to
// the block's first, by the bins of `keys`. `ends` holds running totals over the blocks of k components, then the pairs' items.
extern "C" __global__ void list_items(
    long long n, int k, int pairs, const int* __restrict__ first, const int* __restrict__ second,
    const long long* __restrict__ start, const long long* __restrict__ keys, const u32* __restrict__ ends, int of_rows, int of_points,
    int4* __restrict__ item) {
    long long i = thread_index();
    if (i >= n) return;
    const u32* last_item = ends + k;
    int c = first_above<u32>(last_item, pairs, ends[k - 1] + i), tiles_a_block = of_rows / of_points;
    PairTiling tiling(first[c], second[c], start, of_rows, of_points);
    long long of_pair = ends[k - 1] + i - (last_item[c] - tiling.blocks * tiling.splits);
    long long row_block = of_pair / tiling.splits, at = of_pair % tiling.splits * SPLIT;
    long long rows = tiling.rows ? ends[tiling.rows - 1] : 0, points = tiling.points ? ends[tiling.points - 1] : 0;
    int row_tile = (rows + row_block) * tiles_a_block, tile = points * tiles_a_block + at;
    const long long *row = keys + start[tiling.rows] + row_block * of_rows, *point = keys + start[tiling.points] + at * of_points;
    int near = 0, above = min(tiling.tiles - at, (long long)SPLIT) + 1, most = BINS - facing_bin(*row);
    while (above - near > 1) {  // the bins ascend
        int middle = (near + above) / 2;
        if (facing_bin(point[(long long)(middle - 1) * of_points]) <= most) near = middle;
        else above = middle;
    }
    item[i] = make_int4(row_tile, tile, tile + near, c);
}

// Lists items of blocks and tiles of n points sorted by component, whatever components they have points of. Each block of rows meets the
// tiles from its own on, as far as they have points of a pair. A tile's pair is that of the largest `upper`. A thread has a
// tile, and STRETCH of them are looked at together: those of the same `upper` that follow each other are an item. `totals` are as
// in count_items, and up to `capacity` items are listed. Once more than `most` tiles are formed no others are looked at.
constexpr int STRETCH = 16;
extern "C" __global__ void list_block_items(
    long long jobs, int n, int k, const int* __restrict__ component, const int* __restrict__ number,
    const double* __restrict__ upper, int of_rows, int of_points, long long capacity, u64 most, u64* __restrict__ totals,
    int4* __restrict__ item) {
    if (__syncthreads_or(threadIdx.x == 0 && *(volatile u64*)(totals + 2) > most)) return;
    long long i = thread_index();
    int tiles = (n + of_points - 1) / of_points, across = (tiles + STRETCH - 1) / STRETCH * STRETCH;
    int row_tile = i / across * (of_rows / of_points), tile = i % across, lane = threadIdx.x % WARP, pair = -1;
    if (i < jobs && tile >= row_tile && tile < tiles) {
        int rows = row_tile * of_points, points = tile * of_points;
        int last_row = component[min(rows + of_rows, n) - 1], last_point = component[min(points + of_points, n) - 1];
        for (int a = component[rows]; a <= last_row; a++)
            for (int b = component[points]; b <= last_point; b++) {
                int other = number[(long long)a * k + b];
                if (other >= 0 && (pair < 0 || upper[other] > upper[pair])) pair = other;
            }
    }
    int before = __shfl_up_sync(ALL_LANES, pair, 1);
    bool goes_on = lane % STRETCH && pair >= 0 && before >= 0 && upper[pair] == upper[before], begins = pair >= 0 && !goes_on;
    unsigned later = __ballot_sync(ALL_LANES, !goes_on) & ~((2u << lane) - 1);
    int length = (later ? __ffs(later) - 1 : WARP) - lane;
    u64 slot = claim_in_warp(begins, totals), formed = warp_sum<u64>(begins ? (length + 1) * (of_rows / of_points) : 0);
    if (lane == 0 && formed) atomicAdd(totals + 2, formed);
    if (begins && slot < capacity) item[slot] = make_int4(row_tile, tile, tile + length, pair);
}

// Writes the points of the sorted keys, with each component padded to whole blocks by copies of its last point.
extern "C" __global__ void fill_blocks(
    long long n, int components, const long long* __restrict__ keys, const long long* __restrict__ start,
    const u32* __restrict__ last_block, int of_rows, int* __restrict__ filled) {
    long long i = thread_index();
    if (i >= n) return;
    int c = first_above<u32>(last_block, components, i / of_rows);
    long long position = start[c] + i - (c ? (long long)last_block[c - 1] : 0) * of_rows;
    filled[i] = facing_point(keys[min(position, start[c + 1] - 1)]);
}
