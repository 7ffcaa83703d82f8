// How far each row looks, by its bound and by what has been found, and which rows have to look again.
//
// EACH times a warp's lanes are as many as a row can have survivors.
#include "neighbors/canonical.cuh"
#include "neighbors/ceiling.cuh"
#include "neighbors/reach.cuh"
#include "threads.cuh"

#ifndef EACH
#define EACH 4
#endif

constexpr int TILE = 128;  // rows, as in hopper.cu

// The largest value of this block's tile of rows, a thread each.
template <class REAL> __device__ __forceinline__ void put_largest(REAL value, REAL* of_tile) {
    __shared__ REAL of_warp[TILE / WARP];
    for (int step = WARP / 2; step; step /= 2) value = max(value, __shfl_xor_sync(ALL, value, step));
    __syncthreads();  // what stood there has been read
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    if (threadIdx.x == 0) of_tile[blockIdx.x] = max(max(of_warp[0], of_warp[1]), max(of_warp[2], of_warp[3]));
}

// The largest half norm and error of each tile of m rows; rows after them have none.
extern "C" __global__ void largest_of_tiles(
    long long m, const float* __restrict__ half_norm, const float* __restrict__ error, float* __restrict__ tile_norm,
    float* __restrict__ tile_error) {
    long long r = thread_index();
    put_largest(r < m ? half_norm[r] : 0, tile_norm);
    put_largest(r < m ? error[r] : 0, tile_error);
}

// How far points of bytes look: half of a bound, rounded down, or `everything`.
__device__ __forceinline__ int half_of(double bound, int everything) { return (int)fmin(bound / 2, (double)everything); }

// Of m rows with these bounds and errors, if there are any; none of the rows after them. A block a tile.
extern "C" __global__ void reach(
    long long m, const double* __restrict__ bound, const float* __restrict__ error, const Reach reach,
    float* __restrict__ far, float* __restrict__ farthest) {
    long long r = thread_index();
    far[r] = r < m ? reach.of(bound[r], error ? error[r] : 0) : 0;
    put_largest(far[r], farthest);
}
extern "C" __global__ void reach_of_bytes(
    long long m, const double* __restrict__ bound, int everything, int* __restrict__ far, int* __restrict__ farthest) {
    long long r = thread_index();
    far[r] = r < m ? half_of(bound[r], everything) : 0;
    put_largest(far[r], farthest);
}

// What halves of squared distances tell of row i: a key by which its survivors order, the value that one of a key is at most,
// and which are left within a bound. Survivors' norms and errors are those of their tiles.
struct Halves {
    static constexpr int CLOSE = ::CLOSE;
    const float *half_norm, *error, *tile_norm, *tile_error;
    Reach reach;
    Ceiling ceiling;
    __device__ int key(int i, int id, float half) const {
        return __float_as_int(ceiling.key(half, half_norm[i], tile_norm[id / TILE], tile_error[id / TILE]));
    }
    __device__ double value(int i, int key) const { return ceiling.value(__int_as_float(key), error[i]); }
    __device__ float far(int i, double bound) const { return reach.of(bound, error[i]); }
    __device__ bool near(float far, int id, float half) const {
        float q = far + tile_error[id / TILE];
        return half <= q * q;
    }
};

// Of points of bytes, whose halves are rounded down, by at most 1; see hopper.cu.
struct HalvesOfBytes {
    static constexpr int CLOSE = 1;
    int everything;
    __device__ int key(int, int, int half) const { return half; }
    __device__ double value(int, int key) const { return 2.0 * key + 2; }
    __device__ int far(int, double bound) const { return half_of(bound, everything); }
    __device__ bool near(int far, int, int half) const { return half <= far; }
};

// Lowers each row's bound to what its k-th survivor is at most, and keeps those survivors that may be within the bound. A row
// with more than `capacity` of them, some of which are lost, keeps all. A warp a row.
template <class Known, class REAL>
__device__ __forceinline__ void lower_bounds(
    const Known& known, int m, int k, int capacity, double* bound, int* ids, REAL* apart, int* count) {
    int lane = threadIdx.x % WARP, i = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (i >= m || count[i] < k) return;
    bool lost = count[i] > capacity;
    int n = lost ? capacity : count[i], id[EACH], key[EACH];
    REAL half[EACH];
    ids += (size_t)i * capacity, apart += (size_t)i * capacity;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        bool real = e * WARP + lane < n;
        id[e] = real ? ids[e * WARP + lane] : 0, half[e] = real ? apart[e * WARP + lane] : 0;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        key[e] = NOBODY;
        if (e * WARP >= n) continue;
        int found = known.key(i, id[e], half[e]);
        if (e * WARP + lane < n) key[e] = found;
    }
    double within = fmin(bound[i], known.value(i, kth_least(key, n, k, Known::CLOSE)));
    REAL far = known.far(i, within);
    __syncwarp();
    if (lane == 0) bound[i] = within;
    if (lost) return;
    int kept = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (e * WARP >= n) break;
        bool near = e * WARP + lane < n && known.near(far, id[e], half[e]);
        unsigned votes = __ballot_sync(ALL, near);
        int at = kept + __popc(votes & ((1u << lane) - 1));
        if (near) ids[at] = id[e], apart[at] = half[e];
        kept += __popc(votes);
    }
    if (lane == 0) count[i] = kept;
}
extern "C" __global__ void tighten(
    int m, int k, int capacity, const float* __restrict__ half_norm, const float* __restrict__ error,
    const float* __restrict__ tile_norm, const float* __restrict__ tile_error, const Reach reach, const Ceiling ceiling,
    double* __restrict__ bound, int* __restrict__ ids, float* __restrict__ apart, int* __restrict__ count) {
    const Halves known{half_norm, error, tile_norm, tile_error, reach, ceiling};
    lower_bounds(known, m, k, capacity, bound, ids, apart, count);
}
extern "C" __global__ void tighten_bytes(
    int m, int k, int capacity, int everything, double* __restrict__ bound, int* __restrict__ ids, int* __restrict__ apart,
    int* __restrict__ count) {
    lower_bounds(HalvesOfBytes{everything}, m, k, capacity, bound, ids, apart, count);
}
