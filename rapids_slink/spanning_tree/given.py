"""The spanning forest of given distances of which some are missing: those of a graph, or of a matrix with infinities.

A pair without a distance is not joined. A core distance is the `min_samples`-th least of a row's given distances,
infinite if it has fewer. Pairs of infinite mutual reachability are left out.
"""

from typing import Any

from rapids_slink.ordering import edge_codes, sort_in_place, stable_order
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate
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


def forest_of_edges(edges: EdgeList, min_samples: int, device: Device, row_weight: Array = None) -> tuple[Tree, Array]:
    """The minimum spanning forest in the total order with the number of connected components, and core distances.

    The lightest of parallel edges counts; loops and infinite weights do not. If `min_samples` is above 1, the weights
    become mutual reachability. `row_weight`, (n,) float64, is how many equal rows each counts for.
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
    core = None
    if min_samples > 1:
        row_weight = xp.ones(n) if row_weight is None else row_weight
        core = _core_distances((src, dst), weight, row_weight, min_samples, xp)
        weight = xp.maximum(weight, xp.maximum(core[src], core[dst]))
        src, dst, weight = (part[weight < xp.inf] for part in (src, dst, weight))
    in_forest, _ = spanning_forest(EdgeList(src, dst, weight, n), device)
    rows = xp.flatnonzero(in_forest)  # in the order of (weight, row), which is the total order
    forest = PreallocatedFrame.empty(device, rows.size, EDGE_TYPES)
    for column, values in zip(forest.columns.values(), (src, dst, weight), strict=True):
        column[...] = values[rows]
    sort_in_place(forest.columns, xp)
    return (forest, n - rows.size), core


def _core_distances(ends: tuple[Array, Array], weight: Array, row_weight: Array, min_samples: int, xp: Any) -> Array:
    """The least weight within which there are `min_samples` other rows, infinite if there are fewer."""
    n, node, other = row_weight.size, xp.concatenate(ends), xp.concatenate(ends[::-1])
    both = xp.concatenate([weight, weight])
    order = stable_order(both, xp)
    order = order[stable_order(node[order], xp)]
    node, count = node[order], xp.cumsum(row_weight[other[order]])
    start = xp.searchsorted(node, xp.arange(n))
    before = xp.where(start > 0, count[xp.maximum(start, 1) - 1], 0.0) if count.size else xp.zeros(n)
    copies = row_weight - 1  # at no distance
    at = xp.searchsorted(count, before + xp.maximum(min_samples - copies, 0) * (1 - 2.0**-40))
    core, has = xp.full(n, xp.inf), xp.flatnonzero(at < xp.concatenate([start[1:], xp.full(1, count.size)]))
    core[has] = both[order[at[has]]]
    return xp.where(copies >= min_samples, 0.0, core)
