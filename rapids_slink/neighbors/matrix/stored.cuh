// Distances as a matrix stores them: float64, or 16 bits if they are integers, of which the last stands for `OVERFLOW_VALUE`.
#pragma once
#include "neighbors/exact/formulas.cuh"

#ifndef DISTANCE
#define DISTANCE unsigned short
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
