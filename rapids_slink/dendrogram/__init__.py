"""From a spanning tree to a dendrogram, and from a dendrogram to labels.

    tree: src, dst, weight   ──linkage──▶   left, right, height, size   ──cut──▶   labels

- A tree is an edge frame of n - 1 rows over nodes 0..n-1; a forest of c components has n - c rows.
- Inside the pipeline a tree is sorted in the total order (`ordering`) of surrogate distances, because two different
  ones may have equal square roots. Its weights are already the heights.
- Row i of a linkage frame merges clusters left < right at height into cluster n + i of size leaves; clusters 0..n-1
  are the leaves. It is SciPy's Z. Heights never fall from one row to the next.
- The linkage of a forest has fewer rows, so it needs n.

Each device's ``merge_in_order`` is the kernel behind `build_linkage`, and ``label_clusters`` is that behind
`cut_labels`. `cutting.inherit_labels` is a cut by groupby and merge alone.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from rapids_slink.dendrogram.cutting import cut_labels, soonest
from rapids_slink.ordering import sort_in_place
from rapids_slink.points.check import MAX_ROWS, as_integer, column_values, require_edges
from rapids_slink.report import counted
from rapids_slink.runtime.device import Array, Device, half
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate, check_memory

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)

__all__ = ["build_linkage", "cut_labels", "linkage_of_edges", "soonest"]

#: The columns of a linkage frame.
MERGE_TYPES = {"left": "int32", "right": "int32", "height": "float64", "size": "int32"}
#: Bytes per edge while the edges are sorted, and while they are merged.
EDGE_BYTES = 96


@dataclass(frozen=True)
class Members:
    """The rows of some clusters. The devices' halves compute the means and deviations of these clusters."""

    rows: Array  # (m,) int64, the rows of the first cluster in order, then the rows of the second, and so on
    start: Array  # (clusters + 1,) int64, where each cluster begins in `rows`, and m
    weight: Array  # (n,) float64, the mass of each row, or None for 1


def linkage_of_edges(tree: Any, n_nodes: int | None, device: Device) -> PreallocatedFrame:
    """Return the linkage frame of an edge frame, on a device, within a run: the work of `api.linkage`."""
    require_edges(tree, "tree")
    n = _count_nodes(len(tree), n_nodes)
    edges = len(tree)
    check_memory(device, MemoryEstimate(EDGE_BYTES * edges), f"a tree of {counted(edges, 'edge')}")
    columns = {name: column_values(tree[name], device) for name in EDGE_TYPES}
    _check_ids(columns["src"], columns["dst"], n, n_nodes is not None)
    columns = {name: part.astype(EDGE_TYPES[name]) for name, part in columns.items()}
    sort_in_place(columns, device.xp)
    return build_linkage(PreallocatedFrame(columns, device), n)


def build_linkage(tree: PreallocatedFrame, n: int, groups: tuple[Array, int] | None = None) -> PreallocatedFrame:
    """Return the linkage of a tree or forest over n nodes.

    The edges are sorted, and checked for everything except cycles. An edge that closes a cycle raises ValueError. If
    the rows are in groups, `groups` holds the group of each edge, (m,) int32, and the number of groups. Such a forest
    has no cycle.
    """
    src, dst, weight = (tree.columns[name] for name in EDGE_TYPES)
    merges = PreallocatedFrame.empty(tree.device, len(src), MERGE_TYPES)
    left_child, right_child, height, size = merges.columns.values()
    height[...] = weight
    merged = kernels(tree.device).merge_in_order(src, dst, n, left_child, right_child, size, groups)
    if merged < len(src):
        u, v = sorted((int(src[merged]), int(dst[merged])))
        raise ValueError(f"not a tree: edge {u} - {v} closes a cycle (of edges that are no heavier)")
    return merges


def _count_nodes(edges: int, n_nodes: int | None) -> int:
    n = edges + 1 if n_nodes is None else as_integer(n_nodes, "n_nodes")
    if not 1 <= n <= MAX_ROWS:
        raise ValueError(f"a tree must have from 1 to {MAX_ROWS} nodes, got {n}")
    if edges > n - 1:
        raise ValueError(f"not a tree: {edges} edges over n_nodes={n} nodes; a tree has {n - 1}, a forest fewer")
    return n


def _check_ids(src: Array, dst: Array, n: int, forest: bool) -> None:
    """Raise unless all ids are from 0 to n - 1. The error for one tree recommends `n_nodes`."""
    if not len(src):
        return
    lowest, highest = min(int(src.min()), int(dst.min())), max(int(src.max()), int(dst.max()))
    if lowest < 0 or highest >= n:
        hint = "" if forest else f" (one tree of {len(src)} edges; for a forest, pass n_nodes)"
        raise ValueError(f"node ids must be from 0 to {n - 1}{hint}, found {lowest if lowest < 0 else highest}")
