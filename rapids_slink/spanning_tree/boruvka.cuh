// Many threads connect components in a round of Borůvka's algorithm.
//
// Every component that is sure of its lightest outgoing edge points at the component across it. Edges are totally ordered, so
// they get lighter along pointers, except between two components that chose the same edge. These are the only cycles, and the
// smaller of the two components stays a root. So all pointers lead to roots, and each edge is recorded once: by the component
// that goes under another.
#pragma once
#include "ordering.cuh"

// Returns the component under which `root` goes; `mutual` is whether the one across chose the same edge.
__device__ __forceinline__ int hook(int root, int across, bool mutual) { return mutual && root < across ? root : across; }

// Returns the root of v, with path halving. Pointers only ever move to ancestors, so a reader between two writes of other threads
// still reaches the same root, in at most as many steps as v was deep at the start.
__device__ __forceinline__ int find_root(int* parent, int v) {
    int p = ((volatile int*)parent)[v];
    while (p != v) {
        int next = ((volatile int*)parent)[p];
        if (next != p) ((volatile int*)parent)[v] = next;
        v = p;
        p = next;
    }
    return v;
}

// Unites the components of two points, while others unite some at the same time; returns the root of both.
//
// Only a root gets a new parent, by an atomic that sees whether it still is one, so each call unites two trees. A late write of
// `find_root` sets a parent that was an ancestor, and still is one.
__device__ __forceinline__ int unite(int* parent, int p, int q) {
    int a = find_root(parent, p), b = find_root(parent, q);
    while (a != b) {
        int later = max(a, b), first = min(a, b);
        if (atomicCAS(parent + later, later, first) == later) return first;
        a = find_root(parent, later), b = find_root(parent, first);
    }
    return a;
}

// Hooks the components that are `sure` of their lightest edges and calls take(root, code) for each edge that is taken.
// `best_code` has the lightest edge of each root.
template <class Blocks, class Sure, class Take>
__device__ __forceinline__ void hook_components(
    const Blocks& blocks, long long n, const int* component, int* parent, const long long* best_code, Sure sure, Take take) {
    blocks.each(n, [&](int c) {
        int own = component[c];
        if (own == c && sure(c)) {
            int low = best_code[c] >> 32, high = best_code[c] & 0xffffffff;
            int across = component[low] == c ? component[high] : component[low];
            own = hook(c, across, sure(across) && best_code[across] == best_code[c]);
            if (own != c) take(c, best_code[c]);
        }
        parent[c] = own;
    });
}
