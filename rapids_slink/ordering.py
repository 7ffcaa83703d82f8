"""The total order on edges among points: (weight, smaller id, larger id).

Nothing else defines "lighter" for points; some loops on a CPU write this comparison out. The edges of a user's graph
are ordered by (weight, row) instead, in `spanning_tree.graphs`, because their ids need not have an order.

Weights are float64 and ids fit in 31 bits, so an edge's ids pack into one non-negative int64 that has the order of
(smaller id, larger id). All keys are distinct, so there is one minimum spanning tree, and both devices compute it.
`ordering.cuh` is the same order in CUDA.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant, launch
from rapids_slink.runtime.device import Array

SOURCE = "ordering.cu"
#: At most this many edges of the same float32 weight are compared with each other.
MOST_TIES = 256
#: A CPU sorts so few edges by insertion.
FEW = 2**7
DIGIT = 11  # bits


@njit(cache=True, inline="always")
def edge_code(u, v):
    """Return the ids of edge {u, v} as one int64, with the smaller id in the upper half."""
    return (np.int64(min(u, v)) << np.int64(32)) | np.int64(max(u, v))


@njit(cache=True, inline="always")
def lighter(weight, code, other_weight, other_code):
    """Return whether edge (weight, code) comes before (other_weight, other_code)."""
    return weight < other_weight or (weight == other_weight and code < other_code)


#: A code that comes after the code of every edge.
NO_EDGE = constant("ordering.cuh", "NO_EDGE")


def edge_codes(u: Any, v: Any, xp: Any) -> Any:
    """Return the `edge_code` of each pair of ids from two arrays, int64."""
    return (xp.minimum(u, v).astype("int64") << 32) | xp.maximum(u, v)


def sort_in_place(columns: Mapping[str, Any], xp: Any) -> None:
    """Put the columns of an edge frame into the total order, ``src < dst`` in every row.

    Ids are int32 and weights float64 without NaN. A GPU sorts the edges by their weights in float32, which takes half
    the time, and compares those of the same float32 weight. If many are equal there, it sorts all edges by code and
    then by weight.
    """
    src, dst, weight = columns.values()
    if xp is not np:
        _sort_on_gpu(src, dst, weight, xp)
        return
    if weight.size <= FEW:
        _sort_few(src, dst, weight)
        return
    low, high, rows = np.minimum(src, dst), np.maximum(src, dst), np.argsort(weight)
    ordered = weight[rows]
    same = ordered[1:] == ordered[:-1]
    if same.any():  # edges of one weight are sorted among the positions that they have
        is_tied = np.append(same, False) | np.append(False, same)
        tied = rows[is_tied]
        tied = tied[np.argsort(edge_codes(src[tied], dst[tied], np))]
        rows[is_tied] = tied[np.argsort(weight[tied], kind="stable")]
        ordered = weight[rows]
    src[...], dst[...], weight[...] = low[rows], high[rows], ordered


@njit(nogil=True, cache=True)
def _sort_few(src, dst, weight):
    for i in range(weight.size):
        w, code, j = weight[i], edge_code(src[i], dst[i]), i
        while j > 0 and lighter(w, code, weight[j - 1], edge_code(src[j - 1], dst[j - 1])):
            src[j], dst[j], weight[j] = src[j - 1], dst[j - 1], weight[j - 1]
            j -= 1
        src[j], dst[j], weight[j] = code >> 32, code & 0xFFFFFFFF, w


def stable_order(values: Array, xp: Any) -> Any:
    """Return the rows of numbers without NaN in ascending order, int64; equal numbers keep their order.

    -0.0 and 0.0 are equal. NumPy's own sort takes twice as long.
    """
    if xp is np:
        key, rows = ascending_bits(values, xp), np.arange(values.size)
        starts = np.zeros((-(-8 * values.itemsize // DIGIT), 1 << DIGIT), np.int64)
        return _radix_sort(key, rows, np.empty_like(key), np.empty_like(rows), starts)
    # CuPy's sort is stable, but looks at bits. Its sum makes zeros of subnormal float32 values.
    return xp.argsort(values + values.dtype.type(0) if values.dtype.kind == "f" else values)


def ascending_bits(values: Array, xp: Any) -> Any:
    """Return uint64 numbers that have the order of the values; -0.0 and 0.0 get the same number.

    It compares bits alone, because CuPy's kernels take subnormal numbers for zeros.
    """
    size, kind = 8 * values.itemsize, values.dtype.kind
    bits, top = values.view(f"uint{size}").astype("uint64"), np.uint64(2 ** (size - 1))
    if kind == "f":
        return xp.where(bits > top, np.uint64(2**size - 1) - bits, bits | top)
    return bits ^ top if kind == "i" else bits


@njit(nogil=True, cache=True)
def keys_of_floats(bits):
    """Return the `ascending_bits` of float32 values from their bits, uint32, in one pass."""
    key = np.empty(bits.size, np.uint64)
    for i in range(bits.size):
        b, top = bits[i], np.uint32(1 << 31)
        key[i] = b | top if b <= top else ~b  # -0.0 as 0.0
        key[i] = top if b == top else key[i]
    return key


@njit(nogil=True, cache=True)
def _radix_sort(key, rows, moved_key, moved_rows, starts):
    """Sort the rows by a counting sort of each digit of their keys, the last digit first, and return them.

    The caller makes the arrays with NumPy, because Numba takes long to compile their making.
    """
    n, (digits, size) = key.size, starts.shape
    for i in range(n):
        for digit in range(digits):
            starts[digit, _digit(key[i], digit)] += 1
    for digit in range(digits):
        start = starts[digit]
        if n and start[_digit(key[0], digit)] == n:  # all have the same
            continue
        total = 0
        for value in range(size):
            start[value], total = total, total + start[value]
        for i in range(n):
            value = _digit(key[i], digit)
            moved_key[start[value]], moved_rows[start[value]] = key[i], rows[i]
            start[value] += 1
        key, moved_key, rows, moved_rows = moved_key, key, moved_rows, rows
    return rows


@njit(cache=True, inline="always")
def _digit(key, digit):
    return (key >> np.uint64(DIGIT * digit)) & np.uint64((1 << DIGIT) - 1)


def _sort_on_gpu(src: Array, dst: Array, weight: Array, xp: Any) -> None:
    m = np.int64(weight.size)
    key = xp.empty(weight.size, "float32")
    launch(SOURCE, "float_keys", weight.size, m, weight, key)
    rows = xp.argsort(key)
    ascending, code = xp.empty_like(weight), xp.empty(weight.size, "int64")
    launch(SOURCE, "gather_edges", weight.size, m, rows, weight, src, dst, ascending, code)
    has_more = xp.zeros(1, "int32")
    launch(SOURCE, "order_ties", weight.size, m, np.int64(MOST_TIES), ascending, code, src, dst, weight, has_more)
    if has_more[0]:
        _sort_by_codes(ascending, code, src, dst, weight, xp)


def _sort_by_codes(ascending: Array, code: Array, src: Array, dst: Array, weight: Array, xp: Any) -> None:
    """Sort edges, of `ascending` weights and these codes, by code and then stably by weight; write src, dst, weight."""
    m, by_code, key = np.int64(ascending.size), xp.argsort(code), xp.empty_like(ascending)
    launch(SOURCE, "keys_by_code", ascending.size, m, by_code, ascending, key)
    by_weight = xp.argsort(key)  # a stable sort
    launch(SOURCE, "put_edges", ascending.size, m, by_code, by_weight, ascending, code, src, dst, weight)
