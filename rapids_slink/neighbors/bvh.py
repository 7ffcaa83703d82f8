"""All-pairs search in few dimensions on the GPU: launchers of `bvh.cu`, and the hierarchy it walks."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.device import Device, c_name, check_arrays, cuda_kernel
from rapids_slink.memory import Need, in_turn
from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.contract import Found, Task, drop_late
from rapids_slink.neighbors.direct import all_pairs_search
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.report import Report

LEAF = 8  # points, as in bvh.cu
LONGEST_LIST = 32  # kept in registers and local memory; tiles serve longer ones
THREADS = 128


class BoxSearch:
    """Search among `values` for neighbours of the same points, or of `queries`; see `tiles.TileSearch`."""

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
        check_arrays(values.dtype, values, *([] if queries is None else [queries]))
        n = values.shape[0]
        self.order = cp.argsort(self._morton_codes()).astype(cp.int32)
        self.at = cp.empty_like(self.order)
        self.at[self.order] = cp.arange(n, dtype=cp.int32)
        self.points = values[self.order]
        self.leaves = _leaves(n)
        boxes = (2 * self.leaves - 1, values.shape[1])
        self.low, self.high = cp.empty(boxes, values.dtype), cp.empty(boxes, values.dtype)
        self.least = cp.empty(boxes[0], cp.int32)
        self._level_by_level("bound_nodes", (self.points, self.order), (self.low, self.high, self.least))
        self.core: Any = None  # of the last task that had cores; the same along the curve and of the nodes
        self.cores: tuple[Any, Any] = (None, None)
        report.count("neighbors", filter="bounding volume hierarchy")

    @staticmethod
    def need(n: int, m: int, d: int, k: int, itemsize: int, device: Device) -> Need:
        """As of a `kdtree.TreeSearch`."""
        if k > LONGEST_LIST:
            return in_turn(BoxSearch.need(n, m, d, 1, itemsize, device), TileSearch.need(n, m, d, k, itemsize, device))
        nodes = 2 * _leaves(n)
        tree = n * (d * itemsize + 8) + nodes * (2 * d * itemsize + 4)
        lists = m * (12 * k + 8)
        return Need(tree + n * 28 + nodes * 4 + lists + m * 36, kept=tree + lists)

    def find(self, task: Task) -> Found:
        """The neighbours of a task's rows."""
        m, k = task.rows.size, task.k
        if k > LONGEST_LIST:
            kind = all_pairs_search(self.metric)
            search = kind(self.values, self.device, self.report, self.queries, self.progress, metric=self.metric)
            return search.find(task)
        ids, weights = cp.empty((m, k), cp.int32), cp.empty((m, k))
        upper = task.bounds(cp)
        if not m:
            return Found(ids, weights, upper)
        group = task.column_group[self.order]
        null = np.uintp(0)
        shared_group = best = null
        if task.shared:  # otherwise no two points are of one group, or no group holds a point and a query
            shared_group = cp.empty(2 * self.leaves - 1, cp.int32)
            self._level_by_level("group_nodes", (group,), (shared_group,))
            best = cp.full(task.row_group.size, cp.inf)
        core, least_core = (null, null) if task.core is None else self._cores(task.core)
        start = null if self.queries is not None else self.at[task.rows]
        # Queries that are neighbours on the curve walk the same nodes: they should be neighbours in a warp.
        queue = cp.arange(m) if self.queries is not None else cp.argsort(start)
        queries = self.values if self.queries is None else self.queries
        check_arrays("int32", task.rows, task.row_group, group)
        check_arrays("float64", upper)
        self._launch(
            "search", m,
            (queries, task.rows, np.int64(m), start, task.row_group, self.points, self.order,
             np.int64(self.values.shape[0]), group, np.int64(self.leaves), self.low, self.high, self.least,
             shared_group, core, least_core, queue.astype(cp.int32), upper, best, ids, weights),
            k,
        )  # fmt: skip
        if task.shared:
            drop_late(ids, weights, upper, cp)
        return Found(ids, weights, upper)

    def _cores(self, core: Any) -> tuple[Any, Any]:
        """The points' cores along the curve, and the least of each node."""
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

    def _launch(self, name: str, jobs: int, arguments: tuple[Any, ...], k: int = 1) -> None:
        options = (
            f"-DVALUE={c_name(self.values.dtype)}",
            f"-DFEATURES={self.values.shape[1]}",
            f"-DLIST={k}",
            *self.metric.options,
        )
        cuda_kernel("neighbors/bvh.cu", name, *options)((-(-jobs // THREADS),), (THREADS,), arguments)


def _leaves(n: int) -> int:
    """How many leaves the complete tree of n points has."""
    return 1 << max(0, (-(-n // LEAF) - 1).bit_length())
