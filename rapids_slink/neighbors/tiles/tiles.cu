// These kernels find the boxes of tiles and the tiles that they leave, put the rows of a search into slots, and write what products begin
// at and are compared with.
// __init__.py has the test and its proof.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/tiles/sizes.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

typedef unsigned u32;
typedef unsigned long long u64;

constexpr float LARGEST = 1e30f;     // nothing is ruled out beyond it
constexpr double UNDERFLOW = 1e-306;  // a square of which E is more than what products of tiny numbers lose
constexpr u32 STRIDE = 2654435769u;    // 2^32 by the golden ratio: its multiples modulo 2^32 are spread evenly

// Returns edge f, of m lowest and m highest, of a block's box, which is around the boxes of two tiles, (2, 2, m).
__device__ __forceinline__ double block_edge(const double* __restrict__ boxes, int m, int f) {
    double one = boxes[f], other = boxes[2 * m + f];
    return f < m ? fmin(one, other) : fmax(one, other);
}

// Returns the tile at a position of the low-discrepancy order.
__device__ __forceinline__ int tile_at(long long position, int stride, int n_tiles) { return position * stride % n_tiles; }

// Returns whether all of a block and all of a tile have one exclusion id; -1 is none, and null pointers are for none at all.
__device__ __forceinline__ bool share_group(const int* block_group, int b, const int* tile_group, int t) {
    return block_group && block_group[b] >= 0 && block_group[b] == tile_group[t];
}

// Writes the box of each tile's places, widened by their errors: the lowest and the highest of m coordinates, (tiles, 2, m). A
// block a tile.
extern "C" __global__ void __launch_bounds__(TILE) bound_tiles(
    const double* __restrict__ places, const double* __restrict__ errors, int m, const int* __restrict__ slots,
    double* __restrict__ boxes) {
    __shared__ double of_warps[2][TILE / WARP];
    int i = slots[(size_t)blockIdx.x * TILE + threadIdx.x], lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int f = 0; f < m; f++) {
        double error = i >= 0 ? errors[2 * (size_t)i + (f == m - 1)] : 0, x = i >= 0 ? places[(size_t)i * m + f] : 0;
        double low = -warp_max(i >= 0 ? -minus(x, error) : -INFINITE), high = warp_max(i >= 0 ? plus(x, error) : -INFINITE);
        if (lane == 0) of_warps[0][warp] = low, of_warps[1][warp] = high;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < TILE / WARP; w++) low = fmin(low, of_warps[0][w]), high = fmax(high, of_warps[1][w]);
            boxes[(size_t)blockIdx.x * 2 * m + f] = low, boxes[((size_t)blockIdx.x * 2 + 1) * m + f] = high;
        }
        __syncthreads();
    }
}

// Marks the tiles within the reach of each block of rows, except those of its exclusion id: bit b of word w is the tile at position
// 32 w + b of the order. `rows` are the boxes of the blocks' tiles, `tiles` those of the points', turned. A column of thread blocks
// has a block of rows: there may be more than a grid has rows.
extern "C" __global__ void mark_near_tiles(
    const double* __restrict__ rows, const double* __restrict__ tiles, int m, int n_tiles, int stride,
    const double* __restrict__ reach, const int* __restrict__ block_group, const int* __restrict__ tile_group, int words,
    u32* __restrict__ marks) {
    extern __shared__ double block[];  // its box
    for (int f = threadIdx.x; f < 2 * m; f += blockDim.x) block[f] = block_edge(rows + (size_t)blockIdx.x * 4 * m, m, f);
    __syncthreads();
    int t = blockIdx.y * blockDim.x + threadIdx.x;
    double within = reach[blockIdx.x], limit = times(within, within), total = 0;
    bool near = t < n_tiles && !(within < 0) && !share_group(block_group, blockIdx.x, tile_group, tile_at(t, stride, n_tiles));
    for (int f = 0; near && f < m; f++) {
        double gap = fmax(tiles[(size_t)f * n_tiles + t] - block[m + f], block[f] - tiles[((size_t)m + f) * n_tiles + t]);
        gap = fmax(gap, 0.0), total = plus(total, times(gap, gap)), near = !(total > limit);  // nor if it is no number
    }
    u32 votes = __ballot_sync(ALL_LANES, near);
    if (threadIdx.x % WARP == 0 && t / WARP < words) marks[(size_t)blockIdx.x * words + t / WARP] = votes;
}

