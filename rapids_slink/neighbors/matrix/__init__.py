"""Distances of codes on a GPU: each is computed, and stored in the smallest type that holds it.

    codes ──▶ bit planes ──▶ a matrix of distances ──▶ the tree, or each row's least
              planes.cu                                dense.cu      least.cu

One instruction compares 32 features in one bit of their codes, and the distance follows from the counts to the bit. So
there is no filter: in families of profiles only the whole number of different features tells which of two unrelated
rows is nearer. Each pair is compared once for both its rows, and the matrix serves all searches. If it does not fit
into memory, rows are taken in parts, whose distances from all points are computed in each search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric, Rows
from rapids_slink.neighbors.exact.cuda import MAX_LIST, list_entries, lists_by_sorting
from rapids_slink.neighbors.task import BLOCK_VALUES, ListSearch, SearchState, SearchTask, equal_slices
from rapids_slink.runtime.cuda import (
    WARP,
    c_name,
    constant,
    launch,
    launch_blocks,
    value_option,
    warps_that_fit,
)
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.memory import MemoryEstimate, free_bytes
from rapids_slink.runtime.threads import with_progress

PLANES = "neighbors/matrix/planes.cu"
PLANE_THREADS, TILE = constant(PLANES, "THREADS"), constant(PLANES, "ROW_TILE")
NARROW_TILE = constant(PLANES, "SIDE") * constant(PLANES, "FEW")  # points of a tile whose counts do not share words
#: Codes of integers that span no more than this are their differences from the least.
MAX_SPAN = 2.0**16
#: Distances of fewer features than this, all integers, are stored in 16 bits.
MAX_SHORT = 2**16


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
        """Return the planes of some rows, in the order of `rows`."""
        filled_up = cp.zeros(padded(rows.size), cp.int32)
        filled_up[: rows.size] = rows
        lines = cp.ascontiguousarray(cp.take(self.lines, filled_up, axis=1))
        present = None if self.present is None else self.present[rows]
        return BitPlanes(lines, present, rows.size, self.planes, self.n_features)


def padded(n: int) -> int:
    """Return the number of rows, filled up to whole tiles."""
    return -(-n // TILE) * TILE


def bit_planes(parts: list[Array], metric: Metric) -> list[BitPlanes]:
    """Return the planes of one or several arrays of rows, in which equal values of a feature have equal codes."""
    width, is_counted = parts[0].shape[1], metric.rows is Rows.COUNTED
    d = width - is_counted
    span = cp.array([np.inf, np.inf, 0.0])
    for values in parts:
        launch(
            PLANES, "find_span", len(values) * WARP, values, width, d, len(values), span,
            options=_options(metric, values.dtype),
        )  # fmt: skip
    least, negative, fraction = span.tolist()
    largest = max(-negative - least, 0.0)  # the largest code, 0 if there is no value
    if fraction or largest >= MAX_SPAN:
        lines = _lines_of_ranks(parts, d, metric)
    else:
        planes = max(1, int(largest).bit_length())
        lines = [_empty_lines(len(values), d, planes, metric) for values in parts]
        for values, value_lines in zip(parts, lines, strict=True):
            _put_planes(values, d, least, value_lines, metric)
    present = [cp.ascontiguousarray(values[:, -1]).astype(cp.int32) if is_counted else None for values in parts]
    planes = lines[0].shape[1] - metric.missing
    return [
        BitPlanes(part_lines.reshape(-1, part_lines.shape[2]), counts, len(values), planes, d)
        for values, part_lines, counts in zip(parts, lines, present, strict=True)
    ]


def _empty_lines(n: int, d: int, planes: int, metric: Metric) -> Array:
    """Allocate the planes of n rows, uint32: (words, planes + 1 if values may be missing, pitch)."""
    return cp.empty((-(-d // WARP), planes + metric.missing, padded(n)), cp.uint32)


def _put_planes(values: Array, d: int, least: float, lines: Array, metric: Metric) -> None:
    """Write the planes of the first d columns of the values, less `least`, into `lines`."""
    n, width = values.shape
    words, planes, pitch = -(-d // WARP), lines.shape[1] - metric.missing, lines.shape[2]
    grid = -(-pitch // PLANE_THREADS), words
    launch_blocks(
        PLANES, "put_planes", grid, PLANE_THREADS, values, width, d, n, least, planes, pitch, lines,
        options=_options(metric, values.dtype),
    )  # fmt: skip


def _lines_of_ranks(parts: list[Array], d: int, metric: Metric) -> list[Array]:
    """Return the planes of the values' ranks among the distinct values of their column, in all parts together."""
    sizes = [len(values) for values in parts]
    ends, n = np.cumsum([0, *sizes]).tolist(), sum(sizes)
    lines = [_empty_lines(size, d, max(1, (n - 1).bit_length()), metric) for size in sizes]
    largest = 0
    for columns in equal_slices(slice(0, d), max(WARP, BLOCK_VALUES // n // WARP * WARP)):
        ranks, last = _ranks(cp.concatenate([values[:, columns] for values in parts]).T)
        largest = max(largest, last)
        for start, end, part_lines in zip(ends, ends[1:], lines, strict=False):
            part = cp.ascontiguousarray(ranks[:, start:end].T)
            _put_planes(part, len(ranks), 0.0, part_lines[columns.start // WARP :], metric)
    planes = max(1, largest.bit_length())
    return [cp.concatenate((part[:, :planes], part[:, part.shape[1] - metric.missing :]), axis=1) for part in lines]


def _ranks(columns: Array) -> tuple[Array, int]:
    """Return the ranks of each row's values among its distinct ones, float64, NaN for NaN, and the largest rank."""
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


def stored_type(metric: Metric, n_features: int) -> Any:
    """Return the type in which the distances of all pairs are stored: the smallest that holds them."""
    return np.dtype("uint16" if metric.formula.is_whole and n_features < MAX_SHORT else "float64")


def distances_between(rows: BitPlanes, points: BitPlanes, metric: Metric) -> Array:
    """Return the surrogate distances of rows, maybe the points, from all points, in the smallest type."""
    out = cp.empty((rows.n, points.n), stored_type(metric, points.n_features))
    tile = TILE if out.dtype == cp.uint16 and not metric.missing else NARROW_TILE
    grid = points.lines.shape[1] // tile, rows.lines.shape[1] // TILE
    launch_blocks(
        PLANES, "put_distances", grid, PLANE_THREADS, rows.lines, rows.present, rows.n, rows.lines.shape[1],
        points.lines, points.present, points.n, points.lines.shape[1], len(points.lines), points.planes,
        points.n_features, rows is points, out, options=_options(metric, distance=out.dtype),
    )  # fmt: skip
    return out


def _options(metric: Metric, values: Any = "float32", distance: Any = "uint16") -> tuple[str, ...]:
    return *metric.cuda_options, value_option(values), f"-DDISTANCE={c_name(distance)}"


def all_distances(values: Array, metric: Metric) -> Array:
    """Return the surrogate distances of all pairs of rows, (n, n), in the smallest type."""
    (planes,) = bit_planes([values], metric)
    return distances_between(planes, planes, metric)


def fits(n: int, d: int, metric: Metric) -> bool:
    """Return whether the distances of all pairs of n points of d features fit into the memory that they may take."""
    return stored_type(metric, d).itemsize * n * n <= min(MAX_MATRIX_BYTES, MATRIX_SHARE * free_bytes())


def estimate_matrix(n: int, d: int, metric: Metric) -> MemoryEstimate:
    """Estimate the bytes of `all_distances`."""
    matrix, planes = stored_type(metric, d).itemsize * n * n, _line_bytes(d, metric) * padded(n)
    return MemoryEstimate(planes + max(matrix, RANKING_BYTES * max(32 * n, BLOCK_VALUES) + planes))


LEAST = "neighbors/matrix/least.cu"
LEAST_WARPS = constant(LEAST, "THREADS") // WARP  # the fewest warps of a block of `least_of_rows`
#: All distances are stored if they take at most this, and at most this share of what is free.
MAX_MATRIX_BYTES, MATRIX_SHARE = 24 * 2**30, 1 / 2
#: Bytes of the distances of some rows, where not all are stored.
PART_BYTES = 2**30
#: Planes of values that are no small integers: ranks among at most 2**20 rows take 20 bits.
USUAL_PLANES = 20
#: Bytes of a value while it is ranked; at least 32 columns are ranked together.
RANKING_BYTES = 48


class MatrixSearch(ListSearch):
    """A search by distances that are computed from bit planes; see `Search`."""

    name = "bit planes"  # for reports

    def __post_init__(self) -> None:
        metric, queries = self.metric, self.queries
        self.points, *others = bit_planes([self.values] if queries is None else [self.values, queries], metric)
        self.queries, self.values = others[0] if others else self.points, None  # the planes take their place
        n, d = self.points.n, self.points.n_features
        self.fits, self.room = queries is None and fits(n, d, metric), min(PART_BYTES, free_bytes() * MATRIX_SHARE)
        self.matrix: Any = None  # all distances, once they are computed

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Estimate the bytes of a search among n points of d features for the k neighbours of m points or queries."""
        line = _line_bytes(d, metric)
        planes, lists = line * (padded(n) + (padded(m) if m != n else 0)), m * (12 * k + 8)
        ranking = RANKING_BYTES * max(32 * max(n, m), BLOCK_VALUES) + planes
        itemsize = stored_type(metric, d).itemsize
        matrix = itemsize * n * n if m == n and itemsize * n * n <= MAX_MATRIX_BYTES else PART_BYTES
        part = TILE * _row_bytes(n, k, itemsize, line)
        return MemoryEstimate(planes + lists, max(part, ranking), matrix)

    def settle(self, task: SearchTask, reached: SearchState) -> tuple[int, int, int]:
        """Fill the lists of a task's rows: see `ListSearch.settle`."""
        m, parts = task.rows.size, equal_slices(slice(0, task.rows.size), self._rows_at_once(task.k))
        for part in with_progress(parts, len(parts), task.progress(self.progress)):
            rows, (upper, top) = task.rows[part], reached.at(part)
            matrix, groups = self._distances(rows, m), (task.groups(rows), task.point_group)
            put_least(matrix, rows, groups, task.core, upper, top.ids, top.weights)
        return 0, 0, m

    def _distances(self, rows: Array, wanted: int) -> Array:
        """Return the distances of some rows from all points, (rows, n).

        If the task has n rows, `wanted`, and the matrix fits, the distances of all points are computed once and kept.
        """
        if self.matrix is None and self.fits and wanted == self.points.n:
            self.matrix = distances_between(self.points, self.points, self.metric)
        if self.matrix is None:
            return distances_between(self.queries.take(rows), self.points, self.metric)
        return cp.take(self.matrix, rows, axis=0)

    def _rows_at_once(self, k: int) -> int:
        itemsize = stored_type(self.metric, self.points.n_features).itemsize
        rows = int(self.room / _row_bytes(self.points.n, k, itemsize, 4 * len(self.points.lines)))
        return max(TILE, rows // TILE * TILE)


def put_least(
    matrix: Array, rows: Array, groups: tuple[Array, Array], core: Array, upper: Array, ids: Array, weights: Array
) -> None:
    """Write the lists of some rows, `ids` and `weights`, by the rows' distances from all points."""
    (m, k), (row_group, point_group) = ids.shape, groups
    if k > MAX_LIST:
        top = lists_by_sorting(matrix.astype(cp.float64), rows, groups, upper, k, core)
        ids[:], weights[:] = top.ids, top.weights
        return
    size, entries = list_entries(k)
    warps = warps_that_fit(LEAST_WARPS, 12 * entries)
    launch_blocks(
        LEAST, "least_of_rows", (-(-m // warps),), warps * WARP, matrix, matrix.shape[1], rows, m, row_group,
        point_group, core, upper, k, size, ids, weights, options=(value_option(matrix.dtype),),
        shared_memory=12 * entries * warps,
    )  # fmt: skip


def _line_bytes(d: int, metric: Metric) -> int:
    """Return the bytes of the planes of a row of d features."""
    return 4 * (USUAL_PLANES + metric.missing) * -(-d // WARP)


def _row_bytes(n: int, k: int, itemsize: int, line_bytes: int) -> int:
    """Return the bytes of a row's distances and of its planes; for long lists all distances are sorted."""
    return n * (itemsize + (64 if k > MAX_LIST else 0)) + line_bytes
