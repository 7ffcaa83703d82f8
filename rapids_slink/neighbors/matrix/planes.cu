// These kernels write rows of codes as bit planes, and compute the distances of all pairs of rows by them.
//
// Plane p of 32 features is the word of the p-th bits of their codes. Two rows differ in the features of
//
//     (a_0 ^ b_0) | (a_1 ^ b_1) | ...
//
// one instruction a plane and 32 features, and `popc` counts them. Equal values of a feature have equal codes, and others have
// others, so the count is that of the formula. One more plane has the features that are present, if values may be missing: these
// are masked by those of both rows, which are counted too.
#ifndef FORMULA
#define FORMULA hamming
#endif
#ifndef VALUE
#define VALUE float
#endif
#ifndef DISTANCE
#define DISTANCE unsigned short  // if distances are integers, none above the number of features, or double
#endif
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/copies.cuh"
#include "runtime/include/threads.cuh"
typedef unsigned int u32;

constexpr bool IS_COUNTED = !FORMULA::ALL_PRESENT;
constexpr int MOST_PLANES = 32;
constexpr int THREADS = 256, SIDE = 16;                       // a block's threads, and those along either side of its tile
// Counts below 2^16 share a word, two of them: without others a thread has room for twice the points.
constexpr bool IS_WIDE = !IS_COUNTED && sizeof(DISTANCE) == 2;
constexpr int ROWS = 8, FEW = 4, POINTS = IS_WIDE ? ROWS : FEW;  // rows and points of a thread
constexpr int SHARED = IS_WIDE ? 2 : 1;                       // counts in a word
constexpr int ROW_TILE = SIDE * ROWS, POINT_TILE = SIDE * POINTS;  // rows and points of a block
constexpr int ADJACENT = 4;                                   // rows, or points, that a thread reads at once
constexpr int LINES = 16, STAGES = 3;                         // planes in shared memory at a time, and how often

// Lowers three numbers to the least of all values, to the least of their negatives, and to -1 if a value is no integer. A warp takes a row.
extern "C" __global__ void find_span(const VALUE* __restrict__ values, int d, int features, long long n, double* __restrict__ span) {
    long long r = thread_index() / WARP;
    if (r >= n) return;
    double least = OVERFLOW_VALUE, negative = OVERFLOW_VALUE, fraction = 0;
    for (int f = threadIdx.x % WARP; f < features; f += WARP) {
        double x = widen(values[r * d + f]);
        if (x != x) continue;
        least = fmin(least, x), negative = fmin(negative, -x);
        if (x != floor(x)) fraction = -1;
    }
    atomic_min(span, least), atomic_min(span + 1, negative), atomic_min(span + 2, fraction);
}

// Writes the planes of n rows of d values, of which the first `features` are x - least, codes below 2^planes, or missing. Each word has
// `planes` lines of `pitch` rows, and one more if values may be missing; the rows after n are zeros. A warp takes 32 rows and
// 32 features.
extern "C" __global__ void put_planes(
    const VALUE* __restrict__ values, int d, int features, long long n, double least, int planes, long long pitch,
    u32* __restrict__ lines) {
    int lane = threadIdx.x % WARP, f = blockIdx.y * WARP + lane;
    long long first = thread_index() / WARP * WARP;
    if (first >= pitch) return;
    u32 own[MOST_PLANES + 1] = {};
    for (int i = 0; i < WARP; i++) {
        double x = first + i < n && f < features ? widen(values[(first + i) * d + f]) : least;
        u32 code = x == x ? (u32)minus(x, least) : 0;
#pragma unroll
        for (int p = 0; p < MOST_PLANES; p++) {
            if (p >= planes) break;
            u32 word = __ballot_sync(ALL_LANES, code >> p & 1);
            if (lane == i) own[p] = word;
        }
        u32 present = __ballot_sync(ALL_LANES, x == x && first + i < n && f < features);
        if (lane == i) own[MOST_PLANES] = present;
    }
    lines += (size_t)blockIdx.y * (planes + IS_COUNTED) * pitch + first + lane;
#pragma unroll
    for (int p = 0; p < MOST_PLANES; p++)
        if (p < planes) lines[p * pitch] = own[p];
    if (IS_COUNTED) lines[planes * pitch] = own[MOST_PLANES];
}

