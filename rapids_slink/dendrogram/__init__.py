"""From a spanning tree to a dendrogram, and from a dendrogram to labels.

    tree: src, dst, weight   ──linkage──▶   left, right, height, size   ──cut──▶   labels

- A tree is an edge frame of n - 1 rows over nodes 0..n-1; a forest of c components has n - c rows.
- Inside the pipeline a tree is sorted in the total order (`ordering`) of surrogate distances, since two that differ
  may have equal square roots; its weights are already the heights.
- Row i of a linkage frame joins clusters left < right at height into cluster n + i of size leaves; clusters 0..n-1
  are the leaves. It is SciPy's Z. Heights never fall from one row to the next.
- A forest's linkage is the same with fewer rows, so n has to be given.

Each device's ``merge_in_order`` is the kernel behind `build_linkage`, and ``label_clusters`` that behind `cut_labels`.
`inheritance` is a cut by groupby and merge alone.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.dendrogram.cutting import cut, cut_labels
from rapids_slink.ordering import sort_in_place
from rapids_slink.points.columns import as_integer, column_values, require_columns, require_edges
from rapids_slink.points.output import OutputKind, distributed, is_collection
from rapids_slink.points.validate import MAX_ROWS
from rapids_slink.report import counted
from rapids_slink.runtime.device import Device, resolve
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import check_memory, run_scope

__all__ = ["build_linkage", "cut", "cut_labels", "linkage"]

#: The columns of a linkage frame.
MERGE_TYPES = {"left": "int32", "right": "int32", "height": "float64", "size": "int32"}
#: At the peak, in bytes an edge; and those of its merge in a frame.
EDGE_BYTES, MERGE_BYTES = 96, 20


def estimate_linkage(n: int) -> MemoryEstimate:
    """Bytes of the linkage of a tree of n nodes; its frame is retained."""
    return MemoryEstimate(EDGE_BYTES * n, MERGE_BYTES * n)


def linkage(
    tree: Any, *, n_nodes: int | None = None, device: str = "auto", memory_limit: int | str | None = None
) -> Any:
    """The single-linkage dendrogram of a weighted tree.

    Parameters
    ----------
    tree : DataFrame (cuDF or pandas)
        Columns ``src``, ``dst`` (integer node ids) and ``weight``, one row an edge, in any order. Other columns are
        ignored.
    n_nodes : int, optional
        The number of nodes, for a forest or where some nodes have no edge. By default the edges must be one tree over
        nodes 0 to the number of edges.
    device : {"auto", "cpu", "cuda"}
        Where to compute. The result is of the kind that `tree` is, whatever the device.
    memory_limit : int or str, optional
        Bytes that may be taken on top of the input, such as ``"8GiB"``; see `SingleLinkage`.

    Returns
    -------
    DataFrame
        ``left``, ``right`` (int32), ``height`` (float64, the weight) and ``size`` (int32): the columns of
        ``scipy.cluster.hierarchy.linkage(X, "single")``, whose row i makes cluster ``n + i``. Edges of equal weight
        merge in the order of (smaller id, larger id).

    Raises
    ------
    ValueError
        Columns are missing, hold nulls or NaN, ids are not in range, or the edges close a cycle.
    InputTypeError
        `tree` is not a DataFrame, ids are not integers or weights not numbers.
    DeviceMemoryError
        It takes more memory than there is or than `memory_limit`.

    Notes
    -----
    Section 3.3.1 of the cuSLINK paper, which does this on the host. Here a GPU does it in parallel: `dendrogram.cuda`.
    """
    if is_collection(tree):
        given = {"n_nodes": n_nodes, "device": device, "memory_limit": memory_limit}
        return distributed().on_one_worker(linkage, tree, tuple(EDGE_TYPES), "tree", **given)
    on = resolve(device, tree)
    tree, output = OutputKind.of(tree, on)
    require_columns(tree, ("src", "dst", "weight"), "tree")
    with run_scope(on, memory_limit):
        return output.frame(_linkage(tree, n_nodes, on).frame)


def _linkage(tree: Any, n_nodes: int | None, device: Device) -> PreallocatedFrame:
    require_edges(tree, "tree")
    n = _count_nodes(len(tree), n_nodes)
    check_memory(device, estimate_linkage(len(tree)), f"a tree of {counted(len(tree), 'edge')}")
    columns = {name: column_values(tree[name], device) for name in EDGE_TYPES}
    _check_ids(columns["src"], columns["dst"], n, n_nodes is not None)
    columns = {name: part.astype(EDGE_TYPES[name]) for name, part in columns.items()}
    sort_in_place(columns, device.xp)
    return build_linkage(PreallocatedFrame(columns, device), n)


def build_linkage(tree: PreallocatedFrame, n: int) -> PreallocatedFrame:
    """The linkage of a tree or forest over n nodes, for edges already sorted and checked but for cycles."""
    src, dst, weight = (tree.columns[name] for name in EDGE_TYPES)
    merges = PreallocatedFrame.empty(tree.device, len(src), MERGE_TYPES)
    left, right, height, size = merges.columns.values()
    height[...] = weight
    merged = tree.device.kernels("dendrogram").merge_in_order(src, dst, n, left, right, size)
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


def _check_ids(src: Any, dst: Any, n: int, forest: bool) -> None:
    """Refuse ids outside 0..n-1."""
    if not len(src):
        return
    lowest, highest = min(int(src.min()), int(dst.min())), max(int(src.max()), int(dst.max()))
    if lowest < 0 or highest >= n:
        hint = "" if forest else f" (one tree of {len(src)} edges; for a forest, pass n_nodes)"
        raise ValueError(f"node ids must be from 0 to {n - 1}{hint}, found {lowest if lowest < 0 else highest}")
