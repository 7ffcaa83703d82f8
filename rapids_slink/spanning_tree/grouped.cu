// This finds the trees of small groups of rows, VALUEs, by Prim's algorithm. A team of TEAM_WARPS warps takes a group, and a thread at
// most ROWS_A_THREAD rows.
#include "neighbors/exact/formulas.cuh"
#include "ordering.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE double
#endif
#ifndef TEAM_WARPS
#define TEAM_WARPS 1
#endif
#ifndef ROWS_A_THREAD
#define ROWS_A_THREAD 2
#endif
constexpr int THREADS = 256;
constexpr int TEAM = TEAM_WARPS * WARP, TEAMS = THREADS / TEAM;  // threads of a team, teams of a block
constexpr double INFINITE = 1.0 / 0.0;

// A candidate for the next edge; the least comes first in the total order. The words of a weight ascend as it does, and both
// zeros have the same. `ends` are those of an edge: the lesser, the greater, and whether the greater is outside the tree.
struct Candidate {
    unsigned high, low, ends;
};

__device__ __forceinline__ Candidate candidate(double weight, unsigned ends) {
    unsigned long long bits = __double_as_longlong(plus(weight, 0.0));
    bits = bits >> 63 ? ~bits : bits | 1ull << 63;
    return {(unsigned)(bits >> 32), (unsigned)bits, ends};
}
__device__ __forceinline__ unsigned ends_of(int outside, int inside) {
    return ((unsigned)min(outside, inside) << 16) | ((unsigned)max(outside, inside) << 1) | (outside > inside);
}

__device__ __forceinline__ unsigned warp_min(unsigned x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(ALL_LANES, x);
#else
    for (int step = WARP / 2; step; step /= 2) x = min(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
#endif
}

// Returns the least of a warp's candidates to every lane.
__device__ __forceinline__ Candidate least_in_warp(Candidate own) {
    unsigned high = warp_min(own.high);
    if (own.high != high) own.low = own.ends = ~0u;
    unsigned low = warp_min(own.low);
    if (own.low != low) own.ends = ~0u;
    return {high, low, warp_min(own.ends)};
}

// Waits for the threads of a team.
__device__ __forceinline__ void wait_for_team() {
    if (TEAM_WARPS == 1) __syncwarp();
    else __syncthreads();
}

// This is a row of a group, whose features are columns of n values: lanes with rows side by side read values side by side.
struct Row {
    const VALUE* first;
    int n;
    __device__ __forceinline__ VALUE operator[](int f) const { return first[(long long)f * n]; }
};

// Returns a row's distance from the `samples`-th nearest of the other rows of its group, each of which is read `samples` times.
__device__ double core_distance(const VALUE* columns, int d, int n, int own, int samples) {
    double last = -INFINITE;
    int last_id = -1;
    for (int s = 0; s < samples; s++) {
        double least = INFINITE;
        int id = EMPTY_ID;
        for (int j = 0; j < n; j++) {
            if (j == own) continue;
            double w = surrogate_distance(Row{columns + own, n}, Row{columns + j, n}, d);
            if (before(last, last_id, w, j) && before(w, j, least, id)) least = w, id = j;
        }
        last = least, last_id = id;
    }
    return last;
}

// Writes the trees of the `count` groups of `these`, of at least two rows and at most TEAM * ROWS_A_THREAD, fewer than 2^15. Group g has
// the rows whose numbers are in `number` from first[g] on, and writes its edges from begin[g] on, in the order in which they are added.
// `values` is room for all rows' features, and `core` for mutual reachability if min_samples is above 1. `undefined` becomes the
// least of the groups that have a pair of OVERFLOW_VALUE.
extern "C" __global__ void __launch_bounds__(THREADS) grow_trees(
    const VALUE* __restrict__ rows, int d, int count, const int* __restrict__ these, const long long* __restrict__ first,
    const int* __restrict__ size, const long long* __restrict__ begin, const int* __restrict__ number, int min_samples,
    VALUE* values, double* core, int* __restrict__ src, int* __restrict__ dst, double* __restrict__ weight, int* undefined) {
    __shared__ Candidate of_warp[2][WARP];  // used by turns, so that a step waits once
    int t = threadIdx.x % TEAM, lane = threadIdx.x % WARP;
    long long position = (long long)blockIdx.x * TEAMS + threadIdx.x / TEAM;
    if (position >= count) return;
    int g = these[position], n = size[g], added = 0;
    VALUE* columns = values + first[g] * d;
    const int* number_of = number + first[g];
    for (long long e = t; e < (long long)n * d; e += TEAM) {
        int i = e / d, f = e % d;
        columns[(long long)f * n + i] = rows[(long long)number_of[i] * d + f];
    }
    wait_for_team();
    bool by_reachability = min(min_samples, n - 1) > 1, overflows = false;
    double* core_of = core + first[g];
    if (by_reachability) {
        for (int i = t; i < n; i += TEAM) core_of[i] = core_distance(columns, d, n, i, min(min_samples, n - 1));
        wait_for_team();
    }
    double lightest[ROWS_A_THREAD];  // the weight of each row's lightest edge into the tree
    int inner[ROWS_A_THREAD];        // its end there
    unsigned outside = 0;    // a bit for each of the thread's rows that is outside the tree
#pragma unroll
    for (int k = 0; k < ROWS_A_THREAD; k++) {
        lightest[k] = INFINITE, inner[k] = EMPTY_ID;
        int i = k * TEAM + t;
        if (i && i < n) outside |= 1u << k;
    }
    for (int edge = 0; edge < n - 1; edge++) {
        Row row{columns + added, n};
        Candidate best = {~0u, ~0u, ~0u};
#pragma unroll
        for (int k = 0; k < ROWS_A_THREAD; k++) {
            if (!(outside >> k & 1)) continue;
            int i = k * TEAM + t;
            double w = surrogate_distance(row, Row{columns + i, n}, d);
            overflows |= w >= OVERFLOW_VALUE;
            if (by_reachability) w = reachability(w, core_of[added], core_of[i]);
            if (before(w, added, lightest[k], inner[k])) lightest[k] = w, inner[k] = added;
            Candidate mine = candidate(lightest[k], ends_of(i, inner[k]));
            bool is_less = mine.high != best.high ? mine.high < best.high
                         : mine.low != best.low   ? mine.low < best.low
                                                  : mine.ends < best.ends;
            if (is_less) best = mine;
        }
        best = least_in_warp(best);
        if (TEAM_WARPS > 1) {
            Candidate* turn = of_warp[edge & 1];
            if (lane == 0) turn[threadIdx.x / WARP] = best;
            __syncthreads();
            best = lane < TEAM_WARPS ? turn[lane] : Candidate{~0u, ~0u, ~0u};
            best = least_in_warp(best);
        }
        int low = best.ends >> 16, high = (best.ends & 0xffff) >> 1;
        added = best.ends & 1 ? high : low;
        if (added % TEAM != t) continue;
        long long at = begin[g] + edge;
        src[at] = number_of[low], dst[at] = number_of[high];
#pragma unroll
        for (int k = 0; k < ROWS_A_THREAD; k++) {
            if (k != added / TEAM) continue;
            weight[at] = lightest[k];
            outside &= ~(1u << k);
        }
    }
    if (overflows) atomicMin(undefined, g);
}
