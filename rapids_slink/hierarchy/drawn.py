"""Pictures of a hierarchy: plots, and the explorer in Jupyter."""

from typing import Any

import pandas as pd

from rapids_slink.dendrogram import condense
from rapids_slink.dendrogram.condense import Rule, select, summarize
from rapids_slink.dendrogram.cutting import COLUMNS
from rapids_slink.hierarchy import plots
from rapids_slink.hierarchy.explorer import Explorer
from rapids_slink.hierarchy.exports import Exports
from rapids_slink.hierarchy.plotted import MAX_POINTS
from rapids_slink.hierarchy.trees import CondensedTree
from rapids_slink.points.columns import as_integer
from rapids_slink.points.output import on_host
from rapids_slink.runtime.memory import usual_errors


class Drawn(Exports):
    """The plots of `Hierarchy`."""

    @usual_errors()
    def plot(self, *, ax: Any = None, p: int = 30, truncate_mode: str | None = "lastp", **kwargs: Any) -> Any:
        """Draw the dendrogram with SciPy and matplotlib.

        By default only the last ``p - 1`` merges are drawn, over `p` leaves that are whole clusters: "(1234)" is a
        cluster of 1,234 rows, "17" is row 17. A million rows take SciPy a third of a second, in a tree of any depth.

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

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn into.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            `p` or `truncate_mode` is not valid, the whole tree is too deep to be drawn, or it is a forest.
        """
        self._require_tree()
        return plots.plot_dendrogram(self.linkage_, ax=ax, p=p, truncate_mode=truncate_mode, **kwargs)

    @usual_errors()
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
            See `CondensedTree.plot`.

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
        return self._condensed(min_cluster_size).plot(axis=ax, **options)

    def _condensed(self, min_cluster_size: int | None) -> CondensedTree:
        """The condensed tree with the labels of its most stable clusters."""
        n = self.n_leaves_
        least = max(5, n // 100) if min_cluster_size is None else as_integer(min_cluster_size, "min_cluster_size")
        linkage = on_host(self.linkage_)
        if least < 2:
            raise ValueError(f"min_cluster_size must be at least 2, got {min_cluster_size}")
        merges = condense.Merges(*(linkage[name].to_numpy() for name in COLUMNS))
        if merges.height.size and merges.height[0] < 0:
            raise ValueError(f"a condensed tree needs distances that are not negative, got {merges.height[0]}")
        tree = condense.condense(merges, n, least)
        return CondensedTree(pd.DataFrame(condense.columns_of(tree)), select(tree, Rule(), summarize(tree)).labels)

    @usual_errors()
    def plot_tree(self, X: Any, *, max_edges: int = MAX_POINTS, ax: Any = None) -> Any:
        """Draw the minimum spanning tree on the rows: the edges within clusters, and those that the cut removes.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            The rows that were clustered, which the model does not keep; for a graph's hierarchy, any coordinates of its
            nodes. Of more than two columns the first two principal components are drawn.
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
        ImportError, ValueError, TypeError
            See `plot_clusters`.
        """
        self._require_fit()
        return plots.plot_tree(X, self.mst_, self.labels_, nodes=self._nodes, max_edges=max_edges, ax=ax)

    @usual_errors()
    def plot_heights(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw the heights of the merges, the highest first, against the number of clusters, and mark the cut.

        At k clusters the curve has the height of the merge that leaves k - 1 clusters. A cut between two very different
        heights is stable: it changes little when the data does. More than 2,000 heights are sampled evenly along the
        logarithmic axis: all of the highest, and ever fewer of the lower ones. The cut is that of `labels_`, if they
        are one.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default. The axis of the number of clusters is logarithmic from 100
            merges on. The axis of heights is logarithmic if none is negative and the positive ones span two orders of
            magnitude.
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
        self._require_fit()
        n_clusters = self.n_clusters_ if self._labels_are_a_cut else None
        return plots.plot_heights(self.linkage_, self.n_leaves_, n_clusters=n_clusters, ax=ax, **kwargs)

    @usual_errors()
    def plot_clusters(self, X: Any, ax: Any = None, **kwargs: Any) -> Any:
        """Draw the rows as points, coloured by `labels_`.

        One column is drawn as a strip with an arbitrary second axis, two columns as they are, and more by the first two
        principal components of the drawn rows. Each of the six largest clusters has a colour, in order of size. All
        others and noise are grey. The fewer points a colour has, the larger they are. At most 20,000 rows are drawn,
        evenly spaced within each colour and the same number of each, so small clusters are drawn whole. Above 100,000
        rows datashader, if installed, draws all of them: a pixel has the mixed colour of its rows, and more of it for
        more rows.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            The rows that were clustered, which the model does not keep; for a graph's hierarchy, any coordinates of its
            nodes.
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
        self._require_fit()
        return plots.plot_clusters(X, self.labels_, ax=ax, **kwargs)

    @usual_errors()
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
