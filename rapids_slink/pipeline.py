"""The pipeline: each stage's call, in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.dendrogram import build_linkage, estimate_linkage
from rapids_slink.dendrogram.cutting import estimate_cut
from rapids_slink.dendrogram.flat import SERIES_NAMES, ClusterRule, FlatClusters
from rapids_slink.metrics import PRECOMPUTED, distances
from rapids_slink.neighbors.rows import metric_rows
from rapids_slink.ordering import sort_in_place
from rapids_slink.points import Points, as_points
from rapids_slink.points.distances import as_distances
from rapids_slink.prediction import core_distances, estimate_prediction
from rapids_slink.report import Report
from rapids_slink.runtime.arrays import Array
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.runtime.memory import copy_out, release_cached
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.problem import Problem, Tree
from rapids_slink.spanning_tree.ways import estimate_tree, grow_tree


def fit(X: Any, settings: Settings, rule: ClusterRule, device: Device, report: Report) -> dict[str, Any]:
    """Cluster points on one device, within a run: the fitted model's attributes."""

    def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
        return estimate_fit(Problem(settings, device, n, d, itemsize))

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
    problem = Problem(settings, device, n, d, points.values.dtype.itemsize)
    tree, components = tree_of_points(points.values, problem, report)
    release_cached()
    with report.stage("linkage", device):
        merges = build_linkage(tree, n)
    flat = rule.choose(merges, n, device, report)
    kept = kept_rows(points.values, settings, rule, device, report) if settings.prediction_data else {}
    return {
        **kept,
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


def kept_rows(values: Array, settings: Settings, rule: ClusterRule, device: Device, report: Report) -> dict[str, Any]:
    """What a model keeps of its rows: these, and core distances if its predictions need them."""
    with report.stage("prediction_data", device):
        kept = {"_points_": copy_out(device, values) if device.is_gpu else values.copy()}
        if rule.predicts_by_density:
            kept["_core_"] = copy_out(device, core_distances(values, settings.metric, settings.min_samples, device))
    return kept


def flat_attributes(flat: FlatClusters, points: Points) -> dict[str, Any]:
    """Flat clusters as attributes, in the type of the points."""
    return {
        "n_clusters_": flat.n_clusters,
        **{name: points.labels(array, SERIES_NAMES[name]) for name, array in flat.rows.items()},
        **{name: points.output.array(array) for name, array in flat.clusters.items()},
        **{name: points.frame(frame) for name, frame in flat.frames.items()},
    }


def feature_names(names: list[Any] | None) -> dict[str, Any]:
    """`feature_names_in_`, if all columns' names are strings."""
    if names and all(isinstance(name, str) for name in names):
        return {"feature_names_in_": np.asarray(names, dtype=object)}
    return {}


def estimate_fit(problem: Problem) -> MemoryEstimate:
    """Bytes of a fit without the points. The memory of the lists is free again once the tree is there."""
    stages = [estimate_tree(problem), estimate_linkage(problem.n), estimate_cut(problem.n)]
    if problem.settings.prediction_data:
        stages.append(estimate_prediction(problem))
    return sequential(*stages)


def tree_of_points(values: Array, problem: Problem, report: Report) -> Tree:
    """The exact minimum spanning tree over all pairs of points, (n, d), in merge order, weighted by distances."""
    metric, device = problem.metric, problem.device
    with report.stage("neighbors", device):
        rows = metric_rows(metric, values, device) if problem.n > 1 else values
    tree, components = grow_tree(problem, rows, report)
    with report.stage("spanning_tree", device):
        src, dst, weight = tree.columns.values()
        weight[...] = distances(metric, weight, (src, dst), (values, values), device)
        if metric.changes_order:
            sort_in_place(tree.columns, device.xp)
    return tree, components
