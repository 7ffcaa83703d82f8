"""Search of codes and of bits on a GPU: every pair of rows is compared, and what that gives is stored.

    codes ──▶ bit planes ──▶ distances      ─┐
              planes.cu                      ├──▶ a matrix of all pairs ──▶ each row's least
    bits  ──────────────▶ common ones       ─┘                              least.cu
              bits.cu

A comparison takes one instruction for 32 features in one bit of their codes, or for many bits on tensor cores, and the
distance follows from the counts to the bit. So there is no filter: in families of profiles only the whole number of
different features tells which of two unrelated rows is nearer. Each pair is compared once for both its rows, and the
matrix serves all searches. If it does not fit into memory, rows are taken in parts, whose pairs with all points are
compared in each search; bits are left to a filter then.
"""

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.exact.cuda import MAX_LIST, MIN_SHARED_MEMORY, list_entries, lists_by_sorting
from rapids_slink.neighbors.matrix.bits import CommonBits, counts_in_16_bits
from rapids_slink.neighbors.matrix.planes import TILE, Codes, padded, stored_type
from rapids_slink.neighbors.slices import BLOCK, equal_slices
from rapids_slink.neighbors.task import SearchResult, SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import check_arrays, launch_blocks
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.memory import free_bytes
from rapids_slink.runtime.threads import with_progress

LEAST = "neighbors/matrix/least.cu"
WARP, LEAST_WARPS, THREADS = 32, 2, 256  # the warps of a block of `least_of_rows`
#: A matrix of all pairs is stored if it takes at most this, and at most this share of what is free.
MAX_MATRIX_BYTES, MATRIX_SHARE = 24 * 2**30, 1 / 2
#: Bytes of what is stored of some rows, where not all pairs are.
PART_BYTES = 2**30
PITCH = 8  # a row of the matrix has a multiple of this
#: Planes of values that are no small integers: their ranks among fewer than 2**20 rows.
USUAL_PLANES = 20
#: Bytes of a value while it is ranked, in columns of which 32 are ranked at least.
RANKING_BYTES = 48


