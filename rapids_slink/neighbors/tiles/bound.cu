// Bounds of rows by what the distances of some candidates are at most: in float32, which takes a fraction of exact distances' time.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/exact/top_k.cuh"
#include "neighbors/filter/measured.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int ROWS_A_WARP = 4;
constexpr int BOUND_WARPS = 2, BOUND_BLOCKS = 16;         // warps of a block at most, and resident blocks

// Merges what the candidates of row i weigh at most into its list, (top_ids, top_weights), as `rerank` merges what they weigh, and
// tightens upper[i] to the last entry of a full list; count[i] is zero then. `points` are as products have them, and their rows start at
// multiples of `alignment` bytes. A warp has ROWS_A_WARP rows, one after the other.
extern "C" __global__ void __launch_bounds__(BOUND_WARPS * WARP, BOUND_BLOCKS) bound_rows(
    const VALUE* __restrict__ points, int d, const SquareBound known, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ candidates, int* __restrict__ count, int capacity, const int* __restrict__ order,
    const int* __restrict__ row_group, const int* __restrict__ point_group, const double* __restrict__ core,
    double* __restrict__ upper, int k, int size, int alignment, int* __restrict__ top_ids, double* __restrict__ top_weights) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = (blockIdx.x * (blockDim.x / WARP) + warp) * ROWS_A_WARP;
    int entries = size + waiting_room(size);
    char* list = shared + (size_t)warp * entries * 12;
    for (int i = first; i < min(first + ROWS_A_WARP, n_rows); i++) {
        int m = min(count[i], capacity);
        if (!m) continue;
        TopK top{(double*)list, (int*)(list + (size_t)entries * 8), k, size, 0};
        top.load(top_ids + (size_t)i * k, top_weights + (size_t)i * k);
        const VALUE* x = points + (size_t)rows[i] * d;
        double within = upper[i];
        for (int c = 0; c < m; c += WARP) {
            int id = c + lane < m ? candidates[(size_t)i * capacity + c + lane] : -1;
            if (order && id >= 0) id = order[id];
            if (id >= 0 && point_group && point_group[id] == row_group[i]) id = -1;
            if (id >= 0 && core && core[id] > within) id = -1;
            double weight = known.of(square_at_most(x, points, d, known, id, alignment));
            if (id >= 0 && core) weight = reachability(weight, core[rows[i]], core[id]);
            top.offer(weight, id, id >= 0 && weight <= within);
        }
        top.finish();
        top.store(top_ids + (size_t)i * k, top_weights + (size_t)i * k);
        double last = top.last_weight();
        __syncwarp();  // all lanes have read what changes now
        if (lane == 0) upper[i] = fmin(within, last), count[i] = 0;
    }
}
