// Sums over the points of each cluster of a condensed dendrogram, in one order whatever the GPU: see cpu.sum_up_clusters.
//
// order: the points by cluster, and then by number. start: the first place in it of each cluster, and its size. A cluster's
// points are cut into parts of SUMMED; first_part is the number of each cluster's first part, and the number of all.

constexpr int SUMMED = 256;

// The sum of the times that the points of a part are in their cluster, and the largest λ at which one of them falls out.
extern "C" __global__ void sum_parts(
    int n, int clusters, const long long* __restrict__ order, const long long* __restrict__ start,
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
        double rate = departure[order[i]];
        total += rate - born;
        most = max(most, rate);
    }
    sum[part] = total;
    largest[part] = most;
}

// The sums of each cluster's parts, and its first point.
extern "C" __global__ void sum_clusters(
    int n, int clusters, const long long* __restrict__ order, const long long* __restrict__ start,
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
    first[cluster] = start[cluster] < start[cluster + 1] ? (int)order[start[cluster]] : n;
}
