"""Dask collections: points that workers read, check and keep in blocks, and results as collections.

    partitions ──read──▶ values, index, summary ──▶ blocks of equally many rows, kept by the workers

Every pair of blocks is a task, so there are few blocks, whatever the numbers of rows and partitions. Small partitions
share a block, and a large one is spread over several.

A row's number is its position among all rows, partition after partition. A worker's results for all rows go back to the
partitions by that number: a merge on it is a slice, because each partition's rows follow one another.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import isnan
from operator import getitem
from time import perf_counter
from typing import Any, Self

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import tokenize
from dask.core import flatten
from distributed import Future, get_worker

from rapids_slink.dendrogram.cutting import COLUMNS, CutParameters, cut_frame
from rapids_slink.distributed.cluster import Run, owners_of_blocks, work
from rapids_slink.neighbors.rows import metric_rows, undefined_for_zeros, zero_rows
from rapids_slink.pipeline import size_attributes
from rapids_slink.points import Points, as_points
from rapids_slink.points.check import (
    InputTypeError,
    check_finite,
    check_shape,
    check_spans,
    dimension_error,
    require_columns,
)
from rapids_slink.points.keys import keys_of
from rapids_slink.points.output import OutputKind, is_collection, is_dataframe, library_of
from rapids_slink.report import Report
from rapids_slink.runtime.device import Device, device_of, is_on_gpu, resolve, to_host
from rapids_slink.settings import Settings


@dataclass(frozen=True)
class Layout:
    """How rows are spread over the partitions of a collection."""

    sizes: list[int]  # rows of each partition
    #: for each partition of a frame: a task whose result is a list of indices, and the position of its index there
    index: list[tuple[Future, int]] | None
    divisions: tuple[Any, ...]  # Dask's; all are None if they are not known; empty for an array
    output: OutputKind  # the kind of the partitions

    def collection(self, name: str, whole: Future, meta: Any) -> Any:
        """Return a Series or DataFrame of all rows, which a worker holds, as a collection in this layout.

        It has the columns of `meta`. Its partitions are sliced when they are computed. Their tasks refer to futures by
        keys, because the log of the scheduler's messages would keep alive a future that is an argument.
        """
        stops = np.cumsum(self.sizes).tolist()
        index: Sequence[tuple[Any, int]] = [(None, 0)] * len(stops) if self.index is None else self.index
        graph: dict[Any, Any] = {future.key: future for future in (whole, *(indices for indices, _ in index)) if future}
        keys = [(f"{name}-{tokenize(whole.key)}", p) for p in range(len(stops))]
        for key, bounds, (indices, position) in zip(keys, pairwise([0, *stops]), index, strict=True):
            graph[key] = (_rows_of, whole.key, self.output, *bounds, indices and indices.key, position)
        meta = _rows_of(meta, self.output, 0, 0, None, 0)
        series = dd.from_graph(graph, meta, self.divisions or (None,) * (len(keys) + 1), keys, name)
        return series if self.output.is_frame else series.to_dask_array(lengths=self.sizes)

    def cut(self, linkage: Any, n_leaves: int, parameters: CutParameters, groups: Any = None) -> Any:
        """Return labels of another cut of a linkage frame, a collection, as `Hierarchy.cut` gives them.

        `groups` are a model's frames for `cut_groups`, if the cut is of each group.
        """
        with Run() as run:
            whole = gathered(run, linkage, COLUMNS, "linkage")
            if groups is not None:
                merge_group, keys = groups
                groups = (
                    gathered(run, merge_group, ("group",), "merges' groups"),
                    gathered(run, keys, ("rows",), "groups"),
                )
            results = run.task("cut", _cut, whole, n_leaves, parameters, groups)
            return attributes(run, results, self, row_names=("labels",))["labels"]


def is_frame(X: Any) -> bool:
    """Return whether a Dask collection consists of frames."""
    return hasattr(X, "map_partitions")


def partitions_of(X: Any) -> list[Any]:
    """Return the partitions of a Dask DataFrame or Series, or the blocks of rows of an Array.

    They are futures if they are persisted, otherwise tasks.
    """
    if not is_frame(X) and not isinstance(X, da.Array):
        raise InputTypeError(f"of Dask's collections DataFrames and Arrays are taken, got {type(X).__name__}")
    if not is_frame(X) and X.ndim == 2 and len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    graph = dict(X.__dask_graph__())
    nodes = [graph.get(key) for key in flatten(X.__dask_keys__())]
    futures = [graph.get(getattr(node, "target", None), node) for node in nodes]  # a frame's keys are aliases
    if all(isinstance(future, Future) for future in futures):
        return futures
    # Optimizing may put a frame's partitions together.
    return list(X.to_delayed(optimize_graph=False)) if is_frame(X) else list(X.to_delayed().ravel())


def attributes(
    run: Run, results: Future, layout: Layout | None = None, row_names: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a task's results by name: frames become collections, and Series have the layout of the rows.

    `row_names` names further results that have a value for each row, and so that layout.
    """
    ((worker, described),) = run.gather([run.task("results", _described, results)])
    by_name = {}
    for name, (value, divisions) in described.items():
        by_name[name] = value
        if divisions is not None and layout is not None and (value.ndim == 1 or name in row_names):
            by_name[name] = layout.collection(name, run.task(name, getitem, results, name, worker=worker), value)
        elif divisions is not None:
            output = None if layout is None else layout.output
            whole = run.task(name, _frame_of, results, name, output, worker=worker)
            by_name[name] = frame_of_parts(name, [whole], _frame_of({name: value}, name, output), divisions)
    return by_name


