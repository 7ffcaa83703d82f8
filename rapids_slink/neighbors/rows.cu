// These kernels hash rows, find which of them are equal, and write their norms.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

template <class V> __device__ word bits_of(V x) { return __double_as_longlong(plus(widen(x), 0.0)); }  // -0.0 has those of 0.0
__device__ word bits_of(word x) { return x; }

// Returns the sum of a row's bits with odd factors, modulo 2⁶⁴, to each lane of a warp: equal rows have equal sums.
__device__ unsigned long long hash_of(const VALUE* x, int d) {
    unsigned long long sum = 0;
    for (int f = threadIdx.x % WARP; f < d; f += WARP) {
        unsigned long long bits = bits_of(x[f]);
        unsigned long long factor = (f + 1) * 0x9e3779b97f4a7c15ull;             // mixed as in SplitMix64
        factor = (factor ^ factor >> 30) * 0xbf58476d1ce4e5b9ull;
        factor = (factor ^ factor >> 27) * 0x94d049bb133111ebull;
        sum += (bits ^ bits >> 32) * (factor | 1);
    }
    return warp_sum(sum);
}

// Writes the hashes of m rows. A warp a row.
extern "C" __global__ void hash_rows(
    const VALUE* __restrict__ values, int d, const long long* __restrict__ rows, long long m,
    unsigned long long* __restrict__ hash) {
    long long i = thread_index() / WARP;
    if (i >= m) return;
    unsigned long long sum = hash_of(values + rows[i] * d, d);
    if (threadIdx.x % WARP == 0) hash[i] = sum;
}

constexpr int MOST_PROBES = 1024;  // entries of the table that a row is compared with

// Enters n rows into a table of zeros with 2^(64 - shift) entries, and writes the slot of each. An entry is one more than the first
// of equal rows, in the end; before, it may be a later one. Sets `crowded` if a row finds no slot. A warp a row.
extern "C" __global__ void enter_rows(
    const VALUE* __restrict__ values, long long n, int d, int shift, unsigned* table, unsigned* __restrict__ slot, int* crowded) {
    long long i = thread_index() / WARP;
    if (i >= n) return;
    const VALUE* x = values + i * d;
    int lane = threadIdx.x % WARP;
    unsigned own = i + 1, last = (1ull << (64 - shift)) - 1, at = hash_of(x, d) * 0x9e3779b97f4a7c15ull >> shift;
    for (int probe = 0; probe < MOST_PROBES; probe++, at = (at + 1) & last) {
        unsigned entry = 0;
        if (lane == 0) {
            entry = *(volatile unsigned*)(table + at);
            if (!entry) entry = atomicCAS(table + at, 0u, own);
        }
        entry = __shfl_sync(ALL_LANES, entry, 0);
        bool differs = false;
        if (entry) {
            const VALUE* y = values + (long long)(entry - 1) * d;
            for (int f = lane; f < d; f += WARP) differs |= !(x[f] == y[f]);
        }
        if (__any_sync(ALL_LANES, differs)) continue;
        if (lane == 0) {
            if (own < entry) atomicMin(table + at, own);
            slot[i] = at;
        }
        return;
    }
    if (lane == 0) *crowded = 1, slot[i] = at;
}

// Lists the first of equal rows, in no order.
extern "C" __global__ void list_first(
    long long n, const unsigned* __restrict__ table, const unsigned* __restrict__ slot, int* __restrict__ first, int* count) {
    long long i = thread_index();
    bool is_first = i < n && table[slot[i]] == i + 1;
    int at = claim_in_warp(is_first, count);
    if (is_first) first[at] = i;
}

// Writes the number of each row's entry, by the m first rows, in place of its slot, and counts the rows of each number.
extern "C" __global__ void number_rows(
    long long n, int m, const int* __restrict__ first, const unsigned* __restrict__ table, unsigned* __restrict__ slot,
    unsigned long long* __restrict__ count) {
    long long i = thread_index();
    unsigned rows = __ballot_sync(ALL_LANES, i < n), number = 0;
    if (i >= n) return;
    int of_entry = table[slot[i]] - 1;
    for (unsigned end = m; number < end;) {
        unsigned middle = (number + end) / 2;
        if (first[middle] < of_entry) number = middle + 1;
        else end = middle;
    }
    slot[i] = number;
    unsigned same = __match_any_sync(rows, number);
    if (threadIdx.x % WARP == __ffs(same) - 1) atomicAdd(count + number, (unsigned long long)__popc(same));
}

