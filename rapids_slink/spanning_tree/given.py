"""The spanning forest of given distances of which some are missing: those of a graph, or of a matrix with infinities.

A pair without a distance is not joined. A core distance is the `min_samples`-th least of a row's given distances,
infinite if it has fewer. Pairs of infinite mutual reachability are left out.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.ordering import edge_codes, sort_in_place, stable_order
from rapids_slink.runtime.arrays import Array
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.spanning_tree.edges import spanning_forest
from rapids_slink.spanning_tree.edges.edge_list import EdgeList
from rapids_slink.spanning_tree.problem import Tree

#: Bytes per given distance at the peak, without and with core distances, which read it from both ends.
EDGE_BYTES, CORE_BYTES = 96, 224


def estimate_given(edges: int, nodes: int, min_samples: int) -> MemoryEstimate:
    """Bytes of `forest_of_edges`."""
    return MemoryEstimate(edges * (CORE_BYTES if min_samples > 1 else EDGE_BYTES) + 64 * nodes)


def edges_of_matrix(matrix: Array, device: Device) -> EdgeList:
    """The finite entries above the diagonal."""
    xp = device.xp
    src, dst = (end.astype("int32") for end in xp.nonzero(xp.triu(xp.isfinite(matrix), 1)))
    return EdgeList(src, dst, matrix[src, dst], len(matrix))


def forest_of_edges(edges: EdgeList, min_samples: int, device: Device) -> Tree:
    """The minimum spanning forest in the total order, and the number of connected components.

    Parameters
    ----------
    edges : EdgeList
        The lightest of parallel edges counts. Loops and infinite weights do not.
    min_samples : int
        Above 1 the weights become mutual reachability.
    device : Device
    """
    xp, n = device.xp, edges.n_nodes
    joins = (edges.src != edges.dst) & (edges.weight < xp.inf)
    weight = edges.weight[joins].astype("float64")
    code = edge_codes(edges.src[joins], edges.dst[joins], xp)
    order = stable_order(weight, xp)
    order = order[stable_order(code[order], xp)]
    code, weight = code[order], weight[order]
    first = xp.flatnonzero(xp.concatenate([xp.ones(min(1, code.size), bool), code[1:] != code[:-1]]))
    code, weight = code[first], weight[first]
    src, dst = (code >> 32).astype("int32"), (code & 0xFFFFFFFF).astype("int32")
    if min_samples > 1:
        core = _core_distances(src, dst, weight, n, min_samples, xp)
        weight = xp.maximum(weight, xp.maximum(core[src], core[dst]))
        src, dst, weight = (part[weight < xp.inf] for part in (src, dst, weight))
    in_forest, _ = spanning_forest(EdgeList(src, dst, weight, n), device)
    rows = xp.flatnonzero(in_forest)  # in the order of (weight, row), which is the total order
    forest = PreallocatedFrame.empty(device, rows.size, EDGE_TYPES)
    for column, values in zip(forest.columns.values(), (src, dst, weight), strict=True):
        column[...] = values[rows]
    sort_in_place(forest.columns, xp)
    return forest, n - rows.size


def _core_distances(src: Array, dst: Array, weight: Array, n: int, min_samples: int, xp: Any) -> Array:
    """The `min_samples`-th least weight at each node, infinite if there are fewer."""
    node, both = xp.concatenate([src, dst]), xp.concatenate([weight, weight])
    order = stable_order(both, xp)
    order = order[stable_order(node[order], xp)]
    end = xp.cumsum(xp.bincount(node, minlength=n))
    start = xp.concatenate([xp.zeros(1, end.dtype), end[:-1]])
    core, has = xp.full(n, xp.inf), xp.flatnonzero(end - start >= min_samples)
    core[has] = both[order[start[has] + min_samples - 1]]
    return core
