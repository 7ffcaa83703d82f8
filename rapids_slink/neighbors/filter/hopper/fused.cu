// architectures: sm_90a
// The fused filter on Hopper's tensor cores: the product of two fp16 images is tested tile by tile in registers
// and never written. bounds.py derives the test; here error_j is replaced by the largest of its tile of columns, E, and a
// few more features, the norm columns, make the product subtract half_norm_j, in units of 2^15, 2^8, 1, 2^-7 and 2^-14:
//     product - half_norm_j >= half_norm_i - (radius_i + E)^2.
//
//     producer warp ──bulk copies──▶ ring of stages ──▶ four warpgroups, 64 rows each: wgmma, test, append
//
// The rows of the product are the queries, its columns the points.
//
// An image holds tiles of 128 rows; a tile is `atoms` pieces of 64 features, a piece 128 rows of 128 bytes, the
// eight 16-byte chunks of row r stored at chunk ^ (r & 7): the 128-byte swizzle that wgmma's descriptors expect, so that
// a plain bulk copy brings it into place. A tile's norm columns are 128 rows of 16 features in the 32-byte swizzle,
// chunk ^ (r / 4 & 1); for the columns they hold the parts of the norm, for the rows their units, which are the same for all
// and stay in registers. A work item is 256 rows and a range of column tiles.
//
// RESIDENT_ATOMS is the number of atoms, if the rows' pieces fit into shared memory and stay there; with 0 a stage
// carries a piece of the rows as well. A warpgroup issues all products of a tile and tests them while those of the others
// are formed. A test is a chain of short dependent steps, whose latency takes four warps per scheduler to hide.
//
// LAST_STEPS is how many times 32 bytes of the last atom's features are in use.
//
// BYTES: the points are integers from 0 to 255. 128 is subtracted from each, so that products are exact in int32, at twice
// the rate. An atom then has 128 features and the norm columns 32. With h the half of a squared norm, rounded down, and S the half
// of a bound on squared distances, rounded down, a pair within the bound of either point passes
//     product - h_j >= h_i - S:
// 2 product = |x_i|^2 + |x_j|^2 - distance^2 >= 2 h_i + 2 h_j - 2 S - 1, and all of these but the 1 are even. `radius` and
// `tile_radius` are S, and there are no errors.
//
// SYMMETRIC: rows and columns are of one image. A block's columns are counted from its own number on, modulo theirs, and a pair
// is formed once and tested for both: for the columns' sake with the largest of the tile's radii first. Columns are all points
// or, if the pairs within each of two parts are known, the second part; the rows are the first then.
//
// BETWEEN_COMPONENTS: the work items are given, each of 256 rows and a range of tiles; the pairs wanted are those within their
// component pair's threshold.
#include "runtime/include/copies.cuh"

#ifndef RESIDENT_ATOMS
#define RESIDENT_ATOMS 2
#endif
#ifndef LAST_STEPS
#define LAST_STEPS 4
#endif
#ifndef SYMMETRIC
#define SYMMETRIC 0
#endif
#ifndef BYTES
#define BYTES 0
#endif
#ifndef BETWEEN_COMPONENTS
#define BETWEEN_COMPONENTS 0
#endif
typedef unsigned int u32;
typedef unsigned long long u64;
#include "neighbors/filter/hopper/wgmma.cuh"

constexpr int ROWS = 256, COLUMNS = 128;
constexpr int PIECE_BYTES = 128 * 128;  // of 128 rows of one atom
constexpr int NORM_BYTES = 128 * 32;    // of a tile's norm columns
constexpr int STAGE_BYTES = RESIDENT_ATOMS ? PIECE_BYTES : 3 * PIECE_BYTES;  // a piece of columns; two of rows if not resident
constexpr int STAGES = RESIDENT_ATOMS == 0 ? 4 : RESIDENT_ATOMS <= 2 ? 8 : RESIDENT_ATOMS == 3 ? 6 : 5;
// Norm columns are released with their tile's last stage. With RESIDENT_ATOMS 0 a tile has more atoms than there are stages.
constexpr int NORM_SLOTS = RESIDENT_ATOMS ? (STAGES + RESIDENT_ATOMS - 1) / RESIDENT_ATOMS : 1;
constexpr int SLOTS = RESIDENT_ATOMS ? 1 : 2;  // work items at a time: the ring need not run dry between two
constexpr int CONSUMERS = 4, WARPS = 4 * CONSUMERS;  // warpgroups of 64 rows, and their warps
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int QUEUE = 64;  // survivors: fewer than 32 stay, and no more than 32 come at a time

// v[i] of N values in registers.
template <int N>
__device__ __forceinline__ sum_t select(const sum_t* v, u32 i) {
    if constexpr (N == 1) return v[0];
    else {
        sum_t low = select<N / 2>(v, i), high = select<N / 2>(v + N / 2, i);
        return i & N / 2 ? high : low;
    }
}

struct __align__(8) Pair {
    sum_t x, y;
};

