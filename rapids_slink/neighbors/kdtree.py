"""All-pairs search in few dimensions on the CPU: a k-d tree in Numba.

The tree is complete and implicit: node v has the children 2v + 1 and 2v + 2, every split is at the median of the
widest side, and the points stand in the order of the leaves. A query starts at its own leaf and climbs: at each
step up it searches the sibling's subtree, nearer child first.

Pruning needs no tolerance. The distance to a box is computed as the distance to a point is, feature by feature in the
same order; rounding is monotone, so it never exceeds the computed distance to a point inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from rapids_slink.device import Device
from rapids_slink.memory import Need
from rapids_slink.neighbors.contract import Found, Task
from rapids_slink.neighbors.cpu import NO_CORE, comes_before_last, each, insert, out_of_reach, reachability
from rapids_slink.report import Report

LEAF = 12
CHUNK = 4096


@dataclass(frozen=True)
class Tree:
    """A k-d tree.

    Attributes
    ----------
    points : (n, d) float64 array, in the order of the leaves
    order : (n,) int32 array, the row of each of them
    at : (n,) int32 array, the inverse of `order`
    first, last : (nodes,) int64 arrays
        Node v holds points first[v] to last[v] - 1.
    low, high : (nodes, d) float64 arrays, the nodes' bounding boxes
    least : (nodes,) int32 array, the least row of each node
    """

    points: np.ndarray
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
    ) -> None:
        self.tree = build(values)
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
        upper = task.upper.copy()
        group = task.column_group[tree.order]
        node_group = _node_groups(tree.first, tree.last, group)
        core = NO_CORE if task.core is None else task.core[tree.order]
        node_core = _least_cores(tree.first, tree.last, core)
        best = np.full(int(task.row_group.max()) + 1 if task.shared and m else 0, np.inf)
        if self.queries is None:
            points, start = tree.points[tree.at[task.rows]], tree.at[task.rows]
        else:
            points = self.queries[task.rows].astype(np.float64)
            start = _locate(points, tree.low, tree.high, tree.first)
        queue = np.argsort(
            start, kind="stable"
        )  # neighbours in space one after the other: their nodes are in the cache

        def search(at: np.ndarray) -> None:
            _query(
                points, start, task.row_group[task.rows], at, group, node_group, core, node_core,
                tree.points, tree.order, tree.first, tree.last, tree.low, tree.high, tree.least,
                upper, best, ids, weights,
            )  # fmt: skip

        each(search, [queue[a : a + CHUNK] for a in range(0, m, CHUNK)], task.name, self.progress)
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
    return Tree(points, order, at, first, last, low, high, _least_rows(first, last, order))


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
def _locate(points, low, high, first):
    """For each point the first tree position of a leaf near it."""
    at = np.empty(points.shape[0], np.int64)
    leaves = first.size // 2
    for i in range(points.shape[0]):
        v = 0
        while v < leaves:
            left, right = 2 * v + 1, 2 * v + 2
            v = left if _box(points[i], low[left], high[left]) <= _box(points[i], low[right], high[right]) else right
        at[i] = first[v]
    return at


@njit(nogil=True, cache=True, inline="always")
def _box(x, low, high):
    """The squared distance of a point to a box, in the canonical order of features."""
    total = 0.0
    for f in range(x.size):
        gap = max(low[f] - x[f], x[f] - high[f], 0.0)
        total += gap * gap
    return total


@njit(nogil=True, cache=True)
def _query(
    queries, start, query_group, at, group, node_group, core, node_core,
    points, order, first, last, low, high, least, upper, best, ids, weights,
):  # fmt: skip
    """The lists of queries `at`; `best`, if not empty, holds a bound for each group that all its queries share.

    Several threads lower `best` without a lock: a value read late or an update lost leaves a bound that is too high,
    which costs time and never a neighbour.
    """
    d, k = points.shape[1], ids.shape[1]
    leaves = first.size // 2
    stack = np.empty(128, np.int64)
    for q in at:
        x, mine, my_ids, my_weights = queries[q], query_group[q], ids[q], weights[q]
        bound = upper[q]
        if best.size and best[mine] < bound:
            bound = best[mine]
        # The leaf that holds position start[q]: descend by position.
        v = 0
        while v < leaves:
            v = 2 * v + 1 if start[q] < last[2 * v + 1] else 2 * v + 2
        visit = v
        while True:
            # Search the subtree `visit`, then step up from v and take the sibling.
            stack[0], height = visit, 1
            while height:
                height -= 1
                node = stack[height]
                if node_group[node] == mine:
                    continue
                gap = _box(x, low[node], high[node])
                if core.size:
                    gap = max(gap, core[start[q]], node_core[node])
                if gap > bound or (gap == my_weights[k - 1] and least[node] > my_ids[k - 1] >= 0):
                    continue
                if node < leaves:
                    left, right = 2 * node + 1, 2 * node + 2
                    if _box(x, low[left], high[left]) <= _box(x, low[right], high[right]):
                        stack[height], stack[height + 1] = right, left
                    else:
                        stack[height], stack[height + 1] = left, right
                    height += 2
                    continue
                for p in range(first[node], last[node]):
                    if group[p] == mine or out_of_reach(core, p, bound):
                        continue
                    weight = 0.0
                    for f in range(d):
                        difference = x[f] - points[p, f]
                        weight += difference * difference
                    weight = reachability(weight, core, start[q], p)
                    if weight <= bound and comes_before_last(my_ids, my_weights, order[p], weight):
                        insert(my_ids, my_weights, order[p], weight)
                        bound = min(bound, my_weights[k - 1])
            if v == 0:
                break
            visit = v + 1 if v % 2 else v - 1
            v = (v - 1) // 2
        if best.size and my_weights[0] < best[mine]:
            best[mine] = my_weights[0]
        upper[q] = bound