// Balls about the cells' centres that hold their points, and the products by which rows have distances from the centres: see
// `order.Balls`. Null pointers are for none.
struct Balls {
    const double *products, *centre_norms, *norms, *largest_error, *largest_length, *scales;
    const int *where, *cell_of_tile;
    long long points;
    double rounding, shrink;
};

constexpr int MOST_COORDINATES = MOST_AXES + 1;  // the most coordinates of a place
constexpr int GROUP = 4, MOST_GROUPS = MOST_AXES / GROUP;  // coordinates that are looked at together, before the last
constexpr int LOOKS = 32;  // rows of a block that a tile is compared with first

// These return the square of the least by which a place, or some of its coordinates, are outside a box.
__device__ __forceinline__ float square_of_gap(float x, float low, float high) {
    float gap = fmaxf(fmaxf(low - x, x - high), 0.0f);
    return gap * gap;
}
__device__ __forceinline__ float square_of_gaps(float4 x, const float* low, const float* high) {
    float first = square_of_gap(x.x, low[0], high[0]) + square_of_gap(x.y, low[1], high[1]);
    return first + (square_of_gap(x.z, low[2], high[2]) + square_of_gap(x.w, low[3], high[3]));
}

// Unmarks the tiles whose boxes are within the reach of no row of their block, or whose cells' balls are, and counts the others. A block
// of threads has a block of rows, or a share of the words of few of these: `counts` are zeros at first. The rows are compared with the
// balls of `cells` first, once for a cell. A lane of a warp compares its tile with some rows; those that are near to none of these are
// compared with all, of which a lane has some. Then the tile's points are compared with the block's box if there are `row_boxes`.
//
// `tiles` are boxes as in `mark_near_tiles`. `places` are float32, (m, slots), and off by `lost` at most, with those of the boxes. Sums
// err by 2^-18 of themselves.
extern "C" __global__ void __launch_bounds__(BLOCK, 3) refine_marks(
    const float* __restrict__ places, long long n_slots, int m, const int* __restrict__ row_places, const float* __restrict__ reach,
    const double* __restrict__ tiles, const double* __restrict__ row_boxes, float lost, const Balls balls, int cells, int n_tiles,
    int stride, int words, u32* __restrict__ marks, int* counts) {
    constexpr int WARPS = BLOCK / WARP, OF_WORD = 16;  // cells of a word: a bit for near, and one for far
    extern __shared__ float4 shared[];
    __shared__ int count, row_at[BLOCK], queues[WARPS][2 * WARP];
    __shared__ double row_norm[BLOCK], row_reach[BLOCK];
    const int groups = (m - 1 + GROUP - 1) / GROUP, last = m - 1;
    float4* rows = shared;
    float *rest = (float*)(rows + groups * BLOCK), *within = rest + BLOCK, *box = within + BLOCK;
    u32* known = (u32*)(box + 2 * m);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, place = row_places[(size_t)blockIdx.x * BLOCK + threadIdx.x];
    float reached = reach[(size_t)blockIdx.x * BLOCK + threadIdx.x];
    if (threadIdx.x == 0) count = 0;
    for (int f = 0; f < GROUP * groups; f++)
        ((float*)(rows + f / GROUP * BLOCK + threadIdx.x))[f % GROUP] = f < last ? places[(size_t)f * n_slots + place] : 0;
    rest[threadIdx.x] = places[(size_t)last * n_slots + place];
    within[threadIdx.x] = reached < 0 ? -1 : reached * reached * (1 + 0x1p-16f);
    for (int f = threadIdx.x; row_boxes && f < 2 * m; f += BLOCK) {
        double edge = block_edge(row_boxes + (size_t)blockIdx.x * 4 * m, m, f);
        box[f] = f < m ? __double2float_rd(edge) - lost : __double2float_ru(edge) + lost;
    }
    if (balls.products) {
        int at = row_at[threadIdx.x] = balls.where[(size_t)blockIdx.x * BLOCK + threadIdx.x];
        row_norm[threadIdx.x] = balls.norms[at], row_reach[threadIdx.x] = reached * balls.shrink;
        for (int w = threadIdx.x; w * OF_WORD < cells; w += BLOCK) known[w] = 0;
    }
    __syncthreads();
    float farthest = -1;  // a square
    for (int r = lane; r < BLOCK; r += WARP) farthest = fmaxf(farthest, within[r]);
    farthest = warp_max(farthest);
    auto has_near_point = [&](int t) {
        for (int c = lane; c < TILE; c += 2 * WARP) {
            float total[2] = {};
#pragma unroll
            for (int f = 0; f < MOST_COORDINATES; f++) {
                if (f >= m) continue;
#pragma unroll
                for (int p = 0; p < 2; p++)
                    total[p] += square_of_gap(places[(size_t)f * n_slots + (size_t)t * TILE + c + p * WARP], box[f], box[m + f]);
            }
            if (__any_sync(ALL_LANES, !(fminf(total[0], total[1]) > farthest))) return true;
        }
        return false;
    };
    auto has_near_ball = [&](int c) {
        double radius = (balls.largest_length[c] + balls.largest_error[c]) / balls.scales[c], centre_norm = balls.centre_norms[c];
        const double* products = balls.products + c * balls.points;
        auto is_near = [&](int r) {
            double from = row_reach[r] + radius, lengths = row_norm[r] + centre_norm;
            double square = lengths - balls.rounding * (lengths + UNDERFLOW) - 2 * products[row_at[r]];
            return !(row_reach[r] < 0 || square > from * from * (1 + 1e-12));  // nor if it is no number
        };
        bool near = is_near(lane);
        if (__any_sync(ALL_LANES, near)) return true;
#pragma unroll
        for (int r = WARP; r < BLOCK; r += WARP) near |= is_near(r + lane);
        return __any_sync(ALL_LANES, near) != 0;
    };
    int *queue = queues[warp], queued = 0, kept = 0;
    auto settle = [&](int n) {  // the last n, at most a warp's, of the queue
        __syncwarp();
        int at = lane < n ? queue[queued - n + lane] : -1, t = at >= 0 ? tile_at(at, stride, n_tiles) : 0;
        queued -= n;
        bool open = at >= 0;
        if (balls.products) {
            int c = open ? balls.cell_of_tile[t] : 0, shift = c % OF_WORD * 2;
            auto seen = [&] { return atomicOr(known + c / OF_WORD, 0u) >> shift & 3; };
            while (u32 left = __ballot_sync(ALL_LANES, open && !seen())) {
                int from = __ffs(left) - 1, other = __shfl_sync(ALL_LANES, c, from);
                bool is = has_near_ball(other);
                if (lane == from) atomicOr(known + c / OF_WORD, (is ? 1u : 2u) << shift);
                __syncwarp();
            }
            open = open && seen() == 1;
        }
        float low[MOST_AXES], high[MOST_AXES], low_rest = 0, high_rest = 0;
#pragma unroll
        for (int f = 0; f < MOST_AXES; f++) {
            bool is = f < last && open;
            low[f] = is ? __double2float_rd(tiles[(size_t)f * n_tiles + at]) - lost : 0;
            high[f] = is ? __double2float_ru(tiles[(size_t)(m + f) * n_tiles + at]) + lost : 0;
        }
        if (open) {
            low_rest = __double2float_rd(tiles[(size_t)last * n_tiles + at]) - lost;
            high_rest = __double2float_ru(tiles[(size_t)(m + last) * n_tiles + at]) + lost;
        }
        bool near = false;
#pragma unroll 2
        for (int r = 0; r < BLOCK; r += BLOCK / LOOKS) {
            float total = square_of_gap(rest[r], low_rest, high_rest);
#pragma unroll
            for (int g = 0; g < MOST_GROUPS; g++)
                if (g < groups) total += square_of_gaps(rows[g * BLOCK + r], low + GROUP * g, high + GROUP * g);
            near |= !(total > within[r]);
        }
        for (u32 left = __ballot_sync(ALL_LANES, open && !near); left; left &= left - 1) {
            int from = __ffs(left) - 1;
            float total[WARPS], lowest = __shfl_sync(ALL_LANES, low_rest, from), highest = __shfl_sync(ALL_LANES, high_rest, from);
#pragma unroll
            for (int r = 0; r < WARPS; r++) total[r] = square_of_gap(rest[r * WARP + lane], lowest, highest);
            bool any = true;
#pragma unroll
            for (int g = 0; g < MOST_GROUPS; g++) {
                if (g >= groups || !any) continue;
                float of_low[GROUP], of_high[GROUP];
#pragma unroll
                for (int f = 0; f < GROUP; f++) {
                    of_low[f] = __shfl_sync(ALL_LANES, low[GROUP * g + f], from);
                    of_high[f] = __shfl_sync(ALL_LANES, high[GROUP * g + f], from);
                }
                any = false;
#pragma unroll
                for (int r = 0; r < WARPS; r++) {
                    total[r] += square_of_gaps(rows[g * BLOCK + r * WARP + lane], of_low, of_high);
                    any |= !(total[r] > within[r * WARP + lane]);
                }
                any = __any_sync(ALL_LANES, any);
            }
            if (lane == from) near = any;
        }
        near &= open;
        for (u32 left = row_boxes ? __ballot_sync(ALL_LANES, near) : 0; left; left &= left - 1) {
            int from = __ffs(left) - 1;
            bool is = has_near_point(__shfl_sync(ALL_LANES, t, from));
            if (lane == from) near = is;
        }
        if (at >= 0 && !near) atomicAnd(marks + (size_t)blockIdx.x * words + at / WARP, ~(1u << at % WARP));
        kept += __popc(__ballot_sync(ALL_LANES, near));
    };
    for (int w = blockIdx.y * WARPS + warp; w < words; w += gridDim.y * WARPS) {
        u32 marked = marks[(size_t)blockIdx.x * words + w];
        if (marked >> lane & 1) queue[queued + __popc(marked & (1u << lane) - 1)] = w * WARP + lane;
        queued += __popc(marked);
        if (queued >= WARP) settle(WARP);
    }
    settle(queued);
    if (lane == 0) atomicAdd(&count, kept);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(counts + blockIdx.x, count);
}

