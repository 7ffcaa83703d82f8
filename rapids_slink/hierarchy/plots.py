"""Plots of a hierarchy with matplotlib: its dendrogram, its merge heights, its clusters, its spanning tree.

Each function draws into the axes that it gets, or the current ones, and returns them. The amount drawn is bounded for
any number of rows: the last merges, a sample of the heights, a sample of the rows. No sample is random.
"""

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.hierarchy.exports import to_scipy
from rapids_slink.hierarchy.plotted import (
    MAX_POINTS,
    colored_groups,
    cut_label,
    drawn_merges,
    is_logarithmic,
    plane_coordinates,
    sample_of_heights,
    sample_of_rows,
)
from rapids_slink.points import Points, as_points
from rapids_slink.points.columns import as_integer
from rapids_slink.points.output import as_frame, is_collection, on_host
from rapids_slink.report import counted
from rapids_slink.runtime.device import Array, device_of, to_host

#: Okabe and Ito's colours except black and yellow, which are distinguishable with any kind of colour blindness.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
OTHERS = "#999999"
#: More rows than this are drawn by datashader, if it is installed.
DENSE = 100_000


def plot_dendrogram(
    linkage: Any, *, ax: Any = None, p: int = 30, truncate_mode: str | None = "lastp", **kwargs: Any
) -> Any:
    """`Hierarchy.plot` of a linkage frame of one tree."""
    from scipy.cluster import hierarchy

    if truncate_mode not in ("lastp", None):
        raise ValueError(f"truncate_mode must be 'lastp' or None, got {truncate_mode!r}")
    if as_integer(p, "p") < 2:
        raise ValueError(f"p must be at least 2, got {p}")
    Z, labels = to_scipy(linkage), kwargs.get("labels")
    n = len(Z) + 1
    if labels is not None and len(labels) != n:
        raise ValueError(f"labels must have one entry per row: {n}, got {len(labels)}")
    ax = axes_of(ax)
    if len(Z):
        if kwargs.get("orientation", "top") in ("top", "bottom"):
            kwargs.setdefault("leaf_rotation", 90)  # horizontal labels would overlap
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Attempting to set identical")  # limits, if all heights are zero
                hierarchy.dendrogram(Z, p=int(p), truncate_mode=truncate_mode, ax=ax, **kwargs)
        except RecursionError as error:
            raise ValueError(
                f"a dendrogram of {n if truncate_mode is None else p} leaves is too deep for SciPy to draw: lower p, "
                "or leave truncate_mode='lastp'"
            ) from error
    names = "row, or (rows in the cluster)", "distance"
    xlabel, ylabel = names[::-1] if kwargs.get("orientation") in ("left", "right") else names
    ax.set(xlabel=xlabel, ylabel=ylabel)
    return ax


def plot_linkage_tree(
    Z: np.ndarray,
    *,
    axis: Any = None,
    truncate_mode: str | None = None,
    p: int = 0,
    vary_line_width: bool = True,
    cmap: Any = "viridis",
    colorbar: bool = True,
) -> Any:
    """`SingleLinkageTree.plot` of SciPy's Z."""
    axis = axes_of(axis)
    from matplotlib.collections import LineCollection

    merges, corners = drawn_merges(Z, truncate_mode, as_integer(p, "p"))
    sizes = np.concatenate([np.ones(len(Z) + 1), Z[:, 3]])[Z[merges, :2].astype(np.int64)]
    rows = np.log2(sizes if vary_line_width else np.ones_like(sizes)).ravel()
    sides = corners.reshape(-1, 2, 2)  # of each merge the line on the left, from below, and then the one on the right
    lines = LineCollection(list(sides), linewidths=np.log2(1 + 2**rows), capstyle="butt")
    if cmap == "none":
        lines.set_color("k")
    else:
        lines.set(cmap=cmap, array=rows, clim=(0, rows.max(initial=1.0)))
    axis.add_collection(lines)
    axis.add_collection(LineCollection(list(corners[:, 1:3]), linewidths=1.0, colors="k"))
    if colorbar and cmap != "none":
        axis.figure.colorbar(lines, ax=axis, label="log(Number of points)")
    axis.autoscale_view()
    axis.set(xticks=[], ylabel="distance")
    axis.spines[["right", "top", "bottom"]].set_visible(False)
    return axis


