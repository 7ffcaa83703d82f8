"""Plots of a hierarchy with matplotlib: its dendrogram, its merge heights, its clusters.

Each function draws into the axes that it gets, or the current ones, and returns them. The amount drawn is bounded for
any number of rows: the last merges, a sample of the heights, a sample of the rows. No sample is random.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np

from rapids_slink.hierarchy.interop import to_scipy
from rapids_slink.hierarchy.plotted import (
    colored_groups,
    cut_label,
    is_logarithmic,
    last_merges,
    plane_coordinates,
    sample_of_heights,
    sample_of_rows,
)
from rapids_slink.points import as_points
from rapids_slink.points.columns import as_integer
from rapids_slink.points.output import on_host
from rapids_slink.report import counted
from rapids_slink.runtime.arrays import Array
from rapids_slink.runtime.device import device_of, to_host

#: Okabe and Ito's colours except black and yellow, which are distinguishable with any kind of colour blindness.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
OTHERS = "#999999"
#: More rows than this are drawn by datashader, if it is installed.
DENSE = 100_000


def plot_dendrogram(
    linkage: Any,
    *,
    ax: Any = None,
    p: int = 30,
    truncate_mode: str | None = "lastp",
    **kwargs: Any,
) -> Any:
    """Draw a dendrogram with SciPy and matplotlib.

    By default only the last ``p - 1`` merges are drawn, over `p` leaves that are whole clusters: "(1234)" is a cluster
    of 1,234 rows, "17" is row 17. This takes milliseconds besides reading the frame, whatever its size or depth.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        Columns ``left``, ``right``, ``height``, ``size``, of one tree.
    ax : matplotlib Axes, optional
        Where to draw; the current Axes by default.
    p : int
        Leaves to draw, at least 2.
    truncate_mode : {"lastp", None}
        None draws every row. SciPy does that by recursion, which fails for deep trees.
    **kwargs
        Passed on to `scipy.cluster.hierarchy.dendrogram`. ``labels`` (one per row), ``leaf_label_func`` and
        ``link_color_func`` refer to rows and clusters of the whole tree.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    ValueError
        `p` or `truncate_mode` is not valid, or the whole tree is too deep to be drawn.
    """
    from scipy.cluster import hierarchy

    _pyplot()
    if truncate_mode not in ("lastp", None):
        raise ValueError(f"truncate_mode must be 'lastp' or None, got {truncate_mode!r}")
    if as_integer(p, "p") < 2:
        raise ValueError(f"p must be at least 2, got {p}")
    Z = to_scipy(linkage)
    top, clusters = last_merges(Z, len(Z) + 1 if truncate_mode is None else p)
    ax = axes_of(ax)
    if len(top):
        kwargs["labels"] = _leaf_labels(Z, clusters[: len(top) + 1], kwargs.get("labels"))
        for name in ("leaf_label_func", "link_color_func"):
            if kwargs.get(name) is not None:
                kwargs[name] = _in_whole_tree(kwargs[name], clusters)
        if kwargs.get("orientation", "top") in ("top", "bottom"):
            kwargs.setdefault("leaf_rotation", 90)  # horizontal labels would overlap
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Attempting to set identical")  # limits, if all heights are zero
                hierarchy.dendrogram(top, ax=ax, **kwargs)
        except RecursionError as error:
            raise ValueError(
                f"a dendrogram of {len(top) + 1} leaves is too deep for SciPy to draw: lower p, or leave "
                "truncate_mode='lastp'"
            ) from error
    _name_axes(ax, sideways=kwargs.get("orientation") in ("left", "right"))
    return ax


def _leaf_labels(Z: np.ndarray, clusters: np.ndarray, names: Any) -> list[str]:
    n = len(Z) + 1
    if names is not None and len(names) != n:
        raise ValueError(f"labels must have one entry per row: {n}, got {len(names)}")
    rows = list(range(n)) if names is None else list(names)
    return [str(rows[c]) if c < n else f"({int(Z[c - n, 3])})" for c in clusters.tolist()]


def _in_whole_tree(function: Any, clusters: np.ndarray) -> Any:
    return lambda cluster: function(int(clusters[cluster]))


def _name_axes(ax: Any, sideways: bool) -> None:
    leaves, height = "row, or (rows in the cluster)", "distance"
    ax.set_xlabel(height if sideways else leaves)
    ax.set_ylabel(leaves if sideways else height)


def plot_heights(linkage: Any, n_leaves: int, *, n_clusters: int | None = None, ax: Any = None, **kwargs: Any) -> Any:
    """Draw the heights of the merges, the highest first, against the number of clusters.

    At k clusters the curve has the height of the merge that leaves k - 1 clusters. A cut between two very different
    heights is stable: it changes little when the data does. More than 2,000 heights are sampled evenly along the
    logarithmic axis: all of the highest, and ever fewer of the lower ones.

    Parameters
    ----------
    linkage : DataFrame (cuDF or pandas)
        Columns ``left``, ``right``, ``height``, ``size``, of a tree or a forest.
    n_leaves : int
        Leaves of the tree or forest.
    n_clusters : int, optional
        A cut to mark, with the distance thresholds that give it.
    ax : matplotlib Axes, optional
        Where to draw; the current Axes by default. The axis of the number of clusters is logarithmic from 100 merges
        on. The axis of heights is logarithmic if none is negative and the positive ones span two orders of magnitude.
    **kwargs
        Passed on to `matplotlib.axes.Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    heights = np.asarray(on_host(linkage["height"]))[::-1]
    trees = n_leaves - heights.size
    drawn = sample_of_heights(heights.size)
    ax = axes_of(ax)
    kwargs = {"color": COLORS[0], "marker": "o" if heights.size <= 50 else None, "markersize": 4, **kwargs}
    ax.plot(drawn + trees + 1, heights[drawn], **kwargs)
    if heights.size >= 100:
        ax.set_xscale("log")
    if is_logarithmic(heights[drawn]):
        ax.set_yscale("log")
    if n_clusters is not None:
        ax.axvline(n_clusters, color=COLORS[1], linestyle="--", label=cut_label(heights, n_clusters, trees))
        ax.legend(loc="lower left")  # a falling curve leaves this corner free
    ax.set_xlabel("number of clusters")
    ax.set_ylabel("distance of the next merge")
    return ax


def plot_clusters(X: Any, labels: Array, *, ax: Any = None, **kwargs: Any) -> Any:
    """Draw the rows as points, coloured by cluster.

    One column is drawn as a strip with an arbitrary second axis, two columns as they are, and more by the first two
    principal components of the drawn rows. Each of the six largest clusters has a colour, in order of size. All others
    and noise are grey. The fewer points a colour has, the larger they are. At most 20,000 rows are drawn, evenly spaced
    within each colour and the same number of each, so small clusters are drawn whole. Above 100,000 rows datashader, if
    installed, draws all of them: a pixel has the mixed colour of its rows, and more of it for more rows.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        The rows that were clustered, of any type that `SingleLinkage` takes.
    labels : Series or array of shape (n,)
        From 0 to the number of clusters minus one; -1 is noise.
    ax : matplotlib Axes, optional
        Where to draw; the current Axes by default. The legend is to the right of the Axes.
    **kwargs
        Passed on to `matplotlib.axes.Axes.scatter`.

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
    device = device_of(X)
    points = as_points(X, device)
    labels = np.asarray(on_host(labels))
    if len(points.values) != labels.size:
        raise ValueError(f"X must have the {labels.size:,} rows that were clustered, got {len(points.values):,}")
    sizes, noise, _, largest, color = colored_groups(labels, len(COLORS))
    dense = labels.size > DENSE and find_spec("datashader") is not None and not kwargs
    rows = np.arange(labels.size) if dense else sample_of_rows(color)
    coordinates, names = plane_coordinates(to_host(points.values[device.asarray(rows)]), rows, points.names)
    drawn = color[rows]
    names_of = [f"{cluster} ({counted(sizes[cluster], 'row')})" for cluster in largest.tolist()]
    rest = sizes.sum() - sizes[largest].sum()
    others = [(counted(sizes.size - largest.size, "other"), rest), ("noise", noise)]
    if rest or noise:
        names_of.append(", ".join(f"{name} ({counted(rows, 'row')})" for name, rows in others if rows))
    ax = axes_of(ax)
    counts = np.bincount(drawn)
    handles = [None] * counts.size
    if dense:
        shade(ax, coordinates, drawn, [*COLORS[: largest.size], OTHERS])
    for i in np.argsort(-counts, kind="stable").tolist():  # colours of few points last, on top and larger
        style = {"color": COLORS[i] if i < largest.size else OTHERS, "s": float(np.clip(8_000 / counts[i], 4, 40))}
        shown = coordinates[:0] if dense else coordinates[drawn == i]
        handles[i] = ax.scatter(*shown.T, label=names_of[i], **{"linewidths": 0, **style, **kwargs})
    legend = ax.legend(handles, names_of, title="cluster", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    for handle in legend.legend_handles:
        handle.set_sizes([30])
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    if points.values.shape[1] == 1:
        ax.set_yticks([])
    return ax


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install 'rapids_slink[plot]'") from error
    return pyplot


def shade(ax: Any, coordinates: np.ndarray, group: np.ndarray, colors: list[str]) -> None:
    """Draw points with datashader, each in the colour of its group."""
    import datashader
    import pandas as pd
    from datashader.mpl_ext import dsshow

    table = pd.DataFrame(coordinates, columns=["x", "y"]).assign(group=pd.Categorical(group))
    key = [colors[i] for i in table["group"].cat.categories]
    count = datashader.by("group", datashader.count())
    dsshow(table, datashader.Point("x", "y"), count, color_key=key, aspect="auto", alpha_range=(90, 255), ax=ax)


def axes_of(ax: Any) -> Any:
    """The caller's axes, or the current ones. A new figure leaves space for a legend."""
    pyplot = _pyplot()
    if ax is None and not pyplot.get_fignums():
        pyplot.figure(layout="constrained")
    return pyplot.gca() if ax is None else ax
