// Union-find by many threads at a time.
#pragma once

// The root of v, halving the path on the way. Pointers only ever move to ancestors, so a reader between two writes
// of other threads still climbs towards the same root. The climb ends, since no pointers close a cycle: where components
// hook, pointers follow ever lighter edges but for the pairs that choose one, which are broken up; where neighbours join,
// they go to smaller numbers. Every step is to a proper ancestor of where the pointers led to at the start, so that
// there are at most as many as v then was deep, and fewer the more paths the other threads have halved.
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
