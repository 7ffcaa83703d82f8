"""`SingleLinkage`: clusters by a cut of the exact hierarchy."""

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import inf, nextafter
from typing import Any

from rapids_slink.dendrogram.cutting import Cut, check_cut, check_max_distance
from rapids_slink.hierarchy.estimator import WithRows
from rapids_slink.point_hierarchy import PointHierarchy
from rapids_slink.points.output import array_of, as_frame, library_of
from rapids_slink.prediction import nearest_labels


@dataclass(eq=False, repr=False)
class SingleLinkage(PointHierarchy):
    """Exact single-linkage hierarchical clustering.

    The heights equal those of ``scipy.cluster.hierarchy.linkage(X, "single", metric)`` to the last bit, on a GPU and on
    a CPU, whatever `n_neighbors` is. If no two distances tie, the rest of SciPy's Z is equal, too. The exception is
    minkowski, which agrees with SciPy within 4 units in the last place, with the same bits on a GPU and on a CPU.

    Parameters
    ----------
    n_clusters : int or None, default=2
        The number of clusters. None if `distance_threshold` is given.
    distance_threshold : float, optional
        Clusters at or above this distance are not merged.
    metric : str
        "euclidean", "sqeuclidean", "cosine", "correlation", "cityblock" ("manhattan", "l1"), "chebyshev", "minkowski",
        "canberra", "braycurtis", "hamming", "jaccard", "dice" and "rogerstanimoto" (booleans), "bit_jaccard" and
        "bit_hamming" (uint8 of eight bits each), "inner_product" (-x·y) or "haversine" (latitude and longitude in
        radians); `rapids_slink.metrics` defines them. Or "precomputed": `X` holds distances.
    p : float
        The exponent of minkowski, above 0.
    missing : {"pairwise", "hiercc"}, optional
        How missing values are treated: nulls, NaN, and `missing_value`. By default they are refused. "pairwise", for
        euclidean, sqeuclidean, cityblock and hamming: features that are missing in either row are left out, and the sum
        is multiplied by features over features present, as `sklearn.metrics.pairwise.nan_euclidean_distances` and R's
        ``dist`` do. "hiercc", for hamming: the number of differing alleles, corrected for missing ones as HierCC does;
        `rapids_slink.metrics` has the formula. Two rows without a common feature are refused.
    missing_value : number, text, or list of these, optional
        What means missing as well, such as 0 or ``["0", "-", "LNF"]`` for alleles. Text that is a number counts as that
        number: 0, "0" and 0.0 are the same, here and in a column of text for hamming. Other metrics with `missing` take
        a column of text if everything else in it is a number.
    max_distance : float, optional
        Clusters at a greater distance are not merged. The result is a forest: its merges, and its cuts at thresholds up
        to this distance, are those of the whole tree. `n_clusters` must be at least the number of its trees; if it and
        `distance_threshold` are None, each tree is a cluster. Searches among many rows of many features stop at this
        distance.
    n_neighbors : int, optional
        Neighbours of each row in the k-NN graph with which the tree starts. It shifts time between two stages and does
        not change the result. By default 8, or no graph if there are so few rows that computing all distances takes
        less time. A GPU makes no graph for up to six features, or eight if there are many rows, or up to 32 if many
        rows are along curves or surfaces, for any value of this parameter, and neither device makes one for given
        distances. With `min_samples` there is a graph, unless there are few rows or their distances are given.
    min_samples : int, optional
        Cluster by mutual reachability, as HDBSCAN does: the distance of two rows becomes the largest of their distance
        and the distances from each of them to its `min_samples`-th nearest other row. The heights are those of SciPy's
        ``linkage`` of these distances. At most n - 1. The package hdbscan counts in the same way; scikit-learn's
        HDBSCAN counts the row itself, too, so its ``min_samples`` is one more. 1 is the same as None: the distances
        themselves. The k-NN graph has at least one neighbour more than this.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back. Of several GPUs it is the current one,
        ``cupy.cuda.Device()``: rows on another GPU are copied to it, and the results are on it. All work on a GPU is on
        its default stream: calls at the same time take turns, and a CUDA graph cannot capture one.
    progress : bool
        Show a progress bar.
    memory_limit : int or str, optional
        The largest number of bytes that `fit` may use at a time on top of its input; or text such as "8GiB". The work
        is cut into smaller chunks, which changes no result. The neighbour lists, 12 bytes per neighbour, and the tree
        must fit. A GPU's memory pool enforces the limit; on a CPU it is compared with an estimate. By default the limit
        is the free memory.
    prediction_data : bool
        Keep a copy of the rows, for `predict` and `append`.

    Attributes
    ----------
    labels_ : Series or array of shape (n,), int32
        A Series with the index of `X` if `X` is a frame, a Series of Polars or an array of Arrow if it is a table of
        these, otherwise an array of NumPy or CuPy.
    linkage_ : DataFrame
        ``left``, ``right`` (int32), ``height`` (float64), ``size`` (int32): SciPy's Z. Row i forms cluster
        ``n_leaves_ + i``.
    mst_ : DataFrame
        ``src``, ``dst`` (int32 row numbers), ``weight`` (float64): the minimum spanning tree in merge order.
    children_, distances_ : array of shape (n - 1, 2), (n - 1,)
        The linkage in the form of scikit-learn's `AgglomerativeClustering`.
    n_clusters_, n_leaves_, n_features_in_ : int
        The number of clusters, rows and columns.
    n_connected_components_ : int
        The number of connected components of the k-NN graph; 1 if there was no graph. Unless `n_neighbors` is given,
        the lists of many rows end where the tree needs no more, and the number is that of these lists. It depends on
        the device.
    feature_names_in_ : ndarray of str
        The columns' names, if `X` is a frame and all names are strings.
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

    n_clusters: int | None = 2
    _: KW_ONLY
    distance_threshold: float | None = None
    metric: str = "euclidean"
    p: float = 2.0
    missing: str | None = None
    missing_value: float | str | Collection[float | str] | None = None
    max_distance: float | None = None
    n_neighbors: int | None = None
    min_samples: int | None = None
    device: str = "auto"
    progress: bool = False
    memory_limit: int | str | None = None
    prediction_data: bool = False

    @WithRows
    def predict(self, X: Any) -> Any:
        """The cluster of new rows: that of the nearest fitted row, if this is nearer than the cut.

        `report_` counts the new rows and those without a cluster.

        Parameters
        ----------
        X : dataframe or array, (m, d)
            New rows. The columns of a frame go by name if the model was fitted on a frame.

        Returns
        -------
        Series or array of shape (m,), int32
            The label of the nearest row in `labels_`, the first of equally near ones; -1 if its distance is not below
            `distance_threshold` or, for `n_clusters`, the height of the first merge above the cut, or is above
            `max_distance`. A Series with the index of `X` if `X` is a frame.

        Raises
        ------
        ValueError, TypeError
            The model was fitted without ``prediction_data=True`` or with `min_samples`, or `X` is not valid.
        DeviceMemoryError
            The work needs more memory than there is or than `memory_limit`.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import SingleLinkage
        >>> X = np.array([[0.0], [0.1], [5.0], [5.2]])
        >>> model = SingleLinkage(n_clusters=2, prediction_data=True, device="cpu").fit(X)
        >>> model.predict(np.array([[5.1], [1.0], [30.0]])).tolist()
        [1, 0, -1]
        """
        fitted = self._fitted_rows()
        if self.report_.get("min_samples", 1) > 1:
            raise ValueError("predict takes distances of rows, and this model has min_samples: use HDBSCAN")
        labels = array_of(self.labels_) if library_of(self.labels_) else self.labels_
        return self._predict(partial(nearest_labels, fitted=fitted, labels=labels, height=self._cut_height()), X)

    def _cut_height(self) -> float:
        """The distance at which the clusters of `labels_` would merge further."""
        if self._distance_threshold_ is not None:
            return float(self._distance_threshold_)
        heights = as_frame(self.linkage_)["height"]
        kept = self.n_leaves_ - self.n_clusters_
        if kept < len(heights):
            return float(heights.iloc[kept])
        return inf if self._max_distance_ is None else nextafter(self._max_distance_, inf)  # itself merges

    def _default_min_samples(self) -> int:
        return 1

    def _cluster_rule(self) -> Cut:
        limit, threshold = self.max_distance, self.distance_threshold
        if limit is not None:
            check_cut(1, 1, None, limit, "max_distance")
            if self.n_clusters is None and threshold is None:
                threshold = float("inf")
            elif threshold is not None:
                check_max_distance([threshold], limit)
        return Cut(self.n_clusters, threshold)
