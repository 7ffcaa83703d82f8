"""Friends of friends on the GPU: launchers of `friends.cu`."""

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.trees.bvh import SOURCE as BVH
from rapids_slink.neighbors.trees.bvh import BoxSearch
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import number_a_block
from rapids_slink.runtime.device import Array, cuda

SOURCE = "spanning_tree/friends/friends.cu"


def label_friends(rows: Array, limit: float, metric: Metric, labels: Array, report: Report) -> int:
    """See `rapids_slink.spanning_tree.friends.cpu.label_friends`, for CuPy arrays."""
    device, n = cuda(), len(rows)
    with report.stage("neighbors", device):
        search = BoxSearch(rows, device, report, metric=metric)
    with report.stage("friends", device):
        search.check()
        limit = np.float64(limit)
        _, leaves, spans, nodes = search.tree
        parent, others = cp.empty(n, cp.int32), cp.zeros(1, cp.uint64)

        def start(name: str, jobs: Any, *arguments: Any) -> None:
            search.launch(name, jobs, *arguments, source=SOURCE)

        start("mark_cells", 2 * leaves - 1, np.int32(2 * leaves - 1), spans, limit, nodes)
        start("begin_with_cells", n, search.leaf_of, np.int64(n), nodes, search.parent, parent, others)
        cell = parent.copy()
        points = search.points, search.leaf_of, np.int64(n), nodes, cell
        start("join_near_points", n, *points, True, limit, parent)
        if int(others[0]):
            component = cp.empty(n, cp.int32)
            start("find_components", n, np.int64(n), parent, component)
            scratch = cp.empty(n, cp.uint32), number_a_block(BVH), cp.zeros(1, cp.uint64)
            search.launch_resident("write_groups", n, component, *search.tree, *scratch)
            start("join_near_points", n, *points, False, limit, parent)
        number, counters = cp.empty(n, cp.uint32), cp.zeros(1, cp.uint64)
        search.launch_resident(
            "number_components", n, np.int64(n), search.order, parent, cell, number, number_a_block(SOURCE), labels,
            counters, source=SOURCE,
        )  # fmt: skip
        report.count("friends", rows_in_cells=int(others[0]))
        return int(number[-1])
