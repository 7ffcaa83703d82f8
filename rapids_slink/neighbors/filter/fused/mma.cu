// This is the body of the fused filter for all GPUs, by mma.sync.
//
// A block of WARPS warps has 32 rows a warp, and all warps copy the pieces that come next into a ring of STAGES stages while
// they form the products of one. Two blocks share a multiprocessor, so that one tests while the other multiplies. Where there
// is room for one stage alone, products wait for its pieces.
#include "neighbors/filter/fused/pass.cuh"
#include "neighbors/filter/fused/mma.cuh"

#ifndef WARPS
#define WARPS 4
#define STAGES 3
#endif
constexpr int THREADS = 32 * WARPS, BLOCKS = 8 / WARPS;  // BLOCKS of THREADS fit on a multiprocessor
constexpr int BLOCK_TILES = WARPS * 32 / COLUMNS;        // tiles of rows
constexpr int STAGE_PIECES = RESIDENT_ATOMS ? 1 : 1 + BLOCK_TILES;  // the columns' first, then the rows' if not resident
constexpr int AHEAD = STAGES - 1;  // stages that are copied while the products of another are formed

template <int BYTES> __device__ __forceinline__ void copy_bytes(char* to, const char* from) {
    int own = threadIdx.x * 16;
    if (BYTES < THREADS * 16 && own >= BYTES) return;
#pragma unroll
    for (int b = 0; b < BYTES; b += THREADS * 16) copy<16>(to + own + b, from + own + b);
}

// See pass.cuh.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) append_survivors(
    const char* __restrict__ rows, const char* __restrict__ columns, const sum_t* __restrict__ column_norm, int atoms,
    const int4* __restrict__ given, int items, u32 n_columns, const sum_t* __restrict__ half_norm,
    const radius_t* __restrict__ radius, const radius_t* __restrict__ tile_radius, const float* __restrict__ tile_error,
    const int* __restrict__ row_group, const int* __restrict__ column_group, int capacity, int* __restrict__ out,
    u32* __restrict__ half_sq_dist, u32* count, int* next_item,
    const float* __restrict__ threshold, const PairTable pairs, const LocalTerms local) {
    extern __shared__ __align__(128) char shared[];
    constexpr int STAGE_BYTES = STAGE_PIECES * PIECE_BYTES + NORM_BYTES, PARTS = ROWS / (BLOCK_TILES * COLUMNS);
    char *resident = shared, *stages = shared + RESIDENT_ATOMS * BLOCK_TILES * PIECE_BYTES;
    __shared__ u64 queues[WARPS][QUEUE];
    __shared__ int next;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Survivors survivors{queues[warp], out, half_sq_dist, count, row_group, column_group, radius, tile_error,
                        threshold, pairs, capacity, lane, 0, 0, 0};
    for (int taken = blockIdx.x; taken < items * PARTS; taken = next) {
        WorkItem item(given[taken / PARTS], n_columns, local);
        const sum_t* norms = LOCAL ? (const sum_t*)local.begin + (u64)local.row_cell[item.row_tile] * local.columns : column_norm;
        int row_tile = item.row_tile + taken % PARTS * BLOCK_TILES;
        survivors.first_row = row_tile * COLUMNS + warp * 32;
        Strip strips[2];
#pragma unroll
        for (int s = 0; s < 2; s++)
            strips[s].load(survivors.first_row + 16 * s, lane, half_norm, radius, tile_error,
                           BETWEEN_COMPONENTS ? threshold[item.more] : 0, threshold);
        const char* own = rows + (u64)row_tile * atoms * PIECE_BYTES;
        if (RESIDENT_ATOMS) copy_bytes<RESIDENT_ATOMS * BLOCK_TILES * PIECE_BYTES>(resident, own);
        int turns = (item.last - item.first) * atoms, loaded = 0, atom_loaded = 0, number = item.first;
        auto load = [&] {  // the piece, or pieces, that come next
            if (loaded < turns) {
                char* stage = stages + loaded % STAGES * STAGE_BYTES;
                u64 t = item.tile(number);
                copy_bytes<PIECE_BYTES>(stage, columns + (t * atoms + atom_loaded) * PIECE_BYTES);
                if (!RESIDENT_ATOMS)
                    for (int g = 0; g < BLOCK_TILES; g++)
                        copy_bytes<PIECE_BYTES>(stage + (1 + g) * PIECE_BYTES, own + (g * atoms + atom_loaded) * PIECE_BYTES);
                if (!atom_loaded) copy_bytes<NORM_BYTES>(stage + STAGE_PIECES * PIECE_BYTES, (const char*)(norms + t * COLUMNS));
                if (++atom_loaded == atoms) atom_loaded = 0, number++;
            }
            loaded++;
            commit_copies();
        };
        for (int s = 0; s < AHEAD; s++) load();
        int turn = 0;
        for (int i = item.first; i < item.last; i++) {
            int t = item.tile(i);
            sum_t sum[2][64];
            for (int a = 0; a < (RESIDENT_ATOMS ? RESIDENT_ATOMS : atoms); a++, turn++) {
                wait_for_copies<AHEAD ? AHEAD - 1 : 0>();
                __syncthreads();
                load();
                if (!AHEAD) wait_for_copies<0>(), __syncthreads();
                const char* stage = stages + turn % STAGES * STAGE_BYTES;
                int tile = warp * 32 / COLUMNS, row = warp * 32 % COLUMNS;
                const char* piece = RESIDENT_ATOMS ? resident + (tile * atoms + a) * PIECE_BYTES : stage + (1 + tile) * PIECE_BYTES;
                u32 own_rows = shared_address(piece), tile_columns = shared_address(stage);
                const Pair* begins = (const Pair*)(stage + STAGE_PIECES * PIECE_BYTES);
                int steps = RESIDENT_ATOMS || a == atoms - 1 ? LAST_STEPS : 4;
                if (a) mma_piece<false>(sum, begins, own_rows, row, tile_columns, steps, lane);
                else mma_piece<true>(sum, begins, own_rows, row, tile_columns, steps, lane);
            }
            TileTerms tile;
            tile.load(t, lane, radius, tile_radius, tile_error);
            if (LOCAL) tile.load_thresholds(local.thresholds(t, survivors.first_row), lane);
            bool both = item.for_columns(t);
#pragma unroll
            for (int s = 0; s < 2; s++) {
                TileTest test = strips[s].test_of(tile, both, threshold, s);
                push_passing(sum[s], test, strips[s], survivors, item, i, t, n_columns);
            }
        }
        survivors.append(survivors.queued, item);
        survivors.add_sure();
        wait_for_copies<0>();
        __syncthreads();
        if (threadIdx.x == 0) {
            bool full = BETWEEN_COMPONENTS && *(volatile u64*)count > capacity;
            next = full ? items * PARTS : gridDim.x + atomicAdd(next_item, 1);
        }
        __syncthreads();
    }
}
