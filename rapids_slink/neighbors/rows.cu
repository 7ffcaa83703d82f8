// Hashes and norms of rows.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

template <class V> __device__ word bits_of(V x) { return __double_as_longlong(plus(widen(x), 0.0)); }  // of -0.0 those of 0.0
__device__ word bits_of(word x) { return x; }

// Writes a hash of each row, or of each of some: equal rows have equal hashes. It is the sum of the values' bits with odd factors,
// modulo 2⁶⁴. A warp a row.
extern "C" __global__ void hash_rows(
    const VALUE* __restrict__ values, int d, const long long* __restrict__ rows, long long m,
    unsigned long long* __restrict__ hash) {
    long long i = thread_index() / WARP;
    if (i >= m) return;
    const VALUE* x = values + (rows ? rows[i] : i) * d;
    unsigned long long sum = 0;
    for (int f = threadIdx.x % WARP; f < d; f += WARP) {
        unsigned long long bits = bits_of(x[f]);
        unsigned long long factor = (f + 1) * 0x9e3779b97f4a7c15ull;             // mixed as in SplitMix64
        factor = (factor ^ factor >> 30) * 0xbf58476d1ce4e5b9ull;
        factor = (factor ^ factor >> 27) * 0x94d049bb133111ebull;
        sum += (bits ^ bits >> 32) * (factor | 1);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) hash[i] = sum;
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

// Rows followed by their norms, a thread a row, to the bits of the CPU's; see rows.py.

constexpr int LANES = 8, BLOCK = 128;  // of NumPy's pairwise sum
constexpr int DEEPEST = 32;            // halves of 2^31 features

// Sums at most BLOCK numbers: in eight lanes, then those that are left.
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

// NumPy's sum of a contiguous row: more than BLOCK numbers are halved, the first half a multiple of eight.
__device__ double sum_of_row(const VALUE* x, int n) {
    int size[DEEPEST], depth = 0, start = 0;  // how many numbers are left to sum, the next on top
    double first[DEEPEST], total = 0;         // sums of first halves,
    int waiting[DEEPEST], halves = 0;         // and how deep the stack was below their second halves
    size[depth++] = n;
    while (depth) {
        int m = size[--depth];
        while (m > BLOCK) {
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

// rows[i] = x_i in float64, minus its mean if `centre`, and then the root of its dot product with itself.
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

// Sets `outside` if the norm at the end of one of n rows is not above `least` and up to `largest`, or is no number.
extern "C" __global__ void check_norms(
    const double* __restrict__ rows, long long n, int d, double least, double largest, int* outside) {
    long long i = thread_index();
    if (i >= n) return;
    double norm = rows[i * (d + 1) + d];
    if (!(norm > least && norm <= largest)) *outside = 1;
}

// Writes rows without the norms at their ends, divided by them.
extern "C" __global__ void divide_by_norms(const double* __restrict__ rows, long long n, int d, double* __restrict__ unit) {
    long long i = thread_index();
    if (i < n * d) unit[i] = __ddiv_rn(rows[i / d * (d + 1) + i % d], rows[i / d * (d + 1) + d]);
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
