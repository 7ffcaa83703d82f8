// Boxes of tiles and what they leave, images about the centres of cells, and what products begin at and are compared with.
// __init__.py has the test and its proof.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fp16.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif
#ifndef FINE
#define FINE 0
#endif

typedef unsigned u32;

constexpr int TILE = 128, BLOCK = 256;  // slots of a tile of points and of a block of rows
constexpr int CHUNK = 8, ATOM = 8;      // features of fp16 in 16 bytes, and chunks of an atom
constexpr float LARGEST = 1e30f;        // beyond it nothing is ruled out
constexpr double INFINITE = 1.0 / 0.0;

// The box of each tile's places, widened by what they may be off by: the lowest and the highest of m coordinates, (tiles, 2, m). A
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

// Marks the tiles within the reach of each block of rows, and not of its group alone: bit b of word w is the tile at place 32 w + b of
// an order. `tiles` has the boxes in that order, (2, m, tiles), and so has `tile_group`.
extern "C" __global__ void mark_near_tiles(
    const double* __restrict__ blocks, const double* __restrict__ tiles, int m, int n_tiles, const double* __restrict__ reach,
    const int* __restrict__ block_group, const int* __restrict__ tile_group, int words, u32* __restrict__ marks) {
    extern __shared__ double block[];  // its box
    for (int f = threadIdx.x; f < 2 * m; f += blockDim.x) block[f] = blocks[(size_t)blockIdx.y * 2 * m + f];
    __syncthreads();
    int t = blockIdx.x * blockDim.x + threadIdx.x, group = block_group[blockIdx.y];
    double within = reach[blockIdx.y], limit = times(within, within), total = 0;
    bool near = t < n_tiles && within >= 0 && !(group >= 0 && group == tile_group[t]);
    for (int f = 0; near && f < m; f++) {
        double gap = fmax(tiles[(size_t)f * n_tiles + t] - block[m + f], block[f] - tiles[((size_t)m + f) * n_tiles + t]);
        gap = fmax(gap, 0.0), total = plus(total, times(gap, gap)), near = total <= limit;
    }
    u32 votes = __ballot_sync(ALL_LANES, near);
    if (threadIdx.x % WARP == 0 && t / WARP < words) marks[(size_t)blockIdx.y * words + t / WARP] = votes;
}

// The groups of the points or rows in slots, -1 where a slot is empty; and the group that all of each `size` have in common, -1 if there
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

// What a bound of surrogate distances stands for: `Metric.true_distance_bound`, and what rounding may add.
struct Reach {
    double error, stretch, factor, more, longer, rounding;
    __device__ double of(double bound) const {
        return plus(times(plus(times(__dsqrt_rn(times(fmax(plus(bound, error), 0.0), stretch)), factor), more), longer), rounding);
    }
};

// The largest distance that is wanted of a row in a slot, -1 if it is empty or has a bound of -infinity; the same times `stretch` in
// float32, rounded up; and the largest of a block of rows, times `stretch`. A block of threads has a block of rows.
extern "C" __global__ void __launch_bounds__(BLOCK) put_reach(
    const double* __restrict__ bound, const int* __restrict__ slots, const Reach reach, double stretch, double* __restrict__ within,
    float* __restrict__ reaches, double* __restrict__ of_block) {
    __shared__ double of_warp[BLOCK / WARP];
    long long s = thread_index();
    double own = slots[s] >= 0 && bound[s] > -INFINITE ? reach.of(bound[s]) : -1, stretched = own < 0 ? -1 : times(own, stretch);
    within[s] = own, reaches[s] = __double2float_ru(stretched);
    stretched = warp_max(stretched);
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = stretched;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < BLOCK / WARP; w++) stretched = fmax(stretched, of_warp[w]);
    of_block[blockIdx.x] = stretched;
}

// The number of marks of each word.
extern "C" __global__ void count_marks(long long n, const u32* __restrict__ marks, int* __restrict__ counts) {
    long long w = thread_index();
    if (w < n) counts[w] = __popc(marks[w]);
}

