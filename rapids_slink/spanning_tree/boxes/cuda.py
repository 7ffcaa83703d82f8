"""The rounds on a GPU: launchers of `boxes.cu`."""

from __future__ import annotations

from functools import partial

import cupy as cp
import numpy as np

from rapids_slink.neighbors.trees.bvh import BoxSearch
from rapids_slink.ordering import sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame

SOURCE = "spanning_tree/boxes/boxes.cu"
MAX_ROUNDS = 64  # more than it takes: at least half of the components that search are joined to another in each


def tree_of_boxes(search: BoxSearch, report: Report) -> PreallocatedFrame:
    """As `rapids_slink.spanning_tree.boxes.cpu.tree_of_boxes`."""
    n = search.order.size
    tree = PreallocatedFrame.empty(search.device, n - 1, EDGE_TYPES)
    component, candidate, size, parent = cp.empty((4, n), cp.int32)
    weight, bound = cp.empty((2, n))
    best_code = cp.empty(n, cp.int64)
    searched, largests, taken = cp.zeros(MAX_ROUNDS, cp.int32), cp.zeros(MAX_ROUNDS, cp.uint64), cp.zeros(1, cp.int32)
    launch = partial(search.launch, source=SOURCE)
    each, rounds = np.int64(n), 0
    launch("start", n, each, component, candidate, weight, size)
    while int(taken[0]) < n - 1:
        largest = largests[rounds:]
        search.group_nodes(component)
        launch("begin_round", n, each, component, size, bound, best_code, largest)
        launch("bound_components", n, each, component, candidate, weight, bound)
        launch(
            "search", n, search.points, search.order, each, search.leaf_of, search.nodes, component, largest, candidate,
            weight, bound, searched[rounds:],
        )  # fmt: skip
        launch("choose", n, search.order, each, component, candidate, weight, bound, best_code)
        edges = taken, *tree.columns.values()
        launch("merge", n, search.position, each, component, bound, best_code, largest, parent, *edges)
        launch("relabel", n, each, parent, component, size)
        rounds += 1
    report.count("spanning_tree", rounds=rounds, rows_searched=int(searched.sum()))
    sort_in_place(tree.columns, cp)
    return tree
