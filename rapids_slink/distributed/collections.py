"""Dask collections: their partitions in order, and results as collections.

A row's number is its place among all rows, partition after partition. A worker's results for all rows go back to the
partitions by that number: a merge on it is a slice, because each partition's rows follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from operator import getitem
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Future

from rapids_slink.dendrogram.cutting import COLUMNS, CutParameters, cut_frame
from rapids_slink.distributed.cluster import Run
from rapids_slink.points.columns import require_columns
from rapids_slink.points.output import OutputKind, is_dataframe
from rapids_slink.points.validate import InputTypeError
from rapids_slink.runtime.device import device_of, is_on_gpu


@dataclass(frozen=True)
class Layout:
    """How rows are spread over the partitions of a collection.

    Attributes
    ----------
    sizes : list of int
        Rows of each partition.
    index : list of futures, optional
        The index of each partition; None for an array.
    divisions : tuple
        Dask's; of None where they are not known. Empty for an array.
    output : OutputKind
        The kind of the partitions.
    """

    sizes: list[int]
    index: list[Future] | None
    divisions: tuple[Any, ...]
    output: OutputKind

    def collection(self, run: Run, name: str, whole: Future) -> Any:
        """A Series or DataFrame that a worker holds, of all rows, as a collection in this layout."""
        stops = np.cumsum(self.sizes).tolist()
        index: list[Any] = [None] * len(stops) if self.index is None else self.index
        pieces = [
            run.task(name, _in_kind, whole, stop - size, stop, index[p], self.output, index=(p,))
            for p, (size, stop) in enumerate(zip(self.sizes, stops, strict=True))
        ]
        run.wait(pieces)
        (meta,) = run.gather([run.task(f"{name}-meta", _no_rows, pieces[0])])
        if self.output.is_frame:
            return frame_of_parts(pieces, meta, self.divisions)
        shapes = [(size, *meta.shape[1:]) for size in self.sizes]
        return da.concatenate([da.from_delayed(*piece, meta=meta) for piece in zip(pieces, shapes, strict=True)])

    def cut(self, linkage: Any, n_leaves: int, parameters: CutParameters) -> Any:
        """Labels of another cut of a linkage frame, a collection, as `Hierarchy.cut` gives them."""
        with Run() as run:
            whole = gathered(run, linkage, COLUMNS, "linkage")
            return self.collection(run, "labels", run.task("cut", _cut, whole, n_leaves, parameters))


def is_frame(X: Any) -> bool:
    """Whether a Dask collection consists of frames."""
    return hasattr(X, "map_partitions")


def partitions_of(X: Any) -> list[Any]:
    """The partitions of a Dask DataFrame or Series, or the blocks of rows of an Array, as tasks."""
    if is_frame(X):
        return list(X.to_delayed(optimize_graph=False))  # optimizing may put partitions together
    if not isinstance(X, da.Array):
        raise InputTypeError(f"of Dask's collections DataFrames and Arrays are taken, got {type(X).__name__}")
    if X.ndim == 2 and len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    return list(X.to_delayed().ravel())


def frame_collection(run: Run, name: str, frame: Future) -> Any:
    """A frame that a worker holds as a collection of one partition."""
    meta, last = run.gather([run.task(f"{name}-meta", _no_rows, frame), run.task(f"{name}-last", _last_label, frame)])
    divisions = (0, last) if isinstance(last, int) else (None, None)
    return frame_of_parts([frame], meta, divisions)


def frame_of_parts(parts: list[Future], meta: Any, divisions: tuple[Any, ...] | None = None) -> Any:
    """A DataFrame or Series whose partitions the workers hold.

    They are persisted although they exist: otherwise Dask cannot compute arrays of frames that were made from futures.
    """
    return dd.from_delayed(parts, meta=meta, divisions=divisions, verify_meta=False).persist()


def gathered(run: Run, X: Any, columns: Sequence[str], name: str) -> Future:
    """These columns of all partitions of a collection of frames, the argument `name`, as one frame on a worker."""
    return run.task(f"{name}-whole", _concat, run.partitions(partitions_of(X)), pd.Index(columns), name)


def attribute(run: Run, fitted: Future, name: str) -> Future:
    """An entry of the dictionary that a task returns."""
    return run.task(name, getitem, fitted, name)


def _cut(linkage: Any, n: int, parameters: CutParameters) -> Any:
    return cut_frame(linkage, n, parameters, OutputKind(is_frame=True, gpu=is_on_gpu(linkage)))


def matched(partition: Any, columns: pd.Index | float, name: str, *, others: bool = False) -> Any:
    """A partition that has rows, with the collection's columns in their order, which Dask does not ensure.

    Parameters
    ----------
    partition : DataFrame or array
        Called `name` in errors.
    columns : Index or int
        The labels, which a frame may have in any order. For an array their number, NaN if Dask does not know it.
    others : bool
        Whether a frame may have other columns, which are left out; otherwise they are refused.
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


def _in_kind(whole: Any, start: int, stop: int, index: Any, output: OutputKind) -> Any:
    """Rows `start` to `stop` of a Series or DataFrame in that kind of output."""
    part = whole.iloc[start:stop]
    if not output.is_frame:
        return output.array(part.values)
    return output.series(part.values, index, part.name) if part.ndim == 1 else output.frame(part, index)


def _no_rows(part: Any) -> Any:
    return part[:0]


def _last_label(frame: Any) -> Any:
    """The last label of the index if it numbers the rows from 0, else None."""
    index = frame.index
    return len(frame) - 1 if len(frame) and type(index).__name__ == "RangeIndex" and index[0] == 0 else None
