"""The formulas of surrogate distances on the CPU; `formulas.cuh` is the same for the GPU, operation by operation.

A formula is made of sums over the features, one or two. A tile of rows and points is summed at a time, with the points
stored feature by feature: the inner loops run along the points, in vector instructions, and each pass over them adds
four features. Features that are zero in both points fill the last pass up; no term may change a sum then. Powers are
made of operations that give the same bits on every machine.

Nothing here may be compiled with fast math: no sum is reordered and no product fused with a sum.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import typeof, types
from numba.extending import intrinsic

from rapids_slink.metrics import FORMULAS, OVERFLOW, Powers, Present, Products
from rapids_slink.runtime.compiling import njit
from rapids_slink.settings import SpatialFormula

(
    _, MANHATTAN, CHEBYSHEV, MINKOWSKI, CANBERRA, BRAYCURTIS, HAMMING, JACCARD, CONTAINMENT, COSINE,
    INNER_PRODUCT, PRESENT_SQUARES, PRESENT_GAPS, PRESENT_UNEQUAL, HIERCC,
) = range(len(FORMULAS))  # fmt: skip

PASS, LONG_PASS = 4, 8  # features, and codes of features, that are added in one pass
#: The most rows and points of a tile, and the features that it holds at a time: it stays in the second-level cache.
ROWS, POINTS, FEATURES = 64, 256, 64
LANES = 8  # points are padded to a multiple of this
PAIRS = 8  # pairs whose sums are formed together
MAX_PRODUCT = 8  # powers below are products of at most three factors
ALLOWED_MISSING = 0.05  # "hiercc" allows that this share of the features is missing

#: For functions that only kernels call. A division by zero is no error, but gives a value that is not selected.
_kernel = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True)


class Tile(NamedTuple):
    """Memory for a tile of distances."""

    rows: np.ndarray  # (m, FEATURES) float64, some features of its rows
    columns: np.ndarray  # (FEATURES, w) float64, the same features of its points
    #: `total` and `other`: (m, w) float64, the sums; in the end `total` holds the distances
    total: np.ndarray
    other: np.ndarray


def new_tile(rows: int = ROWS) -> Tile:
    """Allocate a tile for `rows` rows and `POINTS` points."""
    width = POINTS + LANES  # no power of two, or a feature's values of all points would share a few cache lines
    columns = np.zeros((FEATURES, width))  # what pads the points must be numbers
    return Tile(np.empty((rows, FEATURES)), columns, np.empty((rows, width)), np.empty((rows, width)))


@njit(nogil=True, cache=True)
def weigh_values(formula, x, rows, y, points, tile):
    """Compute a tile of surrogate distances, as `cpu.weigh` does, for rows of features.

    squared_euclidean is passed as None: Numba compiles each function once more for None, without the branches.
    """
    d = x.shape[1]
    lanes = 0, -(-points.size // LANES) * LANES
    for begin in range(0, d, FEATURES):
        width = min(FEATURES, d - begin)
        copy_features(x, rows, begin, width, tile.rows)
        copy_features(y, points, begin, width, tile.columns.T)
        for i in range(rows.size):
            add_features(formula, tile.rows, tile.columns, (tile.total, tile.other), i, lanes, (begin, d))


@njit(nogil=True, forceinline=True)
def copy_features(values, rows, begin, width, out):
    """Copy some features of some rows into `out`, and zeros behind them to fill the last pass up.

    Unsigned indices are not tested for signs.
    """
    begin, width = np.uint64(begin), np.uint64(width)
    for i in range(rows.size):
        row = np.uint64(rows[i])
        for f in range(width):
            out[i, f] = values[row, begin + f]
        for f in range(width, width + -width % np.uint64(LONG_PASS)):
            out[i, f] = 0.0


@njit(nogil=True, cache=True)
def weigh_squared(formula, x, rows, y, points, tile, out):
    """Compute the distances of pairs, as `cpu.weigh_each` does, by sums of squared differences.

    Squares are made along the features, in vector instructions. The sums of `PAIRS` pairs, each in the order of its
    features, are formed together: one alone would wait for each addition.
    """
    d, last = x.shape[1], rows.size - 1
    squares = np.empty((PAIRS, FEATURES))
    for first in range(0, rows.size, PAIRS):
        a, b, c, e, f, g, h, i = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for begin in range(0, d, FEATURES):
            width = np.uint64(min(FEATURES, d - begin))
            for p in range(PAIRS):
                at = min(first + p, last)
                _put_squares(x, np.uint64(rows[at]), y, np.uint64(points[at]), np.uint64(begin), width, squares, p)
            for t in range(width):
                a, b, c, e = a + squares[0, t], b + squares[1, t], c + squares[2, t], e + squares[3, t]
                f, g, h, i = f + squares[4, t], g + squares[5, t], h + squares[6, t], i + squares[7, t]
        sums = a, b, c, e, f, g, h, i
        for p in range(min(PAIRS, rows.size - first)):
            out[first + p] = sums[p]


@njit(nogil=True, forceinline=True)
def _put_squares(x, i, y, j, begin, width, squares, p):
    for t in range(width):
        difference = np.float64(x[i, begin + t]) - np.float64(y[j, begin + t])
        squares[p, t] = difference * difference


def call_of(kernel: Any, typing_context: Any, *arguments: Any) -> Any:
    """Return the result of a Numba intrinsic that calls a kernel, which the types of the arguments choose."""
    function = typeof(kernel)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.get_function(function, signature)(builder, values)

    return function.get_call_type(typing_context, arguments, {}), generate


@intrinsic
def add_features(
    typing_context: Any, formula: Any, x: Any, columns: Any, sums: Any, i: Any, lanes: Any, span: Any
) -> Any:
    """Add some features' terms to the sums of pairs: row i of `x` with each point of the columns lanes[0] to lanes[1].

    The features are those from span[0] on, as many as `x` holds, of span[1] features in all. After the last feature the
    first of a pair's two sums is its distance. The type of the formula chooses the kernel.
    """
    kernels = {Products: _add_products, Powers: _add_to_powers, Present: _add_present, SpatialFormula: _add_in_space}
    kernel = _add_squared if formula is types.none else kernels.get(formula.instance_class, _add_sums)
    return call_of(kernel, typing_context, formula, x, columns, sums, i, lanes, span)


@_kernel
def _begin(x, sums, i, lanes, span):
    """Clear the sums before the first features; return how many features there are, and whether they are the last."""
    (total, other), (a, b), (begin, d) = sums, lanes, span
    if begin == 0:
        for j in range(np.uint64(a), np.uint64(b)):
            total[i, j], other[i, j] = 0.0, 0.0
    width = min(x.shape[1], d - begin)
    return width, begin + width == d


@_kernel
def _add_squared(formula, x, columns, sums, i, lanes, span):
    width, _ = _begin(x, sums, i, lanes, span)
    _add_squares(x, columns, sums[0], i, lanes, width + -width % PASS, 2.0)


@_kernel
def _add_sums(formula, x, columns, sums, i, lanes, span):
    (total, other), (kind, p) = sums, formula
    width, is_last = _begin(x, sums, i, lanes, span)
    padded = width + -width % PASS
    if kind == CHEBYSHEV:
        _add_largest_gap(x, columns, total, i, lanes, padded, p)
    elif kind == CANBERRA:
        _add_shares(x, columns, total, i, lanes, padded, p)
    elif kind == HAMMING:
        _add_unequal(x, columns, total, i, lanes, padded, p)
    else:
        _add_gaps(x, columns, total, i, lanes, padded, 1.0)
        if kind != MANHATTAN:
            _add_gaps(x, columns, other, i, lanes, padded, -1.0)
    if is_last and kind == BRAYCURTIS:  # `OVERFLOW` where the sums vanish
        for j in range(lanes[0], lanes[1]):
            total[i, j] = min(total[i, j] / other[i, j], OVERFLOW) if other[i, j] > 0 else OVERFLOW


@_kernel
def _add_to_powers(formula, x, columns, sums, i, lanes, span):
    (total, _), (_, p) = sums, formula
    width, is_last = _begin(x, sums, i, lanes, span)
    if p < MAX_PRODUCT and is_half_integer(p):
        _add_powers(x, columns, total, i, lanes, width + -width % PASS, p)
    else:
        _add_any_powers(x, columns, total, i, lanes, width, p)
    if is_last:
        for j in range(lanes[0], lanes[1]):
            total[i, j] = min(total[i, j], OVERFLOW)


@_kernel
def _add_products(formula, x, columns, sums, i, lanes, span):
    """Add the products of features, and make the distances after the last. For COSINE the last features are norms."""
    (total, _), (kind, _), (begin, d) = sums, formula, span
    width, is_last = _begin(x, sums, i, lanes, span)
    _add_dot_product(x, columns, sums, i, lanes, (begin, d - (kind == COSINE)))
    if is_last:
        last = width - 1
        for j in range(lanes[0], lanes[1]):
            if kind == COSINE:
                total[i, j] = 1.0 - max(-1.0, min(1.0, total[i, j] / (x[i, last] * columns[last, j])))
            else:
                total[i, j] = -total[i, j]


@_kernel
def _add_present(formula, x, columns, sums, i, lanes, span):
    """Sum over the features that are present in both rows, and count the others. A difference with NaN is NaN."""
    (total, absent), (kind, _), (_, d) = sums, formula, span
    width, is_last = _begin(x, sums, i, lanes, span)
    padded = width + -width % PASS
    if kind == PRESENT_SQUARES:
        _add_present_squares(x, columns, total, i, lanes, padded, 2.0)
    elif kind == PRESENT_GAPS:
        _add_present_gaps(x, columns, total, i, lanes, padded, 1.0)
    else:
        _add_present_unequal(x, columns, total, i, lanes, padded, 0.0)
    _add_absent(x, columns, absent, i, lanes, padded, 0.0)
    if is_last:
        _finish_present(kind, x, columns, sums, i, lanes, (width - 1, d))


@_kernel
def _finish_present(kind, x, columns, sums, i, lanes, span):
    """Make the distances from the sums: see `Formula`. For HIERCC the last features are counts."""
    (total, absent), (a, b), (last, d) = sums, lanes, span
    for j in range(a, b):
        if kind == HIERCC:
            common = d - 1 - absent[i, j]
            differ = total[i, j] - (1.0 if x[i, last] != columns[last, j] else 0.0)
            total[i, j] = hiercc(differ, common, max(x[i, last], columns[last, j]), d - 1)
        else:
            common = d - absent[i, j]
            share = total[i, j] / common if common > 0 else OVERFLOW
            total[i, j] = share if (kind == PRESENT_UNEQUAL) | (common == 0) else share * d


@_kernel
def hiercc(differ, common, present, d):
    """Return HierCC's distance; `present` is the larger of the numbers of features that the two rows have."""
    enough = present - ALLOWED_MISSING * d
    if common == 0:
        return float(d)
    if enough > common:
        differ, common = differ + (enough - common), enough
    return np.floor(differ / common * d + 0.5)


