"""Launchers of `points.cu`: they check values on a GPU, interleave a frame's columns and test a matrix for symmetry."""

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import THREADS, c_name, check_arrays, constant, launch_blocks, value_option
from rapids_slink.runtime.device import Array

SOURCE = "points/points.cu"
ROWS, COLUMNS, TILE = (constant(SOURCE, name) for name in ("ROWS", "COLUMNS", "TILE"))
BLOCKS = 2048  # at most this many are launched; a thread may have several jobs


def squares_are_finite(arrays: list[Any]) -> list[bool]:
    """Return whether each array's float64 sum of squares is at most an eighth of the largest number."""
    totals = cp.zeros(len(arrays))
    for i, values in enumerate(arrays):
        check_arrays(values.dtype, values)
        blocks = min(BLOCKS, -(-values.size // THREADS))
        options = (value_option(values.dtype),)
        launch_blocks(
            SOURCE, "add_squares", (blocks,), THREADS, values, np.int64(values.size), totals[i:], options=options
        )
    return [total <= np.finfo(np.float64).max / 8 for total in totals.tolist()]


def is_symmetric(matrix: Array) -> bool:
    """Return whether a square matrix is finite and symmetric to the last bit."""
    check_arrays(matrix.dtype, matrix)
    n, differs = len(matrix), cp.zeros(1, cp.int32)
    tiles, options = -(-n // TILE), (value_option(matrix.dtype),)
    launch_blocks(SOURCE, "compare_mirrored", (tiles, tiles), THREADS, matrix, np.int64(n), differs, options=options)
    return not int(differs[0])


def interleave(columns: list[Any], dtype: np.dtype, target: np.dtype) -> Any:
    """Return the rows of pylibcudf's columns, all of NumPy's `dtype`, as a `target` array; None if there are nulls.

    cuDF's own `interleave_columns` takes at least 4 ms, and more memory.
    """
    if any(column.null_count() for column in columns):
        return None
    at = np.array([column.data().ptr + column.offset() * dtype.itemsize for column in columns], np.uint64)
    n, d = columns[0].size(), len(columns)
    rows = cp.empty((n, d), target)
    grid, options = (-(-n // ROWS), -(-d // COLUMNS)), (f"-DCOLUMN={c_name(dtype)}", value_option(target))
    launch_blocks(SOURCE, "interleave", grid, ROWS, cp.asarray(at), np.int64(n), np.int32(d), rows, options=options)
    return rows
