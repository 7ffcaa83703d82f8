"""Search in few dimensions on the CPU, by a k-d tree: `TreeSearch`, and its kernels in Numba.

The rows that start in one leaf, at most `LEAF`, search together, in vector instructions, one row to a lane: from their
leaf they step up to the root, and at each step search the sibling's subtree, nearer child first, if any row's bound
reaches it. `tree.box_to_box` is a lower bound of the surrogate distances between points of two boxes.

Lists begin with the nearest points of the leaf that the rows start in, sorted, unless they are very short. Each
distance of a row is compared with all, in vector instructions. Inserted one by one, 12 of a leaf's 30 points would go
into a list of five, and which ones cannot be foretold.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.exact.cpu import (
    MAX_LIST,
    NO_CORE,
    comes_before_last,
    drop_above_bound,
    insert,
    reachability,
)
from rapids_slink.neighbors.task import Search, SearchResult, SearchTask
from rapids_slink.neighbors.trees.tree import (
    LEAF,
    box_to_box,
    build,
    components,
    depth_of,
    groups_of_nodes,
    least_of_nodes,
    may_wrap,
    share_between,
    to_boxes,
    to_points,
)
from rapids_slink.ordering import stable_order
from rapids_slink.report import Report
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.memory import MemoryEstimate, sequential
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

ANY_ID = np.iinfo(np.int32).max


class Queries(NamedTuple):
    """Rows that search together; all arrays are (m,), except the points."""

    points: np.ndarray  # (d, m') float64, their features: those of row i are column column[i]
    column: np.ndarray  # int array
    start: np.ndarray  # int array, the tree position at which each starts, ascending
    rows: np.ndarray  # int array, which of the task's rows each is
    group: np.ndarray  # int32 array, the groups of the task's rows


class Excluded(NamedTuple):
    """Groups and core distances, by which pairs are excluded: by position, and by node.

    A node's group is the one that all its points share, or -1; its core distance the least of its points'.
    """

    group: np.ndarray
    node_group: np.ndarray
    core: np.ndarray
    node_core: np.ndarray


class TreeSearchState(NamedTuple):
    """The state of the search: bounds, the least distance found in each group (empty if not wanted), and lists.

    `query` empties the lists first.
    """

    upper: np.ndarray
    minima: np.ndarray
    ids: np.ndarray
    weights: np.ndarray


class Lanes(NamedTuple):
    """The rows that search together, at most `LEAF`, one to a lane."""

    x: np.ndarray  # (d, LEAF) float64, their features
    #: `low` and `high`: (d,) float64, their bounding box
    low: np.ndarray
    high: np.ndarray
    #: `core`, `group` and `bound`: (LEAF,) arrays: their core distances, groups and distance bounds. A lane without a
    #: row has the bound -1: nothing is within it
    core: np.ndarray
    group: np.ndarray
    bound: np.ndarray
    last_id: np.ndarray  # (LEAF,) int32; of points at the bound only those with smaller ids matter
    distance: np.ndarray  # (LEAF,) float64, from the node under test
    must_visit: np.ndarray  # (LEAF,) bool, whether the row has to visit that node


@njit(nogil=True, cache=True)
def locate(formula, points, low, high, first):
    """Return for each column of `points` the first tree position of a leaf near it, int64."""
    at, x = np.empty(points.shape[1], np.int64), np.empty(points.shape[0])
    leaves = first.size // 2
    for p in range(points.shape[1]):
        for f in range(x.size):
            x[f] = points[f, p]
        v = 0
        while v < leaves:
            left_child, right_child = 2 * v + 1, 2 * v + 2
            to_left = box_to_box(formula, x, x, low, high, left_child)
            v = left_child if to_left <= box_to_box(formula, x, x, low, high, right_child) else right_child
        at[p] = first[v]
    return at


@njit(nogil=True, cache=True)
def query(formula, tree, queries, excluded, reached):
    """Write the lists of some rows, and tighten the rows' bounds.

    If there are minima by group, several threads lower them without a lock: a value read late or an update lost leaves
    a bound that is too high, which costs time and never a neighbour.
    """
    columns, order, first, last, low, high = tree.columns, tree.order, tree.first, tree.last, tree.low, tree.high
    start, rows = queries.start, queries.rows
    group, node_group, core = excluded.group, excluded.node_group, excluded.core
    upper, minima, ids, weights = reached.upper, reached.minima, reached.ids, reached.weights
    k, near = ids.shape[1], np.empty(LEAF)
    stack, gaps = np.empty(128, np.int64), np.empty(128)  # nodes to visit, and their distances from the rows' box
    lanes = _new_lanes(queries.points.shape[0])
    x, box_low, box_high, own_group, bound = lanes.x, lanes.low, lanes.high, lanes.group, lanes.bound
    last_id, distance, must_visit = lanes.last_id, lanes.distance, lanes.must_visit
    begin, leaf = np.int64(0), _first_leaf(start, last)  # no literal: `_load` would be compiled for it too
    while begin < start.size:
        leaf, m = _rows_together(start, begin, last, leaf)
        shared_group = _load(queries, begin, m, core, reached, lanes)
        largest_bound = _largest(bound)
        v = visit = leaf
        while True:  # search the subtree `visit`, then step up from v and take the sibling
            stack[0], gaps[0], height = visit, box_to_box(formula, box_low, box_high, low, high, visit), 1
            while height:
                height -= 1
                node = stack[height]
                if gaps[height] > largest_bound or (node_group[node] == shared_group and shared_group >= 0):
                    continue
                wraps = may_wrap(formula, box_low, box_high, low, high, node)
                if m > 1:
                    to_boxes(formula, x, low, high, node, distance, wraps)
                else:  # the box of one point
                    distance[0] = gaps[height]
                if not _mark_visitors(node, tree.least, excluded, lanes):
                    continue
                if 2 * node + 1 < first.size:
                    _push_children(formula, tree, node, lanes, stack, gaps, height)
                    height += 2
                    continue
                if node == leaf and k >= MIN_RANKED:
                    begin_lists(formula, tree, leaf, queries, begin, m, excluded, lanes, reached)
                    largest_bound = _largest(bound)
                    continue
                a, improved = first[node], False
                for j in range(m):
                    if not must_visit[j]:
                        continue
                    q = rows[begin + j]
                    to_points(formula, x, j, columns, a, near, wraps)
                    for c in range(last[node] - a):
                        if near[c] <= bound[j] and group[a + c] != own_group[j]:
                            other, weight = order[a + c], reachability(near[c], core, start[begin + j], a + c)
                            if weight <= bound[j] and comes_before_last(ids, weights, q, other, weight):
                                insert(ids, weights, q, other, weight)
                                bound[j] = min(bound[j], weights[q, k - 1])
                                improved = True
                    if weights[q, k - 1] == bound[j] and ids[q, k - 1] >= 0:
                        last_id[j] = ids[q, k - 1]
                if improved:
                    if minima.size:
                        _lower_minima(rows, begin, m, minima, weights, lanes)
                    largest_bound = _largest(bound)
            if v == 0:
                break
            visit, v = v + 1 if v % 2 else v - 1, (v - 1) // 2
        for j in range(m):
            upper[rows[begin + j]] = bound[j]
        begin += m


# The parts of `query`. All are inlined: as calls, some would cost up to a quarter of the time. The loop over a leaf's
# points is not one of them, since it costs 3 % even if it is inlined. They read the fields
# of their tuples before their loops, in which Numba would count references to the arrays.


@njit(nogil=True, cache=True, inline="always")
def _first_leaf(start, last):
    """Return the leaf that holds the first of the start positions."""
    leaf = 0
    while start.size and leaf < last.size // 2:
        leaf = 2 * leaf + 1 if start[0] < last[2 * leaf + 1] else 2 * leaf + 2
    return leaf


@njit(nogil=True, cache=True, inline="always")
def _rows_together(start, begin, last, leaf):
    """Return the leaf of the rows from `begin` on, and how many of them start in it, at most `LEAF`.

    Positions ascend, so that leaf is not before `leaf`, in which the rows before them start.
    """
    while start[begin] >= last[leaf]:
        leaf += 1
    m = 1
    while m < LEAF and begin + m < start.size and start[begin + m] < last[leaf]:
        m += 1
    return leaf, m


@njit(nogil=True, cache=True, inline="always")
def _new_lanes(d):
    x, low, high = np.zeros((d, LEAF)), np.empty(d), np.empty(d)
    core, group, bound = np.zeros(LEAF), np.empty(LEAF, np.int64), np.empty(LEAF)
    return Lanes(x, low, high, core, group, bound, np.empty(LEAF, np.int32), np.empty(LEAF), np.empty(LEAF, np.bool_))


@njit(nogil=True, cache=True, inline="always")
def _load(queries, begin, m, core, reached, lanes):
    """Put m rows into the lanes, and empty their lists; return the group that they share, or -1."""
    points, column, start, rows, row_group = queries.points, queries.column, queries.start, queries.rows, queries.group
    upper, minima, ids, weights = reached.upper, reached.minima, reached.ids, reached.weights
    x, low, high, own_core = lanes.x, lanes.low, lanes.high, lanes.core
    own_group, bound, last_id = lanes.group, lanes.bound, lanes.last_id
    for f in range(points.shape[0]):
        low[f], high[f] = np.inf, -np.inf
        for j in range(m):
            x[f, j] = points[f, column[begin + j]]
            low[f], high[f] = min(low[f], x[f, j]), max(high[f], x[f, j])
    shared_group = row_group[rows[begin]]
    bound[:], last_id[:] = -1.0, ANY_ID
    for j in range(m):
        q = rows[begin + j]
        ids[q], weights[q] = -1, np.inf
        own_group[j], bound[j] = row_group[q], upper[q]
        shared_group = shared_group if own_group[j] == shared_group else -1
        if minima.size:
            bound[j] = min(bound[j], minima[own_group[j]])
        if core.size:
            own_core[j] = core[start[begin + j]]
    return shared_group


@njit(nogil=True, cache=True, inline="always")
def _largest(bound):
    """Return the largest bound of all lanes; `bound.max()` takes Numba half a second to compile."""
    largest = bound[0]
    for j in range(1, LEAF):
        largest = max(largest, bound[j])
    return largest


@njit(nogil=True, cache=True, inline="always")
def _mark_visitors(node, least, excluded, lanes):
    """Mark the lanes that have to visit a node, by their `distance` from it, and return how many there are."""
    own_core, own_group, bound = lanes.core, lanes.group, lanes.bound
    last_id, distance, must_visit = lanes.last_id, lanes.distance, lanes.must_visit
    node_group, floor = excluded.node_group, excluded.node_core[node] if excluded.core.size else 0.0
    count = 0
    for j in range(LEAF):
        distance[j] = max(distance[j], own_core[j], floor)
        nearer = (distance[j] < bound[j]) | ((distance[j] == bound[j]) & (least[node] <= last_id[j]))
        must_visit[j] = nearer & (node_group[node] != own_group[j])
        count += must_visit[j]
    return count


@njit(nogil=True, cache=True, inline="always")
def _push_children(formula, tree, node, lanes, stack, gaps, height):
    """Put a node's children onto the stack, the nearer on top.

    Of two at one distance the one with the least row is on top: among equal points few are compared then.
    """
    low, high, least = tree.low, tree.high, tree.least
    farther, nearer = 2 * node + 1, 2 * node + 2
    farther_gap = box_to_box(formula, lanes.low, lanes.high, low, high, farther)
    nearer_gap = box_to_box(formula, lanes.low, lanes.high, low, high, nearer)
    if farther_gap < nearer_gap or (farther_gap == nearer_gap and least[farther] < least[nearer]):
        farther, nearer, farther_gap, nearer_gap = nearer, farther, nearer_gap, farther_gap
    stack[height], gaps[height] = farther, farther_gap
    stack[height + 1], gaps[height + 1] = nearer, nearer_gap


@njit(nogil=True, cache=True, inline="always")
def _lower_minima(rows, begin, m, minima, weights, lanes):
    """Lower the groups' minima to the lanes' nearest, and the lanes' bounds to the minima."""
    own_group, bound, last_id = lanes.group, lanes.bound, lanes.last_id
    for j in range(m):
        minima[own_group[j]] = min(minima[own_group[j]], weights[rows[begin + j], 0])
    for j in range(m):
        if minima[own_group[j]] < bound[j]:
            bound[j], last_id[j] = minima[own_group[j]], ANY_ID


