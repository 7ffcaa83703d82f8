"""The rounds on a bounding volume hierarchy: the launcher of `boxes.cu`."""

from __future__ import annotations

import cupy as cp
import numpy as np

from rapids_slink.neighbors.trees.bvh import WARP, BoxSearch
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import number_a_block
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame

SOURCE = "spanning_tree/boxes/boxes.cu"
BLOCKS = 6  # of a multiprocessor, as in boxes.cu
NEAREST = 5  # others that each point knows from the start, as in boxes.cu
MAX_ROUNDS = 64  # more than it takes: at least half of the components that search are joined to another in each


def tree_of_boxes(search: BoxSearch, report: Report) -> PreallocatedFrame:
    """The minimum spanning tree of all pairs.

    Parameters
    ----------
    search : BoxSearch
        Of the points; it gives its memory to the tree, and is of no use afterwards.
    report : Report

    Returns
    -------
    PreallocatedFrame
        n - 1 edges in no order, weighing surrogate distances.
    """
    n = search.order.size
    tree = PreallocatedFrame.empty(search.device, n - 1, EDGE_TYPES)
    # Arrays of their own fit where the search has left room.
    candidate, component, size, chosen = (cp.empty(n, cp.int32) for _ in range(4))
    first_leaf, parent = search.leaf_of[::WARP].copy(), search.leaf_of
    following = cp.empty((NEAREST - 1, n), cp.int16)
    weight, bound = cp.empty(n), cp.empty(n)
    counters = cp.zeros(4 + 2 * MAX_ROUNDS, cp.uint64)
    found = candidate, following, weight
    search.launch(
        "find_nearest", n, search.points, search.order, first_leaf, np.int64(n), search.nodes, *found, source=SOURCE
    )
    search.launch_resident(
        "grow_tree", n, BLOCKS, search.points, search.order, first_leaf, *search.tree, *found, component, size,
        chosen, parent, bound, number_a_block(BLOCKS), *tree.columns.values(), counters, source=SOURCE,
    )  # fmt: skip
    _, _, searched, rounds = counters[:4].tolist()
    report.count("spanning_tree", rounds=rounds, rows_searched=n + searched)
    return tree
