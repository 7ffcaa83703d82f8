// These kernels condense a dendrogram (see cuda.condense) and add up the points of each of its clusters. The order of the sums does
// not depend on the GPU: see cpu.sum_up_clusters.
//
// `key` has the points sorted by cluster and then by number, with the cluster in the upper half. `start` has the position of each
// cluster's first key, and then the number of keys. A cluster's points are cut into parts of SUMMED; `first_part` has the number of
// each cluster's first part, and then the number of all parts.

#include "runtime/include/first_above.cuh"
#include "runtime/include/threads.cuh"

constexpr int SUMMED = 256;

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

// Writes the keys that sort points by cluster.
extern "C" __global__ void pack_clusters(int n, const int* __restrict__ cluster, unsigned long long* __restrict__ key) {
    long long i = thread_index();
    if (i < n) key[i] = (unsigned long long)cluster[i] << 32 | i;
}

// Writes where each cluster's points start among the sorted keys, and then n.
extern "C" __global__ void find_starts(
    int n, int clusters, const unsigned long long* __restrict__ key, long long* __restrict__ start) {
    long long i = thread_index();
    if (i > n) return;
    int here = i < n ? int(key[i] >> 32) : clusters;
    for (int c = i > 0 ? int(key[i - 1] >> 32) + 1 : 0; c <= here; c++) start[c] = i;
}

// Writes for each part the sum of the ranges of λ in which its points are in their cluster, and the largest λ at which one of them
// falls out.
extern "C" __global__ void sum_parts(
    int n, int clusters, const unsigned long long* __restrict__ key, const long long* __restrict__ start,
    const long long* __restrict__ first_part, const double* __restrict__ departure, const double* __restrict__ birth,
    double* sum, double* largest) {
    long long part = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= first_part[clusters]) return;
    int c = first_above(first_part + 1, clusters, part);
    long long begin = start[c] + (part - first_part[c]) * SUMMED, end = min(begin + SUMMED, start[c + 1]);
    double total = 0, maximum = 0, born = birth[c];
    for (long long i = begin; i < end; i++) {
        double rate = departure[(int)key[i]];
        total += rate - born;
        maximum = max(maximum, rate);
    }
    sum[part] = total;
    largest[part] = maximum;
}

// Writes the sums of each cluster's parts, and the cluster's first point.
extern "C" __global__ void sum_clusters(
    int n, int clusters, const unsigned long long* __restrict__ key, const long long* __restrict__ start,
    const long long* __restrict__ first_part, const double* __restrict__ sum, const double* __restrict__ largest,
    double* total_of_cluster, double* largest_of_cluster, int* first) {
    int cluster = blockIdx.x * blockDim.x + threadIdx.x;
    if (cluster >= clusters) return;
    double total = 0, maximum = 0;
    for (long long part = first_part[cluster]; part < first_part[cluster + 1]; part++) {
        total += sum[part];
        maximum = max(maximum, largest[part]);
    }
    total_of_cluster[cluster] = total;
    largest_of_cluster[cluster] = maximum;
    first[cluster] = start[cluster] < start[cluster + 1] ? (int)key[start[cluster]] : n;
}
