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

from rapids_slink.runtime.cuda import check_arrays, launch
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

SOURCE = "ordering.cu"
#: Edges of one weight, at most, that are sorted by insertion on a CPU.
SHORT_RUN = 64
#: Edges of one weight in float32, at most, that are compared with each other on a GPU.
MOST_TIES = 256
#: Edges that a thread of the CPU sorts, at least.
MIN_SORTED = 2**15


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
    """The rows of an edge list in the total order: ids and weights as arrays of `xp`, no weight NaN."""
    if xp is not np:
        return _ordered_on_gpu(src, dst, weight, xp)[0]
    rows = _ascending(weight)
    ascending = weight[rows]
    rises = ascending[1:] != ascending[:-1]
    if not rises.all():  # the ids only matter where weights tie
        _order_ties(rows, rises, edge_codes(src, dst, np))
    return rows


def _ordered_on_gpu(src: Any, dst: Any, weight: Any, xp: Any) -> tuple[Any, Any, Any]:
    """The rows of an edge list in the total order, their weights and their codes.

    They are sorted by weights in float32, which takes half the time, and then compared where these tie.
    """
    check_arrays("int32", src, dst)
    check_arrays("float64", weight)

    def gathered(rows: Any) -> tuple[Any, Any, Any]:
        found = rows, xp.empty_like(weight), xp.empty(weight.size, "int64")
        launch(SOURCE, "gather_edges", weight.size, np.int64(weight.size), rows, weight, src, dst, *found[1:])
        return found

    # -0.0 equals 0.0, but not in its bits, which a radix sort looks at.
    ascending = gathered(xp.argsort(weight.astype("float32") + np.float32(0)))
    ordered, has_more = [xp.empty_like(part) for part in ascending], xp.zeros(1, "int32")
    given = np.int64(weight.size), np.int64(MOST_TIES), *ascending, *ordered, has_more
    launch(SOURCE, "order_ties", weight.size, *given)
    if not has_more[0]:
        return tuple(ordered)
    del ascending, ordered, given  # the sorts may have their memory
    by_code = xp.argsort(edge_codes(src, dst, xp))
    return gathered(by_code[xp.argsort(weight[by_code] + 0.0)])  # CuPy's sort is stable


def _ascending(weight: np.ndarray) -> np.ndarray:
    """The rows by weight: each of several ranges of weights is sorted by a thread of its own."""
    ranges = chunks_for_cores(weight.size, MIN_SORTED)
    if len(ranges) == 1:
        return np.argsort(weight)
    rows = np.argpartition(weight, [part.start for part in ranges[1:]])

    def sort(part: slice) -> None:
        rows[part] = rows[part][np.argsort(weight[rows[part]])]

    for_each_chunk(CPU, sort, ranges)
    return rows


def _order_ties(rows: np.ndarray, rises: np.ndarray, code: np.ndarray) -> None:
    """Put each run of rows whose weights do not rise into the order of their codes."""
    _order_short_runs(rows, rises, code)
    ends = np.append(np.flatnonzero(rises), rows.size - 1) + 1
    starts = np.append(0, ends[:-1])
    is_long = ends - starts > SHORT_RUN
    for first, end in zip(starts[is_long].tolist(), ends[is_long].tolist(), strict=True):
        run = rows[first:end]
        rows[first:end] = run[np.argsort(code[run])]  # which Numba takes seconds to compile


@njit(cache=True)
def _order_short_runs(rows, rises, code):
    first = 0
    for last in range(rows.size):
        if last < rises.size and not rises[last]:
            continue
        if last - first < SHORT_RUN:
            for i in range(first + 1, last + 1):
                row, j = rows[i], i
                while j > first and code[rows[j - 1]] > code[row]:
                    rows[j] = rows[j - 1]
                    j -= 1
                rows[j] = row
        first = last + 1


def sort_in_place(columns: Mapping[str, Any], xp: Any) -> None:
    """Put the columns of an edge frame into the total order, ``src < dst`` in every row."""
    src, dst, weight = columns.values()
    if xp is not np:
        _, weight[...], code = _ordered_on_gpu(src, dst, weight, xp)
        src[...], dst[...] = code >> 32, code & 0xFFFFFFFF
        return
    rows = sorting_rows(src, dst, weight, xp)
    given = src.copy(), dst.copy(), weight.copy()

    def place(part: slice) -> None:
        u, v, weight[part] = (column[rows[part]] for column in given)
        src[part], dst[part] = np.minimum(u, v), np.maximum(u, v)

    for_each_chunk(CPU, place, chunks_for_cores(rows.size, MIN_SORTED))
