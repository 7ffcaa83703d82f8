// Rows rounded to fp16 by neighbouring lanes, as they are read.
#pragma once
#include "neighbors/filter/fp16.cuh"
#include "neighbors/small_batch/sizes.cuh"

// Parameters of the rounding. The centring is the centre, followed by the scale and its inverse.
struct Rounding {
    int d, steps;
    float half_shrink, norm_shrink, round_up, tiny;  // see quantize.cu
    __device__ float error(float moved, float norm) const {
        // The sums' own roundings, and those of z, by 2^-24 of itself.
        return (sqrtf(moved) * (1 + 0x1p-12f) + sqrtf(norm) * 0x1p-22f) * round_up + tiny;
    }
};

// Writes y of BATCH rows (zeros for null), at a stride of `pitch` numbers, by LANES neighbouring lanes, each of which gets the
// rows' sums of y^2 and (y - z)^2. The loads of all rows are issued together.
__device__ __forceinline__ void round_rows(
    const VALUE* const (&x)[BATCH], const Rounding& rounding, bool aligned, const double* centre, VALUE scale, u16* y, int pitch,
    float (&norm)[BATCH], float (&moved)[BATCH]) {
#pragma unroll
    for (int b = 0; b < BATCH; b++) norm[b] = moved[b] = 0;
    int d = rounding.d;
#pragma unroll LOADS
    for (int f = threadIdx.x % LANES * 4; f < rounding.steps * STEP; f += LANES * 4) {
        VALUE value[BATCH][4], middle[4];
#pragma unroll
        for (int b = 0; b < BATCH; b++) load_features(x[b], f, x[b] ? d : 0, aligned, value[b]);
#pragma unroll
        for (int e = 0; e < 4; e++) middle[e] = f + e < d ? (VALUE)centre[f + e] : 0;
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            union { uint2 bits; u16 half[4]; } out;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                VALUE z = x[b] && f + e < d ? (value[b][e] - middle[e]) * scale : 0;
                out.half[e] = to_half((float)z);
                float rounded = from_half(out.half[e]), off = (float)(rounded - z);
                norm[b] += rounded * rounded, moved[b] += off * off;
            }
            *(uint2*)(y + b * pitch + f) = out.bits;
        }
    }
#pragma unroll
    for (int b = 0; b < BATCH; b++)
        for (int offset = 1; offset < LANES; offset *= 2) {
            norm[b] += __shfl_xor_sync(ALL_LANES, norm[b], offset);
            moved[b] += __shfl_xor_sync(ALL_LANES, moved[b], offset);
        }
}

__device__ __forceinline__ bool rows_are_aligned(const VALUE* values, int d) {
    return d % 4 == 0 && (size_t)values % 16 == 0;
}
