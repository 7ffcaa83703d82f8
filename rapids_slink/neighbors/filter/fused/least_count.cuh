// Which counts of common bits leave two rows of zeros and ones within a bound.
//
// Let c be the count, and v and w the two rows' numbers of ones. The distance is at most t only if
//
//     bit_hamming       v + w - 2c <= t
//     bit_jaccard       c(2 - t) >= (1 - t)(v + w), from (v + w - 2c) / (v + w - c) <= t
//     bit_braycurtis    2c >= (1 - t)(v + w)
//
// which is a line in v: c >= slope·v + intercept. With at most 2^24 bits float64 errs by less than SLACK in it, the roundings of
// the distance included. Slope and intercept are rounded down to float32, and v >= 0.
#pragma once
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fused/line.cuh"

struct Bound {
    double slope, intercept;
};
__device__ inline Bound least_count(bit_hamming, double t, double w) { return {0.5, (w - t) / 2}; }
__device__ inline Bound least_count(bit_jaccard, double t, double w) {
    double slope = t < 1 ? (1 - t) / (2 - t) : 0;
    return {slope, slope * w};
}
__device__ inline Bound least_count(bit_braycurtis, double t, double w) {
    double slope = t < 1 ? (1 - t) / 2 : 0;
    return {slope, slope * w};
}

constexpr double SLACK = 1e-6;
__device__ __forceinline__ Line rounded_down(Bound least) {
    return {__double2float_rd(least.slope), __double2float_rd(least.intercept - SLACK)};
}
