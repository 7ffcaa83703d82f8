"""Points of a Dask collection: the workers read and check their partitions, whose rows then form blocks.

    partitions ──read──▶ values, index, summary ──▶ blocks of equally many rows, kept by the workers

Every pair of blocks is a task, so there are few blocks, whatever the numbers of rows and partitions. Small partitions
share a block, and a large one is spread over several.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import getitem
from typing import Any, Self

import numpy as np
import pandas as pd
from distributed import Future, get_worker

from rapids_slink.distributed.cluster import Run, work
from rapids_slink.distributed.collections import Layout, matched, partitions_of
from rapids_slink.distributed.schedule import owners_of_blocks
from rapids_slink.neighbors.rows import metric_rows, undefined_for_zeros, zero_rows
from rapids_slink.points import as_points
from rapids_slink.points.check import check_finite, check_shape, check_spans, dimension_error
from rapids_slink.points.output import OutputKind, is_collection, library_of
from rapids_slink.runtime.device import Device, is_on_gpu, resolve, to_host
from rapids_slink.settings import Settings

#: Blocks of at least MANY_ROWS begin at multiples of ROWS_TOGETHER, which the fused filter processes together: see
#: `PartLists`.
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
        """Raise if there are two rows whose distance is not defined."""
        if len(self.zeros) > 1:
            raise undefined_for_zeros(f"rows {self.zeros[0]} and {self.zeros[1]} of X", self.settings.metric)
        return self

    @property
    def n_rows(self) -> int:
        """The number of rows of all partitions."""
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
    """The points of a Dask collection, the argument `name`, which the workers check."""
    if X.ndim != 2:
        raise ValueError(dimension_error(X))
    names = list(X.columns) if hasattr(X, "columns") else None
    parts, groups = run.partitions(partitions_of(X) if is_collection(X) else [run.client.scatter(X)])
    columns, tasks = X.shape[1] if names is None else pd.Index(names), []
    places: dict[int, tuple[int, int]] = {}
    for g, (group, holder) in enumerate(groups):
        called = [f"partition {p} of {name}" for p in group]
        arguments = settings, [parts[p] for p in group], columns, called
        tasks.append(run.task("read", read_partitions, *arguments, index=(name, g), worker=holder))
        places |= {p: (g, i) for i, p in enumerate(group)}

    def of_groups(what: str, function: Callable[..., Any], *args: Any) -> list[Future]:
        return [
            run.task(what, function, task, *args, index=(name, g), worker=holder)
            for g, (task, holder) in enumerate(zip(tasks, holders, strict=True))
        ]

    holders = [holder for _, holder in groups]
    gathered = run.gather(of_groups("summary", getitem, "summary"))
    holders = [summaries[0]["worker"] for summaries in gathered]
    summaries: list[dict[str, Any]] = [gathered[g][i] for g, i in (places[p] for p in range(len(parts)))]
    sizes, index = [summary["rows"] for summary in summaries], None
    if names is not None:
        indices = of_groups("index", getitem, "index")
        index = [(indices[g], i) for g, i in (places[p] for p in range(len(parts)))]
    check_shape((sum(sizes), len(names) if names is not None else X.shape[1]), name)
    starts = np.cumsum([0, *sizes]).tolist()
    filled = [(start, summary) for start, summary in zip(starts, summaries, strict=False) if summary["rows"]]
    if not all(summary["bounded"] for _, summary in filled):  # else all distances between partitions fit, too
        read = list(zip([group for group, _ in groups], tasks, holders, strict=True))
        low, high = (np.stack(ends) for ends in zip(*extremes_of_partitions(run, read, name), strict=True))
        check_spans(high.max(axis=0) - low.min(axis=0), names, name, settings.metric)
    zeros = [start + row for start, summary in filled for row in summary["zeros"]]
    first = filled[0][1]
    layout = Layout(sizes, index, getattr(X, "divisions", ()), OutputKind(names is not None, first["gpu"]))
    dtype = np.result_type(*(summary["dtype"] for _, summary in filled)).str
    read = [(group, task, holder) for (group, _), task, holder in zip(groups, tasks, holders, strict=True)]
    return Partitions(read, layout, replace(settings, device=first["device"]), dtype, first["features"], names, zeros)


def read_partitions(
    settings: Settings, partitions: list[Any], columns: pd.Index | float, names: list[str]
) -> dict[str, list[Any]]:
    """The checked ``values`` of partitions, on a GPU or the host like these; their ``index``; a ``summary`` of each.

    `columns` are as for `matched`, and errors call each partition by its name.
    """
    device = resolve(settings.device, *partitions)
    read = work(_read, device, settings, partitions, columns, names)
    return {**read, "index": [part.index if library_of(part) else None for part in partitions]}


def _read(
    device: Device, settings: Settings, partitions: list[Any], columns: pd.Index | float, names: list[str]
) -> dict[str, list[Any]]:
    values, summaries, worker = [], [], get_worker().address
    for partition, name in zip(partitions, names, strict=True):
        summary = {"rows": len(partition), "device": device.name, "gpu": is_on_gpu(partition), "worker": worker}
        rows = None
        if len(partition):
            partition = matched(partition, columns, name)
            try:
                rows, more = _read_rows(device, settings, partition)
            except (TypeError, ValueError) as error:
                error.args = (f"{name}: {error}",)
                raise
            summary.update(more)
        values.append(rows)
        summaries.append(summary)
    return {"values": values, "summary": summaries}


def _read_rows(device: Device, settings: Settings, partition: Any) -> tuple[Any, dict[str, Any]]:
    points = as_points(partition, device, metric=settings.metric, checked=False)
    bounded, values = check_finite({"X": points}, settings.metric, device), points.values
    metric_rows(settings.metric, values, device, alone=False)  # refuses what has no distances
    zeros = to_host(zero_rows(values, device)[:2]).tolist() if settings.metric.is_undefined_for_zeros else []
    if not is_on_gpu(partition):  # there it waits for tasks that want it
        values = to_host(values)
    return values, {"dtype": values.dtype.str, "features": values.shape[1], "bounded": bounded, "zeros": zeros}


def extremes_of_partitions(
    run: Run, read: list[tuple[list[int], Future, str | None]], name: str = "X"
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The results of `_extremes` for partitions that are read together, in the order in which they are listed."""
    tasks = [
        run.task("extremes", _extremes, part, index=(name, g), worker=holder)
        for g, (_, part, holder) in enumerate(read)
    ]
    return list(chain(*run.gather(tasks)))