@_kernel
def _add_dot_product(x, columns, sums, i, lanes, span):
    """Add the dot products of features to the sums.

    Even and odd features are summed separately. If their number is odd, the last is added at the end.
    """
    (total, other), (begin, size) = sums, span
    a, b = np.uint64(lanes[0]), np.uint64(lanes[1])
    paired = min(x.shape[1], size - size % 2 - begin)
    for f in range(0, paired, PASS):
        q, r = x[i, f], x[i, f + 1]
        s, t = (x[i, f + 2], x[i, f + 3]) if f + 2 < paired else (0.0, 0.0)
        for j in range(a, b):
            total[i, j] = (total[i, j] + q * columns[f, j]) + s * columns[f + 2, j]
            other[i, j] = (other[i, j] + r * columns[f + 1, j]) + t * columns[f + 3, j]
    last = size - 1 - begin
    if 0 <= last < x.shape[1]:
        for j in range(a, b):
            total[i, j] += other[i, j]
            if size % 2:
                total[i, j] += x[i, last] * columns[last, j]


def _summing(term: Callable[..., float]) -> Any:
    """Return a kernel that adds the terms of a row's features and some columns' to the row's sums.

    Unsigned indices let LLVM vectorize it.
    """
    term = _kernel(term)

    @_kernel
    def add(x, columns, sums, i, lanes, width, p):
        a, b = np.uint64(lanes[0]), np.uint64(lanes[1])
        for f in range(0, width, PASS):
            q, r, s, t = x[i, f], x[i, f + 1], x[i, f + 2], x[i, f + 3]
            for j in range(a, b):
                total = term(term(sums[i, j], q, columns[f, j], p), r, columns[f + 1, j], p)
                sums[i, j] = term(term(total, s, columns[f + 2, j], p), t, columns[f + 3, j], p)

    return add


