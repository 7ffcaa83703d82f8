"""Sparse rows on a GPU; see `sparse.cu`."""

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import WARP, c_name, check_arrays, launch, value_option
from rapids_slink.runtime.device import Array

SPARSE = "items/sparse/sparse.cu"


def dot_products(rows: Any, src: Array, dst: Array) -> Array:
    """See `cpu`."""
    return _of_pairs("dot_products", rows, src, dst, cp.float64)


def squared_distances(rows: Any, src: Array, dst: Array) -> Array:
    """See `cpu`."""
    return _of_pairs("squared_distances", rows, src, dst, cp.float64)


def equal_rows(rows: Any, src: Array, dst: Array) -> Array:
    """See `cpu`."""
    return _of_pairs("equal_rows", rows, src, dst, cp.bool_)


def hashes(rows: Any, seed: int) -> Array:
    """See `cpu`."""
    out = cp.empty(len(rows), cp.uint64)
    check_arrays("int64", rows.starts, size=out.size + 1)
    launch(
        SPARSE, "hash_rows", WARP * out.size,
        rows.starts, rows.columns, rows.values, np.int64(out.size), np.uint64(seed), out, options=_options(rows),
    )  # fmt: skip
    return out


def _of_pairs(name: str, rows: Any, src: Array, dst: Array, dtype: Any) -> Array:
    m = src.size
    check_arrays("int64", rows.starts, size=len(rows) + 1)
    check_arrays("int32", src, dst, size=m)
    out = cp.empty(m, dtype)
    launch(
        SPARSE, name, m,
        rows.starts, rows.columns, rows.values, src, dst, np.int64(m), np.int64(rows.n_features), out,
        options=_options(rows),
    )  # fmt: skip
    return out


def _options(rows: Any) -> tuple[str, ...]:
    return value_option(rows.values.dtype), f"-DCOLUMN={c_name(rows.columns.dtype)}"
