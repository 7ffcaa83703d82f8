"""Plots of a hierarchy, the samples that they show of a large one, and its summary as HTML for Jupyter."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from rapids_slink.hierarchy.exports import Exports, needs, to_scipy
from rapids_slink.metrics import EARTH_RADIUS
from rapids_slink.points import Points, as_points
from rapids_slink.points.check import as_integer
from rapids_slink.points.output import as_frame, is_collection, on_host
from rapids_slink.report import counted, entry_text, in_words
from rapids_slink.runtime.device import Array, device_of, is_on_gpu, to_host
from rapids_slink.runtime.memory import usual_errors

if TYPE_CHECKING:
    from rapids_slink.hierarchy.model import Hierarchy

#: The colours of the largest clusters, in order of size. The first six are those of Okabe and Ito, except black and
#: yellow: they are distinguishable with any kind of colour blindness.
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C6BB1", "#66A61E", "#B15928", "#E7298A",
    "#17A2A2", "#8D8C12", "#FB8072", "#5E60CE", "#C49A6C", "#2CA02C", "#C51B7D", "#D4AC0D", "#CB4335", "#7FB3D5",
)  # fmt: skip
#: The colour of all other clusters, and that of noise in the explorer, which is faint.
OTHERS, NOISE = "#999999", "#A0A0A060"
#: More rows than this are drawn by datashader, if it is installed.
DENSE = 100_000
#: The largest number of rows that `plot_clusters` draws, and of heights that `plot_heights` draws.
MAX_POINTS = 20_000
MAX_HEIGHTS = 2_000
#: The largest number of clusters that are listed.
LISTED = 10
INLINE_BLOCK = 'style="display: inline-block; vertical-align: top; margin: 0.3em 2em 0.3em 0"'


class Unit(NamedTuple):
    """The unit of distances in pictures."""

    length: float  # the number of these units in a distance of 1
    name: str  # its name with a space before it, or ""

    @property
    def axis(self) -> str:
        """Return the name of an axis of distances."""
        return "distance" + (f" ({self.name.strip()})" if self.name else "")


NO_UNIT = Unit(1.0, "")
Method = TypeVar("Method", bound=Callable[..., Any])
#: Sections of the docstrings of methods that draw; further errors follow.
AXES = """\
Returns
-------
matplotlib.axes.Axes
    The axes drawn into.

