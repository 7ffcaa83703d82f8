"""Sets on a GPU; see `sets.cu`."""

import cupy as cp
import numpy as np

from rapids_slink.metrics import WORD_BITS
from rapids_slink.runtime.cuda import WARP, c_name, check_arrays, launch
from rapids_slink.runtime.device import Array

SETS = "items/sets/sets.cu"


def ascending(starts: Array, elements: Array) -> tuple[Array, Array]:
    """See `cpu`."""
    n, m = starts.size - 1, elements.size
    if m < 2:
        return starts, elements
    row = cp.searchsorted(starts, cp.arange(m, dtype=cp.int64), side="right") - 1
    if bool(((elements[1:] > elements[:-1]) | (row[1:] != row[:-1])).all()):
        return starts, elements
    order = cp.lexsort(cp.stack((elements.astype(cp.int64), row)))
    row, elements = row[order], elements[order]
    once = cp.concatenate((cp.ones(1, bool), (elements[1:] != elements[:-1]) | (row[1:] != row[:-1])))
    return cp.searchsorted(row[once], cp.arange(n + 1), side="left"), elements[once]


def hashed_bits(starts: Array, elements: Array, width: int, fit: bool) -> tuple[Array, Array]:
    """See `cpu`."""
    n = starts.size - 1
    check_arrays("int64", starts)
    words, ones = cp.zeros((n, width // WORD_BITS), cp.uint64), cp.empty(n, cp.int64)
    launch(
        SETS, "put_bits", WARP * n, starts, elements, np.int64(n), np.int32(width), np.bool_(fit), words, ones,
        options=_options(elements),
    )  # fmt: skip
    return words, ones


def common_elements(starts: Array, elements: Array, src: Array, dst: Array) -> Array:
    """See `cpu`."""
    m = src.size
    check_arrays("int64", starts)
    check_arrays("int32", src, dst, size=m)
    common = cp.empty(m, cp.int64)
    launch(SETS, "count_common", WARP * m, starts, elements, src, dst, np.int64(m), common, options=_options(elements))
    return common


def hashes(starts: Array, elements: Array, seed: int) -> Array:
    """See `cpu`."""
    n = starts.size - 1
    check_arrays("int64", starts)
    out = cp.empty(n, cp.uint64)
    launch(SETS, "hash_sets", WARP * n, starts, elements, np.int64(n), np.uint64(seed), out, options=_options(elements))
    return out


def _options(elements: Array) -> tuple[str, ...]:
    return (f"-DELEMENT={c_name(elements.dtype)}",)