// Writes the tiles that are marked, in their order. A block of threads has a block of rows, and a thread a word.
extern "C" __global__ void list_marks(
    int n_tiles, int stride, int words, const u32* __restrict__ marks, const long long* __restrict__ begins, int* __restrict__ tiles) {
    long long begin = begins[blockIdx.x];
    for (int from = 0; from < words; from += blockDim.x) {
        int w = from + threadIdx.x;
        u32 rest = w < words ? marks[(size_t)blockIdx.x * words + w] : 0, total, own = __popc(rest), upto = scan_in_block(own, total);
        for (long long at = begin + upto - own; rest; rest &= rest - 1)
            tiles[at++] = tile_at((long long)w * WARP + __ffs(rest) - 1, stride, n_tiles);
        begin += total;
    }
}

// Writes the rows of a search in their slots: `slots` has positions among the task's rows, -1 where it is empty. An empty slot has any
// row in `ids` and -1 in `real`, and its bound is -infinity. `where` are the rows' slots among all points, and `in_terms` the
// same counted from the first of some cells', which is of `first_cell`. Null pointers are for no bounds and no least of exclusion ids.
extern "C" __global__ void put_rows(
    long long n, const int* __restrict__ slots, const int* __restrict__ cell_of_tile, const int* __restrict__ rows,
    const int* __restrict__ row_group, const double* __restrict__ upper, const double* __restrict__ least,
    const int* __restrict__ slot_of, int first_slot, int first_cell, int* __restrict__ ids, int* __restrict__ real,
    int* __restrict__ groups, double* __restrict__ bound, int* __restrict__ where, int* __restrict__ in_terms,
    int* __restrict__ cell_in_terms) {
    long long s = thread_index();
    if (s >= n) return;
    bool is_real = slots[s] >= 0;
    int index = slots[is_real ? s : 0], id = rows[index], group = row_group[id], slot = slot_of[id];
    double own = is_real ? upper ? upper[index] : INFINITE : -INFINITE;
    ids[s] = id, real[s] = is_real ? id : -1, groups[s] = group, bound[s] = least ? fmin(own, least[group]) : own;
    where[s] = slot, in_terms[s] = slot - first_slot;
    if (s % TILE == 0) cell_in_terms[s / TILE] = cell_of_tile[s / TILE] - first_cell;
}

