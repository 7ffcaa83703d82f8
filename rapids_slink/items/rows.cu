// These kernels compute the sums of cpu.py, operation by operation, for sets and sparse rows. Rows are stored one after the other, with
// their columns ascending. Sets have no values.
#include "items/mixing.cuh"
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif
#ifndef COLUMN
#define COLUMN int
#endif
constexpr int THREADS = 256, WARPS = THREADS / WARP;
constexpr int COUNTED = 512, SUMMED = 384;  // a warp keeps the counts, or the sums, of these rows in shared memory

// Returns the position of the first of ascending numbers that is not below a number.
template <class T> __device__ long long position_of(T number, const T* __restrict__ numbers, long long begin, long long end) {
    while (begin < end) {
        long long middle = (begin + end) / 2;
        if (numbers[middle] < number) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

__device__ word bits_of(float x) { return __float_as_uint(x); }
__device__ word bits_of(double x) { return __double_as_longlong(x); }

// Writes the hash of each of n rows, which is the sum of its entries' hashes. A warp takes a row.
extern "C" __global__ void hash_rows(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values, long long n,
    word* __restrict__ out) {
    long long i = thread_index() / WARP;
    if (i >= n) return;
    word total = 0;
    for (long long e = starts[i] + threadIdx.x % WARP; e < starts[i + 1]; e += WARP)
        total += mixed(mixed((long long)columns[e] + 1) ^ (values ? bits_of(values[e]) : 0));
    total = warp_sum(total);
    if (threadIdx.x % WARP == 0) out[i] = total;
}

// Writes whether the two rows of each pair have the same entries. A thread takes a pair.
extern "C" __global__ void equal_rows(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values,
    const int* __restrict__ src, const int* __restrict__ dst, long long m, long long d, bool* __restrict__ out) {
    long long p = thread_index();
    if (p >= m) return;
    long long i = starts[src[p]], j = starts[dst[p]], size = starts[src[p] + 1] - i;
    bool equal = starts[dst[p] + 1] - j == size;
    for (long long e = 0; equal && e < size; e++)
        equal = columns[i + e] == columns[j + e] && (!values || widen(values[i + e]) == widen(values[j + e]));
    out[p] = equal;
}

// --- Sets -------------------------------------------------------------------------------------------------------------------

// Sets the bits of each set's elements in words of zeros, and writes how many bits are set in each. A warp takes a set.
extern "C" __global__ void put_bits(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, long long n, int width, bool fit, word* words,
    long long* __restrict__ ones) {
    long long i = thread_index() / WARP;
    if (i >= n) return;
    int lane = threadIdx.x % WARP, count = 0;
    word* own = words + i * (width / 64);
    for (long long e = starts[i] + lane; e < starts[i + 1]; e += WARP) {
        word bit = (long long)columns[e];
        if (!fit) bit = (mixed(bit) >> 32) * width >> 32;
        word mask = 1ull << (bit & 63);
        count += !(atomicOr(own + (bit >> 6), mask) & mask);  // two elements may have one bit, and then one of them counts
    }
    count = warp_sum(count);
    if (lane == 0) ones[i] = count;
}

// Counts common elements by looking for each element of the smaller set in the larger one. A warp takes a pair.
extern "C" __global__ void count_common(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values,
    const int* __restrict__ src, const int* __restrict__ dst, long long m, long long d, long long* __restrict__ common) {
    long long p = thread_index() / WARP;
    if (p >= m) return;
    long long a = src[p], b = dst[p];
    bool is_larger = starts[a + 1] - starts[a] > starts[b + 1] - starts[b];
    long long smaller = is_larger ? b : a, larger = is_larger ? a : b, end = starts[larger + 1];
    int lane = threadIdx.x % WARP, count = 0;
    for (long long e = starts[smaller] + lane; e < starts[smaller + 1]; e += WARP) {
        long long position = position_of(columns[e], columns, starts[larger], end);
        count += position < end && columns[position] == columns[e];
    }
    count = warp_sum(count);
    if (lane == 0) common[p] = count;
}

// --- Sparse rows ------------------------------------------------------------------------------------------------------------

// Calls both(column, x, y) for the columns of two rows, in ascending order; x or y is 0 where a row has no entry.
template <class Both>
__device__ __forceinline__ void each_column_of_both(
    const long long* starts, const COLUMN* columns, const VALUE* values, int row, int other, long long d, Both both) {
    long long i = starts[row], i_end = starts[row + 1], j = starts[other], j_end = starts[other + 1];
    while (i < i_end || j < j_end) {
        long long a = i < i_end ? columns[i] : d, b = j < j_end ? columns[j] : d;
        both(a < b ? a : b, a <= b ? widen(values[i]) : 0.0, b <= a ? widen(values[j]) : 0.0);
        i += a <= b, j += b <= a;
    }
}

// Computes dot products. Even and odd columns are summed separately, and the last of an odd number of columns is added at the end. A
// thread takes a pair.
extern "C" __global__ void dot_products(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values,
    const int* __restrict__ src, const int* __restrict__ dst, long long m, long long d, double* __restrict__ out) {
    long long p = thread_index();
    if (p >= m) return;
    double even = 0, odd = 0, lone = 0;
    each_column_of_both(starts, columns, values, src[p], dst[p], d, [&](long long column, double x, double y) {
        double product = times(x, y);  // it is zero, and changes no sum, if a row lacks the column
        if (column & 1) odd = plus(odd, product);
        else if (column == d - 1) lone = product;
        else even = plus(even, product);
    });
    out[p] = plus(plus(even, odd), lone);
}

// Computes squared distances. A thread takes a pair.
extern "C" __global__ void squared_distances(
    const long long* __restrict__ starts, const COLUMN* __restrict__ columns, const VALUE* __restrict__ values,
    const int* __restrict__ src, const int* __restrict__ dst, long long m, long long d, double* __restrict__ out) {
    long long p = thread_index();
    if (p >= m) return;
    squared_euclidean sum;
    each_column_of_both(starts, columns, values, src[p], dst[p], d, [&](long long, double x, double y) { sum.add(x, y); });
    out[p] = sum.total;
}

// --- All pairs --------------------------------------------------------------------------------------------------------------

// Calls step(entry, begin, end) for the entries of a row in their order. The range is that of the column's `holders` from row `first`
// to `last`, and entries whose range is empty are passed over. `numbers` has the number of each entry's column, and `begins` where the
// holders of a column begin, which are ascending rows. All lanes of a warp must call.
template <class Step>
__device__ __forceinline__ void each_column(
    const long long* __restrict__ starts, const int* __restrict__ numbers, const long long* __restrict__ begins,
    const int* __restrict__ holders, int row, int first, int last, Step step) {
    int lane = threadIdx.x % WARP;
    for (long long e = starts[row], row_end = starts[row + 1]; e < row_end; e += WARP) {
        long long begin = 0, end = 0;
        if (e + lane < row_end) {
            int number = numbers[e + lane];
            begin = position_of(first, holders, begins[number], begins[number + 1]);
            end = position_of(last, holders, begin, begins[number + 1]);
        }
        for (unsigned lanes = __ballot_sync(ALL_LANES, begin < end); lanes; lanes &= lanes - 1) {
            int next = __ffs(lanes) - 1;
            step(e + next, __shfl_sync(ALL_LANES, begin, next), __shfl_sync(ALL_LANES, end, next));
            __syncwarp();
        }
    }
}

// Sets out[i * p + j] to the number of common elements of sets rows[i] and first_point + j. A warp takes a set and COUNTED others, and
// one element at a time, so that no two lanes add to one count.
extern "C" __global__ void __launch_bounds__(THREADS) count_all_common(
    const long long* __restrict__ starts, const int* __restrict__ numbers, const long long* __restrict__ begins,
    const int* __restrict__ holders, const int* __restrict__ rows, int first_point, int p, int* __restrict__ out) {
    __shared__ int shared[WARPS][COUNTED];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, *counts = shared[warp];
    int offset = (blockIdx.y * WARPS + warp) * COUNTED, first = first_point + offset, last = first_point + min(p, offset + COUNTED);
    if (offset >= p) return;
    for (int j = lane; j < COUNTED; j += WARP) counts[j] = 0;
    __syncwarp();
    each_column(starts, numbers, begins, holders, rows[blockIdx.x], first, last, [&](long long, long long begin, long long end) {
        for (long long h = begin + lane; h < end; h += WARP) counts[holders[h] - first]++;
    });
    for (int j = lane; first + j < last; j += WARP) out[(long long)blockIdx.x * p + offset + j] = counts[j];
}

// Sets out[i * p + j] to the dot product of rows rows[i] and first_point + j, to the same bits as `dot_products`. Holder h has the value
// `held[h]`. A warp takes a row and SUMMED others, and one column at a time, so that each sum has the order of the columns.
extern "C" __global__ void __launch_bounds__(THREADS) sum_all_products(
    const long long* __restrict__ starts, const int* __restrict__ numbers, const long long* __restrict__ begins,
    const int* __restrict__ holders, const int* __restrict__ rows, int first_point, int p, double* __restrict__ out,
    const COLUMN* __restrict__ columns, const VALUE* __restrict__ values, const VALUE* __restrict__ held, long long d) {
    __shared__ double shared[WARPS][2][SUMMED];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    double *even = shared[warp][0], *odd = shared[warp][1];
    int offset = (blockIdx.y * WARPS + warp) * SUMMED, first = first_point + offset, last = first_point + min(p, offset + SUMMED);
    if (offset >= p) return;
    for (int j = lane; j < SUMMED; j += WARP) even[j] = odd[j] = 0;
    __syncwarp();
    each_column(starts, numbers, begins, holders, rows[blockIdx.x], first, last, [&](long long e, long long begin, long long end) {
        long long column = columns[e];
        double x = widen(values[e]), *sums = column & 1 ? odd : even;
        if (column == d - 1 && !(column & 1)) {
            for (int j = lane; j < SUMMED; j += WARP) even[j] = plus(even[j], odd[j]), odd[j] = 0;
            __syncwarp();
        }
        for (long long h = begin + lane; h < end; h += WARP) {
            int j = holders[h] - first;
            sums[j] = plus(sums[j], times(x, widen(held[h])));
        }
    });
    for (int j = lane; first + j < last; j += WARP) out[(long long)blockIdx.x * p + offset + j] = plus(even[j], odd[j]);
}
