// These kernels condense a dendrogram (see cuda.condense) and label its points.

#include "runtime/include/threads.cuh"

__device__ __forceinline__ int points_of(int node, int n, const int* __restrict__ size) { return node < n ? 1 : size[node - n]; }

// Sets the pointers of a dendrogram of n leaves. In `large` a node of too few points points at the merge that takes it, and in
// `side` a node does so unless it is a side of a split. Other nodes, and the last merge, point at themselves. Writes the rate
// of each merge, and the splits in no order.
extern "C" __global__ void begin_parts(
    int n, const int* __restrict__ left_child, const int* __restrict__ right_child, const double* __restrict__ height,
    const int* __restrict__ size, int min_size, double* __restrict__ rate, int* __restrict__ large, int* __restrict__ side,
    int* __restrict__ split, int* count) {
    long long i = thread_index();
    if (i >= n - 1) return;
    int node = n + (int)i, left = left_child[i], right = right_child[i];
    bool left_is_large = points_of(left, n, size) >= min_size, right_is_large = points_of(right, n, size) >= min_size;
    rate[i] = height[i] > 0 ? 1 / height[i] : 1.0 / 0.0;
    bool splits = left_is_large && right_is_large && rate[i] < 1.0 / 0.0;
    large[left] = left_is_large ? left : node, large[right] = right_is_large ? right : node;
    side[left] = splits ? left : node, side[right] = splits ? right : node;
    if (i == n - 2) large[node] = side[node] = node;
    if (splits) split[atomicAdd(count, 1)] = i;
}

// Makes the pointers of two arrays of `nodes` each lead at least twice as far.
extern "C" __global__ void follow(long long nodes, int* pointer) {
    long long i = thread_index();
    if (i < 2 * nodes) pointer[i] = pointer[(i < nodes ? 0 : nodes) + pointer[i]];
}

// Numbers the sides of the splits from the top down, because they are the clusters, and writes their births and sizes.
extern "C" __global__ void number_sides(
    int splits, const int* __restrict__ split, int n, const int* __restrict__ left_child, const int* __restrict__ right_child,
    const int* __restrict__ size, const double* __restrict__ rate, int* __restrict__ number, double* __restrict__ birth,
    int* __restrict__ points) {
    long long s = thread_index();
    if (s >= splits) return;
    int i = split[s], left = left_child[i], right = right_child[i];
    number[left] = 2 * s + 1, number[right] = 2 * s + 2;
    birth[2 * s] = birth[2 * s + 1] = rate[i];
    points[2 * s] = points_of(left, n, size), points[2 * s + 1] = points_of(right, n, size);
}

// Writes which cluster each of n leaves falls out of, and at which λ, and which cluster each split divides.
extern "C" __global__ void place_leaves(
    int splits, const int* __restrict__ split, int n, const int* __restrict__ large, const int* __restrict__ side,
    const double* __restrict__ rate, const int* __restrict__ number, int* __restrict__ cluster, double* __restrict__ departure,
    int* __restrict__ parent) {
    long long i = thread_index();
    if (i < n) cluster[i] = number[side[i]], departure[i] = rate[large[i] - n];
    if (i < splits) parent[2 * i] = parent[2 * i + 1] = number[side[n + split[i]]];
}

// Writes the label of each point, which is its cluster's, and how deep the point is in the cluster: see cpu.label_points.
extern "C" __global__ void label_points(
    int n, const int* __restrict__ cluster, const double* __restrict__ departure, const int* __restrict__ label,
    const double* __restrict__ largest, double stay, int* __restrict__ labels, double* __restrict__ depth) {
    long long i = thread_index();
    if (i >= n) return;
    double rate = departure[i], maximum = largest[cluster[i]];
    labels[i] = rate >= stay ? label[cluster[i]] : -1;
    depth[i] = labels[i] < 0 ? 0 : rate < maximum ? rate / maximum : 1;
}

// Writes the outlier score of each point, from its cluster's largest λ.
extern "C" __global__ void score_points(
    int n, const int* __restrict__ cluster, const double* __restrict__ departure, const double* __restrict__ largest,
    double* __restrict__ score) {
    long long i = thread_index();
    if (i >= n) return;
    double rate = departure[i], maximum = largest[cluster[i]];
    score[i] = rate >= maximum ? 0 : 1 - rate / maximum;
}
