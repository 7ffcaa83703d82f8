// These kernels read the points themselves: they find their places and what is largest in a cell. __init__.py and
// order.py have the proofs.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/tiles/sizes.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int PLACE_ROWS = 2;       // a warp finds the places of these rows, which share what it reads of the axes

// Returns the sum over a warp's lanes of x[lane / 2], of N values: each step adds half of what a lane has to those of its partner.
template <int N> __device__ __forceinline__ double sum_of_own(const double (&x)[N], int lane) {
    if constexpr (N == 1) return x[0] + __shfl_xor_sync(ALL_LANES, x[0], 1);
    else {
        bool upper = lane & N;
        double kept[N / 2];
#pragma unroll
        for (int a = 0; a < N / 2; a++)
            kept[a] = (upper ? x[a + N / 2] : x[a]) + __shfl_xor_sync(ALL_LANES, upper ? x[a] : x[a + N / 2], N);
        return sum_of_own<N / 2>(kept, lane);
    }
}
static_assert(2 * MOST_AXES == WARP, "two lanes have a sum");

// Writes the places of n points, (n, m + 1); the errors of their coordinates and of the rest, (n, 2); and, zeros at first, the largest
// square of a place's length and the largest error. `axes` are (m, d). The place of a point whose squared length overflows is the
// origin, with an infinite error. A warp has as many rows as lanes, PLACE_ROWS at a time, and a lane some of their features.
// Sums of d products err by less than d 2^-52 of the lengths' product in whatever order they are added, and order.py allows for that.
extern "C" __global__ void find_places(
    const VALUE* __restrict__ points, long long n, int d, const double* __restrict__ centre, double unit,
    const double* __restrict__ axes, int m, double departure, double* __restrict__ places, double* __restrict__ errors, double* most) {
    int lane = threadIdx.x % WARP;
    // A warp's rows follow each other. When the sums of a row are known, one lane does what is left to do for it.
    long long begin = thread_index() / WARP * WARP;
    double all = 0, on_axes = 0;
#pragma unroll 1
    for (int of = 0; of < WARP && begin + of < n; of += PLACE_ROWS) {
        long long first = begin + of;
        double z[PLACE_ROWS][MOST_AXES] = {}, square[PLACE_ROWS] = {};
        for (int f = lane; f < d; f += WARP) {
            double w[PLACE_ROWS];
#pragma unroll
            for (int r = 0; r < PLACE_ROWS; r++) {
                w[r] = first + r < n ? times(minus(widen(points[(size_t)(first + r) * d + f]), centre[f]), unit) : 0;
                square[r] += w[r] * w[r];
            }
#pragma unroll
            for (int a = 0; a < MOST_AXES; a++) {
                if (a >= m) continue;
                double axis = axes[(size_t)a * d + f];
#pragma unroll
                for (int r = 0; r < PLACE_ROWS; r++) z[r][a] += w[r] * axis;
            }
        }
#pragma unroll
        for (int r = 0; r < PLACE_ROWS; r++) {
            double own = sum_of_own(z[r], lane), of_all = warp_sum(square[r]), of_axes = warp_sum(lane % 2 ? 0 : own * own);
            if (lane == of + r) all = of_all, on_axes = of_axes;
            if (first + r < n && lane % 2 == 0 && lane / 2 < m)
                places[(size_t)(first + r) * (m + 1) + lane / 2] = of_all < INFINITE ? own : 0;
        }
    }
    long long row = begin + lane;
    unsigned long long farthest = 0, most_off = 0;  // the bits
    if (row < n) {
        bool overflows = !(all < INFINITE);
        if (overflows) all = INFINITE;
        double rounding = (d + 8) * 0x1p-52, rest = 0, error = rounding * sqrt(all) * (1 + departure), of_rest = 0;
        if (m < d) {  // else nothing is left out
            rest = overflows ? 0 : sqrt(fmax(all - on_axes, 0.0));
            double missing = (departure + 2 * rounding) * all;
            of_rest = fmin(sqrt(missing), missing / fmax(rest, 1e-300));
        }
        places[(size_t)row * (m + 1) + m] = rest, errors[2 * row] = error, errors[2 * row + 1] = of_rest;
        farthest = __double_as_longlong(all), most_off = __double_as_longlong(fmax(error, of_rest));
    }
    farthest = block_max(farthest), most_off = block_max(most_off);
    if (threadIdx.x == 0) atomic_max(most, __longlong_as_double(farthest)), atomic_max(most + 1, __longlong_as_double(most_off));
}

// Returns a point's feature, counted from the origin and then from its cell's centre.
__device__ __forceinline__ double difference(VALUE x, double origin, double centre) {
    return minus(minus(widen(x), origin), centre);
}

// Writes points in slots counted from the origin, zeros where a slot is empty, and the squares of their lengths. A warp a slot.
extern "C" __global__ void centre_slots(
    const VALUE* __restrict__ points, int d, const int* __restrict__ slots, long long n, const double* __restrict__ origin,
    double* __restrict__ out, double* __restrict__ norms) {
    long long s = thread_index() / WARP;
    if (s >= n) return;
    int row = slots[s], lane = threadIdx.x % WARP;
    double square = 0;
    for (int f = lane; f < d; f += WARP) {
        double x = row >= 0 ? minus(widen(points[(size_t)row * d + f]), origin[f]) : 0;
        out[(size_t)s * d + f] = x, square += x * x;
    }
    square = warp_sum(square);
    if (lane == 0) norms[s] = square;
}

// Writes the largest difference of any feature of the rows of a cell, zero at first. A block a tile, and a warp a row of it at a time.
extern "C" __global__ void find_largest_differences(
    const VALUE* __restrict__ points, int d, const int* __restrict__ slots, const int* __restrict__ cell_of_tile,
    const double* __restrict__ origin, const double* __restrict__ centres, double* largest) {
    int lane = threadIdx.x % WARP, cell = cell_of_tile[blockIdx.x];
    double most = 0;
    for (int s = threadIdx.x / WARP; s < TILE; s += blockDim.x / WARP) {
        int row = slots[(size_t)blockIdx.x * TILE + s];
        if (row < 0) continue;
        for (int f = lane; f < d; f += WARP)
            most = fmax(most, fabs(difference(points[(size_t)row * d + f], origin[f], centres[(size_t)cell * d + f])));
    }
    most = block_max(most);
    if (threadIdx.x == 0) atomic_max(largest + cell, most);
}