def model_attributes(run: Run, results: Future, points: "Partitions", report: Report) -> dict[str, Any]:
    """Return the attributes of a model of these points, as collections, from the results of a run's last task.

    Time that no stage took is that of the stage "cluster".
    """
    layout = points.layout
    fitted = attributes(run, results, layout)
    sizes = size_attributes(points.n_rows, points.n_features, fitted.pop("components", 1), points.names)
    report.add(fitted.pop("report_", Report()))
    report.count("cluster", **run.counts())
    report["seconds"]["cluster"] = perf_counter() - run.start - sum(report["seconds"].values())
    return {**fitted, **sizes, "report_": report, "_output": layout.output, "_index": None, "_layout": layout}


def _frame_of(results: dict[str, Any], name: str, output: OutputKind | None) -> Any:
    """Return the frame of this name, in the kind of output if one is given."""
    return results[name] if output is None else output.frame(results[name])


def _described(results: dict[str, Any]) -> tuple[str, dict[str, tuple[Any, tuple[Any, Any] | None]]]:
    """Return the worker that holds the results, and each result's empty form, with its divisions if it has any."""
    return get_worker().address, {
        name: (value[:0], _divisions(value)) if library_of(value) else (value, None) for name, value in results.items()
    }


def frame_of_parts(name: str, parts: list[Future], meta: Any, divisions: tuple[Any, ...]) -> Any:
    """Return a DataFrame or Series whose partitions workers hold."""
    return dd.from_graph({part.key: part for part in parts}, meta, divisions, [part.key for part in parts], name)


def frame_of_tasks(run: Run, name: str, parts: list[Future]) -> Any:
    """Return a DataFrame whose partitions are the results of these tasks, with divisions that are not known."""
    run.wait(parts)
    (meta,) = run.gather([run.task(f"{name}-meta", getitem, parts[0], slice(0))])
    return frame_of_parts(name, parts, meta, (None,) * (len(parts) + 1))


def without_values(n: int, device: Device) -> Points:
    """Return n points without values, for which results become frames of the device."""
    return Points(device.xp.empty((n, 0)), None, None, OutputKind(is_frame=True, gpu=device.is_gpu))


def gathered(run: Run, X: Any, columns: Sequence[str], name: str) -> Future:
    """Gather some columns of all partitions of a frame collection into one frame on a worker; errors call it `name`."""
    parts, _ = run.partitions(partitions_of(X))
    return run.task(f"{name}-whole", _concat, parts, pd.Index(columns), name)


def _cut(linkage: Any, n: int, parameters: CutParameters, groups: Any) -> dict[str, Any]:
    output = OutputKind(is_frame=True, gpu=is_on_gpu(linkage))
    return {"labels": cut_frame(linkage, n, parameters, output, groups=groups)}


