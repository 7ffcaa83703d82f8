"""A k-d tree of points on a CPU, and its walk, which offers the points near some rows to a reducer.

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
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from rapids_slink.metrics import OVERFLOW, Metric
from rapids_slink.neighbors.exact import formulas
from rapids_slink.neighbors.exact.formulas import CHEBYSHEV, MANHATTAN, MINKOWSKI, is_half_integer, power
from rapids_slink.neighbors.task import inverse
from rapids_slink.ordering import stable_order
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import for_each_chunk, workers

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
    #: (nodes,) int32, the least row of each; of points at one distance only rows before those listed matter
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

    def split(root: int, levels: int) -> None:
        _split(columns, order, first, last, low, high, value, source, root, levels)

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
    """Return for each node the group that all its points share, or -1: (nodes,) int32."""
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
