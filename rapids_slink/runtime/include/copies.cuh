// These functions copy into shared memory.
#pragma once

__device__ __forceinline__ unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

// Copies 4, 8 or 16 bytes. From compute capability 8.0 on the thread does not wait for them.
template <int SIZE>
__device__ __forceinline__ void copy(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    unsigned at = shared_address(to);
    if (SIZE == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(SIZE) : "memory");
#else
    for (int i = 0; i < SIZE / 4; i++) ((int*)to)[i] = ((const int*)from)[i];
#endif
}

// Ends a batch of copies, because `wait_for_copies` waits for whole batches.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for all batches of copies except the last LATER.
template <int LATER> __device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
}
