"""The formulas of boxes that repeat and of scales on the CPU; see space.py. `periodic` of formulas.cuh is the same."""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rapids_slink.neighbors.exact.formulas import CHEBYSHEV, FEATURES, LANES, MANHATTAN, copy_features
from rapids_slink.runtime.compiling import njit


@intrinsic
def number_at(typing_context: Any, address: Any, index: Any) -> Any:
    """A float64 of those at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(numbers, [arguments[1]]))

    return types.float64(types.int64, types.int64), generate


@njit(nogil=True, cache=True, forceinline=True)
def nearest_gap(x, y, period):
    """The difference of the nearest images of two coordinates."""
    gap = abs(x - y)
    return min(gap, period - gap)


@njit(nogil=True, cache=True, forceinline=True)
def least_gap(below, above, period):
    """The least difference of two intervals, by how far the second is above the first and below it."""
    return max(min(max(below, above), period + min(below, above)), 0.0)


@njit(nogil=True, cache=True, forceinline=True)
def add_to_group(kind, total, gap):
    """A sum with one more difference, which is not negative."""
    if kind == MANHATTAN:
        return total + gap
    if kind == CHEBYSHEV:
        return max(total, gap)
    return total + gap * gap


@njit(nogil=True, cache=True, forceinline=True)
def group_distance(kind, total):
    """The distance of a group of columns, by its sum."""
    return total if (kind == MANHATTAN) | (kind == CHEBYSHEV) else math.sqrt(total)


@njit(nogil=True, cache=True, error_model="numpy")
def weigh_spatial(formula, x, rows, y, points, tile):
    """`cpu.weigh` of rows in a box or by groups that have scales."""
    kind, periods, scales = formula.kind, formula.periods, formula.scales
    d, is_scaled = x.shape[1], scales != 0
    lanes = np.uint64(-(-points.size // LANES) * LANES)
    mine, columns, total = tile.rows, tile.columns, tile.total
    group = tile.other if is_scaled else total
    for begin in range(0, d, FEATURES):
        width = min(FEATURES, d - begin)
        copy_features(x, rows, begin, width, mine)
        copy_features(y, points, begin, width, columns.T)
        for i in range(rows.size):
            if begin == 0:
                total[i, :lanes], group[i, :lanes] = 0.0, 0.0
            for f in range(width):
                _add_gaps(kind, number_at(periods, begin + f), mine[i, f], columns, f, group, i, lanes)
                if is_scaled and number_at(scales, begin + f) > 0:
                    scale = number_at(scales, begin + f)
                    for j in range(lanes):
                        total[i, j] = max(total[i, j], group_distance(kind, group[i, j]) / scale)
                        group[i, j] = 0.0


@njit(nogil=True, cache=True)
def _add_gaps(kind, period, own, columns, f, sums, i, lanes):
    """Add a feature's differences from some columns to a row's sums. Unsigned indices let LLVM vectorize the loops."""
    f = np.uint64(f)
    if kind == MANHATTAN:
        for j in range(lanes):
            sums[i, j] += nearest_gap(own, columns[f, j], period)
    elif kind == CHEBYSHEV:
        for j in range(lanes):
            sums[i, j] = max(sums[i, j], nearest_gap(own, columns[f, j], period))
    else:
        for j in range(lanes):
            gap = nearest_gap(own, columns[f, j], period)
            sums[i, j] += gap * gap


@njit(nogil=True, cache=True, forceinline=True)
def box_to_box(formula, lowest, highest, low, high, v):
    """`tree.box_to_box` in a space."""
    kind, periods, scales = formula.kind, formula.periods, formula.scales
    total, group = 0.0, 0.0
    for f in range(lowest.size):
        gap = least_gap(low[v, f] - highest[f], lowest[f] - high[v, f], number_at(periods, f))
        group = add_to_group(kind, group, gap)
        if scales and number_at(scales, f) > 0:
            total, group = max(total, group_distance(kind, group) / number_at(scales, f)), 0.0
    return total if scales else group


@njit(nogil=True, cache=True, forceinline=True)
def farthest(formula, lowest, highest, low, high, v):
    """An upper bound of the surrogate distances of the points of two boxes; no difference is above half a period."""
    kind, periods, scales = formula.kind, formula.periods, formula.scales
    total, group = 0.0, 0.0
    for f in range(lowest.size):
        gap = min(max(high[v, f] - lowest[f], highest[f] - low[v, f]), 0.5 * number_at(periods, f))
        group = add_to_group(kind, group, gap)
        if scales and number_at(scales, f) > 0:
            total, group = max(total, group_distance(kind, group) / number_at(scales, f)), 0.0
    return total if scales else group


@njit(nogil=True, cache=True, forceinline=True)
def may_wrap(formula, lowest, highest, low, high, v):
    """Whether points of two boxes may be farther apart than half a period: if not, no image is nearer."""
    periods, count = formula.periods, 0
    for f in range(lowest.size):
        count += max(high[v, f] - lowest[f], highest[f] - low[v, f]) > 0.5 * number_at(periods, f)
    return count > 0


@njit(nogil=True, cache=True, forceinline=True)
def to_boxes(formula, points, low, high, v, out, wraps):
    """`tree.to_boxes` in a space."""
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
def to_points(formula, points, p, columns, a, out, wraps):
    """`tree.to_points` in a space."""
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