@_summing
def _add_squares(total, x, y, p):
    difference = x - y
    return total + difference * difference


@_summing
def _add_gaps(total, x, y, sign):
    """Add an absolute difference, or an absolute sum if the sign is -1."""
    return total + abs(sign * x - y)


@_summing
def _add_largest_gap(total, x, y, p):
    return max(total, abs(x - y))


@_summing
def _add_shares(total, x, y, p):
    return total + (abs(x - y) / (abs(x) + abs(y)) if x != y else 0.0)


@_summing
def _add_unequal(total, x, y, p):
    return total + (1.0 if x != y else 0.0)


@_summing
def _add_present_squares(total, x, y, p):
    difference = x - y
    return total + (difference * difference if difference == difference else 0.0)


@_summing
def _add_present_gaps(total, x, y, p):
    difference = abs(x - y)
    return total + (difference if difference == difference else 0.0)


@_summing
def _add_present_unequal(total, x, y, p):
    return total + (1.0 if abs(x - y) > 0 else 0.0)


@_summing
def _add_absent(total, x, y, p):
    return total + (0.0 if x - y == x - y else 1.0)


@_summing
def _add_powers(total, x, y, p):
    """Add a difference's `power`, for multiples of a half below `MAX_PRODUCT`.

    LLVM moves the branches out of the loop over the points.
    """
    t, halves = abs(x - y), np.int64(2 * p)
    result = math.sqrt(t) if halves & 1 else 1.0
    result = result * t if halves & 2 else result
    t *= t
    result = result * t if halves & 4 else result
    t *= t
    return total + (result * t if halves & 8 else result)


