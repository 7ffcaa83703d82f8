"""The walk of the k-d tree on a CPU: it offers the points near some rows to a reducer, which keeps what is wanted.

The rows that start in one leaf, at most `LEAF`, search together, in vector instructions, one row to a lane: from their
leaf they step up to the root, and at each step search the sibling's subtree, nearer child first, if any row's bound
reaches it. `tree.box_to_box` is a lower bound of the surrogate distances between points of two boxes.

A reducer is a class of named tuples. Its methods say what it does at the stages of a walk: `load`, `visits`, `meet` and
`finish`. The functions of these names here do what a class without the method does. Numba chooses by the class, so that
a walk is read from the cache, as one that takes functions is not. All are inlined: as calls, some would cost up to a
quarter of the time.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from rapids_slink.neighbors.trees.tree import LEAF, box_to_box, may_wrap, to_boxes
from rapids_slink.ordering import stable_order
from rapids_slink.runtime.compiling import njit

#: Inlined functions count no references to the arrays of their tuples, which takes a third of the time, and make none.
INLINED: Any = {"nogil": True, "forceinline": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class Queries(NamedTuple):
    """Rows that search together; all arrays are (m,), except the points."""

    points: np.ndarray  # (d, m') float64, their features: those of row i are column column[i]
    column: np.ndarray  # int array
    start: np.ndarray  # int array, the tree position at which each starts, ascending
    rows: np.ndarray  # int array, which of the task's rows each is

    def take(self, some: slice) -> "Queries":
        """Return some of the rows."""
        return self._replace(column=self.column[some], start=self.start[some], rows=self.rows[some])


class Lanes(NamedTuple):
    """The rows that search together, at most `LEAF`, one to a lane."""

    x: np.ndarray  # (d, LEAF) float64, their features
    #: `low` and `high`: (d,) float64, their bounding box
    low: np.ndarray
    high: np.ndarray
    #: `bound`, `core` and `group`: (LEAF,) arrays: their distance bounds, core distances and groups. A lane without a
    #: row has the bound -1: nothing is within it
    bound: np.ndarray
    core: np.ndarray
    group: np.ndarray
    last_id: np.ndarray  # (LEAF,) int32; of points at the bound only those with smaller ids matter
    distance: np.ndarray  # (LEAF,) float64, from the node under test
    must_visit: np.ndarray  # (LEAF,) bool, whether the row has to visit that node
    near: np.ndarray  # (LEAF,) float64, the distances of one row from a leaf's points
    nearest: np.ndarray  # (LEAF,) int64, the places of these points in some order
    ids: np.ndarray  # (LEAF,) float64, the rows of these points


def stage(default: Any) -> Any:
    """Return a function that compiled code replaces by the method of its name of a reducer's class, if there is one."""

    @overload(default, strict=False, jit_options=INLINED)
    def choose(reducer: Any, *_: Any) -> Any:
        return getattr(reducer.instance_class, default.__name__, default)

    return default


@stage
def load(reducer, queries, begin, m, lanes):
    """Put the bounds of m rows from `begin` on into their lanes; return the largest, and the rows' one group or -1."""
    lanes.bound[:m] = reducer.limit
    return reducer.limit, np.int64(-1)


@stage
def visits(reducer, formula, tree, node, gap, m, shared_group, wraps, lanes):
    """Return whether any of m rows has to visit a node, which is `gap` from their box."""
    return True


@stage
def meet(reducer, formula, tree, queries, begin, m, node, leaf, wraps, lanes, largest):
    """Offer the points of the leaf `node` to m rows, which start in `leaf`; return the largest bound of all lanes."""
    return largest


@stage
def finish(reducer, queries, begin, m, lanes):
    """Keep what m rows have found; return whether there was room for it."""
    return True


