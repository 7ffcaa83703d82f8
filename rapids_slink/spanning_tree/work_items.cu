// The products of component pairs as work items of the fused filter.
#include "runtime/include/resident.cuh"
#include "spanning_tree/facing.cuh"
#include "runtime/include/first_above.cuh"

typedef unsigned int u32;

constexpr int THREADS = 256, BLOCKS = 4;  // of a multiprocessor

// The products of a pair: blocks of rows of the larger component by tiles of points of the other, at most SPLIT tiles per item.
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

// The items in the form that mma.cu and wgmma.cu take: of each block of rows those tiles that have points which may be near to the
// block's first, by the bins of `keys`. `ends` holds running totals over the blocks of k
// components, then the pairs' items.
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

// The number of the pair of each two of k components, in the order of the dendrogram's leaves; -1, as it is at first, of none.
extern "C" __global__ void number_pairs(
    long long pairs, int k, const int* __restrict__ first, const int* __restrict__ second, const int* __restrict__ leaf,
    int* __restrict__ number) {
    long long c = thread_index();
    if (c >= pairs) return;
    long long a = leaf[first[c]], b = leaf[second[c]];
    number[a * k + b] = number[b * k + a] = c;
}

// Items of blocks and tiles of n points sorted by component, whatever components they have points of: each block of rows with the
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

// The points of the sorted keys, each component padded to whole blocks by copies of its last point.
extern "C" __global__ void fill_blocks(
    long long n, int components, const long long* __restrict__ keys, const long long* __restrict__ start,
    const u32* __restrict__ last_block, int of_rows, int* __restrict__ filled) {
    long long i = thread_index();
    if (i >= n) return;
    int c = first_above<u32>(last_block, components, i / of_rows);
    long long position = start[c] + i - (c ? (long long)last_block[c - 1] : 0) * of_rows;
    filled[i] = facing_point(keys[min(position, start[c + 1] - 1)]);
}
