// A condensed dendrogram, see cuda.condense, and sums over the points of each of its clusters, in one order whatever the GPU:
// see cpu.sum_up_clusters.
//
// key: the points by cluster, and then by number, each below its cluster. start: the first place in it of each cluster, and its size.
// A cluster's points are cut into parts of SUMMED; first_part is the number of each cluster's first part, and the number of all.

#include "runtime/include/threads.cuh"

constexpr int SUMMED = 256;

__device__ __forceinline__ int points_of(int node, int n, const int* __restrict__ size) { return node < n ? 1 : size[node - n]; }

// Of n leaves. Each node that has too few points points at the merge that joins it, in `large`; in `side` each does that is no
// side of a split. Others, and the last merge, point at themselves. The rate of each merge, and the splits in no order.
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

// Lets the pointers of two arrays of `nodes` each reach at least twice as far.
extern "C" __global__ void follow(long long nodes, int* pointer) {
    long long i = thread_index();
    if (i < 2 * nodes) pointer[i] = pointer[(i < nodes ? 0 : nodes) + pointer[i]];
}

// The sides of the splits from the top down are clusters: their numbers, by node, births and sizes.
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

// The cluster that each of n leaves falls out of, and when, and the cluster that each split divides.
extern "C" __global__ void place_leaves(
    int splits, const int* __restrict__ split, int n, const int* __restrict__ large, const int* __restrict__ side,
    const double* __restrict__ rate, const int* __restrict__ number, int* __restrict__ cluster, double* __restrict__ departure,
    int* __restrict__ parent) {
    long long i = thread_index();
    if (i < n) cluster[i] = number[side[i]], departure[i] = rate[large[i] - n];
    if (i < splits) parent[2 * i] = parent[2 * i + 1] = number[side[n + split[i]]];
}

// The label of each point by its cluster's, and how deep it is in that: see cpu.label_points.
extern "C" __global__ void label_points(
    int n, const int* __restrict__ cluster, const double* __restrict__ departure, const int* __restrict__ label,
    const double* __restrict__ largest, double stay, int* __restrict__ labels, double* __restrict__ depth) {
    long long i = thread_index();
    if (i >= n) return;
    double rate = departure[i], most = largest[cluster[i]];
    labels[i] = rate >= stay ? label[cluster[i]] : -1;
    depth[i] = labels[i] < 0 ? 0 : rate < most ? rate / most : 1;
}

// The outlier score of each point by its cluster's largest λ.
extern "C" __global__ void score_points(
    int n, const int* __restrict__ cluster, const double* __restrict__ departure, const double* __restrict__ largest,
    double* __restrict__ score) {
    long long i = thread_index();
    if (i >= n) return;
    double rate = departure[i], most = largest[cluster[i]];
    score[i] = rate >= most ? 0 : 1 - rate / most;
}

// The rows of a condensed tree: of the clusters within that of all points, and of n points.
extern "C" __global__ void put_columns(
    int clusters, const int* __restrict__ parent, const double* __restrict__ birth, const int* __restrict__ size, int n,
    const int* __restrict__ cluster, const double* __restrict__ departure, long long* __restrict__ of, long long* __restrict__ child,
    double* __restrict__ rate, long long* __restrict__ child_size) {
    long long i = thread_index(), point = i - clusters;
    if (point >= n) return;
    bool is_point = point >= 0;
    of[i] = (long long)n + (is_point ? cluster[point] : parent[i]);
    child[i] = is_point ? point : n + 1 + i;
    rate[i] = is_point ? departure[point] : birth[i];
    child_size[i] = is_point ? 1 : size[i];
}

// What sorts points by cluster: this above the point.
extern "C" __global__ void pack_clusters(int n, const int* __restrict__ cluster, unsigned long long* __restrict__ key) {
    long long i = thread_index();
    if (i < n) key[i] = (unsigned long long)cluster[i] << 32 | i;
}

// Where each cluster's points start in the order of these keys, and n.
extern "C" __global__ void find_starts(
    int n, int clusters, const unsigned long long* __restrict__ key, long long* __restrict__ start) {
    long long i = thread_index();
    if (i > n) return;
    int here = i < n ? int(key[i] >> 32) : clusters;
    for (int c = i > 0 ? int(key[i - 1] >> 32) + 1 : 0; c <= here; c++) start[c] = i;
}

// The sum of the times that the points of a part are in their cluster, and the largest λ at which one of them falls out.
extern "C" __global__ void sum_parts(
    int n, int clusters, const unsigned long long* __restrict__ key, const long long* __restrict__ start,
    const long long* __restrict__ first_part, const double* __restrict__ departure, const double* __restrict__ birth,
    double* sum, double* largest) {
    long long part = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= first_part[clusters]) return;
    int low = 0, high = clusters;  // the last cluster whose first part is not after this one
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        (first_part[middle] <= part ? low : high) = middle;
    }
    long long begin = start[low] + (part - first_part[low]) * SUMMED, end = min(begin + SUMMED, start[low + 1]);
    double total = 0, most = 0, born = birth[low];
    for (long long i = begin; i < end; i++) {
        double rate = departure[(int)key[i]];
        total += rate - born;
        most = max(most, rate);
    }
    sum[part] = total;
    largest[part] = most;
}

// The sums of each cluster's parts, and its first point.
extern "C" __global__ void sum_clusters(
    int n, int clusters, const unsigned long long* __restrict__ key, const long long* __restrict__ start,
    const long long* __restrict__ first_part, const double* __restrict__ sum, const double* __restrict__ largest,
    double* total_of_cluster, double* largest_of_cluster, int* first) {
    int cluster = blockIdx.x * blockDim.x + threadIdx.x;
    if (cluster >= clusters) return;
    double total = 0, most = 0;
    for (long long part = first_part[cluster]; part < first_part[cluster + 1]; part++) {
        total += sum[part];
        most = max(most, largest[part]);
    }
    total_of_cluster[cluster] = total;
    largest_of_cluster[cluster] = most;
    first[cluster] = start[cluster] < start[cluster + 1] ? (int)key[start[cluster]] : n;
}
