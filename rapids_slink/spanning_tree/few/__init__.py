"""The minimum spanning tree of few points from all their distances, without lists or searches.

On a CPU by Prim's algorithm, which stores no distance (`cpu`), on a GPU by Borůvka's on a distance matrix (`cuda`).
"""

from __future__ import annotations

from typing import Any

from rapids_slink.metrics import PRECOMPUTED, Metric
from rapids_slink.neighbors.rows import row_bytes
from rapids_slink.report import Report
from rapids_slink.runtime.arrays import Array
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import limit_bytes
from rapids_slink.spanning_tree.problem import Grow, Problem, Tree

#: A pair costs d + PAIR_WORK: its features, and the rest in units of a feature. Above MAX_WORK for all pairs another
#: way takes less time; above MAX_SLOW_WORK where the formula is slow: on a CPU without boxes, on a GPU minkowski's.
PAIR_WORK = 8
MAX_WORK = {"cpu": 3 * 2**28, "cuda": 2**34}
MAX_SLOW_WORK = {"cpu": 2**22, "cuda": 2**29}
#: Points of so few features are searched fast by a CPU's trees, from so many points on.
TREE_FEATURES, TREE_POINTS = 6, 2000
#: The most points whose distances a GPU keeps, and the most neighbours in a core: it reads all distances for each.
MAX_ROWS, MAX_SAMPLES = 2**13, 2**5
#: Where memory is limited: bytes a pair, 8 for its distance and 8 for everything else.
LIMITED_PAIR_BYTES = 16
#: Bytes a point at the peak, without the matrix: the edges, the scratch of their sort, and the components.
POINT_BYTES = 128


def serves(problem: Problem) -> bool:
    """Few points, unless lists are asked for or core distances are of more points."""
    settings = problem.settings
    if settings.n_neighbors is not None or problem.core is not None:
        return False
    return is_worthwhile(problem.n, problem.d, problem.metric, settings.min_samples, problem.device)


def estimate(problem: Problem) -> MemoryEstimate:
    """Bytes of the rows and of `tree_of_few`."""
    n, rows = problem.n, row_bytes(problem.metric, problem.n_features) * problem.n
    return sequential(MemoryEstimate(rows, rows), estimate_tree(n, problem.d, problem.device))


def tree(problem: Problem, rows: Array, report: Report, grow: Grow) -> Tree:
    """The tree of the points."""
    with report.stage("spanning_tree", problem.device):
        report.count("spanning_tree", pairs_weighed=problem.n * (problem.n - 1) // 2)
        return tree_of_few(rows, problem.metric, problem.settings.min_samples, problem.device), 1


def is_worthwhile(n: int, d: int, metric: Metric, min_samples: int, device: Device) -> bool:
    """Whether this is the fastest way to the tree of n points as the metric's formula reads them."""
    if metric is PRECOMPUTED or (min_samples > 1 and not device.is_gpu):
        return False
    if device.is_gpu:
        fits = n <= MAX_ROWS and min_samples <= MAX_SAMPLES and LIMITED_PAIR_BYTES * n * n <= limit_bytes()
        is_slow = metric.formula == "minkowski"
    else:
        fits, is_slow = d > TREE_FEATURES or n <= TREE_POINTS or not metric.boxes, not metric.boxes
    work = MAX_SLOW_WORK if is_slow else MAX_WORK
    return fits and n * n * (d + PAIR_WORK) <= work[device.name]


def estimate_tree(n: int, d: int, device: Device) -> MemoryEstimate:
    """Bytes of `tree_of_few` of n points, as the metric's formula reads their d features."""
    return MemoryEstimate(8 * n * (n if device.is_gpu else d + 1) + 2**10 * d + POINT_BYTES * n)


def tree_of_few(values: Any, metric: Metric, min_samples: int, device: Device) -> PreallocatedFrame:
    """The minimum spanning tree of all pairs.

    Parameters
    ----------
    values : (n, d) array
        As `neighbors.rows.metric_rows` makes them.
    metric : Metric
    min_samples : int
        On a GPU, if it is above 1, weights are mutual reachability with core distances of this many neighbours.
    device : Device

    Returns
    -------
    PreallocatedFrame
        n - 1 edges in the total order, their weights surrogate distances or mutual reachability.
    """
    edges = PreallocatedFrame.empty(device, len(values) - 1, EDGE_TYPES)
    device.kernels("spanning_tree.few").grow_tree(values, metric, min_samples, edges.columns)
    return edges
