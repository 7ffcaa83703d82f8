"""New rows beside a fitted model: the rows that the model keeps, and the nearest of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rapids_slink.metrics import Metric, distances
from rapids_slink.neighbors import nearest_neighbors, neighbor_lists
from rapids_slink.neighbors.plan import estimate_search, prepare_search
from rapids_slink.neighbors.rows import metric_rows, require_common_features_with
from rapids_slink.points import Points, as_points
from rapids_slink.points.output import OutputKind, column_names, library_of
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, device_of
from rapids_slink.runtime.memory import MemoryEstimate, outside_pool, sequential
from rapids_slink.spanning_tree.problem import Problem


@dataclass(frozen=True)
class FittedRows:
    """The rows that a model keeps, with their metric."""

    values: Array  # (n, d) array, of either device
    names: list[Any] | None  # the columns' names
    metric: Metric
    kind: str  # the model's class, for errors
    missing_values: tuple[Any, ...] = ()  # what stands for a missing value in new rows

    def read(self, X: Any, device: Device) -> tuple[Points, tuple[Array, Array]]:
        """New rows, and their values and those of the fitted rows in one type; a frame's columns go by name."""
        X, output = OutputKind.of(X, device)
        columns = column_names(X)
        if self.names is not None and columns is not None and columns != self.names:
            if set(columns) != set(self.names) or len(columns) != len(set(columns)):
                valid = f"X must have the columns that {self.kind} was fitted on, {self.names}"
                raise ValueError(f"{valid}, got {columns}")
            X = X[self.names] if library_of(X) else X.select(self.names)
        points = as_points(X, device, metric=self.metric, missing_values=self.missing_values)
        points = replace(points, index=output.index_of(X), output=output)
        d, of_fit = points.values.shape[1], self.values.shape[1]
        if d != of_fit:
            raise ValueError(f"X has {d} features, but {self.kind} is expecting {of_fit} features as input")
        dtype = np.result_type(points.values.dtype, self.values.dtype)
        both = points.values.astype(dtype, copy=False), device.asarray(self.values, dtype)
        return points, both


@dataclass(frozen=True)
class Fitted:
    """A model to which rows are added."""

    rows: FittedRows
    #: `tree` and `linkage`: DataFrame, its `mst_` and `linkage_`
    tree: Any
    linkage: Any
    index: Any  # of its rows
    output: OutputKind

    def index_with(self, new: Points) -> Any:
        """The index of all rows. Rows without an index are numbered."""
        if self.index is None:
            return None
        n, m = len(self.index), len(new.values)
        index = new.index if new.index is not None else device_of(self.index).frames.RangeIndex(n, n + m)
        return self.index.append(OutputKind(True, self.output.gpu).index(index))


def nearest_labels(X: Any, fitted: FittedRows, labels: Array, height: float, device: Device, report: Report) -> Any:
    """The label of each new row's nearest row if that is nearer than `height`, else -1, in the type of `X`."""
    with report.stage("predict", device):
        output = OutputKind.of(X, device)[1]
        points, (new, old) = fitted.read(X, device)
        if fitted.metric.missing:
            require_common_features_with(new, old, device)
        edges = nearest_neighbors(new, old, fitted.metric, device)
        near = device.asarray(edges["weight"].values) < height
        label = device.xp.where(near, device.asarray(labels)[device.asarray(edges["dst"].values)], -1)
        report.count("predict", rows=len(new), noise=len(new) - int(near.sum()))
        return results(device, output.from_cuml_setting().labels, label.astype("int32"), points.index)


def core_distances(values: Array, metric: Metric, min_samples: int, device: Device) -> Array:
    """The distance of each row from its `min_samples` - 1-th nearest other row; zeros if `min_samples` is 1."""
    n, k = len(values), min_samples - 1
    if k == 0:
        return device.xp.zeros(n)
    search = prepare_search(metric_rows(metric, values, device), device, Report(), metric=metric)
    lists = neighbor_lists(search, n, k, device)
    ids, weight = (device.xp.ascontiguousarray(part[:, -1]) for part in (lists.ids, lists.weights))
    return distances(metric, weight, (device.xp.arange(n, dtype="int32"), ids), (values, values), device)


def results(device: Device, convert: Callable[..., Any], values: Array, *names: Any) -> Any:
    """The results of a prediction, in memory that outlives the run."""
    with outside_pool(device):
        return convert(values if isinstance(values, np.ndarray) else values.copy(), *names)


def estimate_prediction(problem: Problem) -> MemoryEstimate:
    """Bytes of a copy of the rows and of `core_distances`."""
    n, d, k, itemsize = problem.n, problem.n_features, max(1, problem.settings.min_samples - 1), problem.itemsize
    search = estimate_search(n, d, itemsize, k, problem.device, metric=problem.metric)
    return sequential(MemoryEstimate(n * d * itemsize, n * d * itemsize), search)