// Writes the neighbours of rows in the order, `width` of n for each.
extern "C" __global__ void list_in_order(
    long long rows, int width, int n, const int* __restrict__ ids, const int* __restrict__ position_of, const int* __restrict__ order,
    int* __restrict__ near, int* __restrict__ count) {
    long long i = thread_index(), s = i / width, c = i % width;
    if (s >= rows) return;
    near[i] = order[max(0, min(position_of[ids[s]] - width / 2, n - width)) + c];
    if (c == 0) count[s] = width;
}

// Writes candidates of rows, `size` of each: some of the `points` in slots, evenly of the tiles of its block's list. Empty slots have none.
extern "C" __global__ void sample_lists(
    long long rows, int size, const double* __restrict__ bound, const long long* __restrict__ begins,
    const long long* __restrict__ ends, const int* __restrict__ tiles, const int* __restrict__ points, int* __restrict__ ids, int* __restrict__ count) {
    long long i = thread_index(), s = i / size, c = i % size;
    if (s >= rows) return;
    long long begin = begins[s / BLOCK], slots = bound[s] > -INFINITE ? (ends[s / BLOCK] - begin) * TILE : 0;
    if (c == 0) count[s] = slots ? size : 0;
    if (!slots) return;
    int at = (u64)((u32)i * STRIDE) * slots >> 32;
    ids[i] = points[tiles[begin + at / TILE] * TILE + at % TILE];
}

