"""The dendrogram kernels on the CPU: union-find over the edges of a sorted tree, and what cuts need."""

from __future__ import annotations

import numpy as np
from numba import njit

from rapids_slink.union_find import find_root


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

    Sets are joined by size and paths are halved, so m edges cost O(m α(m)) in whatever order a tree's shape makes them
    come. ``members`` and ``cluster`` of a root are the size and the id of its set.
    """
    parent, members = np.arange(n).astype(np.int32), np.ones(n, dtype=np.int32)
    cluster = np.arange(n).astype(np.int32)
    for i in range(len(src)):
        u, v = find_root(parent, src[i]), find_root(parent, dst[i])
        if u == v:
            return i
        if members[u] < members[v]:
            u, v = v, u
        parent[v] = u
        members[u] += members[v]
        left[i] = min(cluster[u], cluster[v])
        right[i] = max(cluster[u], cluster[v])
        size[i] = members[u]
        cluster[u] = n + i
    return len(src)


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
