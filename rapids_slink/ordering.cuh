// This is the total order on edges, by (weight, smaller id, larger id): see ordering.py.
#pragma once

// This code comes after those of all edges.
constexpr long long NO_EDGE = 0x7fffffffffffffffLL;
// This id comes after those of all points, and no point has it.
constexpr int EMPTY_ID = 0x7fffffff;

__device__ __forceinline__ long long edge_code(int u, int v) {
    return ((long long)min(u, v) << 32) | (unsigned)max(u, v);
}

__device__ __forceinline__ bool lighter(double weight, long long code, double other_weight, long long other_code) {
    return weight < other_weight || (weight == other_weight && code < other_code);
}

// Returns whether an edge of a point comes before another edge of this point, by the ids of their other ends.
__device__ __forceinline__ bool before(double weight, int id, double other_weight, int other_id) {
    return weight < other_weight || (weight == other_weight && id < other_id);
}

// Keeps the lesser (or the greater if not `lesser`) of this lane's entry and that of the lane `offset` away. All lanes must call.
__device__ __forceinline__ void exchange(double& weight, int& id, int offset, bool lesser) {
    double other_weight = __shfl_xor_sync(~0u, weight, offset);
    int other_id = __shfl_xor_sync(~0u, id, offset);
    if (before(other_weight, other_id, weight, id) == lesser) weight = other_weight, id = other_id;
}

// These turn a float into a number, so that numbers have the order of their floats, and back.
__device__ __forceinline__ unsigned ascending(float x) {
    unsigned bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ __forceinline__ float from_ascending(unsigned bits) {
    return __uint_as_float(bits >> 31 ? bits & ~(1u << 31) : ~bits);
}