// Writes the exclusion ids of the points or rows in slots, -1 where a slot is empty; and the id that all of each `size` share, -1 if there
// is none. A block has `size` threads.
extern "C" __global__ void share_groups(
    const int* __restrict__ slots, const int* __restrict__ group, int* __restrict__ of_slot, int* __restrict__ common) {
    __shared__ int least, most;
    if (threadIdx.x == 0) least = 0x7fffffff, most = -1;
    __syncthreads();
    long long s = thread_index();
    int own = slots[s] >= 0 ? group[slots[s]] : -1;
    of_slot[s] = own;
    if (own >= 0) {
        if (own < least) atomicMin(&least, own);
        if (own > most) atomicMax(&most, own);
    }
    __syncthreads();
    if (threadIdx.x == 0) common[blockIdx.x] = least == most ? most : -1;
}

// Turns a bound of surrogate distances into a distance: `Metric.true_distance_bound`, and what rounding may add. It is -1 if the bound
// is -infinity, and infinite if it is no number.
struct Reach {
    double error, stretch, factor, more, longer, rounding;
    __device__ double of(double bound) const {
        if (!(bound > -INFINITE)) return -1;
        double square = times(fmax(plus(bound, error), 0.0), stretch);
        double reached = plus(times(plus(times(__dsqrt_rn(square), factor), more), longer), rounding);
        return reached >= 0 ? reached : INFINITE;
    }
};

// Writes the largest distance that is wanted of a row's place, float32, rounded up: that of the row times `stretch`, or -1 if its bound
// is -infinity. Writes the largest of a block of rows, too, which a block of threads has.
extern "C" __global__ void __launch_bounds__(BLOCK) put_reach(
    const double* __restrict__ bound, const Reach reach, double stretch, float* __restrict__ reaches, double* __restrict__ of_block) {
    __shared__ double of_warp[BLOCK / WARP];
    long long s = thread_index();
    double own = reach.of(bound[s]), stretched = own < 0 ? -1 : times(own, stretch);
    reaches[s] = __double2float_ru(stretched);
    stretched = warp_max(stretched);
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = stretched;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < BLOCK / WARP; w++) stretched = fmax(stretched, of_warp[w]);
    of_block[blockIdx.x] = stretched;
}