@_kernel
def _add_any_powers(x, columns, total, i, lanes, width, p):
    a, b = np.uint64(lanes[0]), np.uint64(lanes[1])
    for f in range(width):
        if is_half_integer(p):
            for j in range(a, b):
                total[i, j] += power(abs(x[i, f] - columns[f, j]), p)
        else:
            for j in range(a, b):
                total[i, j] += general_power(abs(x[i, f] - columns[f, j]), p)


@njit(cache=True, inline="always")
def is_half_integer(p):
    """Return whether p is a multiple of a half, as `Metric.has_half_integer_power` does."""
    return 2 * p == math.floor(2 * p) and p < 1073741824.0


@njit(cache=True)
def power(t, p):
    """Return t to the power of p, for t not below zero.

    The power is made of products and a root if p is a multiple of a half, else by `general_power`.
    """
    if not is_half_integer(p):
        return general_power(t, p)
    halves = np.int64(2 * p)
    result, square, exponent = math.sqrt(t) if halves & 1 else 1.0, t, halves >> 1
    while exponent:
        if exponent & 1:
            result *= square
        exponent >>= 1
        if exponent:
            square *= square
    return result


LN2_HIGH = float.fromhex("0x1.62e42fefa3800p-1")  # its product with an exponent is exact
LN2_LOW = float.fromhex("0x1.ef35793c76730p-45")
LOG_SERIES = tuple(2 / (2 * k + 3) for k in reversed(range(13)))  # the series of 2 artanh(s) after its first term
EXP_SERIES = tuple(1 / math.factorial(k + 2) for k in reversed(range(13)))
SMALLEST_NORMAL = 2.0**-1022


