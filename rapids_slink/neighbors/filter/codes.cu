// The filter of codes: how many features differ between every row and every point of a tile, by hashes of 16 bits.
//
// A hash is the pattern of a finite fp16 number, two in a word, or NaN for a missing value: the comparison "ordered and not equal"
// of both halves at once is 1 where two values that are present differ. Equal values have equal hashes, so the count is at most
// the true one, and no formula here falls when it grows, its roundings included: the formula itself is the test.
#ifndef FORMULA
#define FORMULA hamming
#endif
#ifndef VALUE
#define VALUE float
#endif
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/tiles.cuh"
#include "runtime/include/threads.cuh"
typedef unsigned int u32;

constexpr bool IS_COUNTED = !FORMULA::ALL_PRESENT;  // the features that two rows have in common
constexpr int STEP = 16;          // words in shared memory at a time
constexpr int MOST_WORDS = 2048;  // fp16 counts up to here
constexpr u32 HASHES = 0x7c00, MISSING = 0x7e00;  // finite patterns, and NaN's

// The words of m rows of n features, two in each, and the bits of those that are present. A warp a row.
extern "C" __global__ void put_hashes(
    const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int width, int mask_width, u32* __restrict__ words,
    u32* __restrict__ mask) {
    int lane = threadIdx.x, n = FORMULA::summed(d);
    size_t r = blockIdx.x;
    const VALUE* x = values + (rows ? rows[r] : r) * d;
    for (int w = lane; w < width; w += WARP) {
        u32 word = 0;
        for (int h = 0; h < 2; h++) {
            int f = 2 * w + h;
            double value = f < n ? plus(widen(x[f]), 0.0) : 0;  // of -0.0 the hash of 0.0
            unsigned long long bits = __double_as_longlong(value);
            u32 hash = (bits ^ bits >> 32) * 0x9e3779b97f4a7c15ull >> 32;
            word |= (value == value ? __umulhi(hash, HASHES) : MISSING) << 16 * h;
        }
        words[r * width + w] = word;
    }
    for (int w = 0; w < mask_width; w++) {
        int f = w * WARP + lane;
        u32 present = __ballot_sync(ALL_LANES, f < n && x[f] == x[f]);
        if (lane == 0) mask[r * mask_width + w] = present;
    }
}

// Adds 1 to either half of `sum` if those of a and b are numbers and differ.
__device__ __forceinline__ void add_different(u32& sum, u32 a, u32 b) {
    u32 one;
    asm("set.ne.f16x2.f16x2 %0, %1, %2;" : "=r"(one) : "r"(a), "r"(b));
    asm("add.rn.f16x2 %0, %0, %1;" : "+r"(sum) : "r"(one));
}
__device__ __forceinline__ u32 half_sum(u32 sum) {
    float low, high;
    asm("{\n .reg .f16 l, h;\n mov.b32 {l, h}, %2;\n cvt.f32.f16 %0, l;\n cvt.f32.f16 %1, h;\n}" : "=f"(low), "=f"(high) : "r"(sum));
    return (u32)(low + high);
}

// Appends ids[j] to row i's candidates for every pair whose distance may be at most bound[i] and whose groups differ; `count`
// goes on past `capacity`.
extern "C" __global__ void __launch_bounds__(THREADS) append_candidates(
    const u32* __restrict__ words, const u32* __restrict__ mask, const int* __restrict__ present, long long rows,
    const u32* __restrict__ point_words, const u32* __restrict__ point_mask, const int* __restrict__ point_present,
    long long points, int width, int mask_width, int features, const double* __restrict__ bound,
    const int* __restrict__ row_group, const int* __restrict__ point_group, const int* __restrict__ ids, int capacity,
    int* __restrict__ out, int* __restrict__ count) {
    __shared__ __align__(16) u32 row_tile[STEP][PITCH];
    __shared__ __align__(16) u32 point_tile[STEP][PITCH];
    long long first_row = (long long)blockIdx.y * TILE, first_point = (long long)blockIdx.x * TILE;
    int across = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    u32 differ[PER_THREAD][PER_THREAD] = {}, common[PER_THREAD][PER_THREAD] = {};
    // Calls `add` for each word, with this thread's of the rows and of the points.
    auto for_each_word = [&](const u32* own, const u32* others, int length, int start, int end, auto add) {
        for (; start < end; start += STEP) {
            __syncthreads();
            load(row_tile, own, first_row, rows, length, start);
            load(point_tile, others, first_point, points, length, start);
            __syncthreads();
#pragma unroll 4
            for (int w = 0; w < STEP; w++) {
                u32 a[PER_THREAD], b[PER_THREAD];
#pragma unroll
                for (int k = 0; k < PER_THREAD; k++)
                    a[k] = row_tile[w][position(k, down)], b[k] = point_tile[w][position(k, across)];
#pragma unroll
                for (int r = 0; r < PER_THREAD; r++)
#pragma unroll
                    for (int c = 0; c < PER_THREAD; c++) add(r, c, a[r], b[c]);
            }
        }
    };
    for (int start = 0; start < width; start += MOST_WORDS) {
        u32 sum[PER_THREAD][PER_THREAD] = {};
        for_each_word(words, point_words, width, start, min(start + MOST_WORDS, width),
                      [&](int r, int c, u32 a, u32 b) { add_different(sum[r][c], a, b); });
#pragma unroll
        for (int r = 0; r < PER_THREAD; r++)
#pragma unroll
            for (int c = 0; c < PER_THREAD; c++) differ[r][c] += half_sum(sum[r][c]);
    }
    if (IS_COUNTED)
        for_each_word(mask, point_mask, mask_width, 0, mask_width,
                      [&](int r, int c, u32 a, u32 b) { common[r][c] += __popc(a & b); });
#pragma unroll
    for (int c = 0; c < PER_THREAD; c++) {
        long long j = first_point + position(c, across);
        if (j >= points) continue;
        int others = IS_COUNTED ? point_present[j] : 0;
#pragma unroll
        for (int r = 0; r < PER_THREAD; r++) {
            long long i = first_row + position(r, down);
            if (i >= rows) continue;
            FORMULA sum;
            sum.put(differ[r][c], common[r][c]);
            if (!(sum.of(IS_COUNTED ? present[i] : 0, others, features) <= bound[i])) continue;
            int id = ids[j];
            if (point_group[id] == row_group[i]) continue;
            int slot = atomicAdd(count + i, 1);
            if (slot < capacity) out[i * capacity + slot] = id;
        }
    }
}
