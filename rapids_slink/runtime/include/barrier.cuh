// A barrier of all blocks of a launch. They wait for each other, so all must be resident: hence a cooperative launch.
#pragma once

// Waits until `*arrived` is `expected`, for so many arrivals; thread 0 arrives for its block.
//
// What any block has written before is read by all afterwards: __syncthreads() puts its writes before the first fence, and
// its reads after the second, which leaves nothing old in L1. No block arrives at the next barrier before all have at this
// one, and the counter is never set back: it stays at `expected` or above, so that nobody can miss it.
__device__ __forceinline__ void wait_for_blocks(unsigned long long* arrived, unsigned long long expected) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1ull);
        while (*(volatile unsigned long long*)arrived < expected) {}
        __threadfence();
    }
    __syncthreads();
}