#include "neighbors/filter/hopper/survivors.cuh"
#include "neighbors/filter/hopper/ring.cuh"
#include "neighbors/filter/hopper/tile_test.cuh"

// Starts all products of 64 rows, by the descriptor `own`, with the tile that comes next in the ring; `turn` goes on.
__device__ __forceinline__ void form_tile(
    sum_t (&sum)[64], Ring& ring, u32& turn, u64 own, u64 first_stage, const u32 (&row_units)[4], u64 norms, int atoms,
    int lane) {
    constexpr int STAGE_STEP = STAGE_BYTES >> 4, PIECE_STEP = PIECE_BYTES >> 4;  // in the descriptors' units
    if (RESIDENT_ATOMS) {
#pragma unroll
        for (int a = 0; a < RESIDENT_ATOMS; a++) {
            int s = (turn + a) % STAGES;
            barrier_wait(ring.full + s, (turn + a) / STAGES & 1);
            fence();
            mma_piece(sum, own + a * PIECE_STEP, first_stage + s * STAGE_STEP, a, a < RESIDENT_ATOMS - 1 ? 4 : LAST_STEPS);
            if (a == RESIDENT_ATOMS - 1) mma_norms(sum, row_units, norms);
            commit();
        }
        turn += RESIDENT_ATOMS;
        return;
    }
#pragma unroll 1
    for (int a = 0; a < atoms - 1; a++, turn++) {
        int s = turn % STAGES;
        barrier_wait(ring.full + s, turn / STAGES & 1);
        fence();
        mma_piece(sum, own + s * STAGE_STEP, first_stage + s * STAGE_STEP, a, 4);
        commit();
        if (a) {  // the previous piece has been read: its stage is free
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (lane == 0) barrier_arrive(ring.empty + (turn - 1) % STAGES);
        }
    }
    // The last piece separately: ptxas serializes wgmmas that have branches between them.
    int s = turn % STAGES;
    barrier_wait(ring.full + s, turn / STAGES & 1);
    fence();
    mma_piece(sum, own + s * STAGE_STEP, first_stage + s * STAGE_STEP, 1, LAST_STEPS);
    mma_norms(sum, row_units, norms);
    commit();
    turn++;
}

