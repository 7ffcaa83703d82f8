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

**Noise to clusters.** Go up from a row without a label to the first merge at which its branch meets labelled rows. The
edge of this merge ends at a row of the other branch, and the row takes that row's label. If that row has none itself,
it has met labelled rows before, within its own branch, and has taken their label.

So the edges of merges of two labelled branches are left out. By induction over the merges, a component of the other
edges has exactly one labelled row if its branch has any: an edge connects two components of which at most one has a
labelled row. Every other row takes the label of this one, which it reaches by the path in the tree whose largest edge
is the least in the total order. The forest is the minimum spanning forest that is rooted in the labelled rows
(Cousty et al., "Watershed cuts: minimum spanning forests and the drop of water principle", TPAMI 2009).
The numbers of the clusters do not matter.
"""

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.cutting import OUTLIER, cut_labels, soonest
from rapids_slink.ordering import sort_in_place
from rapids_slink.points.check import MAX_ROWS, as_integer, column_values, require_edges
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame
from rapids_slink.report import counted
from rapids_slink.runtime.device import Array, Device, half
from rapids_slink.runtime.memory import MemoryEstimate, check_memory

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)

__all__ = ["build_linkage", "changes_of", "cut_labels", "kept_names", "linkage_of_edges", "reduce_outliers", "soonest"]

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
    edges = len(tree)
    n = edges + 1 if n_nodes is None else as_integer(n_nodes, "n_nodes")
    if not 1 <= n <= MAX_ROWS:
        raise ValueError(f"a tree must have from 1 to {MAX_ROWS} nodes, got {n}")
    if edges > n - 1:
        raise ValueError(f"not a tree: {edges} edges over n_nodes={n} nodes; a tree has {n - 1}, a forest fewer")
    check_memory(device, MemoryEstimate(EDGE_BYTES * edges), f"a tree of {counted(edges, 'edge')}")
    columns = {name: column_values(tree[name], device) for name in EDGE_TYPES}
    ends = [columns[end] for end in ("src", "dst")]
    lowest, highest = (min(int(end.min()) for end in ends), max(int(end.max()) for end in ends)) if edges else (0, 0)
    if lowest < 0 or highest >= n:
        hint = f" (one tree of {edges} edges; for a forest, pass n_nodes)" if n_nodes is None else ""
        raise ValueError(f"node ids must be from 0 to {n - 1}{hint}, found {lowest if lowest < 0 else highest}")
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


# --------------------------------------------------------------------------------------------------------------- labels


def reduce_outliers(
    edges: dict[str, Array], merges: dict[str, Array], labels: Array, max_distance: float | None, device: Device
) -> Array:
    """Return the (n,) int32 labels without noise, except for rows that meet no cluster up to `max_distance`.

    `edges` are int32 ``src`` and ``dst`` of a forest over n rows in merge order, and `merges` int32 ``left``, ``right``
    and float64 ``height`` of its linkage. Labels below 0 are noise. `max_distance` is inclusive; None is no limit.
    """
    xp, n, on_device = device.xp, labels.size, kernels(device)
    left_child, right_child, height = merges["left"], merges["right"], merges["height"]
    is_labelled = labels >= 0
    holds = on_device.mark_upwards(left_child, right_child, is_labelled)
    stays = ~(holds[left_child] & holds[right_child]) & (height <= (inf if max_distance is None else max_distance))
    src, dst = edges["src"][stays], edges["dst"][stays]
    first, second, size = xp.empty((3, src.size), "int32")
    on_device.merge_in_order(src, dst, n, first, second, size)
    component = on_device.label_clusters(first, second, n)[:n]
    label_of_component: Any = xp.full(n, OUTLIER, "int32")
    label_of_component[component[is_labelled]] = labels[is_labelled]
    return label_of_component[component]


def kept_names(before: np.ndarray, after: np.ndarray, clusters: int, unused: int) -> np.ndarray:
    """Return the name of each of these new `clusters`, (clusters,) int32, by the rows that it shares with old ones.

    `before` and `after` are the labels of the same rows, -1 for noise. A new cluster takes the name of the old cluster
    that has most of its rows; of several such clusters, the smallest name. If several new clusters would take one name,
    the one that shares most rows takes it; of several such clusters, the first. All other clusters are numbered from
    `unused` on. Some of these share no row with an old cluster.
    """
    common = _common(before, after)
    common = common[common["after"] >= 0].sort_values(["rows", "before"], ascending=[False, True])
    takes = common.drop_duplicates("after").sort_values(["rows", "after"], ascending=[False, True])
    takes = takes.drop_duplicates("before")
    names = np.full(clusters, -1, np.int32)
    names[takes["after"].to_numpy()] = takes["before"]
    others = np.flatnonzero(names < 0)
    names[others] = unused + np.arange(others.size)
    return names


def changes_of(before: np.ndarray, after: np.ndarray) -> dict[Any, np.ndarray]:
    """Return the columns of a frame with a row for each pair of an old cluster and a present label that share rows.

    ``before`` and ``after`` are these labels, int32; ``after`` is -1 for rows that are noise now. ``rows`` is the
    number of shared rows, int64. ``merged`` is whether the present cluster has rows of several old ones. ``split`` is
    whether rows of the old cluster have several labels now.
    """
    common = _common(before, after)
    merged = (common.groupby("after")["rows"].transform("size") > 1) & (common["after"] >= 0)
    split = common.groupby("before")["rows"].transform("size") > 1
    return {name: column.to_numpy() for name, column in common.assign(merged=merged, split=split).items()}


def _common(before: np.ndarray, after: np.ndarray) -> pd.DataFrame:
    """Return the pairs of an old cluster and a present label that share rows, in order, and how many rows."""
    labels = pd.DataFrame({"before": before, "after": after})[before >= 0]
    return labels.groupby(["before", "after"], as_index=False).size().rename(columns={"size": "rows"})
