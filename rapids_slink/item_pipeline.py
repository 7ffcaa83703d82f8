"""The engine of rows that have no coordinates: the functions of `pipeline`, for the kinds of rows of `items`.

    X ──▶ items ──▶ forest ──▶ linkage, cut, labels, as those of points

`items` has the stages up to the forest, and `pipeline.attributes_of` makes the rest.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Never

import numpy as np

from rapids_slink import pipeline
from rapids_slink.dendrogram.cutting import ClusterRule
from rapids_slink.items import Items, without_features
from rapids_slink.items.search import (
    ItemSearch,
    Pairs,
    distinct_items,
    forest_of_items,
    kind_of,
    nearest_items,
    one_of_each,
    pairs_of_copies,
    pairs_of_equal_rows,
)
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.queries import NearestEdges, NearestTask, nearest_of_pairs, read_together
from rapids_slink.neighbors.within import Found, PairFrames, PairTask, check_names, counts_within, room_for_pairs
from rapids_slink.pipeline import attributes_of, within_groups
from rapids_slink.pipeline import predict as predict
from rapids_slink.points import Points
from rapids_slink.points.check import column_values
from rapids_slink.points.keys import Groups, check_keys, read_groups
from rapids_slink.points.output import EDGE_TYPES, OutputKind, column_names, is_dataframe, number_of_rows
from rapids_slink.prediction import Fitted
from rapids_slink.report import Report
from rapids_slink.runtime.device import Device, resolve, to_host
from rapids_slink.runtime.memory import DeviceMemoryError, run_scope
from rapids_slink.settings import Settings


def fit(X: Any, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """Return the attributes of a model fitted on items, or on groups of items; see `pipeline.fit`."""
    _check_settings(settings, rule)
    return pipeline.fit(X, settings, rule, _fit)


def append(X: Any, model: Fitted, settings: Settings, rule: ClusterRule) -> dict[str, Any]:
    """Return the attributes of a model of items with further items; see `pipeline.append`."""
    return pipeline.append(X, model, settings, rule, _append)


def nearest_rows(X: Any, Y: Any, task: PairTask, device: Device, **how: Any) -> tuple[Any, Any]:
    """Return the nearest earlier item within a distance of each item, or that of Y; see `pipeline.nearest_rows`."""
    with run_scope(device, task.memory_limit):
        return nearest_of_pairs(NearItems(X, Y, task, device), **how)


def pair_distances(X: Any, ends: tuple[Any, Any], task: PairTask, device: Device) -> Any:
    """Return the distances of pairs of items of X, (m,) float64 on the host; see `pipeline.pair_distances`."""
    with run_scope(device, task.memory_limit):
        items, _ = read_items({"X": X}, task.metric, device)
        return to_host(items.distances(device.asarray(ends[0]), device.asarray(ends[1]), np.inf))


def nearest_neighbors(X: Any, Y: Any, task: NearestTask, device: str) -> Any:
    """Return the nearest items of Y for each item of X; see `pipeline.nearest_neighbors`."""
    chosen = resolve(device, X, Y)
    with run_scope(chosen, task.memory_limit):
        return _nearest(X, Y, task, chosen)


def knn_graph(X: Any, n_neighbors: int, metric: Metric, device: str, memory_limit: Any) -> Never:
    """Raise ValueError: a k-NN graph is of rows of features, and items have none."""
    raise ValueError(f"knn_graph is of rows of features, and {without_features(metric)}. Or use pairs, or fit")


def connect(graph: Any, X: Any, *, certified: bool, metric: Metric, device: str, memory_limit: Any) -> Never:
    """Raise ValueError: `connect` takes rows of features, and items have none."""
    raise ValueError(f"connect is of rows of features, and {without_features(metric)}. Or use pairs, or fit")


# ---------------------------------------------------------------------------------------------------- the stages


def read_items(inputs: dict[str, Any], metric: Metric, device: Device) -> tuple[Items, list[Points]]:
    """Return the items of all inputs together, and each input as points without values, for the type of results."""
    kind = kind_of(metric, *inputs.values())
    assert kind is not None
    unwrapped = {name: OutputKind.of(X, device) for name, X in inputs.items()}
    items = kind.read({name: X for name, (X, _) in unwrapped.items()}, metric, device)
    parts = []
    for X, output in unwrapped.values():
        index = output.index_of(X)
        n = len(items) if len(inputs) == 1 else number_of_rows(X)
        names = column_names(X) if is_dataframe(X) else None
        parts.append(Points(np.empty((n, 0)), names, index, output))
    return items, parts


def _nearest(X: Any, Y: Any, task: NearestTask, device: Device) -> Any:
    """Return for items what `queries.nearest_neighbors` returns for points; within a run."""
    together, number = None, None
    if task.by is not None:
        X, Y, together = read_together(X, Y, task.by, device)
    items, (x, y) = read_items({"X": X, "Y": Y}, task.metric, device)
    m, n = len(x.values), len(y.values)
    task.check_points(n)
    if together is not None:
        check_keys(together.query_group.size, m, "X")
        check_keys(together.point_groups.number.size, n, "Y")
        number = device.xp.concatenate((together.query_group, together.point_groups.number))
    result = NearestEdges(task, m, together, device)
    edges = result.allocate()
    ids, weight = (part.ravel()[result.listed] for part in nearest_items(items, m, k=task.k, number=number))
    result.write(edges, (result.rows, ids - np.int32(m)), weight)
    return result.result(x)


def _check_settings(settings: Settings, rule: ClusterRule) -> None:
    """Raise ValueError for parameters that need features."""
    for parameter, is_set in (
        ("prediction_data=True of HDBSCAN", settings.prediction_data and rule.predicts_by_density),
        ("gen_min_span_tree=True", settings.gen_min_span_tree),
        ("store_centers", settings.store_centers is not None),
        ("sample_weight", settings.weights is not None),
    ):
        if is_set:
            raise ValueError(f"{parameter} takes the rows' features, and {without_features(settings.metric)}")


def _fit(X: Any, settings: Settings, rule: ClusterRule, device: Device, report: Report) -> dict[str, Any]:
    """Fit items or groups of items within a run; return what `pipeline.fit_points` does."""
    groups = None
    if settings.groups is not None:
        X, groups = read_groups(X, settings.groups, settings.metric, device, report)
    with report.stage("input", device):
        items, (points,) = read_items({"X": X}, settings.metric, device)
        n = len(items)
        if groups is not None:
            check_keys(groups.number.size, n)
            rule = within_groups(rule, groups)
        rule.check_rows(n)
        if groups is None:
            number, settings = device.xp.zeros(n, "int32"), settings.for_rows(n)
        else:
            number, settings = groups.number, replace(settings, min_samples=min(settings.min_samples, n))
        if not settings.clipped or settings.min_samples > 1:
            report["min_samples"] = settings.min_samples
    report["way"] = "items" if groups is None else "groups"
    more = _kept(X, points, settings, device)
    tree = forest_of_items(items, number, settings, report)
    settings = replace(settings, prediction_data=False)
    return attributes_of(points, tree, (n, items.n_features), settings, rule, device, report, groups=groups) | more


def _append(
    X: Any, model: Fitted, settings: Settings, rule: ClusterRule, device: Device, report: Report
) -> dict[str, Any]:
    """Add items to a model within a run, and return the attributes as `pipeline.append_points` does."""
    report["way"] = "append"
    with report.stage("input", device):
        X = model.rows.columns_of(X)
        items, (old, new) = read_items({"the model": model.rows.values, "X": X}, settings.metric, device)
        n, n_old = len(items), len(old.values)
        if settings.for_rows(n).min_samples > 1:
            raise ValueError("append is for min_samples=1: with new rows core distances fall, and no edge is certain")
        rule.check_rows(n)
        kept = _kept(X, new, settings, device)
        kept["_points_"] = np.concatenate((model.rows.values, kept["_points_"]))
        points = Points(np.empty((n, 0)), model.rows.names, model.index_with(new), model.output)
        columns = [column_values(model.tree[name], device) for name in EDGE_TYPES]
        edges = tuple(
            device.asarray(values, EDGE_TYPES[name]) for name, values in zip(EDGE_TYPES, columns, strict=True)
        )
    tree = forest_of_items(items, device.xp.zeros(n, "int32"), settings, report, (n_old, edges))
    settings = replace(settings, prediction_data=False)
    fitted = attributes_of(points, tree, (n, items.n_features), settings, rule, device, report)
    return {**fitted, **kept}


def _kept(X: Any, points: Points, settings: Settings, device: Device) -> dict[str, Any]:
    """Return the attributes in which a model keeps its rows; {} unless the settings have `prediction_data`."""
    if not settings.prediction_data:
        return {}
    kind = kind_of(settings.metric, X)
    assert kind is not None
    columns = {} if points.names is None else {"_columns_": tuple(points.names)}
    metric = settings.metric.name, settings.metric.p, None
    kept = kind.kept(X, settings.metric, device)
    return {"_metric_": metric, "_missing_values_": (), "_points_": kept, **columns}


class NearItems(PairFrames):
    """The pairs of some items within the distances of a task; with `groups` only pairs of one group."""

    def __init__(self, X: Any, Y: Any, task: PairTask, device: Device, groups: Groups | None = None) -> None:
        items, points = read_items({"X": X} if Y is None else {"X": X, "Y": Y}, task.metric, device)
        for part, name in zip(points, "XY", strict=False):
            check_names(part, name, task)
        super().__init__(points[0], points[-1], Y is None, task, device)
        if groups is not None:
            check_keys(groups.number.size, len(items))
        number = device.xp.zeros(len(items), "int32") if groups is None else groups.number
        self.distinct, self.n_features = distinct_items(items, number), items.n_features

    def find(self, rows: slice, room: float, goes_on: bool = True) -> Found:
        """Return the pairs of a range of rows, or their number alone if they are more than `room`; see `PairFrames`."""
        parts: list[Pairs] = []
        total = 0
        for part in self._pairs_of_rows(rows, room):
            total += part[0].size
            parts = [*parts, part] if total <= room else []
        return Found(total) if total > room else Found(total, *one_of_each(parts, self.device))

    def count(self, rows: slice) -> np.ndarray:
        """Count the pairs of a range of rows within each of the task's distances; see `PairFrames`."""
        counts = np.zeros(self.task.distances.size, np.int64)
        for _, _, weight in self._pairs_of_rows(rows, room_for_pairs(self.device)):
            counts += counts_within(weight, self.task.distances, self.device)
        return counts

    def _pairs_of_rows(self, rows: slice, room: float) -> Iterator[Pairs]:
        """Yield the pairs of a range of rows, each once, in no order, in parts whose items' pairs fit into memory."""
        waiting = [rows]
        while waiting:
            part = waiting.pop()
            pairs = self._pairs_of_items(part, room)
            if pairs is None:
                if part.stop - part.start == 1:
                    raise DeviceMemoryError(f"not enough memory for the pairs of row {part.start}")
                middle = (part.start + part.stop) // 2
                waiting += [slice(middle, part.stop), slice(part.start, middle)]
                continue
            for src, dst, weight in chain(
                pairs_of_copies(pairs, self.distinct),
                pairs_of_equal_rows(self.distinct, float(self.task.distances[-1])),
            ):
                kept = (src >= part.start) & (src < part.stop)
                if not self.is_one:
                    kept &= dst >= self.n_rows
                first = 0 if self.is_one else self.n_rows
                yield src[kept], dst[kept] - np.int32(first), weight[kept]

    def _pairs_of_items(self, rows: slice, room: float) -> Pairs | None:
        """Return the pairs of distinct items of which one has a copy among these rows; None if over `room`."""
        items, item_of_row, device = self.distinct.items, self.distinct.of_row, self.device
        limit, parts, count = float(self.task.distances[-1]), [], 0
        src, dst = (device.xp.zeros(len(items), bool) for _ in range(2))
        src[item_of_row[rows]] = True
        dst[item_of_row[0 if self.is_one else self.n_rows :]] = True
        every = self.is_one and rows == slice(0, self.n_rows)
        search = ItemSearch(items, self.distinct.groups, limit, self.task.progress)
        for part in search.parts(*(() if every else (src, dst))):
            parts.append(part)
            count += part[0].size
            if count > room:
                parts = [one_of_each(parts, device)]
                count = parts[0][0].size
                if count > room:
                    return None
        return one_of_each(parts, device)


fit_apart = partial(pipeline.fit_apart, read=NearItems)
pairs = partial(pipeline.pairs, read=NearItems)
count_pairs = partial(pipeline.count_pairs, read=NearItems)
iter_pairs = partial(pipeline.iter_pairs, read=NearItems)