// The tiles that are marked, from where each word's end on backwards.
extern "C" __global__ void list_marks(
    long long n, int words, const u32* __restrict__ marks, const long long* __restrict__ ends, const int* __restrict__ order,
    int* __restrict__ tiles) {
    long long w = thread_index();
    if (w >= n) return;
    long long at = ends[w];
    for (u32 rest = marks[w]; rest;) {
        int bit = 31 - __clz(rest);
        tiles[--at] = order[w % words * WARP + bit], rest ^= 1u << bit;
    }
}

// A point's feature, counted from the origin and then from its cell's centre.
__device__ __forceinline__ double difference(VALUE x, double origin, double centre) {
    return minus(minus(widen(x), origin), centre);
}

// Points in slots counted from the origin, zeros where a slot is empty, and the squares of their lengths. A warp a slot.
extern "C" __global__ void centre_slots(
    const VALUE* __restrict__ points, int d, const int* __restrict__ slots, long long n, const double* __restrict__ origin,
    double* __restrict__ out, double* __restrict__ norms) {
    long long s = thread_index() / WARP;
    if (s >= n) return;
    int row = slots[s], lane = threadIdx.x % WARP;
    double square = 0;
    for (int f = lane; f < d; f += WARP) {
        double x = row >= 0 ? minus(widen(points[(size_t)row * d + f]), origin[f]) : 0;
        out[(size_t)s * d + f] = x, square += x * x;
    }
    square = warp_sum(square);
    if (lane == 0) norms[s] = square;
}

// The largest difference of any feature of the rows of a cell, zero at first. A warp a slot.
extern "C" __global__ void find_largest_differences(
    const VALUE* __restrict__ points, int d, const int* __restrict__ slots, long long n, const int* __restrict__ cell_of_tile,
    const double* __restrict__ origin, const double* __restrict__ centres, double* largest) {
    long long s = thread_index() / WARP;
    int row = s < n ? slots[s] : -1, lane = threadIdx.x % WARP;
    if (row < 0) return;
    int cell = cell_of_tile[s / TILE];
    double most = 0;
    for (int f = lane; f < d; f += WARP)
        most = fmax(most, fabs(difference(points[(size_t)row * d + f], origin[f], centres[(size_t)cell * d + f])));
    most = warp_max(most);
    if (lane == 0) atomic_max(largest + cell, most);
}

// Rows in slots as an image of fp16 (fused/pass.cuh): differences times the cell's scale, zeros where a slot is empty; how far rounding
// moved each, and how long it is, at most. A warp a slot. Sums of squares err by (d + 2) 2^-53 of themselves, which `up` covers.
//
// FINE: z is the sum of two numbers of fp16, the second the rounding of what is left. A row has them `width` features apart as
// (first, second, first), a column as (first, first, second): the product lacks that of the second ones alone. No second one is longer
// than 2^-10 of the longest row of its cell, so that a column takes 2^-10 of the length of its own for an error.
extern "C" __global__ void encode_slots(
    const VALUE* __restrict__ points, int d, const int* __restrict__ slots, long long n, const int* __restrict__ cell_of_tile,
    const double* __restrict__ origin, const double* __restrict__ centres, const double* __restrict__ scales, int width, int columns,
    int atoms, double up, double tiny, u16* __restrict__ y, float* __restrict__ error, float* __restrict__ length) {
    long long s = thread_index() / WARP;
    if (s >= n) return;
    int row = slots[s], lane = threadIdx.x % WARP, cell = cell_of_tile[s / TILE];
    const VALUE* x = points + (size_t)max(row, 0) * d;
    const double* centre = centres + (size_t)cell * d;
    double scale = scales[cell], moved = 0, size = 0, square = 0, second = 0;
    auto put = [&](int c, u16 value) {
        int chunk = c / CHUNK, in_tile = s % TILE;
        size_t at = ((s / TILE * atoms + chunk / ATOM) * TILE + in_tile) * ATOM + (chunk % ATOM ^ (in_tile & 7));
        y[at * CHUNK + c % CHUNK] = value;
    };
    for (int f = lane; f < atoms * ATOM * CHUNK; f += WARP) {
        double z = row >= 0 && f < d ? times(difference(x[f], origin[f], centre[f]), scale) : 0;
        u16 first = to_half((float)z);
        double rounded = from_half(first);
        if (!FINE) put(f, first);
        else if (f < width) {
            u16 rest = to_half((float)(z - rounded));
            double left = from_half(rest);
            put(f, first), put(f + width, columns ? first : rest), put(f + 2 * width, columns ? rest : first);
            rounded += left, second += left * left;
        } else if (f >= 3 * width) put(f, 0);
        double off = rounded - z;
        size += rounded * rounded, moved += off * off, square += z * z;
    }
    size = warp_sum(size), moved = warp_sum(moved), square = warp_sum(square), second = warp_sum(second);
    if (lane) return;
    double off = sqrt(moved) + sqrt(square) * 0x1p-52 + (columns ? sqrt(second) * 0x1p-10 : 0);
    error[s] = row >= 0 ? (float)(off * up + tiny) : 0;
    length[s] = (float)(sqrt(size) * up);
}

