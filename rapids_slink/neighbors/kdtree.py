"""All-pairs search in few dimensions on the CPU: a k-d tree in Numba.

The tree is complete and implicit: node v has the children 2v + 1 and 2v + 2, every split is at the median of the
widest side, and the points stand in the order of the leaves. The rows that start in one leaf search together, in
vector instructions, one row a lane: from their leaf they climb, and at each step up search the sibling's subtree,
nearer child first, as far as any of them has to.

`pairs.box_to_box` bounds the kernel's value of a point, or any in a box, and any other in a box from below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from rapids_slink.device import Device
from rapids_slink.memory import Need
from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.contract import Found, Task, drop_late
from rapids_slink.neighbors.cpu import NO_CORE, comes_before_last, each, insert, reachability
from rapids_slink.neighbors.pairs import box_to_box, to_boxes, to_points
from rapids_slink.report import Report

LEAF = 16  # points at most; so many rows search at a time, and so many distances are computed, in vector instructions
CHUNK = 4096
ANY_ID = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Tree:
    """A k-d tree.

    Attributes
    ----------
    columns : (d, n + LEAF) float64 array
        The features of the points in the order of the leaves, and zeros for the last leaves to read on.
    order : (n,) int32 array, the row of each of them
    at : (n,) int32 array, the inverse of `order`
    first, last : (nodes,) int64 arrays
        Node v holds points first[v] to last[v] - 1.
    low, high : (nodes, d) float64 arrays, the nodes' bounding boxes
    least : (nodes,) int32 array, the least row of each node
    """

    columns: np.ndarray
    order: np.ndarray
    at: np.ndarray
    first: np.ndarray
    last: np.ndarray
    low: np.ndarray
    high: np.ndarray
    least: np.ndarray


class TreeSearch:
    """Search among `values` for neighbours of the same points, or of `queries`; see `tiles.TileSearch`."""

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
    def need(n: int, m: int, d: int, k: int, itemsize: int, device: Device) -> Need:
        """Bytes for a search among n points of d features, and to find k neighbours of m of them or of as many queries.

        As `build` and `find` take them, each a sum over points, nodes or rows.
        """
        nodes = 2 ** (_depth(n) + 1)
        tree = n * (8 * d + 8) + nodes * (16 * d + 20)
        groups = n * 4 + nodes * 8
        lists = m * (12 * k + 8)
        return Need(tree + groups + lists + m * (8 * d + 48), kept=tree + lists)

    def find(self, task: Task) -> Found:
        """The neighbours of a task's rows."""
        tree, m = self.tree, task.rows.size
        ids, weights = np.full((m, task.k), -1, np.int32), np.full((m, task.k), np.inf)
        upper = task.bounds(np)
        group = task.column_group[tree.order]
        node_group = _node_groups(tree.first, tree.last, group)
        core = NO_CORE if task.core is None else task.core[tree.order]
        node_core = _least_cores(tree.first, tree.last, core)
        best = np.full(task.row_group.size if task.shared else 0, np.inf)
        # Neighbours in space one after the other: their nodes are in the cache.
        if self.queries is None:
            row_at: np.ndarray = np.full(tree.order.size, -1, np.int32)  # by position: which of the task's rows
            row_at[tree.at[task.rows]] = np.arange(m, dtype=np.int32)
            points, start = tree.columns, np.flatnonzero(row_at >= 0)
            rows, place = row_at[start], start
        else:
            points = np.ascontiguousarray(self.queries[task.rows].T, np.float64)
            start = _locate(self.metric.rule, points, tree.low, tree.high, tree.first)
            rows = place = np.argsort(start, kind="stable")
            start = start[rows]
        row_group = task.row_group[task.rows]

        def search(at: slice) -> None:
            _query(
                self.metric.rule, points, place[at], start[at], rows[at], row_group, group, node_group, core, node_core,
                tree.columns, tree.order, tree.first, tree.last, tree.low, tree.high, tree.least,
                upper, best, ids, weights,
            )  # fmt: skip

        each(search, [slice(a, a + CHUNK) for a in range(0, m, CHUNK)], task.name, self.progress)
        if task.shared:
            drop_late(ids, weights, upper, np)
        return Found(ids, weights, upper)


