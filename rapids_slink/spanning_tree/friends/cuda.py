"""Friends of friends on the GPU: launchers of `friends.cu`."""

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.trees.bvh import SOURCE as BOXES
from rapids_slink.neighbors.trees.bvh import BoxSearch
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import check_arrays, number_a_block
from rapids_slink.runtime.device import Array, cuda

SOURCE = "spanning_tree/friends/friends.cu"


def make_boxes(rows: Array, metric: Metric) -> BoxSearch:
    """The bounding volume hierarchy of rows."""
    return BoxSearch(rows, cuda(), Report(), metric=metric)


def write_labels(search: BoxSearch, limit: float, metric: Metric, labels: Array) -> int:
    """See `rapids_slink.spanning_tree.friends.cpu.write_labels`, for CuPy arrays. The search has other groups then."""
    n = search.order.size
    search.check()
    check_arrays("int32", labels, size=n)
    _, leaves, spans, nodes = search.tree
    parent, others = cp.empty(n, cp.int32), cp.zeros(1, cp.uint64)
    _start(search, "mark_cells", 2 * int(leaves) - 1, leaves, spans, np.float64(limit), nodes)
    _start(search, "begin_with_cells", n, search.leaf_of, np.int64(n), nodes, search.parent, parent, others)
    cell = parent.copy()
    _join(search, cell, True, limit, parent)
    if int(others[0]):
        join_others(search, cell, limit, parent)
    number, counters = cp.empty(n, cp.uint32), cp.zeros(1, cp.uint64)
    search.launch_resident(
        "number_components", n, np.int64(n), search.order, parent, cell, number, number_a_block(SOURCE), labels,
        counters, source=SOURCE,
    )  # fmt: skip
    return int(number[-1])


def join_others(search: BoxSearch, cell: Array, limit: float, parent: Array) -> None:
    """Join the points that are not the first of their cells, passing over nodes of one component."""
    n = search.order.size
    component, changes, counters = cp.empty(n, cp.int32), cp.empty(n, cp.uint32), cp.zeros(1, cp.uint64)
    _start(search, "find_components", n, np.int64(n), parent, component)
    search.launch_resident("write_groups", n, component, *search.tree, changes, number_a_block(BOXES), counters)
    _join(search, cell, False, limit, parent)


def _join(search: BoxSearch, cell: Array, firsts: bool, limit: float, parent: Array) -> None:
    n = search.order.size
    points = search.points, search.leaf_of, np.int64(n), search.nodes
    _start(search, "join_near_points", n, *points, cell, np.bool_(firsts), np.float64(limit), parent)


def _start(search: BoxSearch, name: str, jobs: int, *arguments: Any) -> None:
    search.launch(name, jobs, *arguments, source=SOURCE)