// Marks where rows in the order of cells and groups begin a block: at another cell, and at another group if that or the one before has
// at least `many` rows of the cell.
extern "C" __global__ void mark_runs(
    long long m, const int* __restrict__ cell, const int* __restrict__ group, int many, int* __restrict__ begins) {
    long long i = thread_index();
    if (i >= m) return;
    auto is_same = [&](long long a, long long b) { return cell[a] == cell[b] && (!group || group[a] == group[b]); };
    bool apart = i && cell[i] != cell[i - 1];
    if (i && !apart && group && group[i] != group[i - 1])
        apart = (i + many <= m && is_same(i, i + many - 1)) || (i >= many && is_same(i - 1, i - many));
    begins[i] = apart;
}

// The two cells whose points are nearest to each block's on average, the nearer first, -1 if there is none: by the squared distances of
// centres, (cells, cells), and the spread of the points. Cells whose first tile is of the block's group are left out. A warp a block.
extern "C" __global__ void find_near_cells(
    int blocks, int cells, const int* __restrict__ row_cell, const double* __restrict__ between, const double* __restrict__ spread,
    const int* __restrict__ first_tile, const int* __restrict__ tile_group, const int* __restrict__ block_group, int* __restrict__ near) {
    int b = thread_index() / WARP, lane = threadIdx.x % WARP;
    if (b >= blocks) return;
    int own = row_cell[b * (BLOCK / TILE)], group = block_group[b], best[2] = {-1, -1};
    double least[2] = {INFINITE, INFINITE};
    for (int c = lane; c < cells; c += WARP) {
        if (group >= 0 && tile_group[first_tile[c]] == group) continue;
        double square = between[(size_t)own * cells + c] + spread[c];
        if (square < least[0]) least[1] = least[0], best[1] = best[0], least[0] = square, best[0] = c;
        else if (square < least[1]) least[1] = square, best[1] = c;
    }
    for (int e = 0; e < 2; e++) {
        double nearest = -warp_max(-least[0]);
        unsigned votes = __ballot_sync(ALL_LANES, least[0] == nearest && best[0] >= 0);
        int from = votes ? __ffs(votes) - 1 : 0, chosen = __shfl_sync(ALL_LANES, best[0], from);
        if (lane == 0) near[2 * b + e] = votes ? chosen : -1;
        if (lane == from) least[0] = least[1], best[0] = best[1], least[1] = INFINITE, best[1] = -1;
    }
}

// The tiles of the near cells, from where each block's begin on.
extern "C" __global__ void list_near_cells(
    int blocks, const int* __restrict__ near, const int* __restrict__ first_tile, const long long* __restrict__ starts,
    int* __restrict__ tiles) {
    int b = thread_index();
    if (b >= blocks) return;
    long long at = starts[b];
    for (int e = 0; e < 2; e++) {
        int c = near[2 * b + e];
        for (int t = c < 0 ? 0 : first_tile[c]; c >= 0 && t < first_tile[c + 1]; t++) tiles[at++] = t;
    }
}

// The largest error and the largest length of each cell's rows, zero at first, and the sum of its squared lengths. A block a tile.
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

