"""`SingleLinkage`: clusters by a cut of the exact hierarchy."""

from __future__ import annotations

from rapids_slink.dendrogram.flat import Cut
from rapids_slink.point_hierarchy import PointHierarchy


class SingleLinkage(PointHierarchy):
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
        "canberra", "braycurtis", "hamming", "jaccard" and "dice" (booleans), "inner_product" (-x·y) or "haversine"
        (latitude and longitude in radians); `rapids_slink.metrics` defines them. Or "precomputed": `X` holds distances.
    p : float
        The exponent of minkowski, above 0.
    n_neighbors : int, optional
        Neighbours of each row in the k-NN graph from which the tree is first built. It trades the time of one stage
        against that of another and does not change the result. By default 8, or no graph where there are so few rows
        that computing all distances takes less time. On a GPU there is none either, whatever this is, of up to six
        features, or eight if the rows are many. With `min_samples` there is one, unless the rows are few.
    min_samples : int, optional
        Cluster by mutual reachability, as HDBSCAN does: the distance of two rows becomes the largest of their
        distance and the distances from either to its `min_samples`-th nearest other row, and the heights are those of
        SciPy's ``linkage`` of these. At most n - 1. This is the count of the package hdbscan; scikit-learn's HDBSCAN
        counts the row itself too, so that its ``min_samples`` is one more. 1 is the same as None: the distances
        themselves. The k-NN graph then has at least one neighbour more than this.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back.
    progress : bool
        Show a progress bar.
    memory_limit : int or str, optional
        Bytes, or text such as "8GiB": what `fit` may take at a time on top of its input. Work is cut into smaller
        chunks, which changes no result; the neighbour lists, 12 bytes a neighbour, and the tree have to fit. A GPU's
        memory pool enforces it; on a CPU it is checked by an estimate. By default, what is free.

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

    def _default_min_samples(self) -> int:
        return 1

    def _cluster_rule(self) -> Cut:
        return Cut(self.n_clusters, self.distance_threshold)
