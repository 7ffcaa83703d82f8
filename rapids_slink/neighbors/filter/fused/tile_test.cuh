// Which pairs of a tile pass, by their products.
#pragma once

struct __align__(2 * sizeof(radius_t)) TwoRadii {
    radius_t first, second;
};

#ifndef LOCAL_ROWS
#define LOCAL_ROWS 4
#endif

// The test reads this of a tile of points.
struct TileTerms {
    float error;              // the largest of the tile's
    radius_t largest_radius;  // the largest of these; COUNT: the largest half norm
    TwoRadii radius[2];       // lane 4u + q has those of columns 16u + 2q, + 1, and + 8, + 9
    float threshold[LOCAL_ROWS];  // LOCAL: of this thread's rows, eight apart
    __device__ __forceinline__ void load(
        int t, int lane, const radius_t* radii, const radius_t* tile_radius, const float* tile_error) {
        if (LOCAL) return;
        error = tile_error[t];
        if (SYMMETRIC || COUNT) largest_radius = tile_radius[t];
        if (!SYMMETRIC) return;
        const TwoRadii* two = (const TwoRadii*)(radii + (u64)t * COLUMNS) + lane / 4 * 8 + lane % 4;
        radius[0] = two[0], radius[1] = two[4];
    }
    // Loads the thresholds of a warp's rows, by the cell of the tile.
    __device__ __forceinline__ void load_thresholds(const float* of_warp, int lane) {
#pragma unroll
        for (int r = 0; r < LOCAL_ROWS; r++) threshold[r] = of_warp[8 * r + (lane >> 2)];
    }
};

// This tests a tile's products. A thread has sums of two rows, r and r + 8.
struct TileTest {
    sum_t half_norm[2];  // the two rows'
    float row_slack[2];
    sum_t threshold[2];  // below it no pair of the row passes for either of its points
    const TileTerms& tile;
    bool for_columns;
    sum_t sure[2];  // COUNT: from it on a pair of the row is surely within

    // Returns a bit for each 16 columns in which a lane has a hit: only these are looked at one by one.
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
#if LOCAL
#pragma unroll
        for (int j = 0; j < 64; j++)
            if (sum[j] >= threshold[j >> 1 & 1]) passed[j / 32] |= 1u << j % 32;
        return;
#endif
        sum_t own_slack[2] = {rounded(row_slack[0]), rounded(row_slack[1])}, column_slack[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            radius_t radius = c % 2 ? tile.radius[c / 2].second : tile.radius[c / 2].first;
            column_slack[c] = SYMMETRIC ? rounded(for_columns ? slack_of(radius, error) : NO_SLACK) : 0;
        }
#pragma unroll
        for (int j = 0; j < 64; j += 8)
            if (any >> j / 8 & 1) {
                sum_t near[8];
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    sum_t back = SYMMETRIC ? __shfl_sync(~0u, column_slack[c], j / 2 + lane % 4) : 0;
                    for (int r = 0; r < 2; r++)
                        near[c / 2 * 4 + 2 * r + c % 2] = half_norm[r] - (SYMMETRIC ? max(own_slack[r], back) : own_slack[r]);
                }
#pragma unroll
                for (int q = 0; q < 8; q++)
                    if (sum[j + q] >= near[q]) passed[j / 32] |= 1u << (j + q) % 32;
            }
    }
};

// Sixteen rows of a warp and what their pairs are tested by.
struct Strip {
    u32 first_row;
    radius_t radius[2];
    float error;  // SYMMETRIC: the largest of the rows' tile; otherwise 0
    sum_t half_norm[2];
    float sure_radius[2];