def build(values: np.ndarray) -> Tree:
    """The tree of the rows of `values`."""
    n, d = values.shape
    depth = _depth(n)
    nodes = 2 ** (depth + 1) - 1
    first, last = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    low, high = np.empty((nodes, d)), np.empty((nodes, d))
    points, order = values.astype(np.float64), np.arange(n, dtype=np.int32)
    top = min(depth, 4)  # the upper levels one after the other, the subtrees below them in parallel
    first[0], last[0] = 0, n
    _split(points, order, first, last, low, high, 0, top)
    each(
        lambda v: _split(points, order, first, last, low, high, v, depth - top + 1),
        range(2**top - 1, 2 ** (top + 1) - 1),
    )
    at = np.empty_like(order)
    at[order] = np.arange(n, dtype=np.int32)
    columns = np.zeros((d, n + LEAF))
    columns[:, :n] = points.T
    return Tree(columns, order, at, first, last, low, high, _least_rows(first, last, order))


def _depth(n: int) -> int:
    """How many levels of splits n points take."""
    return max(0, int(np.ceil(np.log2(max(n, 1) / LEAF))))


@njit(nogil=True, cache=True)
def _split(points, order, first, last, low, high, root, levels):
    """Boxes and splits of `levels` levels of nodes below and including `root`; a leaf level gets its boxes only."""
    d = points.shape[1]
    leaves = first.size // 2  # the first node of the lowest level
    begin, end = root, root + 1
    for _ in range(levels):
        for v in range(begin, end):
            a, b = first[v], last[v]
            axis, widest = 0, -1.0
            for f in range(d):
                lo, hi = np.inf, -np.inf
                for p in range(a, b):
                    lo, hi = min(lo, points[p, f]), max(hi, points[p, f])
                low[v, f], high[v, f] = lo, hi
                if hi - lo > widest:
                    axis, widest = f, hi - lo
            if v < leaves:
                middle = (a + b) // 2
                _select(points, order, a, b, middle, axis)
                first[2 * v + 1], last[2 * v + 1] = a, middle
                first[2 * v + 2], last[2 * v + 2] = middle, b
        begin, end = 2 * begin + 1, 2 * end + 1


