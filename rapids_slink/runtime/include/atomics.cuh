// These set *at to the lesser of *at and a value, or to the greater, by an atomic that most threads skip. The plain read before it
// may be stale. A stale value is too large for a minimum and too small for a maximum, so at worst an unnecessary atomic is made, and none
// is missed.
#pragma once

template <class T> __device__ __forceinline__ void atomic_min(T* at, T value) {
    if (value < *(volatile T*)at) atomicMin(at, value);
}
template <class T> __device__ __forceinline__ void atomic_max(T* at, T value) {
    if (value > *(volatile T*)at) atomicMax(at, value);
}
__device__ __forceinline__ void atomic_min(double* at, double value) {
    unsigned long long* bits = (unsigned long long*)at;
    unsigned long long seen = *(volatile unsigned long long*)bits;
    while (value < __longlong_as_double(seen)) {
        unsigned long long before = atomicCAS(bits, seen, __double_as_longlong(value));
        if (before == seen) return;
        seen = before;
    }
}
// This one is for numbers that are not negative, because their order is that of their bits.
__device__ __forceinline__ void atomic_max(double* at, double value) {
    atomic_max((unsigned long long*)at, (unsigned long long)__double_as_longlong(value));
}