// Writes rows of zeros and ones as words, and their numbers of ones. A warp a row.
extern "C" __global__ void put_words(
    const VALUE* __restrict__ values, long long n, int d, int width, word* __restrict__ words) {
    long long i = thread_index() / WARP;
    if (i >= n) return;
    int lane = threadIdx.x % WARP, ones = 0;
    const VALUE* x = values + i * d;
    auto bits = [&](int f) { return __ballot_sync(ALL_LANES, f + lane < d && x[f + lane] != 0); };
    for (int w = 0; w < width - 1; w++) {
        word both = bits(2 * WARP * w) | (word)bits(2 * WARP * w + WARP) << WARP;
        if (lane == 0) words[i * width + w] = both;
        ones += __popcll(both);
    }
    if (lane == 0) words[i * width + width - 1] = ones;
}

// Rows are followed by their norms, which have the bits of the CPU's; see rows.py. A thread takes a row.

constexpr int LANES = 8, SUMMED = 128;  // NumPy's pairwise sum has 8 partial sums of each 128 numbers
constexpr int DEEPEST = 32;            // halves of 2^31 features

// Sums at most SUMMED numbers: in eight lanes, then those that are left.
__device__ double sum_of_block(const VALUE* x, int n) {
    double total = -0.0;
    int f = 0;
    if (n >= LANES) {
        double lane[LANES];
#pragma unroll
        for (int i = 0; i < LANES; i++) lane[i] = widen(x[i]);
        for (f = LANES; f + LANES <= n; f += LANES)
#pragma unroll
            for (int i = 0; i < LANES; i++) lane[i] = plus(lane[i], widen(x[f + i]));
        total = plus(plus(plus(lane[0], lane[1]), plus(lane[2], lane[3])), plus(plus(lane[4], lane[5]), plus(lane[6], lane[7])));
    }
    for (; f < n; f++) total = plus(total, widen(x[f]));
    return total;
}

// NumPy's sum of a contiguous row: more than SUMMED numbers are halved, the first half a multiple of eight.
__device__ double sum_of_row(const VALUE* x, int n) {
    int size[DEEPEST], depth = 0, start = 0;  // how many numbers are left to sum, the next on top
    double first[DEEPEST], total = 0;         // sums of first halves,
    int waiting[DEEPEST], halves = 0;         // halves that wait: how deep the stack was below their second halves
    size[depth++] = n;
    while (depth) {
        int m = size[--depth];
        while (m > SUMMED) {
            int half = m / 2 - m / 2 % LANES;
            waiting[halves++] = depth;
            size[depth++] = m - half;
            m = half;
        }
        total = sum_of_block(x + start, m);
        start += m;
        // A second half is complete once the stack is as deep as it was below that half.
        while (halves && depth == waiting[halves - 1]) total = plus(first[--halves], total);
        if (halves) first[halves - 1] = total;
    }
    return total;
}

// Sets rows[i] to x_i in float64, less its mean if `centre`, and then to the root of its dot product with itself.
extern "C" __global__ void put_norms(
    const VALUE* __restrict__ values, long long n, int d, bool centre, double* __restrict__ rows) {
    long long i = thread_index();
    if (i >= n) return;
    const VALUE* x = values + i * d;
    double* row = rows + i * ((long long)d + 1);
    double mean = centre ? __ddiv_rn(sum_of_row(x, d), d) : 0;
    inner_product square;
    for (int f = 0; f < d; f++) {
        row[f] = centre ? minus(widen(x[f]), mean) : widen(x[f]);
        if (f < inner_product::summed(d)) square.add(row[f], row[f]);
    }
    row[d] = __dsqrt_rn(square.dot(row, row, d));
}

// Sets `outside` if a value is outside [0, the period of its column), which is infinite for those that do not repeat. Or, with
// `out`, writes all values, wrapped: see settings.py. What is below the type's normal numbers becomes 0.
extern "C" __global__ void wrap(
    const VALUE* __restrict__ values, long long size, int d, const double* __restrict__ period, int* outside,
    VALUE* __restrict__ out) {
    long long i = thread_index();
    if (i >= size) return;
    double x = widen(values[i]), length = period[i % d];
    bool is_inside = isinf(length) || (x >= 0 && x < length);
    if (!out) {
        if (!is_inside) *outside = 1;
        return;
    }
    if (is_inside) {
        out[i] = values[i];
        return;
    }
    double rest = fmod(x, length);  // exact
    if (rest < 0) rest = plus(rest, length);
    if (rest < (sizeof(VALUE) < 8 ? 0x1p-126 : 0x1p-1022)) rest = 0;
    VALUE rounded = (VALUE)rest;
    out[i] = widen(rounded) < length ? rounded : (VALUE)0;
}
