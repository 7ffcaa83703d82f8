"""The direct filter's kernel on the CPU. Its loops run along the points, so that they become vector instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.metrics import FORMULAS
from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.exact.formulas import (
    BRAYCURTIS,
    CANBERRA,
    CHEBYSHEV,
    HAMMING,
    INNER_PRODUCT,
    JACCARD,
    MANHATTAN,
    MINKOWSKI,
)
from rapids_slink.neighbors.filter.cpu import append_passed
from rapids_slink.neighbors.filter.direct import FilterFormula, RoundedPoints
from rapids_slink.runtime.compiling import njit


def append_candidates(
    formula: FilterFormula,
    rows: RoundedPoints,
    points: RoundedPoints,
    radius: Any,
    groups: tuple[Any, Any],
    ids: Any,
    into: Candidates,
) -> None:
    """Append to each row's candidates the points that pass the formula's test and are of another group.

    The parameters are those of `rapids_slink.neighbors.filter.cpu.append_candidates`.
    """
    kind = FORMULAS.index(formula.name), formula.halves
    columns = np.ascontiguousarray(points.y.T), points.error
    _append_candidates(kind, (rows.y, radius, rows.error), columns, groups, ids, into.ids, into.count)


@njit(nogil=True, cache=True)
def _append_candidates(kind, rows, points, groups, ids, out, count):
    (formula, halves), (y, radius, error), (columns, point_error) = kind, rows, points
    row_group, point_group = groups
    n_points = columns.shape[1]
    sums, denominators = np.empty(n_points, np.float32), np.empty(n_points, np.float32)
    passed = np.zeros(-(-n_points // 8) * 8, np.uint8)
    for i in range(y.shape[0]):
        sums[:], denominators[:] = 0, 0
        _sum(formula, halves, y[i], columns, sums, denominators)
        _test(formula, halves, sums, denominators, (radius[i], error[i]), point_error, passed)
        count[i] = append_passed(passed, row_group[i], point_group, ids, out[i], count[i])


@njit(cache=True)
def _sum(formula, halves, x, columns, sums, denominators):
    d = x.size
    if formula == MANHATTAN:
        f = 0
        while f + 4 <= d:  # four features a pass over the sums
            _add_differences(x[f], x[f + 1], x[f + 2], x[f + 3], columns[f], columns[f + 1], columns[f + 2],
                           columns[f + 3], sums)  # fmt: skip
            f += 4
        while f < d:
            column = columns[f]
            for j in range(sums.size):
                sums[j] += abs(x[f] - column[j])
            f += 1
        return
    for f in range(d):
        own, column = x[f], columns[f]
        if formula == CHEBYSHEV:
            for j in range(sums.size):
                sums[j] = max(sums[j], abs(own - column[j]))
        elif formula == MINKOWSKI:
            _add_powers(halves, own, column, sums)
        elif formula == CANBERRA:
            for j in range(sums.size):
                below = abs(own) + abs(column[j])
                term = abs(own - column[j]) / max(below, np.float32(2.0**-100))
                sums[j] += term if below >= np.float32(2.0**-100) else np.float32(0)
        elif formula == BRAYCURTIS:
            for j in range(sums.size):
                sums[j] += abs(own - column[j])
                denominators[j] += abs(own + column[j])
        elif formula == HAMMING:
            for j in range(sums.size):
                sums[j] += np.float32(own != column[j])
        elif formula == JACCARD:
            for j in range(sums.size):
                sums[j] += abs(own - column[j])
                denominators[j] += max(own, column[j])
        else:  # INNER_PRODUCT
            for j in range(sums.size):
                sums[j] -= own * column[j]


@njit(cache=True)
def _add_differences(a, b, c, d, of_a, of_b, of_c, of_d, sums):
    for j in range(sums.size):
        sums[j] += (abs(a - of_a[j]) + abs(b - of_b[j])) + (abs(c - of_c[j]) + abs(d - of_d[j]))


@njit(cache=True, inline="always")
def _power(halves, t):
    """t to the halves/2, in float32."""
    result = np.sqrt(t) if halves % 2 else np.float32(1)
    for _ in range(halves // 2):
        result *= t
    return result


@njit(cache=True)
def _add_powers(halves, own, column, sums):
    if halves == 3:
        for j in range(sums.size):
            sums[j] += _power(3, abs(own - column[j]))
    elif halves == 6:
        for j in range(sums.size):
            sums[j] += _power(6, abs(own - column[j]))
    else:
        for j in range(sums.size):
            sums[j] += _power(halves, abs(own - column[j]))


@njit(cache=True)
def _test(formula, halves, sums, denominators, row, point_error, passed):
    radius, error = row
    if formula in (MANHATTAN, CHEBYSHEV, MINKOWSKI):
        for j in range(sums.size):
            passed[j] = sums[j] <= _power(halves, radius + point_error[j])
    elif formula in (BRAYCURTIS, JACCARD):
        for j in range(sums.size):
            q = error + point_error[j]
            passed[j] = sums[j] <= radius * (denominators[j] + q) + q
    elif formula == INNER_PRODUCT:
        for j in range(sums.size):
            passed[j] = sums[j] <= radius + error * point_error[j]
    else:
        for j in range(sums.size):
            passed[j] = sums[j] <= radius
