// Which pairs of a tile pass, by their products.
#pragma once

// The most by which the product of a pair within the bound of one of its points is below the sum of the half norms.
#if BYTES
__device__ __forceinline__ int product_slack(int radius, int) { return radius; }
#else
__device__ __forceinline__ float product_slack(float radius, float error) { return (radius + error) * (radius + error); }
#endif

// The test of a tile's products. A thread has sums of two rows, r and r + 8.
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
    // Sets bit j of `passed` if sum j passes for its row, and of `reverse` if it passes for its column. Sum j belongs to the first
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
