// This kernel keeps each row's least k candidates in the total order. A warp takes a row.
#include "neighbors/exact/candidates.cuh"
#include "neighbors/filter/measured.cuh"

#ifndef MEASURED
#define MEASURED 0
#endif

// Inserts row i's candidates, as far as they are at most upper[i], into its list (top_ids, top_weights). They are ids or,
// if `order` is given, positions in it. Those of the row's exclusion id are passed over, if points have such ids. If points have core
// distances, a candidate weighs its mutual reachability, which is no less than its core distance. Then upper[i] is tightened to
// the weight of a full list's last entry, overflowed[i] is set if there were more candidates than `capacity`, and count[i] is
// zero. Rows with at most `more_than` candidates are left as they are. A warp has `rows_a_warp` rows, at most 32, and reads
// their counts at once: many rows if most are left.
//
// MEASURED: upper bounds by distances in float32 take the place of weights, because they take a fraction of exact distances' time.
//
// Without `candidates` and `count` all n_points are candidates. They are dealt out to `parts` lists of a row, each with `capacity`
// points that follow each other; nothing else is written. Otherwise `parts` is 1.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) rerank(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_lists,
    int parts, int n_points, const int* __restrict__ candidates, int* __restrict__ count, int more_than, int rows_a_warp, int capacity,
    const int* __restrict__ order, const int* __restrict__ row_group, const int* __restrict__ point_group,
    const double* __restrict__ core, double* __restrict__ upper, const WarpLayout layout, const SquareBound square_bound,
    int* __restrict__ top_ids, double* __restrict__ top_weights, bool* __restrict__ overflowed) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    int first = (blockIdx.x * warps + threadIdx.x / WARP) * rows_a_warp, mine = first + lane;
    bool due = lane < rows_a_warp && mine < n_lists && !(count && count[mine] <= more_than);
    for (unsigned pending = __ballot_sync(ALL_LANES, due); pending; pending &= pending - 1) {
        int i = first + __ffs(pending) - 1, row = i / parts, begin = i % parts * capacity;
        int m = count ? min(count[i], capacity) : min(n_points - begin, capacity);
        Features features;
        TopK top = divide_shared_memory(shared, layout, features);
        top.load(top_ids + (size_t)i * layout.k, top_weights + (size_t)i * layout.k);
        const VALUE* x = queries + (size_t)rows[row] * d;
        for (int c = 0; c < m; c += WARP) {
            int id = c + lane >= m ? -1 : candidates ? candidates[(size_t)i * capacity + c + lane] : begin + c + lane;
            if (order && id >= 0) id = order[id];
            if (id >= 0 && point_group && point_group[id] == row_group[row]) id = -1;
            if (id >= 0 && core && core[id] > upper[row]) id = -1;
#if MEASURED
            double weight = square_bound.of(square_at_most(x, values, d, square_bound, id, layout.alignment));
#else
            double weight = exact_distance(x, values, d, id, features);
#endif
            if (id >= 0 && core) weight = reachability(weight, core[rows[row]], core[id]);
            top.offer(weight, id, id >= 0 && weight <= upper[row]);
        }
        top.finish();
        top.store(top_ids + (size_t)i * layout.k, top_weights + (size_t)i * layout.k);
        double last = top.last_weight();
        __syncwarp();  // all lanes have read what changes now
        if (lane == 0 && count) {
            if (count[i] > capacity) overflowed[i] = true;
            if (last < upper[i]) upper[i] = last;
            count[i] = 0;
        }
    }
}