// Marks the cells that the tiles of a band of each block's list are of. A block of threads a block of rows.
extern "C" __global__ void mark_needed_cells(
    const long long* __restrict__ starts, const int* __restrict__ tiles, int first, int last, const int* __restrict__ cell_of_tile,
    int cells, bool* __restrict__ needed) {
    long long begin = starts[blockIdx.x] + first, end = min(starts[blockIdx.x + 1], starts[blockIdx.x] + last);
    for (long long p = begin + threadIdx.x; p < end; p += blockDim.x) needed[(size_t)blockIdx.x * cells + cell_of_tile[tiles[p]]] = true;
}

// What products of n rows are compared with, by the cells of points that their block needs, (cells, n). `products` are of the cells'
// centres with `points` of them, of which the rows are at `where`; the norms are the squares of either's lengths. Nothing beyond
// `within` is wanted of a row, of a negative one nothing. A block of threads has a block of rows.
extern "C" __global__ void __launch_bounds__(BLOCK) put_thresholds(
    long long n, int cells, long long points, const double* __restrict__ products, const double* __restrict__ centre_norms,
    const double* __restrict__ norms, const int* __restrict__ where, const double* __restrict__ within,
    const float* __restrict__ error, const int* __restrict__ row_cell, const double* __restrict__ scales,
    const double* __restrict__ largest_error, const double* __restrict__ largest_length, double missing,
    const bool* __restrict__ needed, float* __restrict__ out) {
    const float infinite = __int_as_float(0x7f800000);
    long long i = thread_index(), at = where[i];
    double own = within[i], norm = norms[at], scale = scales[row_cell[i / TILE]] / 2, moved = error[i];
    for (int c = blockIdx.y; c < cells; c += gridDim.y) {
        if (!needed[(size_t)blockIdx.x * cells + c]) continue;
        double square = norm + centre_norms[c] - 2 * products[c * points + at];
        double value = scale * scales[c] * (square - own * own - missing) - (largest_length[c] + largest_error[c]) * moved;
        float rounded = __double2float_rd(value);
        out[c * n + i] = own < 0 ? infinite : fabsf(rounded) < LARGEST ? rounded : -infinite;
    }
}

// What sums of n points begin at, by some cells of rows from `first` on, (cells, n); likewise. `between`, (cells, all cells), are the
// squared distances of centres.
extern "C" __global__ void put_begins(
    long long n, int cells, int first, const double* __restrict__ products, const double* __restrict__ centre_norms,
    const double* __restrict__ norms, const int* __restrict__ slots, const float* __restrict__ error,
    const float* __restrict__ length, const int* __restrict__ point_cell, int all_cells, const double* __restrict__ between,
    const double* __restrict__ scales, const double* __restrict__ largest_length, double eta, float* __restrict__ out) {
    const float infinite = __int_as_float(0x7f800000);
    long long j = thread_index();
    if (j >= n) return;
    int cell = point_cell[j / TILE];
    bool real = slots[j] >= 0;
    double norm = norms[j], scale = scales[cell] / 2, more = error[j] + eta * length[j];
    for (int c = blockIdx.y; c < cells; c += gridDim.y) {
        double square = norm + centre_norms[c] - 2 * products[c * n + j];
        double value = scales[first + c] * scale * (between[(size_t)c * all_cells + cell] - square);
        value += 2 * eta * fabs(value) + largest_length[first + c] * more;
        float rounded = __double2float_ru(value);
        out[c * n + j] = !real ? -infinite : fabsf(rounded) < LARGEST ? rounded : infinite;
    }
}

// The work items of blocks of rows, for fused/pass.cuh: each has `size` of the tiles of a band of its block's list, from `first` to
// `last`. `ends` counts the items up to each block.
extern "C" __global__ void list_items(
    int blocks, const long long* __restrict__ starts, const int* __restrict__ ends, int first, int last, int size,
    int4* __restrict__ items) {
    int b = thread_index();
    if (b >= blocks) return;
    long long begin = starts[b] + first, end = min(starts[b + 1], starts[b] + last);
    for (int i = b ? ends[b - 1] : 0; i < ends[b]; i++, begin += size)
        items[i] = int4{b * (BLOCK / TILE), (int)begin, (int)min(begin + size, end), 0};
}

