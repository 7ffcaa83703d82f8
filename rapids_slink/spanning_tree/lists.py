"""The way by lists: k-NN lists, the forest of their certain edges, and searches that connect it."""

from functools import partial
from math import inf

from rapids_slink.neighbors import neighbor_lists
from rapids_slink.neighbors.plan import DEFAULT_NEIGHBORS, estimate_search, prepare_search
from rapids_slink.neighbors.task import Search
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array
from rapids_slink.runtime.estimate import MemoryEstimate, sequential
from rapids_slink.runtime.memory import release_cached
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import boxes
from rapids_slink.spanning_tree.connect import estimate_connect, spanning_tree
from rapids_slink.spanning_tree.forest import kernels
from rapids_slink.spanning_tree.joins import MIN_ROWS, join_weights
from rapids_slink.spanning_tree.problem import Prepare, Prepared, Problem, Tree


def serves(problem: Problem) -> bool:
    """Lists serve all points."""
    return True


def estimate(problem: Problem, chosen: Search | None = None) -> MemoryEstimate:
    """Bytes of the rows, the search, which may be chosen, the lists and the tree."""
    n, d, device, min_samples = problem.n, problem.n_features, problem.device, problem.settings.min_samples
    k = list_length(problem.settings)
    search = estimate_search(
        n, d, problem.itemsize, k, device, min_samples=min_samples, metric=problem.metric, chosen=chosen
    )
    return sequential(search, estimate_connect(n, device))


def prepare(problem: Problem, rows: Array, report: Report, _: Prepare) -> Prepared:
    """The search, and what makes the tree of the points by it."""
    device, settings = problem.device, problem.settings
    with report.stage("neighbors", device):
        max_weight = _bound_of_use(problem, rows)
        of_lists = inf if problem.by_reachability or problem.part_lists is not None else max_weight
        search = prepare_search(
            rows, device, report, progress=settings.progress, metric=problem.metric, max_weight=of_lists
        )
    if by_boxes := boxes.prepare_by(search, problem, report):  # points of many features and low dimension
        return by_boxes

    def make() -> Tree:
        k = list_length(settings)
        with report.stage("neighbors", device):
            samples, core, of_parts = settings.min_samples, problem.core, problem.part_lists
            bounds_by_lists = None
            if settings.n_neighbors is None and max_weight == inf and problem.n >= MIN_ROWS[device.name]:
                bounds_by_lists = partial(join_weights, device=device)
            lists = neighbor_lists(search, problem.n, k, device, samples, core, of_parts, max_weight, bounds_by_lists)
        release_cached()
        with report.stage("components", device):
            components = kernels(device).connected_components(lists.ids)
        return spanning_tree(lists, search, device, report, max_weight), components

    return Prepared(make, lambda: estimate(problem, search))


def _bound_of_use(problem: Problem, rows: Array) -> float:
    """`Problem.max_weight`, or infinity where no pair is above it: a filter in float32 takes no bound of any size."""
    bound = problem.max_weight
    if problem.metric.filter != "product" or rows.dtype.kind == "u" or bound == inf:
        return bound
    if problem.metric.formula == "cosine":
        return bound if bound < 2 else inf
    span = float(rows.max()) - float(rows.min())  # by columns CuPy takes thirty times as long
    return bound if bound < span * span * rows.shape[1] else inf


def list_length(settings: Settings) -> int:
    """The length of the neighbour lists.

    With core distances it exceeds the core, so that edges that weigh the core distance come before the list's bound.
    """
    k = settings.n_neighbors or DEFAULT_NEIGHBORS
    return k if settings.min_samples == 1 else max(k, settings.min_samples + 1)