@njit(nogil=True, cache=True)
def _select(points, order, a, b, middle, axis):
    """Reorder points a..b so that none before `middle` is above any after it along `axis` (Hoare's quickselect)."""
    lo, hi = a, b - 1
    while lo < hi:
        x, y, z = points[lo, axis], points[(lo + hi) // 2, axis], points[hi, axis]
        pivot = max(min(x, y), min(max(x, y), z))
        i, j = lo, hi
        while i <= j:
            while points[i, axis] < pivot:
                i += 1
            while points[j, axis] > pivot:
                j -= 1
            if i <= j:
                for f in range(points.shape[1]):
                    points[i, f], points[j, f] = points[j, f], points[i, f]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            hi = j
        elif middle >= i:
            lo = i
        else:
            return


@njit(nogil=True, cache=True)
def _least_rows(first, last, order):
    """The least row of each node: among points at one distance only rows before those listed are of interest."""
    least = np.empty(first.size, np.int32)
    for v in range(first.size - 1, -1, -1):
        if 2 * v + 1 < first.size:
            least[v] = min(least[2 * v + 1], least[2 * v + 2])
        else:
            least[v] = np.iinfo(np.int32).max
            for p in range(first[v], last[v]):
                least[v] = min(least[v], order[p])
    return least


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
def _least_cores(first, last, core):
    """The least core of each node's points, if there are cores."""
    nodes = first.size if core.size else 0
    least = np.full(nodes, np.inf)
    for v in range(nodes - 1, -1, -1):
        if 2 * v + 1 < nodes:
            least[v] = min(least[2 * v + 1], least[2 * v + 2])
        else:
            for p in range(first[v], last[v]):
                least[v] = min(least[v], core[p])
    return least


@njit(nogil=True, cache=True)
def _locate(rule, points, low, high, first):
    """For each column of `points` the first tree position of a leaf near it."""
    at, x = np.empty(points.shape[1], np.int64), np.empty(points.shape[0])
    leaves = first.size // 2
    for p in range(points.shape[1]):
        for f in range(x.size):
            x[f] = points[f, p]
        v = 0
        while v < leaves:
            left, right = 2 * v + 1, 2 * v + 2
            to_left = box_to_box(rule, x, x, low, high, left)
            v = left if to_left <= box_to_box(rule, x, x, low, high, right) else right
        at[p] = first[v]
    return at


@njit(nogil=True, cache=True)
def _query(
    rule, points, place, start, rows, row_group, group, node_group, core, node_core,
    columns, order, first, last, low, high, least, upper, best, ids, weights,
):  # fmt: skip
    """The lists of some rows, whose points are the columns `place` of `points`, near position `start` of the tree.

    `best`, if not empty, holds a bound for each group that all its rows share. Several threads lower it without a lock:
    a value read late or an update lost leaves a bound that is too high, which costs time and never a neighbour.
    """
    d, k = points.shape[0], ids.shape[1]
    leaves = first.size // 2
    near = np.empty(LEAF)
    stack, gaps = np.empty(128, np.int64), np.empty(128)  # nodes to search and how far they are
    # The rows that search together, by lane: features, cores, groups, bounds, the last id that matters at the bound,
    # how far they are from a node, and whether they have to look into it.
    x, lowest, highest, cores = np.zeros((d, LEAF)), np.empty(d), np.empty(d), np.zeros(LEAF)
    mine, bound, last_id, apart = np.empty(LEAF, np.int64), np.empty(LEAF), np.empty(LEAF, np.int32), np.empty(LEAF)
    has_to = np.empty(LEAF, np.bool_)
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
            lowest[f], highest[f] = np.inf, -np.inf
            for j in range(m):
                x[f, j] = points[f, place[begin + j]]
                lowest[f], highest[f] = min(lowest[f], x[f, j]), max(highest[f], x[f, j])
        common = row_group[rows[begin]]  # the group of all, or -1
        bound[:], last_id[:] = -1.0, ANY_ID  # of a lane without a row nothing is within the bound
        for j in range(m):
            q = rows[begin + j]
            mine[j], bound[j] = row_group[q], upper[q]
            common = common if mine[j] == common else -1
            if best.size:
                bound[j] = min(bound[j], best[mine[j]])
            if core.size:
                cores[j] = core[start[begin + j]]
        farthest = bound.max()
        v = visit = leaf
        while True:
            # Search the subtree `visit`, then step up from v and take the sibling. Of two children that are as near the
            # one with the least row comes first: among equal points few are looked at then.
            stack[0], gaps[0], height = visit, box_to_box(rule, lowest, highest, low, high, visit), 1
            while height:
                height -= 1
                node = stack[height]
                if gaps[height] > farthest or (node_group[node] == common and common >= 0):
                    continue
                if m > 1:
                    to_boxes(rule, x, low, high, node, apart)
                else:  # the box of one point
                    apart[0] = gaps[height]
                floor = node_core[node] if core.size else 0.0
                within = 0
                for j in range(LEAF):
                    apart[j] = max(apart[j], cores[j], floor)
                    nearer = (apart[j] < bound[j]) | ((apart[j] == bound[j]) & (least[node] <= last_id[j]))
                    has_to[j] = nearer & (node_group[node] != mine[j])
                    within += has_to[j]
                if not within:
                    continue
                if node < leaves:
                    far, close = 2 * node + 1, 2 * node + 2
                    far_gap = box_to_box(rule, lowest, highest, low, high, far)
                    close_gap = box_to_box(rule, lowest, highest, low, high, close)
                    if far_gap < close_gap or (far_gap == close_gap and least[far] < least[close]):
                        far, close, far_gap, close_gap = close, far, close_gap, far_gap
                    stack[height], gaps[height] = far, far_gap
                    stack[height + 1], gaps[height + 1] = close, close_gap
                    height += 2
                    continue
                a, found = first[node], False
                for j in range(m):
                    if not has_to[j]:
                        continue
                    q = rows[begin + j]
                    to_points(rule, x, j, columns, a, near)
                    for c in range(last[node] - a):
                        if near[c] <= bound[j] and group[a + c] != mine[j]:
                            other, weight = order[a + c], reachability(near[c], core, start[begin + j], a + c)
                            if weight <= bound[j] and comes_before_last(ids, weights, q, other, weight):
                                insert(ids, weights, q, other, weight)
                                bound[j] = min(bound[j], weights[q, k - 1])
                                found = True
                    if weights[q, k - 1] == bound[j] and ids[q, k - 1] >= 0:
                        last_id[j] = ids[q, k - 1]
                if found and best.size:
                    for j in range(m):
                        best[mine[j]] = min(best[mine[j]], weights[rows[begin + j], 0])
                    for j in range(m):
                        if best[mine[j]] < bound[j]:
                            bound[j], last_id[j] = best[mine[j]], ANY_ID
                if found:
                    farthest = bound.max()
            if v == 0:
                break
            visit = v + 1 if v % 2 else v - 1
            v = (v - 1) // 2
        for j in range(m):
            upper[rows[begin + j]] = bound[j]
        begin += m
