// How far a row looks; needs canonical.cuh.
#pragma once

// operand.reach of a row, operation by operation.
struct Reach {
    double off, stretch, longer, more, scale, grow, tiny;
    __device__ float of(double bound, float error) const {
        double square = times(fmax(plus(bound, off), 0.0), stretch);
        double distance = plus(times(__dsqrt_rn(square), longer), more);
        return (float)plus(widen(error), plus(times(times(scale, distance), grow), tiny));
    }
};
