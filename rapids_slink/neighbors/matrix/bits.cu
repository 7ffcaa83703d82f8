// The counts of common ones of all pairs of rows of bits.
#define INT8 1
#define BITS 1
#include "neighbors/filter/fused/pass.cuh"
#include "neighbors/filter/fused/mma.cuh"

constexpr int THREADS = 128, STAGES = 2;        // of a block, each of whose warps has 32 rows of a tile of 128 by 128
constexpr int STAGE_BYTES = 2 * PIECE_BYTES;    // a piece of rows, and one of points
constexpr int PITCH = COLUMNS + 2;              // of the tile's counts in shared memory: columns are in different banks

// out[i * pitch + j] for a tile of rows and one of points. If `symmetric` the rows are the points: then tiles below the diagonal
// are left to their mirror images. Pitches are even.
extern "C" __global__ void __launch_bounds__(THREADS, 3) put_counts(
    const char* __restrict__ rows, int n_rows, const char* __restrict__ points, int n_points, int atoms, bool symmetric,
    long long pitch, unsigned short* __restrict__ out) {
    extern __shared__ __align__(1024) char memory[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row_tile = blockIdx.y, tile = blockIdx.x;
    if (symmetric && tile < row_tile) return;
    auto load = [&](int a) {
        if (a < atoms) {
            char* stage = memory + a % STAGES * STAGE_BYTES;
            for (int b = threadIdx.x * 16; b < PIECE_BYTES; b += THREADS * 16) {
                copy<16>(stage + b, rows + ((u64)row_tile * atoms + a) * PIECE_BYTES + b);
                copy<16>(stage + PIECE_BYTES + b, points + ((u64)tile * atoms + a) * PIECE_BYTES + b);
            }
        }
        commit_copies();
    };
    sum_t sum[2][64] = {};
    load(0);
    for (int a = 0; a < atoms; a++) {
        load(a + 1);
        wait_for_copies<1>();
        __syncthreads();
        u32 stage = shared_address(memory + a % STAGES * STAGE_BYTES);
        mma_piece<false>(sum, nullptr, stage, warp * 32, stage + PIECE_BYTES, 4, lane);
        __syncthreads();
    }
    unsigned short* counts = (unsigned short*)memory;
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int j = 0; j < 64; j += 2) {  // two columns; see TileTest
            int row = warp * 32 + 16 * s + lane / 4 + (j & 2) * 4, column = 2 * (lane % 4) + j / 4 * 8;
            *(u32*)(counts + row * PITCH + column) = sum[s][j] | sum[s][j + 1] << 16;
        }
    __syncthreads();
    int first_row = row_tile * COLUMNS, first_point = tile * COLUMNS;
    for (int r = warp; r < COLUMNS && first_row + r < n_rows; r += THREADS / 32)
        for (int c = 2 * lane; c < COLUMNS && first_point + c < pitch; c += 64)
            *(u32*)(out + (first_row + r) * pitch + first_point + c) = *(u32*)(counts + r * PITCH + c);
    if (!symmetric || tile == row_tile) return;
    for (int c = warp; c < COLUMNS && first_point + c < n_points; c += THREADS / 32)
        for (int r = 2 * lane; r < COLUMNS && first_row + r < pitch; r += 64)
            *(u32*)(out + (first_point + c) * pitch + first_row + r) = counts[r * PITCH + c] | counts[(r + 1) * PITCH + c] << 16;
}
