"""The formulas of surrogate distances on the CPU; `formulas.cuh` is the same for the GPU, operation by operation.

Nothing here may be compiled with fast math: no sum is reordered and no product fused with a sum.
"""

from __future__ import annotations

import math

import numpy as np

from rapids_slink.metrics import FORMULAS, OVERFLOW
from rapids_slink.runtime.compiling import njit

(
    _, MANHATTAN, CHEBYSHEV, MINKOWSKI, CANBERRA, BRAYCURTIS, HAMMING, JACCARD, COSINE, INNER_PRODUCT,
) = range(len(FORMULAS))  # fmt: skip


@njit(cache=True)
def surrogate_distance(formula, x, i, y, j, bound):
    """The surrogate distance of rows i of x and j of y, or something above `bound` if it is.

    `formula` is `Metric.cpu_formula`. squared_euclidean is passed as None: Numba compiles each function once more for
    None, without the branch.
    """
    if formula is None:
        return squared(x, i, y, j)
    return _other_formula(formula, x, i, y, j, bound)


@njit(cache=True)
def squared(x, i, y, j):
    """Squared Euclidean."""
    total = 0.0
    for f in range(x.shape[1]):
        difference = np.float64(x[i, f]) - np.float64(y[j, f])
        total += difference * difference
    return total


@njit(cache=True)
def _other_formula(formula, x, i, y, j, bound):
    """Sums of non-negative terms never decrease, rounding included, so a partial sum above the bound ends the loop."""
    kind, p = formula
    d = x.shape[1]
    if kind == COSINE:
        return cosine(x, i, y, j)
    if kind == INNER_PRODUCT:
        return -dot(x, i, y, j, d)
    if kind == BRAYCURTIS:
        return braycurtis(x, i, y, j)
    if kind == JACCARD:
        return jaccard(x, i, y, j)
    total = 0.0
    if kind == CANBERRA:
        for f in range(d):
            a, b = np.float64(x[i, f]), np.float64(y[j, f])
            if a != b:
                total += abs(a - b) / (abs(a) + abs(b))
                if total > bound:
                    break
    elif kind == HAMMING:
        for f in range(d):
            total += x[i, f] != y[j, f]
    else:
        for f in range(d):
            total = add_gap(kind, p, total, np.float64(x[i, f]) - np.float64(y[j, f]))
            if total > bound:
                break
    return total


@njit(cache=True, inline="always")
def add_gap(kind, p, total, gap):
    """A norm's sum with one more difference of features."""
    if kind == MANHATTAN:
        return total + abs(gap)
    if kind == CHEBYSHEV:
        return max(total, abs(gap))
    return min(total + power(abs(gap), p), OVERFLOW)


@njit(cache=True)
def dot(x, i, y, j, d):
    """The dot product of d features: even and odd ones are summed separately, an odd last one is added at the end."""
    even, odd = 0.0, 0.0
    for f in range(0, d - 1, 2):
        even += np.float64(x[i, f]) * np.float64(y[j, f])
        odd += np.float64(x[i, f + 1]) * np.float64(y[j, f + 1])
    total = even + odd
    if d % 2:
        total += np.float64(x[i, d - 1]) * np.float64(y[j, d - 1])
    return total


@njit(cache=True)
def cosine(x, i, y, j):
    """Of rows that are followed by their norms."""
    d = x.shape[1] - 1
    return 1.0 - max(-1.0, min(1.0, dot(x, i, y, j, d) / (x[i, d] * y[j, d])))


@njit(cache=True)
def braycurtis(x, i, y, j):
    """`OVERFLOW` where the sums vanish."""
    difference, total = 0.0, 0.0
    for f in range(x.shape[1]):
        a, b = np.float64(x[i, f]), np.float64(y[j, f])
        difference += abs(a - b)
        total += abs(a + b)
    return min(difference / total, OVERFLOW) if total > 0 else OVERFLOW


@njit(cache=True)
def jaccard(x, i, y, j):
    """Zero for two rows without a true value."""
    differ, either = 0, 0
    for f in range(x.shape[1]):
        differ += x[i, f] != y[j, f]
        either += (x[i, f] != 0) | (y[j, f] != 0)
    return differ / either if either else 0.0


# For trees, whose points are stored feature by feature: column p of `points` is a point.


@njit(nogil=True, cache=True, forceinline=True)
def box_to_box(formula, lowest, highest, low, high, v):
    """A lower bound of the surrogate distances between a box, or a point, and the points of box v.

    It is the formula of the features' gaps between the boxes. Each gap is at most the difference of two points inside,
    rounding is monotone, and sums are taken in the same order.
    """
    total = 0.0
    for f in range(lowest.size):
        total = _with_gap(formula, total, max(low[v, f] - highest[f], lowest[f] - high[v, f], 0.0))
    return _surely_below(formula, total)


