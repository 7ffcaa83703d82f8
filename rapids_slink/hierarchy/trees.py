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

from rapids_slink.dendrogram.condense import CONDENSED
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.exports import graph_of, networkx
from rapids_slink.points.output import Frame, Rows, on_host
from rapids_slink.runtime.device import to_host
from rapids_slink.runtime.memory import usual_errors


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
    """

    frame: Frame
    labels: Rows

    def to_pandas(self) -> pd.DataFrame:
        """The columns of `frame` on the host.

        Returns
        -------
        DataFrame (pandas)
            A copy.
        """
        return on_host(self.frame).copy()

    def to_numpy(self) -> np.ndarray:
        """The columns of `frame` as an array.

        Returns
        -------
        ndarray of shape (rows of `frame`,)
            A structured array.
        """
        return self.to_pandas().to_records(index=False)

    def to_networkx(self) -> Any:
        """The clusters and rows as a graph.

        Returns
        -------
        networkx.DiGraph
            From each cluster to the clusters and rows in it. The ``weight`` of an edge is λ. All nodes except the root
            have a ``size``.

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

    @usual_errors()
    def plot(self, **options: Any) -> Any:
        """Draw the tree as an icicle by the package hdbscan.

        Rows at distance zero, where λ is infinite, are drawn to the end of the last bar.

        Parameters
        ----------
        **options
            Those of ``hdbscan.plots.CondensedTree.plot``, such as ``axis``, ``cmap``, ``select_clusters``,
            ``label_clusters``, ``selection_palette``, ``log_size``.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.

        Raises
        ------
        ImportError
            hdbscan or matplotlib is not installed.
        ValueError
            The rows are weighted, or no tree of a forest has a cluster.
        """
        tree = on_host(self.frame)
        if tree["child_size"].dtype.kind == "f":
            raise ValueError("hdbscan draws no condensed tree of weighted rows: fit without sample_weight")
        try:
            from hdbscan.plots import CondensedTree as Icicles
        except ImportError as error:
            raise ImportError("a condensed tree is drawn by hdbscan: pip install 'rapids_slink[hdbscan]'") from error
        rate = tree["lambda_val"].to_numpy()
        if not rate.any():
            raise ValueError("no tree of the forest has as many rows as min_cluster_size: there is nothing to draw")
        shown = np.minimum(rate, rate[rate < np.inf].max(initial=0.0) or 1.0)
        records = tree.assign(lambda_val=shown).astype(CONDENSED).to_records(index=False)
        axis = plotting.axes_of(options.pop("axis", None))
        return Icicles(records, np.asarray(on_host(self.labels))).plot(axis=axis, **options)


@dataclass(frozen=True, eq=False, repr=False)
class SingleLinkageTree:
    """All merges: SciPy's Z of mutual reachability, of one tree.

    Parameters
    ----------
    model : HDBSCAN
        The fitted model.
    """

    model: Any

    def to_numpy(self) -> np.ndarray:
        """The merges as SciPy's matrix.

        Returns
        -------
        ndarray of shape (n - 1, 4), float64
            SciPy's Z.

        Raises
        ------
        ValueError
            The hierarchy is a forest, which SciPy's matrix cannot express.
        """
        return self.model.to_scipy()

    def to_pandas(self) -> pd.DataFrame:
        """The merges as a table.

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
        """The merges as a graph.

        Returns
        -------
        networkx.DiGraph
            From each merge to its two parts. The ``weight`` of an edge is the distance. Merges have a ``size``.

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
        """The clusters of a cut at one distance: those of DBSCAN* with this radius.

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

    @usual_errors()
    def plot(self, **options: Any) -> Any:
        """Draw the dendrogram, with lines as wide as the parts are large. The tree may have any depth.

        Parameters
        ----------
        **options
            Those of the package hdbscan: ``axis``; ``truncate_mode`` (None for all rows, "lastp" for the last `p`
            parts, "level" for `p` levels below the root) and ``p``; ``vary_line_width``; ``cmap`` ("none" for black);
            ``colorbar``.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            `truncate_mode` is not valid, or the hierarchy is a forest.
        """
        return plotting.plot_linkage_tree(self.to_numpy(), **options)


@dataclass(frozen=True, eq=False, repr=False)
class MinimumSpanningTree:
    """The edges of the minimum spanning tree of mutual reachability, in ascending order.

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
        """The edges as a table.

        Returns
        -------
        DataFrame (pandas)
            ``from``, ``to`` (row numbers), ``distance``.
        """
        names = {"src": "from", "dst": "to", "weight": "distance"}
        return on_host(self.frame).reset_index(drop=True).rename(columns=names)

    def to_numpy(self) -> np.ndarray:
        """The edges as an array.

        Returns
        -------
        ndarray of shape (n - 1, 3), float64
            The columns of `to_pandas`.
        """
        return self.to_pandas().to_numpy(np.float64)

    def to_networkx(self) -> Any:
        """The tree as a graph.

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

    @usual_errors()
    def plot(self, **options: Any) -> Any:
        """Draw the tree on the rows, or on their two principal components if there are more than two features.

        Of more than 20,000 edges the longest are drawn, and as many rows.

        Parameters
        ----------
        **options
            Those of the package hdbscan: ``axis``, ``node_size``, ``node_color``, ``node_alpha``, ``edge_alpha``,
            ``edge_cmap``, ``edge_linewidth``, ``vary_line_width``, ``colorbar``.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            The model does not keep its rows.
        """
        if self.rows is None:
            raise ValueError(
                "the tree is drawn on the rows, which this model does not keep: fit it with gen_min_span_tree=True, "
                "or draw model.plot_tree(X)"
            )
        return plotting.plot_spanning_tree(self.rows, self.frame, **options)
