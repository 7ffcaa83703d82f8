// Sparse rows, stored one after the other with their columns ascending: the sums of cpu.py, operation by operation. A thread a
// pair.
#include "items/mixing.cuh"
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif
#ifndef COLUMN
#define COLUMN int
#endif

// Calls both(column, x, y) for the columns of two rows, in ascending order; x or y is 0 where a row has no entry.
template <class Both>
__device__ __forceinline__ void merge(
    const long long* starts, const COLUMN* columns, const VALUE* values, int row, int other, long long d, Both both) {
    long long i = starts[row], i_end = starts[row + 1], j = starts[other], j_end = starts[other + 1];
    while (i < i_end || j < j_end) {
        long long a = i < i_end ? columns[i] : d, b = j < j_end ? columns[j] : d;
        both(a < b ? a : b, a <= b ? widen(values[i]) : 0.0, b <= a ? widen(values[j]) : 0.0);
        i += a <= b, j += b <= a;
    }
}

// Even and odd columns are summed separately; of an odd number the last column is added at the end.
extern "C" __global__ void dot_products(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values,
    const int* __restrict__ src, const int* __restrict__ dst, long long m, long long d, double* __restrict__ out) {
    long long p = thread_index();
    if (p >= m) return;
    double even = 0, odd = 0, lone = 0;
    merge(starts, columns, values, src[p], dst[p], d, [&](long long column, double x, double y) {
        double product = times(x, y);  // of a column that one row lacks it is zero, which changes no sum
        if (column & 1) odd = plus(odd, product);
        else if (column == d - 1) lone = product;
        else even = plus(even, product);
    });
    out[p] = plus(plus(even, odd), lone);
}

extern "C" __global__ void squared_distances(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values,
    const int* __restrict__ src, const int* __restrict__ dst, long long m, long long d, double* __restrict__ out) {
    long long p = thread_index();
    if (p >= m) return;
    squared_euclidean sum;
    merge(starts, columns, values, src[p], dst[p], d, [&](long long, double x, double y) { sum.add(x, y); });
    out[p] = sum.total;
}

// Whether two rows have the same entries.
extern "C" __global__ void equal_rows(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values,
    const int* __restrict__ src, const int* __restrict__ dst, long long m, long long d, bool* __restrict__ out) {
    long long p = thread_index();
    if (p >= m) return;
    long long i = starts[src[p]], j = starts[dst[p]], size = starts[src[p] + 1] - i;
    bool equal = starts[dst[p] + 1] - j == size;
    for (long long e = 0; equal && e < size; e++) equal = columns[i + e] == columns[j + e] && widen(values[i + e]) == widen(values[j + e]);
    out[p] = equal;
}

__device__ word bits_of(float x) { return __float_as_uint(x); }
__device__ word bits_of(double x) { return __double_as_longlong(x); }

// A number for each of n rows, the sum of its entries' hashes. A warp a row.
extern "C" __global__ void hash_rows(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values, long long n,
    word seed, word* __restrict__ out) {
    long long i = thread_index() / WARP;
    if (i >= n) return;
    word total = 0;
    for (long long e = starts[i] + threadIdx.x % WARP; e < starts[i + 1]; e += WARP)
        total += mixed(mixed(columns[e] + seed) ^ bits_of(values[e]));
    total = warp_sum(total);
    if (threadIdx.x % WARP == 0) out[i] = total + seed;
}
