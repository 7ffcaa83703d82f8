// Orders and lists, each made by one launch: on small data a launch costs more than the work.
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

// Makes n lists of k entries empty.
extern "C" __global__ void clear_lists(
    long long n, int k, int* __restrict__ ids, double* __restrict__ weights, bool* __restrict__ overflowed) {
    long long i = thread_index();
    if (i < n * k) ids[i] = -1, weights[i] = 1.0 / 0.0;
    if (i < n) overflowed[i] = false;
}

// Lists the positions of the flags that are set, in no order.
extern "C" __global__ void list_set(
    long long n, const bool* __restrict__ flag, int* __restrict__ position, int* count) {
    long long i = thread_index();
    bool set = i < n && flag[i];
    int slot = claim_in_warp(set, count);
    if (set) position[slot] = i;
}

// Stores bounds, and lists of k, of m rows where these are among all; rows below zero are none.
extern "C" __global__ void put_lists(
    long long m, int k, const int* __restrict__ rows, const double* __restrict__ bound, const int* __restrict__ ids,
    const double* __restrict__ weights, const bool* __restrict__ overflowed, double* __restrict__ upper, int* __restrict__ all_ids,
    double* __restrict__ all_weights, bool* __restrict__ all_overflowed) {
    long long i = thread_index();
    if (i >= m * k || rows[i / k] < 0) return;
    long long row = rows[i / k], entry = row * k + i % k;
    all_ids[entry] = ids[i], all_weights[entry] = weights[i];
    if (i % k == 0) upper[row] = bound[i / k], all_overflowed[row] = overflowed[i / k];
}

// Lowers least[group[i]] to the first of the k weights of row i. The first read is from the multiprocessor's own cache: it may be stale,
// as in `atomic_min`, and it spares the one address that many rows read.
extern "C" __global__ void scatter_min(
    long long n, const int* __restrict__ group, const double* __restrict__ weights, int k, double* least) {
    long long i = thread_index();
    if (i < n && weights[i * k] < least[group[i]]) atomic_min(least + group[i], weights[i * k]);
}
