// Distances of a matrix: float64, or those that are integers in 16 bits, of which the last stands for `OVERFLOW_VALUE`.
#pragma once
#include "neighbors/exact/formulas.cuh"

constexpr unsigned short OVERFLOW_16 = 0xffff;

template <class D> __device__ __forceinline__ D narrow(double distance) { return distance; }
template <> __device__ __forceinline__ unsigned short narrow(double distance) {
    return distance < OVERFLOW_16 ? (unsigned short)distance : OVERFLOW_16;
}
__device__ __forceinline__ double distance_of(double stored) { return stored; }
__device__ __forceinline__ double distance_of(unsigned short stored) { return stored == OVERFLOW_16 ? OVERFLOW_VALUE : stored; }
