"""The pipeline: each stage's call, in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.dendrogram import build_linkage, estimate_linkage
from rapids_slink.dendrogram.cutting import estimate_cut
from rapids_slink.dendrogram.flat import SERIES_NAMES, ClusterRule, FlatClusters
from rapids_slink.metrics import PRECOMPUTED, Metric, distances
from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.plan import prepare_search
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.neighbors.task import PartLists
from rapids_slink.ordering import sort_in_place
from rapids_slink.points import Points, as_points
from rapids_slink.points.distances import as_distances
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import check_memory, release_cached
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import count_connected_components, few, plan, spanning_tree
from rapids_slink.spanning_tree.line import tree_of_line
from rapids_slink.spanning_tree.repeats import find_repeats


def fit(X: Any, settings: Settings, rule: ClusterRule, device: Device, report: Report) -> dict[str, Any]:
    """Cluster points on one device, within a run: the fitted model's attributes."""

    def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
        return estimate_tree(n, d, itemsize, settings.n_neighbors, settings.min_samples, settings.metric, device)

    with report.stage("input", device):
        if settings.metric is PRECOMPUTED:
            points = as_distances(X, device, estimate)
        else:
            points = as_points(X, device, estimate, metric=settings.metric)
        n, d = points.values.shape
        rule.check_rows(n)
        settings = settings.for_rows(n)
        if not settings.clipped or settings.min_samples > 1:
            report["min_samples"] = settings.min_samples
    tree, components = minimum_spanning_tree_of_points(points.values, settings, device, report)
    release_cached()
    with report.stage("linkage", device):
        merges = build_linkage(tree, n)
    flat = rule.choose(merges, n, device, report)
    return {
        **flat_attributes(flat, points),
        **feature_names(points.names),
        "linkage_": points.frame(merges.frame),
        "mst_": points.frame(tree.frame),
        "n_leaves_": n,
        "n_features_in_": d,
        "n_connected_components_": components,
        "_output": points.output,
        "_index": points.index,
    }


def flat_attributes(flat: FlatClusters, points: Points) -> dict[str, Any]:
    """Flat clusters as attributes of the points' kind."""
    return {
        "n_clusters_": flat.n_clusters,
        **{name: points.labels(array, SERIES_NAMES[name]) for name, array in flat.rows.items()},
        **{name: points.output.array(array) for name, array in flat.clusters.items()},
        **{name: points.frame(frame) for name, frame in flat.frames.items()},
    }


def feature_names(names: list[Any] | None) -> dict[str, Any]:
    """`feature_names_in_`, for columns whose names are all strings."""
    if names and all(isinstance(name, str) for name in names):
        return {"feature_names_in_": np.asarray(names, dtype=object)}
    return {}


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
    values: Any, settings: Settings, device: Device, report: Report
) -> tuple[PreallocatedFrame, int]:
    """The exact minimum spanning tree over all pairs of points.

    Parameters
    ----------
    values : (n, d) array on the device
    settings : Settings
        If `min_samples` is above 1, edges weigh mutual reachability.
    device, report

    Returns
    -------
    tree : PreallocatedFrame
        n - 1 rows in merge order, weighing distances.
    components : int
        Connected components of the k-NN graph.
    """
    metric = settings.metric
    with report.stage("neighbors", device):
        rows = metric_rows(metric, values, device) if len(values) > 1 else values
    tree, components = surrogate_tree(
        rows, metric, settings.n_neighbors, device, report, min_samples=settings.min_samples, progress=settings.progress
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
    way = plan.way(n, d, n_neighbors, min_samples, metric, device, core)
    if not mutual:
        with report.stage("spanning_tree", device):
            line = tree_of_line(rows, metric, device)
        if line is not None:
            report.count("spanning_tree", rows_sorted=n)
            return line, 1
    if way == plan.PAIRS:
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
    if way == plan.BOXES:
        from rapids_slink.spanning_tree.boxes import tree_of_boxes  # which needs CuPy

        release_cached()
        with report.stage("spanning_tree", device):
            tree = tree_of_boxes(search, report)
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
