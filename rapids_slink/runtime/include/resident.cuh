// These are the blocks of a cooperative launch. All are resident, so they may wait for each other and share a kernel's steps.
#pragma once
#include "runtime/include/threads.cuh"

struct ResidentBlocks {
    unsigned long long* arrived;  // blocks at all barriers so far, 0 at first
    unsigned blocks = gridDim.x;
    unsigned long long expected = 0;  // the value of `arrived` once all have come

    // Waits for all blocks. Thread 0 arrives for its block.
    //
    // Earlier writes of any block are visible to all blocks afterwards: __syncthreads() orders them before the first fence, and
    // the reads after the second, which invalidates L1. No block arrives at the next barrier before all have arrived at this
    // one, and the counter is never reset. So it stays at `expected` or above, and no block can miss it.
    __device__ __forceinline__ void wait() {
        expected += blocks;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1ull);
            while (*(volatile unsigned long long*)arrived < expected) {}
            __threadfence();
        }
        __syncthreads();
    }

    // Calls job(i) for all i below n. All threads of a block make the same calls, so some are with n or more.
    template <class Job> __device__ __forceinline__ void each_in_blocks(long long n, Job job) const {
        for (long long first = (long long)blockIdx.x * blockDim.x; first < n; first += (long long)blocks * blockDim.x)
            job(first + threadIdx.x);
    }
    template <class Job> __device__ __forceinline__ void each(long long n, Job job) const {
        each_in_blocks(n, [&](long long i) { if (i < n) job(i); });
    }

    // Does the same, but the warps of a block wait for each other after each step, so that neighbours read the same memory at a time.
    template <class Job> __device__ __forceinline__ void each_in_step(long long n, Job job) const {
        each_in_blocks(n, [&](long long i) {
            if (i < n) job(i);
            __syncthreads();
        });
    }

    // Sets values[p] to start + item(low) + ... + item(p) for low <= p < high, and waits. `of_blocks` has room for a number a block.
    template <class Item>
    __device__ void running_sums(long long low, long long high, unsigned start, unsigned* values, unsigned* of_blocks, Item item) {
        long long share = (high - low + blocks - 1) / blocks, from = low + share * blockIdx.x, to = min(from + share, high);
        unsigned own = 0, sum;
        for (long long p = from + threadIdx.x; p < to; p += blockDim.x) own += values[p] = item(p);
        scan_in_block(own, sum);
        if (threadIdx.x == 0) of_blocks[blockIdx.x] = sum;
        wait();
        own = 0;
        for (unsigned block = threadIdx.x; block < blockIdx.x; block += blockDim.x) own += of_blocks[block];
        scan_in_block(own, sum);
        for (start += sum; from < to; from += blockDim.x, start += sum) {
            long long p = from + threadIdx.x;
            unsigned upto = scan_in_block(p < to ? values[p] : 0, sum);
            if (p < to) values[p] = start + upto;
        }
        wait();
    }
};
