// An edge list in the total order, as in ordering.py.
#include "ordering.cuh"
#include "runtime/include/threads.cuh"

extern "C" __global__ void code_edges(
    long long m, const int* __restrict__ src, const int* __restrict__ dst, long long* __restrict__ code) {
    long long i = thread_index();
    if (i < m) code[i] = edge_code(src[i], dst[i]);
}

// Row i gets the edge of row rows[i], the smaller end first.
extern "C" __global__ void place_edges(
    long long m, const long long* __restrict__ rows, const int* __restrict__ u, const int* __restrict__ v,
    const double* __restrict__ given, int* __restrict__ src, int* __restrict__ dst, double* __restrict__ weight) {
    long long i = thread_index();
    if (i >= m) return;
    int a = u[rows[i]], b = v[rows[i]];
    src[i] = min(a, b), dst[i] = max(a, b), weight[i] = given[rows[i]];
}