Raises
------
ImportError
    matplotlib is not installed."""


def draws(method: Method) -> Method:
    """Let a method draw, and put into its docstring what is the same for all of them: the result, and an error."""
    text, _, errors = cleandoc(method.__doc__ or "").partition("\n\nRaises\n------\n")
    method.__doc__ = f"{text}\n\n{AXES}\n{errors}".rstrip() + "\n"
    return usual_errors()(method)


class Plots(Exports):
    """The plots of `Hierarchy`."""

    @draws
    def plot(self, *, ax: Any = None, p: int = 30, truncate_mode: str | None = "lastp", **kwargs: Any) -> Any:
        """Draw the dendrogram with SciPy and matplotlib.

        By default only the last ``p - 1`` merges are drawn, over `p` leaves. A leaf is a cluster, such as "(1234)" of
        1,234 rows, or a row, with its name in the index or its number. Merges within a cluster of `labels_` have its
        colour, as in `plot_clusters`, and a line marks the cut. Distances on a sphere are in kilometres. A million rows
        take SciPy a third of a second, in a tree of any depth.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default.
        p : int
            Leaves to draw, at least 2.
        truncate_mode : {"lastp", None}
            None draws every row. SciPy does that by recursion, which fails for deep trees.
        **kwargs
            Passed on to `scipy.cluster.hierarchy.dendrogram`. ``labels`` (one per row), ``leaf_label_func`` and
            ``link_color_func`` refer to rows and clusters of the whole tree.

        Raises
        ------
        ValueError
            `p` or `truncate_mode` is not valid, the whole tree is too deep to be drawn, or it is a forest.
        """
        self._require_tree("plot_condensed(), plot_heights() and plot_clusters(X) draw one")
        from scipy.cluster.hierarchy import dendrogram

        if truncate_mode not in ("lastp", None):
            raise ValueError(f"truncate_mode must be 'lastp' or None, got {truncate_mode!r}")
        if as_integer(p, "p") < 2:
            raise ValueError(f"p must be at least 2, got {p}")
        Z, labels, unit = to_scipy(self.linkage_), kwargs.get("labels"), unit_of(self)
        Z[:, 2] *= unit.length
        n, across = len(Z) + 1, kwargs.get("orientation", "top") in ("top", "bottom")
        if labels is not None and len(labels) != n:
            raise ValueError(f"labels must have one entry per row: {n}, got {len(labels)}")
        ax = axes_of(ax)
        if len(Z):
            if across:
                kwargs.setdefault("leaf_rotation", 90)  # horizontal labels would overlap
            if not {"labels", "leaf_label_func", "show_leaf_counts"} & set(kwargs):
                kwargs["leaf_label_func"] = partial(_name_of_leaf, Z=Z, names=self.nodes_)
            if self._labels_are_a_cut and not {"link_color_func", "color_threshold"} & set(kwargs):
                n_clusters = self._cut_clusters
                colors = _colors_of_links(Z, n_clusters, np.asarray(on_host(self.labels_)))
                kwargs["link_color_func"] = lambda node: str(colors[node - n])
                if n_clusters > 1:
                    at = cut_height(Z[::-1, 2], n_clusters, 1, 0.0, is_log=False)
                    (ax.axhline if across else ax.axvline)(at, color="black", linestyle="--", linewidth=1)
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "Attempting to set identical")  # limits: all heights are zero
                    dendrogram(Z, p=int(p), truncate_mode=truncate_mode, ax=ax, **kwargs)
            except RecursionError as error:
                leaves = n if truncate_mode is None else p
                raise ValueError(
                    f"a dendrogram of {leaves} leaves is too deep for SciPy to draw: lower p, or leave "
                    "truncate_mode='lastp'"
                ) from error
        titles = "row, or (rows in the cluster)", unit.axis
        xlabel, ylabel = titles if across else titles[::-1]
        ax.set(xlabel=xlabel, ylabel=ylabel)
        return ax

    @draws
    def plot_tree(self, X: Any, *, max_edges: int = MAX_POINTS, ax: Any = None) -> Any:
        """Draw the minimum spanning tree on the rows: the edges within clusters, and those that the cut removes.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            The rows that were clustered, which the model does not keep; for a graph's hierarchy, any coordinates of its
            nodes. If there are more than two columns, the first two principal components are drawn.
        max_edges : int
            If there are more edges, only the longest are drawn. They connect whole regions of the data.
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default.

        Raises
        ------
        ValueError, TypeError
            See `plot_clusters`.
        """
        self._require_fit()
        points, labels = _rows_and_labels(self._features(X), self.labels_)
        ax = axes_of(ax)
        from matplotlib.collections import LineCollection

        coordinates, names = coordinates_of(points.values, np.arange(labels.size), points.names, is_map(self))
        mst = as_frame(on_host(self.mst_) if is_collection(self.mst_) else self.mst_)
        drawn = mst.iloc[max(0, len(mst) - as_integer(max_edges, "max_edges")) :]
        ends = np.column_stack([to_host(self._rows_of(drawn[side])) for side in ("src", "dst")])
        removed = labels[ends[:, 0]] != labels[ends[:, 1]] if len(ends) else np.zeros(0, bool)
        thin = float(np.clip(300 / max(1, len(ends)), 0.3, 1.2))
        for chosen, color, width, what in (
            (~removed, COLORS[0], thin, "within clusters"),
            (removed, COLORS[1], 1.5, "removed by the cut"),
        ):
            lines = LineCollection(list(coordinates[ends[chosen]]), colors=color, linewidths=width)
            ax.add_collection(lines).set_label(f"{what} ({counted(int(chosen.sum()), 'edge')})")
        rows = coordinates[:: -(-labels.size // MAX_POINTS)]
        ax.scatter(*rows.T, s=float(np.clip(2_000 / len(rows), 0.5, 6)), color=OTHERS, linewidths=0, zorder=0)
        hidden = len(mst) - len(ends)
        ax.legend(title=f"without the {counted(hidden, 'shortest edge')}" if hidden else None, loc="upper left",
                  bbox_to_anchor=(1.01, 1), borderaxespad=0)  # fmt: skip
        ax.set(xlabel=names[0], ylabel=names[1])
        ax.autoscale_view()
        if is_map(self):
            as_map(ax)
        return ax

    @draws
    def plot_heights(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw the heights of the merges, the highest first, against the number of clusters, and mark the cut.

        At k clusters the curve has the height of the merge that leaves k - 1 clusters. A cut between two very different
        heights is stable: it changes little when the data does. More than 2,000 heights are sampled evenly along the
        logarithmic axis: all of the highest, and ever fewer of the lower ones. The cut is that of `labels_`, if these
        are the labels of a cut.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default. The axis of the number of clusters is logarithmic from 100
            merges on. The axis of heights is logarithmic if none is negative and the positive ones span two orders of
            magnitude.
        **kwargs
            Passed on to `matplotlib.axes.Axes.plot`.
        """
        self._require_fit()
        unit = unit_of(self)
        heights = np.asarray(on_host(self.linkage_["height"]))[::-1] * unit.length
        trees = self.n_leaves_ - heights.size
        drawn = sample_of_heights(heights.size)
        ax = axes_of(ax)
        kwargs = {"color": COLORS[0], "marker": "o" if heights.size <= 50 else None, "markersize": 4, **kwargs}
        ax.plot(drawn + trees + 1, heights[drawn], **kwargs)
        if heights.size >= 100:
            ax.set_xscale("log")
        if is_logarithmic(heights[drawn]):
            ax.set_yscale("log")
        if self._labels_are_a_cut:
            label = cut_label(heights, self._cut_clusters, trees, unit.name)
            ax.axvline(self._cut_clusters, color=COLORS[1], linestyle="--", label=label)
            ax.legend(loc="lower left")  # a falling curve leaves this corner free
        ax.set(xlabel="number of clusters", ylabel=unit.axis.replace("distance", "distance of the next merge"))
        return ax

    @draws
    def plot_clusters(self, X: Any, ax: Any = None, **kwargs: Any) -> Any:
        """Draw the rows as points, coloured by `labels_`.

        One column is drawn as a strip with an arbitrary second axis, two columns as they are, and more by the first two
        principal components of the drawn rows. With ``metric="haversine"`` the axes are longitude and latitude in
        degrees. Each of the 20 largest clusters has a colour, in order of size. All others and noise are grey. The
        fewer points a colour has, the larger they are. At most 20,000 rows are drawn, evenly spaced within each colour
        and the same number of each, so small clusters are drawn whole. Above 100,000 rows datashader, if installed,
        draws all of them: a pixel has the mixed colour of its rows, and more of it for more rows.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            The rows that were clustered, which the model does not keep; for a graph's hierarchy, any coordinates of its
            nodes.
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default. The legend is to the right of the Axes.
        **kwargs
            Passed on to `matplotlib.axes.Axes.scatter`.

        Raises
        ------
        ValueError, TypeError
            `X` is not valid, or does not have the number of rows that were clustered.
        """
        self._require_fit()
        mapped = is_map(self)
        return plot_clusters(self._features(X), self.labels_, mapped=mapped, ax=ax, **kwargs)


