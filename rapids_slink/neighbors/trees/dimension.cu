// How many points of a sample are in balls about others; dimension.py says what for.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int BALLS = 256, POINTS = 2048, THREADS = 256;

// The sampled points within twice the distance of the one that is nearest to each ball's centre. A block a ball.
extern "C" __global__ void __launch_bounds__(THREADS) count_within(
    const VALUE* __restrict__ values, long long n, int d, int* __restrict__ within) {
    __shared__ double squares[POINTS];
    __shared__ double nearest[THREADS / WARP];
    __shared__ int counts[THREADS / WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    long long centre = n / BALLS * blockIdx.x + n / POINTS / 2;
    double least = OVERFLOW_VALUE;
    for (int p = warp; p < POINTS; p += THREADS / WARP) {
        long long point = n / POINTS * p;
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
    for (int p = threadIdx.x; p < POINTS; p += THREADS) count += squares[p] <= 4 * least;
    count = warp_sum(count);
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < THREADS / WARP; w++) count += counts[w];
    within[blockIdx.x] = count;
}
