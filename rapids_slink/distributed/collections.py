"""Dask collections: their partitions in order, and results as collections.

A row's number is its place among all rows, partition after partition. A worker's results for all rows go back to the
partitions by that number: a merge on it is a slice, because each partition's rows follow one another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from operator import getitem
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import tokenize
from dask.core import flatten
from distributed import Future, get_worker

from rapids_slink.dendrogram.cutting import COLUMNS, CutParameters, cut_frame
from rapids_slink.distributed.cluster import Run
from rapids_slink.points.check import InputTypeError, require_columns
from rapids_slink.points.output import OutputKind, is_dataframe, library_of
from rapids_slink.runtime.device import device_of, is_on_gpu


@dataclass(frozen=True)
class Layout:
    """How rows are spread over the partitions of a collection."""

    sizes: list[int]  # rows of each partition
    #: a task's list of indices and the place there, for each partition of a frame
    index: list[tuple[Future, int]] | None
    divisions: tuple[Any, ...]  # Dask's; of None where they are not known, empty for an array
    output: OutputKind  # the kind of the partitions

    def collection(self, name: str, whole: Future, meta: Any) -> Any:
        """A Series or DataFrame that a worker holds, of all rows and with the columns of `meta`, in this layout.

        Its partitions are sliced when they are computed. Their tasks name futures by keys: the log of the scheduler's
        messages would keep a future that is an argument.
        """
        stops = np.cumsum(self.sizes).tolist()
        index: Sequence[tuple[Any, int]] = [(None, 0)] * len(stops) if self.index is None else self.index
        graph: dict[Any, Any] = {future.key: future for future in (whole, *(indices for indices, _ in index)) if future}
        keys = [(f"{name}-{tokenize(whole.key)}", p) for p in range(len(stops))]
        for key, bounds, (indices, place) in zip(keys, pairwise([0, *stops]), index, strict=True):
            graph[key] = (_rows_of, whole.key, self.output, *bounds, indices and indices.key, place)
        meta = _rows_of(meta, self.output, 0, 0, None, 0)
        series = dd.from_graph(graph, meta, self.divisions or (None,) * (len(keys) + 1), keys, name)
        return series if self.output.is_frame else series.to_dask_array(lengths=self.sizes)

    def cut(self, linkage: Any, n_leaves: int, parameters: CutParameters) -> Any:
        """Labels of another cut of a linkage frame, a collection, as `Hierarchy.cut` gives them."""
        with Run() as run:
            whole = gathered(run, linkage, COLUMNS, "linkage")
            results = run.task("cut", _cut, whole, n_leaves, parameters)
            return attributes(run, results, self, of_rows=("labels",))["labels"]


def is_frame(X: Any) -> bool:
    """Whether a Dask collection consists of frames."""
    return hasattr(X, "map_partitions")


def partitions_of(X: Any) -> list[Any]:
    """The partitions of a Dask DataFrame or Series, or the blocks of rows of an Array: futures if they are persisted.

    Otherwise they are tasks.
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


def attributes(run: Run, results: Future, layout: Layout | None = None, of_rows: Sequence[str] = ()) -> dict[str, Any]:
    """A task's results by name: frames become collections, and so do Series and others `of_rows`, in their layout."""
    ((worker, described),) = run.gather([run.task("results", _described, results)])
    by_name = {}
    for name, (value, divisions) in described.items():
        by_name[name] = value
        if divisions is not None and layout is not None and (value.ndim == 1 or name in of_rows):
            by_name[name] = layout.collection(name, run.task(name, getitem, results, name, worker=worker), value)
        elif divisions is not None:
            output = None if layout is None else layout.output
            whole = run.task(name, _frame_of, results, name, output, worker=worker)
            by_name[name] = frame_of_parts(name, [whole], _frame_of({name: value}, name, output), divisions)
    return by_name


def _frame_of(results: dict[str, Any], name: str, output: OutputKind | None) -> Any:
    """The frame of this name, in that kind of output if there is one."""
    return results[name] if output is None else output.frame(results[name])


def _described(results: dict[str, Any]) -> tuple[str, dict[str, tuple[Any, tuple[Any, Any] | None]]]:
    """The worker that holds the results. Each of these, without its rows and with divisions if it has any."""
    return get_worker().address, {
        name: (value[:0], _divisions(value)) if library_of(value) else (value, None) for name, value in results.items()
    }


def frame_of_parts(name: str, parts: list[Future], meta: Any, divisions: tuple[Any, ...]) -> Any:
    """A DataFrame or Series whose partitions workers hold."""
    return dd.from_graph({part.key: part for part in parts}, meta, divisions, [part.key for part in parts], name)


def gathered(run: Run, X: Any, columns: Sequence[str], name: str) -> Future:
    """Some columns of all partitions of a collection of frames, the argument `name`, as one frame on a worker."""
    parts, _ = run.partitions(partitions_of(X))
    return run.task(f"{name}-whole", _concat, parts, pd.Index(columns), name)


def _cut(linkage: Any, n: int, parameters: CutParameters) -> dict[str, Any]:
    return {"labels": cut_frame(linkage, n, parameters, OutputKind(is_frame=True, gpu=is_on_gpu(linkage)))}


def matched(partition: Any, columns: pd.Index | float, name: str, *, others: bool = False) -> Any:
    """A partition that has rows, called `name` in errors, with the collection's columns in their order.

    Dask does not ensure this order. `columns` are the labels, or for an array their number, NaN if Dask does not know
    it. A frame's `others` are left out if they are allowed, otherwise refused.
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


def _rows_of(whole: Any, output: OutputKind, start: int, stop: int, indices: Any, place: int) -> Any:
    """Rows `start` to `stop` of a Series or DataFrame in that kind of output."""
    part, index = whole.iloc[start:stop], indices and indices[place]
    return output.series(part.values, index, part.name) if part.ndim == 1 else output.frame(part, index)


def _divisions(frame: Any) -> tuple[Any, Any]:
    """The divisions of a frame as one partition, known if the index numbers the rows from 0."""
    is_numbered = len(frame) and type(frame.index).__name__ == "RangeIndex" and frame.index[0] == 0
    return (0, len(frame) - 1) if is_numbered else (None, None)
