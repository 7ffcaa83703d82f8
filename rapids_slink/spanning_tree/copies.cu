// Edges connect copies of rows to the tree of the distinct rows: ways.py says how.
#include "ordering.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

// Looks at the edges of the tree of m distinct rows. Sets `lighter` if one is lighter than the copies of an end are to each other.
// Otherwise the least row at that weight from row r, if it is before r, is m - nearer[r], and nearer[r] is 0 if there is none.
extern "C" __global__ void find_ends(
    long long edges, int m, const int* __restrict__ src, const int* __restrict__ dst, const double* __restrict__ weight,
    const double* __restrict__ own, const long long* __restrict__ count, int* nearer, int* lighter) {
    long long e = thread_index();
    if (e >= edges) return;
    int a = src[e], b = dst[e];
    double w = weight[e];
    if ((count[a] > 1 && w < own[a]) || (count[b] > 1 && w < own[b])) *lighter = 1;
    if (w == own[b]) atomic_max(nearer + b, m - a);
}

// Lists the codes of the edges of all copies among n rows, in no order.
extern "C" __global__ void list_copies(
    long long n, int m, const int* __restrict__ first, const int* __restrict__ number, const int* __restrict__ nearer,
    unsigned long long* __restrict__ code, int* listed) {
    long long i = thread_index();
    int r = i < n ? number[i] : 0;
    bool is_copy = i < n && first[r] != i;
    int slot = claim_in_warp(is_copy, listed), end = nearer[r] ? m - nearer[r] : r;
    if (is_copy) code[slot] = edge_code(first[end], (int)i);
}

// Writes the edges of the copies, which come in the order of their codes, and those of the tree in the total order. If the copies
// have several weights, their edges are in no order: this sets `unsorted`, and a launch with `in_turn` puts all edges after each other.
extern "C" __global__ void write_all_edges(
    long long copies, long long edges, bool in_turn, const int* __restrict__ first, const int* __restrict__ number,
    const double* __restrict__ own, const long long* __restrict__ code, const int* __restrict__ src, const int* __restrict__ dst,
    const double* __restrict__ weight, int* __restrict__ all_src, int* __restrict__ all_dst, double* __restrict__ all_weight,
    int* unsorted) {
    long long t = thread_index(), position = t;
    if (t >= copies + edges) return;
    auto weight_of = [&](long long k) { return own[number[(int)code[k]]]; };
    auto code_of = [&](long long e) { return edge_code(first[src[e]], first[dst[e]]); };
    bool is_copy = t < copies;
    long long e = t - copies, its_code = is_copy ? code[t] : code_of(e);
    double w = is_copy ? weight_of(t) : weight[e];
    if (is_copy && t && w != weight_of(t - 1)) *unsorted = 1;
    if (!in_turn) {  // finds how many edges of the other kind come first
        long long low = 0, high = is_copy ? edges : copies;
        while (low < high) {
            long long middle = (low + high) / 2;
            bool comes_first = is_copy ? lighter(weight[middle], code_of(middle), w, its_code)
                                       : lighter(weight_of(middle), code[middle], w, its_code);
            if (comes_first) low = middle + 1;
            else high = middle;
        }
        position = low + (is_copy ? t : e);
    }
    all_src[position] = (int)(its_code >> 32), all_dst[position] = (int)its_code, all_weight[position] = w;
}
