// The least that a row and another have in common if they are within its bound, negated, as a line in the other's number of ones.
#pragma once

struct __align__(8) Line {
    float slope, intercept;
    // Its value, rounded up, at a number of ones that is at least 0; no count is below 0.
    __device__ __forceinline__ float at(float ones) const { return fminf(__fmaf_ru(slope, ones, intercept), 0); }
};