def _name_of_leaf(node: int, Z: np.ndarray, names: Any) -> str:
    """Return the text below a leaf of a dendrogram: the name of a row, or the number of rows of a cluster."""
    n = len(Z) + 1
    if node >= n:
        return f"({Z[node - n, 3]:.0f})"
    name = names[node]
    return str(name.as_py() if hasattr(name, "as_py") else name)


def _colors_of_links(Z: np.ndarray, n_clusters: int, labels: np.ndarray) -> np.ndarray:
    """Return the colour of the cluster that each merge is in, black above the cut: an (n - 1,) array of text."""
    n, groups = len(Z) + 1, colored_groups(labels, len(COLORS))
    row = np.concatenate([np.arange(n), Z[:, 0].astype(np.int64)])  # the first child of each node, and then a row in it
    while (row >= n).any():
        row = row[row]
    colors = np.array([*COLORS[: groups.largest.size], OTHERS], object)[groups.color[row[n:]]]
    colors[n - n_clusters :] = "black"
    return colors


def plot_clusters(X: Any, labels: Array, *, mapped: bool = False, ax: Any = None, **kwargs: Any) -> Any:
    """Draw rows in the colours of their clusters, as `Hierarchy.plot_clusters` does, and return the axes.

    `X` is of any type that `SingleLinkage` takes. `mapped` says whether the rows are points on a globe. Label -1 is
    noise.
    """
    points, labels = _rows_and_labels(X, labels)
    groups = colored_groups(labels, len(COLORS))
    dense = labels.size > DENSE and find_spec("datashader") is not None and not kwargs
    rows = np.arange(labels.size) if dense else sample_of_rows(groups.color)
    values = to_host(points.values[device_of(points.values).asarray(rows)])
    coordinates, names = coordinates_of(values, rows, points.names, mapped)
    drawn, largest = groups.color[rows], groups.largest.size
    texts = [f"{name} ({counted(size, 'row')})" for name, size, _ in groups.listed()]
    texts[largest:] = [", ".join(texts[largest:])] if texts[largest:] else []
    ax = axes_of(ax)
    counts = np.bincount(drawn)
    handles = [None] * counts.size
    if dense:
        shade(ax, coordinates, drawn, [*COLORS[:largest], OTHERS])
    for i in np.argsort(-counts, kind="stable").tolist():  # colours of few points come last: on top, and larger
        style = {"color": COLORS[i] if i < largest else OTHERS, "s": float(np.clip(8_000 / counts[i], 4, 40))}
        shown = coordinates[:0] if dense else coordinates[drawn == i]
        handles[i] = ax.scatter(*shown.T, label=texts[i], **{"linewidths": 0, **style, **kwargs})
    legend = ax.legend(handles, texts, title="cluster", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    for handle in legend.legend_handles:
        handle.set_sizes([30])
    ax.set(xlabel=names[0], ylabel=names[1])
    if mapped:
        as_map(ax)
    if points.values.shape[1] == 1:
        ax.set_yticks([])
    return ax


def as_map(ax: Any) -> None:
    """Draw degrees of longitude and latitude in their true lengths, between the poles, and a bar in kilometres."""
    ax.autoscale_view()
    low, high = np.clip(ax.get_ylim(), -90, 90)
    west, east = ax.get_xlim()
    shrunk = max(float(np.cos(np.radians((low + high) / 2))), 0.1)  # length of a degree: longitude / latitude
    ax.set(xlim=(west, east), ylim=(low, high), aspect=1 / shrunk)
    degree = np.radians(1) * EARTH_RADIUS * shrunk
    longest = (east - west) / 4 * degree
    length = 10 ** np.floor(np.log10(longest))
    length *= max(factor for factor in (1, 2, 5) if factor * length <= longest)
    x, y = west + 0.04 * (east - west), low + 0.05 * (high - low)
    ax.plot([x, x + length / degree], [y, y], color="black", linewidth=2, solid_capstyle="butt")
    ax.annotate(f"{length:,g} km", (x, y), (0, 3), textcoords="offset points")


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
    """Return the caller's axes, or the current ones. A new figure leaves space for a legend."""
    with needs("plotting needs matplotlib", "plot"):
        from matplotlib import pyplot
    if ax is None and not pyplot.get_fignums():
        pyplot.figure(layout="constrained")
    return pyplot.gca() if ax is None else ax


# ------------------------------------------------------------------------------------------------------- samples


def sample_of_heights(n: int) -> np.ndarray:
    """Return at most `MAX_HEIGHTS` numbers below n, spaced evenly by their logarithm, with the first and the last."""
    if n <= MAX_HEIGHTS:
        return np.arange(n)
    return np.unique(np.rint(np.geomspace(1, n, MAX_HEIGHTS)).astype(np.int64)) - 1


def sample_of_rows(group: np.ndarray) -> np.ndarray:
    """Return at most `MAX_POINTS` rows in order: equally many of each group, evenly spaced, or all of a small group."""
    if group.size <= MAX_POINTS:
        return np.arange(group.size)
    sizes = np.bincount(group)
    counts = range(1, int(sizes.max()) + 1)
    max_rows = bisect_right(counts, MAX_POINTS, key=lambda count: np.minimum(sizes, count).sum())  # of a group
    order = np.argsort(group, kind="stable")
    size = sizes[group[order]]
    position = np.arange(group.size) - (np.cumsum(sizes) - sizes)[group[order]]
    kept = np.minimum(size, max_rows)
    return np.sort(order[(position + 1) * kept // size > position * kept // size])


def drawn_merges(Z: np.ndarray, truncate_mode: str | None, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the merges that a truncated dendrogram shows, ascending, and the corners of each, (merges, 4, 2).

    The corners are those of SciPy: the top of the left part, the merge's height above it, that height above the right
    part, the top of the right part. Leaves are 10 apart, and a part whose merges are not shown is a leaf. There is no
    recursion, so the tree may have any depth.
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

    #: `sizes`: (labels,) int64, the number of rows of each label; `noise`: int, the number of rows in no cluster
    sizes: np.ndarray
    noise: int
    #: int64 arrays. `order`: the clusters from the largest to the smallest; `largest`: those that have a colour
    order: np.ndarray
    largest: np.ndarray
    color: np.ndarray  # (n,) int8, each row's position in `largest`; for rows of no such cluster its length

    def colors_of(self, labels: np.ndarray) -> list[str]:
        """Return the colours of the clusters of some labels, `OTHERS` for small ones, and "" for labels below 0."""
        colors = np.full(self.sizes.size + 1, OTHERS, object)  # the last is for no cluster
        colors[self.largest], colors[-1] = COLORS[: self.largest.size], ""
        return colors[np.maximum(labels, -1)].tolist()

    def listed(self, names: Mapping[int, str] | None = None) -> list[tuple[str, int, str]]:
        """Return the name, the number of rows and the colour of each of the largest clusters, of all others, of noise.

        Clusters are called by their numbers unless they have `names`.
        """
        largest, others = self.largest.tolist(), self.order[self.largest.size :]
        clusters = [(names[i] if names else str(i), self.sizes[i], COLORS[at]) for at, i in enumerate(largest)]
        rest = [(counted(others.size, "other"), self.sizes[others].sum(), OTHERS)] if others.size else []
        return [*clusters, *rest, *([("noise", self.noise, NOISE[:7])] if self.noise else [])]


def colored_groups(labels: np.ndarray, colors: int) -> Groups:
    """Return the clusters of these labels, sorted by size. The largest have the colours, one each."""
    sizes, noise = np.bincount(labels[labels >= 0]), int((labels < 0).sum())
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]  # labels that were kept have gaps
    largest = order[:colors]
    color = np.full(sizes.size + 1, largest.size, np.int8)  # the last is for noise, label -1
    color[largest] = np.arange(largest.size)
    return Groups(sizes, noise, order, largest, color[labels])


def is_logarithmic(heights: np.ndarray) -> bool:
    """Return whether the axis of these heights, which descend, is logarithmic.

    It is if no height is negative and the positive ones span two orders of magnitude.
    """
    positive = heights[heights > 0]
    return bool(positive.size and heights[-1] >= 0 and positive[0] > 100 * positive[-1])


def is_map(model: Any) -> bool:
    """Return whether the model's rows are points on a globe."""
    return getattr(model, "metric", None) == "haversine"


def unit_of(model: Any) -> Unit:
    """Return the unit of a model's distances in pictures: kilometres for great circles."""
    return Unit(EARTH_RADIUS, " km") if is_map(model) else NO_UNIT


def in_digits(value: float, digits: int) -> str:
    """Return a number as text with this number of digits, without a power of ten if it is below ten millions."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e7 else text


def cut_label(heights: np.ndarray, n_clusters: int, trees: int, unit: str = "", digits: int = 6) -> str:
    """Return as text the number of clusters of a cut, and the distances that give it, in this unit.

    The distances have at least this number of digits, and more if two different ones would read alike.
    """
    undone = n_clusters - trees
    around = heights[max(undone - 1, 0) : undone + 1]
    while around.size == 2 and around[0] != around[1] and in_digits(around[0], digits) == in_digits(around[1], digits):
        digits += 1
    above = f"{in_digits(heights[undone], digits)} < " if undone < heights.size else ""
    below = f" ≤ {in_digits(heights[undone - 1], digits)}" if undone else ""
    return counted(n_clusters, "cluster") + (f" ({above}distance{below}{unit})" if above or below else "")


def cut_height(heights: np.ndarray, n_clusters: int, trees: int, lowest: float, is_log: bool) -> float:
    """Return the distance in the middle of those that give this number of clusters. The heights descend."""
    undone = n_clusters - trees
    above = heights[undone] if undone < heights.size else lowest
    below = heights[undone - 1] if undone else above
    return float((above * below) ** 0.5 if is_log and above > 0 else (above + below) / 2)


def coordinates_of(values: Array, rows: np.ndarray, names: Any, mapped: bool = False) -> tuple[np.ndarray, list[str]]:
    """Return two coordinates for each of the points with these row numbers and values, (n, 2), and their names.

    `names` are those of the features. Points on a globe, `mapped`, have latitudes and longitudes in radians, which
    become longitudes and latitudes in degrees. Points of three and more features are drawn along their principal axes.
    """
    n, d = values.shape
    if d <= 2 or not (is_on_gpu(values) and find_spec("cuml")):
        values = to_host(values)
    if mapped:
        return np.degrees(values[:, ::-1].astype(np.float64)), ["longitude (°)", "latitude (°)"]
    titles = [f"feature {i}" for i in range(2)] if names is None else [*map(str, names[:2])]
    if d == 1:
        scatter = rows * 0.6180339887498949 % 1  # multiples of the golden ratio are spread evenly
        return np.column_stack([values[:, 0], scatter]), [titles[0], ""]
    if d == 2:
        return values, titles
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
    """Return a fitted model's cut, clusters by size and parameters as HTML, with proofs and times in folded parts.

    It is one ``div`` without scripts, links or style sheets; every text in it is escaped.
    """
    groups = colored_groups(np.asarray(on_host(model.labels_)), LISTED)
    seconds, counts = model.report_.stages()
    proven = [(stage, *entry_text(name, v)) for stage, entry in counts.items() for name, v in entry.items()]
    times = [*((in_words(stage), value) for stage, value in seconds.items()), ("total", sum(seconds.values()))]
    settings = {key: str(value) for key, value in model.report_.items() if not isinstance(value, dict)}
    fitted_by = {name: settings[name] for name in ("metric", "device") if name in settings}
    parameters = [*(fitted_by | getattr(model, "_changed", dict)()).items()]
    first = [
        _block("Clusters", ["cluster", "rows"], [(name, f"{size:,}") for name, size, _ in groups.listed()]),
        _block("Parameters", ["", ""], [(name, shorten(text, 60)) for name, text in parameters], texts=2),
    ]
    folded = [
        _block("Proven", ["stage", "count", ""], proven, texts=2),
        _block("Time", ["stage", "seconds"], [(stage, f"{value:.4f}") for stage, value in times if seconds]),
    ]
    title = f"{type(model).__name__}: {counted(model.n_leaves_, 'row')} in {counted(groups.order.size, 'cluster')}"
    lines = [f"<b>{escape(title)}</b>", escape(_cut(model))]
    summary = "<summary>What was proven, and how long it took</summary>"
    details = escape(", ".join(" ".join(entry) for entry in settings.items()))
    return (
        f"<div>{'<br>'.join(line for line in lines if line)}<div>{''.join(first)}</div>"
        f"<details>{summary}{details}<div>{''.join(folded)}</div></details></div>"
    )


def clusters_table(groups: Groups, names: dict[int, str]) -> str:
    """Return a table of the clusters with their names, sizes and shares.

    The largest have a line each, with their colour. The others have one line together, and so has the noise.
    """
    n, listed = groups.color.size, groups.listed(names)
    cells = [(dot(color, name), f"{size:,}", f"{size / n:.1%}") for name, size, color in listed]
    return _table(["cluster", "rows", "share"], cells)


def dot(color: str, text: str) -> str:
    """Return the HTML of a text after a dot of its colour."""
    return f'<span style="white-space: nowrap"><span style="color: {color}">●</span> {escape(text)}</span>'


def _cut(model: Hierarchy) -> str:
    """Return as text the number of clusters of the cut of `labels_`, and its distances; "" if they are no cut."""
    if not model._labels_are_a_cut:
        return ""
    heights = np.asarray(on_host(model.linkage_["height"]))[::-1]
    return cut_label(heights, model._cut_clusters, model.n_leaves_ - heights.size)


def _block(title: str, names: list[str], rows: Sequence[tuple[str, ...]], texts: int = 1) -> str:
    cells = [tuple(escape(text, quote=False) for text in row) for row in rows]
    return f"<div {INLINE_BLOCK}><b>{escape(title)}</b>{_table(names, cells, texts)}</div>" if rows else ""


def _table(names: list[str], rows: Sequence[tuple[str, ...]], texts: int = 1) -> str:
    """Return a table of cells of HTML, with space between them on any page.

    The first `texts` columns are text, the others are numbers.
    """
    styles = [f"padding: 1px 0 1px {1.5 * bool(i)}em; text-align: {'left' if i < texts else 'right'}" for i in range(9)]

    def line(tag: str, cells: Sequence[str]) -> str:
        inner = [f'<{tag} style="{style}">{cell}</{tag}>' for cell, style in zip(cells, styles, strict=False)]
        return f"<tr>{''.join(inner)}</tr>"

    look = "border-collapse: collapse; line-height: 1.4; font-variant-numeric: tabular-nums"
    head, body = line("th", names), "".join(line("td", row) for row in rows)
    return f'<table style="{look}"><thead>{head}</thead><tbody>{body}</tbody></table>'
