"""`DBSCAN`: flat clusters of rows in dense regions, without a list of the pairs of rows that are near.

X ──▶ rows ──▶ core rows and labels ──▶ results in the type of X

`_fit` calls the stages on one device, for points, for groups of them, and for items.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np

from rapids_slink import pipeline
from rapids_slink.dendrogram.cutting import (
    OUTLIER,
    check_distance,
    clusters_of_groups,
    frame_of_groups,
    number_of_clusters,
)
from rapids_slink.hdbscan import check_fixed
from rapids_slink.hierarchy.model import Estimator
from rapids_slink.items.search import NearItems, kind_of, pairs_of_ranges
from rapids_slink.metrics import PRECOMPUTED, MetricName, distances
from rapids_slink.neighbors import check_n_neighbors, estimate_search, prepare_search
from rapids_slink.neighbors.choose import takes_all_pairs
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import metric_rows, require_common_features
from rapids_slink.neighbors.task import SearchTask, equal_slices, row_blocks
from rapids_slink.neighbors.within import Limit, NearPairs, PairPoints, PairTask, estimate_pairs
from rapids_slink.ordering import edge_codes
from rapids_slink.pipeline import size_attributes
from rapids_slink.points import Points, is_sparse
from rapids_slink.points.check import check_weights
from rapids_slink.points.keys import GroupBy, Groups, read_groups
from rapids_slink.points.output import Frame, Rows, Values, as_known, library_of, take_rows
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import Array, Device, all_true, to_host
from rapids_slink.runtime.memory import MemoryEstimate, check_memory, copy_out, outside_pool
from rapids_slink.settings import DensityRule, Settings
from rapids_slink.single_linkage import RowEstimator, engine_of
from rapids_slink.spanning_tree import Problem
from rapids_slink.spanning_tree import kernels as tree_kernels
from rapids_slink.spanning_tree.boxes import (
    estimate_friends,
    in_units,
    label_borders,
    label_by_boxes,
    label_by_pairs,
    most_pairs,
)
from rapids_slink.spanning_tree.graphs import EdgeList, components, is_graph
from rapids_slink.spanning_tree.ways import check_zeros, compile_for, tree_of_rows


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

    A row is core if the rows within `eps` of it, itself among them, weigh at least `min_samples` together. Steps of at
    most `eps` between core rows make clusters, which are numbered by their first core rows. A row that is not core, but
    within `eps` of core rows, takes the least of their labels. All others are noise, -1. Distances are those of
    `SingleLinkage`, in float64, so rows at exactly `eps` count. scikit-learn computes some distances by products, which
    may round them to either side of `eps`.

    Parameters
    ----------
    eps : float
        The distance within which rows are neighbours. At least 0, except for metrics with negative distances.
    min_samples : int
        The least weight of the rows within `eps` of a core row, itself among them. At least 1.
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
    No list of all near pairs is made: memory is proportional to the number of rows. Weights are rounded to multiples of
    a power of two, about 2⁻⁵² of the sum of all, so a sum does not depend on the order of the rows.

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
            A finite weight for each row, by default 1. A row of at least `min_samples` is core by itself. A row of
            weight zero makes no other row core, and a negative weight may keep neighbours from being core.
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
        if engine is not pipeline:
            return self._take(engine.fit_dbscan(X, settings, rule))
        return self._take(pipeline.fit(X, settings, rule, _fit))  # type: ignore[arg-type]

    def _rule(self) -> DensityRule:
        """Return the rule that the parameters describe; raise for values that are not valid for any data."""
        check_fixed(self, ("metric_params", "output_type"))
        check_distance(self.eps, "eps", self.metric)
        return DensityRule(float(self.eps), check_n_neighbors(self.min_samples, "min_samples"))


# ----------------------------------------------------------------------------------------------------------- the stages


#: Parts of pairs of rows: src and dst, and maybe distances, which are not read.
Parts = Iterator[tuple[Array, ...]]
#: The bytes of a row: its weights, whether it is core, its label, and kept pairs. The entries of a matrix that are
#: compared at a time.
ROW_BYTES, COMPARED = 160, 2**24
#: If there are more than FEW_PAIRS pairs and FEW_PAIRS_A_ROW more for each row, lists and a tree take less time.
FEW_PAIRS, FEW_PAIRS_A_ROW = 2**20, 16


def _fit(X: Any, settings: Settings, rule: DensityRule, device: Device, report: Report) -> dict[str, Any]:
    """Return the attributes of a `DBSCAN` fitted to rows on one device; within a run."""
    rows, groups = X, None
    find = _label_points if kind_of(settings.metric, X) is None else _label_items
    if settings.groups is not None:
        X, groups = read_groups(X, settings.groups, settings.metric, device, report)
    points, (n, d), labels, is_core = find(X, settings, rule, groups, device, report)
    with report.stage("output", device), outside_pool(device):
        core = device.xp.flatnonzero(is_core)
        fitted = {
            "labels_": points.labels(copy_out(device, labels)),
            "n_clusters_": number_of_clusters(labels),
            "core_sample_indices_": points.output.from_cuml_setting().array(core),
            **_components(rows, points, core),
        }
        if groups is not None:
            counts = groups.sizes, *clusters_of_groups(labels, groups.number, len(groups), device.xp)
            frame = points.frame(frame_of_groups(groups.keys, counts))
            fitted["groups_"] = groups.in_types_of_tables(frame)
    sizes = size_attributes(n, d, 1, points.names)
    return fitted | {name: value for name, value in sizes.items() if "feature" in name}


def _components(X: Any, points: Points, core: Array) -> dict[str, Any]:
    """Return `components_` by name, the core rows of `X`; {} for a graph. Call it outside the run's pool."""
    if not library_of(X) and points.values.size:
        return {"components_": points.output.array(points.values[core])}
    if library_of(X) and not points.values.size and is_graph(X):
        return {}
    return {"components_": take_rows(X.tocsr() if is_sparse(X) else X, to_host(core))}


