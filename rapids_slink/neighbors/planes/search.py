"""Search among rows of codes, on a GPU: every distance is computed, by bit planes, and stored.

    codes ──▶ bit planes ──▶ a matrix of distances ──▶ each row's least
              planes.cu                                least.cu

One instruction compares 32 features in one bit of their codes, so a filter that leaves many pairs to be compared would
save no time. In families of profiles nothing but the whole count tells which of two unrelated rows is nearer. If all
distances fit into memory, each pair is compared once for both its rows, and the matrix serves all searches. Otherwise
rows are taken in parts, whose distances from all points are computed in each search.
"""

from typing import Any

import cupy as cp

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.exact.cuda import MAX_LIST, lists_by_sorting
from rapids_slink.neighbors.planes.planes import (
    ROW_TILE,
    bit_planes,
    distance_type,
    padded,
    put_distances,
    put_least,
    widened,
)
from rapids_slink.neighbors.slices import BLOCK, equal_slices
from rapids_slink.neighbors.task import SearchResult, SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.memory import free_bytes
from rapids_slink.runtime.threads import with_progress

#: A matrix of all distances is kept if it takes at most this, and at most this share of what is free.
MAX_MATRIX_BYTES, MATRIX_SHARE = 24 * 2**30, 1 / 2
#: Bytes of the distances of some rows to all points, where not all are kept.
PART_BYTES = 2**30
#: Planes of values that are no small integers: their ranks among fewer than 2**20 rows.
USUAL_PLANES = 20
#: Bytes of a value while it is ranked, in columns of which 32 are ranked at least.
RANKING_BYTES = 48


class PlaneSearch:
    """Search among `values` (the points) for neighbours of `queries` (default: the same points).

    Parameters
    ----------
    values : (n, d) array
        As `rows.metric_rows` makes them for `metric`, whose filter is "codes".
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
        self.report, self.progress, self.metric = report, progress, metric
        parts = [values] if queries is None or queries is values else [values, queries]
        planes = bit_planes(parts, metric)
        self.points, self.queries = planes[0], planes[-1]
        self.dtype = distance_type(metric, self.points.n_features)
        self.free_bytes = free_bytes()
        self.matrix: Any = None  # of all distances, once it is made
        report.count("neighbors", filter="bit planes")

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Bytes of a search among n points of d features for the k neighbours of m of them, or of as many queries."""
        line = 4 * (USUAL_PLANES + metric.missing) * -(-d // 32)
        planes, lists = line * (padded(n) + (padded(m) if m != n else 0)), m * (12 * k + 8)
        ranking = RANKING_BYTES * max(32 * max(n, m), BLOCK) + planes
        itemsize = 2 if distance_type(metric, d) == "uint16" else 8
        matrix = itemsize * n * n if m == n and itemsize * n * n <= MAX_MATRIX_BYTES else PART_BYTES
        return MemoryEstimate(
            planes + max(ranking, lists), planes + lists, _row_bytes(n, k, itemsize, line) * ROW_TILE, matrix
        )

    def find(self, task: SearchTask) -> SearchResult:
        """The neighbours of a task's rows."""
        m, k = task.rows.size, task.k
        ids, weights, upper = cp.empty((m, k), cp.int32), cp.empty((m, k)), task.bounds(cp)
        whole = self._has_matrix(task)
        parts = equal_slices(slice(0, m), max(1, m) if whole and k <= MAX_LIST else self._rows_at_once(k))
        for part in with_progress(parts, len(parts), task.progress(self.progress)):
            rows = task.rows[part]
            distances, where = (self.matrix, rows) if whole else (self._distances(rows), None)
            if k <= MAX_LIST:
                put_least(distances, where, task, part, upper[part], ids[part], weights[part])
                continue
            wide = widened(distances if where is None else distances[where])
            wide[task.groups(rows)[:, None] == task.point_group] = cp.inf
            top = lists_by_sorting(wide, rows, upper[part], k, task.core)
            ids[part], weights[part] = top.ids, top.weights
        stage = "connect" if task.per_group_minimum else "neighbors"
        self.report.count(stage, rows_certified=0, rows_redone=0, rows_scanned_exactly=m)
        return SearchResult(ids, weights, upper)

    def _has_matrix(self, task: SearchTask) -> bool:
        """Whether all distances are stored. They are computed when all points look for neighbours among themselves."""
        n, itemsize = self.points.n, cp.dtype(self.dtype).itemsize
        fits = itemsize * n * n <= min(MAX_MATRIX_BYTES, MATRIX_SHARE * self.free_bytes)
        if self.matrix is None and fits and self.queries is self.points and task.rows.size == n:
            self.matrix = cp.empty((n, n), self.dtype)
            put_distances(self.points, self.points, self.metric, self.matrix)
        return self.matrix is not None

    def _distances(self, rows: Array) -> Array:
        """The distances of some rows from all points."""
        out = cp.empty((rows.size, self.points.n), self.dtype)
        put_distances(self.queries.take(rows), self.points, self.metric, out)
        return out

    def _rows_at_once(self, k: int) -> int:
        n, itemsize = self.points.n, cp.dtype(self.dtype).itemsize
        a_row = _row_bytes(n, k, itemsize, 4 * len(self.points.lines))
        rows = int(min(PART_BYTES, self.free_bytes * MATRIX_SHARE) / a_row)
        return max(ROW_TILE, rows // ROW_TILE * ROW_TILE)


def _row_bytes(n: int, k: int, itemsize: int, line_bytes: int) -> int:
    """Bytes of a row's distances from all points and of its planes; for long lists all distances are sorted."""
    return n * (itemsize + (64 if k > MAX_LIST else 0)) + line_bytes
