// The fp16 points of quantize.py, one warp a row: z = scale (x - centre) in float64, y its rounding, and what bounds the
// rounding.
//
// y is written row by row or, for hopper/fused.cu, as that file's image and norm columns: see there.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fp16.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif
typedef unsigned char byte;
typedef unsigned long long u64;

constexpr int MAX_EXACT_INTEGER = 2048;  // as in quantize.py
constexpr int CHUNK = 8;                 // features in 16 bytes
constexpr int TILE = 128;                // rows of an image's tile
constexpr int ATOM = 8;                  // chunks of an atom

union Chunk {
    uint4 bits;
    u16 half[CHUNK];
};

// Rows `rows` of `values` (all in order if it is null) to rows 0.. of y, which have `chunks` times 8 features.
// `half_shrink` is (1 - eta) / 2 with all slack, `round_up` and `tiny` are those of bounds.round_up. `norm_columns`, if given, get
// -half_norm, times `norm_shrink`, in the units of fused.cu, each part rounded towards zero. Rows from m to `padded` are zeros
// with an infinite half norm and the least norm columns there are.
extern "C" __global__ void quantize(
    const VALUE* __restrict__ values, int d, const int* __restrict__ rows, long long m, long long padded,
    const double* __restrict__ centre, double scale, double half_shrink, double round_up, double tiny, double norm_shrink,
    int chunks, int atoms, uint4* __restrict__ y, uint4* __restrict__ norm_columns,
    float* __restrict__ half_norm, float* __restrict__ error) {
    long long r = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    int lane = threadIdx.x % WARP;
    if (r >= padded) return;
    bool real = r < m;
    const VALUE* x = values + (real ? (size_t)(rows ? rows[r] : r) * d : 0);
    int in_tile = r % TILE, width = atoms ? atoms * ATOM : chunks;
    double norm = 0, moved = 0, length = 0;
    bool aligned = d * sizeof(VALUE) % 16 == 0 && (size_t)values % 16 == 0;
    for (int c = lane; c < width; c += WARP) {
        Chunk out;
        VALUE loaded[CHUNK];
        load_features(x, c * CHUNK, real ? d : 0, aligned, loaded);
        for (int e = 0; e < CHUNK; e++) {
            int f = c * CHUNK + e;
            double z = real && f < d ? times(minus(widen(loaded[e]), centre[f]), scale) : 0;
            out.half[e] = to_half(z);
            double rounded = from_half<double>(out.half[e]), off = rounded - z;
            norm += rounded * rounded, moved += off * off, length += z * z;
        }
        size_t at = r * width + c;
        if (atoms) at = ((r / TILE * atoms + c / ATOM) * TILE + in_tile) * ATOM + (c % ATOM ^ (in_tile & 7));
        y[at] = out.bits;
    }
    norm = warp_sum(norm), moved = warp_sum(moved), length = warp_sum(length);
    if (lane) return;
    float half = real ? (float)(norm * half_shrink) : 1.0f / 0.0f;
    half_norm[r] = half;
    error[r] = real ? (float)((sqrt(moved) + sqrt(length) * 0x1p-52) * round_up + tiny) : 0;
    if (!norm_columns) return;
    Chunk parts;
    double remainder = half * norm_shrink;
    const double units[CHUNK] = {0x1p15, 0x1p8, 1, 0x1p-7, 0x1p-14};
#pragma unroll
    for (int e = 0; e < CHUNK; e++) {
        u16 part = 0;
        if (!real) part = e ? 0 : 0x7bff;  // 65504
        else if (units[e] > 0) part = to_half_towards_zero(remainder / units[e]), remainder -= from_half<double>(part) * units[e];
        parts.half[e] = part ^ 0x8000;
    }
    int slot = in_tile >> 2 & 1;
    norm_columns[r * 2 + slot] = parts.bits;
    norm_columns[r * 2 + 1 - slot] = make_uint4(0, 0, 0, 0);
}