Labelled = tuple[Points, tuple[int, int], Array, Array]


def _label_points(
    X: Any, settings: Settings, rule: DensityRule, groups: Groups | None, device: Device, report: Report
) -> Labelled:
    """Return the points, their numbers of rows and features, each row's label, and whether each row is core."""

    def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
        problem, state = Problem(settings, device, n, d, itemsize), MemoryEstimate(ROW_BYTES * n)
        if settings.metric is PRECOMPUTED:
            return state
        if problem.finds_friends and groups is None:
            if device.is_gpu:
                compile_for(problem)
            return estimate_friends(problem) + MemoryEstimate((ROW_BYTES + d * itemsize) * n)
        return estimate_pairs((n, n, d), itemsize, True, settings.metric, device) + state

    with report.stage("input", device):
        points, edges = pipeline.read_points(X, settings, device, estimate, groups)
        n, d = points.values.shape if edges is None else 2 * (edges.n_nodes,)
        settings = settings.of_columns(points.names, d)
        index = None if edges is not None and is_graph(X) else points.index
        weights, enough = _weights(settings, rule, n, index, device)
    values, problem = points.values, Problem(settings, device, n, d, points.values.dtype.itemsize)
    task, max_pairs = PairTask.of(settings, rule.eps), most_pairs(n, device)
    if edges is None and groups is None and settings.metric is not PRECOMPUTED and problem.finds_friends:
        report["way"] = "boxes"
        with report.stage("neighbors", device):
            rows = metric_rows(settings.metric, values, device, compact=True)
        row_weights = None if settings.weights is None else weights
        return points, (n, d), *label_by_boxes(rows, problem, row_weights, enough, report)
    report["way"] = "pairs" if groups is None else "groups"
    parts: Callable[[], Parts]
    with report.stage("pairs", device):
        if edges is not None:
            parts = partial(_pairs_of_edges, edges, rule.eps, device)
        elif settings.metric is PRECOMPUTED:
            parts = partial(_pairs_of_matrix, values, rule.eps, device)
        elif groups is not None:
            parts = partial(_pairs_of_groups, points, groups, task, max_pairs, device)
        else:
            near = NearPairs(PairPoints(points, points, (values, values), is_one=True), task, device)
            parts = partial(near.parts, max_pairs)
            if settings.weights is None and near.limits[-1].decides:
                near_pairs = near.find(slice(0, n), min(max_pairs, FEW_PAIRS_A_ROW * n + FEW_PAIRS), goes_on=False)
                if near_pairs.src is None:
                    del near, parts
                    return points, (n, d), *_by_trees(points, problem, task, rule, report)
                parts = partial(iter, [(near_pairs.src, near_pairs.dst)])
        return points, (n, d), *label_by_pairs(parts, weights, enough, device)


def _by_trees(
    points: Points, problem: Problem, task: PairTask, rule: DensityRule, report: Report
) -> tuple[Array, Array]:
    """Label rows as `label_by_pairs` does, from nearest rows and a tree: there are too many pairs.

    A row is core if its `min_samples` - 1 nearest other rows are within the distance. The tree of core rows, up to the
    distance, has their components. A row that is not core has few pairs with core rows.
    """
    device, metric, values, n, k = problem.device, task.metric, points.values, problem.n, int(rule.min_samples) - 1
    xp, part_report = device.xp, Report()
    report["way"], number = "trees", xp.arange(n, dtype="int32")
    is_core = xp.full(n, k == 0)
    if 0 < k < n:
        d, itemsize = values.shape[1], values.dtype.itemsize
        check_memory(device, estimate_search(n, d, itemsize, k, device, metric=metric), counted(n, "row"))
        search = prepare_search(metric_rows(metric, values, device, compact=True), device, part_report, metric=metric)
        limit = Limit.of(metric, rule.eps, d).surrogate
        for part in equal_slices(slice(0, n), max(1, int(most_pairs(n, device) / k))):
            own = number if part.stop - part.start == n else number[part]
            is_core[part] = search.find(SearchTask(own, k, number, number)).weights[:, k - 1] <= limit
        del search
    core, others = xp.flatnonzero(is_core), xp.flatnonzero(~is_core)
    labels = xp.full(n, OUTLIER, "int32")
    if core.size:
        settings = replace(problem.settings, max_distance=rule.eps, friends_within=None)
        core_problem = replace(problem, settings=settings, n=core.size)
        check_memory(device, pipeline.estimate_fit(core_problem), counted(core.size, "core row"))
        tree, _ = pipeline.tree_of_points(values[core], core_problem, part_report, tree_of_rows)
        parent = xp.arange(core.size, dtype="int32")
        tree_kernels(device).unite_pairs(parent, tree.columns["src"], tree.columns["dst"])
        labels[core] = components(xp.arange(core.size), parent, device)
    if core.size and others.size:
        x, y = (replace(points, values=values[rows], index=None) for rows in (others, core))
        near = NearPairs(PairPoints(x, y, (x.values, y.values), is_one=False), task, device)
        pairs = ((others[src], core[dst]) for src, dst, _ in near.parts(most_pairs(n, device)))
        label_borders(labels, is_core, pairs, device)
    part_report.pop("way", None)
    part_report.pop("seconds", None)
    report.add(part_report)
    return labels, is_core


