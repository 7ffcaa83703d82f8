// Points of component pairs projected onto the line between the centroids, and the pairs of points that remain.
//
// The projections of a pair of components follow one another: those of its first component's points, then of the second's.
// end[c] is where those of pair c end.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"
#include "spanning_tree/component_pairs/first_above.cuh"

#ifndef VALUE
#define VALUE float
#endif
typedef unsigned int u32;

constexpr int POINTS = 128;   // per block of THREADS
constexpr int AT_A_TIME = 4;  // per warp
constexpr int THREADS = 128;
constexpr int SECOND_POINTS = 1024;  // per block of pairs

struct ComponentPair {
    int a, b;
    long long size_a, size_b, begin;
    __device__ ComponentPair(int c, const int* first, const int* second, const long long* start, const long long* end) {
        a = first[c], b = second[c];
        size_a = start[a + 1] - start[a], size_b = start[b + 1] - start[b];
        begin = end[c] - size_a - size_b;
    }
    // The position of its i-th point among the sorted points.
    __device__ long long position(const long long* start, long long i) const {
        return i < size_a ? start[a] + i : start[b] + i - size_a;
    }
};

// value = (x - origin) . (centroid of the second - centroid of the first). A block projects POINTS of one pair, a warp
// AT_A_TIME of them together.
extern "C" __global__ void __launch_bounds__(THREADS) project(
    const VALUE* __restrict__ values, int d, const double* __restrict__ origin, const int* __restrict__ order,
    const long long* __restrict__ start, const double* __restrict__ centroids, int pairs, const int* __restrict__ first,
    const int* __restrict__ second, const long long* __restrict__ end, const long long* __restrict__ last_block,
    double* __restrict__ value) {
    int c = first_above(last_block, pairs, blockIdx.x), lane = threadIdx.x % WARP;
    ComponentPair pair(c, first, second, start, end);
    const double *from = centroids + (size_t)pair.a * d, *to = centroids + (size_t)pair.b * d;
    long long block = blockIdx.x - (c ? last_block[c - 1] : 0), size = pair.size_a + pair.size_b;
    long long begin = block * POINTS + threadIdx.x / WARP * (POINTS * WARP / THREADS);
    for (long long i = begin; i < min(begin + POINTS * WARP / THREADS, size); i += AT_A_TIME) {
        const VALUE* x[AT_A_TIME];
        double sum[AT_A_TIME];
#pragma unroll
        for (int p = 0; p < AT_A_TIME; p++)
            x[p] = values + (size_t)order[pair.position(start, min(i + p, size - 1))] * d, sum[p] = 0;
        for (int f = lane; f < d; f += WARP) {
            double w = to[f] - from[f], o = origin[f];
#pragma unroll
            for (int p = 0; p < AT_A_TIME; p++) sum[p] += (widen(x[p][f]) - o) * w;
        }
#pragma unroll
        for (int p = 0; p < AT_A_TIME; p++) {
            sum[p] = warp_sum(sum[p]);
            if (lane == 0 && i + p < size) value[pair.begin + i + p] = sum[p];
        }
    }
}

// The points of each component that have a point of the other within `most_difference` by projection: their numbers within their
// component, at the beginning of its part of `near`, and their count. With core distances, only those with a core distance of at
// most `upper`. One block per pair.
extern "C" __global__ void __launch_bounds__(THREADS) list_near_points(
    const double* __restrict__ value, const int* __restrict__ order, const long long* __restrict__ start,
    const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ end,
    const double* __restrict__ most_difference, const double* __restrict__ upper, const double* __restrict__ core,
    int* __restrict__ near, int* __restrict__ count) {
    __shared__ double extreme[2][THREADS];
    __shared__ int n_near[2];
    int c = blockIdx.x, t = threadIdx.x;
    ComponentPair pair(c, first, second, start, end);
    const double *of_a = value + pair.begin, *of_b = of_a + pair.size_a;
    double most = -1.0 / 0.0, least = 1.0 / 0.0;
    for (long long i = t; i < pair.size_a; i += THREADS) most = fmax(most, of_a[i]);
    for (long long i = t; i < pair.size_b; i += THREADS) least = fmin(least, of_b[i]);
    extreme[0][t] = most, extreme[1][t] = least;
    if (t < 2) n_near[t] = 0;
    __syncthreads();
    for (int step = THREADS / 2; step; step /= 2) {
        if (t < step) {
            extreme[0][t] = fmax(extreme[0][t], extreme[0][t + step]);
            extreme[1][t] = fmin(extreme[1][t], extreme[1][t + step]);
        }
        __syncthreads();
    }
    most = extreme[0][0], least = extreme[1][0];
    int* into = near + pair.begin;
    for (int side = 0; side < 2; side++, into += pair.size_a) {
        long long size = side ? pair.size_b : pair.size_a, position = start[side ? pair.b : pair.a];
        for (long long first_of_all = 0; first_of_all < size; first_of_all += THREADS) {
            long long i = first_of_all + t;
            bool is_near = i < size && !((side ? of_b[i] - most : least - of_a[i]) > most_difference[c]);
            if (is_near && core) is_near = core[order[position + i]] <= upper[c];
            int slot = claim_in_warp(is_near, n_near + side);
            if (is_near) into[slot] = i;
        }
    }
    __syncthreads();
    if (t < 2) count[2 * c + t] = n_near[t];
}

