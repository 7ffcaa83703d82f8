// Products of queries and points on tensor cores.
#pragma once
#include "neighbors/filter/fp16.cuh"
#include "neighbors/filter/tensor_cores.cuh"
#include "neighbors/small_batch/sizes.cuh"
#include "runtime/include/copies.cuh"

struct Stage {
    u16 y[TILE][PITCH];
    Query query[TILE];  // of the tile that the stage belongs to
};

// The ring of stages through which a block's share of the queries is copied, by tiles and by chunks of features.
struct QueryRing {
    Stage* stage;
    const u16* y;
    const Query* rows;
    int first_tile, tiles, steps, chunks;
    int tile, chunk = 0, started = 0;  // what is copied next

    // Starts the copy of the next chunk, if there is one.
    __device__ __forceinline__ void load() {
        constexpr int VECTORS = STEPS * STEP / 8, ROW_STEP = THREADS / VECTORS;  // of 16 bytes in a row; rows of a thread
        int own_row = threadIdx.x / VECTORS, vector = threadIdx.x % VECTORS, width = steps * STEP;
        if (started < tiles * chunks) {
            Stage& to = stage[started % PIPELINE_STAGES];
            int row = (first_tile + tile) * TILE, step = chunk * STEPS;
            const u16* from = y + (size_t)(row + own_row) * width + step * STEP + vector * 8;
            if (vector < (steps - step) * STEP / 8)
#pragma unroll
                for (int r = 0; r < TILE; r += ROW_STEP) copy<16>(&to.y[own_row + r][vector * 8], from + r * width);
            if (++chunk == chunks) {
                if (threadIdx.x < TILE) copy<16>(&to.query[threadIdx.x], rows + row + threadIdx.x);
                chunk = 0;
                if (++tile == tiles) tile = 0;
            }
        }
        started++;
        commit_copies();
    }
};

// A warp's products of 64 queries and 32 points, less the points' half norms: 4 x 4 fragments of 16 queries and 8 points, of
// which a thread has rows `lane / 4` and `lane / 4 + 8`, points `lane % 4 * 2` and the next.
struct Sums {
    float sum[4][4][4];
    __device__ __forceinline__ void start(const float* from) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 two = *(const float2*)&from[j * 8];
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i][j][0] = sum[i][j][2] = two.x, sum[i][j][1] = sum[i][j][3] = two.y;
        }
    }
    __device__ __forceinline__ void add_step(unsigned queries, unsigned points, int pitch) {
        unsigned a[4][4], b[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) load_matrices(a[i], queries + i * 16 * PITCH * 2);
#pragma unroll
        for (int j = 0; j < 2; j++) load_matrices(b[j], points + j * 16 * pitch * 2);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma_tile(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], sum[i][j]);
    }
    __device__ __forceinline__ float largest(int i, int half) const {
        float most = -PADDING_NORM;
#pragma unroll
        for (int j = 0; j < 4; j++) most = fmaxf(most, fmaxf(sum[i][j][half * 2], sum[i][j][half * 2 + 1]));
        return most;
    }
};
