"""The base of the models of points, with the choice of the engine that fits them, and `SingleLinkage`."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import partial
from math import inf, nextafter
from types import ModuleType
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from rapids_slink import pipeline
from rapids_slink.dendrogram import changes_of, kept_names
from rapids_slink.dendrogram.cutting import (
    OUTLIER,
    ClusterRule,
    Cut,
    check_distance,
    check_max_distance,
    distance_limit,
)
from rapids_slink.hierarchy.model import Estimator, Hierarchy, WithRows
from rapids_slink.items.search import kind_of
from rapids_slink.metrics import PRECOMPUTED, SPARSE_METRICS, Metric, MetricName
from rapids_slink.neighbors import check_n_neighbors
from rapids_slink.points.keys import GroupBy
from rapids_slink.points.output import (
    Frame,
    Rows,
    Values,
    array_of,
    as_frame,
    as_known,
    is_collection,
    library_of,
    on_host,
)
from rapids_slink.prediction import Fitted, FittedRows, medoids, nearest_labels
from rapids_slink.report import Report
from rapids_slink.runtime.device import Device, check_device_name, on_current_gpu
from rapids_slink.runtime.memory import as_bytes
from rapids_slink.runtime.threads import shown_progress
from rapids_slink.settings import Settings, metric_of, metric_with, missing_values_of


def engine_of(*inputs: Any, metric: Metric | None = None, rows: tuple[Any, ...] | None = None) -> ModuleType:
    """Return the engine that serves these inputs: `distributed` if one is a Dask collection, else that of one device.

    `metric` is the metric of the `rows`, which are the inputs by default; it is None for graphs.

    Each module has the functions of `api` that its inputs can reach, and `fit`, `append` and `predict` for models. If
    `fit` returns an attribute ``_layout``, the method ``cut`` of it makes the model's further cuts.
    """
    if any(map(is_collection, inputs)):
        if metric is not None and kind_of(metric, *(inputs if rows is None else rows)) is not None:
            raise ValueError(f"metric={metric.name!r} takes no Dask collection: pass a frame of one partition")
        from rapids_slink import distributed  # it needs Dask

        return distributed
    return pipeline


class RowEstimator:
    """The parameters and attributes of all estimators of rows."""

    metric: str
    p: float | None
    missing: str | None = None
    missing_value: Any = None
    box: Any = None
    scales: Any = None
    device: str
    progress: bool | str
    memory_limit: int | str | None
    prediction_data: bool = False
    n_features_in_: int
    feature_names_in_: Values
    _fitted_by = tuple[tuple[str, str], ...]()  # attributes that keep parameters of the fit, and the parameters

    @property
    def _metric(self) -> Metric:
        """Return the metric that the parameters describe."""
        return self._settings_of_rows().metric

    def _settings_of_rows(self, **more: Any) -> Settings:
        """Return the settings of all estimators and `more`; raise for values that are not valid for any data."""
        p = 2.0 if self.p is None else self.p
        metric = metric_of(self.metric, p, self.missing, self.box, self.scales, allow_precomputed=True)
        as_bytes(self.memory_limit)  # raises unless it is valid
        return Settings(
            metric=metric,
            device=check_device_name(self.device),
            memory_limit=self.memory_limit,
            progress=shown_progress(self.progress),
            missing_values=missing_values_of(self.missing_value, self.missing),
            **more,
        )

    def _take(self, fitted: dict[str, Any]) -> Self:
        """Replace all fitted attributes at once, note parameters of the fit, and return the model."""
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_") and name != "_layout"}
        fitted_by = {name: getattr(self, parameter, None) for name, parameter in self._fitted_by}
        self.__dict__ = {**kept, **fitted_by, **fitted}
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.pairwise = self.metric == PRECOMPUTED.name
        tags.input_tags.sparse = self.metric in SPARSE_METRICS and not self.prediction_data
        tags.input_tags.allow_nan = self.missing is not None
        return tags


class PointHierarchy(RowEstimator, Hierarchy, Estimator):
    """An estimator of a hierarchy of rows. Subclasses differ in how they choose clusters."""

    max_distance: float | None = None
    min_similarity: float | None = None
    store_centers: str | None = None
    gen_min_span_tree: bool = False
    n_neighbors: int | None
    min_samples: int | None
    n_connected_components_: int
    _metric_: tuple[Any, ...]  # with prediction_data: see `parameters_of`
    _missing_values_: tuple[Any, ...]
    _fitted_by = (("_distance_threshold_", "distance_threshold"), ("_box_", "box"), ("_max_distance_", "max_distance"))
    _max_distance_: float | None = None
    _distance_threshold_: float | None = None
    _box_: float | Collection[float] | None = None
    _weighted_: bool  # True for rows with sample_weight
    _points_: Values  # with prediction_data: the rows' values
    _columns_: tuple[Any, ...]  # and a frame's columns
    label_changes_: Frame  # after `append` with keep_labels
    _next_label_: int = 0  # a label that no cluster has had

    def _cluster_rule(self, settings: Settings) -> ClusterRule:
        """Return the rule of the parameters with these settings; raise for values that are not valid for any data."""
        raise NotImplementedError

    def _fit(self, X: Any, **more: Any) -> Self:
        """Fit the model with further settings, and return it."""
        X = as_known(X)
        settings = self._settings(**more)
        rule, engine = self._cluster_rule(settings), engine_of(X, metric=settings.metric)
        if settings.cannot_link is not None:
            pipeline.check_apart(X, settings)
        fitted = engine.fit(X, settings, rule)
        if self.max_distance is None:
            fitted["_max_distance_"] = settings.max_distance  # that of min_similarity
        return self._take(fitted)

    @WithRows
    def append(self, X: Any, *, keep_labels: bool = False) -> Self:
        """Add rows to the fitted ones, in place. The result is that of `fit` on all rows, to the last bit.

        The tree of all rows is within the old tree and the pairs that have a new row, so m new rows beside n cost
        m(n + m) pairs, not (n + m)². The parameters that choose clusters apply as they are now.

        Parameters
        ----------
        X : dataframe or array, (m, d)
            New rows, which are numbered after the others. The columns of a frame go by name if the model was fitted on
            a frame, and its index is appended.
        keep_labels : bool
            Whether clusters keep their labels. Each cluster asks for the label of the old cluster that has most of its
            rows, or for the smaller label if two have equally many. If several clusters ask for one label, the one with
            the most of these rows gets it, or the one that appears first. All others get labels that no cluster of this
            model has had, in order of first appearance. So `labels_` need not be 0..k-1. ``label_changes_`` then tells
            what merged and what split: it has a row for each old cluster and each new label with common rows. Its
            columns are ``before`` and ``after`` (int32 labels, -1 for no cluster), ``rows`` (int64, the common rows),
            ``merged`` (whether the new cluster has rows of several old ones) and ``split`` (whether rows of the old
            cluster have several new labels). Not for `HDBSCAN`.

        Returns
        -------
        object
            The model itself.

        Raises
        ------
        ValueError, TypeError
            The model was fitted without ``prediction_data=True``, with `min_samples` above 1 or by another metric, or
            `X` is not valid. With `min_samples` new rows make core distances smaller, so no edge of the old tree is
            certain. Or an `HDBSCAN` is asked to keep labels.
        DeviceMemoryError
            The work needs more memory than there is or than `memory_limit`.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import SingleLinkage
        >>> X = np.array([[0.0], [0.1], [5.0]])
        >>> model = SingleLinkage(n_clusters=2, prediction_data=True, device="cpu").fit(X)
        >>> model.append(np.array([[5.2], [9.0]])).labels_.tolist()
        [0, 0, 1, 1, 1]
        >>> model.append(np.array([[2.5]]), keep_labels=True).labels_.tolist()
        [0, 0, 0, 0, 1, 0]
        >>> model.label_changes_
           before  after  rows  merged  split
        0       0      0     2    True  False
        1       1      0     2    True   True
        2       1      1     1   False   True
        """
        rows, settings = self._fitted_rows(), self._settings()
        rule = self._cluster_rule(settings)
        self._require_one_group("append")
        if hasattr(self, "_weighted_"):
            raise ValueError("append is for rows without sample_weight")
        if settings.metric.of_columns(rows.names, rows.values.shape[-1]) != rows.metric:
            raise ValueError(f"append continues a fit by {rows.metric.name}, and metric is now {self.metric!r}")
        limit = self._max_distance_  # above which edges of the old tree are missing
        if limit is not None and (settings.max_distance is None or settings.max_distance > limit):
            raise ValueError(f"append continues a fit with max_distance={limit}, and it is now {settings.max_distance}")
        tree, linkage, index = as_frame(self.mst_), as_frame(self.linkage_), on_current_gpu(self._index)
        if keep_labels and not isinstance(rule, Cut):
            raise ValueError("keep_labels is for SingleLinkage: attributes of HDBSCAN go by the labels 0..k-1")
        model = Fitted(rows, tree, linkage, index, self._output)
        fitted = engine_of(X, metric=settings.metric, rows=(rows.values,)).append(X, model, settings, rule)
        if self.max_distance is None:
            fitted["_max_distance_"] = settings.max_distance
        return self._take(fitted | self._named_as_before(fitted) if keep_labels else fitted)

    def _named_as_before(self, fitted: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes that change if the clusters of a model with more rows keep this model's names."""
        before, labels = (np.asarray(on_host(labels)) for labels in (self.labels_, fitted["labels_"]))
        unused = max(self._next_label_, int(before.max()) + 1)
        names = kept_names(before, labels[: before.size], int(labels.max()) + 1, unused)
        labels = np.append(names, np.int32(OUTLIER))[labels]
        output = fitted["_output"]
        changes = pd.DataFrame(changes_of(before, labels[: before.size]))
        return {
            "labels_": output.from_cuml_setting().labels(labels, on_current_gpu(fitted["_index"])),
            "label_changes_": output.frame(changes),
            "_next_label_": max(unused, int(names.max(initial=-1)) + 1),
        }

    def _settings(self, min_samples: int = 1, **more: Any) -> Settings:
        """Return the settings of the parameters, and `more`; raise for values that are not valid for any data.

        `min_samples` serves if the parameter of this name is None, and as far as there are enough rows.
        """
        has_rows = self.metric != PRECOMPUTED.name
        if self.prediction_data and not has_rows:
            raise ValueError("prediction_data=True keeps the rows' features, and metric='precomputed' has none")
        k, m = self.n_neighbors, self.min_samples
        settings = self._settings_of_rows(
            n_neighbors=None if k is None else check_n_neighbors(k),
            min_samples=min_samples if m is None else check_n_neighbors(m, "min_samples"),
            clipped=m is None,
            prediction_data=bool(self.prediction_data),
            gen_min_span_tree=has_rows and bool(self.gen_min_span_tree),
            store_centers=self.store_centers,
            **more,
        )
        if self.max_distance is None and self.min_similarity is None:
            return settings
        limit: Any = distance_limit(settings.metric, self.max_distance, self.min_similarity)
        return replace(settings, max_distance=float(limit))

    def _check_parameters(self) -> None:
        self._cluster_rule(self._settings())

    def _fitted_rows(self) -> FittedRows:
        """Return the rows that the model keeps; raise ValueError if it keeps none."""
        self._require_fit()
        if not hasattr(self, "_points_"):
            raise ValueError(f"this {type(self).__name__} keeps no rows: fit it with prediction_data=True")
        names = getattr(self, "_columns_", getattr(self, "feature_names_in_", None))
        names = None if names is None else list(names)
        metric = metric_with(*self._metric_).of_columns(names, self._points_.shape[-1])
        return FittedRows(self._points_, names, metric, type(self).__name__, getattr(self, "_missing_values_", ()))

    def _central_rows(self, labels: np.ndarray) -> dict[str, np.ndarray]:
        metric, k, ones = self._fitted_rows().metric, self.n_clusters_, np.ones(len(labels))
        if kind_of(metric, self._points_):
            raise ValueError(f"medoids are of rows of features, and metric={metric.name!r} has none")

        def answer(X: Any, device: Device, report: Report) -> np.ndarray:
            return medoids(device.asarray(self._points_), labels, ones, k, metric, device)

        rows, _ = engine_of().predict(answer, None, self._points_, self.device, self.memory_limit)
        return {"medoid": rows}

    def _predict(self, answer: Callable[..., Any], X: Any) -> Any:
        """Return the answer for new rows, and write its seconds and counts into `report_`."""
        engine = engine_of(X, metric=self._fitted_rows().metric)
        result, report = engine.predict(answer, X, self._points_, self.device, self.memory_limit)
        self.report_["predict"] = report.get("predict", {})
        self.report_.setdefault("seconds", {})["predict"] = report["seconds"]["predict"]
        return result

    def _repr_html_(self) -> str:
        """Return the summary of the clusters for Jupyter, or the parameters before `fit`."""
        return super()._repr_html_() if hasattr(self, "labels_") else Estimator._repr_html_(self)