// The pairs of such points whose projections differ by at most `most_difference`: both points and the component pair, up to
// `capacity`. A block has THREADS points of the first component and SECOND_POINTS of the second; last_block[c] is where pair c's
// blocks end.
extern "C" __global__ void __launch_bounds__(THREADS) list_near_pairs(
    const double* __restrict__ value, const int* __restrict__ near, const int* __restrict__ count,
    const long long* __restrict__ last_block, const int* __restrict__ order, const long long* __restrict__ start, int pairs,
    const int* __restrict__ first, const int* __restrict__ second, const long long* __restrict__ end,
    const double* __restrict__ most_difference, int capacity, int* __restrict__ found_a, int* __restrict__ found_b,
    int* __restrict__ found_pair, int* __restrict__ found) {
    __shared__ double of_b[THREADS];
    __shared__ int id_b[THREADS];
    int c = first_above(last_block, pairs, blockIdx.x), t = threadIdx.x, lane = t % WARP;
    ComponentPair pair(c, first, second, start, end);
    long long block = blockIdx.x - (c ? last_block[c - 1] : 0), size_b = count[2 * c + 1];
    long long across = (size_b + SECOND_POINTS - 1) / SECOND_POINTS;
    long long i = block / across * THREADS + t, j = block % across * SECOND_POINTS, last = min(j + SECOND_POINTS, size_b);
    bool real = i < count[2 * c];
    int a = real ? near[pair.begin + i] : 0;
    const double most = most_difference[c], of_a = value[pair.begin + a];
    a = order[start[pair.a] + a];
    near += pair.begin + pair.size_a, value += pair.begin + pair.size_a, order += start[pair.b];
    for (; j < last; j += THREADS) {
        __syncthreads();
        if (j + t < last) {
            int b = near[j + t];
            of_b[t] = value[b], id_b[t] = order[b];
        }
        __syncthreads();
        u32 hits[THREADS / WARP];
        int n = 0;
#pragma unroll
        for (int w = 0; w < THREADS / WARP; w++) {
            hits[w] = 0;
#pragma unroll
            for (int l = 0; l < WARP; l++) hits[w] |= (u32) !(of_b[w * WARP + l] - of_a > most) << l;
            long long left = last - j - w * WARP;
            if (left < WARP) hits[w] &= left > 0 ? (1u << left) - 1 : 0;
            if (!real) hits[w] = 0;
            n += __popc(hits[w]);
        }
        if (!__any_sync(~0u, n)) continue;
        int before = n;
        for (int step = 1; step < WARP; step *= 2) {
            int less = __shfl_up_sync(~0u, before, step);
            if (lane >= step) before += less;
        }
        int slot = lane == WARP - 1 ? atomicAdd(found, before) : 0;
        slot = __shfl_sync(~0u, slot, WARP - 1) + before - n;
        for (int w = 0; w < THREADS / WARP; w++)
            for (u32 left = hits[w]; left; left &= left - 1, slot++)
                if (slot < capacity)
                    found_a[slot] = a, found_b[slot] = id_b[w * WARP + __ffs(left) - 1], found_pair[slot] = c;
    }
}
