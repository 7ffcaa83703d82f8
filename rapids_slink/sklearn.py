"""scikit-learn's ``AgglomerativeClustering``, for ``linkage="single"`` on a GPU or a CPU."""

import warnings
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn import cluster
from sklearn.metrics.pairwise import paired_distances, pairwise_distances
from sklearn.utils import check_array

from rapids_slink.api import fit, fit_graph
from rapids_slink.hierarchy.model import Hierarchy
from rapids_slink.metrics import NAMES


class AgglomerativeClustering(cluster.AgglomerativeClustering):
    """Single linkage with the parameters, attributes and errors of scikit-learn's class, its base class.

    Single linkage is computed here; scikit-learn computes any other linkage, with a warning. The whole tree is always
    made, and `labels_` are numbered in the order in which they first appear. Arrays and frames must be on the host; use
    `rapids_slink.SingleLinkage` for those on a GPU. With ``connectivity`` the tree is that of the graph's edges, after
    scikit-learn has joined the graph's components.

    Parameters
    ----------
    n_clusters : int or None, default 2
        The number of clusters; None if `distance_threshold` is given.
    metric : str or callable, default "euclidean"
        Any metric of scikit-learn. Those in `rapids_slink.metrics.METRICS` are computed here; for others scikit-learn
        computes all pairs. With ``"precomputed"`` X is a square matrix of distances.
    memory : str or object, optional
        Ignored: nothing is kept between calls.
    connectivity : array, sparse matrix or callable, optional
        Which rows are neighbours: an (n, n) matrix, or a function that makes it from X.
    compute_full_tree : bool or "auto", default "auto"
        Not False if `distance_threshold` is given.
    linkage : {"single", "ward", "complete", "average"}, default "ward"
    distance_threshold : float, optional
        Do not merge at or above this distance.
    compute_distances : bool, default False
        Set `distances_` also without `distance_threshold`.

    See Also
    --------
    rapids_slink.SingleLinkage : The estimator of this package, which takes frames and arrays on a GPU too.

    Examples
    --------
    >>> from rapids_slink.sklearn import AgglomerativeClustering
    >>> AgglomerativeClustering(2, linkage="single").fit_predict([[0.0], [1.0], [9.0]]).tolist()
    [0, 0, 1]
    """

    def _fit(self, X: np.ndarray) -> Self:
        if self.linkage != "single":
            warnings.warn(f"linkage={self.linkage!r} is handed to scikit-learn, and so to the CPU", stacklevel=4)
            return super()._fit(X)
        if (self.n_clusters is None) == (self.distance_threshold is None):
            raise ValueError(
                "Exactly one of n_clusters and distance_threshold has to be set, and the other needs to be None."
            )
        if self.distance_threshold is not None and not self.compute_full_tree:
            raise ValueError("compute_full_tree must be True if distance_threshold is set.")
        cut = {"n_clusters": self.n_clusters, "distance_threshold": self.distance_threshold}
        if self.connectivity is None:
            X, metric = self._distances(X)
            model: Hierarchy = fit(X, metric=metric, **cut)
            self.n_connected_components_ = 1
        else:
            edges, self.n_connected_components_ = self._edges(X)
            model = fit_graph(edges, n_nodes=len(X), **cut)
        self.labels_, self.children_ = np.asarray(model.labels_), np.asarray(model.children_)
        self.n_clusters_, self.n_leaves_ = model.n_clusters_, model.n_leaves_
        if self.distance_threshold is not None or self.compute_distances:
            self.distances_ = np.asarray(model.distances_)
        return self

    def _distances(self, X: np.ndarray) -> tuple[np.ndarray, Any]:
        """`X` and its metric, or a matrix of distances if only scikit-learn has the metric."""
        if callable(self.metric):
            return self.metric(X), "precomputed"
        if self.metric == "precomputed":
            return X, self.metric
        if self.metric in NAMES:  # for booleans scikit-learn takes any number as one
            return X.astype(bool) if NAMES[self.metric].rows == "boolean" else X, self.metric
        return pairwise_distances(X, metric=self.metric), "precomputed"

    def _edges(self, X: np.ndarray) -> tuple[pd.DataFrame, int]:
        """The connected graph of ``connectivity``, weighted by distances, and its number of components before."""
        from sklearn.cluster._agglomerative import _fix_connectivity  # private: a release may lack it

        graph = self.connectivity(X) if callable(self.connectivity) else self.connectivity
        graph = check_array(graph, accept_sparse=["csr", "coo", "lil"])
        graph, components = _fix_connectivity(X, graph, affinity=self.metric)
        graph = graph.tocoo()
        src, dst = graph.row, graph.col
        weight = X[src, dst] if self.metric == "precomputed" else paired_distances(X[src], X[dst], metric=self.metric)
        return pd.DataFrame({"src": src, "dst": dst, "weight": weight}), components