// Returns the position in a tile of a thread's k-th row, or point.
__device__ __forceinline__ int position(int k, int thread) {
    return k / ADJACENT * (SIDE * ADJACENT) + thread * ADJACENT + k % ADJACENT;
}
template <int N>
__device__ __forceinline__ void read(u32 (&own)[N], const u32* line, int thread) {
#pragma unroll
    for (int k = 0; k < N; k += ADJACENT) *(uint4*)(own + k) = *(const uint4*)(line + position(k, thread));
}

// Sets out[i * n_points + j] to the distances of a tile of rows from a tile of points; `present` has the numbers of features that a row
// has. If `symmetric` the rows are the points: then tiles below the diagonal are left to their mirror images.
extern "C" __global__ void __launch_bounds__(THREADS, 2) put_distances(
    const u32* __restrict__ rows, const int* __restrict__ present, long long n_rows, long long row_pitch,
    const u32* __restrict__ points, const int* __restrict__ point_present, long long n_points, long long point_pitch, int lines,
    int planes, int features, bool symmetric, DISTANCE* __restrict__ out) {
    constexpr int STAGE = LINES * (ROW_TILE + POINT_TILE);
    __shared__ __align__(16) u32 memory[STAGES * STAGE];
    long long first_row = (long long)blockIdx.y * ROW_TILE, first_point = (long long)blockIdx.x * POINT_TILE;
    if (symmetric && first_point + POINT_TILE <= first_row) return;
    int across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    auto fetch = [&](const u32* from, long long pitch, int tile, int start, u32* to) {
        for (int i = threadIdx.x; i < LINES * tile / ADJACENT; i += THREADS) {
            int line = i / (tile / ADJACENT), at = i % (tile / ADJACENT) * ADJACENT;
            if (start + line < lines) copy<16>(to + line * tile + at, from + (start + line) * pitch + at);
        }
    };
    auto fetch_stage = [&](int start, int stage) {
        fetch(rows + first_row, row_pitch, ROW_TILE, start, memory + stage * STAGE);
        fetch(points + first_point, point_pitch, POINT_TILE, start, memory + stage * STAGE + LINES * ROW_TILE);
        commit_copies();
    };
    u32 mask[ROWS][POINTS] = {};
    u32 differ[ROWS][POINTS / SHARED] = {}, common[ROWS][POINTS] = {};
    for (int s = 0; s < STAGES - 1; s++) fetch_stage(s * LINES, s);
    for (int start = 0, stage = 0, plane = 0; start < lines; start += LINES, stage = (stage + 1) % STAGES) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        fetch_stage(start + (STAGES - 1) * LINES, (stage + STAGES - 1) % STAGES);
        const u32 *row_lines = memory + stage * STAGE, *point_lines = row_lines + LINES * ROW_TILE;
        int end = min(LINES, lines - start);
#pragma unroll 2
        for (int line = 0; line < end; line++) {
            u32 a[ROWS], b[POINTS];
            read(a, row_lines + line * ROW_TILE, down), read(b, point_lines + line * POINT_TILE, across);
            bool is_last = ++plane == planes + IS_COUNTED;
            if (!(IS_COUNTED && is_last)) {
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int c = 0; c < POINTS; c++) mask[r][c] |= a[r] ^ b[c];
            }
            if (!is_last) continue;
            plane = 0;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < POINTS; c++) {
                    u32 both = IS_COUNTED ? a[r] & b[c] : ~0u;
                    if (IS_COUNTED) common[r][c] += __popc(both);
                    differ[r][c / SHARED] += __popc(mask[r][c] & both) << 16 * (c % SHARED);
                    mask[r][c] = 0;
                }
        }
    }
#pragma unroll
    for (int c = 0; c < POINTS; c++) {
        long long j = first_point + position(c, across);
        if (j >= n_points) continue;
        int others = present ? point_present[j] : 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            long long i = first_row + position(r, down);
            if (i >= n_rows) continue;
            FORMULA sum;
            sum.put(IS_WIDE ? differ[r][c / SHARED] >> 16 * (c % SHARED) & 0xffff : differ[r][c], common[r][c]);
            DISTANCE distance = sum.of(present ? present[i] : 0, others, features);
            out[i * n_points + j] = distance;
            if (symmetric) out[j * n_points + i] = distance;
        }
    }
}
