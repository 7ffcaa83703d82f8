// How far a row looks; needs canonical.cuh.
#pragma once

// operand.reach of a row, operation by operation.
struct Reach {
    double off, stretch, longer, more, scale, grow, tiny;
    // Metric.distance_above.
    __device__ double distance(double bound) const {
        double square = times(fmax(plus(bound, off), 0.0), stretch);
        return plus(times(__dsqrt_rn(square), longer), more);
    }
    __device__ float of(double bound, float error) const {
        return (float)plus(widen(error), plus(times(times(scale, distance(bound)), grow), tiny));
    }
};
