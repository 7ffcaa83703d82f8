"""The total order on edges among points: (weight, smaller id, larger id).

Nothing else defines "lighter" where points are clustered. The edges of a graph that was handed in are ordered by
(weight, row) instead, in `spanning_tree.edges`, since their ids need have no order.

Weights are float64 and ids fit in 31 bits, so an edge's ids pack into one non-negative int64
whose order is that of (smaller id, larger id). All keys are distinct, so the minimum spanning tree is
unique; it is what every stage, on either device, computes. `ordering.cuh` is the same order in CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from rapids_slink.runtime.device import all_true


@njit(cache=True, inline="always")
def edge_code(u, v):
    """The ids of edge {u, v} as one int64, the smaller in the upper half."""
    return (np.int64(min(u, v)) << np.int64(32)) | np.int64(max(u, v))


@njit(cache=True, inline="always")
def lighter(weight, code, other_weight, other_code):
    """Whether edge (weight, code) comes before (other_weight, other_code)."""
    return weight < other_weight or (weight == other_weight and code < other_code)


#: After every edge's code.
NO_EDGE = 2**63 - 1


def edge_codes(u: Any, v: Any, xp: Any) -> Any:
    """`edge_code` of arrays."""
    return (xp.minimum(u, v).astype("int64") << 32) | xp.maximum(u, v)


def sorting_rows(src: Any, dst: Any, weight: Any, xp: Any) -> Any:
    """The rows of an edge list in the total order: ids and weights as arrays of `xp`, no weight NaN.

    The ids only matter where weights tie; without ties one sort is enough.
    """
    if weight.dtype.kind == "f":
        weight = weight + 0.0  # -0.0 equals 0.0, but not in its bits, which a radix sort may look at
    rows = xp.argsort(weight)
    ascending = weight[rows]
    rises = ascending[1:] != ascending[:-1]
    if all_true(rises):
        return rows
    if xp is np:
        _order_ties(rows, rises, edge_codes(src, dst, xp))
        return rows
    key = xp.zeros(rows.size, dtype="int64")  # by row: the rank of its weight, then that of its ids
    key[rows[1:]] = xp.cumsum(rises, dtype="int64") << 32
    key[xp.argsort(edge_codes(src, dst, xp))] += xp.arange(rows.size)
    return xp.argsort(key)


@njit(cache=True)
def _order_ties(rows, rises, code):
    """Put each run of rows whose weights do not rise into the order of their codes."""
    first = 0
    for last in range(rows.size):
        if last < rises.size and not rises[last]:
            continue
        if last - first < 16:
            for i in range(first + 1, last + 1):
                row, j = rows[i], i
                while j > first and code[rows[j - 1]] > code[row]:
                    rows[j] = rows[j - 1]
                    j -= 1
                rows[j] = row
        else:
            run = rows[first : last + 1].copy()
            rows[first : last + 1] = run[np.argsort(code[run])]
        first = last + 1


def sort_edges(src: Any, dst: Any, weight: Any, xp: Any) -> tuple[Any, Any, Any]:
    """The columns of an edge list in the total order, ``src < dst`` in every row."""
    rows = sorting_rows(src, dst, weight, xp)
    src, dst = src[rows], dst[rows]
    return xp.minimum(src, dst), xp.maximum(src, dst), weight[rows]


def sort_in_place(columns: Mapping[str, Any], xp: Any) -> None:
    """`sort_edges` of the columns of an edge frame."""
    src, dst, weight = columns.values()
    for column, values in zip((src, dst, weight), sort_edges(src, dst, weight, xp), strict=True):
        column[...] = values
