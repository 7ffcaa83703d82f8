// The least count of common bits of a row's pairs that are within its bound, by the other's number of ones.
#pragma once

struct __align__(8) Line {
    float slope, intercept;
    // Its value, rounded down, at a number of ones that is at least 0; no count is below 0.
    __device__ __forceinline__ float at(float ones) const { return fmaxf(__fmaf_rd(slope, ones, intercept), 0); }
};
