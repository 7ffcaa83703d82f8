// Sets, stored one after the other with their elements ascending: rows of bits, and numbers of common elements. A warp a set or a
// pair.
#include "items/mixing.cuh"
#include "runtime/include/threads.cuh"

#ifndef ELEMENT
#define ELEMENT int
#endif
typedef unsigned long long word;

// A number for each of n sets, the sum of its elements' hashes.
extern "C" __global__ void hash_sets(
    const long long* __restrict__ starts, const ELEMENT* __restrict__ elements, long long n, word seed, word* __restrict__ out) {
    long long i = thread_index() / WARP;
    if (i >= n) return;
    word total = 0;
    for (long long e = starts[i] + threadIdx.x % WARP; e < starts[i + 1]; e += WARP) total += mixed((long long)elements[e] + seed);
    total = warp_sum(total);
    if (threadIdx.x % WARP == 0) out[i] = total + seed;
}

// The words of n sets are zero before.
extern "C" __global__ void put_bits(
    const long long* __restrict__ starts, const ELEMENT* __restrict__ elements, long long n, int width, bool fit, word* words,
    long long* __restrict__ ones) {
    long long i = thread_index() / WARP;
    if (i >= n) return;
    int lane = threadIdx.x % WARP, count = 0;
    word* own = words + i * (width / 64);
    for (long long e = starts[i] + lane; e < starts[i + 1]; e += WARP) {
        word bit = (long long)elements[e];
        if (!fit) bit = (mixed(bit) >> 32) * width >> 32;
        word mask = 1ull << (bit & 63);
        count += !(atomicOr(own + (bit >> 6), mask) & mask);  // of two elements on one bit the first counts
    }
    count = warp_sum(count);
    if (lane == 0) ones[i] = count;
}

// Each element of the smaller set is looked for in the larger one.
extern "C" __global__ void count_common(
    const long long* __restrict__ starts, const ELEMENT* __restrict__ elements, const int* __restrict__ src,
    const int* __restrict__ dst, long long m, long long* __restrict__ common) {
    long long p = thread_index() / WARP;
    if (p >= m) return;
    const ELEMENT *a = elements + starts[src[p]], *b = elements + starts[dst[p]];
    long long size = starts[src[p] + 1] - starts[src[p]], other_size = starts[dst[p] + 1] - starts[dst[p]];
    if (other_size < size) {
        const ELEMENT* c = a;
        a = b, b = c;
        long long s = size;
        size = other_size, other_size = s;
    }
    int lane = threadIdx.x % WARP, count = 0;
    for (long long e = lane; e < size; e += WARP) {
        long long low = 0, high = other_size;
        while (low < high) {
            long long middle = (low + high) / 2;
            if (b[middle] < a[e]) low = middle + 1;
            else high = middle;
        }
        count += low < other_size && b[low] == a[e];
    }
    count = warp_sum(count);
    if (lane == 0) common[p] = count;
}
