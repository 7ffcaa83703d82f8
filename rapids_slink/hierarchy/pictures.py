"""The spanning tree on a map of the rows, with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.hierarchy.plots import COLORS, OTHERS, axes_of
from rapids_slink.hierarchy.plotted import MAX_POINTS, plane_coordinates
from rapids_slink.points import as_points
from rapids_slink.points.columns import as_integer
from rapids_slink.points.output import is_collection, on_host
from rapids_slink.report import counted
from rapids_slink.runtime.device import device_of, to_host


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
