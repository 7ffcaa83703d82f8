"""The clusters of DBSCAN on one device: the stage calls, in order, for points, for groups of them, and for items.

X ──▶ rows ──▶ core rows and labels ──▶ results in the type of X
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from rapids_slink import groups as grouped
from rapids_slink import pipeline
from rapids_slink.dendrogram.cutting import OUTLIER, clusters_of_groups, frame_of_groups, number_of_clusters
from rapids_slink.item_pipeline import NearItems
from rapids_slink.items.search import pairs_of_ranges
from rapids_slink.metrics import PRECOMPUTED, distances
from rapids_slink.neighbors import estimate_search, prepare_search, within
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.rows import metric_rows, require_common_features
from rapids_slink.neighbors.task import SearchTask, equal_slices, row_blocks
from rapids_slink.neighbors.within import Limit, NearPairs, PairPoints, PairTask, estimate_pairs
from rapids_slink.ordering import edge_codes
from rapids_slink.pipeline import size_attributes
from rapids_slink.points import Points, is_sparse
from rapids_slink.points.check import check_weights
from rapids_slink.points.keys import Groups, check_keys
from rapids_slink.points.output import library_of, take_rows
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import Array, Device, all_true, half, to_host
from rapids_slink.runtime.memory import MemoryEstimate, check_memory, copy_out, outside_pool
from rapids_slink.settings import Settings
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
from rapids_slink.spanning_tree.problem import Problem
from rapids_slink.spanning_tree.ways import check_zeros, compile_for, tree_of_rows

#: Parts of pairs of rows: src and dst, and maybe distances, which are not read.
Parts = Iterator[tuple[Array, ...]]
#: The bytes of a row: its weights, whether it is core, its label, and kept pairs. The entries of a matrix that are
#: compared at a time.
ROW_BYTES, COMPARED = 160, 2**24
#: If there are more than FEW_PAIRS pairs and FEW_PAIRS_A_ROW more for each row, lists and a tree take less time.
FEW_PAIRS, FEW_PAIRS_A_ROW = 2**20, 16


@dataclass(frozen=True)
class DensityRule:
    """When a row is core: the parameters of `DBSCAN`."""

    eps: float  # the distance within which rows count, and core rows are connected
    min_samples: float  # the least sum of the weights within it


def fit(X: Any, settings: Settings, rule: DensityRule, are_items: bool) -> dict[str, Any]:
    """Return the attributes of a `DBSCAN` fitted to rows on one device."""
    rows: Any = partial(_fit, are_items=are_items)
    return pipeline.fit(X, settings, rule, rows)  # type: ignore[arg-type]


def _fit(
    X: Any, settings: Settings, rule: DensityRule, device: Device, report: Report, are_items: bool
) -> dict[str, Any]:
    """Return the attributes that `fit` returns; within a run."""
    groups, rows = None, X
    if settings.groups is not None:
        if settings.metric is PRECOMPUTED:
            raise ValueError(grouped.GIVEN)
        with report.stage("groups", device):
            X, groups = grouped.read_groups(X, settings.groups, device)
    find = _of_items if are_items else _of_points
    points, (n, d), labels, is_core = find(X, settings, rule, groups, device, report)
    with report.stage("output", device), outside_pool(device):
        core = device.xp.flatnonzero(is_core)
        fitted = {
            "labels_": points.labels(copy_out(device, labels)),
            "n_clusters_": number_of_clusters(labels, None),
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


def _of_points(
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
        points, edges = pipeline.read_points(X, settings, device, estimate, checked=groups is None)
        n, d = points.values.shape if edges is None else 2 * (edges.n_nodes,)
        settings = settings.of_columns(points.names, d)
        if groups is not None:
            check_keys(groups.number.size, n)
            grouped.check_values(points, groups, settings.metric, device)
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
            parts = partial(_of_edges, edges, rule.eps, device)
        elif settings.metric is PRECOMPUTED:
            parts = partial(_of_matrix, values, rule.eps, device)
        elif groups is not None:
            parts = partial(_of_groups, points, groups, task, max_pairs, device)
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
        tree_kernels(device).join_pairs(parent, tree.columns["src"], tree.columns["dst"])
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


def _of_items(
    X: Any, settings: Settings, rule: DensityRule, groups: Groups | None, device: Device, report: Report
) -> Labelled:
    """Return for items what `_of_points` returns for points."""
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


def _of_matrix(matrix: Array, eps: float, device: Device) -> Parts:
    """Yield the pairs of rows whose given distance, in an (n, n) matrix, is at most `eps`."""
    xp = device.xp
    for rows in row_blocks(len(matrix), len(matrix), COMPARED):
        near = matrix[rows, rows.start :].astype("float64") <= eps
        src, dst = xp.nonzero(xp.triu(near, 1))
        yield (src + rows.start).astype("int32"), (dst + rows.start).astype("int32")


def _of_edges(edges: EdgeList, eps: float, device: Device) -> Parts:
    """Yield the pairs of nodes with an edge of at most `eps` between them; parallel edges are one pair."""
    near = (edges.src != edges.dst) & (edges.weight.astype("float64") <= eps)
    code = device.xp.unique(edge_codes(edges.src[near], edges.dst[near], device.xp))
    yield (code >> 32).astype("int32"), (code & 0xFFFFFFFF).astype("int32")


def _of_groups(points: Points, groups: Groups, task: PairTask, max_pairs: float, device: Device) -> Parts:
    """Yield the near pairs of each group: from all distances of small groups, from a search in each larger one."""
    xp, metric, values, order = device.xp, task.metric, points.values, groups.order
    limit = Limit.of(metric, float(task.distances[-1]), values.shape[1])
    check_zeros(values, groups, metric, device)
    if metric.formula.is_undefined_without_common:
        for begin, end in pairwise(groups.starts.tolist()):
            require_common_features(values[order[begin:end]], "X", device, order[begin:end])
    rows = metric_rows(metric, values, device, alone=False, compact=True)
    is_large = groups.sizes > half(device, within.__name__).FEW_POINTS
    number, starts = groups.number[order], device.asarray(groups.starts)
    position = xp.flatnonzero(~device.asarray(is_large)[number])
    for owner, place in pairs_of_ranges(position + 1, starts[number[position] + 1] - position - 1, device):
        src, dst = order[position[owner]], order[place]
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
