// By this search blocks and work items find their pair, and parts their cluster.
#pragma once

// Returns the position of the first of n ascending numbers that is above x, or the last position if none before it is.
template <class T> __device__ __forceinline__ int first_above(const T* __restrict__ ends, int n, T x) {
    int low = 0, high = n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (ends[middle] > x) high = middle;
        else low = middle + 1;
    }
    return low;
}