@njit(cache=True, error_model="numpy", forceinline=True)
def general_power(t, p):
    """Return exp(p log t), right to a few 2⁻⁵³ of itself, from operations that are the same on every machine.

    With t = 2ᵉm, m next to 1, and s = (m - 1) / (m + 1), log t = e log 2 + 2 artanh s is summed with what is lost to
    rounding kept in a second number (Dekker, "A floating-point technique for extending the available precision",
    1971). Its error, at most 2⁻⁵⁸ in all, is p times as large in p log t, and 1/p of that in the p-th root.

    There is no branch, so that loops over it become vector instructions.
    """
    is_subnormal = t < SMALLEST_NORMAL
    bits = np.float64(t * 2.0**54 if is_subnormal else t).view(np.int64)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000).view(np.float64)
    is_low = m < 0.7071067811865476
    m = 2 * m if is_low else m
    e = (bits >> 52) - (1076 if is_subnormal else 1022) - is_low
    f, g = m - 1.0, m + 1.0
    g_low = m - (g - 1.0)
    s = f / g
    h, h_low = times(s, g)
    s_low = ((f - h) - h_low - s * g_low) / g
    z = s * s
    tail = 0.0
    for coefficient in LOG_SERIES:
        tail = tail * z + coefficient
    tail = tail * z * s
    log, lost = plus(e * LN2_HIGH, 2.0 * s)
    log, log_low = plus(log, ((2.0 * s_low + e * LN2_LOW) + lost) + tail)
    y, y_low = times(p, log)
    y_low += p * log_low
    k = np.rint(max(-1100.0, min(1100.0, y * 1.4426950408889634)))
    r = (y - k * LN2_HIGH) + (y_low - k * LN2_LOW)
    series = 0.0
    for coefficient in EXP_SERIES:
        series = series * r + coefficient
    half = np.int64(k) >> 1
    result = (1.0 + (r + r * r * series)) * two_to_the(half) * two_to_the(np.int64(k) - half)
    result = math.inf if y > 710.0 else result
    result = 0.0 if y < -746.0 else result
    return t if (t == 0.0) | (t == 1.0) | (t > OVERFLOW) else result


@njit(cache=True, forceinline=True)
def two_to_the(exponent):
    """Return two to the power of an integer, for results in the normal range."""
    return np.int64((exponent + 1023) << 52).view(np.float64)


@njit(cache=True)
def plus(a, b):
    """Return a + b rounded, and what was lost to rounding."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


@njit(cache=True)
def times(a, b):
    """Return a·b rounded, and what was lost to rounding."""
    product = a * b
    c = 134217729.0 * a
    a_high = c - (c - a)
    c = 134217729.0 * b
    b_high = c - (c - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


# Boxes that repeat, and scales of groups of columns; see settings.py. `periodic` of formulas.cuh is the same.


@intrinsic
def number_at(typing_context: Any, address: Any, index: Any) -> Any:
    """Return number `index` of the float64 numbers at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(numbers, [arguments[1]]))

    return types.float64(types.int64, types.int64), generate


@njit(nogil=True, cache=True, forceinline=True)
def nearest_gap(x, y, period):
    """Return the difference of the nearest images of two coordinates."""
    gap = abs(x - y)
    return min(gap, period - gap)


@njit(nogil=True, cache=True, forceinline=True)
def least_gap(below, above, period):
    """Return the least difference of two intervals, of which the second is `above` the first and `below` it."""
    return max(min(max(below, above), period + min(below, above)), 0.0)


@njit(nogil=True, cache=True, forceinline=True)
def add_to_group(kind, total, gap):
    """Return a group's sum with one more difference in it, which is not negative."""
    if kind == MANHATTAN:
        return total + gap
    if kind == CHEBYSHEV:
        return max(total, gap)
    return total + gap * gap


@njit(nogil=True, cache=True, forceinline=True)
def group_distance(kind, total):
    """Return the distance of a group of columns from the sum of its terms."""
    return total if (kind == MANHATTAN) | (kind == CHEBYSHEV) else math.sqrt(total)


@_kernel
def _add_in_space(formula, x, columns, sums, i, lanes, span):
    """Add features of a `SpatialFormula`'s space: a box that repeats, or groups of columns with scales."""
    kind, periods, scales = formula.kind, formula.periods, formula.scales
    (total, other), (a, b), (begin, _) = sums, lanes, span
    width, _ = _begin(x, sums, i, lanes, span)
    is_scaled, a, b = scales != 0, np.uint64(a), np.uint64(b)
    group = other if is_scaled else total
    for f in range(np.uint64(width)):
        own, period = x[i, f], number_at(periods, begin + f)
        for j in range(a, b):
            group[i, j] = add_to_group(kind, group[i, j], nearest_gap(own, columns[f, j], period))
        if is_scaled and number_at(scales, begin + f) > 0:
            scale = number_at(scales, begin + f)
            for j in range(a, b):
                total[i, j] = max(total[i, j], group_distance(kind, group[i, j]) / scale)
                group[i, j] = 0.0


