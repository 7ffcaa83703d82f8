// Orders and lists, each made by one launch: on small data a launch costs more than the work.
#include "threads.cuh"

constexpr int TILE = 128;  // as in hopper.cu

// Place i of `order` gets i times `stride`, modulo n: see contract.py.
extern "C" __global__ void scatter(long long n, long long stride, int* __restrict__ order) {
    long long i = thread_index();
    if (i < n) order[i] = i * stride % n;
}

// The same for whole tiles of the rows `sorted`, of which there are n; what is no whole tile stays at the end.
extern "C" __global__ void scatter_tiles(
    long long n, long long stride, const long long* __restrict__ sorted, int* __restrict__ order) {
    long long i = thread_index(), tiles = n / TILE, tile = i / TILE;
    if (i < n) order[i] = sorted[tile < tiles ? tile * stride % tiles * TILE + i % TILE : i];
}

// n lists of k entries, all empty.
extern "C" __global__ void clear_lists(
    long long n, int k, int* __restrict__ ids, double* __restrict__ weights, bool* __restrict__ lost) {
    long long i = thread_index();
    if (i < n * k) ids[i] = -1, weights[i] = 1.0 / 0.0;
    if (i < n) lost[i] = false;
}

// Where flags are set, in no order.
extern "C" __global__ void list_set(long long n, const bool* __restrict__ flag, int* __restrict__ at, int* count) {
    long long i = thread_index();
    bool set = i < n && flag[i];
    int place = claim_in_warp(set, count);
    if (set) at[place] = i;
}
