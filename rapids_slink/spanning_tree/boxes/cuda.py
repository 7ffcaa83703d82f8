"""The rounds on a GPU, on a bounding volume hierarchy: the launcher of `boxes.cu`."""

from __future__ import annotations

import cupy as cp
import numpy as np

from rapids_slink.neighbors.trees.bvh import BoxSearch
from rapids_slink.report import Report
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.spanning_tree.boxes import NEAREST

SOURCE = "spanning_tree/boxes/boxes.cu"
BLOCKS = 6  # of a multiprocessor, as in boxes.cu
MAX_ROUNDS = 64  # more than it takes: at least half of the components that search are joined to another in each


def tree_of_boxes(search: BoxSearch, report: Report) -> PreallocatedFrame:
    """As `rapids_slink.spanning_tree.boxes.cpu.tree_of_boxes`."""
    n = search.order.size
    tree = PreallocatedFrame.empty(search.device, n - 1, EDGE_TYPES)
    candidate, component, size = cp.empty((3, n), cp.int32)
    parent, of_blocks = search.scratch(BLOCKS)
    following = cp.empty((NEAREST - 1, n), cp.int32)
    (weight, bound), least = cp.empty((2, n)), cp.empty(n, cp.int64)
    counters = cp.zeros(4 + 2 * MAX_ROUNDS, cp.uint64)
    found = candidate, following, weight
    search.launch(
        "find_nearest", n, search.points, search.order, search.leaf_of, np.int64(n), search.nodes, *found, source=SOURCE
    )
    search.launch_resident(
        "grow_tree", n, BLOCKS, search.points, search.order, search.position, search.leaf_of, *search.tree, *found,
        component, size, parent, bound, least, of_blocks, *tree.columns.values(), counters, source=SOURCE,
    )  # fmt: skip
    _, _, searched, rounds = counters[:4].tolist()
    report.count("spanning_tree", rounds=rounds, rows_searched=n + searched)
    return tree