// Appends j to row i's candidates for every pair that passes; `count` goes on past `capacity`. Pairs of one group are
// left out if column_group, which goes by position like the columns, is given. There are `splits` work items a block of
// rows, each with its share of the columns. `next_item` is zero at first.
//
// SYMMETRIC: tiles are counted from the block's own, modulo those of `among`; i is appended to j's candidates as well, and only
// the row itself is left out. tile_radius is the largest radius of each tile. `half_sq_dist` gets half_norm_i - (product -
// half_norm_j) of each pair.
//
// BETWEEN_COMPONENTS: the items are `given`, so many blocks, as the tile at which the rows begin, the first tile of columns
// and the one after the last, and their component pair, whose `threshold` is added to the row's radius. By `column_group` both
// are points, of which one that is in a block again, right behind itself, only fills it up. `out` has three rows of
// `capacity`: the points of each pair and its component pair. `count` is of 64 bits; once it is above `capacity` no more items
// are started.
extern "C" __global__ void __launch_bounds__(THREADS, 1) append_survivors(
    const char* __restrict__ rows, const char* __restrict__ columns, const char* __restrict__ norm_columns, int atoms,
    int blocks, int splits, int first_tile, int last_tile, ColumnTiles among, u32 n_columns, const sum_t* __restrict__ half_norm,
    const sum_t* __restrict__ radius, const sum_t* __restrict__ tile_radius, const float* __restrict__ tile_error,
    const int* __restrict__ row_group, const int* __restrict__ column_group, int capacity, int* __restrict__ out,
    u32* __restrict__ half_sq_dist, u32* count, int* next_item, const int4* __restrict__ given,
    const sum_t* __restrict__ threshold) {
    extern __shared__ __align__(1024) char shared[];
    __shared__ __align__(8) Ring ring;
    const Memory memory(shared);
    int warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);  // uniform over the warp, as the compiler can see
    int thread = threadIdx.x & 127;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) barrier_init(ring.full + s, 1), barrier_init(ring.empty + s, WARPS);
        for (int s = 0; s < SLOTS; s++) barrier_init(ring.item_full + s, 1), barrier_init(ring.item_empty + s, CONSUMERS);
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (thread == 0)
            produce(ring, memory, rows, columns, norm_columns, atoms, blocks, splits, first_tile, last_tile, among, capacity,
                    count, next_item, given);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
    u32 turn = 0, items = 0, tiles = 0;  // stages used, items and tiles done
    int warp = thread >> 5, lane = thread & 31, g = warpgroup - 1;
    // The rows' norm columns: the units, two in a register, and zeros in fp16. The registers are made opaque to the compiler: if
    // it set them up right before a wgmma, that would wait for the previous one.
    u32 quarter = lane & 3, more = BYTES ? ~0u : 0;
    u32 unit = quarter == 0 ? 0x5c007800 : quarter == 1 ? 0x20003c00 : quarter == 2 ? 0x0400 : 0;
    if (BYTES) unit = quarter ? ~0u : 0xffff0101;
    u32 row_units[4] = {unit, unit, more, more};
    asm volatile("" : "+r"(row_units[0]), "+r"(row_units[1]), "+r"(row_units[2]), "+r"(row_units[3]));
    const char* rows_of_group =
        RESIDENT_ATOMS ? memory.resident + g / 2 * RESIDENT_ATOMS * PIECE_BYTES : memory.stages + (1 + g / 2) * PIECE_BYTES;
    const u64 own = descriptor(rows_of_group + g % 2 * (PIECE_BYTES / 2));  // the next atom, or stage, is so much further on
    const u64 first_stage = descriptor(memory.stages), first_norms = norm_descriptor(memory.norms);
    u64* queue = memory.queues + (4 * g + warp) * QUEUE;
    Survivors survivors{queue, out, half_sq_dist, count, row_group, column_group, among, capacity, lane, 0};
    for (;; items++) {
        int slot = items % SLOTS;
        barrier_wait(ring.item_full + slot, items / SLOTS & 1);
        int taken = __shfl_sync(~0u, lane ? 0 : atomicOr(ring.item + slot, 0), 0);
        if (taken >= blocks * splits) return;
        WorkItem item(taken, splits, first_tile, last_tile, given);
        u32 first_row = item.row_tile * COLUMNS + g * 64 + warp * 16, first = first_row + (lane >> 2);
        const sum_t of_pair = BETWEEN_COMPONENTS ? threshold[item.component_pair] : 0;
        const sum_t own_radius[2] = {radius[first] + of_pair, radius[first + 8] + of_pair};
        const sum_t own_norm[2] = {half_norm[first], half_norm[first + 8]};
        const float own_error = SYMMETRIC && !BYTES ? tile_error[item.row_tile + g / 2] : 0;
        for (int i = item.first; i < item.last; i++, tiles++) {
            int t = item.tile(i, among);
            u64 norms = first_norms + tiles % NORM_SLOTS * (NORM_BYTES >> 4);
            sum_t sum[64];
            form_tile(sum, ring, turn, own, first_stage, row_units, norms, atoms, lane);
            TileTest test;
            // Among all points, the pairs of offset 0 and of half the blocks, if that is whole, are formed by both blocks.
            test.for_columns = SYMMETRIC && (among.first || (i >= 2 && i / 2 * 2 != blocks));
            float worst_error = BYTES ? 0 : tile_error[t];
            sum_t of_columns = test.for_columns ? product_slack(tile_radius[t], own_error) : 0;
            if (SYMMETRIC)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    Pair pair = ((const Pair*)(radius + (u64)t * COLUMNS))[lane / 4 * 8 + lane % 4 + 4 * c];
                    test.column_slack[2 * c] = product_slack(pair.x, own_error);
                    test.column_slack[2 * c + 1] = product_slack(pair.y, own_error);
                }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                test.half_norm[r] = own_norm[r], test.row_slack[r] = product_slack(own_radius[r], worst_error);
                test.threshold[r] = own_norm[r] - max(test.row_slack[r], of_columns);
            }
            release<(RESIDENT_ATOMS ? RESIDENT_ATOMS : 2) - 1>(ring, turn - 1, lane);
            __syncwarp();
#pragma unroll
            for (int j = 0; j < 64; j++) asm volatile("" : IN_OUT(sum[j])::"memory");
            u32 any = __reduce_or_sync(~0u, test.hits(sum));
            if (!any) continue;
            u32 passed[2] = {0, 0}, reverse[2] = {0, 0};
            test.test(sum, any, lane, passed, reverse);
#pragma unroll
            for (int w = 0; w < 2; w++)
                if (any >> 4 * w & 15)
                    for (u32 rest = passed[w] | reverse[w]; __any_sync(~0u, rest); rest &= rest - 1) {
                        u32 lowest = rest & -rest, bit = __ffs(rest) - 1, row = (lane >> 2) + (bit & 2) * 4;
                        u32 in_tile = 2 * (lane & 3) + 64 * w + (bit & 28) * 2 + (bit & 1);
                        u32 column = t * COLUMNS + in_tile;
                        u32 place = row << COLUMN_BITS | (i - item.first) * COLUMNS + in_tile;
                        if (passed[w] & lowest) place |= PASSED_ROW;
                        if (reverse[w] & lowest) place |= PASSED_COLUMN;
                        bool real = rest && column < n_columns && !(SYMMETRIC && column == first_row + row);
                        sum_t half = SYMMETRIC ? (bit & 2 ? own_norm[1] : own_norm[0]) - select<32>(sum + 32 * w, bit) : 0;
                        survivors.push(real, place, half, item, first_row);
                    }
        }
        survivors.append(survivors.queued, item, first_row);
        asm volatile("bar.sync %0, 128;" ::"r"(warpgroup) : "memory");
        if (thread == 0) barrier_arrive(ring.item_empty + slot);
    }
}
