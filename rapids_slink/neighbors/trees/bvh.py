"""Search in few dimensions on the GPU: launchers of `bvh.cu`, and the bounding volume hierarchy that it visits."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.task import SearchResult, SearchTask, drop_above_bound
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import check_arrays, launch, value_option
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate, sequential

SOURCE = "neighbors/trees/bvh.cu"
LEAF = 8  # points, as in bvh.cu
#: Lengths of lists that are compiled; longer ones than the last are left to brute force.
LIST_SIZES = (1, 8, 16, 32, 64)


class BoxSearch:
    """Search among `values` for neighbours of the same points, or of `queries`; see `BruteForceSearch`."""

    def __init__(
        self,
        values: Any,
        device: Device,
        report: Report,
        queries: Any = None,
        progress: bool = False,
        metric: Metric = EUCLIDEAN,
    ) -> None:
        self.metric = metric
        self.values, self.device, self.report, self.queries, self.progress = values, device, report, queries, progress
        check_arrays(values.dtype, values, queries)
        n = values.shape[0]
        self.order = cp.argsort(self._morton_codes()).astype(cp.int32)
        self.position = cp.empty_like(self.order)
        self.position[self.order] = cp.arange(n, dtype=cp.int32)
        self.points = values[self.order]
        self.leaves = _leaves(n)
        boxes = (2 * self.leaves - 1, values.shape[1])
        self.low, self.high = cp.empty(boxes, values.dtype), cp.empty(boxes, values.dtype)
        self.least = cp.empty(boxes[0], cp.int32)
        self._level_by_level("bound_nodes", (self.points, self.order), (self.low, self.high, self.least))
        self.core: Any = None  # of the last task that had core distances; the same along the curve and of the nodes
        self.cores: tuple[Any, Any] = (None, None)
        report.count("neighbors", filter="bounding volume hierarchy")

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Bytes of a search among n points of d features for the k neighbours of m of them, or of as many queries."""
        if k > LIST_SIZES[-1]:
            first = BoxSearch.estimate(n, m, d, 1, itemsize, device, metric)
            return sequential(first, BruteForceSearch.estimate(n, m, d, k, itemsize, device, metric))
        size = next(size for size in LIST_SIZES if size >= k)
        nodes = 2 * _leaves(n)
        tree = n * (d * itemsize + 8) + nodes * (2 * d * itemsize + 4)
        lists = m * (12 * size + 8)
        return MemoryEstimate(tree + n * 28 + nodes * 4 + lists + m * 36, tree + lists)

    def find(self, task: SearchTask) -> SearchResult:
        """The neighbours of a task's rows."""
        m, k = task.rows.size, task.k
        if k > LIST_SIZES[-1]:
            metric, progress = self.metric, self.progress
            search = BruteForceSearch(self.values, self.device, self.report, self.queries, progress, metric=metric)
            return search.find(task)
        size = next(size for size in LIST_SIZES if size >= k)
        ids, weights, upper = cp.empty((m, size), cp.int32), cp.empty((m, size)), task.bounds(cp)
        if not m:
            return SearchResult(ids[:, :k], weights[:, :k], upper)
        group = task.point_group[self.order]
        node_group = minima = None
        if task.per_group_minimum:  # otherwise no two points are of one group, or no group holds a point and a query
            node_group = cp.empty(2 * self.leaves - 1, cp.int32)
            self._level_by_level("group_nodes", (group,), (node_group,))
            minima = cp.full(task.row_group.size, cp.inf)
        core, least_core = (None, None) if task.core is None else self._cores(task.core)
        start = None if self.queries is not None else self.position[task.rows]
        # Queries that are neighbours on the curve visit the same nodes: they should be neighbours in a warp.
        queue = cp.arange(m) if self.queries is not None else cp.argsort(start)
        queries = self.values if self.queries is None else self.queries
        check_arrays("int32", task.rows, task.row_group, group)
        check_arrays("float64", upper)
        self._launch(
            "search", m,
            (queries, task.rows, np.int64(m), start, task.row_group, self.points, self.order,
             np.int64(self.values.shape[0]), group, np.int64(self.leaves), self.low, self.high, self.least,
             node_group, core, least_core, queue.astype(cp.int32), upper, minima, ids, weights),
            size,
        )  # fmt: skip
        ids, weights = (cp.ascontiguousarray(part[:, :k]) for part in (ids, weights))
        if task.per_group_minimum:
            drop_above_bound(ids, weights, upper, cp)
        return SearchResult(ids, weights, upper)

    def _cores(self, core: Any) -> tuple[Any, Any]:
        """The points' core distances along the curve, and the least of each node."""
        if core is not self.core:
            check_arrays("float64", core)
            along, least = core[self.order], cp.empty(2 * self.leaves - 1)
            self._level_by_level("core_nodes", (along,), (least,))
            self.core, self.cores = core, (along, least)
        return self.cores

    def _morton_codes(self) -> Any:
        n, d = self.values.shape
        bits = min(21, 63 // d)
        columns = cp.ascontiguousarray(self.values.T)  # CuPy reduces along a long axis of rows slowly
        low = columns.min(axis=1).astype(cp.float64)
        span = columns.max(axis=1).astype(cp.float64) - low
        scale = cp.where(span > 0, 2.0**bits / cp.where(span > 0, span, 1.0), 0.0)
        codes = cp.empty(n, cp.uint64)
        self._launch("morton_codes", n, (self.values, np.int64(n), low, scale, np.int32(bits), codes))
        return codes

    def _level_by_level(self, kernel: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        """Fill arrays over the nodes from the leaves up."""
        n, first = np.int64(self.values.shape[0]), self.leaves - 1
        while True:
            self._launch(kernel, first + 1, (*inputs, n, np.int64(first), np.int64(self.leaves), *outputs))
            if first == 0:
                return
            first = (first - 1) // 2

    def _launch(self, name: str, jobs: int, arguments: tuple[Any, ...], size: int = 1) -> None:
        features = self.values.shape[1]
        options = value_option(self.values.dtype), f"-DFEATURES={features}", f"-DLIST={size}", *self.metric.cuda_options
        launch(SOURCE, name, jobs, *arguments, options=options)


def _leaves(n: int) -> int:
    """How many leaves the complete tree of n points has."""
    return 1 << max(0, (-(-n // LEAF) - 1).bit_length())
