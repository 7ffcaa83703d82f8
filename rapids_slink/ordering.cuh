// The total order on edges, see ordering.py: (weight, smaller id, larger id).
#pragma once

// After every edge's code.
constexpr long long NO_EDGE = 0x7fffffffffffffffLL;
// After every id: of no point.
constexpr int EMPTY_ID = 0x7fffffff;

__device__ __forceinline__ long long edge_code(int u, int v) {
    return ((long long)min(u, v) << 32) | (unsigned)max(u, v);
}

__device__ __forceinline__ bool lighter(double weight, long long code, double other_weight, long long other_code) {
    return weight < other_weight || (weight == other_weight && code < other_code);
}

// The same order on the edges of one point, by their other ends.
__device__ __forceinline__ bool before(double weight, int id, double other_weight, int other_id) {
    return weight < other_weight || (weight == other_weight && id < other_id);
}

// Keeps the lesser (or the greater if not `lesser`) of this lane's entry and that of the lane `offset` away. A whole warp calls.
__device__ __forceinline__ void exchange(double& weight, int& id, int offset, bool lesser) {
    double other_weight = __shfl_xor_sync(~0u, weight, offset);
    int other_id = __shfl_xor_sync(~0u, id, offset);
    if (before(other_weight, other_id, weight, id) == lesser) weight = other_weight, id = other_id;
}

// A float's bits as a number of the same order, and back.
__device__ __forceinline__ unsigned ascending(float x) {
    unsigned bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ __forceinline__ float from_ascending(unsigned bits) {
    return __uint_as_float(bits >> 31 ? bits & ~(1u << 31) : ~bits);
}
