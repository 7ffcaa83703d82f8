"""The pipeline: each stage's call, in order."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from rapids_slink.dendrogram import build_linkage, estimate_linkage
from rapids_slink.dendrogram.cutting import estimate_cut
from rapids_slink.hierarchy.base import Hierarchy
from rapids_slink.hierarchy.estimator import Estimator
from rapids_slink.metrics import PRECOMPUTED, Metric, distances, get_metric
from rapids_slink.neighbors import check_n_neighbors, neighbor_lists
from rapids_slink.neighbors.plan import prepare_search
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import PartLists
from rapids_slink.ordering import sort_in_place
from rapids_slink.points import Points, as_points
from rapids_slink.points.distances import as_distances
from rapids_slink.points.output import distributed, is_collection
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import Device, resolve
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import check_memory, release_cached, run_scope
from rapids_slink.spanning_tree import boxes, count_connected_components, few, plan, spanning_tree
from rapids_slink.spanning_tree.line import tree_of_line
from rapids_slink.spanning_tree.repeats import find_repeats


class PointHierarchy(Hierarchy, Estimator):
    """What `SingleLinkage` and `HDBSCAN` share: from points to a linkage. They take other clusters of it."""

    metric: str
    p: float
    n_neighbors: int | None
    min_samples: int | None
    device: str
    progress: bool
    memory_limit: int | str | None

    def _check_parameters(self) -> int:
        """Raise for parameters that no data could suit; returns the neighbours in a core."""
        raise NotImplementedError

    def _check_rows(self, n: int) -> None:
        """Raise for parameters that do not suit n rows."""

    def _flatten(self, merges: PreallocatedFrame, points: Points, device: Device, report: Report) -> None:
        """Set `labels_`, `n_clusters_` and what goes with them, from the linkage."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            A cuDF or pandas DataFrame, CuPy or NumPy array, or anything with ``__cuda_array_interface__`` or DLPack;
            float32 or float64, integers and booleans are converted. For ``metric="precomputed"`` a symmetric
            matrix of finite distances, (n, n), or an array of SciPy's condensed form, (n(n - 1)/2,). A Dask DataFrame
            or Array of such is worked on by the current client's cluster; results are Dask's then.
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
        if is_collection(X):
            distributed().fit(self, X)
            return self
        metric, k, min_samples = self._parameters()
        device = resolve(self.device, X)
        report = Report(device=device.name, metric=metric.name)
        with run_scope(device, self.memory_limit):
            self._fit(X, metric, k, min_samples, device, report)
        self.report_ = report
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """`fit`, and its `labels_`: of the kind that they are of there, int32, one a row."""
        return self.fit(X).labels_

    def _fit(self, X: Any, metric: Metric, k: int | None, min_samples: int, device: Device, report: Report) -> None:
        def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
            return estimate_tree(n, d, itemsize, k, min_samples, metric, device)

        with report.stage("input", device):
            if metric is PRECOMPUTED:
                points = as_distances(X, device, estimate)
            else:
                points = as_points(X, device, estimate, metric=metric)
            n = len(points.values)
            self._check_rows(n)
            min_samples = self._samples_among(min_samples, n)
            if self.min_samples is not None or min_samples > 1:
                report["min_samples"] = min_samples
        tree, components = minimum_spanning_tree_of_points(
            points.values, metric, k, device, report, min_samples=min_samples, progress=self.progress
        )
        release_cached()
        with report.stage("linkage", device):
            merges = build_linkage(tree, n)
        self._flatten(merges, points, device, report)
        self.n_connected_components_ = components
        self._output, self._index = points.output, points.index
        self.__dict__.pop("_layout", None)  # of a fit before
        self.linkage_, self.mst_ = points.frame(merges.frame), points.frame(tree.frame)
        self.n_leaves_, self.n_features_in_ = points.values.shape
        self._name_features(points.names)

    def _parameters(self) -> tuple[Metric, int | None, int]:
        """The metric, `n_neighbors` and the neighbours in a core, or an error that says what is wrong."""
        metric = PRECOMPUTED if self.metric == PRECOMPUTED.name else get_metric(self.metric, self.p)
        k = None if self.n_neighbors is None else check_n_neighbors(self.n_neighbors)
        return metric, k, self._check_parameters()

    def _samples_among(self, min_samples: int, n: int) -> int:
        """The neighbours in a core where there are n rows."""
        if self.min_samples is None:
            return max(1, min(min_samples, n - 1))
        if min_samples > n - 1:
            raise ValueError(f"min_samples must be at most n - 1 = {n - 1}, got {min_samples}")
        return min_samples

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == PRECOMPUTED.name
        return tags

    def _repr_html_(self) -> str:
        """For Jupyter: a summary of what was found, or the parameters before `fit`."""
        return super()._repr_html_() if hasattr(self, "linkage_") else Estimator._repr_html_(self)

    def _name_features(self, names: list[Any] | None) -> None:
        if names and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_


