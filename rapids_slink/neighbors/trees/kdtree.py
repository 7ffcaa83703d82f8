"""Search in few dimensions on the CPU, by a k-d tree."""

import numpy as np

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.exact.cpu import NO_CORE, drop_above_bound
from rapids_slink.neighbors.task import SearchResult, SearchTask
from rapids_slink.neighbors.trees.query import Excluded, Queries, Reached, locate, query
from rapids_slink.neighbors.trees.tree import build, depth_of, groups_of_nodes, least_of_nodes
from rapids_slink.ordering import stable_order
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.memory import MemoryEstimate
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

MIN_CHUNK, MAX_CHUNK = 256, 4096  # rows that a thread takes at a time


class TreeSearch:
    """Search among `values` for neighbours of the same points, or of `queries`; see `BruteForceSearch`."""

    def __init__(
        self,
        values: np.ndarray,
        device: Device,
        report: Report,
        queries: np.ndarray | None = None,
        progress: bool = False,
        metric: Metric = EUCLIDEAN,
    ) -> None:
        self.metric, self.tree = metric, build(values)
        self.queries, self.progress = queries, progress
        report.count("neighbors", filter="k-d tree")

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Bytes of a search among n points of d features, and for the k neighbours of m of them or of as many queries.

        As `build` and `find` take them, each a sum over points, nodes or rows.
        """
        nodes = 2 ** (depth_of(n) + 1)
        tree = n * (8 * d + 8) + nodes * (16 * d + 20)
        groups = n * 4 + nodes * 8
        lists = m * (12 * k + 8)
        return MemoryEstimate(tree + groups + lists + m * (8 * d + 48), tree + lists)

    def find(self, task: SearchTask) -> SearchResult:
        """The neighbours of a task's rows."""
        tree, m = self.tree, task.rows.size
        group = task.point_group[tree.order]
        core = NO_CORE if task.core is None else task.core[tree.order]
        node_core = NO_CORE if task.core is None else least_of_nodes(tree.first, core)
        excluded = Excluded(group, groups_of_nodes(tree.first, group), core, node_core)
        minima = np.full(task.row_group.size if task.per_group_minimum else 0, np.inf)
        ids, weights = np.empty((m, task.k), np.int32), np.empty((m, task.k))
        reached = Reached(task.bounds(np), minima, ids, weights)
        queries = self._queries(task)

        def search(at: slice) -> None:
            some = queries._replace(column=queries.column[at], start=queries.start[at], rows=queries.rows[at])
            query(self.metric.cpu_formula, tree, some, excluded, reached)

        for_each_chunk(CPU, search, chunks_for_cores(m, MIN_CHUNK, MAX_CHUNK), task.progress(self.progress))
        if task.per_group_minimum:
            drop_above_bound(ids, weights, reached.upper)
        return SearchResult(ids, weights, reached.upper)

    def _queries(self, task: SearchTask) -> Queries:
        """The task's rows in the order of the tree's leaves, so that consecutive ones visit the same nodes."""
        tree, group = self.tree, task.row_group[task.rows]
        if self.queries is None:
            row_at: np.ndarray = np.full(tree.order.size, -1, np.int32)  # by position: which of the task's rows
            row_at[tree.position[task.rows]] = np.arange(task.rows.size, dtype=np.int32)
            start = np.flatnonzero(row_at >= 0)
            return Queries(tree.columns, start, start, row_at[start], group)
        points = np.ascontiguousarray(self.queries[task.rows].T, np.float64)
        start = locate(self.metric.cpu_formula, points, tree.low, tree.high, tree.first)
        rows = stable_order(start, np)
        return Queries(points, rows, start[rows], rows.astype(np.int32), group)
