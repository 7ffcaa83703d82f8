"""Plots of a hierarchy, the samples that they show of a large one, and its summary as HTML for Jupyter."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from rapids_slink.hierarchy.exports import to_scipy
from rapids_slink.points import Points, as_points
from rapids_slink.points.check import as_integer
from rapids_slink.points.output import as_frame, is_collection, on_host
from rapids_slink.report import counted, entry_text, in_words
from rapids_slink.runtime.device import Array, device_of, is_on_gpu, to_host

if TYPE_CHECKING:
    from rapids_slink.hierarchy.model import Hierarchy


#: Okabe and Ito's colours except black and yellow, which are distinguishable with any kind of colour blindness.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
OTHERS = "#999999"
#: More rows than this are drawn by datashader, if it is installed.
DENSE = 100_000
#: The largest number of rows that `plot_clusters` draws, and of heights that `plot_heights` draws.
MAX_POINTS = 20_000
MAX_HEIGHTS = 2_000
#: The largest number of clusters that are listed.
LISTED = 10
BLOCK = 'style="display: inline-block; vertical-align: top; margin: 0.3em 2em 0.3em 0"'


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


def plot_clusters(X: Any, labels: Array, *, colors: Sequence[str] = COLORS, ax: Any = None, **kwargs: Any) -> Any:
    """`Hierarchy.plot_clusters` of rows of any type that `SingleLinkage` takes, the largest clusters in these colours.

    Label -1 is noise.
    """
    points, labels = _rows_and_labels(X, labels)
    sizes, noise, _, largest, color = colored_groups(labels, len(colors))
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
        shade(ax, coordinates, drawn, [*colors[: largest.size], OTHERS])
    for i in np.argsort(-counts, kind="stable").tolist():  # colours of few points last, on top and larger
        style = {"color": colors[i] if i < largest.size else OTHERS, "s": float(np.clip(8_000 / counts[i], 4, 40))}
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


# ------------------------------------------------------------------------------------------------------- samples


def sample_of_heights(n: int) -> np.ndarray:
    """At most `MAX_HEIGHTS` numbers below n, evenly by their logarithm, with the first and the last."""
    if n <= MAX_HEIGHTS:
        return np.arange(n)
    return np.unique(np.rint(np.geomspace(1, n, MAX_HEIGHTS)).astype(np.int64)) - 1


def sample_of_rows(group: np.ndarray) -> np.ndarray:
    """At most `MAX_POINTS` rows, in order: the same number of every group, evenly spaced, or all of a small group."""
    if group.size <= MAX_POINTS:
        return np.arange(group.size)
    sizes = np.bincount(group)
    low, high = 0, int(sizes.max())
    while low < high:  # for the largest number that fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= MAX_POINTS else (low, middle - 1)
    order = np.argsort(group, kind="stable")
    size = sizes[group[order]]
    position = np.arange(group.size) - (np.cumsum(sizes) - sizes)[group[order]]
    kept = np.minimum(size, low)
    return np.sort(order[(position + 1) * kept // size > position * kept // size])


def drawn_merges(Z: np.ndarray, truncate_mode: str | None, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The merges that a truncated dendrogram shows, ascending, and the corners of each, (merges, 4, 2).

    These are SciPy's: from below the left part over its height and over the right part's back down. Leaves are 10
    apart, and a part whose merges are not shown is a leaf. Without recursion, so that the tree may have any depth.
    """
    n, parts, height = len(Z) + 1, Z[:, :2].astype(np.int64), Z[:, 2]
    shown = np.ones(n - 1, bool)
    if truncate_mode == "lastp":
        shown[: n - p if 0 < p < n else 0] = False
    elif truncate_mode in ("level", "mtica"):
        level = np.zeros(2 * n - 1, np.int64)
        for i in range(n - 2, -1, -1):
            level[parts[i]] = level[n + i] + 1
        shown = level[n:] <= (p if p > 0 else n)
    elif truncate_mode not in (None, "none"):
        raise ValueError(f"truncate_mode must be None, 'lastp' or 'level', got {truncate_mode!r}")
    x, y, leaves, waiting = np.zeros(2 * n - 1), np.zeros(2 * n - 1), 0, [2 * n - 2]
    while waiting:
        node = waiting.pop()
        if node >= n and shown[node - n]:
            waiting += parts[node - n, ::-1].tolist()  # the left part is next
        else:
            x[node], leaves = 10 * leaves + 5, leaves + 1
    merges = np.flatnonzero(shown)
    for i in merges.tolist():
        x[n + i], y[n + i] = x[parts[i]].mean(), height[i]
    first, second = (np.column_stack([x[side], y[side]]) for side in parts[merges].T)
    top = height[merges]
    corners = [first, np.column_stack([first[:, 0], top]), np.column_stack([second[:, 0], top]), second]
    return merges, np.stack(corners, axis=1)


