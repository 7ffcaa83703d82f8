"""Labels from a linkage frame, on whichever device the frame is.

A cut keeps a prefix of the merges. Each kept merge points at the kept merge that joins its cluster; following these
pointers finds the last one. On a GPU pointers are doubled among a sample of the merges, so that the time hardly
depends on the shape of the tree. Of several cuts the finest is made first, and each further one is a cut of the
dendrogram over the clusters of the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

from rapids_slink.points.columns import as_integer, column_values, has_gaps, require_columns
from rapids_slink.points.output import OutputKind, distributed, is_collection
from rapids_slink.points.validate import MAX_ROWS, InputTypeError
from rapids_slink.report import counted
from rapids_slink.runtime.device import Device, all_true, device_of, resolve, to_host
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import PreallocatedFrame
from rapids_slink.runtime.memory import check_memory, run_scope

COLUMNS = ("left", "right", "height", "size")
#: What checking and cutting take at their peak, in bytes a leaf.
LEAF_BYTES = 64
#: The label of rows in clusters that are too small.
OUTLIER = -1


def estimate_cut(n: int, cuts: int = 1) -> MemoryEstimate:
    """Bytes of cuts of a dendrogram of n leaves; the labels are retained."""
    return MemoryEstimate((LEAF_BYTES + 8 * cuts) * n, 4 * cuts * n)  # an array, and a frame


def cut(
    linkage: Any,
    *,
    n_clusters: Any = None,
    distance_threshold: Any = None,
    min_cluster_size: int = 1,
    n_leaves: int | None = None,
) -> Any:
    """Flat clusters from a dendrogram.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        As `rapids_slink.linkage` returns it: ``left``, ``right``, ``height``, ``size``.
    n_clusters : int or sequence of int, optional
        How many clusters to leave, from 1 to the number of leaves: the last ``n_clusters - 1`` merges are undone. It
        is met exactly, heights that tie included. A list, tuple, range or 1-d array makes a cut for each value.
    distance_threshold : float or sequence of float, optional
        Clusters at or above this distance are not merged (scikit-learn's meaning). Give this or `n_clusters`.
    min_cluster_size : int
        Clusters of fewer leaves are labelled -1, the others 0..k-1. They still count in `n_clusters`.
    n_leaves : int, optional
        The number of leaves, for a forest's linkage; by default one more than the number of merges.

    Returns
    -------
    Series or DataFrame of int32
        A label 0..k-1 for each leaf, numbered in order of first appearance, of the kind that `linkage` is. For a
        sequence of cuts a frame with a column for each, whose name is the value.

    Raises
    ------
    ValueError
        Both or neither cut is given, one is out of range or given twice, or `linkage` is not the dendrogram of
        `n_leaves` leaves.
    TypeError
        `n_clusters` is not an integer, `distance_threshold` not a number, `linkage` not a DataFrame.
    DeviceMemoryError
        It takes more memory than there is.

    Notes
    -----
    Section 3.3.2 of the cuSLINK paper inherits labels level by level; a chain has as many levels as leaves.
    """
    if is_collection(linkage):
        given = {"n_clusters": n_clusters, "distance_threshold": distance_threshold, "n_leaves": n_leaves}
        return distributed().on_one_worker(cut, linkage, COLUMNS, "linkage", **given, min_cluster_size=min_cluster_size)
    linkage, output = OutputKind.of(linkage, resolve("auto", linkage))
    require_columns(linkage, COLUMNS, "linkage")
    n = _count_leaves(len(linkage), n_leaves)

    def check(device: Device) -> None:
        check_linkage(linkage, n, device, is_forest=n_leaves is not None)

    return cut_frame(linkage, n, (n_clusters, distance_threshold, min_cluster_size), output, check=check)


def cut_frame(
    linkage: Any,
    n_leaves: int,
    given: tuple[Any, Any, int],
    output: OutputKind,
    index: Any = None,
    check: Callable[[Device], None] = lambda device: None,
) -> Any:
    """Cut a linkage frame in a run of its own.

    Parameters
    ----------
    linkage : DataFrame
        On either device, where the work is done.
    n_leaves : int
    given : tuple
        ``n_clusters``, ``distance_threshold`` and ``min_cluster_size``.
    output : OutputKind
        The kind of the answer.
    index : Index, optional
        Of the labels.
    check : callable
        What is to be checked on the device before anything is cut.

    Returns
    -------
    Series, array or DataFrame
        As `cut` says.
    """
    n_clusters, distance_threshold, min_cluster_size = given
    device, merges = device_of(linkage), len(linkage)
    values, many = _cuts(distance_threshold if n_clusters is None else n_clusters)
    with run_scope(device):
        what = f"{counted(len(values), 'cut')} of {counted(merges, 'merge')}"
        check_memory(device, estimate_cut(n_leaves, len(values)), what)
        check(device)
        labels = cut_labels(
            PreallocatedFrame({name: column_values(linkage[name], device) for name in COLUMNS[:3]}, device),
            n_leaves,
            n_clusters=n_clusters,
            distance_threshold=distance_threshold,
            min_cluster_size=min_cluster_size,
        )
    output = output.from_cuml_setting()
    if not many:
        return output.labels(labels.columns["label"], index)
    return output.frame(labels.frame, index) if output.is_frame else output.array(labels.frame.values)


def cut_labels(
    linkage: PreallocatedFrame,
    n_leaves: int,
    *,
    n_clusters: Any = None,
    distance_threshold: Any = None,
    min_cluster_size: int = 1,
) -> PreallocatedFrame:
    """`cut` for a linkage known to be right.

    Returns
    -------
    PreallocatedFrame of int32
        A row for each leaf and a column for each cut, named by its value, or "label" for a single cut.
    """
    device, xp = linkage.device, linkage.device.xp
    left, right, height = (linkage.columns[name] for name in COLUMNS[:3])
    kept, names = _count_merges(height, n_leaves, n_clusters, distance_threshold, xp)
    if as_integer(min_cluster_size, "min_cluster_size") < 1:
        raise ValueError(f"min_cluster_size must be at least 1, got {min_cluster_size}")
    left, right = (ids[: max(kept)].astype("int32", copy=False) for ids in (left, right))
    labels = PreallocatedFrame.empty(device, n_leaves, dict.fromkeys(names, "int32"))
    columns = list(labels.columns.values())
    clusters = sizes = None  # of the leaves and of the clusters in the cut before
    done = 0
    for i in sorted(range(len(kept)), key=kept.__getitem__):
        leaves, merged, done = n_leaves - done, kept[i] - done, kept[i]
        flat = device.kernels("dendrogram").label_clusters(left[:merged], right[:merged], leaves)
        left, right = (_relabel(ids[merged:], flat, merged, xp) for ids in (left, right))
        step = flat[:leaves]
        clusters = step if clusters is None else step[clusters]
        if min_cluster_size > 1:
            # Counts are far below 2^53, so that their sums are exact in float64, in any order.
            sizes = xp.bincount(step, weights=sizes, minlength=n_leaves - done).astype("float64", copy=False)
            columns[i][...] = _number(sizes >= min_cluster_size, xp)[clusters]
        else:
            columns[i][...] = clusters
    return labels


def _cuts(given: Any) -> tuple[list[Any], bool]:
    """The values of a parameter that takes one or many, and whether it was given many."""
    if getattr(given, "ndim", None) == 1:
        return to_host(given).tolist(), True
    if isinstance(given, list | tuple | range):
        return [value.item() if hasattr(value, "item") else value for value in given], True
    return [given], False


def _count_merges(
    height: Any, n: int, n_clusters: Any, distance_threshold: Any, xp: Any
) -> tuple[list[int], list[Any]]:
    """How many of the first merges each cut keeps, and the names of their columns."""
    name = "distance_threshold" if n_clusters is None else "n_clusters"
    values, many = _cuts(distance_threshold if n_clusters is None else n_clusters)
    for value in values:
        check_cut(n, n - len(height), *((None, value) if n_clusters is None else (value, distance_threshold)))
    if not values:
        raise ValueError(f"{name} must hold at least one value, got none")
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise ValueError(f"{name} must not hold a value twice, since each names a column; got {twice} twice")
    names = values if many else ["label"]
    if n_clusters is not None:
        return [n - int(value) for value in values], names
    if not len(height):
        return [0] * len(values), names
    # Heights ascend, so this counts those below.
    return xp.searchsorted(height.astype("float64", copy=False), xp.asarray(values, "float64")).tolist(), names


def check_cut(n: int, components: int, n_clusters: Any, distance_threshold: Any) -> None:
    """Refuse a cut that n leaves in so many trees do not have."""
    if (n_clusters is None) == (distance_threshold is None):
        given = "neither" if n_clusters is None else "both"
        raise ValueError(f"give exactly one of n_clusters and distance_threshold, got {given}")
    if n_clusters is None:
        if isinstance(distance_threshold, bool) or not isinstance(distance_threshold, Real):
            raise TypeError(f"distance_threshold must be a number, got {distance_threshold!r}")
        if distance_threshold != distance_threshold:
            raise ValueError("distance_threshold must not be NaN")
        try:
            float(distance_threshold)
        except OverflowError as error:
            raise ValueError("distance_threshold must fit into float64, or be infinite") from error
        return
    if not components <= as_integer(n_clusters, "n_clusters") <= n:
        why = "" if components == 1 else f" (the graph has {components} components, which nothing joins)"
        raise ValueError(f"n_clusters must be from {components} to {n}, the number of rows, got {n_clusters}{why}")


def _relabel(later: Any, flat: Any, merged: int, xp: Any) -> Any:
    """The children of later merges in the dendrogram over the clusters that the first `merged` of them made."""
    if not later.size:
        return later
    return xp.where(later < flat.size, flat[xp.minimum(later, flat.size - 1)], later - 2 * merged)


def _number(chosen: Any, xp: Any) -> Any:
    """0, 1, ... for the chosen places, `OUTLIER` for the others, int32."""
    return xp.where(chosen, xp.cumsum(chosen, dtype="int32") - 1, OUTLIER).astype("int32", copy=False)


def _count_leaves(merges: int, n_leaves: int | None) -> int:
    n = merges + 1 if n_leaves is None else as_integer(n_leaves, "n_leaves")
    if merges > n - 1:
        raise ValueError(f"linkage has {merges} rows, more than the n_leaves - 1 = {n - 1} merges of {n} leaves")
    if n > MAX_ROWS:
        raise ValueError(f"n_leaves must be at most {MAX_ROWS}, got {n}")
    return n


def check_linkage(linkage: Any, n: int, device: Device, is_forest: bool = False) -> None:
    """Raise unless the frame's columns, ids and heights are those of a dendrogram of n leaves."""
    m = len(linkage)
    for column, kinds, valid in (("left", "iu", "integers"), ("right", "iu", "integers"), ("height", "iuf", "numbers")):
        if linkage[column].dtype.kind not in kinds:
            raise InputTypeError(f"column {column!r} of the linkage must hold {valid}, got {linkage[column].dtype}")
        if column != "height" and has_gaps(linkage[column]):
            raise ValueError(f"column {column!r} of the linkage holds nulls")
    if m == 0:
        return
    xp = device.xp
    left, right = (column_values(linkage[column], device) for column in ("left", "right"))
    for column, children in (("left", left), ("right", right)):
        if int(children.min()) < 0 or int(children.max()) >= n + m - 1:
            hint = "" if is_forest else "; for the linkage of a forest, pass n_leaves"
            raise ValueError(f"column {column!r} of the linkage must hold cluster ids from 0 to {n + m - 2}{hint}")
    left, right = left.astype("int32", copy=False), right.astype("int32", copy=False)
    in_time = xp.maximum(left, right) < xp.arange(n, n + m)
    if not all_true(in_time):
        row = int((~in_time).argmax())
        raise ValueError(f"row {row} of the linkage merges a cluster that no earlier row has made")
    children, place, number = xp.concatenate((left, right)), xp.empty(n + m, "int32"), xp.arange(2 * m, dtype="int32")
    place[children] = number
    if not all_true(place[children] == number):  # of two that are one, one has lost its place
        raise ValueError("the linkage merges some cluster twice")
    if has_gaps(linkage["height"]) or not _ascends(column_values(linkage["height"], device)):
        raise ValueError("column 'height' of the linkage must not fall from one row to the next, nor hold NaN")


def _ascends(height: Any) -> bool:
    return all_true(height[1:] >= height[:-1])
