"""Sparse rows on a CPU: sums in float64, term by term in the order of the columns, as `sparse.cu` has them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rapids_slink.items.compressed import mixed
from rapids_slink.runtime.compiling import njit, read_only
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.threads import chunks_for_cores, for_each_chunk

#: Rows, and pairs of them, of a thread's share at least.
LEAST_ROWS, LEAST_PAIRS = 2**8, 2**10


def dot_products(rows: Any, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """The dot products of pairs of rows, (m,) float64."""
    return _of_pairs(_dot_products, rows, src, dst, np.float64, rows.n_features)


def squared_distances(rows: Any, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """The squared distances of pairs of rows, (m,) float64."""
    return _of_pairs(_squared_distances, rows, src, dst, np.float64, rows.n_features)


def equal_rows(rows: Any, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Whether the rows of each pair have the same entries, (m,) bool."""
    return _of_pairs(_equal_rows, rows, src, dst, np.bool_, rows.n_features)


def hashes(rows: Any, seed: int) -> np.ndarray:
    """A number for each row, (n,) uint64: the sum of its entries' hashes."""
    out = np.empty(len(rows), np.uint64)
    bits = rows.values.view(np.uint32 if rows.values.dtype == np.float32 else np.uint64)
    given = read_only(rows.starts), read_only(rows.columns), read_only(bits), np.uint64(seed)
    for_each_chunk(CPU, lambda part: _hash(*given, part.start, part.stop, out), chunks_for_cores(out.size, LEAST_ROWS))
    return out


def _of_pairs(
    kernel: Callable[..., Any], rows: Any, src: np.ndarray, dst: np.ndarray, dtype: Any, n_features: int
) -> np.ndarray:
    out = np.empty(src.size, dtype)
    given = [read_only(array) for array in (rows.starts, rows.columns, rows.values, src, dst)]
    for_each_chunk(
        CPU,
        lambda part: kernel(*given, n_features, part.start, part.stop, out),
        chunks_for_cores(src.size, LEAST_PAIRS),
    )
    return out


@njit(nogil=True, cache=True)
def _dot_products(starts, columns, values, src, dst, d, first, last, out):
    """Even and odd columns are summed separately; of an odd number the last column is added at the end."""
    for p in range(first, last):
        i, j = starts[src[p]], starts[dst[p]]
        i_end, j_end = starts[src[p] + 1], starts[dst[p] + 1]
        even, odd, lone = 0.0, 0.0, 0.0
        while i < i_end and j < j_end:
            a, b = columns[i], columns[j]
            if a == b:
                product = np.float64(values[i]) * np.float64(values[j])
                if a & 1:
                    odd += product
                elif a == d - 1:
                    lone = product
                else:
                    even += product
            i += a <= b
            j += b <= a
        out[p] = (even + odd) + lone


@njit(nogil=True, cache=True)
def _squared_distances(starts, columns, values, src, dst, d, first, last, out):
    for p in range(first, last):
        i, j = starts[src[p]], starts[dst[p]]
        i_end, j_end = starts[src[p] + 1], starts[dst[p] + 1]
        total = 0.0
        while i < i_end or j < j_end:
            a = columns[i] if i < i_end else d
            b = columns[j] if j < j_end else d
            x = np.float64(values[i]) if a <= b else 0.0
            y = np.float64(values[j]) if b <= a else 0.0
            difference = x - y
            total += difference * difference
            i += a <= b
            j += b <= a
        out[p] = total


@njit(nogil=True, cache=True)
def _equal_rows(starts, columns, values, src, dst, d, first, last, out):
    for p in range(first, last):
        i, j = starts[src[p]], starts[dst[p]]
        size = starts[src[p] + 1] - i
        equal = starts[dst[p] + 1] - j == size
        e = 0
        while equal and e < size:
            equal = columns[i + e] == columns[j + e] and values[i + e] == values[j + e]
            e += 1
        out[p] = equal


@njit(nogil=True, cache=True)
def _hash(starts, columns, bits, seed, first, last, out):
    for i in range(first, last):
        total = seed
        for e in range(starts[i], starts[i + 1]):
            total += mixed(mixed(np.uint64(columns[e]) + seed) ^ np.uint64(bits[e]))
        out[i] = total