class Groups(NamedTuple):
    """Clusters by the colours of their rows."""

    #: `sizes` and `noise`: (clusters,) int64, int; rows of each cluster, and rows in none
    sizes: np.ndarray
    noise: int
    #: `order` and `largest`: int64 arrays, the clusters from the largest to the smallest; those that have a colour
    order: np.ndarray
    largest: np.ndarray
    color: np.ndarray  # (n,) int8, for each row a position in `largest`, or the length of that for all others


def colored_groups(labels: np.ndarray, colors: int) -> Groups:
    """The clusters of some labels, the largest of which have the colours."""
    sizes, noise = np.bincount(labels[labels >= 0]), int((labels < 0).sum())
    order = np.argsort(-sizes, kind="stable")
    largest = order[:colors]
    color = np.full(sizes.size + 1, largest.size, np.int8)  # the last is for noise, label -1
    color[largest] = np.arange(largest.size)
    return Groups(sizes, noise, order, largest, color[labels])


def is_logarithmic(heights: np.ndarray) -> bool:
    """Whether an axis of descending heights is: none is negative, the positive ones span two orders of magnitude."""
    positive = heights[heights > 0]
    return bool(positive.size and heights[-1] >= 0 and positive[0] > 100 * positive[-1])


def cut_label(heights: np.ndarray, n_clusters: int, trees: int) -> str:
    """The number of clusters of a cut, and the distances that give it."""
    undone = n_clusters - trees
    above = f"{heights[undone]:.6g} < " if undone < heights.size else ""
    below = f" ≤ {heights[undone - 1]:.6g}" if undone else ""
    return counted(n_clusters, "cluster") + (f" ({above}distance{below})" if above or below else "")


