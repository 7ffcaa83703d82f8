"""Rows of codes as bit planes, the distances of all pairs by them, and the least of these: launchers of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import OVERFLOW, Metric
from rapids_slink.neighbors.exact.cuda import MIN_SHARED_MEMORY, WARP, list_entries
from rapids_slink.neighbors.slices import BLOCK, equal_slices
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.cuda import check_arrays, launch, launch_blocks, value_option
from rapids_slink.runtime.device import Array

PLANES, LEAST = "neighbors/planes/planes.cu", "neighbors/planes/least.cu"
THREADS, ROW_TILE, POINT_TILE = 256, 128, 64  # as in planes.cu
LEAST_WARPS = 2  # a block of least.cu
#: Codes of integers that span no more than this are their differences from the least.
MAX_SPAN = 2.0**16
#: Distances of fewer features than this, all integers, are stored in 16 bits; see distance.cuh.
MAX_SHORT = 2**16 - 1


@dataclass(frozen=True)
class BitPlanes:
    """Rows as their planes.

    Attributes
    ----------
    lines : (words * (planes + missing), pitch) uint32 array
        Word by word; `pitch` is the number of rows, filled up to whole tiles.
    present : (n,) int32 array, optional
        The number of features that a row has, if the metric asks for it.
    n, planes, n_features : int
    """

    lines: Array
    present: Any
    n: int
    planes: int
    n_features: int

    def take(self, rows: Array) -> BitPlanes:
        """Some rows."""
        filled_up = cp.zeros(padded(rows.size), cp.int32)
        filled_up[: rows.size] = rows
        present = None if self.present is None else self.present[rows]
        return BitPlanes(self.lines[:, filled_up], present, rows.size, self.planes, self.n_features)


def padded(n: int) -> int:
    """The number of rows, filled up to whole tiles."""
    return -(-n // ROW_TILE) * ROW_TILE


def bit_planes(parts: list[Array], metric: Metric) -> list[BitPlanes]:
    """The planes of one or several arrays of rows, in which equal values of a feature have equal codes."""
    width, is_counted = parts[0].shape[1], metric.rows == "counted"
    d = width - is_counted
    span = cp.array([np.inf, np.inf, 0.0])
    for values in parts:
        check_arrays(values.dtype, values)
        arguments = values, np.int32(width), np.int32(d), np.int64(len(values)), span
        launch(PLANES, "find_span", len(values) * WARP, *arguments, options=_options(metric, values.dtype))
    least, negative, fraction = span.tolist()
    largest = max(-negative - least, 0.0)  # code; without any value 0
    if fraction or largest >= MAX_SPAN:
        lines = _lines_of_ranks(parts, d, metric)
    else:
        planes = max(1, int(largest).bit_length())
        lines = [_empty_lines(len(values), d, planes, metric) for values in parts]
        for values, of_values in zip(parts, lines, strict=True):
            _put_planes(values, 0, least, of_values, metric)
    present = [cp.ascontiguousarray(values[:, -1]).astype(cp.int32) if is_counted else None for values in parts]
    return [
        BitPlanes(
            of_values.reshape(-1, of_values.shape[-1]), counts, len(values), of_values.shape[1] - metric.missing, d
        )
        for values, of_values, counts in zip(parts, lines, present, strict=True)
    ]


def _empty_lines(n: int, d: int, planes: int, metric: Metric) -> Array:
    """Room for the planes of n rows: (words, planes and the one of what is present, pitch)."""
    return cp.empty((-(-d // WARP), planes + metric.missing, padded(n)), cp.uint32)


def _put_planes(values: Array, first: int, least: float, lines: Array, metric: Metric, d: int | None = None) -> None:
    """Write the planes of columns of values from feature `first` on, a multiple of `WARP`."""
    n, width = values.shape
    d = width - (metric.rows == "counted") if d is None else d
    of_columns, words = lines[first // WARP :], -(-d // WARP)
    arguments = values, np.int32(width), np.int32(d), np.int64(n), np.float64(least)
    sizes = np.int32(lines.shape[1] - metric.missing), np.int64(lines.shape[2])
    grid = -(-lines.shape[2] // THREADS), words
    launch_blocks(
        PLANES, "put_planes", grid, THREADS, *arguments, *sizes, of_columns, options=_options(metric, values.dtype)
    )


def _lines_of_ranks(parts: list[Array], d: int, metric: Metric) -> list[Array]:
    """The planes of the values' ranks among the distinct values of their column."""
    sizes = [len(values) for values in parts]
    ends, n = np.cumsum([0, *sizes]).tolist(), sum(sizes)
    lines = [_empty_lines(size, d, max(1, (n - 1).bit_length()), metric) for size in sizes]
    largest = 0
    for columns in equal_slices(slice(0, d), max(WARP, BLOCK // n // WARP * WARP)):
        ranks, last = _ranks(cp.concatenate([values[:, columns] for values in parts]).T)
        largest = max(largest, last)
        for start, end, of_values in zip(ends, ends[1:], lines, strict=False):
            _put_planes(cp.ascontiguousarray(ranks[:, start:end].T), columns.start, 0, of_values, metric, len(ranks))
    planes = max(1, largest.bit_length())
    return [cp.concatenate((part[:, :planes], part[:, part.shape[1] - metric.missing :]), axis=1) for part in lines]


def _ranks(columns: Array) -> tuple[Array, int]:
    """The ranks of each row's values among its distinct ones, float64, NaN where they are; and the largest rank."""
    columns = cp.ascontiguousarray(columns)
    order = columns.argsort(axis=1)  # NaN last
    ascending = cp.take_along_axis(columns, order, axis=1)
    is_next = (ascending[:, 1:] != ascending[:, :-1]) & (ascending[:, 1:] == ascending[:, 1:])
    rank = cp.zeros(columns.shape)
    cp.cumsum(is_next, axis=1, dtype=cp.float64, out=rank[:, 1:])
    ranks = cp.empty(columns.shape)
    ranks[cp.arange(len(columns))[:, None], order] = rank
    ranks[columns != columns] = cp.nan
    return ranks, int(rank.max())


def distance_type(metric: Metric, n_features: int) -> str:
    """The type in which the distances of all pairs are stored."""
    return "uint16" if metric.formula in ("hamming", "hiercc") and n_features < MAX_SHORT else "float64"


def put_distances(rows: BitPlanes, points: BitPlanes, metric: Metric, out: Array) -> None:
    """Compute the surrogate distances of rows, maybe the points, from all points: `out` (rows, points)."""
    check_arrays("uint32", rows.lines, points.lines)
    check_arrays("int32", rows.present, points.present)
    check_arrays(distance_type(metric, points.n_features), out)
    grid = points.lines.shape[1] // POINT_TILE, rows.lines.shape[1] // ROW_TILE
    of_rows, of_points = (
        (part.lines, part.present, np.int64(part.n), np.int64(part.lines.shape[1])) for part in (rows, points)
    )
    sizes = map(np.int32, (len(points.lines), points.planes, points.n_features))
    launch_blocks(
        PLANES, "put_distances", grid, THREADS, *of_rows, *of_points, *sizes, np.bool_(rows is points), out,
        options=_options(metric, distance=out.dtype),
    )  # fmt: skip


def put_least(
    matrix: Array, where: Any, task: SearchTask, part: slice, upper: Array, ids: Array, weights: Array
) -> None:
    """Write the lists of some of a task's rows, whose distances are the matrix's rows `where`, or in turn."""
    rows, core = task.rows[part], task.core
    group, (m, k) = task.groups(rows), ids.shape
    check_arrays("int32", where, rows, group, task.point_group, ids)
    check_arrays("float64", core, upper, weights)
    size, entries = list_entries(k)
    warps = max(1, min(LEAST_WARPS, MIN_SHARED_MEMORY // (12 * entries)))
    arguments = matrix, np.int32(matrix.shape[1]), where, rows, np.int32(m), group, task.point_group, core, upper
    launch_blocks(
        LEAST, "least_of_rows", (-(-m // warps),), warps * WARP, *arguments, np.int32(k), np.int32(size), ids, weights,
        options=(_distance_option(matrix.dtype),), shared_memory=12 * entries * warps,
    )  # fmt: skip


def widened(stored: Array) -> Array:
    """Stored distances as float64, as distance.cuh has it."""
    wide = stored.astype(cp.float64)
    return wide if stored.dtype == cp.float64 else cp.where(stored == MAX_SHORT, OVERFLOW, wide)


def _options(metric: Metric, values: Any = "float32", distance: Any = "uint16") -> tuple[str, ...]:
    return *metric.cuda_options, value_option(values), _distance_option(distance)


def _distance_option(distance: Any) -> str:
    return value_option(distance).replace("VALUE", "DISTANCE")
