// This kernel counts the edits of all pairs of strings. A lane has a string of up to WORDS words of MASK, and the other strings pass
// it a character at a time. A character makes a column of cpu.py, and all words of a column come before the next one.
#include "runtime/include/threads.cuh"

#ifndef MASK
#define MASK unsigned int
#endif
#ifndef WORDS
#define WORDS 1
#endif
#ifndef COUNT
#define COUNT unsigned char
#endif
constexpr int THREADS = 256, ROWS = 128;  // a block has these threads, and this number of strings pass it
constexpr int BITS = 8 * sizeof(MASK);

// Sets out[i * columns + j] to the number of edits between string rows[i], of m, and string first_column + j. Shared memory holds the
// masks of a block's 32 strings: a line for each word and each of the `characters` characters.
extern "C" __global__ void __launch_bounds__(THREADS) put_edits(
    const int* __restrict__ codes, const long long* __restrict__ starts, const int* __restrict__ rows, int m, int first_column,
    int columns, int characters, COUNT* __restrict__ out) {
    extern __shared__ __align__(16) char shared[];
    MASK* masks = (MASK*)shared;
    int lane = threadIdx.x % WARP, column = blockIdx.x * WARP + lane;
    long long begin = column < columns ? starts[first_column + column] : 0;
    int size = column < columns ? (int)(starts[first_column + column + 1] - begin) : 0;
    for (int i = threadIdx.x; i < characters * WORDS * WARP; i += THREADS) masks[i] = 0;
    __syncthreads();
    if (threadIdx.x < WARP)
        for (int i = 0; i < size; i++) masks[(codes[begin + i] * WORDS + i / BITS) * WARP + lane] |= (MASK)1 << i % BITS;
    __syncthreads();
    int last = max(size - 1, 0), last_word = last / BITS, last_bit = last % BITS;
    int end = min(m, (int)(blockIdx.y + 1) * ROWS);
    for (int row = blockIdx.y * ROWS + threadIdx.x / WARP; row < end; row += THREADS / WARP) {
        long long first = starts[rows[row]];
        int length = (int)(starts[rows[row] + 1] - first), value = size;
        MASK plus[WORDS], minus[WORDS];
#pragma unroll
        for (int w = 0; w < WORDS; w++) plus[w] = ~(MASK)0, minus[w] = 0;
        for (int start = 0; start < length; start += WARP) {
            int own = start + lane < length ? codes[first + start + lane] : 0, passing = min(WARP, length - start);
            for (int j = 0; j < passing; j++) {
                const MASK* line = masks + __shfl_sync(ALL_LANES, own, j) * WORDS * WARP + lane;
                MASK up_above = 1, down_above = 0;
#pragma unroll
                for (int w = 0; w < WORDS; w++) {
                    MASK equal = line[w * WARP], vertical = equal | minus[w];
                    equal |= down_above;
                    MASK horizontal = (((equal & plus[w]) + plus[w]) ^ plus[w]) | equal;
                    MASK up = minus[w] | ~(horizontal | plus[w]), down = plus[w] & horizontal;
                    if (WORDS == 1 || w == last_word) value += (int)(up >> last_bit & 1) - (int)(down >> last_bit & 1);
                    MASK up_below = up >> (BITS - 1), down_below = down >> (BITS - 1);
                    up = up << 1 | up_above, down = down << 1 | down_above;
                    plus[w] = down | ~(vertical | up), minus[w] = up & vertical;
                    up_above = up_below, down_above = down_below;
                }
            }
        }
        if (column < columns) out[(long long)row * columns + column] = (COUNT)(size ? value : length);
    }
}
