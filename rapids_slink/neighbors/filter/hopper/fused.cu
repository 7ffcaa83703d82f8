// architectures: sm_90a
// The fused filter on Hopper's tensor cores: the product of two fp16 images is tested tile by tile in registers
// and never written. bounds.py derives the test; here error_j is replaced by the largest of its tile of columns, E, and a
// few more features, the norm columns, have the tensor cores mma_norms half_norm_j, in units of 2^15, 2^8, 1, 2^-7 and 2^-14:
//     product - half_norm_j >= half_norm_i - (radius_i + E)^2.
//
//     producer warp ──bulk copies──▶ ring of stages ──▶ four warpgroups, 64 rows each: wgmma, test, append
//
// The rows of the product are the rows that search, its columns the points that they search among.
//
// An image holds tiles of 128 rows; a tile is `atoms` pieces of 64 features, a piece 128 rows of 128 bytes, the
// eight 16-byte chunks of row r stored at chunk ^ (r & 7): the 128-byte swizzle that wgmma's descriptors expect, so that
// a plain bulk copy brings it into place. A tile's norm columns are 128 rows of 16 features in the 32-byte swizzle,
// chunk ^ (r / 4 & 1); for the columns they hold the parts of the norm, for the rows their units, which are the same for all
// and stay in registers. A work item is 256 rows and a range of column tiles.
//
// RESIDENT_ATOMS is the number of atoms, if the rows' pieces fit into shared memory and stay there; with 0 a stage
// carries a piece of the rows as well. A warpgroup hands the tensor cores all of a tile's products and tests them while
// the others' are formed. A test is a chain of short dependent steps: it takes four warps a scheduler to hide them.
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
// BETWEEN_COMPONENTS: the work items are given, 256 rows and a range of tiles, of which pairs are wanted that are no farther
// apart than their component pair's threshold.
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

// How far below its two half norms a pair's product may be, for one of its points.
#if BYTES
__device__ __forceinline__ int product_slack(int radius, int) { return radius; }
#else
__device__ __forceinline__ float product_slack(float radius, float error) { return (radius + error) * (radius + error); }
#endif

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

// Invariant: stage s is written only between empty[s] and full[s], and read only between full[s] and empty[s]; likewise work
// items. Items are written and read as atomics only for `racecheck`, which does not follow barriers in PTX.
struct Ring {
    u64 full[STAGES], empty[STAGES], item_full[SLOTS], item_empty[SLOTS];
    int item[SLOTS];
};

// Releases the last LATER + 1 stages up to `last`, each once this warp's products of it are formed.
template <int LATER>
__device__ __forceinline__ void release(Ring& ring, u32 last, int lane) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
    if (lane == 0) barrier_arrive(ring.empty + (last - LATER) % STAGES);
    if constexpr (LATER > 0) release<LATER - 1>(ring, last, lane);
}

#include "neighbors/filter/hopper/survivors.cuh"

// Shared memory: the rows' pieces if they are resident, the ring of stages, that of norm columns, the warps' queues.
struct Memory {
    char *resident, *stages, *norms;
    u64* queues;
    __device__ Memory(char* begin)
        : resident(begin), stages(begin + RESIDENT_ATOMS * 2 * PIECE_BYTES), norms(stages + STAGES * STAGE_BYTES),
          queues((u64*)(norms + NORM_SLOTS * NORM_BYTES)) {
        // The swizzle goes by an address's lower bits, which the descriptors leave out. The compiler takes them to be zero, as
        // declared, and would drop the test: hence an address that it knows nothing of.
        u32 address = shared_address(begin);
        asm volatile("" : "+r"(address));
        if (address % 1024) __trap();
    }
};

