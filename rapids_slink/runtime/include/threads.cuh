// `runtime.cuda.launch` starts a thread for each job. These functions say which job is a thread's, combine the values of warps and
// blocks, and give slots to threads that want one.
#pragma once

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// Returns the job of this thread; the last block has threads without one.
__device__ __forceinline__ long long thread_index() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

// These return the sum, or the largest, of a warp's values to every lane. All threads of the warp must call.
template <class T> __device__ __forceinline__ T warp_sum(T x) {
    for (int step = WARP / 2; step; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}
template <class T> __device__ __forceinline__ T warp_max(T x) {
    for (int step = WARP / 2; step; step /= 2) x = max(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}
// Returns the bits that are set in some lane. All threads of the warp must call.
__device__ __forceinline__ unsigned warp_or(unsigned x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_or_sync(ALL_LANES, x);
#else
    for (int step = WARP / 2; step; step /= 2) x |= __shfl_xor_sync(ALL_LANES, x, step);
    return x;
#endif
}

// Returns the largest of a block's values to its first thread. All threads of the block must call.
template <class T> __device__ __forceinline__ T block_max(T value) {
    __shared__ T of_warp[WARP];
    value = warp_max(value);
    __syncthreads();  // the call before may still read
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    if (threadIdx.x == 0)
        for (unsigned w = 1; w < blockDim.x / WARP; w++) value = max(value, of_warp[w]);
    return value;
}

// Sets *to to the largest of a block's values. All threads of the block must call.
__device__ __forceinline__ void put_largest(float value, float* to) {
    value = block_max(value);
    if (threadIdx.x == 0) *to = value;
}

// Returns a slot, counted from `counter`, to every thread that wants one, with one atomic per warp. All threads of the warp must
// call.
template <class Count> __device__ __forceinline__ Count claim_in_warp(bool wanted, Count* counter) {
    unsigned votes = __ballot_sync(ALL_LANES, wanted), lane = threadIdx.x % WARP;
    Count first = 0;
    if (votes && lane == 0) first = atomicAdd(counter, (Count)__popc(votes));
    return __shfl_sync(ALL_LANES, first, 0) + __popc(votes & ((1u << lane) - 1));
}

// Gives slots, counted from `counter`, to those of the ITEMS items of each thread that are wanted, with one atomic per block. They are
// in the order of warps, then items, then lanes, so that neighbours in the input stay together. All threads of the block must call.
template <int ITEMS, class Count>
__device__ __forceinline__ void claim_in_block(const bool (&wanted)[ITEMS], Count (&slot)[ITEMS], Count* counter) {
    __shared__ Count start[WARP];  // of each warp
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, count = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        unsigned votes = __ballot_sync(ALL_LANES, wanted[j]);
        slot[j] = count + __popc(votes & ((1u << lane) - 1));
        count += __popc(votes);
    }
    if (lane == 0) start[warp] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned warps = (blockDim.x + WARP - 1) / WARP;
        Count total = 0;
        for (unsigned w = 0; w < warps; w++) total += start[w];
        Count next = total ? atomicAdd(counter, total) : 0;
        for (unsigned w = 0; w < warps; w++) {
            Count of_warp = start[w];
            start[w] = next;
            next += of_warp;
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) slot[j] += start[warp];
}

// Returns the sum over the block's threads up to this one, and sets `total` to that over all of them. All threads of the block must
// call.
__device__ __forceinline__ unsigned scan_in_block(unsigned value, unsigned& total) {
    __shared__ unsigned sums[WARP];  // of each warp
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int offset = 1; offset < WARP; offset *= 2) {
        unsigned before = __shfl_up_sync(ALL_LANES, value, offset);
        if (lane >= offset) value += before;
    }
    __syncthreads();  // the call before may still read
    if (lane == WARP - 1) sums[warp] = value;
    __syncthreads();
    total = 0;
    for (unsigned w = 0; w < blockDim.x / WARP; w++) {
        if (w == warp) value += total;
        total += sums[w];
    }
    return value;
}
