// The total order on edges, as in ordering.py: (weight, smaller id, larger id).
#pragma once

__device__ __forceinline__ long long edge_code(int u, int v) {
    return ((long long)min(u, v) << 32) | (unsigned)max(u, v);
}

__device__ __forceinline__ bool lighter(double weight, long long code, double other_weight, long long other_code) {
    return weight < other_weight || (weight == other_weight && code < other_code);
}
