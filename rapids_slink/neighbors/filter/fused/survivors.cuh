// Here are the work items of a block, and the pairs that pass their test.

// These are lists of tiles, and the terms of products between cells: `begin` is by cells of rows and columns, and `threshold` by cells
// of columns and rows.
struct LocalTerms {
    const int *list, *row_cell, *column_cell;
    const float *begin, *threshold;
    long long rows, columns;
    // Returns the numbers with which the products of a tile and the rows from a slot on are compared.
    __device__ __forceinline__ const float* thresholds(int tile, u32 first_row) const {
        return threshold + (u64)column_cell[tile] * rows + first_row;
    }
};

// The table has the number of the pair of each two of n components, -1 if there is none. Unless n is 0, a pair's row is at the
// earlier position.
struct PairTable {
    const int* number;
    int n;
};

// A work item has the first tile of its rows, its range of column tiles, or of the list of these, and one number more: see pass.cuh.
struct WorkItem {
    int row_tile, first, last, more, tiles;
    const int* list;
    __device__ WorkItem(int4 given, u32 n_columns, const LocalTerms& local)
        : row_tile(given.x), first(given.y), last(given.z), more(given.w), tiles((n_columns + ROWS - 1) / ROWS * (ROWS / COLUMNS)),
          list(local.list) {}
    __device__ int tile(int t) const { return LOCAL ? list[t] : SYMMETRIC && t >= tiles ? t - more : t; }
    // Returns whether the pairs with a tile are tested for the columns as well. They are not if both blocks form them: among all points
    // a block meets itself, and also the block that is half of all ahead.
    __device__ bool for_columns(int tile) const {
        int ahead = abs(tile / (ROWS / COLUMNS) - row_tile / (ROWS / COLUMNS));
        return SYMMETRIC && (more < tiles || (ahead && 2 * ahead * (ROWS / COLUMNS) != tiles));
    }
};

// Returns the most by which the product of a pair within the bound of one of its points is below the sum of the half norms.
__device__ __forceinline__ float slack_of(radius_t radius, float error) {
#if BITS
    return radius.at(-error);
#else
    return (radius + error) * (radius + error);
#endif
}
// If a column has this slack, no pair passes for it that does not pass for its row, whose slack is no less.
constexpr float NO_SLACK = BITS ? -0x1p28f : 0;

// Returns the slack in the sums' type. An integer is rounded down, which loses no pair; and all pairs pass at 2^30, except those of
// padding: see PADDING_NORM in quantize.cu.
__device__ __forceinline__ sum_t rounded(float slack) {
#if INT8
    return __float2int_rd(BITS ? fmaxf(slack, NO_SLACK) : fminf(slack, 0x1p30f));
#else
    return slack;
#endif
}

// Returns whether a position is the first of its point in the block; the others are padding.
__device__ __forceinline__ bool is_first(const int* point, u32 position) {
    return position % ROWS == 0 || point[position - 1] != point[position];
}

// Appends survivors to the candidates. A slot among a row's candidates takes an atomic addition, and a warp that waited for one
// at every hit would stall the others that it waits with: 32 survivors are queued first.
//
// In the queue a survivor takes 64 bits. The lower half says whether it counts for its column, too, its row among the warp's 16 or
// 32, and its column among the work item's. The upper half is half of its squared distance, by the product.
constexpr int COLUMN_BITS = 25;
struct Survivors {
    u64* queue;  // this warp's, with room for QUEUE
    int* out;
    u32 *half_sq_dist, *count;
    const int *row_group, *column_group;
    const radius_t* radius;
    const float *tile_error, *threshold;
    PairTable pairs;
    int capacity, lane;
    u32 queued, first_row;  // the survivors in the queue, and the warp's first row
    u32 sure;               // COUNT: this thread's pairs of the item that are surely within