// Lists the tiles of two cells for each block. The points of the one are nearest on average, by the squared distances of centres, (cells,
// cells), and the mean squares of the points' distances from these. The nearest points of the other are expected to be nearest: see
// cpu.near_cells. Cells whose first and last blocks begin with tiles of the block's exclusion id are left out. Each block has room
// for `most` tiles. A warp takes a block.
extern "C" __global__ void list_near_cells(
    int blocks, int cells, int most, double of_deviation, const int* __restrict__ row_cell, const double* __restrict__ between,
    const double* __restrict__ squares, const double* __restrict__ sizes, const double* __restrict__ scales,
    const int* __restrict__ first_tile, const int* __restrict__ tile_group, const int* __restrict__ block_group,
    long long* __restrict__ begins, long long* __restrict__ ends, int* __restrict__ tiles) {
    int b = thread_index() / WARP, lane = threadIdx.x % WARP;
    if (b >= blocks) return;
    auto spread = [&](int c) { return squares[c] / fmax(sizes[c], 1.0) / scales[c] / scales[c]; };
    int own = row_cell[b * (BLOCK / TILE)], nearest = -1, best[2] = {-1, -1};
    double of_own = spread(own), least_mean = INFINITE, least[2] = {INFINITE, INFINITE};
    for (int c = lane; c < cells; c += WARP) {
        if (sizes[c] == 0) continue;  // a cell of queries alone
        int last = first_tile[c + 1] - BLOCK / TILE;  // the first tile of the last block: the second may be empty
        if (share_group(block_group, b, tile_group, first_tile[c]) && share_group(block_group, b, tile_group, last)) continue;
        double of_cell = spread(c), square = between[(size_t)own * cells + c] + of_cell, mean = fmax(square + of_own, 0.0);
        double expected = mean - of_deviation * sqrt(mean * of_cell);
        if (square < least_mean) least_mean = square, nearest = c;
        if (expected < least[0]) least[1] = least[0], best[1] = best[0], least[0] = expected, best[0] = c;
        else if (expected < least[1]) least[1] = expected, best[1] = c;
    }
    long long begin = (long long)b * most, end = begin;
    auto list = [&](double value, int cell) {  // takes the cell of the least value among the lanes', or -1
        unsigned votes = __ballot_sync(ALL_LANES, value == -warp_max(-value) && cell >= 0);
        if (!votes) return -1;
        int chosen = __shfl_sync(ALL_LANES, cell, __ffs(votes) - 1), first = first_tile[chosen];
        int count = first_tile[chosen + 1] - first;
        for (int t = lane; t < count; t += WARP) tiles[end + t] = first + t;
        end += count;
        return chosen;
    };
    bool is_listed = list(least_mean, nearest) == best[0];
    list(least[is_listed], best[is_listed]);
    if (lane == 0) begins[b] = begin, ends[b] = end;
}

// Raises the largest error and the largest length of each cell's rows, which are zero at first, and adds up its squared lengths. A block
// takes a tile.
extern "C" __global__ void __launch_bounds__(TILE) sum_up_cells(
    const float* __restrict__ error, const float* __restrict__ length, const int* __restrict__ slots,
    const int* __restrict__ cell_of_tile, double* largest_error, double* largest_length, double* squares, double* rows) {
    long long s = thread_index();
    int cell = cell_of_tile[blockIdx.x];
    double moved = warp_max((double)error[s]), own = length[s], longest = warp_max(own), square = warp_sum(own * own);
    int real = __popc(__ballot_sync(ALL_LANES, slots[s] >= 0));
    if (threadIdx.x % WARP) return;
    atomic_max(largest_error + cell, moved), atomic_max(largest_length + cell, longest);
    atomicAdd(squares + cell, square), atomicAdd(rows + cell, (double)real);
}