// Points of bytes for fused.cu, one warp a row: all values less 128, and half of each row's squared norm,
// rounded down; those alone if `y` is null. Rows of `values` have a stride of `pitch` bytes, a multiple of 16; rows from
// m to `padded` become zeros, their norms too.
extern "C" __global__ void quantize_bytes(
    const byte* __restrict__ values, int pitch, const int* __restrict__ rows, long long m, long long padded, int atoms,
    uint4* __restrict__ y, int* __restrict__ half_norm) {
    long long r = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    int lane = threadIdx.x % WARP;
    if (r >= padded) return;
    int in_tile = r % TILE, norm = 0;
    const uint4* x = (const uint4*)(values + (r < m ? (size_t)(rows ? rows[r] : r) * pitch : 0));
    for (int c = lane; c < atoms * ATOM; c += WARP) {
        uint4 out = make_uint4(0, 0, 0, 0);
        if (r < m && c < pitch / 16) {
            const unsigned sign = 0x80808080;  // taking 128 from a byte flips it, as the integer is signed then
            out = x[c];
            out.x ^= sign, out.y ^= sign, out.z ^= sign, out.w ^= sign;
        }
        norm = __dp4a((int)out.x, (int)out.x, __dp4a((int)out.y, (int)out.y, norm));
        norm = __dp4a((int)out.z, (int)out.z, __dp4a((int)out.w, (int)out.w, norm));
        if (y) y[((r / TILE * atoms + c / ATOM) * TILE + in_tile) * ATOM + (c % ATOM ^ (in_tile & 7))] = out;
    }
    norm = warp_sum(norm);
    if (lane == 0) half_norm[r] = norm >> 1;
}

// -(half_norm - least) as the sum of a row's 32 signed bytes times the units 1, 1, 255, 255, ...; the least sum there is for
// the rows from m on.
extern "C" __global__ void split_byte_norms(
    const int* __restrict__ half_norm, int least, long long m, long long padded, uint4* __restrict__ norm_columns) {
    long long r = thread_index();
    if (r >= padded) return;
    union { uint4 half[2]; byte part[32]; } out;
    int norm = half_norm[r] - least, ones = norm % 255, units = norm / 255;
    for (int f = 0; f < 32; f++) {
        int part = f == 0 ? min(ones, 128) : f == 1 ? ones - min(ones, 128) : min(max(units - 128 * (f - 2), 0), 128);
        out.part[f] = -(r < m ? part : 128);
    }
    int slot = r % TILE >> 2 & 1;
    norm_columns[r * 2 + slot] = out.half[0];
    norm_columns[r * 2 + 1 - slot] = out.half[1];
}

// Raises *most to the largest value of the warp.
__device__ __forceinline__ void raise(double* most, double value) {
    value = warp_max(value);
    if (threadIdx.x % WARP == 0) atomic_max(most, value);
}

// A robust centre of every `step`-th row: a block has 32 features and a warp for every 32nd of these rows, and takes the median of
// the warps' means, on which a few outliers have no influence. 0 where it is not finite.
extern "C" __global__ void __launch_bounds__(WARP * WARP) centre_of_rows(
    const VALUE* __restrict__ values, long long n, int d, long long step, double* __restrict__ centre) {
    __shared__ double means[WARP][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, f = blockIdx.x * WARP + lane, rows = 0;
    double sum = 0;
    if (f < d) {
#pragma unroll 8
        for (long long r = warp * step; r < n; r += WARP * step) sum += widen(values[r * d + f]), rows++;
    }
    means[warp][lane] = rows ? sum / rows : 0;
    __syncthreads();
    int count = min((long long)WARP, (n + step - 1) / step), before = 0;  // warps with rows, and those with a lesser mean
    if (f >= d || warp >= count) return;
    for (int other = 0; other < count; other++) {
        double theirs = means[other][lane], own = means[warp][lane];
        before += theirs < own || (theirs == own && other < warp);
    }
    if (before == count / 2) centre[f] = fabs(means[warp][lane]) <= OVERFLOW_VALUE ? means[warp][lane] : 0;
}

// found, zero at first: the largest |x - centre|, the largest |x|, then 1 unless all values are integers up to
// MAX_EXACT_INTEGER, and 1 unless they are integers from 0 to 255.
extern "C" __global__ void value_range(
    const VALUE* __restrict__ values, long long n, int d, const double* __restrict__ centre, double* found) {
    long long warps = (long long)gridDim.x * (blockDim.x / WARP);
    double deviation = 0, largest = 0, other_numbers = 0, other_bytes = 0;
    for (long long r = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP; r < n; r += warps)
        for (int f = threadIdx.x % WARP; f < d; f += WARP) {
            double x = widen(values[r * d + f]);
            deviation = fmax(deviation, fabs(x - centre[f])), largest = fmax(largest, fabs(x));
            if (!(fabs(x) <= MAX_EXACT_INTEGER && rint(x) == x)) other_numbers = 1;
            if (!(x >= 0 && x <= 255 && rint(x) == x)) other_bytes = 1;
        }
    raise(found, deviation), raise(found + 1, largest), raise(found + 2, other_numbers), raise(found + 3, other_bytes);
}
