"""What a hierarchy shows of itself: plots, and the explorer in Jupyter."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.dendrogram import condense
from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.dendrogram.selection import Rule, select
from rapids_slink.hierarchy import interop, pictures, plots
from rapids_slink.hierarchy.explorer import Explorer
from rapids_slink.points.columns import as_integer
from rapids_slink.points.output import on_host


class Drawn:
    """The plots of a `Hierarchy`, which has the attributes."""

    linkage_: Any
    mst_: Any
    labels_: Any
    n_leaves_: int
    n_clusters_: int
    _labels_are_a_cut: bool
    _nodes: Any

    def _require_fit(self) -> None:
        raise NotImplementedError

    def _require_tree(self) -> None:
        raise NotImplementedError

    def plot(self, *, ax: Any = None, **options: Any) -> Any:
        """Draw the dendrogram's top.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default.
        **options
            Those of `rapids_slink.hierarchy.plots.plot_dendrogram`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.
        """
        self._require_tree()
        return plots.plot_dendrogram(self.linkage_, ax=ax, **options)

    def plot_condensed(self, *, min_cluster_size: int | None = None, ax: Any = None, **options: Any) -> Any:
        """Draw the condensed tree as an icicle, as the package hdbscan does: the clusters of many rows.

        From the top down, a merge of two parts of at least `min_cluster_size` rows splits a bar in two. At every other
        merge rows fall out of a bar, which gets narrower. A chain, whose dendrogram is a comb, is one bar.

        Parameters
        ----------
        min_cluster_size : int, optional
            At least 2. By default that of `HDBSCAN`; of other models a hundredth of the rows, at least 5.
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default.
        **options
            Those of ``hdbscan.plots.CondensedTree.plot``, such as ``cmap`` or ``select_clusters``.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.

        Raises
        ------
        ImportError
            hdbscan or matplotlib is not installed.
        ValueError, TypeError
            `min_cluster_size` is not valid, a height is negative, or the rows are weighted.
        """
        self._require_fit()
        tree, labels = self._condensed(min_cluster_size)
        return interop.condensed_tree(tree, labels).plot(axis=plots.axes_of(ax), **options)

    def _condensed(self, min_cluster_size: int | None) -> tuple[Any, np.ndarray]:
        """The columns of the condensed tree, and the labels of its most stable clusters."""
        n = self.n_leaves_
        least = max(5, n // 100) if min_cluster_size is None else as_integer(min_cluster_size, "min_cluster_size")
        linkage = on_host(self.linkage_)
        if least < 2:
            raise ValueError(f"min_cluster_size must be at least 2, got {min_cluster_size}")
        if len(linkage) and linkage["height"].iloc[0] < 0:
            raise ValueError(f"a condensed tree needs distances that are not negative, got {linkage['height'].iloc[0]}")
        tree = condense.condense(*(linkage[name].to_numpy() for name in COLUMNS), n, least)
        return condense.columns_of(tree), select(tree, Rule()).labels

    def plot_tree(self, X: Any, *, ax: Any = None, **options: Any) -> Any:
        """Draw the minimum spanning tree on the rows of `X`, which the model does not keep.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            The rows that were clustered; for a graph's hierarchy, any coordinates of its nodes.
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default.
        **options
            Those of `rapids_slink.hierarchy.pictures.plot_tree`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.
        """
        self._require_fit()
        return pictures.plot_tree(X, self.mst_, self.labels_, nodes=self._nodes, ax=ax, **options)

    def plot_heights(self, ax: Any = None, **options: Any) -> Any:
        """Draw the merge heights against the number of clusters, and mark the cut if `labels_` is one.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default.
        **options
            Those of `rapids_slink.hierarchy.plots.plot_heights`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.
        """
        self._require_fit()
        n_clusters = self.n_clusters_ if self._labels_are_a_cut else None
        return plots.plot_heights(self.linkage_, self.n_leaves_, n_clusters=n_clusters, ax=ax, **options)

    def plot_clusters(self, X: Any, ax: Any = None, **options: Any) -> Any:
        """Draw the rows of `X`, which the model does not keep, coloured by `labels_`.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            The rows that were clustered; for a graph's hierarchy, any coordinates of its nodes.
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default.
        **options
            Those of `rapids_slink.hierarchy.plots.plot_clusters`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.
        """
        self._require_fit()
        return plots.plot_clusters(X, self.labels_, ax=ax, **options)

    def explore(self, X: Any, *, x: Any = None, y: Any = None) -> Explorer:
        """Explore the cuts in Jupyter: the rows of `X` in the colours of their clusters, beside the curve of heights.

        The slider moves the cut along the curve, as does a click on the curve. A number of clusters, a distance and a
        smallest size can be typed. Colours, counts and the table of the largest clusters follow at once. The lasso, or
        the menu of clusters, selects rows. For `HDBSCAN` the slider changes ``min_cluster_size``. A few
        million rows are possible.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            The rows that were clustered; for a graph's hierarchy, any coordinates of its nodes. Of more than two
            columns the principal axes are drawn, by cuML on a GPU that has it and by scikit-learn otherwise. With
            ``metric="haversine"`` the axes are longitude and latitude in degrees.
        x, y : column name or number, optional
            Two columns of `X` to draw instead.

        Returns
        -------
        Explorer
            Jupyter displays it. ``explorer.labels`` are the labels of the cut that is shown, ``explorer.selected`` are
            the selected rows of `X`, and ``explorer.to_html()`` is a page for a report.

        Raises
        ------
        ImportError
            jupyter-scatter or ipywidgets is not installed.
        ValueError, TypeError
            `X` is not valid, or does not have the number of rows that were clustered.
        """
        self._require_fit()
        return Explorer(self, X, x, y)
