"""Borůvka on a tree of boxes, on a GPU: the minimum spanning tree of points of few features.

Each point first finds its nearest few. In a round each component looks for its lightest edge to a point outside. Nodes
whose points are all of the component are passed over. An edge that is found bounds the component, for all its points,
and what a point has learnt serves it in the next rounds:

- its candidate, the lightest edge known, which bounds its component again as long as it leaves it; then the next of its
  nearest few that is outside takes its place;
- its floor: no edge to a point outside its component is lighter, and components only grow. It need not search while its
  candidate attains it, or while its component has a lighter edge.

*Each edge taken is in the tree.* Say C searches, and let e be the lightest edge that leaves it in the total order, from
point v. No bound of C is below the weight of e, as bounds are weights of edges that leave C. The floor of v is not
above it either, so v searches, or its candidate attains the floor. A search passes over what is above the bound, what
is within C, and what weighs as much as a candidate and comes after it; so the candidate of v is e. The edge taken for C
is the first in the total order of its points' candidates that attain the bound, which is e, and the cut property does
the rest.

The largest component waits: those that search do merge. Neighbouring points, those of a warp, search together on the
bounding volume hierarchy of `neighbors/trees/bvh.py`. This launches `boxes.cu`.
"""

from __future__ import annotations

import cupy as cp
import numpy as np

from rapids_slink.neighbors.trees.bvh import WARP, BoxSearch
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import number_a_block
from rapids_slink.runtime.estimate import MemoryEstimate
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame

SOURCE = "spanning_tree/boxes.cu"
BLOCKS = 6  # of a multiprocessor, as in boxes.cu
NEAREST = 5  # others that each point knows from the start, as in boxes.cu
MAX_ROUNDS = 64  # more than it takes: at least half of the components that search are joined to another in each
#: At the peak, in bytes a point: what is known of it, and its edge.
POINT_BYTES = 56


def estimate_tree(n: int) -> MemoryEstimate:
    """Bytes of `tree_of_boxes` of n points beside the search's own."""
    return MemoryEstimate(POINT_BYTES * n)


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
