"""The rows of a distance matrix on the GPU: launchers of `distance_matrix.cu`."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact.cuda import lists_by_sorting
from rapids_slink.runtime.cuda import THREADS, check_arrays, launch_blocks, value_option

SOURCE = "neighbors/distance_matrix/distance_matrix.cu"


def row_bytes(n: int, k: int) -> int:
    """What `scan` takes for a row: for lists of several entries all weights are sorted."""
    return 48 * n if k > 1 else 0


def scan(matrix: Any, rows: Any, groups: tuple[Any, Any], upper: Any, lists: tuple[Any, Any], core: Any) -> None:
    """As `rapids_slink.neighbors.distance_matrix.cpu.scan`."""
    check_arrays(matrix.dtype, matrix)
    check_arrays("int32", rows, *groups, lists[0])
    check_arrays("float64", upper, lists[1], core)
    n, k = len(matrix), lists[0].shape[1]
    if k == 1:
        launch_blocks(
            SOURCE, "find_nearest", (rows.size,), THREADS, matrix, np.int64(n), rows, *groups, core, upper, *lists,
            options=(value_option(matrix.dtype),),
        )  # fmt: skip
        return
    weights = matrix[rows].astype(cp.float64)
    weights[groups[0][:, None] == groups[1]] = cp.inf
    found = lists_by_sorting(weights, rows, upper, k, core)
    lists[0][...], lists[1][...] = found.ids, found.weights
    cp.minimum(upper, found.weights[:, -1], out=upper)