// Takes a band of each block's list, the tiles from `first` to `last`: marks the cells that they are of, and makes work items of `size`
// of them for fused/pass.cuh, counted by `claimed`. `as_long`: all lists have as many items as if they went on to `last`. Those beyond a
// list's end have no tiles: they begin and end at position 1, so that no position before the first is read. A block of threads has a block
// of rows.
extern "C" __global__ void plan_band(
    const long long* __restrict__ begins, const long long* __restrict__ ends, const int* __restrict__ tiles, int first, int last,
    int size, bool as_long, const int* __restrict__ cell_of_tile, int cells, bool* __restrict__ needed, int4* __restrict__ items,
    int* claimed) {
    __shared__ int item;
    long long begin = begins[blockIdx.x] + first, end = min(ends[blockIdx.x], begins[blockIdx.x] + last);
    int count = (int)((as_long ? last - first : max(end - begin, 0ll)) + size - 1) / size;
    if (threadIdx.x == 0 && count) item = atomicAdd(claimed, count);
    bool* own = needed + (size_t)blockIdx.x * cells;
    for (int c = threadIdx.x; c < cells; c += blockDim.x) own[c] = false;
    __syncthreads();
    for (long long p = begin + threadIdx.x; p < end; p += blockDim.x) own[cell_of_tile[tiles[p]]] = true;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        long long from = begin + (long long)i * size, to = min(from + size, end);
        items[item + i] = from < to ? int4{(int)blockIdx.x * (BLOCK / TILE), (int)from, (int)to, 0}
                                    : int4{(int)blockIdx.x * (BLOCK / TILE), 1, 1, 0};
    }
}

// Writes the thresholds of the products of n rows, by the cells of points that their block needs, (cells, n). `products` are of the cells'
// centres with `points` of them, of which the rows are at `where`; the norms are the squares of either's lengths. No point beyond
// a row's `bound` is wanted. A block of threads has a block of rows.
extern "C" __global__ void __launch_bounds__(BLOCK) put_thresholds(
    long long n, int cells, long long points, const double* __restrict__ products, const double* __restrict__ centre_norms,
    const double* __restrict__ norms, const int* __restrict__ where, const double* __restrict__ bound,
    const Reach reach, const int* __restrict__ row_cell, const double* __restrict__ scales, const double* __restrict__ squares,
    double rounding, const bool* __restrict__ needed, float* __restrict__ out) {
    const float infinite = __int_as_float(0x7f800000);
    long long i = thread_index(), at = where[i];
    int cell = row_cell[i / TILE];
    double own = reach.of(bound[i]), norm = norms[at], scale = scales[cell] / 2;
    double lost = norm + 2 * centre_norms[cell];
    for (int from = blockIdx.y * WARP; from < cells; from += gridDim.y * WARP) {  // a lane looks whether a cell is needed
        int mine = from + threadIdx.x % WARP;
        for (u32 left = __ballot_sync(ALL_LANES, mine < cells && needed[(size_t)blockIdx.x * cells + mine]); left; left &= left - 1) {
            int c = from + __ffs(left) - 1;
            double square = norm + centre_norms[c] - 2 * products[c * points + at], missing = rounding * (lost + squares[c]);
            double value = scale * scales[c] * (square - own * own - missing);
            float rounded = __double2float_rd(value);
            out[c * n + i] = own < 0 ? infinite : fabsf(rounded) < LARGEST ? rounded : -infinite;
        }
    }
}

// Writes the begins of sums of n points, by some cells of rows from `first` on, (cells, n). `between`, (cells, all cells), are the
// squared distances of centres.
extern "C" __global__ void put_begins(
    long long n, int cells, int first, const double* __restrict__ products, const double* __restrict__ centre_norms,
    const double* __restrict__ norms, const int* __restrict__ slots, const float* __restrict__ error,
    const float* __restrict__ length, const int* __restrict__ point_cell, int all_cells, const double* __restrict__ between,
    const double* __restrict__ scales, const double* __restrict__ largest_length, const double* __restrict__ largest_error,
    double eta, float* __restrict__ out) {
    const float infinite = __int_as_float(0x7f800000);
    long long j = thread_index();
    if (j >= n) return;
    int cell = point_cell[j / TILE];
    bool real = slots[j] >= 0;
    double norm = norms[j], scale = scales[cell] / 2, more = error[j] + eta * length[j], longest = (double)error[j] + length[j];
    for (int c = blockIdx.y; c < cells; c += gridDim.y) {
        double square = norm + centre_norms[c] - 2 * products[c * n + j];
        double value = scales[first + c] * scale * (between[(size_t)c * all_cells + cell] - square);
        value += largest_length[first + c] * more + largest_error[first + c] * longest, value += 2 * eta * fabs(value);
        float rounded = __double2float_ru(value);
        out[c * n + j] = !real ? -infinite : fabsf(rounded) < LARGEST ? rounded : infinite;
    }
}
