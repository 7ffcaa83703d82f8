"""The rounds on a bounding volume hierarchy: the launcher of `boxes.cu`."""

import cupy as cp
import numpy as np

from rapids_slink.neighbors.trees.bvh import BoxSearch
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import WARP, constant, number_a_block
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame

SOURCE = "spanning_tree/boxes/boxes.cu"
NEAREST, MAX_ROUNDS = (constant(SOURCE, name) for name in ("NEAREST", "MAX_ROUNDS"))


def tree_of_boxes(search: BoxSearch, report: Report, max_weight: float = np.inf) -> PreallocatedFrame:
    """The minimum spanning tree of the points of a search: n - 1 edges in any order, weighing surrogate distances.

    Edges above `max_weight` are missing.
    The tree takes over the search's memory, so the search cannot be used afterwards.
    """
    n = search.order.size
    search.check()
    tree = PreallocatedFrame.empty(search.device, n - 1, EDGE_TYPES)
    # Arrays of their own fit where the search has left room.
    candidate, component, size, chosen = (cp.empty(n, cp.int32) for _ in range(4))
    first_leaf, parent = search.leaf_of[::WARP].copy(), search.leaf_of
    following = cp.empty((NEAREST - 1, n), cp.int16)
    weight, bound = cp.empty(n), cp.empty(n)
    counters = cp.zeros(4 + 2 * MAX_ROUNDS, cp.uint64)
    nearest = candidate, following, weight
    limits = np.float64(max_weight), np.nextafter(max_weight, np.inf)
    search.launch(
        "find_nearest", n, search.points, search.order, first_leaf, np.int64(n), search.nodes, limits[1], *nearest,
        source=SOURCE,
    )  # fmt: skip
    search.launch_resident(
        "grow_tree", n, search.points, search.order, first_leaf, *search.tree, *limits, *nearest, component,
        size, chosen, parent, bound, number_a_block(SOURCE), *tree.columns.values(), counters, source=SOURCE,
    )  # fmt: skip
    _, n_edges, searched, rounds = counters[:4].tolist()
    report.count("spanning_tree", rounds=rounds, rows_searched=n + searched)
    return tree.head(n_edges)
