// These kernels count the points of a sample in balls about others, and find how far these are; choose.py says what for.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int BALLS = 256, POINTS = 2048, THREADS = 256;

// The points of a sample are at the multiples of `stride`, modulo n.

// Counts the sampled points whose squared distance from a ball's centre is at most `squared` times that of the nearest; writes the
// nearest's, and the sum of all finite ones. The centre is a point that would follow in the sample. A block a ball.
extern "C" __global__ void __launch_bounds__(THREADS) count_within(
    const VALUE* __restrict__ values, long long n, int d, long long stride, double squared, int* __restrict__ within,
    double* __restrict__ squares_of_balls) {
    __shared__ double squares[POINTS];
    __shared__ double nearest[THREADS / WARP], sums[THREADS / WARP];
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
    double sum = 0;
    for (int p = threadIdx.x; p < POINTS; p += THREADS) {
        count += squares[p] <= squared * least;
        if (squares[p] < 1.0 / 0.0) sum += squares[p];
    }
    count = warp_sum(count);
    sum = warp_sum(sum);
    if (lane == 0) counts[warp] = count, sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < THREADS / WARP; w++) count += counts[w], sum += sums[w];
    within[blockIdx.x] = count;
    squares_of_balls[blockIdx.x] = least;
    squares_of_balls[BALLS + blockIdx.x] = sum;
}