@dataclass(eq=False, repr=False)
class SingleLinkage(PointHierarchy):
    """Exact single-linkage hierarchical clustering.

    The heights equal those of ``scipy.cluster.hierarchy.linkage(X, "single", metric)`` to the last bit, on a GPU and on
    a CPU, whatever `n_neighbors` is. If no two distances tie, the rest of SciPy's Z is equal, too. One metric is an
    exception: minkowski agrees with SciPy within 4 units in the last place. It too has the same bits on a GPU and on a
    CPU, and so have the metrics that SciPy lacks, such as containment.

    Parameters
    ----------
    n_clusters : int or "widest_gap", optional
        The number of clusters. "widest_gap" cuts between the two successive merges that are farthest apart, among the
        cuts with at least two clusters of `min_cluster_size`. By default 2, unless `distance_threshold`,
        `max_cluster_size`, `max_distance` or `min_similarity` is given.
    distance_threshold : float, optional
        Clusters at or above this distance are not merged.
    min_cluster_size : int, optional
        Clusters of fewer rows are labelled -1. They count in `n_clusters`, not in `n_clusters_`. By default 1; for
        "widest_gap" a hundredth of the rows, at least 5.
    max_cluster_size : int, optional
        Clusters of more rows are split as the tree splits them, until none has more; see `cut`. It takes the place of
        `n_clusters`.
    count_small : bool
        Whether clusters below `min_cluster_size` count in `n_clusters`. False makes `n_clusters` clusters of at least
        that size, by the coarsest cut that has exactly that number of them.
    metric : str
        "euclidean", "sqeuclidean", "cosine", "correlation", "cityblock" ("manhattan", "l1"), "chebyshev", "minkowski",
        "canberra", "braycurtis", "hamming", "jaccard", "dice", "containment" and "rogerstanimoto" (booleans),
        "bit_jaccard" and "bit_hamming" (uint8 of eight bits each), "inner_product" (-x·y) or "haversine" (latitude and
        longitude in radians); `rapids_slink.metrics` defines them. "levenshtein" (edits) and "string_hamming"
        (differing characters of equally long strings; others are never linked) take a column of text. Or "precomputed":
        `X` holds distances.
    p : float
        The exponent of minkowski, above 0.
    missing : {"pairwise", "hiercc"}, optional
        How missing values are treated: nulls, NaN, and `missing_value`. By default they are refused. "pairwise" is for
        euclidean, sqeuclidean, cityblock and hamming. It leaves out the features that are missing in either row, and
        multiplies the sum by features over features present, as `sklearn.metrics.pairwise.nan_euclidean_distances` and
        R's ``dist`` do. It refuses two rows without a common feature. "hiercc" is for hamming. The distance is the
        number of differing alleles, corrected for missing ones as HierCC does; two rows without a common feature differ
        in every column. `rapids_slink.settings` has the formulas.
    missing_value : number, text, or list of these, optional
        Further values that mean missing, such as 0 or ``["0", "-", "LNF"]`` for alleles. Text that is a number counts
        as that number: 0, "0" and 0.0 are the same, here and in a column of text for hamming. "<=0" means all numbers
        up to 0, as in HierCC and GrapeTree. With `missing` other metrics also take a column of text if each of its
        values is missing or a number.
    box : float or sequence of float, optional
        The length after which the coordinates repeat: one for all columns, or one for each, which is infinite for a
        column that does not repeat. The distance of two rows is that of their nearest images, and coordinates outside
        [0, box) are wrapped. For euclidean, sqeuclidean, cityblock and chebyshev; `rapids_slink.settings` has the
        formula.
    scales : dict, optional
        Groups of columns, and the number by which each group's distance is divided, such as
        ``{("x", "y"): 500.0, "t": 3600.0}``. A group is a name, a position or a tuple of these, and each column is in
        one group. The distance of two rows is the largest of their groups' distances, so it is at most 1 if they are
        near in every group. For euclidean, cityblock and chebyshev.
    max_distance : float, optional
        Clusters at a greater distance are not merged. The result is a forest: its merges, and its cuts at thresholds up
        to this distance, are those of the whole tree. `n_clusters` must be at least the number of its trees; if it and
        `distance_threshold` are None, each tree is a cluster. Searches among many rows of many features stop at this
        distance. With more than 256 points of two to four features on a CPU, or 2,896 of two or three on a GPU, `fit`
        makes the labels alone and keeps a copy of the rows. It makes `linkage_` and `mst_` of them when one of the two
        is first read. This holds for euclidean, sqeuclidean, cityblock and chebyshev, unless `n_clusters`,
        `max_cluster_size`, `min_samples` or `prediction_data` is given.
    min_similarity : float, optional
        The least similarity at which clusters are merged, in place of `max_distance`. It is the share of common members
        for jaccard, dice, containment and bit_jaccard, the cosine for cosine, and the correlation for correlation. Rows
        of exactly this similarity are merged, which ``max_distance=1 - similarity`` may miss by rounding.
    n_neighbors : int, optional
        Neighbours of each row in the k-NN graph with which the tree starts. It shifts time between two stages and does
        not change the result. By default 8, and for many rows up to 16 as far as the tree needs them. There is no graph
        for given distances, nor by default if so few rows are given that computing all distances takes less time. A GPU
        makes no graph for up to six features, for up to eight if there are many rows, and for up to 32 if many rows lie
        along curves or surfaces, unless `min_samples` is given.
    min_samples : int, optional
        Cluster by mutual reachability, as HDBSCAN does: the distance of two rows becomes the largest of their distance
        and the distances from each of them to its `min_samples`-th nearest other row. The heights are those of SciPy's
        ``linkage`` of these distances. At most n - 1. The package hdbscan counts in the same way; scikit-learn's
        HDBSCAN counts the row itself, too, so its ``min_samples`` is one more. 1 means the same as None: the distances
        themselves. A k-NN graph, if there is one, has at least one neighbour more than this.
    device : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one. "cuda" raises an error if there is none. Of several GPUs the current one,
        ``cupy.cuda.Device()``, does the work: rows on another GPU are copied to it, and the results are on it. It works
        on its default stream, so calls at the same time take turns, and a CUDA graph cannot capture one.
    progress : bool or "auto"
        Show progress bars. "auto" shows them on a terminal and in Jupyter, if the run will take more than ten seconds.
    memory_limit : int or str, optional
        The most memory that `fit` may use at any time on top of its input: bytes, or text such as "8GiB". The work is
        cut into smaller chunks, which changes no result. The neighbour lists, 12 bytes per neighbour, and the tree must
        fit. A GPU's memory pool enforces the limit; on a CPU it is compared with an estimate. By default the limit is
        the free memory.
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
    groups_ : DataFrame
        With `groups` in `fit`: a row for each group in order of first appearance. The columns are the key, or the keys;
        ``rows`` and ``clusters``, their numbers; and ``first_label``, the least label of the group. Labels are numbered
        over all groups in order of first appearance, so no label stands in two groups. `linkage_` and `mst_` describe a
        forest with a tree for each group.
    report_ : dict
        The counts that show what was proven, and the seconds of each stage.

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

    n_clusters: int | str | None = None
    _: KW_ONLY
    distance_threshold: float | None = None
    min_cluster_size: int | None = None
    max_cluster_size: int | None = None
    count_small: bool = True
    metric: MetricName | Literal["precomputed"] = "euclidean"
    p: float = 2.0
    missing: str | None = None
    missing_value: float | str | Collection[float | str] | None = None
    box: float | Collection[float] | None = None
    scales: Mapping[Any, float] | None = None
    max_distance: float | None = None
    min_similarity: float | None = None
    n_neighbors: int | None = None
    min_samples: int | None = None
    device: str = "auto"
    progress: bool | str = "auto"
    memory_limit: int | str | None = None
    prediction_data: bool = False

    def fit(self, X: Any, y: Any = None, groups: Any = None, dropna: bool = True, cannot_link: Any = None) -> Self:
        """Cluster the rows of `X`, or those of each group by themselves.

        A model that was fitted before keeps that fit if this one fails or is interrupted.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            A DataFrame of cuDF, pandas, Polars or Arrow, a CuPy or NumPy array, an object with
            ``__cuda_array_interface__`` or DLPack, nested lists, or a list of RDKit's bit vectors. float32 and float64
            are used as they are; integers, booleans, bfloat16 and float8 are converted, and `Scaled` multiplies int8 by
            scales.

            For ``metric="precomputed"`` a symmetric matrix of distances, (n, n), or SciPy's condensed vector,
            (n(n - 1)/2,). Rounding errors of its symmetry and of its zero diagonal are ignored up to √ε times the
            largest entry. Or a graph: a sparse matrix, a frame of ``src``, ``dst``, ``weight``, a graph of NetworkX or
            cuGraph. Pairs that are infinite or not in the graph have no edge, so there may be several trees.

            For metrics of text a Series, a frame of one column, an array or a list of strings without nulls. For
            jaccard, dice and containment also sets: a sparse matrix of booleans, or a column of sets or lists. For
            cosine and euclidean also a sparse matrix of numbers.

            The cluster of the current Dask client fits a Dask DataFrame or Array of points, and the results are Dask
            collections.
        y : None
            Ignored; a `Pipeline` passes it.
        groups : column name, list of names, Series, array or DataFrame, optional
            Rows of different groups are not compared: each group has the tree of a fit of it alone. One call takes far
            less time than a call for each group. A name is that of a column of `X`, which is then no feature. Otherwise
            there is a key for each row, of any kind that a frame can group by. `n_clusters` is the number of each
            group's clusters, or of its rows if these are fewer, or of its trees if `max_distance` leaves more.
            `distance_threshold` and `max_distance` hold for all groups. In a group with too few rows for `min_samples`,
            all other rows are a row's neighbours.
        dropna : bool
            Whether missing keys are an error. False makes them a group of their own, as in pandas.
        cannot_link : column name, Series, array or DataFrame, optional
            Rows that may not be in one cluster. Either a source for each row: a cluster may have one row of each
            source, and null means no source. The sources are a column of `X`, by its name, which is then no feature, or
            a value for each row. Or pairs of row numbers: a frame or an array of two columns. The pairs of rows within
            `max_distance`, or of at least `min_similarity`, are taken in the order of (distance, smaller row, larger
            row); one of the two must be given. A pair merges the clusters of its rows unless the new cluster would hold
            rows that may not be together. The result is a forest, whose merges are in `linkage_` and `mst_`.
            ``report_["spanning_tree"]["refused"]`` is the number of pairs that were refused.

        Returns
        -------
        object
            The model itself.

        Raises
        ------
        ValueError, TypeError
            `X` or a parameter is not valid, or a row has no distance in this metric. The message names it.
        DeviceUnavailableError, DeviceMemoryError
            There is no GPU for ``device="cuda"``, or the work needs more memory than there is or than `memory_limit`.
            Both are ValueErrors.

        Examples
        --------
        >>> import pandas as pd
        >>> from rapids_slink import SingleLinkage
        >>> df = pd.DataFrame({"film": ["a", "a", "b", "b", "b"], "x": [0.0, 9.0, 1.0, 1.2, 5.0]})
        >>> model = SingleLinkage(n_clusters=2, device="cpu").fit(df, groups="film")
        >>> model.labels_.tolist()
        [0, 1, 2, 2, 3]
        >>> model.groups_
          film  rows  clusters  first_label
        0    a     2         2            0
        1    b     3         2            2
        """
        by = None if groups is None else GroupBy(as_known(groups), dropna)
        return self._fit(X, groups=by, cannot_link=cannot_link)

    @WithRows
    def predict(self, X: Any) -> Rows:
        """Return the label of the nearest fitted row for each new row, or -1 if no fitted row is nearer than the cut.

        `report_` counts the new rows and those without a cluster.

        Parameters
        ----------
        X : dataframe or array, (m, d)
            New rows. The columns of a frame go by name if the model was fitted on a frame.

        Returns
        -------
        Series or array of shape (m,), int32
            The label of the nearest row, the first of equally near ones. It is -1 if the distance to that row is not
            below `distance_threshold` or, for `n_clusters`, not below the first merge that the cut undoes, or if it is
            above `max_distance`. A Series with the index of `X` if `X` is a frame.

        Raises
        ------
        ValueError, TypeError
            The model was fitted without ``prediction_data=True``, or with `min_samples` or `max_cluster_size`; or `X`
            is not valid.
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
        self._require_one_group("predict")
        if self.report_.get("min_samples", 1) > 1:
            raise ValueError("predict takes distances of rows, and this model has min_samples: use HDBSCAN")
        if self._split_above_ is not None:
            raise ValueError("predict takes a cut at one height, and clusters of max_cluster_size have many")
        labels = array_of(self.labels_) if library_of(self.labels_) else self.labels_
        return self._predict(partial(nearest_labels, fitted=fitted, labels=labels, height=self._cut_height()), X)

    def _cut_height(self) -> float:
        """Return the distance at which the clusters of `labels_` would merge further."""
        if self._distance_threshold_ is not None:
            return float(self._distance_threshold_)
        heights = as_frame(self.linkage_)["height"]
        kept = self.n_leaves_ - self._cut_clusters
        if kept < len(heights):
            return float(heights.iloc[kept])
        return inf if self._max_distance_ is None else nextafter(self._max_distance_, inf)  # itself merges

    def _cluster_rule(self, settings: Settings) -> Cut:
        limit, threshold = self.max_distance or settings.max_distance, self.distance_threshold
        rule = Cut(
            self.n_clusters, threshold, self.min_cluster_size, max_distance=limit, warns=self.min_cluster_size is None,
            max_cluster_size=self.max_cluster_size, count_small=self.count_small,
        ).checked()  # fmt: skip
        if threshold is not None:
            check_distance(threshold, "distance_threshold", self.metric)
            check_max_distance([threshold], limit)
        if self.n_clusters is None and rule.distance_threshold is None and limit is None:
            return replace(rule, n_clusters=2, is_default=True)
        if limit is None or self.n_clusters is not None:
            return rule
        needs_tree = self.max_cluster_size is not None or settings.prediction_data  # predictions read it
        below = inf if threshold is None else nextafter(float(threshold), -inf)
        within = None if needs_tree else float(min(limit, below))
        return replace(rule, distance_threshold=inf if threshold is None else threshold, friends_within=within)


#: The names of its parameters.
PARAMETERS = [field.name for field in fields(SingleLinkage)]
