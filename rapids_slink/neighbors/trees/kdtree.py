"""Search in few dimensions on the CPU, by a k-d tree.

The rows that start in one leaf, `LEAF` at most, search together, in vector instructions, one row a lane: they step up
from their leaf, and at each step search the sibling's subtree, nearer child first, as far as any of them has to.

`formulas.box_to_box` is a lower bound of the surrogate distances between points of two boxes.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.exact.cpu import NO_CORE, comes_before_last, insert, reachability
from rapids_slink.neighbors.exact.formulas import box_to_box, to_boxes, to_points
from rapids_slink.neighbors.slices import equal_slices
from rapids_slink.neighbors.task import SearchResult, SearchTask, drop_above_bound
from rapids_slink.neighbors.trees.tree import LEAF, build, depth_of, least_of_nodes, touched_share
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.threads import for_each_chunk

CHUNK = 4096
ANY_ID = np.iinfo(np.int32).max


class Queries(NamedTuple):
    """Rows that search together: of (m,) arrays, but for the points.

    Attributes
    ----------
    points : (d, m') float64 array
        Their features: those of row i are column column[i].
    column : int array
    start : int array
        Near which position of the tree each begins, ascending.
    rows : int array
        Which of the task's rows each is.
    group : int32 array
        By the task's rows, their groups.
    """

    points: np.ndarray
    column: np.ndarray
    start: np.ndarray
    rows: np.ndarray
    group: np.ndarray


class Excluded(NamedTuple):
    """What a search passes over: `group` and `core` by position, `node_group` and `node_core` by node.

    A node's group is the one that all its points share, or -1; its core distance the least of its points'.
    """

    group: np.ndarray
    node_group: np.ndarray
    core: np.ndarray
    node_core: np.ndarray


class Reached(NamedTuple):
    """What the rows have reached: bounds, the least distance found in each group (or nothing), and lists."""

    upper: np.ndarray
    minima: np.ndarray
    ids: np.ndarray
    weights: np.ndarray


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

    @cached_property
    def touched_share(self) -> float:
        """`tree.touched_share`."""
        return touched_share(self.tree, self.metric)

    def find(self, task: SearchTask) -> SearchResult:
        """The neighbours of a task's rows."""
        tree, m = self.tree, task.rows.size
        group = task.point_group[tree.order]
        core = NO_CORE if task.core is None else task.core[tree.order]
        node_core = NO_CORE if task.core is None else least_of_nodes(tree.first, tree.last, core)
        excluded = Excluded(group, _node_groups(tree.first, tree.last, group), core, node_core)
        minima = np.full(task.row_group.size if task.per_group_minimum else 0, np.inf)
        ids, weights = np.full((m, task.k), -1, np.int32), np.full((m, task.k), np.inf)
        reached = Reached(task.bounds(np), minima, ids, weights)
        queries = self._queries(task)

        def search(at: slice) -> None:
            some = queries._replace(column=queries.column[at], start=queries.start[at], rows=queries.rows[at])
            _query(self.metric.cpu_formula, tree, some, excluded, reached)

        for_each_chunk(CPU, search, equal_slices(slice(0, m), CHUNK), task.progress(self.progress))
        if task.per_group_minimum:
            drop_above_bound(ids, weights, reached.upper, np)
        return SearchResult(ids, weights, reached.upper)

    def _queries(self, task: SearchTask) -> Queries:
        """The task's rows, neighbours in space one after the other: their nodes are in the cache."""
        tree, group = self.tree, task.row_group[task.rows]
        if self.queries is None:
            row_at: np.ndarray = np.full(tree.order.size, -1, np.int32)  # by position: which of the task's rows
            row_at[tree.position[task.rows]] = np.arange(task.rows.size, dtype=np.int32)
            start = np.flatnonzero(row_at >= 0)
            return Queries(tree.columns, start, start, row_at[start], group)
        points = np.ascontiguousarray(self.queries[task.rows].T, np.float64)
        start = _locate(self.metric.cpu_formula, points, tree.low, tree.high, tree.first)
        rows = np.argsort(start, kind="stable")
        return Queries(points, rows, start[rows], rows, group)


@njit(nogil=True, cache=True)
def _node_groups(first, last, group):
    """The group that all points of a node share, or -1."""
    nodes = first.size
    shared = np.empty(nodes, np.int64)
    for v in range(nodes - 1, -1, -1):
        if 2 * v + 1 < nodes:
            shared[v] = shared[2 * v + 1] if shared[2 * v + 1] == shared[2 * v + 2] else -1
        elif first[v] == last[v]:
            shared[v] = -1
        else:
            shared[v] = group[first[v]]
            for p in range(first[v], last[v]):
                if group[p] != shared[v]:
                    shared[v] = -1
                    break
    return shared


@njit(nogil=True, cache=True)
def _locate(formula, points, low, high, first):
    """For each column of `points` the first tree position of a leaf near it."""
    at, x = np.empty(points.shape[1], np.int64), np.empty(points.shape[0])
    leaves = first.size // 2
    for p in range(points.shape[1]):
        for f in range(x.size):
            x[f] = points[f, p]
        v = 0
        while v < leaves:
            left, right = 2 * v + 1, 2 * v + 2
            to_left = box_to_box(formula, x, x, low, high, left)
            v = left if to_left <= box_to_box(formula, x, x, low, high, right) else right
        at[p] = first[v]
    return at


@njit(nogil=True, cache=True)
def _query(formula, tree, queries, excluded, reached):
    """The lists of some rows.

    If there are minima by group, several threads lower them without a lock: a value read late or an update lost leaves
    a bound that is too high, which costs time and never a neighbour.
    """
    columns, order, _, first, last, low, high, least = tree
    points, column, start, rows, row_group = queries
    group, node_group, core, node_core = excluded
    upper, minima, ids, weights = reached
    d, k = points.shape[0], ids.shape[1]
    leaves = first.size // 2
    near = np.empty(LEAF)
    stack, gaps = np.empty(128, np.int64), np.empty(128)  # nodes to search, and their distances from the rows' box
    # The rows that search together, by lane: features, their box, cores, groups, bounds, the last id that matters at
    # the bound, the distance from a node, and whether the row has to visit it.
    x, query_low, query_high, cores = np.zeros((d, LEAF)), np.empty(d), np.empty(d), np.zeros(LEAF)
    own_group, bound, last_id, distance = (
        np.empty(LEAF, np.int64),
        np.empty(LEAF),
        np.empty(LEAF, np.int32),
        np.empty(LEAF),
    )
    must_visit = np.empty(LEAF, np.bool_)
    leaf, begin = 0, 0
    while start.size and leaf < leaves:
        leaf = 2 * leaf + 1 if start[0] < last[2 * leaf + 1] else 2 * leaf + 2
    while begin < start.size:
        while start[begin] >= last[leaf]:  # positions ascend
            leaf += 1
        m = 1
        while m < LEAF and begin + m < start.size and start[begin + m] < last[leaf]:
            m += 1
        for f in range(d):
            query_low[f], query_high[f] = np.inf, -np.inf
            for j in range(m):
                x[f, j] = points[f, column[begin + j]]
                query_low[f], query_high[f] = min(query_low[f], x[f, j]), max(query_high[f], x[f, j])
        shared_group = row_group[rows[begin]]  # the group of all, or -1
        bound[:], last_id[:] = -1.0, ANY_ID  # of a lane without a row nothing is within the bound
        for j in range(m):
            q = rows[begin + j]
            own_group[j], bound[j] = row_group[q], upper[q]
            shared_group = shared_group if own_group[j] == shared_group else -1
            if minima.size:
                bound[j] = min(bound[j], minima[own_group[j]])
            if core.size:
                cores[j] = core[start[begin + j]]
        largest_bound = bound.max()
        v = visit = leaf
        while True:
            # Search the subtree `visit`, then step up from v and take the sibling. Of two children at one distance that
            # with the least row comes first: among equal points few are compared then.
            stack[0], gaps[0], height = visit, box_to_box(formula, query_low, query_high, low, high, visit), 1
            while height:
                height -= 1
                node = stack[height]
                if gaps[height] > largest_bound or (node_group[node] == shared_group and shared_group >= 0):
                    continue
                if m > 1:
                    to_boxes(formula, x, low, high, node, distance)
                else:  # the box of one point
                    distance[0] = gaps[height]
                floor = node_core[node] if core.size else 0.0
                within = 0
                for j in range(LEAF):
                    distance[j] = max(distance[j], cores[j], floor)
                    nearer = (distance[j] < bound[j]) | ((distance[j] == bound[j]) & (least[node] <= last_id[j]))
                    must_visit[j] = nearer & (node_group[node] != own_group[j])
                    within += must_visit[j]
                if not within:
                    continue
                if node < leaves:
                    farther, nearer_child = 2 * node + 1, 2 * node + 2
                    farther_gap = box_to_box(formula, query_low, query_high, low, high, farther)
                    nearer_gap = box_to_box(formula, query_low, query_high, low, high, nearer_child)
                    if farther_gap < nearer_gap or (farther_gap == nearer_gap and least[farther] < least[nearer_child]):
                        farther, nearer_child, farther_gap, nearer_gap = nearer_child, farther, nearer_gap, farther_gap
                    stack[height], gaps[height] = farther, farther_gap
                    stack[height + 1], gaps[height + 1] = nearer_child, nearer_gap
                    height += 2
                    continue
                a, improved = first[node], False
                for j in range(m):
                    if not must_visit[j]:
                        continue
                    q = rows[begin + j]
                    to_points(formula, x, j, columns, a, near)
                    for c in range(last[node] - a):
                        if near[c] <= bound[j] and group[a + c] != own_group[j]:
                            other, weight = order[a + c], reachability(near[c], core, start[begin + j], a + c)
                            if weight <= bound[j] and comes_before_last(ids, weights, q, other, weight):
                                insert(ids, weights, q, other, weight)
                                bound[j] = min(bound[j], weights[q, k - 1])
                                improved = True
                    if weights[q, k - 1] == bound[j] and ids[q, k - 1] >= 0:
                        last_id[j] = ids[q, k - 1]
                if improved and minima.size:
                    for j in range(m):
                        minima[own_group[j]] = min(minima[own_group[j]], weights[rows[begin + j], 0])
                    for j in range(m):
                        if minima[own_group[j]] < bound[j]:
                            bound[j], last_id[j] = minima[own_group[j]], ANY_ID
                if improved:
                    largest_bound = bound.max()
            if v == 0:
                break
            visit = v + 1 if v % 2 else v - 1
            v = (v - 1) // 2
        for j in range(m):
            upper[rows[begin + j]] = bound[j]
        begin += m
