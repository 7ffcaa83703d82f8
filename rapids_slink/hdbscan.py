"""`HDBSCAN`: flat clusters of varying density, from the exact hierarchy of mutual reachability."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.dendrogram.condense import Rule
from rapids_slink.dendrogram.flat import StableClusters
from rapids_slink.point_hierarchy import PointHierarchy
from rapids_slink.points.columns import as_integer

METHODS = ("eom", "leaf")


class HDBSCAN(PointHierarchy):
    """Hierarchical density-based clustering with noise, over the exact tree.

    The heights of the hierarchy equal those of ``scipy.cluster.hierarchy.linkage`` of mutual reachability to the last
    bit, on a GPU and on a CPU. The clusters are those of the package hdbscan with ``algorithm="generic"`` if no two
    heights tie. With `min_samples` above 1 many tie, because all edges within a row's core distance weigh the same, and
    each package takes these in its own order. Rows at distance zero are never split.

    Parameters
    ----------
    min_cluster_size : int
        The rows of smaller branches of the tree fall out of a cluster. At least 2.
    min_samples : int, optional
        The mutual reachability of two rows is the largest of their distance and the distances from each of them to its
        `min_samples`-th nearest other row. At most n - 1. By default `min_cluster_size`, or n - 1 if there are fewer
        rows. The packages hdbscan and cuML count in the same way; scikit-learn's HDBSCAN counts the row itself, too, so
        its ``min_samples`` is one more.
    metric : str
        Any metric of `SingleLinkage` without negative distances.
    p : float
        The exponent of minkowski, above 0.
    cluster_selection_method : {"eom", "leaf"}
        "eom" (excess of mass) selects the clusters that are the most stable together, "leaf" those that do not split
        further.
    cluster_selection_epsilon : float
        Clusters that split off below this distance are merged into the one that they split from.
    allow_single_cluster : bool
        Whether all rows may be one cluster.
    max_cluster_size : int, optional
        Excess of mass does not select larger clusters. None or 0 for no limit.
    n_neighbors : int, optional
        See `SingleLinkage`; it does not change the result.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" never falls back. Clusters are selected on the host.
    progress : bool
        Show a progress bar.
    memory_limit : int or str, optional
        The largest number of bytes that `fit` may use on top of its input, or text such as "8GiB"; see `SingleLinkage`.

    Attributes
    ----------
    labels_ : Series or array of shape (n,), int32
        -1 is noise; clusters are numbered in the order in which they first appear. A Series with the index of `X` if
        `X` is a frame, otherwise an array, like the next two.
    probabilities_ : Series or array of shape (n,), float64
        How deep in its cluster each row is, from 0 to 1; 0 for noise.
    outlier_scores_ : Series or array of shape (n,), float64
        GLOSH, from 0 to 1: the larger, the less a row belongs to its surroundings.
    cluster_persistence_ : array of shape (clusters,), float64
        The stability of each cluster, from 0 to 1.
    condensed_tree_ : DataFrame
        ``parent``, ``child`` (int64), ``lambda_val`` (float64, 1 / distance), ``child_size`` (int64), as in the package
        hdbscan: rows are 0..n-1, clusters are n and above, and n is all rows.
    linkage_, single_linkage_tree_ : DataFrame
        ``left``, ``right``, ``height``, ``size``: SciPy's Z of mutual reachability.
    mst_ : DataFrame
        ``src``, ``dst``, ``weight``: the minimum spanning tree in merge order; ids are row numbers.
    children_, distances_ : array of shape (n - 1, 2), (n - 1,)
        The linkage in the form of scikit-learn's `AgglomerativeClustering`.
    n_clusters_, n_leaves_, n_features_in_ : int
        The number of clusters, rows and columns.
    n_connected_components_ : int
        The number of connected components of the k-NN graph; 1 if there was no graph.
    feature_names_in_ : ndarray of str
        The columns' names, if `X` is a frame and all names are strings.
    report_ : dict
        What was proven, and the seconds of each stage.

    See Also
    --------
    SingleLinkage : The same hierarchy cut at one height, by ``min_samples=``.

    References
    ----------
    Campello, Moulavi, Sander, "Density-based clustering based on hierarchical density estimates", PAKDD 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from rapids_slink import HDBSCAN
    >>> X = np.r_[np.linspace(0, 1, 9), np.linspace(5, 7, 9), 30.0][:, None]
    >>> HDBSCAN(min_cluster_size=4, min_samples=3, device="cpu").fit(X).labels_.tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1]
    """

    _labels_are_a_cut = False

    def __init__(
        self,
        min_cluster_size: int = 5,
        min_samples: int | None = None,
        *,
        metric: str = "euclidean",
        p: float = 2.0,
        cluster_selection_method: str = "eom",
        cluster_selection_epsilon: float = 0.0,
        allow_single_cluster: bool = False,
        max_cluster_size: int | None = None,
        n_neighbors: int | None = None,
        device: str = "auto",
        progress: bool = False,
        memory_limit: int | str | None = None,
    ) -> None:
        self.min_cluster_size = min_cluster_size
        self.min_samples = min_samples
        self.metric = metric
        self.p = p
        self.cluster_selection_method = cluster_selection_method
        self.cluster_selection_epsilon = cluster_selection_epsilon
        self.allow_single_cluster = allow_single_cluster
        self.max_cluster_size = max_cluster_size
        self.n_neighbors = n_neighbors
        self.device = device
        self.progress = progress
        self.memory_limit = memory_limit

    @property
    def single_linkage_tree_(self) -> Any:
        """The linkage, under its name in other packages."""
        self._require_fit()
        return self.linkage_

    def _default_min_samples(self) -> int:
        return self.min_cluster_size

    def _cluster_rule(self) -> StableClusters:
        if as_integer(self.min_cluster_size, "min_cluster_size") < 2:
            raise ValueError(f"min_cluster_size must be at least 2, got {self.min_cluster_size}")
        epsilon: Any = self.cluster_selection_epsilon
        method, max_size = self.cluster_selection_method, self.max_cluster_size
        if method not in METHODS:
            raise ValueError(f"cluster_selection_method must be one of {METHODS}, got {method!r}")
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float | np.number):
            raise TypeError(f"cluster_selection_epsilon must be a number, got {epsilon!r}")
        if not 0 <= epsilon < np.inf:
            raise ValueError(f"cluster_selection_epsilon must be finite and at least 0, got {epsilon}")
        if max_size is not None and as_integer(max_size, "max_cluster_size") < 0:
            raise ValueError(f"max_cluster_size must be at least 0, got {max_size}")
        rule = Rule(method == "leaf", bool(self.allow_single_cluster), float(max_size or np.inf), float(epsilon))
        return StableClusters(int(self.min_cluster_size), rule, self.metric)
