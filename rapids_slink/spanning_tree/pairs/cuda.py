"""The minimum spanning tree of a distance matrix on a GPU: Borůvka's rounds in one launch.

The general way takes some hundred launches, each of which costs the host more time than a few thousand points cost a
GPU.
"""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.runtime.cuda import WARP, check_arrays, launch, launch_resident, value_option
from rapids_slink.runtime.device import Array

SOURCE = "spanning_tree/pairs/dense.cu"


def find_cores(matrix: Array, min_samples: int) -> Any:
    """The distance of each point from its `min_samples`-th nearest other, (n,) float64."""
    check_arrays(matrix.dtype, matrix)
    n, options = len(matrix), (value_option(matrix.dtype),)
    core = cp.empty(n)
    launch(SOURCE, "find_cores", n * WARP, matrix, np.int32(n), np.int32(min_samples), core, options=options)
    return core


def tree_of_matrix(matrix: Array, core: Array, edges: Mapping[str, Any]) -> None:
    """See `rapids_slink.spanning_tree.pairs.cpu.tree_of_matrix`."""
    check_arrays(matrix.dtype, matrix)
    check_arrays("float64", core)
    n, options = len(matrix), (value_option(matrix.dtype),)
    component, parent = cp.empty((2, n), "int32")
    lightest, best_weight, taken_weight = cp.empty((3, n))
    code, best_code, taken_code = cp.empty((3, n), "int64")
    state = component, parent, lightest, code, best_weight, best_code, taken_weight, taken_code
    arguments = matrix, np.int32(n), core, *state, *edges.values(), cp.zeros(2, "uint64")
    launch_resident(SOURCE, "grow_tree_of_matrix", n * WARP, *arguments, options=options)