def matched(partition: Any, columns: pd.Index | float, name: str, *, others: bool = False) -> Any:
    """Return a partition that has rows, called `name` in errors, with the collection's columns in their order.

    Dask does not ensure this order. `columns` are the labels, or the number of an array's columns, NaN if Dask does
    not know it. Other columns of a frame are left out if `others` are allowed, and refused otherwise.
    """
    if not isinstance(columns, pd.Index):
        if partition.ndim == 2 and partition.shape[1] != columns and not isnan(columns):
            raise ValueError(f"{name} must have {columns} columns, as the array says, got {partition.shape[1]}")
        return partition
    labels = pd.Index(list(partition) if is_dataframe(partition) else [])
    if labels.equals(columns):
        return partition
    require_columns(partition, list(columns), name, others=others)
    return partition.iloc[:, labels.get_indexer(columns)]


def _concat(parts: list[Any], columns: pd.Index, name: str) -> Any:
    numbered = [(f"partition {p} of {name}", part) for p, part in enumerate(parts) if len(part)]
    parts = [matched(part, columns, called, others=True) for called, part in numbered] or parts[:1]
    return parts[0] if len(parts) == 1 else device_of(parts[0]).frames.concat(parts)


def _rows_of(whole: Any, output: OutputKind, start: int, stop: int, indices: Any, position: int) -> Any:
    """Return rows `start` to `stop` of a Series or DataFrame in the kind `output`."""
    part, index = whole.iloc[start:stop], indices and indices[position]
    return output.series(part.values, index, part.name) if part.ndim == 1 else output.frame(part, index)


def _divisions(frame: Any) -> tuple[Any, Any]:
    """Return the divisions of a frame as one partition, known if the index numbers the rows from 0."""
    is_numbered = len(frame) and type(frame.index).__name__ == "RangeIndex" and frame.index[0] == 0
    return (0, len(frame) - 1) if is_numbered else (None, None)


#: Blocks of at least MANY_ROWS begin at multiples of ROWS_TOGETHER, which the fused filter processes together: see
#: `SearchTask.split`.
ROWS_TOGETHER, MANY_ROWS = 256, 2**12


@dataclass(frozen=True)
class Partitions:
    """Points as the partitions hold them."""

    #: the numbers of partitions read together, the result of `read_partitions`, and the worker that holds it
    read: list[tuple[list[int], Future, str | None]]
    layout: Layout
    settings: Settings  # with the device
    dtype: str  # the common type of all values
    n_features: int
    names: list[Any] | None  # the columns'
    zeros: list[int]  # rows of zeros, at most two of each partition, if the metric does not define their distance

    def check_zeros(self) -> Self:
        """Return the points; raise if there are two rows whose distance is not defined."""
        if len(self.zeros) > 1:
            raise undefined_for_zeros(f"rows {self.zeros[0]} and {self.zeros[1]} of X", self.settings.metric)
        return self

    def without_rows(self) -> Self:
        """Return what is known of the points; the workers need not keep their partitions."""
        return replace(self, read=[])

    @property
    def n_rows(self) -> int:
        """Return the number of rows of all partitions."""
        return sum(self.layout.sizes)


@dataclass(frozen=True)
class Blocks:
    """The points of a Dask collection in blocks of consecutive rows."""

    rows: list[Future]  # an array of values for each block, on a GPU or the host like the partitions
    starts: list[int]  # the first row number of each block, then the number of rows
    owners: list[int]  # the number of the worker that keeps each block
    settings: Settings

    def __len__(self) -> int:
        return len(self.rows)


