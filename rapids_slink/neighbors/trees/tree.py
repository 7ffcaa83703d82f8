"""A k-d tree of points, complete and implicit: node v has the children 2v + 1 and 2v + 2.

Every split is at the median of the widest side, and the points are stored in the order of the leaves, feature by
feature: column p of `columns` is a point. The surrogate distances of boxes and of points follow the formulas that boxes
bound: squared_euclidean, which is passed as None, and the sums of `add_gap`.
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
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import for_each_chunk, workers

LEAF = 32  # points at most
SERIAL_POINTS = 2**13  # a tree of up to this number of points is built in less time than threads take to start
SAMPLED_BALLS, BALL_POINTS = 16, 16


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
