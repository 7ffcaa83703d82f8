"""`DBSCAN`: flat clusters of rows in dense regions, without a list of the pairs of rows that are near."""

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

from rapids_slink import density, pipeline
from rapids_slink.dendrogram.cutting import check_distance
from rapids_slink.density import DensityRule
from rapids_slink.hdbscan import check_fixed
from rapids_slink.hierarchy.model import Estimator
from rapids_slink.metrics import MetricName
from rapids_slink.neighbors import check_n_neighbors
from rapids_slink.points.keys import GroupBy
from rapids_slink.points.output import Frame, Rows, Values, as_known
from rapids_slink.report import Report
from rapids_slink.single_linkage import RowEstimator, engine_of


class CoreClusters(RowEstimator, Estimator):
    """The base of `DBSCAN`."""

    labels_: Rows
    n_clusters_: int
    core_sample_indices_: Values
    components_: Values
    groups_: Frame
    report_: Report


@dataclass(eq=False, repr=False)
class DBSCAN(CoreClusters):
    """Density-based clustering with noise at one distance; the labels are those of scikit-learn.

    A row is core if the rows within `eps` of it, itself among them, weigh at least `min_samples` together. The clusters
    are the core rows that steps of at most `eps` connect, numbered by their first core rows. A row that is not core,
    but within `eps` of core rows, has the least label among these. All others are noise, -1. Distances are those of
    `SingleLinkage`, in float64, so that rows at exactly `eps` count; scikit-learn computes some distances by products,
    and then it may round them to either side.

    Parameters
    ----------
    eps : float
        The distance within which rows are neighbours. At least 0, except for metrics with negative distances.
    min_samples : int
        The least weight within `eps` of a core row, which counts itself, too. At least 1.
    metric, p, missing, missing_value, box, scales : optional
        See `SingleLinkage`; any metric, "precomputed" too.
    device, progress, memory_limit : optional
        See `SingleLinkage`.
    algorithm, leaf_size, n_jobs, verbose, max_mbytes_per_batch, calc_core_sample_indices : object
        Parameters of scikit-learn and cuML that say how neighbours are found. They are ignored, because the result is
        exact in any case.
    metric_params, output_type : optional
        Only None is valid.

    Attributes
    ----------
    labels_ : Series or array of shape (n,), int32
        -1 is noise. A Series with the index of `X` if `X` is a frame, a column of Polars or Arrow if it is a table of
        these, otherwise an array of NumPy or CuPy.
    core_sample_indices_ : array of shape (core rows,), int64
        The numbers of the core rows, ascending.
    components_ : dataframe or array, (core rows, d)
        The core rows of `X`: rows of a frame, or an array of floats. For given distances they are the core rows of the
        matrix. Neither graphs nor Dask collections have them.
    n_clusters_, n_features_in_ : int
        The number of clusters, without noise, and of columns.
    feature_names_in_ : ndarray of str
        The columns' names, if `X` is a frame and all names are strings.
    groups_ : DataFrame
        With `groups` in `fit`: see `SingleLinkage`.
    report_ : dict
        How the clusters were found, and the seconds of each stage.

    See Also
    --------
    HDBSCAN : Clusters of varying density, without a distance.
    SingleLinkage : With `max_distance`, the clusters of ``min_samples=1``, and their tree.

    Notes
    -----
    Pairs of rows are never all kept: memory is proportional to the rows. Weights are added as multiples of a power of
    two, about 2⁻⁵² of the sum of all, so that a sum does not depend on the order of the rows.

    References
    ----------
    Ester, Kriegel, Sander, Xu, "A density-based algorithm for discovering clusters in large spatial databases with
    noise", KDD 1996.

    Examples
    --------
    >>> import numpy as np
    >>> from rapids_slink import DBSCAN
    >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [5.6], [30.0]])
    >>> model = DBSCAN(eps=0.4, min_samples=3, device="cpu").fit(X)
    >>> model.labels_.tolist()
    [0, 0, 0, 1, 1, 1, 1, -1]
    >>> model.core_sample_indices_.tolist()
    [0, 1, 2, 3, 4, 5]
    """

    eps: float = 0.5
    min_samples: int = 5
    _: KW_ONLY
    metric: MetricName | Literal["precomputed"] = "euclidean"
    p: float | None = None
    missing: str | None = None
    missing_value: float | str | Collection[float | str] | None = None
    box: float | Collection[float] | None = None
    scales: Mapping[Any, float] | None = None
    device: str = "auto"
    progress: bool | str = "auto"
    memory_limit: int | str | None = None
    # These are parameters of other packages and have no effect.
    algorithm: str | None = None
    leaf_size: int | None = None
    n_jobs: int | None = None
    verbose: object = False
    max_mbytes_per_batch: int | None = None
    calc_core_sample_indices: bool = True
    # These are parameters of other packages with a fixed value: see FIXED of hdbscan.py.
    metric_params: object = None
    output_type: str | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, dropna: bool = True) -> Self:
        """Cluster the rows of `X`, or those of each group by themselves.

        A model that was fitted before keeps that fit if this one fails or is interrupted.

        Parameters
        ----------
        X : dataframe, array or graph
            See `SingleLinkage.fit`.
        y : None
            Ignored; a `Pipeline` passes it.
        sample_weight : array or Series of shape (n,), optional
            A finite number for each row. A row of at least `min_samples` is core by itself, one of weight zero counts
            for no other row, and a negative one may keep its neighbours from being core.
        groups : column name, list of names, Series, array or DataFrame, optional
            Rows of different groups are not compared; see `SingleLinkage.fit`. Labels are numbered over all groups.
        dropna : bool
            Whether missing keys are an error. False makes them a group of their own, as in pandas.

        Returns
        -------
        object
            The model itself.

        Raises
        ------
        ValueError, TypeError, DeviceUnavailableError, DeviceMemoryError
            See `SingleLinkage.fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import DBSCAN
        >>> X = np.array([[0.0], [0.3], [9.0]])
        >>> DBSCAN(eps=0.4, min_samples=3, device="cpu").fit(X, sample_weight=[1, 2, 5]).labels_.tolist()
        [0, 0, 1]
        """
        X = as_known(X)
        by = None if groups is None else GroupBy(as_known(groups), dropna)
        rule = self._rule()
        settings = self._settings_of_rows(friends_within=float(self.eps), weights=sample_weight, groups=by)
        engine = engine_of(X, metric=settings.metric)
        if engine.__name__.endswith(".distributed"):
            fitted = engine.fit_dbscan(X, settings, rule)
        else:
            fitted = density.fit(X, settings, rule, are_items=engine is not pipeline)
        return self._take(fitted)

    def fit_predict(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, dropna: bool = True
    ) -> Rows:
        """Fit and return `labels_`: one int32 label per row."""
        return self.fit(X, y, sample_weight, groups, dropna).labels_

    def _rule(self) -> DensityRule:
        """Return the rule that the parameters describe; raise for values that are not valid for any data."""
        check_fixed(self, ("metric_params", "output_type"))
        check_distance(self.eps, "eps", self.metric)
        return DensityRule(float(self.eps), check_n_neighbors(self.min_samples, "min_samples"))