MIN_RANKED = 3  # from this length of lists on, `begin_lists` takes less time than to insert points


@njit(nogil=True, cache=True, inline="always")
def begin_lists(formula, tree, leaf, queries, begin, m, excluded, lanes, reached):
    """Begin the lists of m rows, from `begin` on, with the points in their leaf, and tighten the rows' bounds."""
    x, own_group, bound = lanes.x, lanes.group, lanes.bound
    last_id, must_visit = lanes.last_id, lanes.must_visit
    group, core, ids, weights = excluded.group, excluded.core, reached.ids, reached.weights
    near, own_rows, nearest = np.empty(LEAF), np.empty(LEAF), np.empty(LEAF, np.int64)
    a, k = tree.first[leaf], ids.shape[1]
    count = tree.last[leaf] - a
    wraps = may_wrap(formula, lanes.low, lanes.high, tree.low, tree.high, leaf)
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


@njit(nogil=True, cache=True, inline="always")
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
#: The largest share of the leaves that is visited to connect components in less time than products of all pairs take.
MAX_CONNECTING_SHARE = 0.55
#: The same where there are `MIN_JOINED` points or more, and on average `MIN_POINTS_OF_COMPONENT` in a component
#: or more: products connect so few components at once, in a time that does not grow with the square of the points.
MAX_JOINING_SHARE, MIN_POINTS_OF_COMPONENT, MIN_JOINED = 1 / 8, 48, 2**14


