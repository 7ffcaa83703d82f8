"""Search in few dimensions on the CPU, by a k-d tree: `TreeSearch`, and the lists that its walks fill.

Lists begin with the nearest points of the leaf that the rows start in, sorted, unless they are very short. Each
distance of a row is compared with all, in vector instructions. Inserted one by one, 12 of a leaf's 30 points would go
into a list of five, and which ones cannot be foretold.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.choose import connects_by_tree
from rapids_slink.neighbors.exact.cpu import (
    MAX_LIST,
    NO_CORE,
    comes_before_last,
    components,
    drop_above_bound,
    insert,
    reachability,
)
from rapids_slink.neighbors.task import Search, SearchResult, SearchTask
from rapids_slink.neighbors.trees.tree import (
    INLINED,
    LEAF,
    Queries,
    build,
    by_leaves,
    depth_of,
    groups_of_nodes,
    largest_bound,
    least_of_nodes,
    locate,
    share_between,
    to_boxes,
    to_points,
    walk,
)
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.memory import MemoryEstimate
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

ANY_ID = np.iinfo(np.int32).max


class TopK(NamedTuple):
    """A reducer: the k nearest points of each row, in sorted lists, which a walk empties first.

    Several threads lower the minima of groups without a lock: a value read late or an update lost leaves a bound that
    is too high, which costs time and never a neighbour.
    """

    upper: np.ndarray  # (m,) float64, the rows' bounds
    minima: np.ndarray  # float64, the least distance found in each group; empty if it is not wanted
    ids: np.ndarray  # (m, k) int32
    weights: np.ndarray  # (m, k) float64
    row_group: np.ndarray  # (m,) int32, the rows' groups
    #: Groups and core distances exclude pairs: by position, and by node. A node's group is the one that all its points
    #: share, or -1; its core distance is the least of its points'
    group: np.ndarray
    node_group: np.ndarray
    core: np.ndarray
    node_core: np.ndarray

    def load(self, queries, begin, m, lanes):
        """Empty the lists."""
        start, rows, row_group, core = queries.start, queries.rows, self.row_group, self.core
        upper, minima, ids, weights = self.upper, self.minima, self.ids, self.weights
        own_core, own_group, bound, last_id = lanes.core, lanes.group, lanes.bound, lanes.last_id
        shared_group = np.int64(row_group[rows[begin]])
        last_id[:] = ANY_ID
        for j in range(m):
            q = rows[begin + j]
            ids[q], weights[q] = -1, np.inf
            own_group[j], bound[j] = row_group[q], upper[q]
            shared_group = shared_group if own_group[j] == shared_group else -1
            if minima.size:
                bound[j] = min(bound[j], minima[own_group[j]])
            if core.size:
                own_core[j] = core[start[begin + j]]
        return largest_bound(bound), shared_group

    def visits(self, formula, tree, node, gap, m, shared_group, wraps, lanes):
        """Mark the lanes that have to visit a node; return whether there are any."""
        own_core, own_group, bound, least = lanes.core, lanes.group, lanes.bound, tree.least
        last_id, distance, must_visit = lanes.last_id, lanes.distance, lanes.must_visit
        node_group, core, node_core, count = self.node_group, self.core, self.node_core, 0
        if node_group[node] != shared_group or shared_group < 0:
            if m > 1:
                to_boxes(formula, lanes.x, tree.low, tree.high, node, distance, wraps)
            else:  # the box of one point
                distance[0] = gap
            floor = node_core[node] if core.size else 0.0
            for j in range(LEAF):
                distance[j] = max(distance[j], own_core[j], floor)
                nearer = (distance[j] < bound[j]) | ((distance[j] == bound[j]) & (least[node] <= last_id[j]))
                must_visit[j] = nearer & (node_group[node] != own_group[j])
                count += must_visit[j]
        return count > 0

    def meet(self, formula, tree, queries, begin, m, node, leaf, wraps, lanes, largest):
        """Insert the points of a leaf, and tighten the bounds."""
        columns, order, a, k = tree.columns, tree.order, tree.first[node], self.ids.shape[1]
        start, rows, group, core = queries.start, queries.rows, self.group, self.core
        minima, ids, weights = self.minima, self.ids, self.weights
        x, own_group, bound, near = lanes.x, lanes.group, lanes.bound, lanes.near
        last_id, must_visit, improved = lanes.last_id, lanes.must_visit, False
        if node == leaf and k >= MIN_RANKED:
            _begin_lists(formula, tree, leaf, queries, begin, m, wraps, lanes, self)
            improved = True
        else:
            for j in range(m):
                if not must_visit[j]:
                    continue
                q = rows[begin + j]
                to_points(formula, x, j, columns, a, near, wraps)
                for c in range(tree.last[node] - a):
                    if near[c] <= bound[j] and group[a + c] != own_group[j]:
                        other, weight = order[a + c], reachability(near[c], core, start[begin + j], a + c)
                        if weight <= bound[j] and comes_before_last(ids, weights, q, other, weight):
                            insert(ids, weights, q, other, weight)
                            bound[j] = min(bound[j], weights[q, k - 1])
                            improved = True
                if weights[q, k - 1] == bound[j] and ids[q, k - 1] >= 0:
                    last_id[j] = ids[q, k - 1]
            if improved and minima.size:
                _lower_minima(rows, begin, m, minima, weights, lanes)
        return largest_bound(bound) if improved else largest

    def finish(self, queries, begin, m, lanes):
        """Store the bounds."""
        rows, upper, bound = queries.rows, self.upper, lanes.bound
        for j in range(m):
            upper[rows[begin + j]] = bound[j]
        return True


@njit(cache=True, **INLINED)
def _lower_minima(rows, begin, m, minima, weights, lanes):
    """Lower the groups' minima to the lanes' nearest, and the lanes' bounds to the minima."""
    own_group, bound, last_id = lanes.group, lanes.bound, lanes.last_id
    for j in range(m):
        minima[own_group[j]] = min(minima[own_group[j]], weights[rows[begin + j], 0])
    for j in range(m):
        if minima[own_group[j]] < bound[j]:
            bound[j], last_id[j] = minima[own_group[j]], ANY_ID


