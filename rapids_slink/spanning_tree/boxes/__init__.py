"""Borůvka on a tree of boxes, on a GPU: the minimum spanning tree of points of few features, or low dimension.

Each point first finds its nearest few points. In a round each component looks for its lightest edge to a point outside,
and skips the nodes whose points all belong to it. Every edge found bounds the search of all the component's points. A
point keeps two results for later rounds:

- its candidate, the lightest edge that it knows. It bounds the component as long as it leaves the component; then the
  next of the point's nearest few that is outside replaces it;
- its floor: no edge to a point outside its component is lighter. It stays valid because components only grow. A point
  need not search while its candidate attains the floor, or while its component has a lighter edge.

*Each edge taken is in the tree.* Let C be a component that searches, e the lightest edge that leaves it in the total
order, and v the end of e in C. No bound of C is below the weight of e, because bounds are weights of edges that leave
C. The floor of v is not above that weight either, so v searches, or its candidate attains the floor. A search skips
what is above the bound, what is within C, and what weighs as much as a candidate and comes after it. So the candidate
of v is e. C takes the first edge in the total order among its points' candidates that attain the bound. That is e, and
by the cut property e is in the tree.

With a largest weight no bound is above it, boxes beyond it are passed over, and the last round is the one that takes no
edge.

The largest component waits, because the components that search merge with it. Neighbouring points (a warp) search
together on the bounding volume hierarchy of `neighbors/trees/bvh.py`.
"""

from typing import TYPE_CHECKING

import numpy as np

from rapids_slink.neighbors import estimate_search, is_searched_by_tree
from rapids_slink.neighbors.task import Search
from rapids_slink.ordering import sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import WARP, constant, number_a_block
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate, release_cached, sequential
from rapids_slink.spanning_tree.problem import Prepare, Prepared, Problem, Tree

#: Bytes per point at the peak: its state and its edge.
POINT_BYTES = 56


def serves(problem: Problem) -> bool:
    """Points whose lists a tree would search on a GPU: boxes take less time than the lists alone (bench/NOTES.md).

    Not with core distances: they need the lists, and most of the tree follows from the lists.
    """
    if not problem.device.is_gpu or problem.by_reachability:
        return False
    return is_searched_by_tree(problem.n, problem.d, problem.metric, problem.device)


def estimate(problem: Problem, chosen: Search | None = None) -> MemoryEstimate:
    """Bytes of the rows, their tree of boxes, and the state of each point."""
    n, d, itemsize = problem.n, problem.n_features, problem.itemsize
    search = estimate_search(n, d, itemsize, 1, problem.device, n_queries=0, metric=problem.metric, chosen=chosen)
    return sequential(search, MemoryEstimate(POINT_BYTES * n))


def prepare(problem: Problem, rows: Array, report: Report, _: Prepare) -> Prepared | None:
    """The tree of boxes, and the way by it."""
    from rapids_slink.neighbors.trees.bvh import BoxSearch

    with report.stage("neighbors", problem.device):
        search = BoxSearch(rows, problem.device, report, metric=problem.metric)
    return prepare_by(search, problem, report)


def prepare_by(search: Search, problem: Problem, report: Report) -> Prepared | None:
    """The way by a search of the points, None if the search has no boxes or does not serve."""
    device = problem.device
    if not device.is_gpu or problem.by_reachability:
        return None
    from rapids_slink.neighbors.trees.bvh import BoxSearch

    if not isinstance(search, BoxSearch):
        return None
    report["way"] = "boxes"
    needed = estimate(problem, search)

    def make() -> Tree:
        nonlocal search
        release_cached()
        with report.stage("spanning_tree", device):
            edges = tree_of_boxes(search, report, problem.max_weight)
            del search
            release_cached()
            sort_in_place(edges.columns, device.xp)
        return edges, 1

    return Prepared(make, lambda: needed)


if TYPE_CHECKING:
    from rapids_slink.neighbors.trees.bvh import BoxSearch

SOURCE = "spanning_tree/boxes/boxes.cu"
NEAREST, MAX_ROUNDS = (constant(SOURCE, name) for name in ("NEAREST", "MAX_ROUNDS"))


def tree_of_boxes(search: "BoxSearch", report: Report, max_weight: float = np.inf) -> PreallocatedFrame:
    """The minimum spanning tree of the points of a search: n - 1 edges in any order, weighing surrogate distances.

    Edges above `max_weight` are missing.
    The tree takes over the search's memory, so the search cannot be used afterwards.
    """
    xp, n = search.device.xp, search.order.size
    search.check()
    tree = PreallocatedFrame.empty(search.device, n - 1, EDGE_TYPES)
    # Arrays of their own fit where the search has left room.
    candidate, component, size, chosen = (xp.empty(n, xp.int32) for _ in range(4))
    first_leaf, parent = search.leaf_of[::WARP].copy(), search.leaf_of
    following = xp.empty((NEAREST - 1, n), xp.int16)
    weight, bound = xp.empty(n), xp.empty(n)
    counters = xp.zeros(4 + 2 * MAX_ROUNDS, xp.uint64)
    nearest = candidate, following, weight
    limits = np.float64(max_weight), np.nextafter(max_weight, np.inf)
    search.launch(
        "find_nearest", n, search.points, search.order, first_leaf, np.int64(n), search.nodes, limits[1], *nearest,
        source=SOURCE,
    )  # fmt: skip
    search.launch_resident(
        "grow_tree_of_boxes", n, search.points, search.order, first_leaf, *search.tree, *limits, *nearest, component,
        size, chosen, parent, bound, number_a_block(SOURCE), *tree.columns.values(), counters, source=SOURCE,
    )  # fmt: skip
    _, n_edges, searched, rounds = counters[:4].tolist()
    report.count("spanning_tree", rounds=rounds, rows_searched=n + searched)
    return tree.head(n_edges)
