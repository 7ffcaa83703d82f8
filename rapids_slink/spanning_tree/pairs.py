"""The minimum spanning tree of points from the distances of all pairs, without lists or searches.

The distances are given as a matrix, or computed: where points are few, and for codes on a GPU where all distances fit
into memory. A CPU runs Prim's algorithm, on the matrix or, without storing a distance, on points of few features. A GPU
runs Borůvka's on the matrix.
"""

from collections.abc import Callable
from math import inf

from rapids_slink.forced import forced
from rapids_slink.metrics import PRECOMPUTED, Metric
from rapids_slink.neighbors.choose import takes_all_distances
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.task import BLOCK, row_blocks
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.device import CPU, Array, Device
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate, current_run
from rapids_slink.runtime.threads import for_each_chunk, workers
from rapids_slink.spanning_tree import Look, Prepared, Problem, Tree, kernels

#: For more features a CPU stores the distances, which are computed in tiles: so it reads the points less often.
MAX_FEATURES = 64
#: The largest `min_samples` for which a kernel finds core distances.
MAX_SAMPLES = {"cpu": 2**7, "cuda": 2**5}
#: The bytes of a pair where memory is limited: 8 for its distance and 8 for everything else.
LIMITED_PAIR_BYTES = 16


def serves(problem: Problem) -> bool:
    """Return whether all pairs serve a problem whatever its values are.

    They serve given distances, and few points unless lists are asked for or core distances of more points are given.
    """
    n, d, metric, device, is_compact = problem.n, problem.d, problem.metric, problem.device, problem.is_compact
    settings, min_samples = problem.settings, problem.settings.min_samples
    if metric is PRECOMPUTED:
        return True
    if settings.n_neighbors is not None or problem.core is not None:
        return False
    if forced().tree:
        return forced().tree == "pairs"
    limit = current_run().limit or inf
    if stores_distances(d, metric, min_samples, device, is_compact) and LIMITED_PAIR_BYTES * n * n > limit:
        return False
    by_kernel = not device.is_gpu or min_samples <= MAX_SAMPLES["cuda"]
    return by_kernel and takes_all_distances(n, d, metric, min_samples, device, is_compact)


def may_serve_codes(problem: Problem) -> bool:
    """Return whether all pairs may serve codes on a GPU, if their distances fit into memory.

    They do not if lists are asked for, if core distances are given, or if `min_samples` is too large for a kernel.
    """
    settings, by_kernel = problem.settings, problem.settings.min_samples <= MAX_SAMPLES["cuda"]
    return problem.metric.filter == "codes" and by_kernel and settings.n_neighbors is None and problem.core is None


def estimate(problem: Problem) -> MemoryEstimate:
    """Return the bytes of the rows and of `tree_of_pairs`."""
    n, d, metric, device = problem.n, problem.d, problem.metric, problem.device
    min_samples = problem.settings.min_samples
    others = (metric.rows.row_bytes(problem.n_features) + TREE_BYTES[device.name]) * n
    others += 8 * min(n * n, workers(device) * max(n, BLOCK)) if min_samples > 1 else 0
    if metric is PRECOMPUTED:
        return MemoryEstimate(others)
    if stores_distances(d, metric, min_samples, device, problem.is_compact):
        return MemoryEstimate(8 * n * n + others, workers(device) * 2**19)
    return MemoryEstimate((8 * n + 2**10) * (d + 4) + others)


def prepare(look: Look) -> Prepared:
    """Return the way by all pairs."""
    return Prepared(lambda: _tree(look), lambda: estimate(look.problem))


def prepare_codes(look: Look) -> Prepared | None:
    """Return the way by all pairs of codes on a GPU; None if their distances do not fit into memory."""
    from rapids_slink.neighbors import matrix

    n, d, metric = look.problem.n, look.problem.n_features, look.problem.metric
    if not matrix.fits(n, d, metric):
        return None
    others = MemoryEstimate((metric.rows.row_bytes(d) + TREE_BYTES["cuda"]) * n)
    return Prepared(lambda: _tree(look, matrix.all_distances), lambda: others + matrix.estimate_matrix(n, d, metric))


def _tree(look: Look, distances: Callable[[Array, Metric], Array] | None = None) -> Tree:
    """Return the tree by given distances, by those that the function `distances` computes, or by those of all pairs."""
    problem, values, metric = look.problem, look.rows, look.problem.metric
    count = "pairs_given" if metric is PRECOMPUTED else "pairs_weighed"
    with look.report.stage("spanning_tree", problem.device):
        look.report.count("spanning_tree", **{count: problem.n * (problem.n - 1) // 2})
        if distances is not None:
            values, metric = distances(values, metric), PRECOMPUTED
        return tree_of_pairs(values, metric, problem.settings.min_samples, problem.device), 1


def stores_distances(d: int, metric: Metric, min_samples: int, device: Device, compact: bool = False) -> bool:
    """Return whether all distances are stored.

    A CPU that stores none runs one thread, in which some formulas would take too long.
    """
    by_one = d <= MAX_FEATURES and metric.has_half_integer_power and metric.space is None
    return compact or device.is_gpu or min_samples > 1 or not by_one


def is_stored(metric: Metric, min_samples: int, compact: bool) -> bool:
    """Return whether a CPU stores the distances of a small group of rows."""
    return metric.missing or stores_distances(1, metric, min_samples, CPU, compact)


def tree_of_pairs(values: Array, metric: Metric, min_samples: int, device: Device) -> PreallocatedFrame:
    """Return the minimum spanning tree of all pairs: n - 1 edges in the total order, by surrogate distances.

    `values` are the (n, d) rows that `neighbors.rows.metric_rows` makes, or the distances for `PRECOMPUTED`. If
    `min_samples` is above 1, weights are mutual reachability with core distances of this many neighbours.
    """
    n, d = values.shape
    edges = PreallocatedFrame.empty(device, n - 1, EDGE_TYPES)
    if metric is PRECOMPUTED:
        matrix = values
    elif stores_distances(d, metric, min_samples, device, values.dtype.kind == "u"):
        matrix = exact_kernels(device).all_distances(values, metric)
    else:
        kernels(device).prim_on_rows(values, metric, edges.columns)
        return edges
    core = None
    if min_samples > MAX_SAMPLES[device.name]:
        core = cores_by_partition(matrix, min_samples, device)
    elif min_samples > 1:
        core = kernels(device).find_cores(matrix, min_samples)
    kernels(device).tree_of_matrix(matrix, core, edges.columns)
    return edges


def cores_by_partition(matrix: Array, min_samples: int, device: Device) -> Array:
    """Return the distance of each point from its `min_samples`-th nearest other, (n,) float64, whatever the number."""
    xp, n = device.xp, len(matrix)
    core = xp.empty(n)

    def find(rows: slice) -> None:
        weights = matrix[rows].astype("float64")
        weights[xp.arange(len(weights)), xp.arange(n)[rows]] = xp.inf
        weights.partition(min_samples - 1, axis=1)
        core[rows] = weights[:, min_samples - 1]

    for_each_chunk(device, find, row_blocks(n, n))
    return core
