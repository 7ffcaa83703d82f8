// How far each row looks, and which rows have to look again.
#include "neighbors/canonical.cuh"
#include "threads.cuh"

constexpr int WARP = 32;
constexpr int TILE = 128;  // rows, as in hopper.cu
constexpr unsigned ALL = 0xffffffffu;

// far[r] of this block's tile of rows, and the largest of them.
template <class REAL> __device__ __forceinline__ void put(REAL reach, REAL* far, REAL* farthest) {
    __shared__ REAL of_warp[TILE / WARP];
    far[thread_index()] = reach;
    for (int step = WARP / 2; step; step /= 2) reach = max(reach, __shfl_xor_sync(ALL, reach, step));
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = reach;
    __syncthreads();
    if (threadIdx.x == 0) farthest[blockIdx.x] = max(max(of_warp[0], of_warp[1]), max(of_warp[2], of_warp[3]));
}

// operand.reach of m rows with these bounds, operation by operation; none of the rows after them. A block a tile.
extern "C" __global__ void reach(
    long long m, const double* __restrict__ bound, const float* __restrict__ error, double off, double stretch,
    double longer, double more, double scale, double grow, double tiny, float* __restrict__ far,
    float* __restrict__ farthest) {
    long long r = thread_index();
    float reach = 0;
    if (r < m) {
        double square = times(fmax(plus(bound[r], off), 0.0), stretch);
        double distance = plus(times(__dsqrt_rn(square), longer), more);
        reach = (float)plus(widen(error[r]), plus(times(times(scale, distance), grow), tiny));
    }
    put(reach, far, farthest);
}

// The same for points of bytes: half of each bound, rounded down, or `everything`.
extern "C" __global__ void reach_of_bytes(
    long long m, const double* __restrict__ bound, int everything, int* __restrict__ far, int* __restrict__ farthest) {
    long long r = thread_index();
    put(r < m ? (int)fmin(bound[r] / 2, (double)everything) : 0, far, farthest);
}

// Where flags are set, in no order.
extern "C" __global__ void list_set(long long n, const bool* __restrict__ flag, int* __restrict__ at, int* count) {
    long long i = thread_index();
    bool set = i < n && flag[i];
    int place = claim_in_warp(set, count);
    if (set) at[place] = i;
}
