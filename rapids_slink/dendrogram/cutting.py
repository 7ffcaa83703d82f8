"""Labels from a linkage frame, on whichever device the frame is: whole-array gathers and one groupby.

A cut keeps a prefix of the merges. Each kept merge points at the kept merge that absorbs it; doubling these pointers
finds the last one in as many steps as the depth has bits. No step depends on the shape of the tree.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

from rapids_slink.device import Device, is_on_gpu, resolve
from rapids_slink.points import Caller, InputTypeError, as_integer, require_columns

COLUMNS = ("left", "right", "height", "size")


def cut(
    linkage: Any,
    *,
    n_clusters: int | None = None,
    distance_threshold: float | None = None,
    n_leaves: int | None = None,
) -> Any:
    """Flat clusters from a dendrogram.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        As `rapids_slink.linkage` returns it: ``left``, ``right``, ``height``, ``size``.
    n_clusters : int, optional
        How many clusters to leave, from 1 to the number of leaves: the last ``n_clusters - 1`` merges are undone. It
        is met exactly, heights that tie included.
    distance_threshold : float, optional
        Clusters at or above this distance are not merged (scikit-learn's meaning). Give this or `n_clusters`.
    n_leaves : int, optional
        The number of leaves, for a forest's linkage; by default one more than the number of merges.

    Returns
    -------
    Series of int32
        A label 0..k-1 for each leaf, numbered in order of first appearance, of the kind that `linkage` is.

    Raises
    ------
    ValueError
        Both or neither cut is given, one is out of range, or `linkage` is not the dendrogram of `n_leaves` leaves.
    TypeError
        `n_clusters` is not an integer, `distance_threshold` not a number, `linkage` not a DataFrame.

    Notes
    -----
    Section 3.3.2 of the cuSLINK paper inherits labels level by level; a chain has as many levels as leaves.
    """
    linkage, caller = Caller.of(linkage, resolve("auto", linkage))
    n = _check_linkage(linkage, n_leaves)
    labels = cut_labels(linkage, n, n_clusters=n_clusters, distance_threshold=distance_threshold)
    return caller.series(labels, name="label")


def cut_labels(
    linkage: Any,
    n_leaves: int,
    *,
    n_clusters: int | None = None,
    distance_threshold: float | None = None,
) -> Any:
    """`cut` for a linkage frame known to be right: an int32 array of shape (n_leaves,) on the frame's device."""
    device = _device_of(linkage)
    merges = linkage.iloc[: _count_merges(linkage, n_leaves, n_clusters, distance_threshold)]
    return _number_by_appearance(_clusters_of_leaves(merges, n_leaves, device), device)


def _count_merges(linkage: Any, n: int, n_clusters: Any, distance_threshold: Any) -> int:
    """How many of the first merges a cut keeps."""
    check_cut(n, n - len(linkage), n_clusters, distance_threshold)
    if n_clusters is None:
        return int((linkage["height"] < distance_threshold).sum())
    return n - int(n_clusters)


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
        return
    if not components <= as_integer(n_clusters, "n_clusters") <= n:
        why = "" if components == 1 else f" (the graph has {components} components, which nothing joins)"
        raise ValueError(f"n_clusters must be from {components} to {n}, the number of rows, got {n_clusters}{why}")


def _clusters_of_leaves(merges: Any, n: int, device: Device) -> Any:
    """For each leaf the cluster it ends in: its own id, or that of the last merge that takes it in."""
    xp = device.xp
    if len(merges) == 0:
        return xp.arange(n)
    made = xp.arange(n, n + len(merges))
    parent = xp.arange(n + len(merges))
    parent[merges["left"].values] = made
    parent[merges["right"].values] = made
    last = parent[n:] - n
    while True:
        further = last[last]
        if bool((further == last).all()):
            break
        last = further
    parent[n:] = last + n
    return parent[parent[:n]]


def _number_by_appearance(clusters: Any, device: Device) -> Any:
    """Ids to 0..k-1, in order of first appearance."""
    xp = device.xp
    rows = xp.arange(len(clusters))
    # The groupby's key is an id, so merging its result back into the rows is a gather.
    first = device.frame({"cluster": clusters, "row": rows}).groupby("cluster", sort=False).min()
    opener = xp.empty(int(clusters.max()) + 1, dtype=rows.dtype)
    opener[first.index.values] = first["row"].values
    opener = opener[clusters]
    return (xp.cumsum(opener == rows) - 1).astype(xp.int32)[opener]


def _device_of(frame: Any) -> Device:
    return resolve("cuda" if is_on_gpu(frame) else "cpu")


def _check_linkage(linkage: Any, n_leaves: int | None) -> int:
    """The number of leaves, once the frame's columns, ids and heights are found to fit."""
    require_columns(linkage, COLUMNS, "linkage")
    m = len(linkage)
    n = m + 1 if n_leaves is None else as_integer(n_leaves, "n_leaves")
    if m > n - 1:
        raise ValueError(f"linkage has {m} rows, more than the n_leaves - 1 = {n - 1} merges of {n} leaves")
    for column in ("left", "right"):
        if linkage[column].dtype.kind not in "iu":
            raise InputTypeError(f"column {column!r} of the linkage must hold integers, got {linkage[column].dtype}")
        if m and (int(linkage[column].min()) < 0 or int(linkage[column].max()) >= n + m - 1):
            hint = "; for the linkage of a forest, pass n_leaves" if n_leaves is None else ""
            raise ValueError(f"column {column!r} of the linkage must hold cluster ids from 0 to {n + m - 2}{hint}")
    children = linkage[["left", "right"]].values
    xp = _device_of(linkage).xp
    late = xp.flatnonzero((children >= n + xp.arange(m)[:, None]).any(axis=1))
    if late.size:
        raise ValueError(f"row {int(late[0])} of the linkage merges a cluster that no earlier row has made")
    merged = xp.zeros(n + m, bool)
    merged[children.ravel()] = True
    if int(merged.sum()) < 2 * m:
        raise ValueError("the linkage merges some cluster twice")
    if not linkage["height"].is_monotonic_increasing:
        raise ValueError("column 'height' of the linkage must not fall from one row to the next, nor hold NaN")
    return n
