// These kernels count the edits and the differing characters of pairs of strings, and make hashes, keys and bits. cpu.py has the
// definitions.
#include "items/mixing.cuh"
#include "runtime/include/threads.cuh"

typedef unsigned long long u64;

constexpr int WORD = 64;  // a word holds this number of characters
constexpr u64 FACTOR = 0x9E3779B97F4A7C15ull, INVERSE = 0xF1DE83E19937733Dull;  // both are odd, and their product is 1 modulo 2^64
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)

// Returns the number of edits between a string of `m` characters, 0 < m <= n, and one of n, or a number above `most` if there are more.
// `edge` has a byte for each of the n characters: each word of the first string writes them, and the next word reads them. There are
// none if there is one word.
__device__ int columns(const int* __restrict__ a, int m, const int* __restrict__ b, int n, long long most, signed char* edge) {
    long long value = m;
    for (int first = 0; first < m; first += WORD) {
        int size = min(WORD, m - first), last = size - 1;
        bool is_lowest = first + size == m;
        u64 plus = ~0ull, minus = 0;
        for (int j = 0; j < n; j++) {
            int above = first ? edge[j] : 1, character = b[j];
            u64 equal = 0;
            for (int i = 0; i < size; i++) equal |= (u64)(a[first + i] == character) << i;
            u64 vertical = equal | minus;
            if (above < 0) equal |= 1;
            u64 horizontal = (((equal & plus) + plus) ^ plus) | equal;
            u64 up = minus | ~(horizontal | plus), down = plus & horizontal;
            int below = (int)((up >> last) & 1) - (int)((down >> last) & 1);
            up <<= 1, down <<= 1;
            if (above > 0) up |= 1;
            if (above < 0) down |= 1;
            plus = down | ~(vertical | up), minus = up & vertical;
            if (!is_lowest) {
                edge[j] = (signed char)below;
                continue;
            }
            value += below;
            if (value - (n - 1 - j) > most) return (int)min(most + 1, (long long)0x7fffffff);
        }
    }
    return (int)value;
}

// Sets distance[i] to the number of edits of pair i, or to infinity if that is above `most`. `edges` has `longest` bytes for each pair,
// which are none if no string is longer than a word.
extern "C" __global__ void count_edits(const int* __restrict__ codes, const long long* __restrict__ starts, const int* __restrict__ src, const int* __restrict__ dst, long long pairs, int most, signed char* edges, long long longest, double* __restrict__ distance) {
    long long pair = thread_index();
    if (pair >= pairs) return;
    long long a = starts[src[pair]], m = starts[src[pair] + 1] - a, b = starts[dst[pair]], n = starts[dst[pair] + 1] - b;
    if (m > n) {
        long long other = a;
        a = b, b = other;
        other = m, m = n, n = other;
    }
    if (n - m > most) {
        distance[pair] = INFINITE;
        return;
    }
    for (; m && codes[a] == codes[b]; a++, b++) m--, n--;
    for (; m && codes[a + m - 1] == codes[b + n - 1];) m--, n--;
    long long value = m ? columns(codes + a, (int)m, codes + b, (int)n, most, edges + pair * longest) : n;
    distance[pair] = value > most ? INFINITE : (double)value;
}

// Sets distance[i] to the number of positions at which pair i differs, or to infinity if that is above `most` or the lengths differ.
extern "C" __global__ void count_differences(const int* __restrict__ codes, const long long* __restrict__ starts, const int* __restrict__ src, const int* __restrict__ dst, long long pairs, int most, double* __restrict__ distance) {
    long long pair = thread_index();
    if (pair >= pairs) return;
    long long a = starts[src[pair]], m = starts[src[pair] + 1] - a, b = starts[dst[pair]], n = starts[dst[pair] + 1] - b;
    long long count = 0;
    if (m == n)
        for (long long i = 0; i < n && count <= most; i++) count += codes[a + i] != codes[b + i];
    distance[pair] = m != n || count > most ? INFINITE : (double)count;
}

// Returns the sum of a string's characters, each times the power of FACTOR that belongs to its position.
__device__ u64 sum_of_string(const int* __restrict__ codes, long long begin, long long end) {
    u64 total = 0, power = 1;
    for (long long i = begin; i < end; i++, power *= FACTOR) total += (u64)(codes[i] + 1) * power;
    return total;
}

// Writes the sum of the hashes of a string's characters with their positions.
extern "C" __global__ void hash_strings(const int* __restrict__ codes, const long long* __restrict__ starts, long long n, u64* __restrict__ hashes) {
    long long row = thread_index();
    if (row >= n) return;
    u64 total = 0;
    for (long long begin = starts[row], i = begin; i < starts[row + 1]; i++)
        total += mixed((u64)(i - begin) << 32 | (u64)(codes[i] + 1));
    hashes[row] = total;
}

// Writes the keys of the strings from `first_row` on with up to `deleted` characters, at most two, left out. If `is_placed`, a key
// depends on their positions, too. Those of the k-th string are written from first[k] on.
extern "C" __global__ void delete_characters(const int* __restrict__ codes, const long long* __restrict__ starts, long long first_row, long long count, int deleted, bool is_placed, const long long* __restrict__ first, int* __restrict__ item, u64* __restrict__ key) {
    long long k = thread_index();
    if (k >= count) return;
    long long row = first_row + k, at = first[k], begin = starts[row], end = starts[row + 1];
    u64 whole = sum_of_string(codes, begin, end), before = 0, power = 1;
    item[at] = (int)row, key[at++] = whole;
    for (long long i = begin; deleted && i < end; i++, power *= FACTOR) {
        u64 own = (u64)(codes[i] + 1) * power, after_one = whole - before - own;
        u64 place = is_placed ? (u64)(i - begin) << 40 : 0;
        item[at] = (int)row, key[at++] = (before + after_one * INVERSE) ^ place;
        if (deleted > 1) {
            u64 between = 0, of_j = power;
            for (long long j = i + 1; j < end; j++) {
                of_j *= FACTOR;
                u64 second = (u64)(codes[j] + 1) * of_j, behind = after_one - between - second;
                if (is_placed) place = (u64)(i - begin) << 40 | (u64)(j - begin) << 20;
                item[at] = (int)row, key[at++] = (before + (between + behind * INVERSE) * INVERSE) ^ place;
                between += second;
            }
        }
        before += own;
    }
}

// Sets the bits of each string in `bytes` bytes of zeros: see cpu.py. `counts` has `buckets` zeros for each string.
extern "C" __global__ void project_strings(const int* __restrict__ codes, const long long* __restrict__ starts, long long n, int ones, int buckets, int bytes, unsigned char* __restrict__ counts, unsigned char* __restrict__ values) {
    long long row = thread_index();
    if (row >= n) return;
    long long begin = starts[row];
    for (long long i = begin; i < starts[row + 1]; i++) {
        long long bit;
        if (ones) {
            int bucket = codes[i] % buckets;
            unsigned char count = counts[row * buckets + bucket];
            if (count == ones) continue;
            counts[row * buckets + bucket] = count + 1;
            bit = bucket * ones + count;
        } else {
            bit = (long long)(((u64)(codes[i] + 1) * FACTOR + (u64)(i - begin) * INVERSE) >> 32) % (bytes * 8);
        }
        values[row * bytes + bit / 8] |= 1 << bit % 8;
    }
}
