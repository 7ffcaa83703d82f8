// A tree of cuts over a sample of places, and the way of all places down it; order.py says how a node is cut.
#include "neighbors/exact/formulas.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

typedef unsigned long long u64;
typedef unsigned u32;

constexpr int THREADS = 1024;                    // of a block, which cuts a node
constexpr int BALL = -2, LEAF = -1;              // in place of an axis
constexpr float GAP = 0.2f;                      // of the extent
constexpr int JUMP = 9;                          // of a squared radius
constexpr int INNERMOST = 16, MIN_JUMP = 64;     // points within a jump, points of a node that is looked at for one
constexpr int MEDIAN_ROWS = 31;
constexpr int SORTED = 4096;                     // rows of a node by which it is cut

// An axis, `BALL` or `LEAF`; its children; where its points begin.
struct __align__(16) Node { int axis, first, second, begin; };

// Which nodes are to be cut: from `level` on up to `used`; `used` nodes there are.
struct Level { int begin, end, used; };

// A float's bits in an order of unsigned numbers, and back.
__device__ __forceinline__ u32 ordered(float x) {
    u32 bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ __forceinline__ float unordered(u32 bits) { return __uint_as_float(bits >> 31 ? bits ^ 1u << 31 : ~bits); }
__device__ __forceinline__ float value_of(u64 key) { return unordered(key >> 32); }

__device__ __forceinline__ float square_from(const float* x, const float* middle, int m) {
    float total = 0;
    for (int f = 0; f < m; f++) {
        float difference = __fsub_rn(x[f], middle[f]);
        total = __fadd_rn(total, __fmul_rn(difference, difference));
    }
    return total;
}

// Sorts n keys of a block in memory: a bitonic network, in which a missing partner is the largest.
__device__ void sort_in_block(u64* key, int n) {
    for (int size = 2; size < 2 * n; size *= 2)
        for (int stride = size / 2, flip = 1; stride; stride /= 2, flip = 0) {
            __syncthreads();
            for (int t = threadIdx.x; t < n; t += blockDim.x) {
                int other = flip ? t ^ (size - 1) : t ^ stride;
                if (other <= t || other >= n) continue;
                u64 a = key[t], b = key[other];
                if (b < a) key[t] = b, key[other] = a;
            }
        }
    __syncthreads();
}

// The axis of the largest variance of n rows.
__device__ int widest_axis(const float* sample, const int* rows, int n, int m) {
    __shared__ float sums[THREADS / WARP][WARP], squares[THREADS / WARP][WARP];
    __shared__ int axis;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float sum = 0, square = 0, first = lane < m ? sample[(size_t)rows[0] * m + lane] : 0;
    for (int i = warp; i < n; i += THREADS / WARP) {
        float x = lane < m ? sample[(size_t)rows[i] * m + lane] - first : 0;
        sum += x, square += x * x;
    }
    sums[warp][lane] = sum, squares[warp][lane] = square;
    __syncthreads();
    if (threadIdx.x < WARP) {
        sum = square = 0;
        for (int w = 0; w < THREADS / WARP; w++) sum += sums[w][lane], square += squares[w][lane];
        u64 best = lane < m ? (u64)ordered(square - sum * sum / n) << 32 | (u32)~lane : 0;
        best = warp_max(best);
        if (lane == 0) axis = ~(u32)best;
    }
    __syncthreads();
    return axis;
}

// The median of some rows, in the order of keys, axis by axis.
__device__ void find_middle(const float* sample, const u64* key, int n, int m, float* middle) {
    int step = max(1, n / MEDIAN_ROWS), count = min(MEDIAN_ROWS, n);
    for (int t = threadIdx.x; t < m * count; t += blockDim.x) {
        int f = t / count, c = t % count, before = 0;
        float own = sample[(size_t)(u32)key[c * step] * m + f];
        for (int o = 0; o < count; o++) {
            float other = sample[(size_t)(u32)key[o * step] * m + f];
            before += other < own || (other == own && o < c);
        }
        if (before == count / 2) middle[f] = own;
    }
    __syncthreads();
}

// What of n sorted keys stands out most, by `measure` of each position from `first` on: its position, or 0 if none is above zero.
template <class Measure> __device__ int most_of(int first, int n, Measure measure) {
    __shared__ u64 most;
    __syncthreads();
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    u64 own = 0;
    for (int i = first + threadIdx.x; i < n; i += blockDim.x) {
        float value = measure(i);
        u64 packed = (u64)__float_as_uint(value) << 32 | (u32)~i;
        if (value > 0 && packed > own) own = packed;
    }
    if (own) atomicMax(&most, own);
    __syncthreads();
    return most ? ~(u32)most : 0;
}

// The first position from `low` on whose sorted key is above this one; `high` if there is none before.
__device__ int first_above(const u64* key, int low, int high, u64 value) {
    while (low < high) {
        int middle = (low + high) / 2;
        if (key[middle] <= value) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Cuts the nodes of a level, a block one after the other, by up to SORTED of their rows. `order` has the rows of each node together, and
// `moved` room for as many. `middles` has m numbers a node; a break is marked where points begin that are apart from those before.
extern "C" __global__ void __launch_bounds__(THREADS) cut_nodes(
    const float* __restrict__ sample, int m, int* order, int* moved, Node* nodes, int* ends, float* values, float* middles,
    int* __restrict__ breaks, Level* level, int leaf, int min_run) {
    __shared__ u64 key[SORTED];
    __shared__ int children;
    for (int v = level->begin + blockIdx.x; v < level->end; v += gridDim.x) {
        int begin = nodes[v].begin, all = ends[v] - begin, n = min(all, SORTED);
        if (all <= leaf) continue;
        int* rows = order + begin;
        int axis = widest_axis(sample, rows, all, m);
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            int row = rows[(long long)i * all / n];
            key[i] = (u64)ordered(sample[(size_t)row * m + axis]) << 32 | (u32)row;
        }
        sort_in_block(key, n);
        float lowest = value_of(key[0]), extent = value_of(key[n - 1]) - lowest, value;
        if (!(extent > 0)) continue;
        int at = most_of(1, n, [&](int i) {
            float gap = value_of(key[i]) - value_of(key[i - 1]);
            return gap > GAP * extent ? gap : 0.0f;
        });
        bool apart = at;
        if (at) value = value_of(key[at - 1]) + (value_of(key[at]) - value_of(key[at - 1])) / 2;
        else {  // the end nearest to the middle of a run of equal values
            u64 equal = key[n / 2] & ~0ull << 32;
            int low = first_above(key, 0, n / 2, equal - 1), high = first_above(key, n / 2, n, equal | 0xffffffffull);
            value = value_of(key[low > 0 && (high == n || n / 2 - low <= high - n / 2) ? low : high]);
        }
        float* middle = middles + (size_t)v * m;
        if (!at && n >= MIN_JUMP) {
            find_middle(sample, key, n, m, middle);
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                u32 row = key[i];
                key[i] = (u64)__float_as_uint(square_from(sample + (size_t)row * m, middle, m)) << 32 | row;
            }
            sort_in_block(key, n);
            at = most_of(INNERMOST, n, [&](int i) {
                float inner = __uint_as_float(key[i - 1] >> 32), outer = __uint_as_float(key[i] >> 32);
                return outer > JUMP * inner ? inner > 0 ? outer / inner : 3e38f : 0.0f;
            });
            if (at) {
                apart = true, axis = BALL;
                value = sqrtf(__uint_as_float(key[at - 1] >> 32)) * sqrtf(__uint_as_float(key[at] >> 32));
            }
        }
        auto is_below = [&](int i) {
            const float* x = sample + (size_t)rows[i] * m;
            return (axis == BALL ? square_from(x, middle, m) : x[axis]) < value;
        };
        u32 below = 0, total = 0;
        for (int i = threadIdx.x; i < all; i += blockDim.x) below += is_below(i);
        scan_in_block(below, total);
        u32 first = 0, second = total;  // where the next rows go that are below, and those that are not
        for (int from = 0; from < all; from += blockDim.x) {
            int i = from + threadIdx.x, some = min((int)blockDim.x, all - from);
            bool is = i < all && is_below(i);
            u32 count, upto = scan_in_block(is, count);
            if (i < all) moved[begin + (is ? first + upto - 1 : second + threadIdx.x - upto)] = rows[i];
            first += count, second += some - count;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < all; i += blockDim.x) rows[i] = moved[begin + i];
        if (threadIdx.x == 0) {
            int cut = begin + total;
            children = atomicAdd(&level->used, 2);
            nodes[v].axis = axis, nodes[v].first = children, nodes[v].second = children + 1, values[v] = value;
            nodes[children] = Node{LEAF, 0, 0, begin}, ends[children] = cut;
            nodes[children + 1] = Node{LEAF, 0, 0, cut}, ends[children + 1] = begin + all;
            if (apart && min((int)total, all - (int)total) >= min_run) breaks[cut] = 1;
        }
        __syncthreads();
    }
}

// The next level's nodes are those that this one has made.
extern "C" __global__ void next_level(Level* level) { level->begin = level->end, level->end = level->used; }

// Where the leaf of each place begins.
extern "C" __global__ void find_leaves(
    const Node* __restrict__ nodes, const float* __restrict__ values, const float* __restrict__ middles,
    const float* __restrict__ places, int m, long long n, int* __restrict__ leaf) {
    long long i = thread_index();
    if (i >= n) return;
    const float* x = places + (size_t)i * m;
    int v = 0;
    Node node = nodes[0];
    while (node.axis != LEAF) {
        float key = node.axis == BALL ? square_from(x, middles + (size_t)v * m, m) : x[node.axis];
        v = key < values[v] ? node.first : node.second;
        node = nodes[v];
    }
    leaf[i] = node.begin;
}
