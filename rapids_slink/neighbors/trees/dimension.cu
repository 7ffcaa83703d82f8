// How many points of a sample are in balls about others, and how far the nearest points are; __init__.py says what for.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int BALLS = 256, POINTS = 2048, THREADS = 256;

// The points of a sample are at the multiples of `stride`, modulo n.

// The sampled points whose squared distance is at most `squared` times that of the one nearest to each ball's centre, one of the
// points that would follow in the sample. A block a ball.
extern "C" __global__ void __launch_bounds__(THREADS) count_within(
    const VALUE* __restrict__ values, long long n, int d, long long stride, double squared, int* __restrict__ within) {
    __shared__ double squares[POINTS];
    __shared__ double nearest[THREADS / WARP];
    __shared__ int counts[THREADS / WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    long long centre = (POINTS + blockIdx.x) * stride % n;
    double least = OVERFLOW_VALUE;
    for (int p = warp; p < POINTS; p += THREADS / WARP) {
        long long point = p * stride % n;
        double square = 0;
        for (int f = lane; f < d; f += WARP) {
            double gap = widen(values[point * d + f]) - widen(values[centre * d + f]);
            square += gap * gap;
        }
        square = point == centre ? 1.0 / 0.0 : warp_sum(square);
        if (lane == 0) squares[p] = square;
        least = fmin(least, square);
    }
    if (lane == 0) nearest[warp] = least;
    __syncthreads();
    for (int w = 0; w < THREADS / WARP; w++) least = fmin(least, nearest[w]);
    int count = 0;
    for (int p = threadIdx.x; p < POINTS; p += THREADS) count += squares[p] <= squared * least;
    count = warp_sum(count);
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < THREADS / WARP; w++) count += counts[w];
    within[blockIdx.x] = count;
}

// The first m points of a sample of n.
extern "C" __global__ void gather_sample(
    const VALUE* __restrict__ values, int d, long long n, long long stride, long long m, VALUE* __restrict__ out) {
    long long i = thread_index();
    if (i < m * d) out[i] = values[i / d * stride % n * d + i % d];
}

// n points from `centre`, scaled, and the squares of their lengths. A warp a point.
extern "C" __global__ void scale_points(
    const VALUE* __restrict__ values, int d, long long n, const double* __restrict__ centre, double scale,
    float* __restrict__ out, float* __restrict__ norms) {
    long long i = thread_index() / WARP;
    int lane = threadIdx.x % WARP;
    if (i >= n) return;
    float norm = 0;
    for (int f = lane; f < d; f += WARP) {
        float x = (widen(values[i * d + f]) - centre[f]) * scale;
        out[i * d + f] = x, norm += x * x;
    }
    norm = warp_sum(norm);
    if (lane == 0) norms[i] = norm;
}

// Lowers `least`, of which each point of a sample has a row of blocks, to its squared distance from the nearest of n others, 0 at
// least. These are the points from number `first` on, of `all`; `products` are with them.
extern "C" __global__ void __launch_bounds__(THREADS) lower_least(
    const float* __restrict__ products, const float* __restrict__ own, const float* __restrict__ norms, long long first,
    long long n, long long all, long long stride, float* least) {
    long long at = blockIdx.x * stride % all - first;
    float lowest = 1.0f / 0.0f, norm = own[blockIdx.x];
    for (long long j = (long long)blockIdx.y * THREADS + threadIdx.x; j < n; j += (long long)gridDim.y * THREADS)
        if (j != at) lowest = fminf(lowest, norm + norms[j] - 2 * products[blockIdx.x * n + j]);
    lowest = -warp_max(-lowest);
    // Of numbers that are not negative the bits have the order of the numbers.
    if (threadIdx.x % WARP == 0) atomicMin((int*)least + blockIdx.x, __float_as_int(fmaxf(lowest, 0)));
}
