"""Rows of codes as bit planes, and the distances of all pairs by them: launchers of `planes.cu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.slices import BLOCK, equal_slices
from rapids_slink.runtime.cuda import WARP, c_name, check_arrays, constant, launch, launch_blocks, value_option
from rapids_slink.runtime.device import Array

PLANES = "neighbors/matrix/planes.cu"
THREADS, TILE = constant(PLANES, "THREADS"), constant(PLANES, "ROW_TILE")
NARROW_TILE = constant(PLANES, "SIDE") * constant(PLANES, "FEW")  # points of a tile whose counts do not share words
#: Codes of integers that span no more than this are their differences from the least.
MAX_SPAN = 2.0**16
#: Distances of fewer features than this, all integers, are stored in 16 bits; see stored.cuh.
MAX_SHORT = 2**16 - 1


@dataclass(frozen=True)
class BitPlanes:
    """Rows as their planes."""

    #: (words * (planes + missing), pitch) uint32, word by word; `pitch` is the number of rows, filled up to whole tiles
    lines: Array
    present: Any  # (n,) int32, optional: the number of features that a row has, if the metric asks for it
    n: int
    planes: int
    n_features: int

    def take(self, rows: Array) -> BitPlanes:
        """Some rows."""
        filled_up = cp.zeros(padded(rows.size), cp.int32)
        filled_up[: rows.size] = rows
        lines = cp.ascontiguousarray(cp.take(self.lines, filled_up, axis=1))
        present = None if self.present is None else self.present[rows]
        return BitPlanes(lines, present, rows.size, self.planes, self.n_features)


def padded(n: int) -> int:
    """The number of rows, filled up to whole tiles."""
    return -(-n // TILE) * TILE


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
            _put_planes(values, d, least, of_values, metric)
    present = [cp.ascontiguousarray(values[:, -1]).astype(cp.int32) if is_counted else None for values in parts]
    planes = lines[0].shape[1] - metric.missing
    return [
        BitPlanes(of_part.reshape(-1, of_part.shape[2]), counts, len(values), planes, d)
        for values, of_part, counts in zip(parts, lines, present, strict=True)
    ]


def _empty_lines(n: int, d: int, planes: int, metric: Metric) -> Array:
    """Room for the planes of n rows: (words, planes and the one of what is present, pitch)."""
    return cp.empty((-(-d // WARP), planes + metric.missing, padded(n)), cp.uint32)


def _put_planes(values: Array, d: int, least: float, lines: Array, metric: Metric) -> None:
    """Write the planes of the first d columns of the values."""
    n, width = values.shape
    words, planes, pitch = -(-d // WARP), lines.shape[1] - metric.missing, lines.shape[2]
    sizes = np.int32(width), np.int32(d), np.int64(n), np.float64(least), np.int32(planes), np.int64(pitch)
    grid = -(-pitch // THREADS), words
    launch_blocks(PLANES, "put_planes", grid, THREADS, values, *sizes, lines, options=_options(metric, values.dtype))


def _lines_of_ranks(parts: list[Array], d: int, metric: Metric) -> list[Array]:
    """The planes of the values' ranks among the distinct values of their column."""
    sizes = [len(values) for values in parts]
    ends, n = np.cumsum([0, *sizes]).tolist(), sum(sizes)
    lines = [_empty_lines(size, d, max(1, (n - 1).bit_length()), metric) for size in sizes]
    largest = 0
    for columns in equal_slices(slice(0, d), max(WARP, BLOCK // n // WARP * WARP)):
        ranks, last = _ranks(cp.concatenate([values[:, columns] for values in parts]).T)
        largest = max(largest, last)
        for start, end, of_part in zip(ends, ends[1:], lines, strict=False):
            part = cp.ascontiguousarray(ranks[:, start:end].T)
            _put_planes(part, len(ranks), 0.0, of_part[columns.start // WARP :], metric)
    planes = max(1, largest.bit_length())
    return [cp.concatenate((part[:, :planes], part[:, part.shape[1] - metric.missing :]), axis=1) for part in lines]


def _ranks(columns: Array) -> tuple[Array, int]:
    """The ranks of each row's values among its distinct ones, float64, NaN where they are; and the largest rank."""
    columns = cp.ascontiguousarray(columns)
    order = columns.argsort(axis=1)  # NaN last
    ascending = cp.take_along_axis(columns, order, axis=1)
    is_next = (ascending[:, 1:] != ascending[:, :-1]) & (ascending[:, 1:] == ascending[:, 1:])
    rank = cp.zeros(columns.shape)
    rank[:, 1:] = cp.cumsum(is_next, axis=1)
    ranks = cp.empty(columns.shape)
    ranks[cp.arange(len(columns))[:, None], order] = rank
    ranks[columns != columns] = cp.nan
    return ranks, int(rank.max())


def stored_type(metric: Metric, n_features: int) -> str:
    """The type in which the distances of all pairs are stored."""
    return "uint16" if metric.formula in ("hamming", "hiercc") and n_features < MAX_SHORT else "float64"


def put_distances(rows: BitPlanes, points: BitPlanes, metric: Metric, out: Array) -> None:
    """Compute the surrogate distances of rows, maybe the points, from all points: `out` (rows, pitch)."""
    check_arrays("uint32", rows.lines, points.lines)
    check_arrays("int32", rows.present, points.present)
    check_arrays(stored_type(metric, points.n_features), out)
    tile = TILE if out.dtype == cp.uint16 and not metric.missing else NARROW_TILE
    grid = points.lines.shape[1] // tile, rows.lines.shape[1] // TILE
    of_rows, of_points = (
        (part.lines, part.present, np.int64(part.n), np.int64(part.lines.shape[1])) for part in (rows, points)
    )
    sizes = map(np.int32, (len(points.lines), points.planes, points.n_features))
    launch_blocks(
        PLANES, "put_distances", grid, THREADS, *of_rows, *of_points, *sizes, np.bool_(rows is points),
        np.int64(out.shape[1]), out, options=_options(metric, distance=out.dtype),
    )  # fmt: skip


def _options(metric: Metric, values: Any = "float32", distance: Any = "uint16") -> tuple[str, ...]:
    return *metric.cuda_options, value_option(values), distance_option(distance)


def distance_option(distance: Any) -> str:
    """The compiler's option that tells a source the type of the matrix."""
    return f"-DDISTANCE={c_name(distance)}"
