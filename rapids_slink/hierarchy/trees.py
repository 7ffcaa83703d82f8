"""The trees of an `HDBSCAN` as objects with the methods that the package hdbscan gives them.

    condensed_tree_          to_pandas, to_numpy, to_networkx, plot
    single_linkage_tree_     the same, and get_clusters
    minimum_spanning_tree_   to_pandas, to_numpy, to_networkx, plot

All of them answer on the host, whatever the rows were fitted on.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.condense import CONDENSED, Condensed, enclosing, from_frame
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.exports import graph_of, needs, networkx
from rapids_slink.hierarchy.plotting import COLORS, draws
from rapids_slink.points.check import as_integer
from rapids_slink.points.output import Frame, Rows, on_host
from rapids_slink.runtime.device import to_host

#: The largest number of bars of a tree, and of places at which the width of a bar is drawn.
MAX_BARS, WIDTHS = 300, 24


class Bars:
    """The bars of a condensed tree: the largest `MAX_BARS` clusters, and how they are drawn.

    Attributes
    ----------
    clusters : ndarray of shape (bars,), int64
        The numbers of these clusters in the tree. A bar comes after those around it.
    corners : list of lists of pairs
        The corners of each bar's outline.
    sizes : ndarray of shape (bars,)
        The number of rows at the cluster's birth.
    rows : ndarray of shape (bars,), int64
        For each bar a row that stays in it to its end, and then in the larger of the two that it splits into.
    range : pair of float
        The least and the largest distance that is drawn.
    """

    def __init__(self, tree: Condensed, unit: float, lowest: float, is_log: bool) -> None:
        self.tree, self.n = tree, tree.cluster.size
        self._order = np.lexsort((tree.departure, tree.cluster))
        self._ends = np.cumsum(np.bincount(tree.cluster, minlength=tree.parent.size))
        largest = np.argsort(-tree.size, kind="stable")[:MAX_BARS]
        self.clusters = np.sort(largest)
        self.sizes = tree.size[self.clusters]
        with np.errstate(divide="ignore"):
            birth, departure = unit / tree.birth + lowest, unit / tree.departure + lowest
        inside = np.concatenate([birth[1:], departure])
        inside = inside[np.isfinite(inside) & ((inside > 0) | (not is_log))]
        low, high = (float(inside.min()), float(inside.max())) if inside.size else (lowest, lowest + 1.0)
        low = low if is_log else lowest
        self.range = low, (high if high > low else low + 1.0)
        birth[0] = self.range[1]
        self.corners = self._corners(np.clip(birth, *self.range), np.clip(departure, *self.range))
        self.rows = self._rows()

    def _members(self, cluster: int) -> np.ndarray:
        """Return the rows that fall out of a cluster, in the order in which they do."""
        return self._order[self._ends[cluster - 1] if cluster else 0 : self._ends[cluster]]

    def _corners(self, birth: np.ndarray, departure: np.ndarray) -> list[Any]:
        parent, size = self.tree.parent, self.tree.size
        split = np.zeros(parent.size)  # the rows of the two clusters that each one splits into
        np.add.at(split, parent[1:], size[1:])
        death = np.full(parent.size, self.range[0])
        np.maximum.at(death, parent[1:], birth[1:])
        middle, placed = np.full(parent.size, self.n / 2), np.zeros(parent.size)
        corners = []
        for c in self.clusters.tolist():
            if c:
                p = parent[c]
                middle[c] = middle[p] - split[p] / 2 + placed[p] + size[c] / 2
                placed[p] += size[c]
            rows = self._members(c)
            at = np.unique(np.linspace(0, rows.size, WIDTHS).astype(np.int64))[:-1] if rows.size else rows
            height = np.concatenate([[birth[c]], departure[rows[at]], [death[c]] if split[c] else []])
            half = np.concatenate([[size[c]], size[c] - at - 0.0, [split[c]] if split[c] else []]) / 2
            sides = [np.column_stack([(middle[c] + side * half) / self.n, height]) for side in (-1, 1)]
            corners.append(np.concatenate([sides[0], sides[1][::-1]]).tolist())
        return corners

    def _rows(self) -> np.ndarray:
        parent, size = self.tree.parent, self.tree.size
        larger = np.full(parent.size, -1)
        order = 1 + np.argsort(size[1:], kind="stable")
        larger[parent[order]] = order  # the larger child is written last, and stays
        rows = []
        for c in self.clusters.tolist():
            while larger[c] >= 0:
                c = larger[c]
            rows.append(self._members(c)[-1])
        return np.array(rows, np.int64)

    def within(self, bar: int) -> np.ndarray:
        """Return the rows of a bar and of all bars within it, ascending."""
        inside = np.zeros(self.tree.parent.size, bool)
        inside[self.clusters[bar]] = True
        for c in range(self.clusters[bar] + 1, inside.size):
            inside[c] |= inside[self.tree.parent[c]]
        return np.flatnonzero(inside[self.tree.cluster])

    def labels_of_clusters(self, selected: np.ndarray) -> np.ndarray:
        """Return for each bar the number of the selected cluster that it is, or is within; -1 for none."""
        parent = self.tree.parent
        number = np.full(parent.size + 1, -1)
        number[selected] = np.arange(selected.size)
        return number[enclosing(parent, number[:-1] >= 0)][self.clusters]


def selected_clusters(tree: Condensed, labels: np.ndarray) -> np.ndarray:
    """Return for each label 0..k-1 the smallest cluster of the tree that holds its rows, (k,) int64.

    It holds no other rows except noise.
    """
    selected: list[int] = []
    for label in range(int(labels.max(initial=-1)) + 1):
        clusters = set(tree.cluster[labels == label].tolist())
        while len(clusters) > 1:  # go up to the cluster around all of them: it comes before those within it
            last = max(clusters)
            clusters.remove(last)
            clusters.add(int(tree.parent[last]))
        selected += clusters
    return np.array(selected, np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class CondensedTree:
    """The clusters of a minimum size: which split, when, and when each row falls out.

    Parameters
    ----------
    frame : DataFrame
        ``parent``, ``child`` (int64), ``lambda_val`` (float64, 1 / distance), ``child_size`` (int64, or float64 for
        weighted rows), in the library of the fitted rows. Rows are 0..n-1, clusters are n and above, and n is all rows.
    labels : Series or array of shape (n,)
        The cluster that is selected for each row, -1 for none.
    unit : Unit
        The unit of distances in pictures.
    """

    frame: Frame
    labels: Rows
    unit: plotting.Unit = plotting.NO_UNIT

    def to_pandas(self) -> pd.DataFrame:
        """Return the columns of `frame` on the host.

        Returns
        -------
        DataFrame (pandas)
            A copy.
        """
        return on_host(self.frame).copy()

    def to_numpy(self) -> np.ndarray:
        """Return the columns of `frame` as an array.

        Returns
        -------
        ndarray of shape (rows of `frame`,)
            A structured array.
        """
        return self.to_pandas().to_records(index=False)

    def to_networkx(self) -> Any:
        """Return the clusters and rows as a graph.

        Returns
        -------
        networkx.DiGraph
            Its edges lead from each cluster to the clusters and rows in it. The ``weight`` of an edge is λ. All nodes
            except the root have a ``size``.

        Raises
        ------
        ImportError
            NetworkX is not installed.
        """
        tree, graph = on_host(self.frame), networkx().DiGraph()
        parent, child, rate, size = (tree[name].tolist() for name in CONDENSED)
        graph.add_weighted_edges_from(zip(parent, child, rate, strict=True))
        networkx().set_node_attributes(graph, dict(zip(child, size, strict=True)), "size")
        return graph

    @draws
    def plot(
        self,
        *,
        axis: Any = None,
        select_clusters: bool = True,
        cut: tuple[float, np.ndarray] | None = None,
        **options: Any,
    ) -> Any:
        """Draw the tree as an icicle: a bar for each cluster, whose width is its rows at each distance.

        From the top down a bar splits in two, or rows fall out of it, and it gets narrower. The selected clusters have
        the colours that `plot_clusters` gives them.

        Parameters
        ----------
        axis : matplotlib Axes, optional
            Where to draw; the current Axes by default.
        select_clusters : bool
            Whether the selected clusters are coloured.
        cut : (float, array of shape (n,)), optional
            A distance and the labels of its cut, which are coloured in place of the selected clusters.
        **options
            Other parameters of ``hdbscan.plots.CondensedTree.plot``, such as ``cmap``, ``label_clusters``,
            ``selection_palette``, ``log_size``. With any of them the package hdbscan draws the tree,
            and must be installed.

        Raises
        ------
        ValueError
            The rows are weighted, or no tree of a forest has a cluster.
        """
        frame, labels = on_host(self.frame), np.asarray(on_host(self.labels))
        if frame["child_size"].dtype.kind == "f":
            raise ValueError("no condensed tree of weighted rows is drawn: fit without sample_weight")
        rate = frame["lambda_val"].to_numpy()
        if not rate.any():
            raise ValueError("no tree of the forest has as many rows as min_cluster_size: there is nothing to draw")
        if options:
            return self._plot_by_hdbscan(frame, labels, axis=axis, select_clusters=select_clusters, **options)
        tree, axis = from_frame(frame, labels.size), plotting.axes_of(axis)
        from matplotlib.collections import PolyCollection
        from matplotlib.patches import Rectangle

        with np.errstate(divide="ignore"):
            is_log = plotting.is_logarithmic(np.sort(1 / rate[rate > 0])[::-1])
        bars = Bars(tree, self.unit.length, 0.0, is_log)
        labels = labels if cut is None else cut[1]
        bar_labels = bars.labels_of_clusters(selected_clusters(tree, labels)) if cut is None else labels[bars.rows]
        colors = plotting.colored_groups(labels, len(COLORS)).colors_of(bar_labels)
        corners = [np.array(outline) * [bars.n, 1] for outline in bars.corners]
        axis.add_collection(PolyCollection(corners, facecolors="#00000020", edgecolors="#00000050", linewidths=0.5))
        shown = [i for i, color in enumerate(colors) if color and select_clusters]
        fills = PolyCollection([corners[i] for i in shown], facecolors=[colors[i] for i in shown], linewidths=0)
        axis.add_collection(fills)
        low = bars.range[0]
        if is_log:
            axis.set_yscale("log")
        axis.set(xlim=(0, bars.n), ylim=bars.range, xticks=[], xlabel=f"{bars.n:,} rows", ylabel=self.unit.axis)
        if cut is not None:
            height = cut[0] * self.unit.length
            fills.set_clip_path(Rectangle((0, low), bars.n, max(height - low, 0), transform=axis.transData))
            axis.axhline(height, color="black", linestyle="--", linewidth=1)
        axis.spines[["right", "top", "bottom"]].set_visible(False)
        return axis

    @staticmethod
    def _plot_by_hdbscan(frame: pd.DataFrame, labels: np.ndarray, axis: Any, **options: Any) -> Any:
        """Draw the tree with the package hdbscan.

        Rows at distance zero, where λ is infinite, are drawn to the end of the last bar.
        """
        with needs("these options are those of hdbscan", "hdbscan"):
            from hdbscan.plots import CondensedTree as Icicles
        rate = frame["lambda_val"].to_numpy()
        shown = np.minimum(rate, rate[rate < np.inf].max(initial=0.0) or 1.0)
        records = frame.assign(lambda_val=shown).astype(CONDENSED).to_records(index=False)
        return Icicles(records, labels).plot(axis=plotting.axes_of(axis), **options)


@dataclass(frozen=True, eq=False, repr=False)
class SingleLinkageTree:
    """All merges of one tree: SciPy's Z of mutual reachability distances.

    Parameters
    ----------
    model : HDBSCAN
        The fitted model.
    """

    model: Any

    def to_numpy(self) -> np.ndarray:
        """Return the merges as SciPy's matrix.

        Returns
        -------
        ndarray of shape (n - 1, 4), float64
            See `Hierarchy.to_scipy`.
        """
        return self.model.to_scipy()

    def to_pandas(self) -> pd.DataFrame:
        """Return the merges as a table.

        Returns
        -------
        DataFrame (pandas)
            ``parent``, ``left_child``, ``right_child``, ``distance``, ``size``.
        """
        merges = on_host(self.model.linkage_).reset_index(drop=True)
        n = self.model.n_leaves_
        names = {"left": "left_child", "right": "right_child", "height": "distance"}
        merges = merges.rename(columns=names)
        merges.insert(0, "parent", np.arange(n, n + len(merges)))
        return merges

    def to_networkx(self) -> Any:
        """Return the merges as a graph.

        Returns
        -------
        networkx.DiGraph
            Its edges lead from each merge to its two parts. The ``weight`` of an edge is the distance. Merges have a
            ``size``.

        Raises
        ------
        ImportError
            NetworkX is not installed.
        """
        merges, graph = self.to_pandas(), networkx().DiGraph()
        parent, distance, size = (merges[name].tolist() for name in ("parent", "distance", "size"))
        for side in ("left_child", "right_child"):
            graph.add_weighted_edges_from(zip(parent, merges[side].tolist(), distance, strict=True))
        networkx().set_node_attributes(graph, dict(zip(parent, size, strict=True)), "size")
        return graph

    def get_clusters(self, cut_distance: float, min_cluster_size: int = 5) -> Rows:
        """Return the clusters of a cut at one distance, which are those of DBSCAN* with this radius.

        Parameters
        ----------
        cut_distance : float
            Clusters are not merged at or above this distance.
        min_cluster_size : int
            The rows of smaller clusters are noise.

        Returns
        -------
        Series or array of shape (n,), int32
            See `Hierarchy.cut`; -1 is noise.
        """
        return self.model.cut(distance_threshold=cut_distance, min_cluster_size=min_cluster_size)

    @draws
    def plot(
        self,
        axis: Any = None,
        truncate_mode: str | None = None,
        p: int = 0,
        vary_line_width: bool = True,
        cmap: Any = "viridis",
        colorbar: bool = True,
    ) -> Any:
        """Draw the dendrogram, with lines as wide as the parts are large. The tree may have any depth.

        Parameters
        ----------
        axis, truncate_mode, p, vary_line_width, cmap, colorbar : optional
            Those of the package hdbscan. `truncate_mode` is None for all rows, "lastp" for the last `p` parts, or
            "level" for `p` levels below the root. `cmap` "none" draws in black.

        Raises
        ------
        ValueError
            `truncate_mode` is not valid, or the hierarchy is a forest.
        """
        Z, axis = self.to_numpy(), plotting.axes_of(axis)
        from matplotlib.collections import LineCollection

        merges, corners = plotting.drawn_merges(Z, truncate_mode, as_integer(p, "p"))
        sizes = np.concatenate([np.ones(len(Z) + 1), Z[:, 3]])[Z[merges, :2].astype(np.int64)]
        rows = np.log2(sizes if vary_line_width else np.ones_like(sizes)).ravel()
        sides = corners.reshape(-1, 2, 2)  # for each merge its left line, from below, then its right line
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


@dataclass(frozen=True, eq=False, repr=False)
class MinimumSpanningTree:
    """The edges of the minimum spanning tree of mutual reachability distances, in ascending order.

    Parameters
    ----------
    frame : DataFrame
        ``src``, ``dst``, ``weight``, the model's `mst_`.
    n_rows : int
        The number of rows, which is one more than the edges unless the tree is a forest.
    rows : array of shape (n, d) or None
        The fitted rows, if the model keeps them.
    """

    frame: Frame
    n_rows: int
    rows: Any

    def to_pandas(self) -> pd.DataFrame:
        """Return the edges as a table.

        Returns
        -------
        DataFrame (pandas)
            ``from``, ``to`` (row numbers), ``distance``.
        """
        names = {"src": "from", "dst": "to", "weight": "distance"}
        return on_host(self.frame).reset_index(drop=True).rename(columns=names)

    def to_numpy(self) -> np.ndarray:
        """Return the edges as an array.

        Returns
        -------
        ndarray of shape (n - 1, 3), float64
            The columns of `to_pandas`.
        """
        return self.to_pandas().to_numpy(np.float64)

    def to_networkx(self) -> Any:
        """Return the tree as a graph.

        Returns
        -------
        networkx.Graph
            The nodes are row numbers. Edges have their ``weight``. Nodes have their row as ``data`` if the model keeps
            the rows.

        Raises
        ------
        ImportError
            NetworkX is not installed.
        """
        graph = graph_of(self.frame, range(self.n_rows))
        if self.rows is not None:
            rows = map(tuple, to_host(self.rows).tolist())
            networkx().set_node_attributes(graph, dict(enumerate(rows)), "data")
        return graph

    @draws
    def plot(
        self,
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
        """Draw the tree on the rows, or on their two principal components if there are more than two features.

        If there are more than 20,000 edges, the longest 20,000 are drawn, and at most 20,000 rows.

        Parameters
        ----------
        axis, node_size, node_color, node_alpha : optional
            Those of the package hdbscan: where to draw, and the look of the rows.
        edge_alpha, edge_cmap, edge_linewidth, vary_line_width, colorbar : optional
            Those of the package hdbscan: the look of the edges, and whether to draw a scale beside them.

        Raises
        ------
        ValueError
            The model does not keep its rows.
        """
        if self.rows is None:
            raise ValueError(
                "the tree is drawn on the rows, which this model does not keep: fit it with gen_min_span_tree=True, "
                "or draw model.plot_tree(X)"
            )
        axis = plotting.axes_of(axis)
        from matplotlib.collections import LineCollection

        coordinates, _ = plotting.coordinates_of(self.rows, np.arange(self.n_rows), None)
        longest = on_host(self.frame).iloc[-plotting.MAX_POINTS :]
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
        shown = coordinates[:: -(-self.n_rows // plotting.MAX_POINTS)]
        axis.scatter(*shown.T, c=node_color, alpha=node_alpha, s=node_size)
        if colorbar:
            axis.figure.colorbar(lines, ax=axis, label="Mutual reachability distance")
        axis.set(xticks=[], yticks=[])
        return axis
