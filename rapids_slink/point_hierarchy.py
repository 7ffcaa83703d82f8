"""The common base of `SingleLinkage` and `HDBSCAN`: the engine that serves the points fits them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np

from rapids_slink.centers import medoids
from rapids_slink.dendrogram.cutting import ClusterRule
from rapids_slink.engines import engine_of
from rapids_slink.hierarchy.base import Hierarchy
from rapids_slink.hierarchy.estimator import Estimator, WithRows
from rapids_slink.metrics import PRECOMPUTED, get_metric
from rapids_slink.missing import missing_values_of, with_missing
from rapids_slink.neighbors import check_n_neighbors
from rapids_slink.points.output import Values, as_frame
from rapids_slink.prediction import Fitted, FittedRows
from rapids_slink.report import Report
from rapids_slink.runtime.device import Device, check_device_name, on_current_gpu
from rapids_slink.runtime.estimate import as_bytes
from rapids_slink.settings import Settings


class PointHierarchy(Hierarchy, Estimator):
    """An estimator for points. Subclasses differ in how they choose clusters."""

    metric: str
    p: float | None
    missing: str | None = None
    missing_value: Any = None
    max_distance: float | None = None
    store_centers: str | None = None
    gen_min_span_tree: bool = False
    n_neighbors: int | None
    min_samples: int | None
    device: str
    progress: bool
    memory_limit: int | str | None
    prediction_data: bool
    n_features_in_: int
    n_connected_components_: int
    feature_names_in_: Values
    _metric_: tuple[str, float, str | None]
    _missing_values_: tuple[Any, ...]
    _max_distance_: float | None = None  # the parameters of these names at the fit
    _distance_threshold_: float | None = None
    _weighted_: bool  # True for rows with sample_weight
    _points_: Values  # with prediction_data: the rows' values
    _columns_: tuple[Any, ...]  # and a frame's columns

    def _cluster_rule(self) -> ClusterRule:
        """The rule that the parameters describe. Raises if they are not valid for any data."""
        raise NotImplementedError

    def _default_min_samples(self) -> int:
        """The value of `min_samples` if the parameter is None and there are enough rows."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster the rows of `X`.

        A model that was fitted before keeps that fit if this one fails or is interrupted.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            A DataFrame of cuDF, pandas, Polars or Arrow, a CuPy or NumPy array, an object with
            ``__cuda_array_interface__`` or DLPack, nested lists, or a list of RDKit's bit vectors. float32 and float64
            are used as they are; integers and booleans are converted. For ``metric="precomputed"`` a symmetric matrix
            of distances, (n, n), or SciPy's condensed vector, (n(n - 1)/2,). Rounding errors of its symmetry and of its
            zero diagonal are ignored up to √ε times the largest entry. Or a graph: a sparse matrix, a frame of ``src``,
            ``dst``, ``weight``, a graph of NetworkX or cuGraph. Pairs that are infinite or not in the graph are not
            joined, so that there may be several trees. The cluster of the current Dask client fits a Dask DataFrame or
            Array of points, and the results are Dask collections.
        y : None
            Ignored; a `Pipeline` passes it.

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
        """
        return self._fit(X)

    def _fit(self, X: Any, **more: Any) -> Self:
        """Fit with further settings."""
        rule, settings = self._cluster_rule(), replace(self._settings(), **more)
        return self._take(engine_of(X).fit(X, settings, rule))

    def _take(self, fitted: dict[str, Any]) -> Self:
        """Replace all fitted attributes."""
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_") and name != "_layout"}
        fitted_by = {f"_{name}_": getattr(self, name, None) for name in ("max_distance", "distance_threshold")}
        self.__dict__ = {**kept, **fitted_by, **fitted}  # at once
        return self

    @WithRows
    def append(self, X: Any) -> Self:
        """Add rows to the fitted ones, in place. The result is that of `fit` on all rows, to the last bit.

        The tree of all rows is within the old tree and the pairs that have a new row, so m new rows beside n cost
        m(n + m) pairs, not (n + m)². The parameters that choose clusters apply as they are now.

        Parameters
        ----------
        X : dataframe or array, (m, d)
            New rows, which are numbered after the others. The columns of a frame go by name if the model was fitted on
            a frame, and its index is appended.

        Returns
        -------
        object
            The model itself.

        Raises
        ------
        ValueError, TypeError
            The model was fitted without ``prediction_data=True``, with `min_samples` above 1 or by another metric, or
            `X` is not valid. With `min_samples` new rows make core distances smaller, so that no edge of the old tree
            is certain.
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
        """
        rows, rule, settings = self._fitted_rows(), self._cluster_rule(), self._settings()
        if hasattr(self, "_weighted_"):
            raise ValueError("append is for rows without sample_weight")
        if settings.metric != rows.metric:
            raise ValueError(f"append continues a fit by {rows.metric.name}, and metric is now {self.metric!r}")
        limit = self._max_distance_  # above which edges of the old tree are missing
        if limit is not None and (settings.max_distance is None or settings.max_distance > limit):
            raise ValueError(f"append continues a fit with max_distance={limit}, and it is now {self.max_distance}")
        tree, linkage, index = as_frame(self.mst_), as_frame(self.linkage_), on_current_gpu(self._index)
        model = Fitted(rows, tree, linkage, index, self._output)
        return self._take(engine_of(X).append(X, model, settings, rule))

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit and return `labels_`: one int32 label per row."""
        return self.fit(X).labels_

    def _settings(self) -> Settings:
        metric = get_metric(self.metric, 2.0 if self.p is None else self.p, given=True)
        if self.prediction_data and metric is PRECOMPUTED:
            raise ValueError("prediction_data=True keeps the rows' features, and metric='precomputed' has none")
        k, m = self.n_neighbors, self.min_samples
        as_bytes(self.memory_limit)  # raises unless it is valid
        return Settings(
            metric=with_missing(metric, self.missing),
            device=check_device_name(self.device),
            memory_limit=self.memory_limit,
            n_neighbors=None if k is None else check_n_neighbors(k),
            min_samples=self._default_min_samples() if m is None else check_n_neighbors(m, "min_samples"),
            clipped=m is None,
            progress=self.progress,
            max_distance=None if self.max_distance is None else float(self.max_distance),
            missing_values=missing_values_of(self.missing_value, self.missing),
            prediction_data=bool(self.prediction_data),
            gen_min_span_tree=bool(self.gen_min_span_tree),
            store_centers=self.store_centers,
        )

    def _check_parameters(self) -> None:
        self._cluster_rule()
        self._settings()

    def _fitted_rows(self) -> FittedRows:
        """The rows that the model keeps."""
        self._require_fit()
        if not hasattr(self, "_points_"):
            raise ValueError(f"this {type(self).__name__} keeps no rows: fit it with prediction_data=True")
        names = getattr(self, "_columns_", getattr(self, "feature_names_in_", None))
        name, p, *missing = self._metric_  # models saved by former versions have no more
        metric = with_missing(get_metric(name, p), *missing or (None,))
        names = None if names is None else list(names)
        return FittedRows(self._points_, names, metric, type(self).__name__, getattr(self, "_missing_values_", ()))

    def _central_rows(self, labels: np.ndarray) -> dict[str, np.ndarray]:
        metric, k, ones = self._fitted_rows().metric, self.n_clusters_, np.ones(len(labels))

        def answer(X: Any, device: Device, report: Report) -> np.ndarray:
            return medoids(device.asarray(self._points_), labels, ones, k, metric, device)

        rows, _ = engine_of().predict(answer, None, self._points_, self.device, self.memory_limit)
        return {"medoid": rows}

    def _predict(self, answer: Callable[..., Any], X: Any) -> Any:
        """The answer for new rows. `report_` has its seconds and counts."""
        result, report = engine_of(X).predict(answer, X, self._points_, self.device, self.memory_limit)
        self.report_["predict"] = report.get("predict", {})
        self.report_.setdefault("seconds", {})["predict"] = report["seconds"]["predict"]
        return result

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == PRECOMPUTED.name
        tags.input_tags.allow_nan = self.missing is not None
        return tags

    def _repr_html_(self) -> str:
        """The summary of the clusters in Jupyter, or the parameters before `fit`."""
        return super()._repr_html_() if hasattr(self, "linkage_") else Estimator._repr_html_(self)
