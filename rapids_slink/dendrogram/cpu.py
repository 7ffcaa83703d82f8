"""The dendrogram kernels on the CPU: union-find over the edges of a sorted tree, and what cuts need."""

from __future__ import annotations

import numpy as np
from numba import njit


def merge_in_order(src: np.ndarray, dst: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join the ends of each edge in turn.

    Parameters
    ----------
    src, dst : int32 arrays of shape (m,)
        The edges, in merge order; ids below `n`.
    n : int
        Number of leaves.

    Returns
    -------
    left, right, size : int32 arrays
        The clusters each edge joins, left < right, and how many leaves they have together. Shorter than `src` if an
        edge closes a cycle: they end before it.
    """
    left, right, size = (np.empty(len(src), dtype=np.int32) for _ in range(3))
    merged = _merge(src, dst, n, left, right, size)
    return left[:merged], right[:merged], size[:merged]


@njit(cache=True)
def _merge(src, dst, n, left, right, size):
    """Fill the three outputs; return how many edges were merged.

    Sets are joined by size and paths are compressed fully, so m edges cost O(m α(m)) in whatever order a tree's
    shape makes them come. ``parent`` of a root holds minus the size of its set; ``cluster`` of a root is the set's id.
    """
    parent = np.full(n, -1, dtype=np.int32)
    cluster = np.arange(n).astype(np.int32)
    for i in range(len(src)):
        u, v = _find(parent, src[i]), _find(parent, dst[i])
        if u == v:
            return i
        if parent[u] > parent[v]:  # u's set is the smaller
            u, v = v, u
        parent[u] += parent[v]
        parent[v] = u
        left[i] = min(cluster[u], cluster[v])
        right[i] = max(cluster[u], cluster[v])
        size[i] = -parent[u]
        cluster[u] = n + i
    return len(src)


@njit(cache=True)
def _find(parent, node):
    """The root of a node's set; every node on the way then points at it."""
    root = node
    while parent[root] >= 0:
        root = parent[root]
    while parent[node] >= 0:
        parent[node], node = root, parent[node]
    return root


@njit(cache=True)
def follow_pointers(pointers):
    """Replace every entry by the end that its pointers lead to.

    Parameters
    ----------
    pointers : int32 array
        Entries from 0 on point at later entries; entries below 0 are ends. Overwritten: all are ends afterwards.
    """
    for i in range(len(pointers) - 1, -1, -1):
        if pointers[i] >= 0:
            pointers[i] = pointers[pointers[i]]


@njit(cache=True)
def first_rows(groups, n_groups):
    """The first row of each group.

    Parameters
    ----------
    groups : int32 array
        By row, the number of its group, below `n_groups`.

    Returns
    -------
    int32 array of shape (n_groups,)
        The number of rows for a group that has none.
    """
    first = np.full(n_groups, len(groups), dtype=np.int32)
    for row in range(len(groups)):
        first[groups[row]] = min(first[groups[row]], row)
    return first
