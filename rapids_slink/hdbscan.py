"""`HDBSCAN`: flat clusters of varying density, from the exact hierarchy of mutual reachability.

The functions have the names that they have in the package hdbscan and in cuML. So ``from rapids_slink import hdbscan``
can take the place of either import in a program that predicts.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from rapids_slink import pipeline, prediction
from rapids_slink.dendrogram import condense
from rapids_slink.dendrogram.cutting import COLUMNS, CutParameters, StableClusters, write_labels
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.exports import Deferred
from rapids_slink.hierarchy.model import WithRows
from rapids_slink.hierarchy.trees import CondensedTree, MinimumSpanningTree, SingleLinkageTree
from rapids_slink.items.search import kind_of
from rapids_slink.metrics import PRECOMPUTED, MetricName
from rapids_slink.points.check import as_integer, column_values
from rapids_slink.points.output import (
    Frame,
    OutputKind,
    PreallocatedFrame,
    Rows,
    Values,
    array_of,
    as_frame,
    as_known,
    on_host,
)
from rapids_slink.report import counted
from rapids_slink.runtime.device import device_of, on_current_gpu, resolve, to_host
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate, check_memory, run_scope
from rapids_slink.settings import Settings
from rapids_slink.single_linkage import PointHierarchy, engine_of

__all__ = [
    "HDBSCAN", "all_points_membership_vectors", "approximate_predict", "approximate_predict_scores",
    "membership_vector",
]  # fmt: skip
METHODS = ("eom", "leaf")
CENTERS = (None, "centroid", "medoid", "both")
#: Parameters of other packages that may not change the clusters: their only values, and why there are no others.
FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "alpha": ((1.0,), "scaled distances make another tree"),
    "cluster_selection_persistence": ((0.0,), "to_hdbscan(cluster_selection_persistence=...) chooses by it"),
    "match_reference_implementation": ((False,), "the clusters are those that the package hdbscan has without it"),
    "branch_detection_data": ((False,), "only the package hdbscan finds branches within clusters"),
    "metric_params": ((None, {}), "p is the only parameter of a metric"),
    "output_type": ((None, "input"), "results have the type of X; cuml.set_global_output_type sets another"),
}


class DensityHierarchy(PointHierarchy):
    """The base of `HDBSCAN`."""

    probabilities_: Rows
    outlier_scores_: Rows
    cluster_persistence_: Values
    centroids_: Values
    medoids_: Values
    _condensed_: Frame = Deferred()  # type: ignore[assignment]  # see condense.columns_of
    _drawn_: Values  # with gen_min_span_tree and without prediction_data: the rows' values
    _core_: Values  # with prediction_data: see prediction.core_distances
    _selected_: Values  # the cluster in the condensed tree of each label
    _labels_are_a_cut = False

    @property
    def condensed_tree_(self) -> CondensedTree:
        """Return the clusters of at least `min_cluster_size` rows: which split, when, and when each row falls out."""
        self._require_fit()
        return self._condensed(None)

    @property
    def single_linkage_tree_(self) -> SingleLinkageTree:
        """Return the merges with the methods of the package hdbscan; `linkage_` is their frame."""
        self._require_fit()
        return SingleLinkageTree(self)

    @property
    def minimum_spanning_tree_(self) -> MinimumSpanningTree:
        """Return the tree of mutual reachability with the methods of the package hdbscan; `mst_` is its frame."""
        self._require_fit()
        rows = getattr(self, "_points_", getattr(self, "_drawn_", None))
        return MinimumSpanningTree(self.mst_, self.n_leaves_, rows)

    def dbscan_clustering(self, cut_distance: float, min_cluster_size: int = 5) -> Rows:
        """Return the clusters of DBSCAN* with a radius; the method has its name in the package hdbscan.

        Parameters
        ----------
        cut_distance, min_cluster_size : float, int
            See `SingleLinkageTree.get_clusters`.

        Returns
        -------
        Series or array of shape (n,), int32
            -1 is noise.
        """
        return self.single_linkage_tree_.get_clusters(cut_distance, min_cluster_size)

    def generate_prediction_data(self) -> None:
        """Check that the model can predict. A fit with ``prediction_data=True`` has made all that this takes.

        Raises
        ------
        ValueError
            The model was fitted without ``prediction_data=True`` and keeps no rows.
        """
        self._fitted_rows()

    @property
    def exemplars_(self) -> list[Values]:
        """Return the rows that stay in each cluster to its end, an array of shape (rows, d) for each label."""
        rows, label = self._density().exemplars
        points = on_current_gpu(self._points_)
        chosen = points[device_of(points).asarray(rows)]
        return [self._output.array(chosen[label == k]) for k in range(self.n_clusters_)]

    def approximate_predict(self, X: Any) -> tuple[Rows, Rows]:
        """Return the clusters in which new rows would be, and how deep they would be in them, without a new fit.

        The definitions are those of the package hdbscan. Of the 2 · `min_samples` nearest fitted rows, that with the
        least mutual reachability decides, and of equal ones the nearest. `report_` counts the new rows and the noise.

        Parameters
        ----------
        X : dataframe or array, (m, d)
            New rows. The columns of a frame go by name if the model was fitted on a frame.

        Returns
        -------
        labels : Series or array of shape (m,), int32
            -1 is noise. Both results are Series with the index of `X` if `X` is a frame.
        probabilities : Series or array of shape (m,), float64
            From 0 to 1; 0 for noise.

        Raises
        ------
        ValueError, TypeError
            The model was fitted without ``prediction_data=True``, or `X` is not valid.
        DeviceMemoryError
            The work needs more memory than there is or than `memory_limit`.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import HDBSCAN
        >>> X = np.r_[np.linspace(0, 1, 9), np.linspace(5, 7, 9), 30.0][:, None]
        >>> model = HDBSCAN(min_cluster_size=4, min_samples=3, prediction_data=True, device="cpu").fit(X)
        >>> labels, probabilities = model.approximate_predict(np.array([[0.5], [6.1], [90.0]]))
        >>> labels.tolist()
        [0, 1, -1]
        """
        labels, probabilities, _ = self._predict_with_rows(X)
        return labels, probabilities

    @WithRows
    def predict(self, X: Any) -> Rows:
        """Return the labels of `approximate_predict`."""
        return self.approximate_predict(X)[0]

    def membership_vector(self, X: Any) -> Values:
        """Return how far new rows belong to each cluster, as the package hdbscan defines it.

        Parameters
        ----------
        X : dataframe or array, (m, d)
            See `approximate_predict`.

        Returns
        -------
        array of shape (m, clusters), float64
            A column for each label. The sum of a row is its probability of belonging to any cluster.

        Raises
        ------
        ValueError, TypeError, DeviceMemoryError
            See `approximate_predict`.
        """
        return self._predict(partial(prediction.membership_vector, model=self._density()), X)

    def all_points_membership_vectors(self) -> Values:
        """Return how far the fitted rows belong to each cluster, as the package hdbscan defines it.

        Returns
        -------
        array of shape (n, clusters), float64
            See `membership_vector`.

        Raises
        ------
        ValueError, DeviceMemoryError
            See `approximate_predict`.
        """
        answer = partial(prediction.all_membership_vectors, model=self._density())
        return self._predict(lambda X, **how: answer(self._output, **how), None)

    def _predict_with_rows(self, X: Any) -> tuple[Any, Any, Any]:
        """Return what `approximate_predict` returns, and the fitted row whose cluster each new row takes."""
        return self._predict(partial(prediction.approximate_predict, model=self._density()), X)

    def _density(self) -> prediction.Density:
        """Return the model in the form that predictions read."""
        rows, min_samples = self._fitted_rows(), self.report_.get("min_samples", 1)
        tree = condense.from_frame(as_frame(self._condensed_), self.n_leaves_)
        return prediction.Density(rows, self._core_, min_samples, tree, to_host(self._selected_))

    @property
    def relative_validity_(self) -> float:
        """Return hdbscan's fast form of DBCV, from -1 to 1: how dense clusters are, compared with gaps.

        It compares models of one data set. Moulavi et al., "Density-based clustering validation", SDM 2014.
        """
        self._require_fit()
        tree = on_host(self.mst_)
        src, dst, weight = (tree[name].to_numpy() for name in ("src", "dst", "weight"))
        return prediction.relative_validity(np.asarray(on_host(self.labels_)), src, dst, weight)

    def _condensed(self, min_cluster_size: int | None) -> CondensedTree:
        if min_cluster_size is None:
            return CondensedTree(self._condensed_, self.labels_, plotting.unit_of(self))
        if hasattr(self, "_weighted_"):
            raise ValueError("no condensed tree of weighted rows is drawn: fit without sample_weight")
        return super()._condensed(min_cluster_size)


@dataclass(eq=False, repr=False)
class HDBSCAN(DensityHierarchy):
    """Hierarchical density-based clustering with noise, over the exact tree.

    The heights of the hierarchy equal those of ``scipy.cluster.hierarchy.linkage`` of mutual reachability to the last
    bit, on a GPU and on a CPU. The clusters are those of the package hdbscan with ``algorithm="generic"`` if no two
    heights tie. With `min_samples` above 1 many tie, because all edges within a row's core distance weigh the same, and
    each package takes equal edges in its own order. The heights are still equal, but the rows and the number of
    clusters may differ where clusters are hardly denser than their surroundings. Rows at distance zero are never split.

    Parameters
    ----------
    min_cluster_size : int
        The least size of a cluster, at least 2. The rows of smaller branches of the tree fall out of their cluster.
    min_samples : int, optional
        The neighbours of a row in mutual reachability; see `SingleLinkage`. By default `min_cluster_size`, or n - 1 if
        there are fewer rows.
    metric, p : str, float
        Any metric of `SingleLinkage` without negative distances.
    box, scales : optional
        See `SingleLinkage`.
    cluster_selection_method : {"eom", "leaf"}
        "eom" (excess of mass) selects the clusters that are the most stable together, "leaf" those that do not split
        further.
    cluster_selection_epsilon : float
        Clusters that split off below this distance are merged into the one that they split from.
    cluster_selection_epsilon_max : float
        Excess of mass does not select clusters that split off above this distance.
    allow_single_cluster : bool
        Whether all rows may be one cluster.
    max_cluster_size : int, optional
        Excess of mass does not select larger clusters. None or 0 for no limit.
    n_neighbors, device, progress, memory_limit : optional
        See `SingleLinkage`. Clusters are selected on the host.
    prediction_data : bool
        Keep a copy of the rows and their core distances, for the predictions and `exemplars_`. It costs a further k-NN
        search.
    gen_min_span_tree : bool
        Keep a copy of the rows, except those of a Dask collection, for ``minimum_spanning_tree_.plot()``. The tree
        itself is there in any case.
    store_centers : {None, "centroid", "medoid", "both"}
        Compute `centroids_`, `medoids_` or both, as scikit-learn does. Medoids take all pairs within each cluster.
    algorithm, leaf_size, memory, approx_min_span_tree, core_dist_n_jobs, n_jobs, copy, verbose : object
        Parameters of the packages hdbscan, scikit-learn and cuML that say how the tree is found. They are ignored,
        because the tree is exact in any case.
    build_algo, build_kwds, device_ids : object
        Ignored likewise.
    alpha, cluster_selection_persistence, match_reference_implementation, branch_detection_data : float, bool
        Parameters of these packages whose other values would change the clusters. Only the defaults are valid.
    metric_params, output_type : optional
        Only None is valid.

    Attributes
    ----------
    labels_ : Series or array of shape (n,), int32
        -1 is noise; clusters are numbered in the order in which they first appear. `labels_` and the next two are
        Series with the index of `X` if `X` is a frame, columns of Polars or Arrow if it is a table of these, otherwise
        arrays.
    probabilities_ : Series or array of shape (n,), float64
        How deep in its cluster each row is, from 0 to 1; 0 for noise.
    outlier_scores_ : Series or array of shape (n,), float64
        GLOSH scores, from 0 to 1: the larger, the less a row belongs to its surroundings.
    cluster_persistence_ : array of shape (clusters,), float64
        How long each cluster lasts, from 0 to 1: its stability, divided by the number of rows at its birth and by the
        largest λ at which any row leaves any cluster. λ is 1 / distance. The values are those of the package hdbscan,
        unless `allow_single_cluster` or `cluster_selection_epsilon` is given. hdbscan counts otherwise then, and its
        values may exceed 1.
    condensed_tree_ : CondensedTree
        The clusters of at least `min_cluster_size` rows, selected or not. This and the next two have methods of the
        package hdbscan: ``to_pandas()``, ``to_numpy()``, ``to_networkx()``, ``plot()``.
    single_linkage_tree_ : SingleLinkageTree
        The merges of `linkage_`.
    minimum_spanning_tree_ : MinimumSpanningTree
        The edges of `mst_`.
    centroids_, medoids_ : array of shape (clusters, d), float64
        With `store_centers`. A centroid is the mean of a cluster's rows, weighted by their probabilities. A medoid is
        the row with the least sum of distances to the others, weighted likewise.
    linkage_ : DataFrame
        ``left``, ``right``, ``height``, ``size``: SciPy's Z of mutual reachability.
    mst_, children_, distances_, n_leaves_, n_features_in_, n_connected_components_, feature_names_in_, report_
        See `SingleLinkage`.
    n_clusters_ : int
        The number of clusters, without noise.

    See Also
    --------
    SingleLinkage : With `min_samples` the same hierarchy, cut at one height.

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

    min_cluster_size: int = 5
    min_samples: int | None = None
    _: KW_ONLY
    metric: MetricName | Literal["precomputed"] = "euclidean"
    p: float | None = 2.0
    box: float | Collection[float] | None = None
    scales: Mapping[Any, float] | None = None
    cluster_selection_method: str = "eom"
    cluster_selection_epsilon: float = 0.0
    cluster_selection_epsilon_max: float = np.inf
    allow_single_cluster: bool = False
    max_cluster_size: int | None = None
    n_neighbors: int | None = None
    device: str = "auto"
    progress: bool | str = "auto"
    memory_limit: int | str | None = None
    prediction_data: bool = False
    gen_min_span_tree: bool = False
    store_centers: str | None = None
    # These are parameters of other packages and have no effect.
    algorithm: str | None = None
    leaf_size: int | None = None
    memory: object = None
    approx_min_span_tree: bool = False
    core_dist_n_jobs: int | None = None
    n_jobs: int | None = None
    copy: object = None
    verbose: object = False
    build_algo: str | None = None
    build_kwds: object = None
    device_ids: object = None
    # These are parameters of other packages with a fixed value: see FIXED.
    alpha: float = 1.0
    cluster_selection_persistence: float = 0.0
    match_reference_implementation: bool = False
    branch_detection_data: bool = False
    metric_params: object = None
    output_type: str | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: None = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : dataframe, array or graph
            See `SingleLinkage.fit`.
        y : None
            Ignored; a `Pipeline` passes it.
        sample_weight : array or Series of shape (n,), optional
            Numbers above 0. A row of weight w gives the clusters of w equal rows: the size of a cluster is the sum of
            its weights, and core distances count the copies. Equal heights are taken in another order. Predictions
            count each row once.
        groups : None
            Only `SingleLinkage` takes groups.

        Returns
        -------
        object
            The model itself.

        Raises
        ------
        ValueError, TypeError, DeviceUnavailableError, DeviceMemoryError
            See `SingleLinkage.fit`.
        """
        if groups is not None:
            raise ValueError(
                "HDBSCAN takes no groups: SingleLinkage(min_samples=...).fit(X, groups=...) makes their hierarchies of "
                "mutual reachability"
            )
        return self._fit(X, weights=sample_weight)

    def select(self, X: Any = None, *, min_cluster_size: Any = None, min_samples: Any = None) -> Rows | Frame:
        """Return the labels for one or many values of `min_cluster_size` and `min_samples`, from one k-NN graph.

        Each pair of values has the labels of a fit with these values, to the bit. The other parameters are those of
        this model, which does not change. A fitted model needs no rows for its own `min_samples`: the clusters are
        chosen from its tree. Otherwise one k-NN graph is made for the largest `min_samples`, and from it a tree for
        each value.

        Parameters
        ----------
        X : dataframe, array or graph, optional
            Rows to cluster; see `fit`. With them the model need not be fitted. By default the rows of the fit. They are
            only read for another `min_samples` than that of the fit, and a model with ``prediction_data=True`` keeps
            them.
        min_cluster_size, min_samples : int or sequence of int, optional
            See `HDBSCAN`. By default those of this model.

        Returns
        -------
        Series, DataFrame or array, int32
            The labels, as in `labels_`, if neither is a sequence. Otherwise a frame with a column for each value of the
            sequence, or for each pair ``(min_cluster_size, min_samples)`` if both are sequences. A column's name is its
            value or pair, in Polars and Arrow the text of it. If `X` is an array, the result is an array of shape (n,
            columns); `min_samples` changes faster from column to column.

        Raises
        ------
        ValueError, TypeError
            A value is not valid or occurs twice. Without `X`, the model is not fitted, has weights, or keeps no rows
            although they are needed. Or `X` is a Dask collection, text or sets.
        DeviceMemoryError
            The work needs more memory than there is or than `memory_limit`.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import HDBSCAN
        >>> X = np.r_[np.linspace(0, 1, 9), np.linspace(5, 7, 9), 30.0][:, None]
        >>> HDBSCAN(device="cpu").select(X, min_cluster_size=[4, 9], min_samples=[2, 3]).shape
        (19, 4)
        >>> model = HDBSCAN(min_cluster_size=4, min_samples=3, device="cpu").fit(X)
        >>> set(model.select(min_cluster_size=12).tolist())
        {-1}
        """
        X = as_known(X)
        if X is None:
            self._require_own_tree("select")
        settings = replace(self._settings(), prediction_data=False, store_centers=None)
        rule = self._cluster_rule(settings)
        own = settings.min_samples if X is not None else self.report_.get("min_samples", 1)
        sizes, by_size = _values_of(min_cluster_size, self.min_cluster_size, "min_cluster_size", 2)
        samples, by_samples = _values_of(min_samples, own, "min_samples", 1)
        rules = [replace(rule, min_size=size) for size in sizes]
        if X is None and samples == [own]:
            labels, output, index = self._select_from_tree(rules), self._output, self._index
        else:
            settings = replace(settings, gen_min_span_tree=False, clipped=settings.clipped and min_samples is None)
            labels, output, index = self._select_from_rows(X, settings, rules, samples)
        output = output.from_cuml_setting()
        if not (by_size or by_samples):
            return output.labels(array_of(labels["0"]), index)
        names: Any = sizes if by_size else samples
        if by_size and by_samples:
            names = pd.MultiIndex.from_product([sizes, samples], names=["min_cluster_size", "min_samples"])
        if not output.is_frame:
            return output.array(labels.values)
        frame = replace(output, wrapper="").frame(labels, index)
        frame.columns = names
        return output.wrap(frame)

    def layers(self) -> Frame:
        """Return the values of `min_cluster_size` at which the choice of clusters is the most persistent.

        As `min_cluster_size` grows, clusters that do not split further appear and vanish. Each cluster exists for a
        range of sizes: from the first size at which nothing in it splits, up to the number of rows of the smaller side
        of the split that made it. The persistence of a size is the sum of the lengths of these ranges over its
        clusters. A layer is a range of sizes with the same clusters. The layers that persist longer than those beside
        them are returned, so nobody has to guess `min_cluster_size`. ``select(min_cluster_size=...)`` makes the labels,
        and with ``cluster_selection_method="leaf"`` they are these very clusters. This takes linear time and a sort, on
        the host.

        Returns
        -------
        DataFrame
            A row for each layer, the most persistent first, of equal ones the smaller sizes first. The columns, all
            int64, are ``min_cluster_size`` and ``last_size``, the first and the last size of the range;
            ``persistence``, a number of sizes; and ``n_clusters``. The frame is empty if nothing splits at any size of
            at least 2.

        Raises
        ------
        ValueError
            The model is not fitted, has weights, or is of a Dask collection.

        References
        ----------
        Bot, McInnes, Aerts, "Persistent multiscale density-based clustering", arXiv 2512.16558, 2025: the total
        persistence of sizes.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import HDBSCAN
        >>> X = np.r_[np.linspace(0, 1, 9), np.linspace(5, 7, 12), np.linspace(60, 62, 20)][:, None]
        >>> model = HDBSCAN(min_samples=3, cluster_selection_method="leaf", device="cpu").fit(X)
        >>> model.layers()
           min_cluster_size  last_size  persistence  n_clusters
        0                 2          9           35           3
        >>> sorted(set(model.select(min_cluster_size=9).tolist()))
        [0, 1, 2]
        """
        self._require_own_tree("layers")
        merges = condense.Merges.of(on_host(self.linkage_))
        layers = np.array(condense.layers(merges, self.n_leaves_), np.int64).reshape(-1, len(condense.Layer._fields))
        names = ["min_cluster_size", *condense.Layer._fields[1:]]
        return self._output.frame(pd.DataFrame(dict(zip(names, layers.T, strict=True))))

    def _require_own_tree(self, method: str) -> None:
        """Raise unless the model is fitted on rows that count as one each, on one device."""
        self._require_fit()
        if hasattr(self, "_weighted_"):
            raise ValueError(f"{method} counts rows, and these have weights: fit without sample_weight")
        if self._layout is not None:
            raise ValueError(f"{method} takes a model in one piece, and this has partitions: save it and load it")

    def _select_from_tree(self, rules: list[StableClusters]) -> Any:
        """Return the frame of labels by each rule from the model's tree; its columns are numbered."""
        linkage, _ = OutputKind.of(self.linkage_, resolve("auto", self.linkage_))
        device, n = device_of(linkage), self.n_leaves_
        with run_scope(device):
            needed = MemoryEstimate((TREE_BYTES[device.name] + 4 * len(rules)) * n)
            check_memory(device, needed, f"the clusters of {counted(n, 'row')}")
            columns = {name: column_values(linkage[name], device) for name in COLUMNS}
            labels = PreallocatedFrame.empty(device, n, dict.fromkeys(map(str, range(len(rules))), "int32"))
            write_labels(rules, PreallocatedFrame(columns, device), n, list(labels.columns.values()))
        return labels.frame

    def _select_from_rows(
        self, X: Any, settings: Settings, rules: list[StableClusters], samples: list[int]
    ) -> tuple[Any, OutputKind, Any]:
        """Return the frame of labels by each rule for each number of samples, and its kind of output and index."""
        kept = self._fitted_rows() if X is None else None
        if kept is not None:
            X, settings = kept.values, replace(settings, metric=kept.metric)
        if engine_of(X, metric=settings.metric) is not pipeline or kind_of(settings.metric, X) is not None:
            raise ValueError("select takes rows of features on one device: of text, sets, or in partitions fit each")
        labels, points = pipeline.select(X, settings, rules, samples)
        return (labels, points.output, points.index) if kept is None else (labels, self._output, self._index)

    def _settings(self, min_samples: int = 1, **more: Any) -> Settings:
        return super()._settings(self.min_cluster_size, **more)

    def _cluster_rule(self, settings: Settings) -> StableClusters:
        check_fixed(self, FIXED)
        if as_integer(self.min_cluster_size, "min_cluster_size") < 2:
            raise ValueError(f"min_cluster_size must be at least 2, got {self.min_cluster_size}")
        if self.store_centers not in CENTERS:
            raise ValueError(f"store_centers must be one of {CENTERS}, got {self.store_centers!r}")
        if self.store_centers is not None and self.metric == PRECOMPUTED.name:
            raise ValueError("store_centers takes the rows' features, and metric='precomputed' has none")
        if self.store_centers in ("centroid", "both") and self.box is not None:
            raise ValueError(f"store_centers={self.store_centers!r} takes means, which a box has not: take 'medoid'")
        method, max_size = self.cluster_selection_method, self.max_cluster_size
        if method not in METHODS:
            raise ValueError(f"cluster_selection_method must be one of {METHODS}, got {method!r}")
        epsilon: Any = self.cluster_selection_epsilon
        largest: Any = self.cluster_selection_epsilon_max
        for name, value in (("cluster_selection_epsilon", epsilon), ("cluster_selection_epsilon_max", largest)):
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise TypeError(f"{name} must be a number, got {value!r}")
        if not 0 <= epsilon < np.inf:
            raise ValueError(f"cluster_selection_epsilon must be finite and at least 0, got {epsilon}")
        if not epsilon <= largest:
            raise ValueError(
                f"cluster_selection_epsilon_max must be at least cluster_selection_epsilon={epsilon}, got {largest}"
            )
        if max_size is not None and as_integer(max_size, "max_cluster_size") < 0:
            raise ValueError(f"max_cluster_size must be at least 0, got {max_size}")
        max_rows, single = float(max_size or np.inf), bool(self.allow_single_cluster)
        rule = condense.Rule(method == "leaf", single, max_rows, float(epsilon), float(largest))
        return StableClusters(int(self.min_cluster_size), rule, self.metric)