def plot_spanning_tree(
    rows: Array,
    mst: Any,
    *,
    axis: Any = None,
    node_size: float = 40,
    node_color: Any = "k",
    node_alpha: float = 0.8,
    edge_alpha: float = 0.5,
    edge_cmap: Any = "viridis_r",
    edge_linewidth: float = 2,
    vary_line_width: bool = True,
    colorbar: bool = True,
) -> Any:
    """`MinimumSpanningTree.plot` of rows and an edge frame in ascending order of weight."""
    axis = axes_of(axis)
    from matplotlib.collections import LineCollection

    coordinates, _ = plane_coordinates(rows if rows.shape[1] > 2 else to_host(rows), np.arange(len(rows)), None)
    longest = on_host(mst).iloc[-MAX_POINTS:]
    weight = longest["weight"].to_numpy()
    width = np.full(weight.size, float(edge_linewidth))
    if vary_line_width and weight.max(initial=0.0) > 0:  # rows at distance zero get the width of the shortest edge
        width *= 1 - np.log(np.maximum(weight, weight[weight > 0].min()) / weight.max())
    lines = LineCollection(
        list(coordinates[longest[["src", "dst"]].to_numpy()]),
        linewidths=width,
        cmap=edge_cmap,
        array=weight,
        alpha=edge_alpha,
    )
    axis.add_collection(lines)
    shown = coordinates[:: -(-len(rows) // MAX_POINTS)]
    axis.scatter(*shown.T, c=node_color, alpha=node_alpha, s=node_size)
    if colorbar:
        axis.figure.colorbar(lines, ax=axis, label="Mutual reachability distance")
    axis.set(xticks=[], yticks=[])
    return axis


def plot_heights(linkage: Any, n_leaves: int, *, n_clusters: int | None = None, ax: Any = None, **kwargs: Any) -> Any:
    """`Hierarchy.plot_heights` of a linkage frame of a tree or a forest, with the cut into `n_clusters` marked."""
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
    ax.set(xlabel="number of clusters", ylabel="distance of the next merge")
    return ax


def plot_clusters(X: Any, labels: Array, *, ax: Any = None, **kwargs: Any) -> Any:
    """`Hierarchy.plot_clusters` of rows of any type that `SingleLinkage` takes; label -1 is noise."""
    points, labels = _rows_and_labels(X, labels)
    sizes, noise, _, largest, color = colored_groups(labels, len(COLORS))
    dense = labels.size > DENSE and find_spec("datashader") is not None and not kwargs
    rows = np.arange(labels.size) if dense else sample_of_rows(color)
    coordinates, names = plane_coordinates(
        to_host(points.values[device_of(points.values).asarray(rows)]), rows, points.names
    )
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
    ax.set(xlabel=names[0], ylabel=names[1])
    if points.values.shape[1] == 1:
        ax.set_yticks([])
    return ax


def plot_tree(X: Any, mst: Any, labels: Any, *, nodes: Any = None, max_edges: int = MAX_POINTS, ax: Any = None) -> Any:
    """`Hierarchy.plot_tree` of rows and an edge frame in ascending order of weight, of these nodes or row numbers."""
    points, labels = _rows_and_labels(X, labels)
    ax = axes_of(ax)
    from matplotlib.collections import LineCollection

    values = points.values if points.values.shape[1] > 2 else to_host(points.values)
    coordinates, names = plane_coordinates(values, np.arange(labels.size), points.names)
    mst = as_frame(on_host(mst) if is_collection(mst) else mst)
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


def _rows_and_labels(X: Any, labels: Array) -> tuple[Points, np.ndarray]:
    points, labels = as_points(X, device_of(X)), np.asarray(on_host(labels))
    if len(points.values) != labels.size:
        raise ValueError(f"X must have the {labels.size:,} rows that were clustered, got {len(points.values):,}")
    return points, labels


def shade(ax: Any, coordinates: np.ndarray, group: np.ndarray, colors: list[str]) -> None:
    """Draw points with datashader, each in the colour of its group."""
    import datashader
    from datashader.mpl_ext import dsshow

    table = pd.DataFrame(coordinates, columns=["x", "y"]).assign(group=pd.Categorical(group))
    key = [colors[i] for i in table["group"].cat.categories]
    count = datashader.by("group", datashader.count())
    dsshow(table, datashader.Point("x", "y"), count, color_key=key, aspect="auto", alpha_range=(90, 255), ax=ax)


def axes_of(ax: Any) -> Any:
    """The caller's axes, or the current ones. A new figure leaves space for a legend."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install 'rapids_slink[plot]'") from error
    if ax is None and not pyplot.get_fignums():
        pyplot.figure(layout="constrained")
    return pyplot.gca() if ax is None else ax
