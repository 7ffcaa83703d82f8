"""Friends of friends: the clusters of rows that steps of at most a distance connect, without the tree of the rows.

    rows ──▶ tree of boxes ──▶ cells ──▶ joins of near points ──▶ labels
             neighbors/trees   `cpu`, `cuda`

A cell is the largest node of the tree of boxes whose points are all within the distance of each other, or a point that
is in none. Its points are one component from the start. Then each point joins the points within the distance that
follow it in the order of the leaves, each pair once. A node whose points are known to be of one component is passed
over if that is the point's own; otherwise it is left as soon as one of its points is near.

*The components are those of all pairs within the distance.* A join is of two points within the distance, or of a cell.
A pair within it is either in one cell, or tested, or passed over: then both points are of one component already,
because one is and the node's is the same, or because one point of the node, all of which are of one component, has been
joined. Components only grow, so what is known of a node stays true.

How many points a cell has costs nothing, and a point meets few cells: the box above a cell is longer than the distance,
so that few cells are near. On a GPU the first points of all cells search first. After that the nodes of one component
are found anew, and the other points pass over most of them.
"""

from functools import partial

from rapids_slink.neighbors.plan import estimate_search, is_searched_by_tree
from rapids_slink.neighbors.within.task import Limit
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, half
from rapids_slink.runtime.memory import MemoryEstimate, sequential
from rapids_slink.spanning_tree.problem import Problem

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)
#: Of points of more features a cell has too many others near it.
FEATURES = (2, 3)
#: What the trees of boxes are called in reports.
FILTERS = {"cpu": "k-d tree", "cuda": "bounding volume hierarchy"}
#: Bytes per point at the peak: its parent, its cell, its component, and what is counted along the curve or the rows.
POINT_BYTES = 20


def serves(problem: Problem) -> bool:
    """Points of few features of which labels alone are wanted, if the surrogate distances decide which are near."""
    metric, settings, n, d = problem.metric, problem.settings, problem.n, problem.d
    if settings.friends_within is None or problem.by_reachability or metric.changes_order or n == 1:
        return False
    return d in FEATURES and is_searched_by_tree(n, d, metric, problem.device)


def estimate(problem: Problem) -> MemoryEstimate:
    """Bytes of the rows' tree of boxes and the components, and of what is kept: the labels and a copy of the rows."""
    n, d, itemsize = problem.n, problem.n_features, problem.itemsize
    search = estimate_search(n, d, itemsize, 1, problem.device, n_queries=0, metric=problem.metric)
    kept = n * (d * itemsize + 4)
    return sequential(search, MemoryEstimate(POINT_BYTES * n + kept, kept))


def label_friends(rows: Array, problem: Problem, labels: Array, report: Report) -> int:
    """Write the label of each row, (n,) int32, in the order of first appearance; returns the number of clusters."""
    assert problem.settings.friends_within is not None
    device, metric = problem.device, problem.metric
    of_device, limit = kernels(device), Limit.of(metric, problem.settings.friends_within, problem.n_features)
    report.count("neighbors", filter=FILTERS[device.name])
    with report.stage("neighbors", device):
        boxes = of_device.make_boxes(rows, metric)
    with report.stage("friends", device):
        clusters: int = of_device.write_labels(boxes, limit.surrogate, metric, labels)
    return clusters