def _values_of(asked: Any, own: int, name: str, least: int) -> tuple[list[int], bool]:
    """Return the values of the parameter `name`, by default the model's own one, and whether it is a sequence."""
    values, many = CutParameters(own if asked is None else asked).values
    values = [as_integer(value, name) for value in values]
    if not values or min(values) < least:
        raise ValueError(f"{name} must be at least {least}, got {asked}")
    if len(set(values)) < len(values):
        raise ValueError(f"{name} must not hold a value twice, since each names a column; got {asked}")
    return [int(value) for value in values], many


def check_fixed(model: Any, names: Iterable[str]) -> None:
    """Raise ValueError if one of these parameters of a model has a value that `FIXED` does not have."""
    for name in names:
        values, reason = FIXED[name]
        if (value := getattr(model, name)) not in values:
            raise ValueError(f"{name} must be {values[0]!r}, got {value!r}: {reason}")


def approximate_predict(
    clusterer: HDBSCAN, points_to_predict: Any, return_connecting_points: bool = False
) -> tuple[Rows, ...]:
    """Return `HDBSCAN.approximate_predict` of new rows; the package hdbscan and cuML have this function, too.

    Parameters
    ----------
    clusterer : HDBSCAN
        Fitted with ``prediction_data=True``.
    points_to_predict : dataframe or array, (m, d)
        New rows.
    return_connecting_points : bool
        Also return the fitted row whose cluster each new one takes.

    Returns
    -------
    labels, probabilities : Series or array of shape (m,)
        See `HDBSCAN.approximate_predict`.
    neighbors : Series or array of shape (m,), int32
        Row numbers, only with `return_connecting_points`.
    """
    labels, probabilities, neighbors = clusterer._predict_with_rows(points_to_predict)
    return (labels, probabilities, neighbors) if return_connecting_points else (labels, probabilities)


