"""Path bottlenecks of a tree, the heaviest edge between any two nodes: a sparse table over the dendrogram's leaves."""

import numpy as np

from rapids_slink.runtime.compiling import njit
from rapids_slink.union_find import find_root


def path_bottlenecks(src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A table of the heaviest edge on the path between any two nodes of a tree. The tree's edges come in any order.

    With the nodes in the order of the dendrogram's leaves, that edge is the largest height between their positions. The
    first of the (1 + levels, n) rows holds each node's position among the leaves. Further rows hold the largest of the
    1, 2, 4, ... heights from a position on.
    """
    rows = np.argsort(weight)
    return _sparse_table(src[rows], dst[rows], weight[rows])


@njit(cache=True)
def _sparse_table(src, dst, weight):
    n = weight.size + 1
    parent, last = np.arange(n), np.arange(n)
    following, edge = np.full(n, -1), np.full(n, -1)
    for e in range(n - 1):  # a set is a list of leaves that starts at its root
        a, b = find_root(parent, src[e]), find_root(parent, dst[e])
        following[last[a]], edge[last[a]] = b, e
        last[a], parent[b] = last[b], a
    levels = 1
    while 1 << levels < n:
        levels += 1
    table = np.zeros((1 + levels, n))
    position, largest = table[0], table[1:]
    leaf = find_root(parent, 0)
    for i in range(n):
        position[leaf] = i
        if i < n - 1:
            largest[0, i] = weight[edge[leaf]]
        leaf = following[leaf]
    for level in range(1, levels):
        length = 1 << level - 1
        for i in range(n):
            largest[level, i] = max(largest[level - 1, i], largest[level - 1, min(i + length, n - 1)])
    return table
