// Which pairs of a tile pass, by their products.
#pragma once

// The most by which the product of a pair within the bound of one of its points is below the sum of the half norms. Of integers
// it is rounded down, which loses none; and all pairs pass at 2^30, except those of padding: see PADDING_NORM in quantize.cu.
__device__ __forceinline__ sum_t product_slack(radius_t radius, float error) {
#if BITS
    return -(int)ceilf(fminf(radius.at(error), 0x1p28f));
#else
    float slack = (radius + error) * (radius + error);
#if INT8
    return (int)fminf(slack, 0x1p30f);
#else
    return slack;
#endif
#endif
}

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
            radius[r] = radii[first + (lane >> 2) + 8 * r], half_norm[r] = norms[first + (lane >> 2) + 8 * r];
#if BETWEEN_COMPONENTS
        for (int r = 0; r < 2; r++) radius[r] += more;
#endif
        error = SYMMETRIC ? tile_error[first / COLUMNS] : 0;
    }
    // The test with tile t, whose radii and errors are at `radii`, `tile_radius` and `tile_error`.
    __device__ __forceinline__ TileTest test_of(
        int t, bool for_columns, int lane, const radius_t* radii, const radius_t* tile_radius, const float* tile_error) const {
        TileTest test;
        test.for_columns = SYMMETRIC && for_columns;
        sum_t of_columns = test.for_columns ? product_slack(tile_radius[t], error) : (sum_t)-0x1p30f;
        if (SYMMETRIC)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                TwoRadii two = ((const TwoRadii*)(radii + (u64)t * COLUMNS))[lane / 4 * 8 + lane % 4 + 4 * c];
                test.column_slack[2 * c] = product_slack(two.first, error);
                test.column_slack[2 * c + 1] = product_slack(two.second, error);
            }
        float worst_error = tile_error[t];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            test.half_norm[r] = half_norm[r], test.row_slack[r] = product_slack(radius[r], worst_error);
            test.threshold[r] = half_norm[r] - max(test.row_slack[r], of_columns);
        }
        return test;
    }
};

// Queues the pairs of a strip and tile t, the i-th of its work item, that pass.
__device__ __forceinline__ void push_passing(
    const sum_t (&sum)[64], const TileTest& test, const Strip& strip, Survivors& survivors, const WorkItem& item, int i, int t,
    u32 n_columns) {
    int lane = survivors.lane;
    u32 any = warp_or(test.hits(sum));
    if (!any) return;
    u32 passed[2] = {0, 0}, reverse[2] = {0, 0};
    test.test(sum, any, lane, passed, reverse);
#pragma unroll
    for (int w = 0; w < 2; w++)
        if (any >> 4 * w & 15)
            for (u32 rest = passed[w] | reverse[w]; __any_sync(~0u, rest); rest &= rest - 1) {
                u32 lowest = rest & -rest, bit = __ffs(rest) - 1, row = (lane >> 2) + (bit & 2) * 4;
                u32 in_tile = 2 * (lane & 3) + 64 * w + (bit & 28) * 2 + (bit & 1);
                u32 column = t * COLUMNS + in_tile;
                u32 in_warp = strip.first_row - survivors.first_row + row;
                u32 place = in_warp << COLUMN_BITS | (i - item.first) * COLUMNS + in_tile;
                if (passed[w] & lowest) place |= PASSED_ROW;
                if (reverse[w] & lowest) place |= PASSED_COLUMN;
                bool real = rest && column < n_columns && !(SYMMETRIC && column == strip.first_row + row);
                sum_t half = SYMMETRIC ? strip.half_norm[bit >> 1 & 1] - select<32>(sum + 32 * w, bit) : 0;
                survivors.push(real, place, half, item);
            }
}
