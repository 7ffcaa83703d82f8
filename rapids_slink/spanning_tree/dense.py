"""The minimum spanning tree of few points on a GPU: a matrix of all distances, and Borůvka on it in one launch.

A row of lists, a forest and a search are some hundred launches, each of which takes the host longer than a few thousand
points take a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact.cuda import all_distances
from rapids_slink.ordering import sort_edges
from rapids_slink.runtime.cuda import THREADS, launch, launch_resident, multiprocessors

SOURCE = "spanning_tree/dense.cu"
WARP = 32
BLOCKS = 4  # of a multiprocessor at most: so many are there at a time


def grow_tree(values: Any, metric: Metric, min_samples: int, edges: Mapping[str, Any]) -> None:
    """Write the minimum spanning tree of all pairs, in the total order.

    Parameters
    ----------
    values : (n, d) array
        As `neighbors.rows.metric_rows` makes them.
    metric : Metric
    min_samples : int
        Edges weigh mutual reachability with this many neighbours in a core, if it is above 1.
    edges : dict of arrays
        The columns of an edge frame, n - 1 rows; they weigh surrogate distances or mutual reachability.
    """
    n = len(values)
    matrix, core = all_distances(values, values, metric), None
    if min_samples > 1:
        core = cp.empty(n)
        launch(SOURCE, "find_cores", n * WARP, matrix, np.int32(n), np.int32(min_samples), core)
    known = [cp.empty(n, dtype) for dtype in ("int32", "int32", "float64", "int64", "float64", "int64")]
    found = [cp.empty_like(column) for column in edges.values()]
    blocks = min(BLOCKS * multiprocessors(), -(-n * WARP // THREADS))
    counters = cp.zeros(2, "uint64")
    arguments = matrix, np.int32(n), core, *known, counters, *found
    launch_resident(SOURCE, "grow_tree", blocks, THREADS, *arguments)
    src, dst, weight = (column.get() for column in found)
    for column, array in zip(edges.values(), sort_edges(src, dst, weight, np), strict=True):
        column.set(array)