def _extremes(part: dict[str, Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The least and the greatest value of each column, for each partition that has rows."""
    filled = [values for values in part["values"] if values is not None]
    ends = [(to_host(values.min(axis=0)), to_host(values.max(axis=0))) for values in filled]
    return [(low.astype(np.float64), high.astype(np.float64)) for low, high in ends]


def block_starts(n: int, count: int) -> list[int]:
    """The first row number of each of `count` blocks, then n."""
    unit = ROWS_TOGETHER if n // count >= MANY_ROWS else 1
    return [*(n * b // count // unit * unit for b in range(count)), n]


def make_blocks(run: Run, points: Partitions, count: int, name: str = "block", n_pairs: int = 0) -> Blocks:
    """The points in `count` blocks of consecutive rows, kept by workers that will do `n_pairs` pairs of blocks."""
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
            arguments = read, list(parts.values()), holder != worker and run.copies_through_host(settings)
            pieces.append(run.task(f"{name}-piece", _piece, *arguments, index=(b, g), worker=holder))
        order = [p for parts in groups.values() for p in parts]
        blocks.append(run.task(name, _block, pieces, order, points.dtype, device, index=(b,), worker=worker))
    return Blocks(blocks, starts, owners, settings)


def rows_between(points: Partitions, first: int, last: int) -> dict[int, dict[int, tuple[int, int, int]]]:
    """The rows between `first` and `last` by group: each partition's place in the group, and which of its rows."""
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
    """The pieces by their numbers in one array: a copy, because a slice would keep its whole partition."""
    xp, flat = resolve(device).xp, [array for part in pieces for array in part]
    return xp.concatenate([xp.asarray(flat[i]) for i in np.argsort(order)]).astype(dtype, copy=False)