def _of_boxes(gap_of: Callable[..., float]) -> Any:
    """Return a function that makes bounds of features into a bound of the surrogate distances between two boxes."""
    gap_of = njit(nogil=True, forceinline=True)(gap_of)

    @njit(nogil=True, forceinline=True)
    def bound(formula, lowest, highest, low, high, v):
        kind, periods, scales = formula.kind, formula.periods, formula.scales
        total, group = 0.0, 0.0
        for f in range(lowest.size):
            gap = gap_of(low[v, f] - highest[f], lowest[f] - high[v, f], number_at(periods, f))
            group = add_to_group(kind, group, gap)
            if scales and number_at(scales, f) > 0:
                total, group = max(total, group_distance(kind, group) / number_at(scales, f)), 0.0
        return total if scales else group

    return bound


@_of_boxes
def box_to_box_in_space(below, above, period):
    """Return the least difference of two boxes in a feature of a space, as `kdtree.box_to_box` needs it."""
    return least_gap(below, above, period)


@_of_boxes
def farthest_in_space(below, above, period):
    """Return the largest difference of two boxes in a feature, which is not above half a period."""
    return min(max(-below, -above), 0.5 * period)


@njit(nogil=True, cache=True, forceinline=True)
def may_wrap_in_space(formula, lowest, highest, low, high, v):
    """Return whether points of two boxes may be farther apart than half a period: if not, no image is nearer."""
    periods, count = formula.periods, 0
    for f in range(lowest.size):
        count += max(high[v, f] - lowest[f], highest[f] - low[v, f]) > 0.5 * number_at(periods, f)
    return count > 0


@njit(nogil=True, cache=True, forceinline=True)
def to_boxes_in_space(formula, points, low, high, v, out, wraps):
    """Write the lower bounds of `kdtree.to_boxes` into `out`, for points in a space."""
    kind, periods, scales = formula.kind, formula.periods, formula.scales
    for j in range(out.size):
        out[j] = 0.0
    if scales:
        for j in range(np.uint64(out.size)):
            group = 0.0
            for f in range(points.shape[0]):
                gap = least_gap(low[v, f] - points[f, j], points[f, j] - high[v, f], number_at(periods, f))
                group = add_to_group(kind, group, gap)
                if number_at(scales, f) > 0:
                    out[j], group = max(out[j], group_distance(kind, group) / number_at(scales, f)), 0.0
        return
    for f in range(points.shape[0]):
        period = number_at(periods, f)
        if wraps:
            for j in range(np.uint64(out.size)):
                gap = least_gap(low[v, f] - points[f, j], points[f, j] - high[v, f], period)
                out[j] = add_to_group(kind, out[j], gap)
        else:
            for j in range(np.uint64(out.size)):
                gap = max(low[v, f] - points[f, j], points[f, j] - high[v, f], 0.0)
                out[j] = add_to_group(kind, out[j], gap)


@njit(nogil=True, cache=True, forceinline=True)
def to_points_in_space(formula, points, p, columns, a, out, wraps):
    """Write the surrogate distances of `kdtree.to_points` into `out`, for points in a space."""
    kind, periods, scales, a = formula.kind, formula.periods, formula.scales, np.uint64(a)
    for j in range(out.size):
        out[j] = 0.0
    if scales:
        for j in range(np.uint64(out.size)):
            group = 0.0
            for f in range(points.shape[0]):
                gap = nearest_gap(points[f, p], columns[f, a + j], number_at(periods, f))
                group = add_to_group(kind, group, gap)
                if number_at(scales, f) > 0:
                    out[j], group = max(out[j], group_distance(kind, group) / number_at(scales, f)), 0.0
        return
    for f in range(points.shape[0]):
        own, period = points[f, p], number_at(periods, f)
        if wraps:
            for j in range(np.uint64(out.size)):
                out[j] = add_to_group(kind, out[j], nearest_gap(own, columns[f, a + j], period))
        else:
            for j in range(np.uint64(out.size)):
                out[j] = add_to_group(kind, out[j], abs(own - columns[f, a + j]))
