"""The common base of `SingleLinkage` and `HDBSCAN`: the engine that serves the points fits them."""

from __future__ import annotations

from typing import Any, Self

from rapids_slink.dendrogram.flat import ClusterRule
from rapids_slink.engines import engine_of
from rapids_slink.hierarchy.base import Hierarchy
from rapids_slink.hierarchy.estimator import Estimator
from rapids_slink.metrics import PRECOMPUTED, get_metric
from rapids_slink.missing import check_missing_value, with_missing
from rapids_slink.neighbors import check_n_neighbors
from rapids_slink.settings import Settings


class PointHierarchy(Hierarchy, Estimator):
    """An estimator for points. Subclasses differ in how they choose clusters."""

    metric: str
    p: float
    missing: str | None = None
    missing_value: float | None = None
    max_distance: float | None = None
    n_neighbors: int | None
    min_samples: int | None
    device: str
    progress: bool
    memory_limit: int | str | None

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
            A cuDF or pandas DataFrame, a CuPy or NumPy array, or an object with ``__cuda_array_interface__`` or DLPack.
            float32 and float64 are used as they are; integers and booleans are converted. For ``metric="precomputed"``
            a symmetric matrix of finite distances, (n, n), or SciPy's condensed vector, (n(n - 1)/2,). Rounding errors
            of its symmetry and of its zero diagonal are ignored up to √ε times the largest entry. The cluster of the
            current Dask client fits a Dask DataFrame or Array of points, and the results are Dask collections.
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
        rule, settings = self._cluster_rule(), self._settings()
        fitted = engine_of(X).fit(X, settings, rule)
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_") and name != "_layout"}
        self.__dict__ = {**kept, **fitted}  # at once
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit and return `labels_`: one int32 label per row."""
        return self.fit(X).labels_

    def _settings(self) -> Settings:
        metric = PRECOMPUTED if self.metric == PRECOMPUTED.name else get_metric(self.metric, self.p)
        return Settings(
            metric=with_missing(metric, self.missing),
            device=self.device,
            memory_limit=self.memory_limit,
            n_neighbors=None if self.n_neighbors is None else check_n_neighbors(self.n_neighbors),
            min_samples=self._default_min_samples()
            if self.min_samples is None
            else check_n_neighbors(self.min_samples, "min_samples"),
            clipped=self.min_samples is None,
            progress=self.progress,
            max_distance=None if self.max_distance is None else float(self.max_distance),
            missing_value=check_missing_value(self.missing_value, self.missing),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == PRECOMPUTED.name
        tags.input_tags.allow_nan = self.missing is not None
        return tags

    def _repr_html_(self) -> str:
        """For Jupyter: a summary of the clusters, or the parameters before `fit`."""
        return super()._repr_html_() if hasattr(self, "linkage_") else Estimator._repr_html_(self)