def check_tree_memory(
    n: int, d: int, itemsize: int, n_neighbors: int | None, min_samples: int, metric: Metric, device: Device
) -> None:
    """Raise unless the tree of n points fits into what the run may take."""
    estimate = estimate_tree(n, d, itemsize, n_neighbors, min_samples, metric, device)
    check_memory(device, estimate, f"{counted(n, 'row')} of {counted(d, 'feature')}")


def estimate_tree(
    n: int, d: int, itemsize: int, n_neighbors: int | None, min_samples: int, metric: Metric, device: Device
) -> MemoryEstimate:
    """Bytes of `fit` once it has the points: the lists are given back when there is a tree."""
    tree = plan.estimate_tree(n, d, itemsize, n_neighbors, min_samples, metric, device)
    return sequential(tree, estimate_linkage(n), estimate_cut(n))


def minimum_spanning_tree_of_points(
    values: Any,
    metric: Metric,
    n_neighbors: int | None,
    device: Device,
    report: Report,
    *,
    min_samples: int = 1,
    progress: bool = False,
) -> tuple[PreallocatedFrame, int]:
    """The exact minimum spanning tree over all pairs of points.

    Parameters
    ----------
    values : (n, d) array on the device
    n_neighbors : int, optional
        Neighbours of each row in the graph that the forest is grown on. By default there need not be one.
    min_samples : int
        Edges weigh mutual reachability with this many neighbours in a core; 1 for the metric's distance.

    Returns
    -------
    tree : PreallocatedFrame
        n - 1 rows in merge order, weighing distances.
    components : int
        Connected components of the k-NN graph.
    """
    with report.stage("neighbors", device):
        rows = metric_rows(metric, values, device) if len(values) > 1 else values
    tree, components = surrogate_tree(
        rows, metric, n_neighbors, device, report, min_samples=min_samples, progress=progress
    )
    with report.stage("spanning_tree", device):
        src, dst, weight = tree.columns.values()
        weight[...] = distances(metric, weight, (src, dst), (values, values), device)
        if metric.changes_order:
            sort_in_place(tree.columns, device.xp)
    return tree, components


def surrogate_tree(
    rows: Any,
    metric: Metric,
    n_neighbors: int | None,
    device: Device,
    report: Report,
    *,
    min_samples: int = 1,
    core: Any = None,
    known: PartLists | None = None,
    progress: bool = False,
) -> tuple[PreallocatedFrame, int]:
    """The tree, weighing surrogate distances, and the components of the k-NN graph that it was grown on, 1 if none.

    `rows` are as `metric_rows` makes them; core distances, if they are given, are those of points among more. Neighbour
    lists of `plan.list_length` may be `known` within two parts of the points.
    """
    n, d = rows.shape
    if n == 1:
        return PreallocatedFrame.empty(device, 0, EDGE_TYPES), 1
    mutual = min_samples > 1 or core is not None
    suitable = plan.ways(n, d, n_neighbors, min_samples, metric, device, core)
    if not mutual:
        with report.stage("spanning_tree", device):
            line = tree_of_line(rows, metric, device)
        if line is not None:
            report.count("spanning_tree", rows_sorted=n)
            return line, 1
    if plan.PAIRS in suitable:
        with report.stage("spanning_tree", device):
            report.count("spanning_tree", pairs_weighed=n * (n - 1) // 2)
            return few.tree_of_few(rows, metric, min_samples, device), 1
    with report.stage("neighbors", device):
        repeats = None if mutual else find_repeats(rows, metric, device)
    if repeats is not None:
        report.count("spanning_tree", repeated_rows=repeats.repeated.size)
        distinct = rows[repeats.first]
        tree, components = surrogate_tree(distinct, metric, n_neighbors, device, report, progress=progress)
        with report.stage("spanning_tree", device):
            joined = repeats.join(tree, device)
        if joined is not None:
            return joined, components
    with report.stage("neighbors", device):
        search = prepare_search(rows, device, report, progress=progress, metric=metric)
        by_boxes = plan.way_by(search, suitable) == plan.BOXES
    if by_boxes:
        release_cached()
        with report.stage("spanning_tree", device):
            tree = boxes.tree_of_boxes(search, device, report)
            del search
            release_cached()
            sort_in_place(tree.columns, device.xp)
        return tree, 1
    with report.stage("neighbors", device):
        k = plan.list_length(n_neighbors, min_samples, metric, device)
        lists = neighbor_lists(search, n, k, device, min_samples, core, known)
    release_cached()
    with report.stage("components", device):
        components = count_connected_components(lists, device)
    return spanning_tree(lists, search, device, report), components
