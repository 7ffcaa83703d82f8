"""The rows of a distance matrix on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from rapids_slink.neighbors.exact.cpu import NO_CORE, comes_before_last, insert, reachability
from rapids_slink.runtime.compiling import njit


def row_bytes(n: int, k: int) -> int:
    """What `scan` takes for a row."""
    return 0


def scan(matrix: Any, rows: Any, groups: tuple[Any, Any], upper: Any, lists: tuple[Any, Any], core: Any) -> None:
    """Fill the lists of some rows with their nearest columns of other groups, as far as these are within the bounds.

    Parameters
    ----------
    matrix : (n, n) array
    rows : (m,) int32 array
    groups : (m,) and (n,) int32 arrays
        The rows', and the columns'.
    upper : (m,) float64 array
        Tightened to the last entries of the lists that are full.
    lists : (m, k) int32 and float64 arrays
        Ids and weights of empty lists.
    core : (n,) float64 array, optional
        As in a `SearchTask`.
    """
    _scan(matrix, rows, groups, NO_CORE if core is None else core, upper, lists)


@njit(nogil=True, cache=True)
def _scan(matrix, rows, groups, core, upper, lists):
    (row_group, column_group), (ids, weights) = groups, lists
    last = ids.shape[1] - 1
    for i in range(rows.size):
        row, group, bound = rows[i], row_group[i], upper[i]
        for j in range(matrix.shape[1]):
            if matrix[row, j] <= bound and column_group[j] != group:
                weight = reachability(np.float64(matrix[row, j]), core, row, j)
                if weight <= bound and comes_before_last(ids, weights, i, j, weight):
                    insert(ids, weights, i, j, weight)
                    bound = min(bound, weights[i, last])
        upper[i] = bound
