"""Trees of boxes: the minimum spanning tree of points of few features or low dimension, and friends of friends.

`docs/algorithms.md` proves both, under "Borůvka on a tree of boxes" and "Friends of friends".

**The tree**, on a GPU, by Borůvka's algorithm on the bounding volume hierarchy of `neighbors/trees/bvh.py`. Each point
first finds its nearest few points. In a round each component but the largest looks for its lightest edge to a point
outside, and skips the nodes whose points all belong to it. Neighbouring points (a warp) search together. A point keeps
two results for later rounds:

- its candidate, the lightest edge that it knows. It bounds the component as long as it leaves the component; then the
  next of the point's nearest few that is outside replaces it;
- its floor: no edge to a point outside its component is lighter. It stays valid because components only grow. A point
  need not search while its candidate attains the floor, or while its component has a lighter edge.

If there is a largest weight, no bound is above it, boxes beyond it are passed over, and the last round is the one that
takes no edge.

**Friends of friends** are the clusters of rows that steps of at most a distance connect, without the tree of the rows.

    rows ──▶ tree of boxes ──▶ joins of near points ──▶ labels
             neighbors/trees   `write_friends`

Two points are joined if they are within the distance, or if a box around both is so small that they must be. Nodes of
one component keep the number of pairs small where many points are within the distance of each other. A CPU joins from
the leaves up, so that it knows them all. On a GPU each point joins those that follow it along the curve. Nodes whose
points are all within the distance of each other, cells, are one component from the start. The first points of all
cells search first, then nodes of one component are found anew, and the other points pass over most nodes.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rapids_slink.neighbors import estimate_search, tree_class
from rapids_slink.neighbors.task import Search
from rapids_slink.neighbors.within import Limit
from rapids_slink.ordering import sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import WARP, constant, number_a_block
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate, release_cached
from rapids_slink.spanning_tree import kernels
from rapids_slink.spanning_tree.problem import Look, Prepared, Problem, Tree

#: Bytes per point, its state and its edge, beside what the search takes while it is made; and without the search, its
#: edge and its linkage.
POINT_BYTES, LINKED_BYTES = 28, 116


def estimate(problem: Problem, chosen: Search | None = None) -> MemoryEstimate:
    """Return the bytes of the rows, their tree of boxes, and the state of each point."""
    n, d, itemsize = problem.n, problem.n_features, problem.itemsize
    search = estimate_search(n, d, itemsize, 1, problem.device, n_queries=0, metric=problem.metric, chosen=chosen)
    return replace(search, peak=max(search.peak + POINT_BYTES * n, LINKED_BYTES * n))


def prepare(look: Look) -> Prepared | None:
    """Return the way by the tree of boxes that searches the points; None if another search suits them."""
    problem, report, search = look.problem, look.report, look.search.by_boxes
    if search is None:
        return None
    del look.search
    needed = estimate(problem, search)

    def make() -> Tree:
        nonlocal search
        release_cached()
        with report.stage("spanning_tree", problem.device):
            edges = tree_of_boxes(search, report, problem.max_weight)
            del search
            release_cached()
            sort_in_place(edges.columns, problem.device.xp)
        return edges, 1

    return Prepared(make, lambda: needed)


if TYPE_CHECKING:
    from rapids_slink.neighbors.trees.bvh import BoxSearch

SOURCE = "spanning_tree/boxes.cu"
NEAREST, MAX_ROUNDS = (constant(SOURCE, name) for name in ("NEAREST", "MAX_ROUNDS"))


def tree_of_boxes(search: "BoxSearch", report: Report, max_weight: float = np.inf) -> PreallocatedFrame:
    """Return the minimum spanning tree of the points of a search, n - 1 edges in any order.

    The weights are surrogate distances. Edges above `max_weight` are missing. The tree takes over the search's memory,
    so the search cannot be used afterwards.
    """
    xp, n = search.device.xp, search.order.size
    search.check()
    tree = PreallocatedFrame.empty(search.device, n - 1, EDGE_TYPES)
    # Separate arrays fit into the gaps in memory that the search has left.
    candidate, component, size, chosen = (xp.empty(n, xp.int32) for _ in range(4))
    first_leaf, parent = search.leaf_of[::WARP].copy(), search.leaf_of
    following = xp.empty((NEAREST - 1, n), xp.int16)
    weight, bound = xp.empty(n), xp.empty(n)
    counters = xp.zeros(4 + 2 * MAX_ROUNDS, xp.uint64)
    above = np.nextafter(max_weight, np.inf)
    search.launch(
        "find_nearest", n, search.points, search.order, first_leaf, n, search.nodes, above, candidate, following,
        weight, source=SOURCE,
    )  # fmt: skip
    search.launch_resident(
        "grow_tree_of_boxes", n, search.points, search.order, first_leaf, *search.tree, max_weight, above, candidate,
        following, weight, component, size, chosen, parent, bound, number_a_block(SOURCE), *tree.columns.values(),
        counters, source=SOURCE,
    )  # fmt: skip
    _, n_edges, searched, rounds = counters[:4].tolist()
    report.count("spanning_tree", rounds=rounds, rows_searched=n + searched)
    return tree.head(n_edges)


# ------------------------------------------------------------------------------------------------------------- friends

#: Bytes per point at a CPU's peak: its parent, cell, component and label, and what is counted along the rows. On a GPU
#: this is less than what is free again once the tree of boxes is made.
FRIEND_BYTES = 24


def estimate_friends(problem: Problem) -> MemoryEstimate:
    """Return the bytes of the rows' tree of boxes, of the components and the labels, and of the rows that are kept."""
    n, d, itemsize = problem.n, problem.n_features, problem.itemsize
    search = estimate_search(n, d, itemsize, 1, problem.device, n_queries=0, metric=problem.metric)
    return search if problem.device.is_gpu else search + MemoryEstimate(n * (FRIEND_BYTES + d * itemsize))


def label_friends(rows: Array, problem: Problem, labels: Array, report: Report) -> int:
    """Write the label of each row, (n,) int32, in the order of first appearance; return the number of clusters."""
    assert problem.settings.friends_within is not None
    device, metric = problem.device, problem.metric
    device_kernels, limit = kernels(device), Limit.of(metric, problem.settings.friends_within, problem.n_features)
    report.count("neighbors", filter=tree_class(device).name)
    with report.stage("neighbors", device):
        boxes = device_kernels.make_boxes(rows, metric)
    with report.stage("friends", device):
        clusters: int = device_kernels.write_friends(boxes, limit.surrogate, metric, labels)
    return clusters
