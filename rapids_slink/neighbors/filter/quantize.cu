// These kernels round points to fp16 (filter/__init__.py) and to int8 (fused/__init__.py), and find their centre and the range of values.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fp16.cuh"
#include "neighbors/filter/fused/image.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int CHUNK = 8;                 // features of fp16 in 16 bytes
constexpr int WORDS = 4;                 // 16 bytes have these words, each of four int8 features

union Chunk {
    uint4 bits;
    u16 half[CHUNK];
};

// Writes the fp16 points, by `lanes` of a warp a row: y is the rounding of z = scale (x - centre) in float64. Writes what bounds the
// rounding, too. Rows `rows`
// of `values` (all in order if it is null, none where it is -1) go to rows 0.. of y, which have `chunks` times 8 features or, with
// `atoms`, are an image for fused/pass.cuh, whose half norms are negated.
// `half_shrink` is (1 - eta) / 2 with all slack, `round_up` and `tiny` are `ROUND_UP` and `TINY` of filter/__init__.py.
// Rows from m to `padded` are zeros with an infinite half norm.
//
// If tiles are of cells, each cell has a centre, counted from that of all, and a scale; half norms are how long rows are at most. Sums
// of squares err by (d + 2) 2^-53 of themselves, which `round_up` covers.
//
// `fine`: z is the sum of two numbers of fp16, the second the rounding of what is left. A row has them `chunks` apart as (first,
// second, first), a column as (first, first, second): the product lacks that of the second ones alone. No second one is longer than
// 2^-10 of the longest row of its cell, so that a column takes 2^-10 of the length of its own for an error.
extern "C" __global__ void quantize(
    const VALUE* __restrict__ values, int d, const int* __restrict__ rows, long long m, long long padded,
    const double* __restrict__ centre, double scale, const int* __restrict__ cell_of_tile, const double* __restrict__ centres,
    const double* __restrict__ scales, double half_shrink, double round_up, double tiny, int chunks, int atoms, int lanes, bool fine,
    bool columns, uint4* __restrict__ y, float* __restrict__ half_norm, float* __restrict__ error) {
    long long r = thread_index() / lanes, row = r < m ? rows ? rows[r] : r : -1;
    int lane = threadIdx.x % lanes, cell = cell_of_tile && r < m ? cell_of_tile[r / TILE] : 0;
    bool real = row >= 0, aligned = d * sizeof(VALUE) % 16 == 0 && (size_t)values % 16 == 0;
    const VALUE* x = values + (real ? (size_t)row * d : 0);
    const double* own = centres ? centres + (size_t)cell * d : nullptr;
    int width = r >= padded ? 0 : atoms ? atoms * ATOM : chunks;
    if (scales) scale = scales[cell];
    double norm = 0, moved = 0, length = 0, second = 0;
    auto put = [&](int c, uint4 chunk) { y[atoms ? place_in_image(r, c, atoms) : r * width + c] = chunk; };
    for (int c = lane; c < width; c += lanes) {
        Chunk out, rest;
        VALUE loaded[CHUNK];
        load_features(x, c * CHUNK, real ? d : 0, aligned, loaded);
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
            int f = c * CHUNK + e;
            double z = real && f < d ? minus(widen(loaded[e]), centre[f]) : 0;
            if (own && f < d) z = real ? minus(z, own[f]) : 0;
            z = times(z, scale);
            out.half[e] = to_half((float)z);
            double rounded = from_half(out.half[e]);
            if (fine) {
                rest.half[e] = to_half((float)(z - rounded));
                double left = from_half(rest.half[e]);
                rounded += left, second += left * left;
            }
            double off = rounded - z;
            norm += rounded * rounded, moved += off * off, length += z * z;
        }
        if (!fine || c < chunks || c >= 3 * chunks) put(c, out.bits);
        if (fine && c < chunks)
            put(c + chunks, columns ? out.bits : rest.bits), put(c + 2 * chunks, columns ? rest.bits : out.bits);
    }
    auto sum_of_lanes = [&](double& sum) {
        for (int step = lanes / 2; step; step /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);
    };
    sum_of_lanes(norm), sum_of_lanes(moved), sum_of_lanes(length), sum_of_lanes(second);
    if (lane || r >= padded) return;
    float half = real ? (float)(norm * half_shrink) : 1.0f / 0.0f;
    half_norm[r] = scales ? (float)(sqrt(norm) * round_up) : atoms ? -half : half;
    double off = sqrt(moved) + sqrt(length) * 0x1p-52 + (columns ? sqrt(second) * 0x1p-10 : 0);
    error[r] = real ? (float)(off * round_up + tiny) : 0;
}

// Returns the Walsh-Hadamard transform of a warp's values, times the root of 32.
__device__ __forceinline__ float mixed(float value, int lane) {
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        float other = __shfl_xor_sync(ALL_LANES, value, step);
        value = lane & step ? other - value : value + other;
    }
    return value;
}

