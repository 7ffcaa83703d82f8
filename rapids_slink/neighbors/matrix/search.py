"""Search of codes on a GPU: every distance is computed and stored.

    codes ──▶ bit planes ──▶ a matrix of distances ──▶ each row's least
              planes.cu                                least.cu

One instruction compares 32 features in one bit of their codes, and the distance follows from the counts to the bit. So
there is no filter: in families of profiles only the whole number of different features tells which of two unrelated
rows is nearer. Each pair is compared once for both its rows, and the matrix serves all searches. If it does not fit
into memory, rows are taken in parts, whose distances from all points are computed in each search.
"""

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.exact.cuda import MAX_LIST, list_entries, lists_by_sorting
from rapids_slink.neighbors.matrix.planes import TILE, bit_planes, distance_option, padded, put_distances, stored_type
from rapids_slink.neighbors.slices import BLOCK, equal_slices
from rapids_slink.neighbors.task import SearchResult, SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import THREADS, WARP, check_arrays, constant, launch_blocks, warps_that_fit
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.memory import MemoryEstimate, free_bytes
from rapids_slink.runtime.threads import with_progress

LEAST = "neighbors/matrix/least.cu"
LEAST_WARPS = constant(LEAST, "THREADS") // WARP  # of a block of `least_of_rows`
#: All distances are stored if they take at most this, and at most this share of what is free.
MAX_MATRIX_BYTES, MATRIX_SHARE = 24 * 2**30, 1 / 2
#: Bytes of the distances of some rows, where not all are stored.
PART_BYTES = 2**30
PITCH = 8  # a row of the matrix has a multiple of this
#: Planes of values that are no small integers: their ranks among fewer than 2**20 rows.
USUAL_PLANES = 20
#: Bytes of a value while it is ranked, in columns of which 32 are ranked at least.
RANKING_BYTES = 48


class MatrixSearch:
    """Search among `values` for neighbours of the same points, or of `queries`; see `BruteForceSearch`."""

    def __init__(
        self,
        values: Array,
        device: Device,
        report: Report,
        queries: Array = None,
        progress: bool = False,
        metric: Metric = EUCLIDEAN,
    ) -> None:
        self.report, self.progress, self.metric, self.free_bytes = report, progress, metric, free_bytes()
        self.points, *others = bit_planes([values] if queries is None else [values, queries], metric)
        self.queries = others[0] if others else self.points
        self.dtype = np.dtype(stored_type(metric, self.points.n_features))
        self.options = (distance_option(self.dtype),)
        self.matrix: Any = None  # of all distances, once they are computed
        report.count("neighbors", filter="bit planes")

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Bytes of a search among n points of d features for the k neighbours of m of them, or of as many queries."""
        line = 4 * (USUAL_PLANES + metric.missing) * -(-d // 32)
        planes, lists = line * (padded(n) + (padded(m) if m != n else 0)), m * (12 * k + 8)
        ranking = RANKING_BYTES * max(32 * max(n, m), BLOCK) + planes
        itemsize = np.dtype(stored_type(metric, d)).itemsize
        matrix = itemsize * n * n if m == n and itemsize * n * n <= MAX_MATRIX_BYTES else PART_BYTES
        part = TILE * _row_bytes(n, k, itemsize, line)
        return MemoryEstimate(planes + max(ranking, lists), planes + lists, part, matrix)

    def find(self, task: SearchTask) -> SearchResult:
        """The neighbours of a task's rows."""
        m, k = task.rows.size, task.k
        ids, weights, upper = cp.empty((m, k), cp.int32), cp.empty((m, k)), task.bounds(cp)
        has_all = self._has_all_distances(m)
        parts = equal_slices(slice(0, m), max(1, m) if has_all and k <= MAX_LIST else self._rows_at_once(k))
        for part in with_progress(parts, len(parts), task.progress(self.progress)):
            rows = task.rows[part]
            matrix, where = (self.matrix, rows) if has_all else (self._distances(rows), None)
            stored = matrix, np.int32(self.points.n), np.int64(matrix.shape[1]), where
            if k <= MAX_LIST:
                self._put_least(stored, task, rows, upper[part], ids[part], weights[part])
                continue
            distances = cp.empty((rows.size, self.points.n))
            arguments = *stored, task.groups(rows), task.point_group, distances
            launch_blocks(LEAST, "distances_of_rows", rows.shape, THREADS, *arguments, options=self.options)
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
        warps = warps_that_fit(LEAST_WARPS, 12 * entries)
        arguments = *stored, rows, np.int32(m), *groups, task.core, upper, np.int32(k), np.int32(size)
        launch_blocks(
            LEAST, "least_of_rows", (-(-m // warps),), warps * WARP, *arguments, ids, weights,
            options=self.options, shared_memory=12 * entries * warps,
        )  # fmt: skip

    def _has_all_distances(self, rows: int) -> bool:
        """Whether all are stored. They are computed when all points look for neighbours among themselves."""
        n = self.points.n
        fits = self.dtype.itemsize * n * (n + PITCH) <= min(MAX_MATRIX_BYTES, MATRIX_SHARE * self.free_bytes)
        if self.matrix is None and fits and self.queries is self.points and rows == n:
            self.matrix = self._room(n)
            put_distances(self.points, self.points, self.metric, self.matrix)
        return self.matrix is not None

    def _distances(self, rows: Array) -> Array:
        """The distances of some rows from all points."""
        out = self._room(rows.size)
        put_distances(self.queries.take(rows), self.points, self.metric, out)
        return out

    def _room(self, rows: int) -> Array:
        return cp.empty((rows, -(-self.points.n // PITCH) * PITCH), self.dtype)

    def _rows_at_once(self, k: int) -> int:
        a_row = _row_bytes(self.points.n, k, self.dtype.itemsize, 4 * len(self.points.lines))
        rows = int(min(PART_BYTES, self.free_bytes * MATRIX_SHARE) / a_row)
        return max(TILE, rows // TILE * TILE)


def _row_bytes(n: int, k: int, itemsize: int, line_bytes: int) -> int:
    """Bytes of a row's distances and of its planes; for long lists all distances are sorted."""
    return n * (itemsize + (64 if k > MAX_LIST else 0)) + line_bytes
