// This computes the filter's radius of a row; it needs formulas.cuh.
#pragma once

// Computes what filter.filter_radius returns for a row, operation by operation.
struct FilterRadius {
    double surrogate_error, stretch, factor, more, scale, round_up, tiny;
    // Metric.true_distance_bound.
    __device__ double true_distance(double surrogate) const {
        double square = times(fmax(plus(surrogate, surrogate_error), 0.0), stretch);
        return plus(times(__dsqrt_rn(square), factor), more);
    }
    __device__ double scaled_distance(double surrogate) const { return times(scale, true_distance(surrogate)); }
    __device__ float of(double surrogate, float error) const {
        return (float)plus(widen(error), plus(times(scaled_distance(surrogate), round_up), tiny));
    }
};
