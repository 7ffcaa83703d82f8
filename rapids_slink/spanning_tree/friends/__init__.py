"""Friends of friends: the clusters of rows that steps of at most a distance connect, without the tree of the rows."""

from functools import partial

from rapids_slink.neighbors.plan import estimate_search, is_searched_by_tree
from rapids_slink.neighbors.within.task import Limit
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, half
from rapids_slink.runtime.memory import MemoryEstimate, sequential
from rapids_slink.spanning_tree.problem import Problem

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)
FEATURES = (2, 3)
POINT_BYTES = 24


def serves(problem: Problem) -> bool:
    """Points of few features of which labels alone are wanted, within a distance that the surrogate distances decide."""
    metric, settings = problem.metric, problem.settings
    if settings.friends_within is None or problem.by_reachability or metric.changes_order:
        return False
    is_searched = is_searched_by_tree(problem.n, problem.d, metric, problem.device)
    return problem.device.is_gpu and problem.n > 1 and problem.d in FEATURES and is_searched


def estimate(problem: Problem) -> MemoryEstimate:
    """Bytes of the rows' tree, the clusters, and what is kept: the labels and a copy of the rows."""
    n, d, itemsize = problem.n, problem.n_features, problem.itemsize
    search = estimate_search(n, d, itemsize, 1, problem.device, n_queries=0, metric=problem.metric)
    kept = n * (d * itemsize + 4)
    return sequential(search, MemoryEstimate(POINT_BYTES * n + kept, kept))


def label_friends(rows: Array, problem: Problem, labels: Array, report: Report) -> int:
    """Write the label of each row, (n,) int32, in the order of first appearance; returns the number of clusters."""
    limit = Limit.of(problem.metric, problem.settings.friends_within, problem.n_features)
    return kernels(problem.device).label_friends(rows, limit.surrogate, problem.metric, labels, report)
