"""Pictures of whole trees with matplotlib: the condensed tree as an icicle, the spanning tree on a map of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.condense import Condensed, condense
from rapids_slink.dendrogram.selection import Rule, select, summarize
from rapids_slink.hierarchy.plots import COLORS, OTHERS, axes_of
from rapids_slink.hierarchy.plotted import MAX_POINTS, is_logarithmic, plane_coordinates
from rapids_slink.points import as_points
from rapids_slink.points.columns import as_integer
from rapids_slink.points.output import is_collection, on_host
from rapids_slink.report import counted
from rapids_slink.runtime.device import device_of, to_host

#: By default the smallest branch of an icicle has one row in `SHARE`, and at least `FEWEST`.
SHARE, FEWEST = 100, 5


def plot_condensed(linkage: Any, *, min_cluster_size: int | None = None, ax: Any = None) -> Any:
    """Draw the condensed tree as an icicle: a bar for each cluster, from where it splits off to where it ends.

    From the top down, a merge of two parts of at least `min_cluster_size` rows splits a bar in two. At every other
    merge rows fall out of a bar, which gets narrower. The width is the number of rows. A chain, whose dendrogram is a
    comb, is one bar. The most stable clusters, which `HDBSCAN` would choose, have colours.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        Columns ``left``, ``right``, ``height``, ``size``, of one tree with heights that are not negative.
    min_cluster_size : int, optional
        At least 2. By default a hundredth of the rows, at least 5.
    ax : matplotlib Axes, optional
        Where to draw; the current Axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    ValueError, TypeError
        `min_cluster_size` is not valid, or a height is negative.
    """
    left, right, height, size = (np.asarray(on_host(linkage[name])) for name in ("left", "right", "height", "size"))
    n = height.size + 1
    least = max(FEWEST, n // SHARE) if min_cluster_size is None else as_integer(min_cluster_size, "min_cluster_size")
    if least < 2:
        raise ValueError(f"min_cluster_size must be at least 2, got {min_cluster_size}")
    if n > 1 and height[0] < 0:
        raise ValueError(f"a condensed tree needs distances that are not negative, got {height[0]}")
    ax = axes_of(ax)
    tree = condense(left, right, height, size, n, least)
    starts = _starts(tree)
    splits = np.isin(np.arange(tree.parent.size), tree.parent[1:])
    lowest = height[height > 0][0] if (height > 0).any() else 0.0
    order, labels = np.argsort(tree.cluster, kind="stable"), select(tree, Rule(), summarize(tree)).labels
    members = np.split(order, np.cumsum(np.bincount(tree.cluster, minlength=tree.parent.size))[:-1])
    for c, rows in enumerate(members):
        label = labels[rows[0]] if rows.size else -1  # that of all rows that fall out of the bar
        color = OTHERS if label < 0 else COLORS[label % len(COLORS)]
        ends = [tree.birth[tree.parent == c][:1], tree.departure[rows]]
        top = 1 / tree.birth[c] if tree.birth[c] > 0 else height[-1] if n > 1 else 0.0
        falls = np.sort(_heights(np.concatenate(ends), lowest))[::-1]
        if not splits[c]:  # one row is the last
            falls = falls[: max(1, falls.size - 1)]
        at = np.unique(np.linspace(0, falls.size - 1, 200).astype(int))
        width = tree.size[c] - np.minimum(at, rows.size)
        levels = np.concatenate([[top], np.minimum(falls[at], top)])
        ax.fill_betweenx(levels, starts[c], starts[c] + np.concatenate([width, width[-1:]]), step="pre", color=color)
    if n > 1 and is_logarithmic(height[::-1]):
        ax.set_yscale("log")
    ax.set(xlim=(0, n), xlabel=f"rows, in branches of at least {least:,}", ylabel="distance")
    return ax


def _starts(tree: Condensed) -> np.ndarray:
    """Where each bar begins: the two of a split side by side within the bar that they split."""
    starts, used = np.zeros(tree.parent.size), np.zeros(tree.parent.size)
    for c in range(1, tree.parent.size):
        p = tree.parent[c]
        starts[c] = starts[p] + used[p]
        used[p] += tree.size[c]
    return starts


def _heights(rates: np.ndarray, lowest: float) -> np.ndarray:
    """The heights of some λ; those at zero are the lowest above it, which a logarithmic axis can show."""
    with np.errstate(divide="ignore"):
        return np.maximum(1 / rates, lowest)


def plot_tree(X: Any, mst: Any, labels: Any, *, nodes: Any = None, max_edges: int = MAX_POINTS, ax: Any = None) -> Any:
    """Draw the minimum spanning tree on the rows: the edges within clusters, and those that the cut removes.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        The rows that were clustered. Of more than two columns the first two principal components are drawn.
    mst : DataFrame (cuDF or pandas)
        Columns ``src``, ``dst``, ``weight``, in ascending order of the weight.
    labels : Series or array of shape (n,)
        An edge between two labels is one that the cut removes.
    nodes : sequence, optional
        The ids of the rows in `mst`; by default their numbers.
    max_edges : int
        Of more edges the longest are drawn, which join whole parts of the data.
    ax : matplotlib Axes, optional
        Where to draw; the current Axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    ValueError, TypeError
        `X` is not valid, or does not have the number of rows that were clustered.
    """
    points, labels = as_points(X, device_of(X)), np.asarray(on_host(labels))
    if len(points.values) != labels.size:
        raise ValueError(f"X must have the {labels.size:,} rows that were clustered, got {len(points.values):,}")
    ax = axes_of(ax)
    from matplotlib.collections import LineCollection

    values = points.values if points.values.shape[1] > 2 else to_host(points.values)
    coordinates, names = plane_coordinates(values, np.arange(labels.size), points.names)
    mst = on_host(mst) if is_collection(mst) else mst
    drawn = mst.iloc[max(0, len(mst) - as_integer(max_edges, "max_edges")) :]
    ids = [np.asarray(on_host(drawn[side])) for side in ("src", "dst")]
    if nodes is not None and not isinstance(nodes, range):
        ids = [pd.Index(on_host(nodes)).get_indexer(column) for column in ids]
    ends = np.column_stack(ids)
    removed = labels[ends[:, 0]] != labels[ends[:, 1]] if len(ends) else np.zeros(0, bool)
    thin = float(np.clip(300 / max(1, len(ends)), 0.3, 1.2))
    for chosen, color, what in ((~removed, COLORS[0], "within clusters"), (removed, COLORS[1], "removed by the cut")):
        width = thin if color == COLORS[0] else 1.5
        lines = LineCollection(list(coordinates[ends[chosen]]), colors=color, linewidths=width)
        ax.add_collection(lines).set_label(f"{what} ({counted(int(chosen.sum()), 'edge')})")
    rows = coordinates[:: -(-labels.size // MAX_POINTS)]
    ax.scatter(*rows.T, s=float(np.clip(2_000 / len(rows), 0.5, 6)), color=OTHERS, linewidths=0, zorder=0)
    hidden = len(mst) - len(ends)
    ax.legend(title=f"without the {counted(hidden, 'shortest edge')}" if hidden else None, loc="upper left",
              bbox_to_anchor=(1.01, 1), borderaxespad=0)  # fmt: skip
    ax.set(xlabel=names[0], ylabel=names[1])
    ax.autoscale_view()
    return ax
