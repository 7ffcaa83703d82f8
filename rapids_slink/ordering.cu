// These kernels put an edge list into the total order: see ordering.py.
#include "ordering.cuh"
#include "runtime/include/threads.cuh"

// Writes the keys by which weights are sorted as float32. Adding 0 makes both zeros one, because a sort looks at bits.
extern "C" __global__ void float_keys(long long m, const double* __restrict__ weight, float* __restrict__ key) {
    long long i = thread_index();
    if (i < m) key[i] = (float)weight[i] + 0.0f;
}

// Writes the distances of edges whose weights are squares. Both arrays may be the same one.
extern "C" __global__ void take_roots(long long m, const double* square, double* root) {
    long long i = thread_index();
    if (i < m) root[i] = __dsqrt_rn(square[i]);
}

// Gathers the weights and codes of the edges in these rows.
extern "C" __global__ void gather_edges(
    long long m, const long long* __restrict__ rows, const double* __restrict__ weight, const int* __restrict__ src,
    const int* __restrict__ dst, double* __restrict__ gathered, long long* __restrict__ code) {
    long long i = thread_index();
    if (i >= m) return;
    long long row = rows[i];
    gathered[i] = weight[row], code[i] = edge_code(src[row], dst[row]);
}

// Puts edges that ascend by their float32 weights into the total order. Each thread counts the edges of the same float32 weight
// that come before it, or sets `has_more` if there are more than `most` of them.
extern "C" __global__ void order_ties(
    long long m, long long most, const double* __restrict__ weight, const long long* __restrict__ code, int* __restrict__ src,
    int* __restrict__ dst, double* __restrict__ ordered, int* has_more) {
    long long i = thread_index(), position = i;
    if (i >= m) return;
    auto ties = [&](long long j) { return j >= 0 && j < m && (float)weight[j] == (float)weight[i]; };
    if (ties(i - most) || ties(i + most)) {
        *has_more = 1;
        return;
    }
    for (long long j = i - 1; ties(j); j--) position -= lighter(weight[i], code[i], weight[j], code[j]);
    for (long long j = i + 1; ties(j); j++) position += lighter(weight[j], code[j], weight[i], code[i]);
    src[position] = (int)(code[i] >> 32), dst[position] = (int)code[i], ordered[position] = weight[i];
}

// Writes the weights of edges in the order of their codes. Adding 0 makes both zeros one, because a sort looks at bits.
extern "C" __global__ void keys_by_code(
    long long m, const long long* __restrict__ by_code, const double* __restrict__ weight, double* __restrict__ key) {
    long long i = thread_index();
    if (i < m) key[i] = weight[by_code[i]] + 0.0;
}

// Writes the edges in the order of these keys.
extern "C" __global__ void put_edges(
    long long m, const long long* __restrict__ by_code, const long long* __restrict__ by_key, const double* __restrict__ weight,
    const long long* __restrict__ code, int* __restrict__ src, int* __restrict__ dst, double* __restrict__ ordered) {
    long long i = thread_index();
    if (i >= m) return;
    long long edge = by_code[by_key[i]];
    src[i] = (int)(code[edge] >> 32), dst[i] = (int)code[edge], ordered[i] = weight[edge];
}