def _label_items(
    X: Any, settings: Settings, rule: DensityRule, groups: Groups | None, device: Device, report: Report
) -> Labelled:
    """Return for items what `_label_points` returns for points."""
    report["way"] = "items" if groups is None else "groups"
    with report.stage("input", device):
        near = NearItems(X, None, PairTask.of(settings, rule.eps), device, groups)
        points, n = near.ends[0], near.n_rows
        weights, enough = _weights(settings, rule, n, points.index, device)
    with report.stage("pairs", device):
        labelled = label_by_pairs(partial(near.parts, most_pairs(n, device)), weights, enough, device)
    return points, (n, near.distinct.items.n_features), *labelled


def _weights(settings: Settings, rule: DensityRule, n: int, index: Any, device: Device) -> tuple[Array, float]:
    """Return the weight of each row, and the least sum of weights of a core row; see `in_units`."""
    if settings.weights is None:
        return device.xp.ones(n), rule.min_samples
    weights = check_weights(settings.weights, n, device, index=index, any_sign=True)
    if all_true(weights == 0):
        raise ValueError("sample_weight must contain at least one non-zero number: no row is core")
    return in_units(weights, rule.min_samples, device)


def _pairs_of_matrix(matrix: Array, eps: float, device: Device) -> Parts:
    """Yield the pairs of rows whose given distance, in an (n, n) matrix, is at most `eps`."""
    xp = device.xp
    for rows in row_blocks(len(matrix), len(matrix), COMPARED):
        near = matrix[rows, rows.start :].astype("float64") <= eps
        src, dst = xp.nonzero(xp.triu(near, 1))
        yield (src + rows.start).astype("int32"), (dst + rows.start).astype("int32")


def _pairs_of_edges(edges: EdgeList, eps: float, device: Device) -> Parts:
    """Yield the pairs of nodes with an edge of at most `eps` between them; parallel edges are one pair."""
    near = (edges.src != edges.dst) & (edges.weight.astype("float64") <= eps)
    code = device.xp.unique(edge_codes(edges.src[near], edges.dst[near], device.xp))
    yield (code >> 32).astype("int32"), (code & 0xFFFFFFFF).astype("int32")


def _pairs_of_groups(points: Points, groups: Groups, task: PairTask, max_pairs: float, device: Device) -> Parts:
    """Yield the near pairs of each group: from all distances of small groups, from a search in each larger one."""
    xp, metric, values, order = device.xp, task.metric, points.values, groups.order
    limit = Limit.of(metric, float(task.distances[-1]), values.shape[1])
    check_zeros(values, groups, metric, device)
    if metric.formula.is_undefined_without_common:
        for begin, end in pairwise(groups.starts.tolist()):
            require_common_features(values[order[begin:end]], "X", device, order[begin:end])
    rows = metric_rows(metric, values, device, alone=False, compact=True)
    is_large = ~takes_all_pairs(groups.sizes * (groups.sizes / 2), device)
    number, starts = groups.number[order], device.asarray(groups.starts)
    position = xp.flatnonzero(~device.asarray(is_large)[number])
    for owner, member in pairs_of_ranges(position + 1, starts[number[position] + 1] - position - 1, device):
        src, dst = order[position[owner]], order[member]
        weight = kernels(device).pair_distances(rows, src, dst, metric)
        if limit.decides:
            kept = weight <= limit.surrogate
        else:
            kept = distances(metric, weight, (src, dst), (values, values), device) <= task.distances[-1]
        yield src[kept], dst[kept]
    for group in np.flatnonzero(is_large).tolist():
        own = order[groups.starts[group] : groups.starts[group + 1]]
        some = replace(points, values=values[own], index=None)
        near = NearPairs(PairPoints(some, some, (some.values, some.values), is_one=True), task, device)
        for src, dst, _ in near.parts(max_pairs):
            yield own[src], own[dst]