def map_coordinates(radians: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Longitudes and latitudes in degrees, and their names, of latitudes and longitudes in radians."""
    return np.degrees(radians[:, ::-1]), ["longitude", "latitude"]


def plane_coordinates(values: Array, rows: np.ndarray, names: Any) -> tuple[np.ndarray, list[str]]:
    """Two coordinates for each of the rows, and their names. Of three and more features they are principal axes."""
    n, d = values.shape
    if d == 1:
        scatter = rows * 0.6180339887498949 % 1  # multiples of the golden ratio are spread evenly
        return np.column_stack([values[:, 0], scatter]), ["feature 0" if names is None else str(names[0]), ""]
    if d == 2:
        return values, [f"feature {i}" if names is None else str(names[i]) for i in range(2)]
    if not (is_on_gpu(values) and find_spec("cuml")):
        values = to_host(values)
    PCA = import_module("cuml.decomposition" if is_on_gpu(values) else "sklearn.decomposition").PCA
    titles = ["first principal component", "second principal component"]
    centred = values.astype(np.float64) - values[0]
    scale = float(abs(centred).max())
    if scale == 0:
        return np.zeros((n, 2)), titles
    model = PCA(2, random_state=0)
    coordinates = to_host(model.fit_transform(centred / scale)) * scale  # scaled, its squares stay in range
    shares = to_host(model.explained_variance_ratio_).tolist()
    return coordinates, [f"{title} ({share:.0%})" for title, share in zip(titles, shares, strict=True)]


# ---------------------------------------------------------------------------------------------------------- HTML


def to_html(model: Hierarchy) -> str:
    """A fitted model's cut, clusters by size and parameters; folded, what was proven and the stages' times.

    One ``div`` without scripts, links or style sheets; every text in it is escaped.
    """
    groups = colored_groups(np.asarray(on_host(model.labels_)), LISTED)
    others = groups.order[LISTED:]
    clusters = [(str(cluster), groups.sizes[cluster]) for cluster in groups.largest.tolist()]
    clusters += [(counted(others.size, "other"), groups.sizes[others].sum())] if others.size else []
    clusters += [("noise", groups.noise)] if groups.noise else []
    seconds, counts = model.report_.stages()
    proven = [(stage, *entry_text(name, v)) for stage, entry in counts.items() for name, v in entry.items()]
    times = [*((in_words(stage), value) for stage, value in seconds.items()), ("total", sum(seconds.values()))]
    settings = {key: str(value) for key, value in model.report_.items() if not isinstance(value, dict)}
    fitted_by = {name: settings[name] for name in ("metric", "device") if name in settings}
    parameters = [*(fitted_by | getattr(model, "_changed", dict)()).items()]
    first = [
        _block("Clusters", ["cluster", "rows"], [(name, f"{size:,}") for name, size in clusters]),
        _block("Parameters", ["", ""], [(name, shorten(text, 60)) for name, text in parameters], texts=2),
    ]
    folded = [
        _block("Proven", ["stage", "count", ""], proven, texts=2),
        _block("Time", ["stage", "seconds"], [(stage, f"{value:.4f}") for stage, value in times if seconds]),
    ]
    title = f"{type(model).__name__}: {counted(model.n_leaves_, 'row')} in {counted(groups.sizes.size, 'cluster')}"
    lines = [f"<b>{escape(title)}</b>", escape(_cut(model))]
    summary = "<summary>What was proven, and how long it took</summary>"
    details = escape(", ".join(" ".join(entry) for entry in settings.items()))
    return (
        f"<div>{'<br>'.join(line for line in lines if line)}<div>{''.join(first)}</div>"
        f"<details>{summary}{details}<div>{''.join(folded)}</div></details></div>"
    )


def clusters_table(groups: Groups, names: dict[int, str], colors: Sequence[str], small: str, noise: str) -> str:
    """The largest clusters with their colours, names, sizes and shares, the others and the noise, as a table."""
    n, largest = groups.color.size, groups.order[:LISTED]
    rows = [
        (dot(colors[i] if i < len(colors) else small, names[label]), groups.sizes[label])
        for i, label in enumerate(largest.tolist())
    ]
    others = groups.order[LISTED:]
    if others.size:
        rows.append((dot(small, counted(others.size, "other")), groups.sizes[others].sum()))
    if groups.noise:
        rows.append((dot(noise, "noise"), groups.noise))
    return _table(["cluster", "rows", "share"], [(name, f"{size:,}", f"{size / n:.1%}") for name, size in rows])


def dot(color: str, text: str) -> str:
    """A text after a dot of its colour."""
    return f'<span style="white-space: nowrap"><span style="color: {color}">●</span> {escape(text)}</span>'


def _cut(model: Hierarchy) -> str:
    """The distances that give the cut of `labels_`."""
    if not model._labels_are_a_cut:
        return ""
    heights = np.asarray(on_host(model.linkage_["height"]))[::-1]
    return cut_label(heights, model._cut_clusters, model.n_leaves_ - heights.size)


def _block(title: str, names: list[str], rows: Sequence[tuple[str, ...]], texts: int = 1) -> str:
    cells = [tuple(escape(text, quote=False) for text in row) for row in rows]
    return f"<div {BLOCK}><b>{escape(title)}</b>{_table(names, cells, texts)}</div>" if rows else ""


def _table(names: list[str], rows: Sequence[tuple[str, ...]], texts: int = 1) -> str:
    """A table of cells of HTML, with space between them on any page; the first columns are text, the others numbers."""
    styles = [f"padding: 1px 0 1px {1.5 * bool(i)}em; text-align: {'left' if i < texts else 'right'}" for i in range(9)]

    def line(tag: str, cells: Sequence[str]) -> str:
        inner = [f'<{tag} style="{style}">{cell}</{tag}>' for cell, style in zip(cells, styles, strict=False)]
        return f"<tr>{''.join(inner)}</tr>"

    look = "border-collapse: collapse; line-height: 1.4; font-variant-numeric: tabular-nums"
    head, body = line("th", names), "".join(line("td", row) for row in rows)
    return f'<table style="{look}"><thead>{head}</thead><tbody>{body}</tbody></table>'
