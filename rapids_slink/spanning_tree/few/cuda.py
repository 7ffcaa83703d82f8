"""The minimum spanning tree of few points on a GPU: a matrix of all distances, and Borůvka on it in one launch.

The general way takes some hundred launches, each of which costs the host more time than a few thousand points cost a
GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact.cuda import all_distances
from rapids_slink.runtime.cuda import THREADS, launch, launch_resident, resident_blocks

SOURCE = "spanning_tree/few/dense.cu"
WARP = 32
BLOCKS = 4  # resident on a multiprocessor at most


def grow_tree(values: Any, metric: Metric, min_samples: int, edges: Mapping[str, Any]) -> None:
    """Write the minimum spanning tree of all pairs, in the total order.

    Parameters
    ----------
    values : (n, d) array
        As `neighbors.rows.metric_rows` makes them.
    metric : Metric
    min_samples : int
        If it is above 1, weights are mutual reachability with core distances of this many neighbours.
    edges : dict of arrays
        The columns of an edge frame, n - 1 rows; the weights are surrogate distances or mutual reachability.
    """
    n = len(values)
    matrix, core = all_distances(values, values, metric), None
    if min_samples > 1:
        core = cp.empty(n)
        launch(SOURCE, "find_cores", n * WARP, matrix, np.int32(n), np.int32(min_samples), core)
    component, parent = cp.empty((2, n), "int32")
    lightest, best_weight, taken_weight = cp.empty((3, n))
    code, best_code, taken_code = cp.empty((3, n), "int64")
    known = component, parent, lightest, code, best_weight, best_code, taken_weight, taken_code
    blocks = resident_blocks(n * WARP, THREADS, BLOCKS)
    arguments = matrix, np.int32(n), core, *known, *edges.values(), cp.zeros(2, "uint64")
    launch_resident(SOURCE, "grow_tree", blocks, THREADS, *arguments)