@njit(nogil=True, cache=True)
def walk(formula, tree, queries, reducer):
    """Offer the points near some rows to a reducer; return the number of rows that it had room for."""
    first, last, low, high, start = tree.first, tree.last, tree.low, tree.high, queries.start
    stack, gaps = np.empty(128, np.int64), np.empty(128)  # nodes to visit, and their distances from the rows' box
    lanes = _new_lanes(queries.points.shape[0])
    box_low, box_high = lanes.low, lanes.high
    begin, leaf = np.int64(0), _first_leaf(start, last)  # no literal: `_fill` would be compiled for it too
    while begin < start.size:
        leaf, m = _rows_together(start, begin, last, leaf)
        _fill(queries, begin, m, lanes)
        largest, shared_group = load(reducer, queries, begin, m, lanes)
        v = visit = leaf
        while True:  # search the subtree `visit`, then step up from v and take the sibling
            stack[0], gaps[0], height = visit, box_to_box(formula, box_low, box_high, low, high, visit), 1
            while height:
                height -= 1
                node = stack[height]
                if gaps[height] > largest:
                    continue
                wraps = may_wrap(formula, box_low, box_high, low, high, node)
                if not visits(reducer, formula, tree, node, gaps[height], m, shared_group, wraps, lanes):
                    continue
                if 2 * node + 1 < first.size:
                    _push_children(formula, tree, node, lanes, stack, gaps, height)
                    height += 2
                    continue
                largest = meet(reducer, formula, tree, queries, begin, m, node, leaf, wraps, lanes, largest)
            if v == 0:
                break
            visit, v = v + 1 if v % 2 else v - 1, (v - 1) // 2
        if not finish(reducer, queries, begin, m, lanes):
            break
        begin += m
    return begin


@njit(cache=True, **INLINED)
def _first_leaf(start, last):
    """Return the leaf that holds the first of the start positions."""
    leaf = 0
    while start.size and leaf < last.size // 2:
        leaf = 2 * leaf + 1 if start[0] < last[2 * leaf + 1] else 2 * leaf + 2
    return leaf


@njit(cache=True, **INLINED)
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
    bound, core, group, last_id = np.empty(LEAF), np.zeros(LEAF), np.empty(LEAF, np.int64), np.empty(LEAF, np.int32)
    distance, must_visit, near = np.empty(LEAF), np.empty(LEAF, np.bool_), np.empty(LEAF)
    nearest, ids = np.empty(LEAF, np.int64), np.empty(LEAF)
    return Lanes(x, low, high, bound, core, group, last_id, distance, must_visit, near, nearest, ids)


@njit(cache=True, **INLINED)
def _fill(queries, begin, m, lanes):
    """Put the features of m rows and their box into the lanes, and the bound -1."""
    points, column, x, low, high, bound = queries.points, queries.column, lanes.x, lanes.low, lanes.high, lanes.bound
    for f in range(points.shape[0]):
        low[f], high[f] = np.inf, -np.inf
        for j in range(m):
            x[f, j] = points[f, column[begin + j]]
            low[f], high[f] = min(low[f], x[f, j]), max(high[f], x[f, j])
    bound[:] = -1.0


@njit(cache=True, **INLINED)
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


@njit(cache=True, **INLINED)
def largest_bound(bound):
    """Return the largest bound of all lanes; `bound.max()` takes Numba half a second to compile."""
    largest = bound[0]
    for j in range(1, LEAF):
        largest = max(largest, bound[j])
    return largest


@njit(cache=True, **INLINED)
def mark_near(formula, tree, node, wraps, lanes):
    """Mark the lanes whose bounds reach the box of a node."""
    distance, bound, must_visit = lanes.distance, lanes.bound, lanes.must_visit
    to_boxes(formula, lanes.x, tree.low, tree.high, node, distance, wraps)
    for j in range(LEAF):
        must_visit[j] = distance[j] <= bound[j]


def by_leaves(points: np.ndarray, start: np.ndarray, first: int = 0) -> Queries:
    """Return as queries, in the order of leaves, the points from column `first` on, which start at these positions."""
    order = stable_order(start, np)
    return Queries(points, order + first, start[order], (order + first).astype(np.int32))


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