def read_points(run: Run, X: Any, settings: Settings, name: str = "X") -> Partitions:
    """Read the points of a Dask collection; the workers check them. Errors call it `name`."""
    if X.ndim != 2:
        raise ValueError(dimension_error(X, name))
    keys = [] if settings.groups is None else settings.groups.groups
    labels = list(X.columns) if hasattr(X, "columns") else None
    names = None if labels is None else [label for label in labels if label not in keys]
    parts, groups = run.partitions(partitions_of(X) if is_collection(X) else [run.client.scatter(X)])
    columns, tasks = X.shape[1] if labels is None else pd.Index(labels), []
    positions: dict[int, tuple[int, int]] = {}
    for g, (group, holder) in enumerate(groups):
        called = [f"partition {p} of {name}" for p in group]
        tasks.append(
            run.task(
                "read", read_partitions, settings, [parts[p] for p in group], columns, called, index=(name, g),
                worker=holder,
            )
        )  # fmt: skip
        positions |= {p: (g, i) for i, p in enumerate(group)}

    def tasks_of_groups(part: str) -> list[Future]:
        return [
            run.task(part, getitem, task, part, index=(name, g), worker=holder)
            for g, (task, holder) in enumerate(zip(tasks, holders, strict=True))
        ]

    holders = [holder for _, holder in groups]
    gathered = run.gather(tasks_of_groups("summary"))
    holders = [summaries[0]["worker"] for summaries in gathered]
    read = [(group, task, holder) for (group, _), task, holder in zip(groups, tasks, holders, strict=True)]
    summaries: list[dict[str, Any]] = [gathered[g][i] for g, i in (positions[p] for p in range(len(parts)))]
    sizes, index = [summary["rows"] for summary in summaries], None
    if names is not None:
        indices = tasks_of_groups("index")
        index = [(indices[g], i) for g, i in (positions[p] for p in range(len(parts)))]
    check_shape((sum(sizes), len(names) if names is not None else X.shape[1]), name)
    starts = np.cumsum([0, *sizes]).tolist()
    filled = [(start, summary) for start, summary in zip(starts, summaries, strict=False) if summary["rows"]]
    if not all(summary["bounded"] for _, summary in filled):  # else all distances between partitions fit, too
        low, high = (np.stack(ends) for ends in zip(*extremes_of_partitions(run, read, name), strict=True))
        check_spans(high.max(axis=0) - low.min(axis=0), names, name, settings.metric)
    zeros = [start + row for start, summary in filled for row in summary["zeros"]]
    first = filled[0][1]
    layout = Layout(sizes, index, getattr(X, "divisions", ()), OutputKind(names is not None, first["gpu"]))
    dtype = np.result_type(*(summary["dtype"] for _, summary in filled)).str
    settings = replace(settings, device=first["device"]).of_columns(names, first["features"])
    return Partitions(read, layout, settings, dtype, first["features"], names, zeros)


def read_partitions(
    settings: Settings, partitions: list[Any], columns: pd.Index | float, names: list[str]
) -> dict[str, list[Any]]:
    """Return the checked ``values`` of partitions, their ``index``, ``keys`` and a ``summary`` of each.

    The values are on a GPU or the host like the partitions. There are keys if rows have groups. `columns` are as for
    `matched`, and errors call each partition by its name.
    """
    device = resolve(settings.device, *partitions)
    read = work(_read, device, settings, partitions, columns, names)
    return {**read, "index": [part.index if library_of(part) else None for part in partitions]}


def _read(
    device: Device, settings: Settings, partitions: list[Any], columns: pd.Index | float, names: list[str]
) -> dict[str, list[Any]]:
    values, keys, summaries, worker = [], [], [], get_worker().address
    for partition, name in zip(partitions, names, strict=True):
        summary = {"rows": len(partition), "device": device.name, "gpu": is_on_gpu(partition), "worker": worker}
        rows = own_keys = None
        if len(partition):
            partition = matched(partition, columns, name)
            try:
                if settings.groups is not None:
                    partition, own_keys, _ = keys_of(partition, settings.groups, device)
                rows, more = _read_rows(device, settings, partition)
            except (TypeError, ValueError) as error:
                error.args = (f"{name}: {error}",)
                raise
            summary.update(more)
        values.append(rows)
        keys.append(own_keys)
        summaries.append(summary)
    return {"values": values, "summary": summaries, "keys": keys}


def _read_rows(device: Device, settings: Settings, partition: Any) -> tuple[Any, dict[str, Any]]:
    points = as_points(partition, device, metric=settings.metric, checked=False)
    bounded, values = check_finite({"X": points}, settings.metric, device), points.values
    metric = settings.metric.of_columns(points.names, values.shape[1])
    metric_rows(metric, values, device, alone=False)  # refuses what has no distances
    zeros = to_host(zero_rows(values, device)[:2]).tolist() if settings.metric.formula.is_undefined_for_zeros else []
    if not is_on_gpu(partition):  # there it waits for tasks that want it
        values = to_host(values)
    return values, {"dtype": values.dtype.str, "features": values.shape[1], "bounded": bounded, "zeros": zeros}