// Copies the pieces of every work item's tiles into the ring, by one thread. It begins with the item of the block's own
// number; the others go to whichever block is ready, counted by `next_item`.
__device__ __forceinline__ void produce(
    Ring& ring, const Memory& memory, const char* rows, const char* columns, const char* norm_columns, int atoms, int blocks,
    int splits, int first_tile, int last_tile, ColumnTiles among, int capacity, const u32* count, int* next_item,
    const int4* given) {
    u32 turn = 0, items = 0, tiles = 0;  // stages used, items and tiles done
    for (int i = blockIdx.x;; i = gridDim.x + atomicAdd(next_item, 1), items++) {
        int slot = items % SLOTS;
        if (items >= SLOTS) barrier_wait(ring.item_empty + slot, (items / SLOTS + 1) & 1);
        if (BETWEEN_COMPONENTS && *(volatile u64*)count > capacity) i = blocks * splits;
        atomicExch(ring.item + slot, i);
        bool done = i >= blocks * splits;
        barrier_expect(ring.item_full + slot, RESIDENT_ATOMS && !done ? 2 * atoms * PIECE_BYTES : 0);
        if (done) return;
        WorkItem item(i, splits, first_tile, last_tile, given);
        const char* own = rows + (u64)item.row_tile * atoms * PIECE_BYTES;
        if (RESIDENT_ATOMS) bulk_copy(memory.resident, own, 2 * atoms * PIECE_BYTES, ring.item_full + slot);
        for (int i = item.first; i < item.last; i++, tiles++) {
            u64 t = item.tile(i, among);
            for (int a = 0; a < atoms; a++, turn++) {
                int s = turn % STAGES;
                char *stage = memory.stages + s * STAGE_BYTES, *norms = memory.norms + tiles % NORM_SLOTS * NORM_BYTES;
                bool last = a == atoms - 1;  // a tile's last stage brings the norm columns
                if (turn >= STAGES) barrier_wait(ring.empty + s, (turn / STAGES + 1) & 1);
                barrier_expect(ring.full + s, STAGE_BYTES + (last ? NORM_BYTES : 0));
                bulk_copy(stage, columns + (t * atoms + a) * PIECE_BYTES, PIECE_BYTES, ring.full + s);
                if (last) bulk_copy(norms, norm_columns + t * NORM_BYTES, NORM_BYTES, ring.full + s);
                if (!RESIDENT_ATOMS)
                    for (int g = 0; g < 2; g++) {
                        const char* piece = own + (g * atoms + a) * PIECE_BYTES;
                        bulk_copy(stage + (1 + g) * PIECE_BYTES, piece, PIECE_BYTES, ring.full + s);
                    }
            }
        }
    }
}

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
        if (a) {  // the piece before has been read by now: its stage is free
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (lane == 0) barrier_arrive(ring.empty + (turn - 1) % STAGES);
        }
    }
    // The last on its own: ptxas makes wgmmas wait for each other if there are branches between them.
    int s = turn % STAGES;
    barrier_wait(ring.full + s, turn / STAGES & 1);
    fence();
    mma_piece(sum, own + s * STAGE_STEP, first_stage + s * STAGE_STEP, 1, LAST_STEPS);
    mma_norms(sum, row_units, norms);
    commit();
    turn++;
}

// The test of a tile's products. A thread's sums belong to two rows, eight apart.
struct TileTest {
    sum_t half_norm[2], row_slack[2];  // of the two rows
    sum_t threshold[2];                // below it no pair of the row passes for either of its points
    sum_t column_slack[4];             // lane 4u + q has those of columns 16u + 2q, + 1, + 8 and + 9
    bool for_columns;                  // whether a pair is tested for its column, too

    // A bit for each 16 columns in which a lane has a hit: only those are looked at one by one.
    __device__ __forceinline__ u32 hits(const sum_t (&sum)[64]) const {
        u32 hit = 0;
#pragma unroll
        for (int j = 0; j < 64; j += 8) {
            bool passes = max(max(sum[j], sum[j + 1]), max(sum[j + 4], sum[j + 5])) >= threshold[0];
            passes |= max(max(sum[j + 2], sum[j + 3]), max(sum[j + 6], sum[j + 7])) >= threshold[1];
            if (passes) hit |= 1u << j / 8;
        }
        return hit;
    }
    // Bit j of the two words: sum j passes for the row's sake or, in `reverse`, for the column's. It belongs to the first
    // row or, if j has the bit 2, to the other, and to column 8 (j / 4) + (j & 1) of this thread's. `any`: the warp's hits.
    __device__ __forceinline__ void test(
        const sum_t (&sum)[64], u32 any, int lane, u32 (&passed)[2], u32 (&reverse)[2]) const {
#pragma unroll
        for (int j = 0; j < 64; j += 8)
            if (any >> j / 8 & 1) {
                sum_t back[4];
                if (SYMMETRIC)
#pragma unroll
                    for (int c = 0; c < 4; c++) back[c] = __shfl_sync(~0u, column_slack[c], j / 2 + lane % 4);
#pragma unroll
                for (int q = 0; q < 8; q++) {
                    int r = q / 2 % 2;
                    u32 bit = 1u << (j + q) % 32;
                    sum_t near = SYMMETRIC ? half_norm[r] - row_slack[r] : threshold[r];
                    if (sum[j + q] >= near) passed[j / 32] |= bit;
                    if (for_columns && sum[j + q] >= half_norm[r] - back[q / 4 * 2 + q % 2]) reverse[j / 32] |= bit;
                }
            }
    }
};

// Appends j to row i's candidates for every pair that passes; `count` goes on past `capacity`. Pairs of one group are
// left out if column_group, which goes by position like the columns, is given. There are `splits` work items a block of
// rows, each with its share of the columns. `next_item` is zero at first.
//
// SYMMETRIC: tiles are counted from the block's own on among those of `among`, i is appended to j's candidates as well, and only
// the row itself is left out. tile_radius is the largest radius of each tile. `half_sq_dist` gets half_norm_i - (product - half_norm_j) of each.
//
// BETWEEN_COMPONENTS: the items are `given`, so many blocks, as the tile at which the rows begin, the first tile of columns
// and the one after the last, and their component pair, whose `threshold` is added to the row's radius. By `column_group` both
// are points, of which one that is in a block again, right behind itself, only fills it up. `out` has three rows of
// `capacity`: the points of each pair and its component pair. `count` is of 64 bits; once it is above `capacity` no more items
// are begun.
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
    int warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);  // by which the compiler sees that it is the whole warp's
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
    // The rows' norm columns: the units, two in a register, and zeros in fp16. Four registers that the compiler knows nothing
    // of: what it put together right before a wgmma would have to wait for the one before.
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
            // Among all points both blocks see all pairs of offset 0 and, if it exists, half way around.
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
