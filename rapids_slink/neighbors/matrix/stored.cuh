// A matrix of all pairs of rows: distances as float64, or as 16 bits if they are integers, of which the last stands for
// `OVERFLOW_VALUE`; or of bits the counts of common ones, in 16 bits.
#pragma once
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fused/least_count.cuh"

#ifndef DISTANCE
#define DISTANCE unsigned short
#endif
#ifndef COMMON_BITS
#define COMMON_BITS 0
#endif
constexpr unsigned short OVERFLOW_16 = 0xffff;

template <class D> __device__ __forceinline__ D narrow(double distance) { return distance; }
template <> __device__ __forceinline__ unsigned short narrow(double distance) {
    return distance < OVERFLOW_16 ? (unsigned short)distance : OVERFLOW_16;
}
__device__ __forceinline__ double widen_stored(double distance) { return distance; }
__device__ __forceinline__ double widen_stored(unsigned short distance) {
    return distance == OVERFLOW_16 ? OVERFLOW_VALUE : distance;
}

// The distances of a row of the matrix.
struct StoredRow {
    const DISTANCE* __restrict__ values;
    const unsigned short* __restrict__ ones;  // of the points, and of the row; null of distances
    int own;
    double limit = 1.0 / 0.0;
    Line line{0, 0};

    // Distances above the limit are not wanted from here on.
    __device__ __forceinline__ void lower(double to) {
        limit = to;
#if COMMON_BITS
        line = rounded_down(least_count(FORMULA{}, to, own));
#endif
    }
    // Whether the distance of point j may be within the limit.
    __device__ __forceinline__ bool may_be_within(DISTANCE stored, int j) const {
        return COMMON_BITS ? stored >= line.at(ones[j]) : widen_stored(stored) <= limit;
    }
    __device__ __forceinline__ double distance(DISTANCE stored, int j) const {
#if COMMON_BITS
        FORMULA sum;
        sum.common = stored;
        return sum.of(own, ones[j]);
#else
        return widen_stored(stored);
#endif
    }
};