def extremes_of_partitions(
    run: Run, read: list[tuple[list[int], Future, str | None]], name: str = "X"
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the results of `_extremes` for partitions read together, in the order in which they are listed."""
    tasks = [
        run.task("extremes", _extremes, part, index=(name, g), worker=holder)
        for g, (_, part, holder) in enumerate(read)
    ]
    return list(chain(*run.gather(tasks)))


def _extremes(part: dict[str, Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the least and the greatest value of each column, for each partition that has rows."""
    filled = [values for values in part["values"] if values is not None]
    ends = [(to_host(values.min(axis=0)), to_host(values.max(axis=0))) for values in filled]
    return [(low.astype(np.float64), high.astype(np.float64)) for low, high in ends]


def block_starts(n: int, count: int) -> list[int]:
    """Return the first row number of each of `count` blocks, then n."""
    unit = ROWS_TOGETHER if n // count >= MANY_ROWS else 1
    return [*(n * b // count // unit * unit for b in range(count)), n]


def make_blocks(run: Run, points: Partitions, count: int, name: str = "block", n_pairs: int = 0) -> Blocks:
    """Put the points into `count` blocks of consecutive rows, kept by workers that will do `n_pairs` pairs of them."""
    settings, starts = points.settings, block_starts(points.n_rows, count)
    device = settings.device if points.layout.output.gpu else "cpu"
    rows = [rows_between(points, first, last) for first, last in pairwise(starts)]
    held = [Counter[int]() for _ in rows]
    numbers: dict[str | None, int] = {worker: w for w, worker in enumerate(run.workers)}
    for b, groups in enumerate(rows):
        for g, parts in groups.items():
            if (w := numbers.get(points.read[g][2])) is not None:  # else it came after the run began
                held[b][w] += sum(stop - start for _, start, stop in parts.values())
    owners, blocks = owners_of_blocks(held, max(1, len(run.workers)), n_pairs), []
    for b, groups in enumerate(rows):
        worker, pieces = run.worker(owners[b]) if held[b] else None, []
        for g, parts in groups.items():
            _, read, holder = points.read[g]
            ranges, copied = list(parts.values()), holder != worker and run.copies_through_host(settings)
            pieces.append(run.task(f"{name}-piece", _piece, read, ranges, copied, index=(b, g), worker=holder))
        order = [p for parts in groups.values() for p in parts]
        blocks.append(run.task(name, _block, pieces, order, points.dtype, device, index=(b,), worker=worker))
    return Blocks(blocks, starts, owners, settings)


def rows_between(points: Partitions, first: int, last: int) -> dict[int, dict[int, tuple[int, int, int]]]:
    """Return where rows `first` to `last` are: by group of partitions, each partition's position there and its rows."""
    sizes, stops = points.layout.sizes, np.cumsum(points.layout.sizes).tolist()
    rows = {
        g: {
            p: (i, max(first - stops[p] + sizes[p], 0), min(last - stops[p], 0) + sizes[p])
            for i, p in enumerate(group)
            if sizes[p] and stops[p] > first and stops[p] - sizes[p] < last
        }
        for g, (group, _, _) in enumerate(points.read)
    }
    return {g: parts for g, parts in rows.items() if parts}


def _piece(part: dict[str, Any], rows: list[tuple[int, int, int]], through_host: bool) -> list[Any]:
    pieces = [part["values"][i][start:stop] for i, start, stop in rows]
    return [to_host(piece) for piece in pieces] if through_host else pieces


def _block(pieces: list[list[Any]], order: list[int], dtype: str, device: str) -> Any:
    """Return the pieces by their numbers in one array: a copy, because a slice would keep its whole partition."""
    xp, flat = resolve(device).xp, [array for part in pieces for array in part]
    return xp.concatenate([xp.asarray(flat[i]) for i in np.argsort(order)]).astype(dtype, copy=False)
