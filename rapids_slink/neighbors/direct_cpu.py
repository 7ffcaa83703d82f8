"""The direct filter's kernel on the CPU. Its loops run along the columns, so that they become vector instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rapids_slink.metrics import KERNELS
from rapids_slink.neighbors.cpu import Candidates, append_passed
from rapids_slink.neighbors.direct import DirectOperand, Form
from rapids_slink.neighbors.pairs import (
    ABSOLUTES,
    BRAYCURTIS,
    CANBERRA,
    INNER_PRODUCT,
    JACCARD,
    LARGEST,
    MISMATCHES,
    POWERS,
)


def keep(
    form: Form,
    rows: DirectOperand,
    columns: DirectOperand,
    radius: Any,
    row_group: Any,
    column_group: Any,
    ids: Any,
    into: Candidates,
) -> None:
    """Append to each row's candidates the columns that pass direct.py's test and are of another group."""
    _keep(
        KERNELS.index(form.kernel), form.halves, rows.y, np.ascontiguousarray(columns.y.T), radius, rows.error,
        columns.error, row_group, column_group, ids, into.ids, into.count,
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _keep(kind, halves, y, columns, radius, error, column_error, row_group, column_group, ids, out, count):
    n_columns = columns.shape[1]
    sums, others = np.empty(n_columns, np.float32), np.empty(n_columns, np.float32)
    passed = np.zeros(-(-n_columns // 8) * 8, np.uint8)
    for i in range(y.shape[0]):
        sums[:], others[:] = 0, 0
        _sum(kind, halves, y[i], columns, sums, others)
        _test(kind, halves, sums, others, radius[i], error[i], column_error, passed)
        count[i] = append_passed(passed, row_group[i], column_group, ids, out[i], count[i])


@njit(cache=True)
def _sum(kind, halves, x, columns, sums, others):
    d = x.size
    if kind == ABSOLUTES:
        f = 0
        while f + 4 <= d:  # four features a pass over the sums
            _add_absolutes(x[f], x[f + 1], x[f + 2], x[f + 3], columns[f], columns[f + 1], columns[f + 2],
                           columns[f + 3], sums)  # fmt: skip
            f += 4
        while f < d:
            column = columns[f]
            for j in range(sums.size):
                sums[j] += abs(x[f] - column[j])
            f += 1
        return
    for f in range(d):
        mine, column = x[f], columns[f]
        if kind == LARGEST:
            for j in range(sums.size):
                sums[j] = max(sums[j], abs(mine - column[j]))
        elif kind == POWERS:
            _add_powers(halves, mine, column, sums)
        elif kind == CANBERRA:
            for j in range(sums.size):
                below = abs(mine) + abs(column[j])
                term = abs(mine - column[j]) / max(below, np.float32(2.0**-100))
                sums[j] += term if below >= np.float32(2.0**-100) else np.float32(0)
        elif kind == BRAYCURTIS:
            for j in range(sums.size):
                sums[j] += abs(mine - column[j])
                others[j] += abs(mine + column[j])
        elif kind == MISMATCHES:
            for j in range(sums.size):
                sums[j] += np.float32(mine != column[j])
        elif kind == JACCARD:
            for j in range(sums.size):
                sums[j] += abs(mine - column[j])
                others[j] += max(mine, column[j])
        else:  # INNER_PRODUCT
            for j in range(sums.size):
                sums[j] -= mine * column[j]


@njit(cache=True)
def _add_absolutes(a, b, c, d, of_a, of_b, of_c, of_d, sums):
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
def _add_powers(halves, mine, column, sums):
    if halves == 3:
        for j in range(sums.size):
            sums[j] += _power(3, abs(mine - column[j]))
    elif halves == 6:
        for j in range(sums.size):
            sums[j] += _power(6, abs(mine - column[j]))
    else:
        for j in range(sums.size):
            sums[j] += _power(halves, abs(mine - column[j]))


@njit(cache=True)
def _test(kind, halves, sums, others, radius, error, column_error, passed):
    if kind in (ABSOLUTES, LARGEST, POWERS):
        for j in range(sums.size):
            passed[j] = sums[j] <= _power(halves, radius + column_error[j])
    elif kind in (BRAYCURTIS, JACCARD):
        for j in range(sums.size):
            q = error + column_error[j]
            passed[j] = sums[j] <= radius * (others[j] + q) + q
    elif kind == INNER_PRODUCT:
        for j in range(sums.size):
            passed[j] = sums[j] <= radius + error * column_error[j]
    else:
        for j in range(sums.size):
            passed[j] = sums[j] <= radius
