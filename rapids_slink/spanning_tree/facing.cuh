// The keys that sort facing points by set, and in a set those first that lack least: see component_pairs.cu.
#pragma once

typedef unsigned long long u64;

constexpr int BINS = 256;                        // of the slack of a pair of components
constexpr int POINT_BITS = 26, BIN_BITS = 8;     // of a key; above them is the set

// What a point lacks is no number where the slack is none: such a point may be near to all.
__device__ __forceinline__ u64 facing_key(int set, float lacks, int point) {
    int bin = min(max((int)lacks, 0), BINS - 1);
    return ((u64)set << BIN_BITS | bin) << POINT_BITS | (unsigned)point;
}
__device__ __forceinline__ int facing_point(u64 key) { return key & (1 << POINT_BITS) - 1; }
__device__ __forceinline__ int facing_bin(u64 key) { return key >> POINT_BITS & BINS - 1; }
