"""Kruskal's algorithm where some nodes may not be in one tree.

    edges ──merge_order──▶ in turn, on the host: refuse what would join two clusters with a mark in common ──▶ forest

A *mark* is something that no cluster may have twice. A source of records is a mark of all its records, and each pair of
nodes that may not meet is a mark of these two. Two clusters may merge if they have no mark in common. What is refused
once would be refused later as well, since clusters only grow.

The cluster with fewer marks hands them to the other one, so that a mark moves at most log₂ of their number times. Two
clusters are compared by looking up the marks of the one that has fewer. An edge costs as many steps as that, at most.
"""

from typing import Any

import numpy as np

from rapids_slink.dendrogram.cpu import find_root
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import Device, to_host
from rapids_slink.spanning_tree.graphs import EdgeList, merge_order
from rapids_slink.spanning_tree.graphs.marks import Marks

#: Bytes of an edge and of a mark of a node.
EDGE_BYTES, MARK_BYTES = 56, 48


def constrained_bytes(edges: int, marks: Marks) -> int:
    """Return the bytes of `constrained_forest` without those of nodes."""
    return EDGE_BYTES * edges + MARK_BYTES * int(marks.node.size)


def constrained_forest(edges: EdgeList, marks: Marks, device: Device) -> tuple[Any, int]:
    """Return the rows of the edges that merge, in merge order, on the device, and how many edges were refused.

    Edges are taken by (weight, row). An edge within a cluster is not refused, and a refused one is counted each time
    that it is in the list.
    """
    rows = merge_order(edges, device.xp.arange(edges.src.size), device)
    src, dst = (np.ascontiguousarray(to_host(end[rows]), np.int32) for end in (edges.src, edges.dst))
    merging, refused = join_unless_marked(src, dst, edges.n_nodes, marks)
    return rows[device.asarray(merging)], refused


def join_unless_marked(src: np.ndarray, dst: np.ndarray, n: int, marks: Marks) -> tuple[np.ndarray, int]:
    """Return the positions of the edges among n nodes that merge, taken in this order, and how many are refused."""
    size = marks.node.size
    place = np.int32 if size < 2**31 else np.int64
    first, last, following, chain = (np.full(length, -1, place) for length in (n, n, size, size))
    buckets = np.full(1 << max(1, (2 * size).bit_length()), -1, place)
    owner, mark, parent = marks.node.astype(np.int32), marks.mark.astype(place), np.arange(n, dtype=np.int32)
    merging = np.empty(min(max(n - 1, 0), src.size), np.int64)
    count = np.zeros(n, place)
    merged, refused = _join(src, dst, owner, mark, first, last, count, following, buckets, chain, parent, merging)
    return merging[:merged], int(refused)


@njit(cache=True, inline="always")
def _bucket(cluster, mark, buckets):
    """Return the bucket of a mark that a cluster has; the number of buckets is a power of two."""
    mixed = np.uint64(cluster) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(mark) * np.uint64(0xC2B2AE3D27D4EB4F)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(20)) & (
        buckets.size - 1
    )


@njit(cache=True)
def _have_common_mark(fewer, more, owner, mark, first, following, buckets, chain):
    """Return whether a mark of the one cluster is a mark of the other."""
    entry = first[fewer]
    while entry >= 0:
        other = buckets[_bucket(more, mark[entry], buckets)]
        while other >= 0:
            if owner[other] == more and mark[other] == mark[entry]:
                return True
            other = chain[other]
        entry = following[entry]
    return False


@njit(cache=True)
def _hand_over(fewer, more, owner, mark, first, last, count, following, buckets, chain):
    """Give the marks of the one cluster to the other, which has none of them."""
    entry = first[fewer]
    if entry < 0:
        return
    while entry >= 0:
        place = _bucket(owner[entry], mark[entry], buckets)
        if buckets[place] == entry:
            buckets[place] = chain[entry]
        else:
            before = buckets[place]
            while chain[before] != entry:
                before = chain[before]
            chain[before] = chain[entry]
        owner[entry] = more
        place = _bucket(more, mark[entry], buckets)
        chain[entry], buckets[place] = buckets[place], entry
        entry = following[entry]
    following[last[fewer]] = first[more]
    first[more] = first[fewer]
    count[more] += count[fewer]


@njit(nogil=True, cache=True)
def _join(src, dst, owner, mark, first, last, count, following, buckets, chain, parent, merging):
    """Merge the clusters of the ends of the edges in turn; return how many edges merged, and how many were refused.

    The marks' entries are in a list for each cluster and in the buckets.
    """
    for entry in range(owner.size):
        node = owner[entry]
        following[entry] = first[node]
        if first[node] < 0:
            last[node] = entry
        first[node] = entry
        count[node] += 1
        place = _bucket(node, mark[entry], buckets)
        chain[entry], buckets[place] = buckets[place], entry
    merged = refused = 0
    for i in range(src.size):
        fewer, more = find_root(parent, src[i]), find_root(parent, dst[i])
        if fewer == more:
            continue
        if count[fewer] > count[more]:
            fewer, more = more, fewer
        if _have_common_mark(fewer, more, owner, mark, first, following, buckets, chain):
            refused += 1
            continue
        _hand_over(fewer, more, owner, mark, first, last, count, following, buckets, chain)
        parent[fewer] = more
        merging[merged] = i
        merged += 1
    return merged, refused
