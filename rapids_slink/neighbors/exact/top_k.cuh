// A warp keeps the least k entries that it is offered, sorted by weight and id.
#pragma once
#include "ordering.cuh"
#include "runtime/include/threads.cuh"

// Makes one step of a bitonic sort by a warp: of each two entries `stride` apart the lesser comes first. Entries are in blocks of
// `block`, and in every other block the lesser comes last.
__device__ __forceinline__ void exchange_entries(double* w, int* id, int size, int block, int stride, bool descending) {
    __syncwarp();
    for (int t = threadIdx.x % WARP; t < size / 2; t += WARP) {
        int a = 2 * t - (t & (stride - 1)), b = a + stride;
        bool up = ((a & block) == 0) != descending;
        if (before(w[b], id[b], w[a], id[a]) == up && !(w[a] == w[b] && id[a] == id[b])) {
            double other = w[a]; w[a] = w[b]; w[b] = other;
            int swap = id[a]; id[a] = id[b]; id[b] = swap;
        }
    }
}

// Returns the most entries that wait to be inserted into a list of `size`.
__device__ __forceinline__ int waiting_room(int size) { return max(2 * WARP, size / 2); }

// This is a warp's sorted list of k entries. Up to 32 are in registers, one a lane. A longer list is in shared memory: it has `size`
// entries, a power of two, and after them the waiting room.
struct TopK {
    double* w;
    int* id;
    int k, size, waiting;
    double own_w;
    int own_id;

    __device__ bool few() const { return k <= WARP; }
    __device__ void load(const int* ids, const double* weights) {
        for (int e = threadIdx.x % WARP; e < (few() ? WARP : size); e += WARP) {
            bool listed = ids && e < k && ids[e] >= 0;
            double weight = listed ? weights[e] : 1.0 / 0.0;
            int candidate = listed ? ids[e] : EMPTY_ID;
            if (few()) own_w = weight, own_id = candidate;
            else w[e] = weight, id[e] = candidate;
        }
        __syncwarp();
    }
    __device__ void store(int* ids, double* weights) const {
        for (int e = threadIdx.x % WARP; e < k; e += WARP) {
            int candidate = few() ? own_id : id[e];
            ids[e] = candidate == EMPTY_ID ? -1 : candidate;
            if (weights) weights[e] = few() ? own_w : w[e];
        }
    }
    __device__ double last_weight() const { return few() ? __shfl_sync(ALL_LANES, own_w, k - 1) : w[k - 1]; }
    __device__ int last_id() const { return few() ? __shfl_sync(ALL_LANES, own_id, k - 1) : id[k - 1]; }
    // Offers each lane's entry, if it is wanted. All lanes must call.
    __device__ void offer(double weight, int candidate, bool wanted) {
        bool comes_before = before(weight, candidate, last_weight(), last_id());  // asked by all lanes
        wanted = wanted && comes_before;
        unsigned votes = __ballot_sync(ALL_LANES, wanted);
        if (!votes) return;
        if (few()) return insert(wanted ? weight : 1.0 / 0.0, wanted ? candidate : EMPTY_ID);
        int slot = size + waiting + __popc(votes & ((1u << threadIdx.x % WARP) - 1));
        if (wanted) w[slot] = weight, id[slot] = candidate;
        waiting += __popc(votes);
        __syncwarp();
        if (waiting + WARP > waiting_room(size)) finish();
    }
    // Inserts one entry a lane into a list of 32: the entries are sorted downwards, and the lesser of each two stay and are sorted.
    __device__ void insert(double weight, int candidate) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int block = 2; block <= WARP; block *= 2)
#pragma unroll
            for (int offset = block / 2; offset; offset /= 2)
                exchange(weight, candidate, offset, ((lane & offset) == 0) != ((lane & block) == 0));
        if (before(weight, candidate, own_w, own_id)) own_w = weight, own_id = candidate;
#pragma unroll
        for (int offset = WARP / 2; offset; offset /= 2) exchange(own_w, own_id, offset, (lane & offset) == 0);
    }
    // Inserts what waits, in the same way: if fewer entries wait than the list has, its end alone is compared.
    __device__ void finish() {
        if (!waiting) return;
        int lane = threadIdx.x % WARP, used = 2;
        double* more_w = w + size;
        int* more_id = id + size;
        while (used < waiting) used *= 2;
        for (int e = waiting + lane; e < used; e += WARP) more_w[e] = 1.0 / 0.0, more_id[e] = EMPTY_ID;
        for (int block = 2; block <= used; block *= 2)
            for (int stride = block / 2; stride; stride /= 2) exchange_entries(more_w, more_id, used, block, stride, true);
        __syncwarp();
        for (int e = lane, end = size - used; e < used; e += WARP)
            if (before(more_w[e], more_id[e], w[end + e], id[end + e])) w[end + e] = more_w[e], id[end + e] = more_id[e];
        for (int stride = size / 2; stride; stride /= 2) exchange_entries(w, id, size, size, stride, false);
        __syncwarp();
        waiting = 0;
    }
};
