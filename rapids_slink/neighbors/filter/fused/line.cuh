// A line gives, by another row's number of ones, the least count that the two have in common if they are within a row's bound. It is
// negated.
#pragma once

struct __align__(8) Line {
    float slope, intercept;
    // Returns its value, rounded up, at a number of ones that is at least 0; no count is below 0.
    __device__ __forceinline__ float at(float ones) const { return fminf(__fmaf_ru(slope, ones, intercept), 0); }
};
