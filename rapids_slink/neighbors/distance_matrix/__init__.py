"""Search where all distances are given: each row of a square matrix is read once a task."""

from __future__ import annotations

from typing import Any

from rapids_slink.metrics import PRECOMPUTED, Metric
from rapids_slink.neighbors.slices import equal_slices
from rapids_slink.neighbors.task import SearchResult, SearchTask
from rapids_slink.report import Report
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.memory import free_bytes
from rapids_slink.runtime.threads import for_each_chunk, workers

CHUNK_ROWS = 2**14
LIST_BYTES = 64  # of a row's bounds, groups and places in chunks


class MatrixSearch:
    """Search among the columns of a symmetric matrix; see `BruteForceSearch`."""

    def __init__(
        self,
        values: Any,
        device: Device,
        report: Report,
        queries: Any = None,
        progress: bool = False,
        metric: Metric = PRECOMPUTED,
    ) -> None:
        self.matrix, self.device, self.progress = values, device, progress
        self.kernels = device.kernels("neighbors.distance_matrix")
        report.count("neighbors", filter="none: distances are given")

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Bytes of a search for the k neighbours of m of n rows."""
        lists = m * (12 * k + LIST_BYTES)
        chunk = device.kernels("neighbors.distance_matrix").row_bytes(n, k)
        return MemoryEstimate(lists, lists, chunk, CHUNK_ROWS * chunk)

    def find(self, task: SearchTask) -> SearchResult:
        """The neighbours of a task's rows."""
        xp, m = self.device.xp, task.rows.size
        upper, groups = task.bounds(xp), (task.row_group[task.rows], task.point_group)
        ids, weights = xp.full((m, task.k), -1, "int32"), xp.full((m, task.k), xp.inf)

        def search(at: slice) -> None:
            lists = ids[at], weights[at]
            self.kernels.scan(self.matrix, task.rows[at], (groups[0][at], groups[1]), upper[at], lists, task.core)

        bytes_a_row = workers(self.device) * self.kernels.row_bytes(len(self.matrix), task.k)
        size = CHUNK_ROWS if not bytes_a_row else int(max(1, min(CHUNK_ROWS, free_bytes() // bytes_a_row)))
        size = min(size, max(1, -(-m // workers(self.device))))
        for_each_chunk(self.device, search, equal_slices(slice(0, m), size), task.progress(self.progress))
        return SearchResult(ids, weights, upper)
