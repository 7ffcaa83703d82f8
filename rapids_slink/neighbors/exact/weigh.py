"""Tiles of surrogate distances on the CPU, of rows of any kind: the type of their values chooses the kernel.

    float32, float64    the formula, feature by feature: formulas.py
    uint64              words of 64 bits, followed by the number of ones: common ones are counted
    uint8, uint16       codes, of which only equality matters; 0 is a missing one if the formula takes these

See neighbors/compact.py for words and codes. The distances are functions of counts, which are exact, so they have the
bits of the formula of the features.
"""

from typing import Any

import numpy as np
from numba import typeof, types
from numba.extending import intrinsic

from rapids_slink.metrics import OVERFLOW
from rapids_slink.neighbors.exact.formulas import (
    BRAYCURTIS,
    COSINE,
    FEATURES,
    HIERCC,
    JACCARD,
    LANES,
    LONG_PASS,
    PASS,
    POINTS,
    PRESENT_UNEQUAL,
    copy_features,
    hiercc,
    weigh_values,
)
from rapids_slink.runtime.compiling import njit

_kernel = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@intrinsic
def weigh(typing_context: Any, formula: Any, x: Any, rows: Any, y: Any, points: Any, tile: Any) -> Any:
    """Set tile.total[i, j] to the surrogate distance of rows rows[i] of x and points[j] of y: the kernel for x's type.

    `formula` is `Metric.cpu_formula`; rows and points are int32. A function around the kernels would take as long to
    compile as they do.
    """
    kernel, dtype = weigh_values, x.dtype
    if isinstance(dtype, types.Integer):
        kernel = weigh_words if x.dtype.bitwidth == 64 else weigh_codes
    function = typeof(kernel)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_function(function, signature)(builder, arguments)

    return function.get_call_type(typing_context, (formula, x, rows, y, points, tile), {}), generate


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """The number of ones of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True)
def weigh_words(formula, x, rows, y, points, tile):
    """`weigh` of rows of words."""
    words = x.shape[1] - 1
    mine, columns, common = tile.rows.view(np.uint64), tile.columns.view(np.uint64), tile.other.view(np.uint64)
    lanes = -(-points.size // LANES) * LANES
    common[: rows.size, :lanes] = 0
    for begin in range(0, words, FEATURES):
        width = min(FEATURES, words - begin)
        copy_features(x, rows, begin, width, mine)
        copy_features(y, points, begin, width, columns.T)
        for i in range(rows.size):
            _add_common(mine, columns, common, i, lanes, width + -width % PASS)
    kind = 0
    if formula is not None:
        kind = formula[0]
    for i in range(rows.size):
        for j in range(points.size):
            ones, others = x[rows[i], words], y[points[j], words]
            tile.total[i, j] = _of_counts(kind, np.float64(common[i, j]), np.float64(ones), np.float64(others))


@_kernel
def _add_common(x, columns, common, i, lanes, width):
    lanes = np.uint64(lanes)
    for f in range(0, width, PASS):
        q, r, s, t = x[i, f], x[i, f + 1], x[i, f + 2], x[i, f + 3]
        for j in range(lanes):
            total = popcount(q & columns[f, j]) + popcount(r & columns[f + 1, j])
            total += popcount(s & columns[f + 2, j]) + popcount(t & columns[f + 3, j])
            common[i, j] += total


@_kernel
def _of_counts(kind, common, ones, others):
    """The distance of two rows by the numbers of their ones, of which `common` are in both."""
    if kind == COSINE:
        return 1.0 - max(-1.0, min(1.0, common / (np.sqrt(ones) * np.sqrt(others))))
    total = ones + others
    differ = total - 2 * common
    if kind == JACCARD:
        return differ / (total - common) if total > 0 else 0.0
    if kind == BRAYCURTIS:
        return differ / total if total > 0 else OVERFLOW
    return differ


@njit(nogil=True, cache=True)
def weigh_codes(formula, x, rows, y, points, tile):
    """`weigh` of rows of codes, for formulas that compare features for equality."""
    kind, _ = formula
    d = x.shape[1] - (kind == HIERCC)
    mine, columns = tile.rows.view(x.dtype), tile.columns.view(x.dtype)
    counts = np.empty((2, POINTS + LANES), x.dtype)  # of FEATURES at most, which fit into a byte
    lanes = -(-points.size // LANES) * LANES
    tile.total[: rows.size, :lanes], tile.other[: rows.size, :lanes] = 0, 0
    for begin in range(0, d, FEATURES):
        width = min(FEATURES, d - begin)
        copy_features(x, rows, begin, width, mine)
        copy_features(y, points, begin, width, columns.T)
        for i in range(rows.size):
            counts[:, :lanes] = 0
            if kind >= PRESENT_UNEQUAL:
                _count_present(mine, columns, counts, i, lanes, width)
                for j in range(lanes):
                    tile.other[i, j] += counts[1, j]
            else:
                _count_unequal(mine, columns, counts, i, lanes, width)
            for j in range(lanes):
                tile.total[i, j] += counts[0, j]
    if kind >= PRESENT_UNEQUAL:
        _finish_codes(kind, (x, rows), (y, points), d, tile)


@_kernel
def _finish_codes(kind, first, second, d, tile):
    (x, rows), (y, points) = first, second
    for i in range(rows.size):
        for j in range(points.size):
            differ, common = tile.total[i, j], tile.other[i, j]
            if kind == HIERCC:
                present = max(x[rows[i], d], y[points[j], d])
                tile.total[i, j] = hiercc(differ, common, np.float64(present), d)
            else:
                tile.total[i, j] = differ / common if common > 0 else OVERFLOW


@_kernel
def _count_unequal(x, columns, counts, i, lanes, width):
    lanes = np.uint64(lanes)
    for f in range(0, width, LONG_PASS):
        q, r, s, t = x[i, f], x[i, f + 1], x[i, f + 2], x[i, f + 3]
        u, v, w, z = x[i, f + 4], x[i, f + 5], x[i, f + 6], x[i, f + 7]
        for j in range(lanes):
            unequal = (q != columns[f, j]) + (r != columns[f + 1, j]) + (s != columns[f + 2, j])
            unequal += (t != columns[f + 3, j]) + (u != columns[f + 4, j]) + (v != columns[f + 5, j])
            counts[0, j] += unequal + (w != columns[f + 6, j]) + (z != columns[f + 7, j])


@_kernel
def _count_present(x, columns, counts, i, lanes, width):
    """Of codes, none of which is zero: those that differ, and all."""
    lanes = np.uint64(lanes)
    for f in range(0, width, PASS):
        q, r, s, t = x[i, f], x[i, f + 1], x[i, f + 2], x[i, f + 3]
        for j in range(lanes):
            a, b, c, d = columns[f, j], columns[f + 1, j], columns[f + 2, j], columns[f + 3, j]
            has_a, has_b = (a != 0) & (q != 0), (b != 0) & (r != 0)
            has_c, has_d = (c != 0) & (s != 0), (d != 0) & (t != 0)
            counts[0, j] += (has_a & (a != q)) + (has_b & (b != r)) + (has_c & (c != s)) + (has_d & (d != t))
            counts[1, j] += has_a + has_b + has_c + has_d
