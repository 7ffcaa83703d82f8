"""Dendrograms for others: SciPy's linkage matrix, and a plot."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.device import to_host
from rapids_slink.points import as_integer, require_columns


def to_scipy(linkage: Any) -> np.ndarray:
    """A linkage frame as the matrix that ``scipy.cluster.hierarchy`` takes.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        Columns ``left``, ``right``, ``height``, ``size``, of one tree over n leaves.

    Returns
    -------
    ndarray of shape (n - 1, 4), float64

    Raises
    ------
    InputTypeError
        `linkage` is not a DataFrame.
    ValueError
        It lacks a column, or is the linkage of a forest, which SciPy's matrix cannot express.
    """
    require_columns(linkage, COLUMNS, "linkage")
    Z = np.empty((len(linkage), 4))
    for i, column in enumerate(COLUMNS):
        Z[:, i] = to_host(linkage[column].values)
    n = len(Z) + 1
    if len(Z) and (Z[-1, 3] != n or (Z[:, :2].max(axis=1) >= n + np.arange(len(Z))).any()):
        raise ValueError(f"the {n - 1} merges do not join {n} leaves into one tree: SciPy has no linkage of a forest")
    return Z


def plot_dendrogram(
    linkage: Any,
    *,
    ax: Any = None,
    p: int = 30,
    truncate_mode: str | None = "lastp",
    **kwargs: Any,
) -> Any:
    """Draw a dendrogram with SciPy and matplotlib.

    Only the last ``p - 1`` merges are drawn by default, over `p` leaves that are whole clusters: "(1234)" is a
    cluster of 1,234 rows, "17" is row 17. That takes milliseconds beside reading the frame, whatever its size or
    depth.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        Columns ``left``, ``right``, ``height``, ``size``, of one tree.
    ax : matplotlib Axes, optional
        Where to draw; the current Axes by default.
    p : int
        Leaves to draw, at least 2.
    truncate_mode : {"lastp", None}
        None draws every row, which SciPy does by recursion: it cannot where the tree is deep.
    **kwargs
        Passed on to `scipy.cluster.hierarchy.dendrogram`. ``labels`` (one a row), ``leaf_label_func`` and
        ``link_color_func`` speak of rows and clusters of the whole tree.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        matplotlib is not installed.
    ValueError
        `p` or `truncate_mode` is not valid, or the whole tree is too deep to be drawn.
    """
    from scipy.cluster import hierarchy

    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install 'rapids_slink[plot]'") from error

    if truncate_mode not in ("lastp", None):
        raise ValueError(f"truncate_mode must be 'lastp' or None, got {truncate_mode!r}")
    if as_integer(p, "p") < 2:
        raise ValueError(f"p must be at least 2, got {p}")
    Z = to_scipy(linkage)
    top, clusters = _last_merges(Z, len(Z) + 1 if truncate_mode is None else p)
    ax = pyplot.gca() if ax is None else ax
    if len(top):
        kwargs["labels"] = _leaf_labels(Z, clusters[: len(top) + 1], kwargs.get("labels"))
        for name in ("leaf_label_func", "link_color_func"):
            if kwargs.get(name) is not None:
                kwargs[name] = _in_whole_tree(kwargs[name], clusters)
        if kwargs.get("orientation", "top") in ("top", "bottom"):
            kwargs.setdefault("leaf_rotation", 90)  # side by side they would overlap
        try:
            hierarchy.dendrogram(top, ax=ax, **kwargs)
        except RecursionError as error:
            raise ValueError(
                f"a dendrogram of {len(top) + 1} leaves is too deep for SciPy to draw: lower p, or leave "
                "truncate_mode='lastp'"
            ) from error
    _name_axes(ax, sideways=kwargs.get("orientation") in ("left", "right"))
    return ax


def _last_merges(Z: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The top of a tree as a tree of at most `p` leaves, and the cluster in `Z` that each of its ids stands for.

    The kept merges are the last, so the clusters they join, but for the merges themselves, are p in number: those
    are the leaves. They keep their order, so left stays below right. A size counts the new leaves, for SciPy
    refuses anything else.
    """
    n = len(Z) + 1
    kept = min(p - 1, n - 1)
    top = Z[n - 1 - kept :].copy()
    first = 2 * n - 1 - kept  # the id of the first kept merge
    children = top[:, :2].astype(np.int64)
    leaves = np.sort(children[children < first])
    top[:, :2] = np.where(children < first, np.searchsorted(leaves, children), children - first + kept + 1)
    size = np.ones(2 * kept + 1)
    for i, (left, right) in enumerate(top[:, :2].astype(np.int64)):
        size[kept + 1 + i] = top[i, 3] = size[left] + size[right]
    return top, np.concatenate([leaves, np.arange(first, 2 * n - 1)])


def _leaf_labels(Z: np.ndarray, clusters: np.ndarray, names: Any) -> list[str]:
    n = len(Z) + 1
    if names is not None and len(names) != n:
        raise ValueError(f"labels must be one a row: {n}, got {len(names)}")
    rows = list(range(n)) if names is None else list(names)
    return [str(rows[c]) if c < n else f"({int(Z[c - n, 3])})" for c in clusters.tolist()]


def _in_whole_tree(function: Any, clusters: np.ndarray) -> Any:
    return lambda cluster: function(int(clusters[cluster]))


def _name_axes(ax: Any, sideways: bool) -> None:
    leaves, height = "row, or (rows in the cluster)", "distance"
    ax.set_xlabel(height if sideways else leaves)
    ax.set_ylabel(leaves if sideways else height)
