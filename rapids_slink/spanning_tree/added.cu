// The old tree's leaves in tiles, and bottlenecks between new points and tiles: see added.py.
#include "neighbors/filter/fused/image.cuh"
#include "runtime/include/threads.cuh"
#include "spanning_tree/component_pairs/first_above.cuh"

constexpr int PART = 64;  // tiles of a thread

typedef unsigned long long u64;

// A merge's children, the larger first, and the size of that.
struct Children {
    int first, second, size;
    __device__ Children(int n, int left, int right, const int* merge_size) {
        int of_left = left < n ? 1 : merge_size[left - n], of_right = right < n ? 1 : merge_size[right - n];
        bool swaps = of_left < of_right;
        first = swaps ? right : left, second = swaps ? left : right, size = max(of_left, of_right);
    }
};

// Links every merge of n leaves to the one above it: its number in the upper half of the word, in the lower the number of leaves
// that come before those of this merge in that one. The last merge is linked to itself.
extern "C" __global__ void link_merges(
    int n, const int* __restrict__ left, const int* __restrict__ right, const int* __restrict__ size, u64* __restrict__ link) {
    long long i = thread_index();
    if (i >= n - 1) return;
    Children children(n, left[i], right[i], size);
    if (children.first >= n) link[children.first - n] = i << 32;
    if (children.second >= n) link[children.second - n] = i << 32 | children.size;
    if (i == n - 2) link[i] = i << 32;
}

// The leaves in order, the position of each, and the height of the merge that joins a leaf with the one before it. A thread
// follows its merge's links up to the last merge and shortens its own on the way. A word is read and written as a whole, and at
// any time it is a merge above and the number of leaves before in that one: a thread may read it before or after.
extern "C" __global__ void order_leaves(
    int n, const int* __restrict__ left, const int* __restrict__ right, const int* __restrict__ size,
    const double* __restrict__ height, volatile u64* link, int* __restrict__ position, int* __restrict__ order,
    double* __restrict__ gap) {
    long long i = n - 2 - thread_index();  // the upper ones first, which the others find done
    if (i < 0) return;
    u64 own = link[i];
    while (own >> 32 != n - 2) {
        u64 above = link[own >> 32];
        own = above + (unsigned)own;  // the lower half stays below n
        link[i] = own;
    }
    Children children(n, left[i], right[i], size);
    int start = (unsigned)own, middle = start + children.size;
    if (children.first < n) position[children.first] = start, order[start] = children.first;
    if (children.second < n) position[children.second] = middle, order[middle] = children.second;
    gap[middle] = height[i];
    if (i == n - 2) gap[0] = 0;
}

// The leaves of `parts` parts of the order in whole tiles: part s has the leaves from first[s] on, and begins at place start[s].
// Places after a part's last leaf hold that leaf again, without a gap.
extern "C" __global__ void fill_tiles(
    int places, int parts, const long long* __restrict__ first, const long long* __restrict__ start,
    const int* __restrict__ order, const double* __restrict__ gap, int* __restrict__ points, double* __restrict__ gaps) {
    long long at = thread_index();
    if (at >= places) return;
    int s = first_above(start + 1, parts, at);
    long long within = at - start[s], last = first[s + 1] - first[s] - 1, leaf = first[s] + min(within, last);
    points[at] = order[leaf], gaps[at] = within <= last ? gap[leaf] : 0;
}

// The radius of row r at tile t goes to out[t * n + r]: the largest of the row's reach and of the gaps between its own tile and
// that one, of which `lead` comes before a tile and `inner` is the largest in it. `rightward` and `leftward` are the largest of
// the gaps that come in with each PART of the tiles, from the left and from the right. Rows are counted from `first` on. A thread
// has a row and one part.
extern "C" __global__ void bottlenecks_by_tile(
    int n, int first, int tiles, const int* __restrict__ own_tile, const float* __restrict__ reach,
    const float* __restrict__ inner, const float* __restrict__ lead, const float* __restrict__ rightward,
    const float* __restrict__ leftward, float* __restrict__ out) {
    int r = blockIdx.x * blockDim.x + threadIdx.x, part = blockIdx.y, begin = part * PART, end = min(begin + PART, tiles);
    if (r >= n) return;
    int own = own_tile[first + r], own_part = own / PART;
    float nearest = fmaxf(reach[first + r], inner[own]), largest = nearest;
    if (end > own) {  // to the right
        int t = own + 1;
        if (part > own_part) {
            for (; t < (own_part + 1) * PART; t++) largest = fmaxf(largest, fmaxf(lead[t], inner[t]));
            for (int p = own_part + 1; p < part; p++) largest = fmaxf(largest, rightward[p]);
            t = begin;
        } else out[(long long)own * n + r] = nearest;
        for (; t < end; t++) {
            largest = fmaxf(largest, fmaxf(lead[t], inner[t]));
            out[(long long)t * n + r] = largest;
        }
    }
    if (begin >= own) return;
    largest = nearest;
    int t = own - 1;
    if (part < own_part) {
        for (; t >= own_part * PART; t--) largest = fmaxf(largest, fmaxf(lead[t + 1], inner[t]));
        for (int p = own_part - 1; p > part; p--) largest = fmaxf(largest, leftward[p]);
        t = end - 1;
    }
    for (; t >= begin; t--) {
        largest = fmaxf(largest, fmaxf(lead[t + 1], inner[t]));
        out[(long long)t * n + r] = largest;
    }
}

// The same for the tiles of the new rows, with what a tile's rows reach at most: the gaps up to the tiles of its first and of its
// last row, since `own_tile` ascends.
extern "C" __global__ void bottlenecks_by_new_tile(
    int n, const int* __restrict__ own_tile, const float* __restrict__ most_reach, const float* __restrict__ of_old,
    float* __restrict__ out) {
    int r = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
    if (r >= n) return;
    int to_first = own_tile[t * TILE], to_last = own_tile[t * TILE + TILE - 1];
    float largest = fmaxf(of_old[(long long)to_first * n + r], of_old[(long long)to_last * n + r]);
    out[(long long)t * n + r] = fmaxf(most_reach[t], largest);
}
