// An edge list in the total order, as in ordering.py.
#include "ordering.cuh"
#include "runtime/include/threads.cuh"

// Puts each run of rows of one weight, of rows that ascend by it, into the order of their codes, by a thread, or says that it is
// longer than `most`. A row that is read while another thread moves it gives way to one of the same weight.
extern "C" __global__ void order_short_runs(
    long long m, long long most, const double* __restrict__ weight, const int* __restrict__ src, const int* __restrict__ dst,
    long long* rows, int* has_long_runs) {
    long long first = thread_index(), end = first + 1;
    if (first >= m) return;
    double own = weight[rows[first]];
    if (first > 0 && weight[rows[first - 1]] == own) return;
    while (end < m && end - first <= most && weight[rows[end]] == own) end++;
    if (end - first > most) {
        *has_long_runs = 1;
        return;
    }
    for (long long i = first + 1; i < end; i++) {
        long long row = rows[i], code = edge_code(src[row], dst[row]), j = i;
        for (; j > first && edge_code(src[rows[j - 1]], dst[rows[j - 1]]) > code; j--) rows[j] = rows[j - 1];
        rows[j] = row;
    }
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