// Writes the int8 points of fused/__init__.py, by one warp a row: as an image y, the rounding to bytes of z = M (x - centre) `scale`,
// and what bounds the rounding. M puts the `width` features, those after the d-th zero, into the order of a `shuffle`, a negative
// number ~f for feature f with the other sign, transforms each 32 of them, and does so again with the second shuffle, if
// `shuffles` are given. The transforms' factor is in `scale`; `rotation_error` is relative to z, and `lost` is what else it may
// be off by. Values beyond a byte are cut off. Rows from m to `padded` are padding: zeros that pass no test. With `z_out` that
// gets z, (m, width), and nothing else is written.
extern "C" __global__ void quantize_int8(
    const VALUE* __restrict__ values, int d, const int* __restrict__ rows, long long m, long long padded,
    const double* __restrict__ centre, double first_scale, double scale, int width, const int* __restrict__ shuffles,
    double rotation_error, double lost, double round_up, double tiny, int atoms, unsigned* __restrict__ y,
    int* __restrict__ half_norm, float* __restrict__ error, float* __restrict__ z_out) {
    extern __shared__ __align__(16) float buffers[];
    long long r = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    int lane = threadIdx.x % WARP, norm = 0;
    if (r >= padded) return;
    bool real = r < m;
    float *from = buffers + threadIdx.x / WARP * 2 * width, *to = from + width;
    const VALUE* x = values + (real ? (size_t)(rows ? rows[r] : r) * d : 0);
    for (int f = lane; f < width; f += WARP)
        from[f] = real && f < d ? (float)times(minus(widen(x[f]), centre[f]), first_scale) : 0;
    __syncwarp();
    for (int s = 0; s < 2 && shuffles; s++) {
        for (int f = lane; f < width; f += WARP) {
            int of = shuffles[s * width + f];
            to[f] = mixed(of < 0 ? -from[~of] : from[of], lane);
        }
        __syncwarp();
        float* last = from;
        from = to, to = last;
    }
    if (z_out) {
        for (int f = lane; f < width; f += WARP) z_out[r * width + f] = from[f] * (float)scale;
        return;
    }
    double moved = 0, length = 0;
    for (int w = lane; w < atoms * ATOM * WORDS; w += WARP) {
        int c = w / WORDS;
        float4 four = 4 * w < width ? ((const float4*)from)[w] : float4{};
        unsigned out = 0;
        for (float z : {four.w, four.z, four.y, four.x}) {
            double value = times(widen(z), scale);
            int rounded = __double2int_rn(fmin(fmax(value, -128.0), 127.0));
            double off = rounded - value;
            out = out << 8 | rounded & 255, norm += rounded * rounded, moved += off * off, length += value * value;
        }
        y[place_in_image(r, c, atoms) * WORDS + w % WORDS] = out;
    }
    norm = warp_sum(norm), moved = warp_sum(moved), length = warp_sum(length);
    if (lane) return;
    half_norm[r] = real ? -(norm >> 1) : -PADDING_NORM;
    double off = sqrt(moved) * (1 + 0x1p-36) + sqrt(length) * rotation_error + lost;
    error[r] = real ? (float)(off * round_up + tiny) : 0;
}

// Raises *most to the largest value of the warp.
__device__ __forceinline__ void raise(double* most, double value) {
    value = warp_max(value);
    if (threadIdx.x % WARP == 0) atomic_max(most, value);
}

// Writes a robust centre of every `step`-th row: a block has 32 features and a warp for every 32nd of these rows, and takes the median of
// the warps' means, on which a few outliers have no influence. It is 0 where it would not be finite.
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

// Writes rows of n integers from 0 to 255 as bytes, filled up with zeros to `padded` features.
extern "C" __global__ void put_bytes(
    const VALUE* __restrict__ values, long long n, int d, int padded, unsigned char* __restrict__ bytes) {
    long long i = thread_index(), row = i / padded, f = i % padded;
    if (row < n) bytes[i] = f < d ? values[row * d + f] : 0;
}

// Raises the three numbers `found`, which are zero at first: to the largest |x - centre|, to the largest |x|, and to 1 unless all
// values are integers from 0 to 255.
extern "C" __global__ void value_range(
    const VALUE* __restrict__ values, long long n, int d, const double* __restrict__ centre, double* found) {
    long long warps = (long long)gridDim.x * (blockDim.x / WARP);
    double deviation = 0, largest = 0, other_numbers = 0;
    for (long long r = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP; r < n; r += warps)
        for (int f = threadIdx.x % WARP; f < d; f += WARP) {
            double x = widen(values[r * d + f]);
            deviation = fmax(deviation, fabs(x - centre[f])), largest = fmax(largest, fabs(x));
            if (!(x >= 0 && x <= 255 && rint(x) == x)) other_numbers = 1;
        }
    raise(found, deviation), raise(found + 1, largest), raise(found + 2, other_numbers);
}
