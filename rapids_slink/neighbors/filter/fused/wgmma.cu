// architectures: sm_90a
// This is the body of the fused filter for Hopper's tensor cores.
//
//     producer warp ──bulk copies──▶ ring of stages ──▶ four warpgroups, 64 rows each: wgmma, test, append
//
// A warpgroup issues all products of a tile and tests them while those of the others are formed. A test is a chain of short
// dependent steps, whose latency takes four warps per scheduler to hide.
//
// Rows of up to four atoms stay in shared memory, 256 of them. Of five to eight atoms 128 rows do, and two teams of two
// warpgroups take tiles of columns in turn: the second-level cache brings two thirds of what it would if rows came with each tile.
#define LOCAL_ROWS 2  // the rows of a thread
#include "neighbors/filter/fused/pass.cuh"
#include "neighbors/filter/fused/wgmma.cuh"

#ifndef STAGES
#define STAGES 4
#endif
constexpr int STAGE_BYTES = RESIDENT_ATOMS ? PIECE_BYTES : 3 * PIECE_BYTES;  // a piece of columns; two of rows if not resident
constexpr int TEAMS = RESIDENT_ATOMS > 4 ? 2 : 1;  // teams of warpgroups, which share a tile of columns
constexpr int BLOCK_TILES = 2 / TEAMS, BLOCK_ROWS = BLOCK_TILES * COLUMNS;  // tiles of rows, and rows
constexpr int PARTS = ROWS / (BLOCK_TILES * COLUMNS);  // the parts of a work item, one for a block
// A tile holds these stages until all its products are formed.
constexpr int HELD = RESIDENT_ATOMS == 0 ? 2 : TEAMS == 1 ? RESIDENT_ATOMS : 1;
constexpr int SLOTS = RESIDENT_ATOMS > 1 ? 1 : 2;  // work items at a time: the ring need not run dry between two
constexpr int RESIDENT_BYTES = RESIDENT_ATOMS * BLOCK_TILES * PIECE_BYTES;  // bytes of an item's rows
constexpr int CONSUMERS = 4, WARPS = 4 * CONSUMERS;  // warpgroups of 64 rows, and their warps
constexpr int THREADS = 128 * (1 + CONSUMERS);

#include "neighbors/filter/fused/ring.cuh"

// Waits until the piece before that of `turn` has been read, and frees its stage.
__device__ __forceinline__ void free_previous(Ring& ring, u32 turn, int lane) {
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (lane == 0) barrier_arrive(ring.empty + (turn - 1) % STAGES);
}

// Starts all products of 64 rows, by the descriptor `own`, with the tile that comes next in the ring; `turn` goes on.
__device__ __forceinline__ void form_tile(
    sum_t (&sum)[64], Ring& ring, u32& turn, u64 own, u64 first_stage, const sum_t* norms, int atoms, int lane) {
    constexpr int STAGE_STEP = STAGE_BYTES >> 4, PIECE_STEP = PIECE_BYTES >> 4;  // in the descriptors' units
    wait_for_stage(ring, turn);
    begin_sums(sum, norms + turn % STAGES * COLUMNS, lane);
    if (RESIDENT_ATOMS) {
        // All sums begin before the fence: otherwise ptxas adds a fence of its own, and may serialize wgmmas.
#pragma unroll
        for (int j = 0; j < 64; j++) asm volatile("" : IN_OUT(sum[j])::"memory");
#pragma unroll
        for (int a = 0; a < RESIDENT_ATOMS; a++) {
            int s = (turn + a) % STAGES;
            if (a) wait_for_stage(ring, turn + a);
            fence();
            mma_piece(sum, own + a * PIECE_STEP, first_stage + s * STAGE_STEP, a < RESIDENT_ATOMS - 1 ? 4 : LAST_STEPS);
            if (TEAMS == 1) continue;
            commit();
            if (a) free_previous(ring, turn + a, lane);
        }
        if (TEAMS == 1) commit();
        turn += RESIDENT_ATOMS;
        return;
    }
#pragma unroll 1
    for (int a = 0; a < atoms - 1; a++, turn++) {
        int s = turn % STAGES;
        wait_for_stage(ring, turn);
        fence();
        mma_piece(sum, own + s * STAGE_STEP, first_stage + s * STAGE_STEP, 4);
        commit();
        if (a) free_previous(ring, turn, lane);
    }
    // The last piece comes separately: ptxas serializes wgmmas that have branches between them.
    int s = turn % STAGES;
    wait_for_stage(ring, turn);
    fence();
    mma_piece(sum, own + s * STAGE_STEP, first_stage + s * STAGE_STEP, LAST_STEPS);
    commit();
    turn++;
}