MIN_RANKED = 3  # from this length of lists on, `_begin_lists` takes less time than to insert points


@njit(cache=True, **INLINED)
def _begin_lists(formula, tree, leaf, queries, begin, m, wraps, lanes, reducer):
    """Begin the lists of m rows, from `begin` on, with the points in their leaf, and tighten the rows' bounds."""
    x, own_group, bound = lanes.x, lanes.group, lanes.bound
    last_id, must_visit, near = lanes.last_id, lanes.must_visit, lanes.near
    group, core, ids, weights = reducer.group, reducer.core, reducer.ids, reducer.weights
    own_rows, nearest = lanes.ids, lanes.nearest
    a, k = tree.first[leaf], ids.shape[1]
    count = tree.last[leaf] - a
    for c in range(count):
        own_rows[c] = tree.order[a + c]
    for j in range(m):
        if not must_visit[j]:
            continue
        q = queries.rows[begin + j]
        to_points(formula, x, j, tree.columns, a, near, wraps)
        for c in range(count):
            weight = reachability(near[c], core, queries.start[begin + j], a + c)
            near[c] = weight if (weight <= bound[j]) & (group[a + c] != own_group[j]) else np.inf
        for e in range(min(k, _rank(near, own_rows, count, nearest))):
            ids[q, e], weights[q, e] = tree.order[a + nearest[e]], near[nearest[e]]
        if ids[q, k - 1] >= 0:
            bound[j], last_id[j] = weights[q, k - 1], ids[q, k - 1]


@njit(cache=True, **INLINED)
def _rank(near, row, count, nearest):
    """Sort the points at finite distances by their distances and rows; return how many there are.

    Rows are float64 for vector instructions. `nearest` has the points' numbers in the leaf, in that order.
    """
    near[count:] = np.inf
    n_ranked = 0
    for c in range(np.uint64(count)):
        if near[c] < np.inf:
            distance, own, rank = near[c], row[c], np.int64(0)
            for e in range(np.uint64(LEAF)):
                rank += (near[e] < distance) | ((near[e] == distance) & (row[e] < own))
            nearest[rank] = c
            n_ranked += 1
    return n_ranked


MIN_CHUNK, MAX_CHUNK = 256, 4096  # rows that a thread takes at a time


class TreeSearch(Search):
    """A search by a k-d tree; see `Search`."""

    name = "k-d tree"  # for reports

    def __post_init__(self) -> None:
        self.tree = build(self.values)

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Estimate the bytes of a search among n points of d features for the k neighbours of m points or queries."""
        return MemoryEstimate(n * (8 * d + 12) + 2 ** (depth_of(n) + 1) * (16 * d + 28) + m * (8 * d + 12 * k + 8))

    def for_connecting(self, ids: np.ndarray) -> Callable[[], Search]:
        """Return a function that makes the search between the components of these lists, (n, k) ids.

        It makes this search if most rows' searches visit few enough leaves, otherwise the one over all pairs.
        """
        if not self.follower:
            return super().for_connecting(ids)
        component = components(ids)
        share = share_between(self.tree, self.metric, component)
        number = int(np.count_nonzero(component == np.arange(len(ids))))
        return (lambda: self) if connects_by_tree(share, number, *self.values.shape) else self.follower

    def find(self, task: SearchTask) -> SearchResult:
        """Return the nearest points of a task's rows, as a `SearchResult`."""
        if task.k > MAX_LIST:
            among_all = BruteForceSearch(self.values, CPU, self.report, self.queries, self.progress, self.metric)
            return among_all.find(task)
        tree, m = self.tree, task.rows.size
        group = task.point_group[tree.order]
        core = NO_CORE if task.core is None else task.core[tree.order]
        node_core = NO_CORE if task.core is None else least_of_nodes(tree.first, core)
        minima = np.full(task.row_group.size if task.per_group_minimum else 0, np.inf)
        ids, weights = np.empty((m, task.k), np.int32), np.empty((m, task.k))
        row_group, node_group = task.row_group[task.rows], groups_of_nodes(tree.first, group)
        lists = TopK(task.bounds(np), minima, ids, weights, row_group, group, node_group, core, node_core)
        queries = self._queries(task)

        def search(at: slice) -> None:
            walk(self.metric.cpu_formula, tree, queries.take(at), lists)

        for_each_chunk(CPU, search, chunks_for_cores(m, MIN_CHUNK, MAX_CHUNK), task.progress(self.progress))
        if task.per_group_minimum:
            drop_above_bound(ids, weights, lists.upper)
        return SearchResult(ids, weights, lists.upper)

    def _queries(self, task: SearchTask) -> Queries:
        """Return the task's rows in the order of the tree's leaves, so that consecutive ones visit the same nodes."""
        tree = self.tree
        if self.queries is None:
            row_at: np.ndarray = np.full(tree.order.size, -1, np.int32)  # by position: which of the task's rows
            row_at[tree.position[task.rows]] = np.arange(task.rows.size, dtype=np.int32)
            start = np.flatnonzero(row_at >= 0)
            return Queries(tree.columns, start, start, row_at[start])
        points = np.ascontiguousarray(self.queries[task.rows].T, np.float64)
        return by_leaves(points, locate(self.metric.cpu_formula, points, tree.low, tree.high, tree.first))
