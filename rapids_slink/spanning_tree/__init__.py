"""Minimum spanning trees: of a point set through its k-NN lists, and of any weighted graph.

    lists ──grow──▶ forest, certain edges only ──connect──▶ tree            forest.py, connect.py
    edges ──sort──▶ ──Borůvka (GPU) or Kruskal (CPU)──▶ forest              below

An edge frame has the columns ``src``, ``dst``, ``weight``. Ties go by the total order of `ordering`, in a graph with
parallel edges of equal weight then by the row.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.device import Device, resolve
from rapids_slink.neighbors.contract import NeighborLists
from rapids_slink.points import Caller, on_device, require_edges
from rapids_slink.spanning_tree.connect import spanning_tree

__all__ = ["count_connected_components", "empty_edges", "minimum_spanning_tree", "sorted_forest", "spanning_tree"]

MOST_NODES = 2**31 - 1  # int32


def minimum_spanning_tree(edges: Any, *, maximum: bool = False, device: str = "auto") -> Any:
    """The minimum spanning tree of a weighted undirected graph, or its forest if it is not connected.

    Parameters
    ----------
    edges : DataFrame (cuDF or pandas)
        ``src``, ``dst`` (integers of any range) and ``weight`` (a number: negative and zero weights count like any
        other). An edge may stand in one direction or both; self-loops are ignored; of parallel edges the lightest
        counts.
    maximum : bool
        The maximum spanning tree instead.
    device : {"auto", "cpu", "cuda"}

    Returns
    -------
    DataFrame
        The tree's rows of `edges`, of its kind and types, with a new index, in ascending order of weight (descending
        for `maximum`); equal weights in the order of (smaller id, larger id).

    Raises
    ------
    ValueError, TypeError
        Columns are missing or of the wrong type, or hold nulls or NaN.

    Notes
    -----
    Section 3.2 of the cuSLINK paper. Its weight alteration, which cannot keep zeros, is replaced by the total order.
    """
    place = resolve(device, edges)
    edges, caller = Caller.of(edges, place)
    require_edges(edges, "edges")
    with place.working():
        kept = on_device(edges[["src", "dst", "weight"]], place).reset_index(drop=True)
        src, dst, n = _compact(kept, place)
        forest, _ = sorted_forest(kept, src, dst, n, place, maximum)
    return caller.frame(place.keep(forest))


def sorted_forest(
    edges: Any, src: Any, dst: Any, n_nodes: int, device: Device, maximum: bool = False
) -> tuple[Any, Any]:
    """The rows of `edges` in the spanning forest, in merge order, and each node's component (a node's number).

    `src` and `dst` are the ends as int32 arrays of node numbers below `n_nodes`.
    """
    xp = device.xp
    weight = edges["weight"].values
    order = xp.lexsort(xp.stack([xp.maximum(src, dst), xp.minimum(src, dst)]))
    key = weight[order]
    if maximum:  # a stable descending sort: the ranks of the distinct weights, reversed
        distinct, rank = xp.unique(key, return_inverse=True)
        key = distinct.size - rank
    order = order[xp.argsort(key, kind="stable")]
    src, dst = xp.ascontiguousarray(src[order]), xp.ascontiguousarray(dst[order])
    taken, component = device.kernels("spanning_tree").forest_of_sorted_edges(src, dst, n_nodes)
    return edges.take(order[xp.flatnonzero(taken)]).reset_index(drop=True), component


def count_connected_components(lists: NeighborLists, device: Device) -> int:
    """Connected components of the undirected graph of neighbour lists."""
    return int(device.kernels("spanning_tree").connected_components(lists.ids))


def empty_edges(device: Device) -> Any:
    """An edge frame without rows."""
    xp = device.xp
    return device.frame({"src": xp.empty(0, "int32"), "dst": xp.empty(0, "int32"), "weight": xp.empty(0)})


def _compact(edges: Any, device: Device) -> tuple[Any, Any, int]:
    """The ends as int32 numbers of nodes 0..n-1, in the order of their ids."""
    xp = device.xp
    src, dst = edges["src"].values, edges["dst"].values
    if not src.size:
        return src.astype("int32"), dst.astype("int32"), 0
    low = min(int(src.min()), int(dst.min()))
    high = max(int(src.max()), int(dst.max()))
    if low >= 0 and high < min(4 * src.size + 1024, MOST_NODES):
        return src.astype("int32"), dst.astype("int32"), high + 1
    if src.dtype != dst.dtype:  # int64 and uint64 would meet in float64
        if low < 0 and high >= 2**63:
            raise ValueError(f"src and dst hold ids from {low} to {high}: they must fit into int64, or into uint64")
        common = "int64" if high < 2**63 else "uint64"
        src, dst = src.astype(common), dst.astype(common)
    ids, inverse = xp.unique(xp.concatenate([src, dst]), return_inverse=True)
    if ids.size > MOST_NODES:
        raise ValueError(f"the edges have {ids.size} nodes; up to {MOST_NODES} are possible")
    inverse = inverse.astype("int32")
    return inverse[: src.size], inverse[src.size :], int(ids.size)
