// One thread a job, as `device.launch` starts them.
#pragma once

// The job of this thread; the last block has threads without one.
__device__ __forceinline__ long long thread_index() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
