"""What `SingleLinkage` and `HDBSCAN` share: points are fitted by the engine that serves them."""

from __future__ import annotations

from typing import Any, Self

from rapids_slink.dendrogram.flat import ClusterRule
from rapids_slink.engines import engine_of
from rapids_slink.hierarchy.base import Hierarchy
from rapids_slink.hierarchy.estimator import Estimator
from rapids_slink.metrics import PRECOMPUTED, get_metric
from rapids_slink.neighbors import check_n_neighbors
from rapids_slink.settings import Settings


class PointHierarchy(Hierarchy, Estimator):
    """An estimator of points. Subclasses differ in how they choose clusters."""

    metric: str
    p: float
    n_neighbors: int | None
    min_samples: int | None
    device: str
    progress: bool
    memory_limit: int | str | None

    def _cluster_rule(self) -> ClusterRule:
        """The rule by the parameters; raise for those that no data could suit."""
        raise NotImplementedError

    def _default_min_samples(self) -> int:
        """`min_samples` where it is None and there are enough rows."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster the rows of `X`.

        A model that was fitted before keeps that fit if this one fails or is interrupted.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            A cuDF or pandas DataFrame, CuPy or NumPy array, or anything with ``__cuda_array_interface__`` or DLPack;
            float32 or float64, integers and booleans are converted. For ``metric="precomputed"`` a symmetric
            matrix of finite distances, (n, n), or an array of SciPy's condensed form, (n(n - 1)/2,); what rounding
            leaves of symmetry and of the diagonal's zeros is ignored, up to √ε of the largest entry. A Dask DataFrame
            or Array of points is worked on by the current client's cluster; results are Dask's then.
        y : None
            Not used; a `Pipeline` passes it.

        Returns
        -------
        object
            The model itself.

        Raises
        ------
        ValueError, TypeError
            If `X` or a parameter is not valid, or a row has no distance in this metric; the message names it.
        DeviceUnavailableError, DeviceMemoryError
            If ``device="cuda"`` has no GPU, or the work needs more memory than there is or than `memory_limit`; both
            are ValueErrors.
        """
        rule, settings = self._cluster_rule(), self._settings()
        fitted = engine_of(X).fit(X, settings, rule)
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_") and name != "_layout"}
        self.__dict__ = {**kept, **fitted}  # at once
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit and return `labels_`: one int32 label per row, of the same type as `labels_`."""
        return self.fit(X).labels_

    def _settings(self) -> Settings:
        return Settings(
            metric=PRECOMPUTED if self.metric == PRECOMPUTED.name else get_metric(self.metric, self.p),
            device=self.device,
            memory_limit=self.memory_limit,
            n_neighbors=None if self.n_neighbors is None else check_n_neighbors(self.n_neighbors),
            min_samples=self._default_min_samples()
            if self.min_samples is None
            else check_n_neighbors(self.min_samples, "min_samples"),
            clipped=self.min_samples is None,
            progress=self.progress,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == PRECOMPUTED.name
        return tags

    def _repr_html_(self) -> str:
        """For Jupyter: a summary of the clusters, or the parameters before `fit`."""
        return super()._repr_html_() if hasattr(self, "linkage_") else Estimator._repr_html_(self)