// See pass.cuh.
extern "C" __global__ void __launch_bounds__(THREADS, 1) append_survivors(
    const char* __restrict__ rows, const char* __restrict__ columns, const sum_t* __restrict__ column_norm, int atoms,
    const int4* __restrict__ given, int items, u32 n_columns, const sum_t* __restrict__ half_norm,
    const radius_t* __restrict__ radius, const radius_t* __restrict__ tile_radius, const float* __restrict__ tile_error,
    const int* __restrict__ row_group, const int* __restrict__ column_group, int capacity, int* __restrict__ out,
    u32* __restrict__ half_sq_dist, u32* count, int* next_item,
    const float* __restrict__ threshold, const PairTable pairs, const LocalTerms local) {
    extern __shared__ __align__(1024) char shared[];
    __shared__ __align__(8) Ring ring;
    const Memory memory(shared);
    int warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);  // uniform over the warp, as the compiler can see
    int thread = threadIdx.x & 127;
    if (threadIdx.x == 0) {
        ring.begun = 0;
        for (int s = 0; s < STAGES; s++) barrier_init(ring.full + s, 1), barrier_init(ring.empty + s, WARPS / TEAMS);
        for (int s = 0; s < SLOTS; s++) barrier_init(ring.item_full + s, 1), barrier_init(ring.item_empty + s, CONSUMERS);
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (thread == 0)
            produce(ring, memory, rows, columns, column_norm, atoms, given, items, n_columns, capacity, count,
                    next_item, local);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
    u32 turn = 0, done = 0;  // stages used, items done
    int warp = thread >> 5, lane = thread & 31, g = (warpgroup - 1) % (2 * BLOCK_TILES), team = (warpgroup - 1) / (2 * BLOCK_TILES);
    const char* rows_of_group =
        RESIDENT_ATOMS ? memory.resident + g / 2 * RESIDENT_ATOMS * PIECE_BYTES : memory.stages + (1 + g / 2) * PIECE_BYTES;
    const u64 own = descriptor(rows_of_group + g % 2 * (PIECE_BYTES / 2));  // the next atom, or stage, is so much further on
    const u64 first_stage = descriptor(memory.stages);
    u64* queue = memory.queues + (4 * (warpgroup - 1) + warp) * QUEUE;
    Survivors survivors{queue, out, half_sq_dist, count, row_group, column_group, radius, tile_error,
                        threshold, pairs, capacity, lane, 0, 0, 0};
    for (;; done++) {
        int slot = done % SLOTS;
        barrier_wait(ring.item_full + slot, done / SLOTS & 1);
        int taken = __shfl_sync(~0u, lane ? 0 : atomicOr(ring.item + slot, 0), 0);
        if (taken >= items * PARTS) return;
        WorkItem item(given[taken / PARTS], n_columns, local);
        Strip strip;
        survivors.first_row = (item.row_tile + taken % PARTS * BLOCK_TILES) * COLUMNS + g * 64 + warp * 16;
        strip.load(survivors.first_row, lane, half_norm, radius, tile_error, BETWEEN_COMPONENTS ? threshold[item.more] : 0,
                   threshold);
        u32 ended = turn + max(item.last - item.first, 0) * RESIDENT_ATOMS;  // the turn after the item, if rows are resident
        turn += team * RESIDENT_ATOMS;
        for (int i = item.first + team; i < item.last; i += TEAMS) {
            int t = item.tile(i);
            TileTerms tile;  // read ahead of the products, since memory takes its time
            tile.load(t, lane, radius, tile_radius, tile_error);
            sum_t sum[64];
            form_tile(sum, ring, turn, own + slot * (RESIDENT_BYTES >> 4), first_stage, memory.norms, atoms, lane);
            if (LOCAL) tile.load_thresholds(memory.thresholds + (turn - 1) % STAGES * BLOCK_ROWS + g * 64 + warp * 16, lane);
            TileTest test = strip.test_of(tile, item.for_columns(t), threshold);
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (lane == 0)  // the stages that are not free yet
                for (u32 s = turn - HELD; s != turn; s++) barrier_arrive(ring.empty + s % STAGES);
            __syncwarp();
#pragma unroll
            for (int j = 0; j < 64; j++) asm volatile("" : IN_OUT(sum[j])::"memory");
            push_passing(sum, test, strip, survivors, item, i, t, n_columns);
            turn += (TEAMS - 1) * RESIDENT_ATOMS;
        }
        if (RESIDENT_ATOMS) turn = ended;
        survivors.append(survivors.queued, item);
        survivors.add_sure();
        asm volatile("bar.sync %0, 128;" ::"r"(warpgroup) : "memory");
        if (thread == 0) barrier_arrive(ring.item_empty + slot);
    }
}
