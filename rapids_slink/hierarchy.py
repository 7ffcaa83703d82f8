"""A finished single-linkage hierarchy: cut it again, hand it on, look at it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink import interop
from rapids_slink.dendrogram import cut_labels
from rapids_slink.dendrogram.cutting import WORKSPACE, device_of, label_frame
from rapids_slink.device import resolve, to_host
from rapids_slink.points import Caller


class Hierarchy:
    """What `SingleLinkage` and `fit_graph` share.

    Attributes
    ----------
    linkage_ : DataFrame
        ``left``, ``right`` (int32), ``height`` (float64), ``size`` (int32): SciPy's Z, row i making cluster
        ``n_leaves_ + i``.
    mst_ : DataFrame
        ``src``, ``dst`` (int32 row numbers), ``weight`` (float64): the minimum spanning tree's edges in the order in
        which they merge.
    labels_ : Series or array of shape (n_leaves_,), int32
        The cut that was asked for.
    n_leaves_ : int
    n_clusters_ : int
    """

    linkage_: Any
    mst_: Any
    labels_: Any
    n_leaves_: int
    n_clusters_: int
    _caller: Caller
    _index: Any = None  # of the input's rows, if it was a frame of them

    @property
    def children_(self) -> Any:
        """The two clusters that each merge joins, int32 of shape (merges, 2), as scikit-learn has it."""
        return self._array(self.linkage_[["left", "right"]].values)

    @property
    def distances_(self) -> Any:
        """The height of each merge, float64."""
        return self._array(self.linkage_["height"].values)

    def cut(self, n_clusters: Any = None, *, distance_threshold: Any = None, min_cluster_size: int = 1) -> Any:
        """Labels of another cut of the same tree, or of many.

        Parameters
        ----------
        n_clusters : int or sequence of int, optional
            Exactly this many clusters, equal heights included. A list, tuple, range or 1-d array makes a cut for each
            value.
        distance_threshold : float or sequence of float, optional
            Clusters at or above this distance stay apart. Give one of the two.
        min_cluster_size : int
            Clusters of fewer rows are labelled -1, the others 0..k-1.

        Returns
        -------
        Series or array of shape (n_leaves_,), int32
            0..k-1 in order of first appearance; a Series with the input's index if the input was a frame.
            For a sequence of cuts a DataFrame with that index and a column for each, named by its value, or an array
            of shape (n_leaves_, cuts).

        Raises
        ------
        ValueError, TypeError
            Both or neither is given, or one is not valid.
        """
        linkage, _ = Caller.of(self.linkage_, resolve("auto", self.linkage_))
        device = device_of(linkage)
        with device.working(reserve=WORKSPACE * self.n_leaves_):
            labels = cut_labels(
                linkage,
                self.n_leaves_,
                n_clusters=n_clusters,
                distance_threshold=distance_threshold,
                min_cluster_size=min_cluster_size,
            )
        labels = device.keep(labels)
        if labels.ndim == 1:
            return self._labels(labels)
        if not self._caller.frame_given:
            return self._array(labels.T)
        return self._caller.frame(label_frame(labels, n_clusters, distance_threshold, device), self._index)

    def to_scipy(self) -> np.ndarray:
        """The hierarchy as ``scipy.cluster.hierarchy`` takes it: float64 of shape (n_leaves_ - 1, 4)."""
        self._require_tree()
        return interop.to_scipy(self.linkage_)

    def plot(self, *, ax: Any = None, **options: Any) -> Any:
        """Draw the dendrogram's top; see `interop.plot_dendrogram`. Returns the matplotlib axes."""
        self._require_tree()
        return interop.plot_dendrogram(self.linkage_, ax=ax, **options)

    def _require_tree(self) -> None:
        trees = self.n_leaves_ - len(self.linkage_)
        if trees != 1:
            raise ValueError(f"SciPy has no linkage of a forest, and this hierarchy is one of {trees} trees")

    def _array(self, array: Any) -> Any:
        return self._caller.array(array)

    def _labels(self, labels: Any) -> Any:
        return self._caller.series(labels, name="label")


def number_of_clusters(labels: Any) -> int:
    """How many clusters labels 0..k-1 name."""
    return int(to_host(labels.max())) + 1
