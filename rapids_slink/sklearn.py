"""Classes in place of scikit-learn's ``AgglomerativeClustering`` and ``NearestNeighbors``, on a GPU or a CPU."""

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn import cluster, neighbors
from sklearn.metrics.pairwise import paired_distances, pairwise_distances
from sklearn.utils import check_array

from rapids_slink.api import fit, fit_graph, nearest_neighbors, pairs
from rapids_slink.hierarchy.model import Hierarchy
from rapids_slink.metrics import ITEM_METRICS, NAMES

#: A metric that scikit-learn defines otherwise: it divides by |x| + |y|, SciPy and this package by |x + y|.
OTHERWISE = "braycurtis"


class AgglomerativeClustering(cluster.AgglomerativeClustering):
    """Single linkage with the parameters, attributes and errors of scikit-learn's class, which is its base class.

    Single linkage is computed here; scikit-learn computes any other linkage, with a warning. The whole tree is always
    made, and `labels_` are numbered in the order in which they first appear. Arrays and frames must be on the host; use
    `rapids_slink.SingleLinkage` for those on a GPU. With ``connectivity`` the tree is that of the graph's edges, after
    scikit-learn has connected the graph's components.

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
        scikit-learn's default is kept, so pass "single".
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
        """Return `X` and its metric, or a matrix of distances if only scikit-learn has the metric."""
        if callable(self.metric):
            return self.metric(X), "precomputed"
        if self.metric == "precomputed":
            return X, self.metric
        if self.metric in NAMES:  # for booleans scikit-learn takes any number as one
            return X.astype(bool) if NAMES[self.metric].rows == "boolean" else X, self.metric
        return pairwise_distances(X, metric=self.metric), "precomputed"

    def _edges(self, X: np.ndarray) -> tuple[pd.DataFrame, int]:
        """Return the connected graph of ``connectivity``, weighted by distances, and its components before."""
        from sklearn.cluster._agglomerative import _fix_connectivity  # private: a release may lack it

        graph = self.connectivity(X) if callable(self.connectivity) else self.connectivity
        graph = check_array(graph, accept_sparse=["csr", "coo", "lil"])
        graph, components = _fix_connectivity(X, graph, affinity=self.metric)
        graph = graph.tocoo()
        src, dst = graph.row, graph.col
        weight = X[src, dst] if self.metric == "precomputed" else paired_distances(X[src], X[dst], metric=self.metric)
        return pd.DataFrame({"src": src, "dst": dst, "weight": weight}), components


class NearestNeighbors(neighbors.NearestNeighbors):
    """Nearest neighbours with the parameters, methods and errors of scikit-learn's class, which is its base class.

    The neighbours are computed here, exactly: by `nearest_neighbors`, and within a radius by `pairs`. Where distances
    tie, the first rows are the nearest. Arrays and frames must be on the host; use `rapids_slink.nearest_neighbors` for
    those on a GPU. Sparse matrices, and metrics that this package lacks, are passed on to scikit-learn, with a warning.

    Parameters
    ----------
    n_neighbors : int, default 5
        Neighbours of a row, unless `kneighbors` is given a number.
    radius : float, default 1.0
        The largest distance of a neighbour, unless `radius_neighbors` is given one.
    algorithm : {"auto", "brute", "ball_tree", "kd_tree"}, default "auto"
        The two trees are scikit-learn's own.
    leaf_size : int, default 30
        The leaf size of scikit-learn's trees.
    metric : str or callable, default "minkowski"
        Any metric of scikit-learn. Those in `rapids_slink.metrics.METRICS` except braycurtis are computed here.
    p : float, default 2
        The exponent of minkowski.
    metric_params : dict, optional
        Further arguments of the metric. With any of them except ``p`` scikit-learn searches.
    n_jobs : int, optional
        The number of threads that share the queries of `radius_neighbors` and `kneighbors`. All cores work without it.

    See Also
    --------
    rapids_slink.nearest_neighbors : The function of this package, which takes frames and arrays on a GPU too.

    Examples
    --------
    >>> from rapids_slink.sklearn import NearestNeighbors
    >>> model = NearestNeighbors(n_neighbors=2).fit([[0.0], [1.0], [9.0]])
    >>> model.kneighbors([[2.0]])
    (array([[1., 2.]]), array([[1, 0]]))
    >>> model.radius_neighbors([[2.0]], 1.5, return_distance=False)[0]
    array([1])
    """

    algorithm: str
    _fit_method: str
    _tree: Any

    def _fit(self, X: Any, y: Any = None) -> Self:
        algorithm = self.algorithm
        if algorithm == "auto":  # so that scikit-learn builds no tree
            self.algorithm = "brute"
        try:
            super()._fit(X, y)
        finally:
            self.algorithm = algorithm
        metric, rows = self.effective_metric_, self._fit_X
        others = {name for name, value in self.effective_metric_params_.items() if name != "p" and value is not None}
        is_known = isinstance(metric, str) and metric in NAMES and metric not in (OTHERWISE, *ITEM_METRICS)
        if self._fit_method == "brute" and is_known and not others and isinstance(rows, np.ndarray):
            # These are the attributes that scikit-learn reads of a tree; `_Rows` plays the tree's part.
            self._tree, self._fit_method = _Rows(rows, metric, self.effective_metric_params_.get("p", 2)), "ball_tree"
        elif metric != "precomputed" and algorithm in ("auto", "brute") and not isinstance(self._tree, _Rows):
            what = "sparse X" if is_known and not others else f"metric={metric!r}"
            warnings.warn(f"{what} is handed to scikit-learn, and so to the CPU", stacklevel=4)
        return self


@dataclass(frozen=True)
class _Rows:
    """The rows of a fit, with the methods of scikit-learn's trees."""

    values: np.ndarray  # (n, d)
    metric: Any
    p: float

    def query(self, X: np.ndarray, k: int, return_distance: bool = True) -> Any:
        """Return the distances and numbers of the k nearest rows of each query, (m, k), or their numbers alone."""
        distances, ids = nearest_neighbors(
            self._read(X), self._read(self.values), k, output="arrays", metric=self.metric, p=self.p
        )
        ids = ids.astype(np.intp)
        return (distances, ids) if return_distance else ids

    def query_radius(
        self, X: np.ndarray, radius: Any, return_distance: bool = False, sort_results: bool = False
    ) -> Any:
        """Return the numbers of the rows within a radius of each query, and their distances: arrays of arrays."""
        radius = np.asarray(radius, np.float64)
        near_pairs = pairs(
            self._read(X), self._read(self.values), max_distance=float(radius.max()), metric=self.metric, p=self.p
        )
        src, ids, distances = (np.array(near_pairs[name]) for name in ("src", "dst", "weight"))
        if radius.ndim:
            near = distances <= radius[src]
            src, ids, distances = src[near], ids[near], distances[near]
        if sort_results:
            order = np.lexsort((distances, src))
            ids, distances = ids[order], distances[order]
        ends = np.searchsorted(src, np.arange(1, len(X)))
        listed = [self._objects(part, ends) for part in (ids.astype(np.intp), distances)]
        return tuple(listed) if return_distance else listed[0]

    def _read(self, X: np.ndarray) -> np.ndarray:
        """Return rows as this package takes them; scikit-learn takes any number for a boolean."""
        return X.astype(bool) if NAMES[self.metric].rows == "boolean" else X

    @staticmethod
    def _objects(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return an array of objects, which are the parts of `values` that `ends` separates."""
        parts = np.empty(ends.size + 1, object)
        parts[:] = np.split(values, ends) if ends.size else [values]
        return parts