// Which listed tiles have a point within the reach of a row, by the places of either: `kept`, in the order of the list. A block of
// threads has a block of rows, and a warp a tile: a row's place is compared with the tile's box, then a point's with the block's.
//
// `places` are float32, (m, slots), and off by `lost` at most, with those of the boxes. Sums err by 2^-18 of themselves.
extern "C" __global__ void __launch_bounds__(BLOCK) refine_lists(
    const float* __restrict__ places, long long n_slots, int m, const int* __restrict__ row_places, const float* __restrict__ reach,
    const double* __restrict__ boxes, const double* __restrict__ blocks, float lost, const long long* __restrict__ starts,
    const int* __restrict__ tiles, int* __restrict__ kept) {
    extern __shared__ float shared[];
    float *rows = shared, *box = shared + m * BLOCK, *within = box + 2 * m;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, place = row_places[(size_t)blockIdx.x * BLOCK + threadIdx.x];
    float own = reach[(size_t)blockIdx.x * BLOCK + threadIdx.x], farthest = warp_max(own);
    for (int f = 0; f < m; f++) rows[f * BLOCK + threadIdx.x] = places[(size_t)f * n_slots + place];
    for (int f = threadIdx.x; f < 2 * m; f += BLOCK) {
        double edge = blocks[(size_t)blockIdx.x * 2 * m + f];
        box[f] = f < m ? __double2float_rd(edge) - lost : __double2float_ru(edge) + lost;
    }
    within[threadIdx.x] = own >= 0 ? own * own * (1 + 0x1p-16f) : -1;
    if (lane == 0) within[BLOCK + warp] = farthest;
    __syncthreads();
    farthest = warp_max(lane < BLOCK / WARP ? within[BLOCK + lane] : -1.0f);
    float limit = farthest * farthest * (1 + 0x1p-16f);
    for (long long p = starts[blockIdx.x] + warp; p < starts[blockIdx.x + 1]; p += BLOCK / WARP) {
        int t = tiles[p];
        float edge[2];  // of coordinate `lane` of the tile's box
        for (int e = 0; e < 2; e++) {
            double of = lane < m ? boxes[((size_t)t * 2 + e) * m + lane] : 0;
            edge[e] = e ? __double2float_ru(of) + lost : __double2float_rd(of) - lost;
        }
        float total[BLOCK / WARP] = {}, sum[TILE / WARP] = {};
        for (int f = 0; f < m; f++) {
            float low = __shfl_sync(ALL_LANES, edge[0], f), high = __shfl_sync(ALL_LANES, edge[1], f);
#pragma unroll
            for (int r = 0; r < BLOCK / WARP; r++) {
                float x = rows[f * BLOCK + r * WARP + lane], gap = fmaxf(fmaxf(low - x, x - high), 0.0f);
                total[r] += gap * gap;
            }
        }
        bool near = false;
#pragma unroll
        for (int r = 0; r < BLOCK / WARP; r++) near |= total[r] <= within[r * WARP + lane];
        if (__any_sync(ALL_LANES, near)) {
            for (int f = 0; f < m; f++) {
                float low = box[f], high = box[m + f];
#pragma unroll
                for (int c = 0; c < TILE / WARP; c++) {
                    float x = places[(size_t)f * n_slots + (size_t)t * TILE + c * WARP + lane];
                    float gap = fmaxf(fmaxf(low - x, x - high), 0.0f);
                    sum[c] += gap * gap;
                }
            }
            near = false;
#pragma unroll
            for (int c = 0; c < TILE / WARP; c++) near |= sum[c] <= limit;
        } else near = false;
        near = __any_sync(ALL_LANES, near);
        if (lane == 0) kept[p] = near;
    }
}

// The tiles that are kept, and where each block's then begin: `upto` counts them up to each of the list.
extern "C" __global__ void keep_tiles(
    long long n, const int* __restrict__ kept, const int* __restrict__ upto, const int* __restrict__ tiles, int* __restrict__ out) {
    long long p = thread_index();
    if (p < n && kept[p]) out[upto[p] - 1] = tiles[p];
}
