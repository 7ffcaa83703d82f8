"""Friends of friends: the clusters of rows that steps of at most a distance connect, without the tree of the rows.

    rows ──▶ tree of boxes ──▶ joins of near points ──▶ labels
             neighbors/trees   `cpu`, `cuda`

*The components are those of all pairs within the distance.* Two points are joined if they are within it, or if a box
around both is so small that they must be. A pair of points within it is either joined, or left out: then both are in
one component already, or one is in a node all of whose points are of one component, of which another point is joined to
it, or the two are in two such nodes, and other points of these are joined. Components only grow, so what is known of a
node stays true.

*Nodes of one component* keep the number of pairs small where many points are within the distance of each other. A CPU
joins from the leaves up, so that it knows them all. On a GPU each point joins those that follow it along the curve.
Nodes whose points are all within the distance of each other, cells, are one component from the start. The first points
of all cells search first, then nodes of one component are found anew, and the other points pass over most nodes.
"""

from functools import partial

from rapids_slink.neighbors import estimate_search, is_searched_by_tree
from rapids_slink.neighbors.within import Limit
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, half
from rapids_slink.runtime.memory import MemoryEstimate, sequential
from rapids_slink.spanning_tree.problem import Problem

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)
#: Points of more features have too many others within a distance that connects most of them.
FEATURES = {"cpu": range(2, 5), "cuda": range(2, 4)}
#: Of fewer rows the whole tree takes less time.
MIN_ROWS = {"cpu": 512, "cuda": 2}
#: What the trees of boxes are called in reports.
FILTERS = {"cpu": "k-d tree", "cuda": "bounding volume hierarchy"}
#: Bytes per point at the peak: its parent, its cell, its component, and what is counted along the curve or the rows.
POINT_BYTES = 20


def serves(problem: Problem) -> bool:
    """Points of few features of which labels alone are wanted, if the surrogate distances decide which are near."""
    metric, settings, n, d, device = problem.metric, problem.settings, problem.n, problem.d, problem.device
    if settings.friends_within is None or problem.by_reachability or metric.changes_order:
        return False
    return d in FEATURES[device.name] and n >= MIN_ROWS[device.name] and is_searched_by_tree(n, d, metric, device)


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