class MatrixSearch:
    """Search among `values` (the points) for neighbours of `queries` (default: the same points).

    Parameters
    ----------
    values : (n, d) array
        As `rows.metric_rows` makes them for `metric`: words, or codes.
    device, report, queries, progress, metric
        As of a `BruteForceSearch`.
    """

    def __init__(
        self,
        values: Array,
        device: Device,
        report: Report,
        queries: Array = None,
        progress: bool = False,
        metric: Metric = EUCLIDEAN,
    ) -> None:
        self.report, self.progress, self.free_bytes = report, progress, free_bytes()
        kind = CommonBits if values.dtype == "uint64" else Codes
        self.pairs: Any = kind(values, values if queries is None else queries, metric)
        self.matrix: Any = None  # of all pairs, once it is made
        report.count("neighbors", filter=self.pairs.name)

    @staticmethod
    def serves_bits(words: Array) -> bool:
        """Whether to search these rows of bits: few enough that all counts are stored."""
        return counts_in_16_bits(words.shape[1]) and _is_stored(len(words), 2, free_bytes())

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Bytes of a search among n points of d features for the k neighbours of m of them, or of as many queries."""
        line = 4 * (USUAL_PLANES + metric.missing) * -(-d // 32)
        planes, lists = line * (padded(n) + (padded(m) if m != n else 0)), m * (12 * k + 8)
        ranking = RANKING_BYTES * max(32 * max(n, m), BLOCK) + planes
        itemsize = 8 if metric.filter == "codes" and stored_type(metric, d) == "float64" else 2
        matrix = itemsize * n * n if m == n and itemsize * n * n <= MAX_MATRIX_BYTES else PART_BYTES
        part = TILE * _row_bytes(n, k, itemsize, line)
        return MemoryEstimate(planes + max(ranking, lists), planes + lists, part, matrix)

    def find(self, task: SearchTask) -> SearchResult:
        """The neighbours of a task's rows."""
        m, k = task.rows.size, task.k
        ids, weights, upper = cp.empty((m, k), cp.int32), cp.empty((m, k)), task.bounds(cp)
        has_all = self._has_all_pairs(m)
        parts = equal_slices(slice(0, m), max(1, m) if has_all and k <= MAX_LIST else self._rows_at_once(k))
        for part in with_progress(parts, len(parts), task.progress(self.progress)):
            rows = task.rows[part]
            matrix, where = (self.matrix, rows) if has_all else (self._compared(rows), None)
            stored = matrix, np.int32(self.pairs.n), np.int64(matrix.shape[1]), where, rows
            if k <= MAX_LIST:
                self._put_least(stored, task, rows, upper[part], ids[part], weights[part])
                continue
            distances = cp.empty((rows.size, self.pairs.n))
            arguments = *stored, *self.pairs.ones, task.groups(rows), task.point_group, distances
            launch_blocks(LEAST, "distances_of_rows", rows.shape, THREADS, *arguments, options=self.pairs.options)
            top = lists_by_sorting(distances, rows, upper[part], k, task.core)
            ids[part], weights[part] = top.ids, top.weights
        stage = "connect" if task.per_group_minimum else "neighbors"
        self.report.count(stage, rows_certified=0, rows_redone=0, rows_scanned_exactly=m)
        return SearchResult(ids, weights, upper)

    def _put_least(
        self, stored: tuple, task: SearchTask, rows: Array, upper: Array, ids: Array, weights: Array
    ) -> None:
        """Write the lists of some of a task's rows."""
        (m, k), groups = ids.shape, (task.groups(rows), task.point_group)
        check_arrays("int32", rows, *groups, ids)
        check_arrays("float64", task.core, upper, weights)
        size, entries = list_entries(k)
        warps = max(1, min(LEAST_WARPS, MIN_SHARED_MEMORY // (12 * entries)))
        arguments = *stored, np.int32(m), *self.pairs.ones, *groups, task.core, upper, np.int32(k), np.int32(size)
        launch_blocks(
            LEAST, "least_of_rows", (-(-m // warps),), warps * WARP, *arguments, ids, weights,
            options=self.pairs.options, shared_memory=12 * entries * warps,
        )  # fmt: skip

    def _has_all_pairs(self, rows: int) -> bool:
        """Whether all pairs are stored. They are compared when all points look for neighbours among themselves."""
        n, itemsize = self.pairs.n, self.pairs.dtype.itemsize
        if (
            self.matrix is None
            and self.pairs.is_among_points
            and rows == n
            and _is_stored(n, itemsize, self.free_bytes)
        ):
            self.matrix = self._room(n)
            self.pairs.put(None, self.matrix)
        return self.matrix is not None

    def _compared(self, rows: Array) -> Array:
        """What is stored of some rows."""
        out = self._room(rows.size)
        self.pairs.put(rows, out)
        return out

    def _room(self, rows: int) -> Array:
        return cp.empty((rows, -(-self.pairs.n // PITCH) * PITCH), self.pairs.dtype)

    def _rows_at_once(self, k: int) -> int:
        a_row = _row_bytes(self.pairs.n, k, self.pairs.dtype.itemsize, self.pairs.row_bytes)
        rows = int(min(PART_BYTES, self.free_bytes * MATRIX_SHARE) / a_row)
        return max(TILE, rows // TILE * TILE)


def _is_stored(n: int, itemsize: int, free: float) -> bool:
    """Whether the matrix of all pairs of n points is."""
    return itemsize * n * (n + PITCH) <= min(MAX_MATRIX_BYTES, MATRIX_SHARE * free)


def _row_bytes(n: int, k: int, itemsize: int, taken: int) -> int:
    """Bytes of what is stored of a row, and of the row itself; for long lists all distances are sorted."""
    return n * (itemsize + (64 if k > MAX_LIST else 0)) + taken
