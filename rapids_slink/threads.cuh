// One thread a job, as `device.launch` starts them.
#pragma once

// The job of this thread; the last block has threads without one.
__device__ __forceinline__ long long thread_index() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

// A place of its own, counted from `counter`, for every thread that wants one. All threads of the warp must call; one atomic
// a warp.
__device__ __forceinline__ int claim_in_warp(bool wanted, int* counter) {
    unsigned votes = __ballot_sync(~0u, wanted), lane = threadIdx.x % 32;
    int first = 0;
    if (votes && lane == 0) first = atomicAdd(counter, __popc(votes));
    return __shfl_sync(~0u, first, 0) + __popc(votes & ((1u << lane) - 1));
}
