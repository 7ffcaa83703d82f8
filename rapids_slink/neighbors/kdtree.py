"""Search in few dimensions on a CPU: a k-d tree, its walk, which offers points to a reducer, and lists of the nearest.

The tree is complete and implicit: node v has the children 2v + 1 and 2v + 2. Every split is at the median of the widest
side, and the points are stored in the order of the leaves, feature by feature: column p of `columns` is a point. The
surrogate distances of boxes and of points follow the formulas that boxes bound: squared_euclidean, which is passed as
None, and the sums of `add_gap`.

*The walk.* The rows that start in one leaf, at most `LEAF`, search together, in vector instructions, one row to a lane:
from their leaf they step up to the root, and at each step search the sibling's subtree, nearer child first, if any
row's bound reaches it. `box_to_box` is a lower bound of the surrogate distances between points of two boxes.

A reducer is a class of named tuples. Its methods say what it does at the stages of a walk: `load`, `visits`, `meet` and
`finish`. The functions of these names here do what a class without the method does. Numba chooses by the class, so that
a walk is read from the cache, as one that takes functions is not. All are inlined: as calls, some would cost up to a
quarter of the time.

*Lists.* They begin with the nearest points of the leaf that the rows start in, sorted, unless they are very short. Each
distance of a row is compared with all, in vector instructions. Inserted one by one, 12 of a leaf's 30 points would go
into a list of five, and which ones is not known before.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from rapids_slink.metrics import OVERFLOW, Metric
from rapids_slink.neighbors.brute_force import BruteForceSearch
from rapids_slink.neighbors.choose import connects
from rapids_slink.neighbors.exact import formulas
from rapids_slink.neighbors.exact.cpu import (
    MAX_LIST,
    NO_CORE,
    comes_before_last,
    components,
    insert,
    reachability,
)
from rapids_slink.neighbors.exact.formulas import CHEBYSHEV, MANHATTAN, MINKOWSKI, is_half_integer, power
from rapids_slink.neighbors.task import Search, SearchResult, SearchTask, drop_above_bound, inverse
from rapids_slink.ordering import stable_order
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.memory import MemoryEstimate
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk, workers

LEAF = 32  # points at most
SERIAL_POINTS = 2**13  # a tree of up to this number of points is built in less time than threads take to start
SAMPLED_BALLS, BALL_POINTS = 16, 16
#: Inlined functions count no references to the arrays of their tuples, which takes a third of the time, and make none.
INLINED: Any = {"nogil": True, "forceinline": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class Tree(NamedTuple):
    """A k-d tree."""

    columns: np.ndarray  # (d, n + LEAF) float64, the points' features in the order of the leaves, and zeros to read on
    order: np.ndarray  # (n,) int32, the row of each of them
    position: np.ndarray  # (n,) int32, the inverse of `order`
    #: `first` and `last`: (nodes,) int64; node v holds points first[v] to last[v] - 1
    first: np.ndarray
    last: np.ndarray
    #: `low` and `high`: (nodes, d) float64, the nodes' bounding boxes
    low: np.ndarray
    high: np.ndarray
    #: (nodes,) int32, the least row of each node; of points at one distance only rows before those listed matter
    least: np.ndarray


def build(values: np.ndarray) -> Tree:
    """Return the k-d tree of the rows of `values`, (n, d)."""
    n, d = values.shape
    depth = depth_of(n)
    nodes = 2 ** (depth + 1) - 1
    first, last = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    low, high = np.empty((nodes, d)), np.empty((nodes, d))
    columns, order = np.zeros((d, n + LEAF)), np.arange(n, dtype=np.int32)
    columns[:, :n] = values.T
    value, source = np.empty(n), np.empty(n, np.int32)
    split = partial(_split, columns, order, first, last, low, high, value, source)
    # The upper levels are split one after the other, then each thread splits a subtree. A tree of few points is split
    # as a whole.
    top = min(depth, (workers(CPU) - 1).bit_length()) if n > SERIAL_POINTS else 0
    first[0], last[0] = 0, n
    split(0, top)
    subtrees = range(2**top - 1, 2 ** (top + 1) - 1)
    for_each_chunk(CPU, lambda v: split(v, depth - top + 1), subtrees)
    return Tree(columns, order, inverse(order, np), first, last, low, high, least_of_nodes(first, order))


def touched_share(tree: Tree, metric: Metric) -> float:
    """Return the share of the leaves that a ball of `BALL_POINTS` points touches, the mean of a sample.

    A search visits at least these leaves. The share is small if the intrinsic dimension is small: along curves, or in
    well-separated clusters.
    """
    k = min(BALL_POINTS, tree.order.size) - 1
    return float(np.mean([_share(tree, metric, p, np.partition(far, k)[k]) for p, far in _samples(tree, metric)]))


def share_between(tree: Tree, metric: Metric, component: np.ndarray) -> float:
    """Return the share of the leaves that a ball up to the nearest point of another component touches.

    It is the median of a sample. A search that connects components visits these leaves, or fewer. The share is 0 for
    points of the largest component, which does not search. `component`, (n,), has the rows' labels.
    """
    label, shares = component[tree.order], []
    largest = np.bincount(label).argmax()
    for p, distance in _samples(tree, metric):
        radius = distance.min(where=label != label[p], initial=np.inf)
        shares.append(0.0 if label[p] == largest else _share(tree, metric, p, radius))
    return float(np.median(shares))


def _samples(tree: Tree, metric: Metric) -> Iterator[tuple[int, np.ndarray]]:
    """Yield some points, by position, and their distances to all points, which are valid until the next."""
    distance = np.empty(tree.order.size)
    for p in np.random.default_rng(0).integers(0, distance.size, SAMPLED_BALLS).tolist():
        _distances(metric.cpu_formula, tree, p, distance)
        yield p, distance


def _share(tree: Tree, metric: Metric, p: int, radius: float) -> float:
    """Return the share of the leaves that are within a radius of point p."""
    touched = count_touched(metric.cpu_formula, tree, tree.columns, np.array([p]), radius)
    return float(touched / -(-tree.order.size // LEAF))


@njit(nogil=True, cache=True)
def _distances(formula, tree, p, out):
    """Write the surrogate distances from point p to all points into `out`."""
    to_points(formula, tree.columns, p, tree.columns, 0, out, True)


@njit(nogil=True, cache=True)
def count_touched(formula, tree, columns, at, radius):
    """Count the leaves whose boxes are within a radius of a point, summed over the points `columns[:, at]`."""
    x, count = np.empty(columns.shape[0]), 0
    for p in at:
        for f in range(x.size):
            x[f] = columns[f, p]
        for leaf in range(tree.first.size // 2, tree.first.size):
            count += box_to_box(formula, x, x, tree.low, tree.high, leaf) <= radius
    return count


def depth_of(n: int) -> int:
    """Return the number of levels of splits that n points take."""
    return max(0, int(np.ceil(np.log2(max(n, 1) / LEAF))))


@njit(nogil=True, cache=True)
def _split(columns, order, first, last, low, high, value, source, root, levels):
    """Make the boxes and splits of `levels` levels of nodes, of which `root` is the first; leaves get boxes only."""
    d = columns.shape[0]
    leaves = first.size // 2  # the first node of the lowest level
    begin, end = root, root + 1
    for _ in range(levels):
        for v in range(begin, end):
            a, b = first[v], last[v]
            axis, widest = 0, -1.0
            for f in range(d):
                low[v, f], high[v, f] = _extent(columns, f, a, b)
                if high[v, f] - low[v, f] > widest:
                    axis, widest = f, high[v, f] - low[v, f]
            if v < leaves:
                middle = (a + b) // 2
                for p in range(np.uint64(a), np.uint64(b)):
                    value[p], source[p] = columns[axis, p], p
                _select(value, source, a, b, middle)
                _move(columns, order, source, a, b, value)
                first[2 * v + 1], last[2 * v + 1] = a, middle
                first[2 * v + 2], last[2 * v + 2] = middle, b
        begin, end = 2 * begin + 1, 2 * end + 1


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _extent(columns, f, a, b):
    """Return the least and the largest value of feature f among points a..b."""
    lo, hi = np.inf, -np.inf
    for p in range(np.uint64(a), np.uint64(b)):
        lo, hi = min(lo, columns[f, p]), max(hi, columns[f, p])
    return lo, hi


@njit(nogil=True, cache=True)
def _select(value, source, a, b, middle):
    """Reorder a..b so that no value before `middle` is above any after it (quickselect)."""
    while a < b - 1:
        x, y, z = value[a], value[(a + b) // 2], value[b - 1]
        pivot = max(min(x, y), min(max(x, y), z))
        split = _partition(value, source, a, b, pivot, np.nan)
        if middle < split:
            b = split
        elif split > a:
            a = split
        else:  # none is below the pivot
            a = _partition(value, source, a, b, pivot, pivot)
            if middle < a:
                return


@njit(nogil=True, cache=True)
def _partition(value, source, a, b, bound, also):
    """Bring values below `bound`, and those equal to `also`, to the front; return where the others begin.

    Lomuto's way, since it takes no branch that would be mispredicted.
    """
    split = np.uint64(a)
    for p in range(np.uint64(a), np.uint64(b)):
        comes_first = (value[p] < bound) | (value[p] == also)
        value[p], value[split] = value[split], value[p]
        source[p], source[split] = source[split], source[p]
        split += np.uint64(comes_first)
    return np.int64(split)


@njit(nogil=True, cache=True)
def _move(columns, order, source, a, b, moved):
    """Move the points `source` to a..b, by way of `moved`."""
    a, b = np.uint64(a), np.uint64(b)
    for f in range(columns.shape[0]):
        for p in range(a, b):
            moved[p] = columns[f, source[p]]
        for p in range(a, b):
            columns[f, p] = moved[p]
    for p in range(a, b):
        source[p] = order[source[p]]
    for p in range(a, b):
        order[p] = source[p]


def least_of_nodes(first: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the least of `values`, which are by position, among each node's points: (nodes,)."""
    least, begin = np.empty(first.size, values.dtype), first.size // 2
    least[begin:] = np.minimum.reduceat(values, first[begin:])
    while begin:  # a level from its children
        least[begin // 2 : begin] = least[begin : 2 * begin + 1].reshape(-1, 2).min(axis=1)
        begin //= 2
    return least


def groups_of_nodes(first: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return for each node the exclusion id that all its points share, or -1: (nodes,) int32."""
    least = least_of_nodes(first, group)
    return np.where(least == -least_of_nodes(first, -group), least, np.int32(-1))


def or_in_space(spatial: Any) -> Callable[[Any], Any]:
    """Return a decorator: compiled code calls the decorated function or, with a `SpatialFormula`, `spatial`.

    Both are inlined.
    """

    def decorate(function: Any) -> Any:
        @overload(function, strict=False, jit_options={"nogil": True, "forceinline": True})
        def choose(formula: Any, *_: Any) -> Any:
            return spatial.py_func if isinstance(formula, types.NamedUniTuple) else function

        return function

    return decorate


@njit(nogil=True, cache=True, forceinline=True)
def add_gap(formula, total, gap):
    """Return the formula's sum with one more difference of features in it."""
    if formula is None:
        return total + gap * gap
    kind, p = formula
    if kind == MANHATTAN:
        return total + abs(gap)
    if kind == CHEBYSHEV:
        return max(total, abs(gap))
    return min(total + power(abs(gap), p), OVERFLOW)


@or_in_space(formulas.box_to_box_in_space)
def box_to_box(formula, lowest, highest, low, high, v):
    """Return a lower bound of the surrogate distances between a box, or a point, and the points of box v.

    It is the formula of the features' gaps between the boxes. Each gap is at most the difference of two points inside,
    rounding is monotone, and sums are taken in the same order.
    """
    total = 0.0
    for f in range(lowest.size):
        total = add_gap(formula, total, max(low[v, f] - highest[f], lowest[f] - high[v, f], 0.0))
    return _surely_below(formula, total)


@or_in_space(formulas.may_wrap_in_space)
def may_wrap(formula, lowest, highest, low, high, v):
    """Return whether the nearest images of points of two boxes may be others than the points.

    There are images only in a space that repeats.
    """
    return False


@or_in_space(formulas.to_boxes_in_space)
def to_boxes(formula, points, low, high, v, out, wraps):
    """Write `box_to_box` of as many points as `out` has and box v into it, in vector instructions.

    `wraps` is what `may_wrap` returns.
    """
    for j in range(out.size):
        out[j] = 0.0
    for f in range(points.shape[0]):
        for j in range(np.uint64(out.size)):
            gap = max(low[v, f] - points[f, j], points[f, j] - high[v, f], 0.0)
            out[j] = add_gap(formula, out[j], gap)
    for j in range(out.size):
        out[j] = _surely_below(formula, out[j])


@njit(nogil=True, cache=True, forceinline=True)
def _surely_below(formula, total):
    """Return a box's sum, less the error of `general_power`.

    That power need not be monotone, but its relative error is below 2⁻⁴⁸.
    """
    return total * (1 - 2.0**-44) if _has_general_power(formula) else total


@njit(nogil=True, cache=True, forceinline=True)
def surely_above(formula, total):
    """Return a sum of the largest gaps of boxes, plus the error of `general_power`."""
    return total * (1 + 2.0**-44) if _has_general_power(formula) else total


@njit(nogil=True, cache=True, forceinline=True)
def _has_general_power(formula):
    if formula is None:
        return False
    kind, p = formula
    return kind == MINKOWSKI and not is_half_integer(p)


@or_in_space(formulas.to_points_in_space)
def to_points(formula, points, p, columns, a, out, wraps):
    """Write the surrogate distances of point p and the columns from `a` on, as many as `out` has, into it.

    `wraps` is what `may_wrap` returns. Unsigned indices let LLVM vectorize the loops.
    """
    a = np.uint64(a)
    for j in range(out.size):
        out[j] = 0.0
    for f in range(points.shape[0]):
        for j in range(np.uint64(out.size)):
            out[j] = add_gap(formula, out[j], points[f, p] - columns[f, a + j])


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
    #: `bound`, `core` and `group`: (LEAF,) arrays: distance bounds, core distances and exclusion ids. A lane without a
    #: row has the bound -1: nothing is within it
    bound: np.ndarray
    core: np.ndarray
    group: np.ndarray
    last_id: np.ndarray  # (LEAF,) int32; of points at the bound only those with smaller ids matter
    distance: np.ndarray  # (LEAF,) float64, from the node under test
    must_visit: np.ndarray  # (LEAF,) bool, whether the row has to visit that node
    near: np.ndarray  # (LEAF,) float64, the distances of one row from a leaf's points
    nearest: np.ndarray  # (LEAF,) int64, the positions of these points in the leaf, in some order
    ids: np.ndarray  # (LEAF,) float64, the rows of these points


def stage(default: Any) -> Any:
    """Return a function in whose place compiled code calls the reducer's method of the same name, if it has one."""

    @overload(default, strict=False, jit_options=INLINED)
    def choose(reducer: Any, *_: Any) -> Any:
        return getattr(reducer.instance_class, default.__name__, default)

    return default


@stage
def load(reducer, queries, begin, m, lanes):
    """Put the bounds of m rows from `begin` on into their lanes; return the largest, and the rows' one id or -1."""
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
    """Return for each column of `points` the first position, in the tree's order, of a leaf near it, int64."""
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


ANY_ID = np.iinfo(np.int32).max


class TopK(NamedTuple):
    """A reducer: the k nearest points of each row, in sorted lists, which a walk empties first.

    Several threads lower the minima of exclusion ids without a lock: a value read late or an update lost leaves a bound
    that is too high, which costs time and never a neighbour.
    """

    upper: np.ndarray  # (m,) float64, the rows' bounds
    minima: np.ndarray  # float64, the least distance found by exclusion id; empty if it is not wanted
    ids: np.ndarray  # (m, k) int32
    weights: np.ndarray  # (m, k) float64
    row_group: np.ndarray  # (m,) int32, the rows' exclusion ids
    #: `group` and the core distances exclude pairs: by position, and by node. A node's exclusion id is the one that all
    #: its points share, or -1; its core distance is the least of its points'
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
    """Lower the exclusion ids' minima to the lanes' nearest, and the lanes' bounds to the minima."""
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
        share, n = share_between(self.tree, self.metric, component), len(ids)
        number = int(np.count_nonzero(component == np.arange(n)))
        return (lambda: self) if connects(number, n, n // 2, self.report, share) == "tree" else self.follower

    def find(self, task: SearchTask) -> SearchResult:
        """Return the nearest points of a task's rows, as a `SearchResult`."""
        if task.k > MAX_LIST:
            among_all = BruteForceSearch(self.values, CPU, self.report, self.queries, self.progress, self.metric)
            return among_all.find(task)
        tree, m = self.tree, task.rows.size
        group = task.point_group[tree.order]
        core = NO_CORE if task.core is None else task.core[tree.order]
        node_core = NO_CORE if task.core is None else least_of_nodes(tree.first, core)
        minima = np.full(task.row_group.size if task.only_minima else 0, np.inf)
        ids, weights = np.empty((m, task.k), np.int32), np.empty((m, task.k))
        row_group, node_group = task.row_group[task.rows], groups_of_nodes(tree.first, group)
        lists = TopK(task.bounds(np), minima, ids, weights, row_group, group, node_group, core, node_core)
        queries = self._queries(task)

        def search(at: slice) -> None:
            walk(self.metric.cpu_formula, tree, queries.take(at), lists)

        for_each_chunk(CPU, search, chunks_for_cores(m, MIN_CHUNK, MAX_CHUNK), task.progress(self.progress))
        if task.only_minima:
            drop_above_bound(ids, weights, lists.upper, np)
        return SearchResult(ids, weights, lists.upper)

    def _queries(self, task: SearchTask) -> Queries:
        """Return the task's rows in the order of the tree's leaves, so that consecutive ones visit the same nodes."""
        tree = self.tree
        if self.queries is None:
            row_at: np.ndarray = np.full(tree.order.size, -1, np.int32)  # which of the task's rows has each position
            row_at[tree.position[task.rows]] = np.arange(task.rows.size, dtype=np.int32)
            start = np.flatnonzero(row_at >= 0)
            return Queries(tree.columns, start, start, row_at[start])
        points = np.ascontiguousarray(self.queries[task.rows].T, np.float64)
        return by_leaves(points, locate(self.metric.cpu_formula, points, tree.low, tree.high, tree.first))
