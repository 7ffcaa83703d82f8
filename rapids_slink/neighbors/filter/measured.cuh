// All lanes of a warp compute distances in float32, and what surrogate distances are at most by these.
#pragma once
#include "runtime/include/threads.cuh"

constexpr int MEASURING = 8, AT_ONCE = WARP / MEASURING;  // lanes that measure a distance, and distances that a warp does at a time

// Bounds a surrogate distance by the squared distance times `unit`, a power of two: see `Metric.surrogate_bound_terms`.
struct SquareBound {
    double unit, inverse, more, factor, error;
    __device__ double of(double square) const {
        double longer = __dsqrt_rn(square) * inverse + more;
        return longer * longer * factor + error;
    }
};

// Returns to each lane the square of the distance times `unit` between a row and the lane's candidate. All lanes take part, and an id
// below 0 is of no candidate. MEASURING lanes have some features of ROUNDS candidates, whose values are read at the same time, PIECE of
// each: a row is a multiple of PIECE features, and is aligned by as much. A sum falls short of the true one by at most
// d / MEASURING + 6 + PIECE roundings of 2^-24 of itself: those of a difference, which count twice, of its square, of a lane's sum and
// of the lanes' sum. Underflow loses less than 2^-125 of each square.
template <int PIECE, class V>
__device__ __forceinline__ float squares_in_float32(const V* x, const V* points, int d, V unit, int id) {
    constexpr int ROUNDS = WARP / AT_ONCE;
    struct __align__(PIECE * sizeof(V)) Piece { V of[PIECE]; };
    int lane = threadIdx.x % WARP;
    float sum[ROUNDS] = {};
    int other[ROUNDS];
#pragma unroll
    for (int s = 0; s < ROUNDS; s++) other[s] = __shfl_sync(ALL_LANES, id, s * AT_ONCE + lane / MEASURING);
#pragma unroll 1
    for (int f = lane % MEASURING * PIECE; f < d; f += MEASURING * PIECE) {
        Piece mine = *(const Piece*)(x + f), theirs[ROUNDS];
#pragma unroll
        for (int s = 0; s < ROUNDS; s++) theirs[s] = other[s] >= 0 ? *(const Piece*)(points + (size_t)other[s] * d + f) : mine;
#pragma unroll
        for (int s = 0; s < ROUNDS; s++)
#pragma unroll
            for (int p = 0; p < PIECE; p++) {
                float difference = (mine.of[p] - theirs[s].of[p]) * unit;
                sum[s] += difference * difference;
            }
    }
#pragma unroll
    for (int half = ROUNDS / 2; half; half /= 2) {  // what a lane has of half of the rounds is added to its partner's
        bool upper = lane & half;
#pragma unroll
        for (int s = 0; s < half; s++) {
            float given = __shfl_xor_sync(ALL_LANES, upper ? sum[s] : sum[s + half], half);
            sum[s] = (upper ? sum[s + half] : sum[s]) + given;
        }
    }
    return __shfl_sync(ALL_LANES, sum[0], lane % AT_ONCE * MEASURING + lane / AT_ONCE);
}
static_assert(MEASURING * AT_ONCE == WARP && MEASURING == WARP / AT_ONCE, "a lane has the sum of a round");

// Returns what the squares are at most. Rows start at multiples of `alignment` bytes.
template <class V>
__device__ __forceinline__ double square_at_most(
    const V* x, const V* points, int d, const SquareBound& square_bound, int id, int alignment) {
    V unit = square_bound.unit;
    float own = alignment >= 2 * sizeof(V) ? squares_in_float32<2>(x, points, d, unit, id) : squares_in_float32<1>(x, points, d, unit, id);
    return (own + d * 0x1p-125) * (1 + (d / MEASURING + 9) * 0x1p-23);
}