@njit(nogil=True, cache=True, forceinline=True)
def to_boxes(formula, points, low, high, v, out):
    """`box_to_box` of as many points as `out` has and box v, in vector instructions."""
    for j in range(out.size):
        out[j] = 0.0
    for f in range(points.shape[0]):
        for j in range(np.uint64(out.size)):
            gap = max(low[v, f] - points[f, j], points[f, j] - high[v, f], 0.0)
            out[j] = _with_gap(formula, out[j], gap)
    for j in range(out.size):
        out[j] = _surely_below(formula, out[j])


@njit(nogil=True, cache=True, forceinline=True)
def _with_gap(formula, total, gap):
    """`add_gap`, of squares as well."""
    if formula is None:
        return total + gap * gap
    kind, p = formula
    return add_gap(kind, p, total, gap)


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
        x = points[f, p]
        if formula is None:
            for j in range(np.uint64(out.size)):
                difference = x - columns[f, a + j]
                out[j] += difference * difference
        else:
            kind, exponent = formula
            for j in range(np.uint64(out.size)):
                out[j] = add_gap(kind, exponent, out[j], x - columns[f, a + j])


@njit(cache=True, inline="always")
def is_half_integer(p):
    """`Metric.has_half_integer_power`."""
    return 2 * p == math.floor(2 * p) and p < 1073741824.0


@njit(cache=True)
def power(t, p):
    """t to the p, t not negative: by products and a root for multiples of a half, else by `general_power`."""
    if not is_half_integer(p):
        return general_power(t, p)
    halves = np.int64(2 * p)
    result, square, left = math.sqrt(t) if halves & 1 else 1.0, t, halves >> 1
    while left:
        if left & 1:
            result *= square
        left >>= 1
        if left:
            square *= square
    return result


LN2_HIGH = float.fromhex("0x1.62e42fefa3800p-1")  # times an exponent, exact
LN2_LOW = float.fromhex("0x1.ef35793c76730p-45")
LOG_SERIES = tuple(2 / (2 * k + 3) for k in range(13))  # of 2 artanh(s) after its first term
EXP_SERIES = tuple(1 / math.factorial(k + 2) for k in range(13))


@njit(cache=True)
def general_power(t, p):
    """exp(p log t), right to a few 2⁻⁵³ of itself, from operations that are the same on every machine.

    With t = 2ᵉm, m next to 1, and s = (m - 1) / (m + 1), log t = e log 2 + 2 artanh s is summed with what is lost to
    rounding kept in a second number (Dekker, "A floating-point technique for extending the available precision",
    1971). Its error, at most 2⁻⁵⁸ in all, is p times as large in p log t, and 1/p of that in the p-th root.
    """
    if t == 0.0 or t == 1.0 or t > OVERFLOW:
        return t
    m, e = math.frexp(t)
    if m < 0.7071067811865476:
        m, e = 2 * m, e - 1
    f, g = m - 1.0, m + 1.0
    g_low = m - (g - 1.0)
    s = f / g
    h, h_low = times(s, g)
    s_low = ((f - h) - h_low - s * g_low) / g
    z = s * s
    tail = 0.0
    for k in range(len(LOG_SERIES) - 1, -1, -1):
        tail = tail * z + LOG_SERIES[k]
    tail = tail * z * s
    log, lost = plus(e * LN2_HIGH, 2.0 * s)
    log, log_low = plus(log, ((2.0 * s_low + e * LN2_LOW) + lost) + tail)
    y, y_low = times(p, log)
    if y > 710.0:
        return math.inf
    if y < -746.0:
        return 0.0
    y_low += p * log_low
    k = np.rint(y * 1.4426950408889634)
    r = (y - k * LN2_HIGH) + (y_low - k * LN2_LOW)
    series = 0.0
    for j in range(len(EXP_SERIES) - 1, -1, -1):
        series = series * r + EXP_SERIES[j]
    result = 1.0 + (r + r * r * series)
    half = int(k) // 2
    return result * math.ldexp(1.0, half) * math.ldexp(1.0, int(k) - half)


@njit(cache=True)
def plus(a, b):
    """a + b rounded, and what was lost."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


@njit(cache=True)
def times(a, b):
    """a·b rounded, and what was lost."""
    product = a * b
    c = 134217729.0 * a
    a_high = c - (c - a)
    c = 134217729.0 * b
    b_high = c - (c - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