def approximate_predict_scores(clusterer: HDBSCAN, points_to_predict: Any) -> Rows:
    """Return the GLOSH outlier scores of new rows in the fitted hierarchy, as the package hdbscan does.

    Parameters
    ----------
    clusterer, points_to_predict : HDBSCAN, dataframe or array
        See `approximate_predict`.

    Returns
    -------
    Series or array of shape (m,), float64
        The larger the score, the less a row belongs to its surroundings. It is below 0 if the row lies more densely
        than all of them.
    """
    return clusterer._predict(partial(prediction.predict_scores, model=clusterer._density()), points_to_predict)


def membership_vector(clusterer: HDBSCAN, points_to_predict: Any, batch_size: int | None = None) -> Values:
    """Return `HDBSCAN.membership_vector` of new rows; the package hdbscan and cuML have this function, too.

    Parameters
    ----------
    clusterer, points_to_predict : HDBSCAN, dataframe or array
        See `approximate_predict`.
    batch_size : int, optional
        Ignored; cuML's callers pass it.

    Returns
    -------
    array of shape (m, clusters), float64
        See `HDBSCAN.membership_vector`.
    """
    return clusterer.membership_vector(points_to_predict)


def all_points_membership_vectors(clusterer: HDBSCAN, batch_size: int | None = None) -> Values:
    """Return `HDBSCAN.all_points_membership_vectors`; the package hdbscan and cuML have this function, too.

    Parameters
    ----------
    clusterer : HDBSCAN
        Fitted with ``prediction_data=True``.
    batch_size : int, optional
        Ignored; cuML's callers pass it.

    Returns
    -------
    array of shape (n, clusters), float64
        See `HDBSCAN.all_points_membership_vectors`.
    """
    return clusterer.all_points_membership_vectors()
