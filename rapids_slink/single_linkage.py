"""The pipeline: each stage's call, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import estimator_html_repr

from rapids_slink.dendrogram import build_linkage, cut_labels, estimate_linkage
from rapids_slink.dendrogram.cutting import check_cut, estimate_cut
from rapids_slink.hierarchy.base import Hierarchy, number_of_clusters
from rapids_slink.metrics import PRECOMPUTED, Metric, distances, get_metric
from rapids_slink.neighbors import check_n_neighbors, neighbor_lists
from rapids_slink.neighbors.plan import default_neighbors, estimate_search, prepare_search
from rapids_slink.neighbors.rows import metric_rows, row_bytes, row_features
from rapids_slink.ordering import sort_in_place
from rapids_slink.points import Points, as_points
from rapids_slink.points.distances import as_distances
from rapids_slink.report import Report
from rapids_slink.runtime.device import Device, resolve
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.runtime.frames import PreallocatedFrame
from rapids_slink.runtime.memory import release_cached, run_scope
from rapids_slink.spanning_tree import count_connected_components, empty_edges, prim, spanning_tree
from rapids_slink.spanning_tree.connect import EDGE_BYTES, estimate_connect
from rapids_slink.spanning_tree.repeats import find_repeats


class SingleLinkage(ClusterMixin, Hierarchy, BaseEstimator):
    """Exact single-linkage hierarchical clustering.

    The heights are those of ``scipy.cluster.hierarchy.linkage(X, "single", metric)`` to the last bit, on a GPU and on a
    CPU, whatever `n_neighbors` is; where no two distances tie, so is the rest of SciPy's Z. (For minkowski, whose
    powers are a library's in SciPy, within 4 units in the last place, and to the same bits on a GPU and on a CPU.)

    Parameters
    ----------
    n_clusters : int or None, default=2
        Clusters to cut into. None if `distance_threshold` is given.
    distance_threshold : float, optional
        Cut so that clusters at or above this distance are not merged.
    metric : str
        "euclidean", "sqeuclidean", "cosine", "correlation", "cityblock" ("manhattan", "l1"), "chebyshev", "minkowski",
        "canberra", "braycurtis", "hamming", "jaccard" (booleans), "inner_product" (-x·y) or "haversine" (latitude and
        longitude in radians); `rapids_slink.metrics` defines them. Or "precomputed": `X` holds distances.
    p : float
        The exponent of minkowski, above 0.
    n_neighbors : int, optional
        Neighbours of each row in the k-NN graph that the tree is first grown on. It trades the time of one stage
        against that of another and has no say in the result. By default 8, or no graph where there are so few rows
        that weighing every pair takes less time.
    min_samples : int, optional
        Cluster by mutual reachability, as HDBSCAN does: two rows are as far apart as the largest of their distance and
        the distances from either to its `min_samples`-th nearest other row, and the heights are those of SciPy's
        ``linkage`` of these. At most n - 1. This is the count of the package hdbscan; scikit-learn's HDBSCAN counts
        the row itself too, so that its ``min_samples`` is one more. 1 is the same as None: the distances themselves.
        The k-NN graph then has at least one neighbour more than this.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back.
    progress : bool
        Show a progress bar.
    memory_limit : int or str, optional
        Bytes, or text such as "8GiB": what `fit` may take at a time on top of its input. Work is cut into smaller
        chunks, which changes no result; the neighbour lists, 12 bytes a neighbour, and the tree have to fit. A GPU's
        memory pool holds to it; on a CPU it rests on an estimate. By default, what is free.

    Attributes
    ----------
    labels_ : Series or array of shape (n,), int32
        A Series with `X`'s index if `X` is a frame, otherwise an array of `X`'s kind.
    linkage_ : DataFrame
        ``left``, ``right``, ``height``, ``size``: SciPy's Z.
    mst_ : DataFrame
        ``src``, ``dst``, ``weight``: the minimum spanning tree in merge order; ids are row numbers.
    children_, distances_ : array of shape (n - 1, 2), (n - 1,)
        The linkage as scikit-learn's `AgglomerativeClustering` has it.
    n_clusters_, n_leaves_, n_features_in_ : int
        Clusters that `labels_` names, rows, columns.
    n_connected_components_ : int
        Of the k-NN graph, before it was connected; 1 where none was made.
    feature_names_in_ : ndarray of str
        The columns' names, if `X` is a frame whose names are all strings.
    report_ : dict
        What was proven, and the seconds of each stage.

    References
    ----------
    Nolet et al., "cuSLINK: Single-linkage Agglomerative Clustering on the GPU", ECML PKDD 2023.

    Examples
    --------
    >>> import pandas as pd
    >>> from rapids_slink import SingleLinkage
    >>> df = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.2], "y": [0.0, 0.0, 1.0, 1.0]})
    >>> SingleLinkage(n_clusters=2, device="cpu").fit(df).labels_.tolist()
    [0, 0, 1, 1]
    """

    def __init__(
        self,
        n_clusters: int | None = 2,
        *,
        distance_threshold: float | None = None,
        metric: str = "euclidean",
        p: float = 2.0,
        n_neighbors: int | None = None,
        min_samples: int | None = None,
        device: str = "auto",
        progress: bool = False,
        memory_limit: int | str | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.distance_threshold = distance_threshold
        self.metric = metric
        self.p = p
        self.n_neighbors = n_neighbors
        self.min_samples = min_samples
        self.device = device
        self.progress = progress
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: Any = None) -> SingleLinkage:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            A cuDF or pandas DataFrame, CuPy or NumPy array, or anything with ``__cuda_array_interface__`` or DLPack;
            float32 or float64, integers and booleans are converted. For ``metric="precomputed"`` a symmetric
            matrix of finite distances, (n, n), or an array of SciPy's condensed form, (n(n - 1)/2,).
        y : None
            Not used; a `Pipeline` passes it.

        Returns
        -------
        SingleLinkage
            The model itself.

        Raises
        ------
        ValueError, TypeError
            If `X` or a parameter is not valid, or a row has no distance in this metric; the message names it.
        DeviceUnavailableError, DeviceMemoryError
            If ``device="cuda"`` has no GPU, or the work needs more memory than there is or than `memory_limit`; both
            are ValueErrors.
        """
        metric = PRECOMPUTED if self.metric == PRECOMPUTED.name else get_metric(self.metric, self.p)
        k = None if self.n_neighbors is None else check_n_neighbors(self.n_neighbors)
        min_samples = 1 if self.min_samples is None else check_n_neighbors(self.min_samples, "min_samples")
        device = resolve(self.device, X)
        if min_samples > 1:  # beyond the core, so that a point's nearest in a denser place is certain
            k = max(k or default_neighbors(metric, device), min_samples + 1)
        report = Report(device=device.name, metric=metric.name)
        if self.min_samples is not None:
            report["min_samples"] = min_samples
        with run_scope(device, self.memory_limit):
            self._fit(X, metric, k, min_samples, device, report)
        self.report_ = report
        return self

    def _fit(self, X: Any, metric: Metric, k: int | None, min_samples: int, device: Device, report: Report) -> None:
        def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
            return _estimate(n, d, itemsize, k, min_samples, metric, device)

        with report.stage("input", device):
            points = (as_distances if metric is PRECOMPUTED else as_points)(X, device, estimate)
            n = len(points.values)
            check_cut(n, 1, self.n_clusters, self.distance_threshold)
            if self.min_samples is not None and min_samples > n - 1:
                raise ValueError(f"min_samples must be at most n - 1 = {n - 1}, got {min_samples}")
        tree, components = minimum_spanning_tree_of_points(
            points.values, metric, k, device, report, min_samples=min_samples, progress=self.progress
        )
        with report.stage("linkage", device):
            merges = build_linkage(tree, n, device)
        with report.stage("cut", device):
            labels = cut_labels(merges, n, n_clusters=self.n_clusters, distance_threshold=self.distance_threshold)
        self.n_connected_components_ = components
        self._set_result(points, tree, merges, labels)

    def _set_result(self, points: Points, tree: Any, merges: Any, labels: Any) -> None:
        """Set the attributes, in the caller's kind."""
        self._output, self._index = points.output, points.index
        self.linkage_, self.mst_ = points.frame(merges), points.frame(tree)
        self.labels_ = points.labels(labels["label"].values)
        self.n_clusters_ = number_of_clusters(labels)
        self.n_leaves_, self.n_features_in_ = points.values.shape
        self._name_features(points.names)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == PRECOMPUTED.name
        return tags

    def _repr_html_(self) -> str:
        """For Jupyter: a summary of what was found, or scikit-learn's diagram of the parameters before `fit`."""
        return super()._repr_html_() if hasattr(self, "linkage_") else estimator_html_repr(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return {kind: self._repr_html_() if kind == "text/html" else shown for kind, shown in bundle.items()}

    def _name_features(self, names: list[Any] | None) -> None:
        if names and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_


def _estimate(
    n: int, d: int, itemsize: int, n_neighbors: int | None, min_samples: int, metric: Metric, device: Device
) -> MemoryEstimate:
    """Bytes of `fit` once it has the points: the lists are given back when there is a tree."""
    if n_neighbors is None and prim.is_worthwhile(n, row_features(metric, d), metric, device):
        rows = row_bytes(metric, d) * n
        tree = sequential(MemoryEstimate(rows, rows), prim.estimate_tree(n, row_features(metric, d)))
    else:
        k = n_neighbors or default_neighbors(metric, device)
        search = estimate_search(n, d, itemsize, k, device, min_samples=min_samples, metric=metric)
        tree = sequential(search, estimate_connect(n, search))
    tree = replace(tree, retained=EDGE_BYTES * n)
    return sequential(tree, estimate_linkage(n), estimate_cut(n))


def minimum_spanning_tree_of_points(
    values: Any,
    metric: Metric,
    n_neighbors: int | None,
    device: Device,
    report: Report,
    *,
    min_samples: int = 1,
    progress: bool = False,
) -> tuple[Any, int]:
    """The exact minimum spanning tree over all pairs of points.

    Parameters
    ----------
    values : (n, d) array on the device
    n_neighbors : int, optional
        Neighbours of each row in the graph that the forest is grown on. By default there need not be one.
    min_samples : int
        Edges weigh mutual reachability with this many neighbours in a core; 1 for the metric's distance.

    Returns
    -------
    tree : edge frame
        n - 1 rows in merge order, weighing distances.
    components : int
        Connected components of the k-NN graph.
    """
    n = values.shape[0]
    if n == 1:
        return empty_edges(device), 1
    with report.stage("neighbors", device):
        rows = metric_rows(metric, values, device)
    tree, components = _surrogate_tree(rows, metric, n_neighbors, device, report, min_samples, progress)
    src, dst, weight = tree.columns.values()
    weight[...] = distances(metric, weight, (src, dst), (values, values), device)
    if metric.changes_order:
        sort_in_place(tree.columns, device.xp)
    return tree.frame, components


def _surrogate_tree(
    rows: Any, metric: Metric, n_neighbors: int | None, device: Device, report: Report, min_samples: int, progress: bool
) -> tuple[PreallocatedFrame, int]:
    """The tree, weighing surrogate distances, and the components of the k-NN graph that it was grown on, 1 if none."""
    n, d = rows.shape
    if n_neighbors is None and prim.is_worthwhile(n, d, metric, device):
        with report.stage("spanning_tree", device):
            report.count("spanning_tree", pairs_weighed=n * (n - 1) // 2)
            return prim.tree_of_few(rows, metric), 1
    with report.stage("neighbors", device):
        repeats = find_repeats(rows, metric, device) if min_samples == 1 else None
    if repeats is not None:
        report.count("spanning_tree", repeated_rows=repeats.repeated.size)
        distinct = rows[repeats.first]
        tree, components = _surrogate_tree(distinct, metric, n_neighbors, device, report, min_samples, progress)
        joined = repeats.join(tree, device)
        if joined is not None:
            return joined, components
    with report.stage("neighbors", device):
        search = prepare_search(rows, device, report, progress=progress, metric=metric)
        lists = neighbor_lists(search, n, n_neighbors or default_neighbors(metric, device), device, min_samples)
    release_cached(device)
    with report.stage("components", device):
        components = count_connected_components(lists, device)
    return spanning_tree(lists, search, device, report), components


def fit(X: Any, n_clusters: int | None = None, **parameters: Any) -> SingleLinkage:
    """Cluster the rows of `X`: ``SingleLinkage(n_clusters, **parameters).fit(X)``.

    Parameters
    ----------
    X : dataframe or array, (n, d)
        As `SingleLinkage.fit` takes it.
    n_clusters : int, optional
        2 unless it or ``distance_threshold`` is given.
    **parameters
        Those of `SingleLinkage`.

    Returns
    -------
    SingleLinkage
        Fitted; see its attributes.
    """
    if n_clusters is None and parameters.get("distance_threshold") is None:
        n_clusters = 2
    return SingleLinkage(n_clusters, **parameters).fit(X)
