// These kernels make a tree of cuts over a sample of places, lead all places down it, and put rows into slots. order.py says how a node
// is cut.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/tiles/sizes.cuh"
#include "runtime/include/atomics.cuh"
#include "runtime/include/threads.cuh"

typedef unsigned long long u64;
typedef unsigned u32;

constexpr int THREADS = 1024;                    // threads of a block, which cuts a node
constexpr int BALL = -2, LEAF = -1;              // these take the place of an axis
constexpr float GAP = 0.2f;                      // a cut is at a gap above this share of the extent
constexpr int JUMP = 9, TAIL = 256;              // least factors: a squared radius's to the next, and the largest's to the median
constexpr int INNERMOST = 16, MIN_JUMP = 64;     // points within a jump, points of a node that is looked at for one
constexpr int MEDIAN_ROWS = 31;
constexpr int SORTED = 4096;                     // rows of a node by which it is cut
constexpr int GROUP_BITS = 31;                   // bits of an exclusion id in a row's key

// A node has an axis, `BALL` or `LEAF`; its children; and where its points begin.
struct __align__(16) Node { int axis, first, second, begin; };

// These turn a float into an unsigned number, so that numbers have the order of their floats, and back.
__device__ __forceinline__ u32 ordered(float x) {
    u32 bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ __forceinline__ float unordered(u32 bits) { return __uint_as_float(bits >> 31 ? bits ^ 1u << 31 : ~bits); }
__device__ __forceinline__ float value_of(u64 key) { return unordered(key >> 32); }

// Returns a value between two, or the higher if it was rounded to the lower, so that the lower is below it.
__device__ __forceinline__ float between(float low, float high, float value) { return value > low ? value : high; }

template <class V> __device__ __forceinline__ float square_from(const V* x, const float* middle, int m) {
    float total = 0;
    for (int f = 0; f < m; f++) {
        float difference = __fsub_rn((float)x[f], middle[f]);
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

// Returns the axis of the largest variance of n rows.
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

// Writes the median of some rows, in the order of keys, axis by axis.
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

// Returns the position that stands out most among n sorted keys, by `measure` of each from `first` on; 0 if no measure is above zero.
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

// Returns the first position from `low` on whose sorted key is above this one; `high` if there is none before.
__device__ int first_above(const u64* key, int low, int high, u64 value) {
    while (low < high) {
        int middle = (low + high) / 2;
        if (key[middle] <= value) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Makes a tree of one node: a sample of the places, row i times `stride` modulo n, in float32, and its order.
extern "C" __global__ void begin_tree(
    const double* __restrict__ places, long long n, int m, int size, long long stride, float* __restrict__ sample,
    int* __restrict__ order, Node* __restrict__ nodes, int* __restrict__ ends) {
    long long i = thread_index(), row = i / m, f = i % m;
    if (row >= size) return;
    sample[i] = places[row * stride % n * m + f];
    if (f == 0) order[row] = row;
    if (i == 0) nodes[0] = Node{LEAF, 0, 0, 0}, ends[0] = size;
}

// Cuts the nodes of a level, a block one after the other, by up to SORTED of their rows. `order` has the rows of each node together, and
// `moved` room for as many. `middles` has m numbers a node; a break is marked where points begin that are apart from those before.
// `made` counts the nodes that each level makes, zero at first: they come after those of the levels before.
extern "C" __global__ void __launch_bounds__(THREADS) cut_nodes(
    const float* __restrict__ sample, int m, int* order, int* moved, Node* nodes, int* ends, float* values, float* middles,
    int* __restrict__ breaks, int* made, int level, int leaf, int min_side) {
    __shared__ u64 key[SORTED];
    __shared__ int children;
    int used = 1;
    for (int l = 0; l < level; l++) used += made[l];
    for (int v = used - (level ? made[level - 1] : 1) + blockIdx.x; v < used; v += gridDim.x) {
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
        bool apart = at, is_tail = false;
        if (at) {
            float low = value_of(key[at - 1]), high = value_of(key[at]);
            value = between(low, high, low + (high - low) / 2);
        } else {  // the end nearest to the middle of a run of equal values
            u64 equal = key[n / 2] & ~0ull << 32;
            int low = first_above(key, 0, n / 2, equal - 1), high = first_above(key, n / 2, n, equal | 0xffffffffull);
            value = value_of(key[low > 0 && (high == n || n / 2 - low <= high - n / 2) ? low : high]);
        }
        float* middle = middles + (size_t)v * m;
        if ((long long)min(at, n - at) * all < (long long)min_side * n && n >= MIN_JUMP) {
            find_middle(sample, key, n, m, middle);
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                u32 row = key[i];
                key[i] = (u64)__float_as_uint(square_from(sample + (size_t)row * m, middle, m)) << 32 | row;
            }
            sort_in_block(key, n);
            auto square = [&](int i) { return __uint_as_float(key[i] >> 32); };
            is_tail = all >= 4 * min_side && 0 < square(n / 2) && TAIL * square(n / 2) < square(n - 1);
            int jump = is_tail || at ? 0 : most_of(INNERMOST, n, [&](int i) {
                return square(i) > JUMP * square(i - 1) ? square(i - 1) > 0 ? square(i) / square(i - 1) : 3e38f : 0.0f;
            });
            if (is_tail || jump) {
                apart = true, axis = BALL;
                float inner = square(jump ? jump - 1 : n / 2), outer = square(jump ? jump : n - 1);
                value = between(inner, outer, sqrtf(inner) * sqrtf(outer));
            }
        }
        auto is_below = [&](int i) {
            const float* x = sample + (size_t)rows[i] * m;
            return (axis == BALL ? square_from(x, middle, m) : x[axis]) < value;
        };
        u32 below = 0, total = 0;
        for (int i = threadIdx.x; i < all; i += blockDim.x) below += is_below(i);
        scan_in_block(below, total);
        u32 first = 0, second = total;  // where the next rows go: those below, and those that are not
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
            children = used + atomicAdd(made + level, 2);
            nodes[v].axis = axis, nodes[v].first = children, nodes[v].second = children + 1, values[v] = value;
            nodes[children] = Node{LEAF, 0, 0, begin}, ends[children] = cut;
            nodes[children + 1] = Node{LEAF, 0, 0, cut}, ends[children + 1] = begin + all;
            if (is_tail || (apart && min((int)total, all - (int)total) >= min_side)) breaks[cut] = 1;
            if (is_tail) breaks[begin + all] = 1;
        }
        __syncthreads();
    }
}

// Writes where the leaf of each place begins.
extern "C" __global__ void find_leaves(
    const Node* __restrict__ nodes, const float* __restrict__ values, const float* __restrict__ middles,
    const double* __restrict__ places, int m, long long n, int* __restrict__ leaf) {
    long long i = thread_index();
    if (i >= n) return;
    const double* x = places + (size_t)i * m;
    int v = 0;
    Node node = nodes[0];
    while (node.axis != LEAF) {
        float key = node.axis == BALL ? square_from(x, middles + (size_t)v * m, m) : (float)x[node.axis];
        v = key < values[v] ? node.first : node.second;
        node = nodes[v];
    }
    leaf[i] = node.begin;
}

// Writes the keys by which the rows of a task, all or those of an index, are in slots: cell, exclusion id, and slot of the cell,
// which has up to 2^shift. A null pointer is for rows without exclusion ids.
extern "C" __global__ void put_keys(
    long long m, const int* __restrict__ rows, const int* __restrict__ index, const int* __restrict__ slot_of,
    const int* __restrict__ cell_of_tile, const int* __restrict__ first_tile, const int* __restrict__ group, int shift,
    long long* __restrict__ keys) {
    long long i = thread_index();
    if (i >= m) return;
    int row = rows[index ? index[i] : i], slot = slot_of[row], cell = cell_of_tile[slot / TILE];
    long long in_group = (long long)cell << GROUP_BITS | (group ? group[row] : 0);
    keys[i] = in_group << shift | (slot - first_tile[cell] * TILE);
}

// Writes the rows in `order`, which is that of their keys, and where rows begin a block, counted and listed as by `order_rows`, with their
// cells from bit 32 on: at another cell, and at another exclusion id if that or the one before has at least `many` rows of the cell.
extern "C" __global__ void start_runs(
    long long m, const long long* __restrict__ keys, const long long* __restrict__ order, const int* __restrict__ index, int shift,
    int many, int* __restrict__ sorted, u64* begins) {
    long long i = thread_index();
    auto group_at = [&](long long at) { return keys[order[at]] >> shift; };
    bool apart = i == 0;
    long long own = 0;
    if (i < m) {
        sorted[i] = index ? index[order[i]] : order[i];
        own = group_at(i);
        if (i) {
            long long before = group_at(i - 1);
            apart = own >> GROUP_BITS != before >> GROUP_BITS;
            if (!apart && own != before)
                apart = (i + many <= m && group_at(i + many - 1) == own) || (i >= many && group_at(i - many) == before);
        }
    }
    u64 slot = claim_in_warp(apart, begins);
    if (apart) begins[1 + slot] = (u64)(own >> GROUP_BITS) << 32 | i;
}

// Puts rows into slots: block b has `counts[b]` of them from `begins[b]` on, and -1 in its other slots. Writes their tiles' cells and,
// unless the pointer is null, their slots. A block of threads has a block of rows.
extern "C" __global__ void __launch_bounds__(BLOCK) fill_slots(
    const int* __restrict__ rows, const int* __restrict__ begins, const int* __restrict__ counts, const int* __restrict__ cells,
    int* __restrict__ slots, int* __restrict__ cell_of_tile, int* __restrict__ slot_of) {
    long long s = thread_index();
    int row = (int)threadIdx.x < counts[blockIdx.x] ? rows[begins[blockIdx.x] + threadIdx.x] : -1;
    slots[s] = row;
    if (slot_of && row >= 0) slot_of[row] = s;
    if (threadIdx.x % TILE == 0) cell_of_tile[s / TILE] = cells[blockIdx.x];
}