class TreeSearch(Search):
    """Search among `values` for neighbours of the same points, or of `queries`; see `BruteForceSearch`.

    `all_pairs` makes a search over all pairs, which may connect components in less time.
    """

    name = "k-d tree"  # for reports

    def __init__(
        self,
        values: np.ndarray,
        device: Device,
        report: Report,
        queries: np.ndarray | None = None,
        progress: bool | str = False,
        metric: Metric = EUCLIDEAN,
        all_pairs: Callable[[], Search] | None = None,
    ) -> None:
        self.metric, self.tree = metric, build(values)
        self.values, self.report = values, report
        self.queries, self.progress, self.all_pairs = queries, progress, all_pairs

    @staticmethod
    def estimate(n: int, m: int, d: int, k: int, itemsize: int, device: Device, metric: Metric) -> MemoryEstimate:
        """Estimate the bytes of a search among n points of d features for the k neighbours of m points or queries.

        `build` and `find` take them; each term is a sum over points, nodes or rows.
        """
        if k > MAX_LIST:
            first = TreeSearch.estimate(n, m, d, 1, itemsize, device, metric)
            return sequential(first, BruteForceSearch.estimate(n, m, d, k, itemsize, device, metric))
        nodes = 2 ** (depth_of(n) + 1)
        tree = n * (8 * d + 8) + nodes * (16 * d + 20)
        groups = n * 4 + nodes * 8
        lists = m * (12 * k + 8)
        return MemoryEstimate(tree + groups + lists + m * (8 * d + 48), tree + lists)

    def for_connecting(self, ids: np.ndarray) -> Callable[[], Search]:
        """Return a function that makes the search between the components of these lists, (n, k) ids.

        It makes this search if most rows' searches visit few enough leaves, otherwise the one over all pairs.
        """
        if not self.all_pairs:
            return lambda: self
        component, n = components(ids), len(ids)
        few = np.count_nonzero(component == np.arange(n)) <= n / MIN_POINTS_OF_COMPONENT
        most = MAX_JOINING_SHARE if few and n >= MIN_JOINED else MAX_CONNECTING_SHARE
        return self.all_pairs if share_between(self.tree, self.metric, component) > most else lambda: self

    def find(self, task: SearchTask) -> SearchResult:
        """Return the nearest points of a task's rows, as a `SearchResult`."""
        if task.k > MAX_LIST:
            among_all = BruteForceSearch(self.values, CPU, self.report, self.queries, self.progress, self.metric)
            return among_all.find(task)
        tree, m = self.tree, task.rows.size
        group = task.point_group[tree.order]
        core = NO_CORE if task.core is None else task.core[tree.order]
        node_core = NO_CORE if task.core is None else least_of_nodes(tree.first, core)
        excluded = Excluded(group, groups_of_nodes(tree.first, group), core, node_core)
        minima = np.full(task.row_group.size if task.per_group_minimum else 0, np.inf)
        ids, weights = np.empty((m, task.k), np.int32), np.empty((m, task.k))
        reached = TreeSearchState(task.bounds(np), minima, ids, weights)
        queries = self._queries(task)

        def search(at: slice) -> None:
            some = queries._replace(column=queries.column[at], start=queries.start[at], rows=queries.rows[at])
            query(self.metric.cpu_formula, tree, some, excluded, reached)

        for_each_chunk(CPU, search, chunks_for_cores(m, MIN_CHUNK, MAX_CHUNK), task.progress(self.progress))
        if task.per_group_minimum:
            drop_above_bound(ids, weights, reached.upper)
        return SearchResult(ids, weights, reached.upper)

    def _queries(self, task: SearchTask) -> Queries:
        """Return the task's rows in the order of the tree's leaves, so that consecutive ones visit the same nodes."""
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
