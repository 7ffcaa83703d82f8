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
bounding volume hierarchy of `neighbors/trees/bvh.py`.
"""

from __future__ import annotations

from rapids_slink.neighbors.plan import estimate_search, is_searched_by_tree, prepare_search
from rapids_slink.ordering import sort_in_place
from rapids_slink.report import Report
from rapids_slink.runtime.arrays import Array
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.runtime.memory import release_cached
from rapids_slink.spanning_tree.problem import Grow, Problem, Tree

#: At the peak, in bytes a point: what is known of it, and its edge.
POINT_BYTES = 56


def serves(problem: Problem) -> bool:
    """Points that a GPU's tree would search for lists: boxes take less time than the lists alone (bench/NOTES.md).

    Core distances come from lists, and with the lists most of the tree is known.
    """
    if not problem.device.is_gpu or problem.by_reachability:
        return False
    return is_searched_by_tree(problem.n, problem.d, problem.metric, problem.device)


def estimate(problem: Problem) -> MemoryEstimate:
    """Bytes of the rows, their tree of boxes, and what is known of each point."""
    n, d, itemsize = problem.n, problem.n_features, problem.itemsize
    search = estimate_search(n, d, itemsize, 1, problem.device, n_queries=0, metric=problem.metric)
    return sequential(search, MemoryEstimate(POINT_BYTES * n))


def tree(problem: Problem, rows: Array, report: Report, grow: Grow) -> Tree:
    """The tree of the points."""
    from rapids_slink.spanning_tree.boxes.cuda import tree_of_boxes

    device = problem.device
    with report.stage("neighbors", device):
        search = prepare_search(rows, device, report, progress=problem.settings.progress, metric=problem.metric)
    release_cached()
    with report.stage("spanning_tree", device):
        edges = tree_of_boxes(search, report)
        del search
        release_cached()
        sort_in_place(edges.columns, device.xp)
    return edges, 1
