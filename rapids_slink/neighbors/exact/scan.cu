// Each row's least k points in the total order, without candidates.
#include "neighbors/exact/candidates.cuh"

// The lists of all points of another group, a row's points dealt out to `parts` warps with a list each.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) scan(
    const VALUE* __restrict__ queries, const VALUE* __restrict__ values, int d, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ row_group, const int* __restrict__ point_group, int n_points, int parts,
    const double* __restrict__ core, const double* __restrict__ upper, const WarpLayout layout, int* __restrict__ part_ids) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP;
    long long job = (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (job >= (long long)n_rows * parts) return;
    int i = job / parts, part = job % parts;
    Features features;
    TopK top = divide_shared_memory(shared, layout, features);
    top.load(nullptr, nullptr);
    const VALUE* x = queries + (size_t)rows[i] * d;
    for (long long c = (long long)part * WARP; c < n_points; c += (long long)parts * WARP) {
        int id = c + lane < n_points && point_group[c + lane] != row_group[i] ? (int)c + lane : -1;
        if (id >= 0 && core && core[id] > upper[i]) id = -1;
        double weight = exact_distance(x, values, d, id, features);
        if (id >= 0 && core) weight = reachability(weight, core[rows[i]], core[id]);
        top.offer(weight, id, id >= 0 && weight <= upper[i]);
    }
    top.finish();
    top.store(part_ids + job * layout.k, nullptr);
}
