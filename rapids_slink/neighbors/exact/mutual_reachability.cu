// Neighbour lists by mutual reachability; task.py says what they are.
#include "neighbors/exact/formulas.cuh"
#include "ordering.cuh"
#include "runtime/include/threads.cuh"

// Raises each list's surrogate distances to mutual reachability and sorts it again, in place: one thread a list, by Shell's
// method, in which every gap-th entry is sorted by insertion.
extern "C" __global__ void sort_by_reachability(
    long long n, int k, const double* __restrict__ core, int* __restrict__ ids, double* __restrict__ weights) {
    long long v = thread_index();
    if (v >= n) return;
    int* id = ids + v * k;
    double *weight = weights + v * k, mine = core[v];
    for (int c = 0; c < k; c++) weight[c] = reachability(weight[c], mine, core[id[c]]);
    for (long long gap = k; gap > 1;) {
        gap = gap < 5 ? 1 : (5 * gap - 1) / 11;
        for (long long c = gap; c < k; c++) {
            double w = weight[c];
            int other = id[c];
            long long at = c;
            for (; at >= gap && before(w, other, weight[at - gap], id[at - gap]); at -= gap)
                weight[at] = weight[at - gap], id[at] = id[at - gap];
            weight[at] = w, id[at] = other;
        }
    }
}
