// Union-find by many threads at a time.
#pragma once

// The root of v, with path halving. Pointers only ever move to ancestors, so a reader between two writes of other threads
// still reaches the same root. The walk ends, since no pointers close a cycle: where components hook, pointers follow ever
// lighter edges, except between the two that chose the same edge, of which one stays a root; where neighbours join, they go
// to smaller numbers. Every step goes to a proper ancestor as of the start, so there are at most as many steps as v was deep.
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
