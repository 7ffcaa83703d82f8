"""Union-find over the edges of a sorted tree."""

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
