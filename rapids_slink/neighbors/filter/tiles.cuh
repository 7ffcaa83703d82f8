// Tiles of rows and points, in which a thread has some rows and some points: their parts in shared memory.
#pragma once

constexpr int THREADS = 256;
constexpr int TILE = 128;                // rows, and points, of a block
constexpr int SIDE = 16;                 // threads along either side of the tile
constexpr int ADJACENT = 4;              // rows, and points, that a thread reads at once
constexpr int PER_THREAD = 2 * ADJACENT;  // rows, and points, that it has
constexpr int PITCH = TILE + 4;

// Values start .. start + STEP of TILE rows of `width` from `first` on, value by value; zeros beyond the last.
template <class T, int STEP>
__device__ __forceinline__ void load(
    T (&to)[STEP][PITCH], const T* __restrict__ y, long long first, long long n, int width, int start) {
    for (int e = threadIdx.x; e < TILE * STEP; e += THREADS) {
        int r = e / STEP, w = e % STEP;
        to[w][r] = first + r < n && start + w < width ? y[(first + r) * width + start + w] : 0;
    }
}
// The position in the tile of a thread's k-th row, or point.
__device__ __forceinline__ int position(int k, int thread) {
    return k / ADJACENT * (TILE / 2) + thread * ADJACENT + k % ADJACENT;
}