    __device__ __forceinline__ void load(
        u32 first, int lane, const sum_t* norms, const radius_t* radii, const float* tile_error, float more, const float* sure) {
        first_row = first;
        if (LOCAL) return;
        for (int r = 0; r < 2; r++)
            radius[r] = radii[first + (lane >> 2) + 8 * r], half_norm[r] = -norms[first + (lane >> 2) + 8 * r];
#if COUNT
        for (int r = 0; r < 2; r++) sure_radius[r] = sure[1] - radius[r] * (1 + 0x1p-20f);
#endif
#if BETWEEN_COMPONENTS && !BITS
        for (int r = 0; r < 2; r++) radius[r] += more;
#endif
        error = SYMMETRIC ? tile_error[first / COLUMNS] : 0;
    }
    // Returns the test with a tile.
    __device__ __forceinline__ TileTest test_of(
        const TileTerms& tile, bool for_columns, const float* sure, int strip = 0) const {
        TileTest test{{half_norm[0], half_norm[1]}, {}, {}, tile, for_columns};
#if LOCAL
        for (int r = 0; r < 2; r++) test.threshold[r] = tile.threshold[(2 * strip + r) % LOCAL_ROWS];
        return test;
#endif
        float of_columns = SYMMETRIC && for_columns ? slack_of(tile.largest_radius, error) : NO_SLACK;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            test.row_slack[r] = slack_of(radius[r], tile.error);
            test.threshold[r] = half_norm[r] - rounded(fmaxf(test.row_slack[r], of_columns));
#if COUNT  // the converse: see filter.sure_radius
            float q = fmaxf(sure_radius[r] - tile.error, 0), slack = ((float)half_norm[r] + tile.largest_radius) * sure[2] + sure[3];
            sum_t least = half_norm[r] + (sum_t)slack - rounded(fminf(q * q, 0x1p30f));
            test.sure[r] = q > 0 ? least : (sum_t)0x7fffff00;
#endif
        }
        return test;
    }
};

constexpr int MANY = 8;  // if more of a lane's pairs pass, most are of the rows' own exclusion id, whose points are near each other

// Queues the pairs of a strip and tile t, the i-th of its work item, that pass.
__device__ __forceinline__ void push_passing(
    const sum_t (&sum)[64], const TileTest& test, const Strip& strip, Survivors& survivors, const WorkItem& item, int i, int t,
    u32 n_columns) {
    u32 hits = test.hits(sum);
    if (!__any_sync(~0u, hits)) return;
    u32 any = warp_or(hits), lane = survivors.lane;
    u32 passed[2] = {0, 0};
    test.test(sum, any, strip.error, lane, passed);
#if COUNT
    u32 block = strip.first_row / ROWS, others = t * COLUMNS / ROWS, filled = survivors.threshold[4];
    if (block == others || block == filled || others == filled) survivors.keep_once(passed, strip.first_row, t * COLUMNS, n_columns);
    u32 within[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 64; j++)
        if (sum[j] >= test.sure[j >> 1 & 1]) within[j / 32] |= 1u << j % 32;
#pragma unroll
    for (int w = 0; w < 2; w++) survivors.sure += __popc(passed[w] & within[w]), passed[w] &= ~within[w];
    if (!__any_sync(~0u, passed[0] | passed[1])) return;
#endif
#if LOCAL
    if (survivors.column_group && __any_sync(~0u, __popc(passed[0]) + __popc(passed[1]) > MANY))
        survivors.leave_out_own(passed, t * COLUMNS, strip.first_row);
#endif
#pragma unroll
    for (int w = 0; w < 2; w++)
        if (any >> 4 * w & 15)
            for (u32 rest = passed[w]; __any_sync(~0u, rest); rest &= rest - 1) {
                u32 bit = __ffs(rest) - 1, row = (lane >> 2) + (bit & 2) * 4;
                u32 in_tile = 2 * (lane & 3) + 64 * w + (bit & 28) * 2 + (bit & 1);
                u32 column = t * COLUMNS + in_tile, in_warp = strip.first_row - survivors.first_row + row;
                u32 packed = (u32)test.for_columns << 30 | in_warp << COLUMN_BITS | (i - item.first) * COLUMNS + in_tile;
                bool real = rest && column < n_columns && !(SYMMETRIC && column == strip.first_row + row);
                sum_t half_norm = bit & 2 ? strip.half_norm[1] : strip.half_norm[0];
                survivors.push(real, packed, SYMMETRIC || BETWEEN_COMPONENTS ? half_norm - select<32>(sum + 32 * w, bit) : 0, item);
            }
}