    // Adds up the pairs of the item that are surely within.
    __device__ __forceinline__ void add_sure() {
#if COUNT
        for (int step = 16; step; step /= 2) sure += __shfl_xor_sync(~0u, sure, step);
        if (lane == 0 && sure) atomicAdd((u64*)count + 1, (u64)sure);
        sure = 0;
#endif
    }
    // Unsets the bits, as of `TileTest`, of pairs of a point with itself and of pairs met the other way round, from a row and
    // column on.
    __device__ __forceinline__ void keep_once(u32 (&passed)[2], u32 first, u32 columns, u32 n_columns) const {
#pragma unroll
        for (int w = 0; w < 2; w++)
            for (u32 rest = passed[w]; rest; rest &= rest - 1) {
                u32 bit = __ffs(rest) - 1, row = first + (lane >> 2) + (bit & 2) * 4;
                u32 column = columns + 2 * (lane & 3) + 64 * w + (bit & 28) * 2 + (bit & 1);
                bool real = column > row && column < n_columns && is_first(column_group, row) && is_first(column_group, column);
                if (!real) passed[w] &= ~(1u << bit);
            }
    }

    __device__ __forceinline__ void put(u32 position, u32 other, u32 half) {
        u32 slot = atomicAdd(count + position, 1u);
        if (slot >= capacity) return;
        out[(u64)position * capacity + slot] = other;
        if (SYMMETRIC) half_sq_dist[(u64)position * capacity + slot] = half;
    }
    // Writes the points, by `column_group`, of a warp's survivors, and their component pair. It is the item's, or that of their components
    // if they are within its threshold, which may be less than the item's.
    __device__ __forceinline__ void put_pairs(bool wanted, u32 row, u32 column, sum_t half, int component_pair) {
        int a = wanted ? column_group[row] : 0, b = wanted ? column_group[column] : 0;
        bool real = wanted && (row < column || !pairs.n) && is_first(column_group, row) && is_first(column_group, column);
#if !BITS
        if (row_group) {
            component_pair = real ? pairs.number[(u64)row_group[row] * pairs.n + row_group[column]] : -1;
            real = component_pair >= 0 &&
                   half <= rounded(slack_of(radius[row] + threshold[component_pair], tile_error[column / COLUMNS]));
        }
#endif
        u64 slot = claim_in_warp(real, (u64*)count);
        if (real && slot < capacity)
            out[slot] = a, out[(u64)capacity + slot] = b, out[2 * (u64)capacity + slot] = component_pair;
    }
    // Unsets the bits, as of `TileTest`, of pairs of one exclusion id, whose points follow a position of columns and one of rows.
    __device__ __forceinline__ void leave_out_own(u32 (&passed)[2], u32 column, u32 row) const {
        int first = row_group[row + (lane >> 2)], second = row_group[row + (lane >> 2) + 8];
        const int2* groups = (const int2*)(column_group + column) + lane % 4;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            int2 own = groups[4 * j];
            u32 same = (own.x == first) | (own.y == first) << 1 | (own.x == second) << 2 | (own.y == second) << 3;
            passed[j / 8] &= ~(same << j % 8 * 4);
        }
    }
    // Takes the last `n`, at most 32, from the queue.
    __device__ __forceinline__ void append(u32 n, const WorkItem& item) {
        __syncwarp();
        u64 survivor = lane < n ? queue[queued - n + lane] : 0;
        queued -= n;
        __syncwarp();
        u32 packed = survivor, half = survivor >> 32, in_item = packed & (1u << COLUMN_BITS) - 1;
        u32 row = first_row + (packed >> COLUMN_BITS & 31);
        u32 column = item.tile(item.first + in_item / COLUMNS) * COLUMNS + in_item % COLUMNS;
        sum_t value = (sum_t&)half;
        if (BETWEEN_COMPONENTS) return put_pairs(lane < n, row, column, value, item.more);
        if (!SYMMETRIC && lane < n && column_group && column_group[column] == row_group[row]) return;
        if (lane >= n) return;
        if (!SYMMETRIC || value <= rounded(slack_of(radius[row], tile_error[column / COLUMNS]))) put(row, column, half);
        if (SYMMETRIC && packed >> 30 && value <= rounded(slack_of(radius[column], tile_error[row / COLUMNS])))
            put(column, row, half);
    }
    // Queues the survivors of the lanes whose pair is `wanted`. All lanes must call.
    __device__ __forceinline__ void push(bool wanted, u32 packed, sum_t half, const WorkItem& item) {
        u32 votes = __ballot_sync(~0u, wanted);
        if (wanted) queue[queued + __popc(votes & ((1u << lane) - 1))] = (u64)(u32&)half << 32 | packed;
        queued += __popc(votes);
        if (queued >= 32) append(32, item);
    }
};
