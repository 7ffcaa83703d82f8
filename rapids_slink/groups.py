"""A fit of many groups of rows at once: the pipeline, in which the tree is a forest of a tree for each group.

keys ──▶ groups ──▶ a tree for each ──▶ linkage of the forest ──▶ cut of each group
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from rapids_slink import pipeline
from rapids_slink.dendrogram.cutting import ClusterRule, Cut, GroupedCut
from rapids_slink.metrics import PRECOMPUTED, Metric
from rapids_slink.pipeline import RESULT_BYTES, is_shape
from rapids_slink.points import Points
from rapids_slink.points.check import check_finite
from rapids_slink.points.keys import KEPT_BYTES, ROW_BYTES, GroupBy, Groups, check_keys, keys_of, names_of, numbered
from rapids_slink.report import Report, counted
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.memory import DeviceMemoryError, MemoryEstimate, check_memory
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree.problem import Problem, Tree
from rapids_slink.spanning_tree.ways import estimate_groups, forest_of_groups

GIVEN = "metric='precomputed' takes no groups: make the distances between them infinite, and each group has its tree"


def fit(X: Any, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """Return the attributes of a model fitted with `Settings.groups`; see `pipeline.fit`."""
    return pipeline.fit(X, settings, rule, fit_groups)


def plan(X: Any, settings: Settings) -> Report:
    """Return the plan of a fit with `Settings.groups`; see `pipeline.plan`."""
    return pipeline.plan(X, settings, plan_groups)


def fit_groups(X: Any, settings: Settings, rule: ClusterRule, device: Device, report: Report) -> dict[str, Any]:
    """Fit all groups at once, and return the attributes of `pipeline.fit_points` and those of groups."""
    if settings.metric is PRECOMPUTED:
        raise ValueError(GIVEN)
    assert isinstance(rule, Cut)
    key_columns = names_of(X, settings.groups.groups) or []
    with report.stage("groups", device):
        X, groups = read_groups(X, settings.groups, device)
    grouped_cut = GroupedCut(rule, groups.keys, groups.sizes, groups.first)
    with report.stage("input", device):
        estimate = partial(_checked_estimate, settings, device, groups)
        points, _ = pipeline.read_points(X, settings, device, estimate, checked=False)
        check_values(points, groups, settings.metric, device)
        n, d = points.values.shape
        settings = settings.of_columns(points.names, d)
        grouped_cut.check_rows(n)
        if not settings.clipped or settings.min_samples > 1:
            report["min_samples"] = settings.min_samples
    problem = Problem(settings, device, n, d, points.values.dtype.itemsize)
    report["way"] = "groups"
    tree = tree_of_groups(points.values, problem, groups, report)
    grouped_cut = replace(grouped_cut, merge_group=groups.number[tree[0].columns["src"]])
    fitted = pipeline.attributes_of(points, tree, (n, d), settings, grouped_cut, device, report)
    return {**fitted, **attributes_of_groups(fitted["groups_"], groups, key_columns, rule)}


def plan_groups(X: Any, settings: Settings, device: Device, report: Report) -> None:
    """Write the plan of a fit of groups into the report; see `pipeline.plan_points`."""
    if settings.metric is PRECOMPUTED:
        raise ValueError(GIVEN)
    if is_shape(X):
        raise ValueError("a plan of groups takes the rows and their keys: X is a shape")
    X, groups = read_groups(X, settings.groups, device)
    report["way"], report["fits"] = "groups", True
    report.count("groups", groups=len(groups), rows_of_largest=groups.sizes.max())
    whole = MemoryEstimate(0)

    def estimate(n: int, d: int, itemsize: int) -> MemoryEstimate:
        nonlocal whole
        whole = _checked_estimate(settings, device, groups, n, d, itemsize)
        return whole

    try:
        pipeline.read_points(X, settings, device, estimate)
    except DeviceMemoryError as error:
        report["fits"], report["refused"] = False, str(error)
        report["instead"] = "a Dask collection, whose groups are spread over the workers"
    report["memory"] = {"peak_bytes": whole.preferred + RESULT_BYTES * groups.number.size * device.is_gpu}


def attributes_of_groups(frame: Any, groups: Groups, key_columns: list[Any], rule: Cut) -> dict[str, Any]:
    """Return the attributes that only models of groups have: `groups_`, made of `frame`, its keys and its cut."""
    per_group = rule.distance_threshold is None
    return {
        "groups_": groups.in_types_of_tables(frame),
        "_key_columns_": tuple(key_columns),
        "_cut_per_group_": per_group,
    }


def read_groups(X: Any, by: GroupBy, device: Device) -> tuple[Any, Groups]:
    """Return `X` without the columns that are keys, and its groups."""
    X, keys, columns = keys_of(X, by, device)
    check_memory(device, MemoryEstimate(ROW_BYTES * len(keys)), counted(len(keys), "key"))
    return X, numbered(keys, device).with_columns_of(columns)


def _checked_estimate(
    settings: Settings, device: Device, groups: Groups, n: int, d: int, itemsize: int
) -> MemoryEstimate:
    check_keys(groups.number.size, n)
    return estimate_fit(Problem(settings, device, n, d, itemsize), groups)


def check_values(points: Points, groups: Groups, metric: Metric, device: Device) -> None:
    """Raise if a value is not finite, or if distances within a group may overflow."""
    try:
        check_finite({"X": points}, metric, device)
    except ValueError:
        xp, values = device.xp, points.values
        if len(groups) == 1 or bool((xp.isinf(values) | (xp.isnan(values) & (not metric.missing))).any()):
            raise
        for begin, end in pairwise(groups.starts.tolist()):
            check_finite({"X": replace(points, values=values[groups.order[begin:end]])}, metric, device)


def tree_of_groups(values: Array, problem: Problem, groups: Groups, report: Report) -> Tree:
    """Return the forest of all groups, in merge order and weighted by distances, and its number of trees."""

    def grow(problem: Problem, rows: Array, report: Report) -> Tree:
        return forest_of_groups(problem, rows, groups, values, report)

    return pipeline.tree_of_points(values, problem, report, grow, alone=False, groups=groups)


def estimate_fit(problem: Problem, groups: Groups) -> MemoryEstimate:
    """Estimate the bytes of a fit of groups, without the points."""
    keeps_rows = problem.settings.prediction_data or problem.settings.gen_min_span_tree
    row_bytes = KEPT_BYTES + problem.n_features * problem.itemsize * keeps_rows
    return MemoryEstimate(row_bytes * problem.n) + estimate_groups(problem, groups.sizes)
