"""Surrogate distances of boxes and of points that are stored feature by feature: column p of `points` is a point.

The formulas are those that boxes bound: squared_euclidean, passed as None, and the sums of `add_gap`.
"""

import numpy as np

from rapids_slink.metrics import OVERFLOW
from rapids_slink.neighbors.exact.formulas import CHEBYSHEV, MANHATTAN, MINKOWSKI, is_half_integer, power
from rapids_slink.runtime.compiling import njit


@njit(nogil=True, cache=True, forceinline=True)
def add_gap(formula, total, gap):
    """A sum with one more difference of features."""
    if formula is None:
        return total + gap * gap
    kind, p = formula
    if kind == MANHATTAN:
        return total + abs(gap)
    if kind == CHEBYSHEV:
        return max(total, abs(gap))
    return min(total + power(abs(gap), p), OVERFLOW)


@njit(nogil=True, cache=True, forceinline=True)
def box_to_box(formula, lowest, highest, low, high, v):
    """A lower bound of the surrogate distances between a box, or a point, and the points of box v.

    It is the formula of the features' gaps between the boxes. Each gap is at most the difference of two points inside,
    rounding is monotone, and sums are taken in the same order.
    """
    total = 0.0
    for f in range(lowest.size):
        total = add_gap(formula, total, max(low[v, f] - highest[f], lowest[f] - high[v, f], 0.0))
    return _surely_below(formula, total)


@njit(nogil=True, cache=True, forceinline=True)
def to_boxes(formula, points, low, high, v, out):
    """`box_to_box` of as many points as `out` has and box v, in vector instructions."""
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
    """A box's sum, less the error of `general_power`, which is below 2⁻⁴⁸ relative but need not be monotone."""
    if formula is None:
        return total
    kind, p = formula
    return total * (1 - 2.0**-44) if kind == MINKOWSKI and not is_half_integer(p) else total


@njit(nogil=True, cache=True, forceinline=True)
def to_points(formula, points, p, columns, a, out):
    """The surrogate distances of a point and the columns from `a` on, as many as `out` has.

    Unsigned indices let LLVM vectorize the loops.
    """
    a = np.uint64(a)
    for j in range(out.size):
        out[j] = 0.0
    for f in range(points.shape[0]):
        for j in range(np.uint64(out.size)):
            out[j] = add_gap(formula, out[j], points[f, p] - columns[f, a + j])
