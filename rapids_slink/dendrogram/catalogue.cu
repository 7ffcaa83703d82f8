// These kernels add up the members of clusters, operation by operation as cpu.py does.
//
// `rows` has the members, cluster after cluster, and `start` says where each cluster begins and ends. A cluster's members are cut
// into parts of PART; `first_part` has the number of each cluster's first part, and then the number of all parts. `weight` is null
// if all weights are 1.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/first_above.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int PART = 256;
constexpr double INFINITE = 1.0 / 0.0;

// Returns the gap between two coordinates, one of which is moved by whole lengths to where it is nearest.
__device__ __forceinline__ double nearest_gap(double gap, double length) {
    return length < INFINITE ? minus(gap, times(length, rint(__ddiv_rn(gap, length)))) : gap;
}

// Writes d + 1 sums for each part: of each feature's gaps from the cluster's first row, which keep precision far from the origin,
// and of the weights.
extern "C" __global__ void sum_gaps(
    const VALUE* __restrict__ values, int d, const long long* rows, const long long* start, const long long* first_part,
    int clusters, const double* weight, const double* __restrict__ box, double* __restrict__ sums) {
    long long t = thread_index(), part = t / (d + 1);
    int f = t % (d + 1);
    if (part >= first_part[clusters]) return;
    int c = first_above(first_part + 1, clusters, part);
    long long begin = start[c] + (part - first_part[c]) * PART, end = min(begin + PART, start[c + 1]);
    double sum = 0, first = f < d ? widen(values[rows[start[c]] * d + f]) : 0, length = f < d ? box[f] : INFINITE;
    for (long long i = begin; i < end; i++) {
        long long row = rows[i];
        double w = weight ? weight[row] : 1;
        sum = plus(sum, f < d ? times(w, nearest_gap(minus(widen(values[row * d + f]), first), length)) : w);
    }
    sums[t] = sum;
}

// Writes the means and the masses of clusters, from the sums of their parts.
extern "C" __global__ void write_means(
    const VALUE* __restrict__ values, int d, const long long* rows, const long long* start, const long long* first_part,
    int clusters, const double* __restrict__ box, const double* __restrict__ sums, double* __restrict__ mean,
    double* __restrict__ mass) {
    long long t = thread_index();
    if (t >= (long long)clusters * d) return;
    int c = t / d, f = t % d;
    double total = 0, whole = 0;
    for (long long part = first_part[c]; part < first_part[c + 1]; part++) {
        total = plus(total, sums[part * (d + 1) + f]);
        whole = plus(whole, sums[part * (d + 1) + d]);
    }
    double x = plus(widen(values[rows[start[c]] * d + f]), __ddiv_rn(total, whole)), length = box[f];
    if (length < INFINITE) {
        x = minus(x, times(length, floor(__ddiv_rn(x, length))));
        if (!(x < length)) x = 0;
    }
    mean[t] = x;
    if (f == 0) mass[c] = whole;
}

// Writes for each part the largest squared distance from the cluster's mean, and the weighted sum of all these squares.
extern "C" __global__ void sum_squares(
    const VALUE* __restrict__ values, int d, const long long* rows, const long long* start, const long long* first_part,
    int clusters, const double* weight, const double* __restrict__ box, const double* __restrict__ mean,
    double* __restrict__ largest, double* __restrict__ sums) {
    long long part = thread_index();
    if (part >= first_part[clusters]) return;
    int c = first_above(first_part + 1, clusters, part);
    long long begin = start[c] + (part - first_part[c]) * PART, end = min(begin + PART, start[c + 1]);
    double maximum = 0, sum = 0;
    for (long long i = begin; i < end; i++) {
        long long row = rows[i];
        double square = 0;
        for (int f = 0; f < d; f++) {
            double gap = nearest_gap(minus(widen(values[row * d + f]), mean[(long long)c * d + f]), box[f]);
            square = plus(square, times(gap, gap));
        }
        maximum = fmax(maximum, square);
        sum = plus(sum, times(weight ? weight[row] : 1, square));
    }
    largest[part] = maximum, sums[part] = sum;
}

// Writes for each cluster the largest distance from its mean, and the root of the mean square.
extern "C" __global__ void write_deviations(
    int clusters, const long long* __restrict__ first_part, const double* __restrict__ largest,
    const double* __restrict__ sums, const double* __restrict__ mass, double* __restrict__ radius,
    double* __restrict__ spread) {
    long long c = thread_index();
    if (c >= clusters) return;
    double maximum = 0, total = 0;
    for (long long part = first_part[c]; part < first_part[c + 1]; part++)
        maximum = fmax(maximum, largest[part]), total = plus(total, sums[part]);
    radius[c] = __dsqrt_rn(maximum), spread[c] = __dsqrt_rn(__ddiv_rn(total, mass[c]));
}
