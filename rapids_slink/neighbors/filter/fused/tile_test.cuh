// Which pairs of a tile pass, by their products.
#pragma once

// The test of a tile's products. A thread has sums of two rows, r and r + 8.
struct TileTest {
    sum_t half_norm[2], row_slack[2];  // of the two rows
    sum_t threshold[2];                // below it no pair of the row passes for either of its points
    radius_t column_radius[4];         // lane 4u + q has those of columns 16u + 2q, + 1, + 8 and + 9

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
    // Sets bit j of `passed` if sum j passes for its row or its column. Sum j belongs to the first row or, if j has the bit 2, to
    // the other, and to column 8 (j / 4) + (j & 1) of this thread's. `any`: the warp's hits.
    __device__ __forceinline__ void test(const sum_t (&sum)[64], u32 any, float error, int lane, u32 (&passed)[2]) const {
        sum_t column_slack[4];
#pragma unroll
        for (int c = 0; c < 4; c++) column_slack[c] = SYMMETRIC ? product_slack(column_radius[c], error) : 0;
#pragma unroll
        for (int j = 0; j < 64; j += 8)
            if (any >> j / 8 & 1) {
                sum_t near[8];
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    sum_t back = SYMMETRIC ? __shfl_sync(~0u, column_slack[c], j / 2 + lane % 4) : 0;
                    for (int r = 0; r < 2; r++)
                        near[c / 2 * 4 + 2 * r + c % 2] = half_norm[r] - (SYMMETRIC ? max(row_slack[r], back) : row_slack[r]);
                }
#pragma unroll
                for (int q = 0; q < 8; q++)
                    if (sum[j + q] >= near[q]) passed[j / 32] |= 1u << (j + q) % 32;
            }
    }
};

struct __align__(2 * sizeof(radius_t)) TwoRadii {
    radius_t first, second;
};

// Sixteen rows of a warp and what their pairs are tested by.
struct Strip {
    u32 first_row;
    radius_t radius[2];
    float error;  // of this thread's two rows; SYMMETRIC: the largest error of the rows' tile
    sum_t half_norm[2];

    __device__ __forceinline__ void load(
        u32 first, int lane, const sum_t* norms, const radius_t* radii, const float* tile_error, float more) {
        first_row = first;
        for (int r = 0; r < 2; r++)
            radius[r] = radii[first + (lane >> 2) + 8 * r], half_norm[r] = -norms[first + (lane >> 2) + 8 * r];
#if BETWEEN_COMPONENTS
        for (int r = 0; r < 2; r++) radius[r] += more;
#endif
        error = SYMMETRIC ? tile_error[first / COLUMNS] : 0;
    }
    // The test with tile t, whose radii and errors are at `radii`, `tile_radius` and `tile_error`. BY_TILE: `threshold` has what
    // is added to the radii of `threshold_rows`, tile by tile.
    __device__ __forceinline__ TileTest test_of(
        int t, bool for_columns, int lane, const radius_t* radii, const radius_t* tile_radius, const float* tile_error,
        const float* threshold, RowRange threshold_rows) const {
        TileTest test;
        sum_t of_columns = product_slack(SYMMETRIC && for_columns ? tile_radius[t] : no_radius(error), error);
        if (SYMMETRIC)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                TwoRadii two = ((const TwoRadii*)(radii + (u64)t * COLUMNS))[lane / 4 * 8 + lane % 4 + 4 * c];
                test.column_radius[2 * c] = for_columns ? two.first : no_radius(error);
                test.column_radius[2 * c + 1] = for_columns ? two.second : no_radius(error);
            }
        float worst_error = tile_error[t];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            radius_t own = radius[r];
#if BY_TILE
            own += threshold[(u64)t * threshold_rows.n + (first_row - threshold_rows.first) + (lane >> 2) + 8 * r];
#endif
            test.half_norm[r] = half_norm[r], test.row_slack[r] = product_slack(own, worst_error);
            test.threshold[r] = half_norm[r] - max(test.row_slack[r], of_columns);
        }
        return test;
    }
};

// Queues the pairs of a strip and tile t, the i-th of its work item, that pass.
__device__ __forceinline__ void push_passing(
    const sum_t (&sum)[64], const TileTest& test, const Strip& strip, Survivors& survivors, const WorkItem& item, int i, int t,
    bool for_columns, u32 n_columns) {
    int lane = survivors.lane;
    u32 any = warp_or(test.hits(sum));
    if (!any) return;
    u32 passed[2] = {0, 0};
    test.test(sum, any, strip.error, lane, passed);
#pragma unroll
    for (int w = 0; w < 2; w++)
        if (any >> 4 * w & 15)
            for (u32 rest = passed[w]; __any_sync(~0u, rest); rest &= rest - 1) {
                u32 bit = __ffs(rest) - 1, row = (lane >> 2) + (bit & 2) * 4;
                u32 in_tile = 2 * (lane & 3) + 64 * w + (bit & 28) * 2 + (bit & 1);
                u32 column = t * COLUMNS + in_tile, in_warp = strip.first_row - survivors.first_row + row;
                u32 place = (u32)for_columns << 30 | in_warp << COLUMN_BITS | (i - item.first) * COLUMNS + in_tile;
                bool real = rest && column < n_columns && !(SYMMETRIC && column == strip.first_row + row);
                sum_t half_norm = bit & 2 ? strip.half_norm[1] : strip.half_norm[0];
                survivors.push(real, place, SYMMETRIC ? half_norm - select<32>(sum + 32 * w, bit) : 0, item);
            }
}
