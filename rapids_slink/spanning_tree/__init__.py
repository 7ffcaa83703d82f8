"""Minimum spanning trees: of a point set, by one of several ways, and of any weighted graph.

    line       one feature                       a sort
    pairs      few points, or a distance matrix  the distances of all pairs
    repeats    rows that come many times         edges of weight zero; the distinct rows go on
    boxes      few features, or low dimension,   Borůvka on a tree of boxes
               on a GPU
    lists      all else                          k-NN lists ──forest──▶ certain edges ──connect──▶ tree
                                                 lists.py, component_pairs.py
    groups of points                             a tree each
    graph ──read──▶ edges over numbered nodes ──Borůvka──▶ forest           graphs/

`ways.py` has the list of ways and asks them in this order. `docs/algorithms.md` proves that an edge is in the tree,
`ways.py` for lines and repeats.
An edge frame has the columns ``src``, ``dst``, ``weight``. The total order of `ordering` decides ties among points; in
a graph the earlier row wins.

Every way answers one question, a `Problem`, with a `Tree`. A row of weight w has w - 1 copies at distance zero. Its
core distance is the least within which the weights of other rows and of its copies add up to `min_samples`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import ceil, inf
from typing import Self, TypeAlias

from rapids_slink.metrics import Metric, distances, surrogate_bound
from rapids_slink.neighbors import neighbor_lists, prepare_search
from rapids_slink.neighbors.choose import is_searched_by_tree, takes_friends
from rapids_slink.neighbors.rows import bound_for_filter, metric_rows
from rapids_slink.neighbors.task import Search, SearchTask, core_positions
from rapids_slink.points.keys import Groups
from rapids_slink.points.output import PreallocatedFrame
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, half
from rapids_slink.runtime.memory import MemoryEstimate
from rapids_slink.settings import Settings

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)
#: n - 1 edges in the total order, by surrogate distances or mutual reachability; and the number of connected components
#: of the k-NN graph, or 1 without one. Edges above a `Problem.max_weight` may be missing.
Tree: TypeAlias = tuple[PreallocatedFrame, int]
#: A fourth coordinate puts groups of rows on the unit sphere this far apart: within a group no square is above 4.
GROUP_GAP = 3.0


@dataclass(frozen=True)
class Problem:
    """Points whose minimum spanning tree is wanted."""

    settings: Settings
    device: Device
    #: `n`, `n_features` and `itemsize`: the points and their features, and the bytes of a value, of the input
    n: int
    n_features: int
    itemsize: int
    core: Array = None  # (n,) float64, optional; core distances computed on a larger set that contains these points
    #: the values of a row of words or codes, if rows are these: see `neighbors.rows`
    compact_features: int | None = None
    #: What follows from these.
    metric: Metric = field(init=False)
    d: int = field(init=False)  # the number of values that the metric's formula reads of a row
    is_compact: bool = field(init=False)  # whether the rows are words or codes
    by_reachability: bool = field(init=False)  # whether the weight of an edge is mutual reachability
    finds_friends: bool = field(init=False)  # whether only labels are wanted, and friends of friends make them
    #: a bound of the surrogate distances of all pairs within `Settings.max_distance`, a little above the largest;
    #: infinite if there is no such distance
    max_weight: float = field(init=False)

    def __post_init__(self) -> None:
        settings, metric, distance = self.settings, self.settings.metric, self.settings.max_distance
        d = self.compact_features or metric.rows.width(self.n_features)
        by_reachability = settings.min_samples > 1 or self.core is not None
        wants_labels = settings.friends_within is not None and not by_reachability
        for name, value in (
            ("metric", metric),
            ("d", d),
            ("is_compact", self.compact_features is not None or metric.rows.are_words),
            ("by_reachability", by_reachability),
            ("finds_friends", wants_labels and takes_friends(self.n, d, metric, self.device)),
            ("max_weight", inf if distance is None else surrogate_bound(metric, distance, self.n_features)),
        ):
            object.__setattr__(self, name, value)

    def of_rows(self, rows: Array) -> Self:
        """Return the problem of these rows, as the metric's formula reads them."""
        return replace(self, compact_features=rows.shape[1]) if rows.dtype.kind == "u" else self


@dataclass
class TreeInput:
    """The points with their search and report, which all ways share, so that no work is done twice."""

    problem: Problem
    rows: Array  # (n, d) array, as the metric's formula reads them
    report: Report

    @cached_property
    def max_weight(self) -> float:
        """Return `Problem.max_weight`, or infinity if no pair is above it and a filter may take that bound."""
        metric, bound = self.problem.metric, self.problem.max_weight
        has_filter = metric.filter == "product" and self.rows.dtype.kind != "u" and bound < inf
        return bound_for_filter(metric, bound, self.rows) if has_filter else bound

    @cached_property
    def search(self) -> Search:
        """Return the search of the points, made when a way first reads it; a way that uses it up deletes it."""
        problem, device, metric = self.problem, self.problem.device, self.problem.metric
        with self.report.stage("neighbors", device):
            max_weight = inf if is_searched_by_tree(problem.n, problem.d, metric, device) else self.max_weight
            if problem.by_reachability:
                max_weight = inf
            settings = problem.settings
            return prepare_search(
                self.rows, device, self.report, None, settings.progress, metric, max_weight, problem.n,
                listed=settings.min_samples + 1 if problem.by_reachability else 0,
            )  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A way that has looked at the points and serves them."""

    #: makes the tree; returns None if it shows that the way does not serve the points after all
    make: Callable[[], Tree | None]
    estimate: Callable[[], MemoryEstimate]  # bytes of the metric's rows and the tree of these points
    is_over_all_pairs: bool = False  # whether lists of all points are made by a search over all pairs


def weighted_problem(values: Array, weights: Array, problem: Problem, report: Report) -> tuple[Problem, Array]:
    """Return the problem with the core distances of weighted rows, and these distances as they are reported."""
    device, metric, m, n = problem.device, problem.metric, problem.settings.min_samples, problem.n
    if n == 1:
        return problem, device.xp.zeros(1)
    xp, k = device.xp, min(n - 1, ceil((m + 1) / min(1.0, float(weights.min()))))
    with report.stage("neighbors", device):
        search = prepare_search(metric_rows(metric, values, device), device, Report(), metric=metric)
        lists = neighbor_lists(search, n, k, device)
        rows, copies = xp.arange(n, dtype="int32"), weights - 1
        at = core_positions(lists.ids, weights, m, xp)
        surrogate, ids = lists.weights[rows, at], lists.ids[rows, at]
        core = xp.where(copies >= m, 0.0, distances(metric, surrogate, (rows, ids), (values, values), device))
    return replace(problem, core=xp.where(copies >= m, 0.0, surrogate)), core


def reported_cores(
    tree: PreallocatedFrame, values: Array, rows: Array, problem: Problem, groups: Groups | None = None
) -> Array:
    """Return the core distance of each row as it is reported, (n,) float64, for a tree by mutual reachability.

    Return None if the distances follow from the edges' weights. `rows` are what the metric's formula reads of the
    `values`. With `groups` the tree is a forest, and a row's neighbours are those of its group.

    Rows whose core distance is zero have copies, which no search need go through. The ends of an edge of weight zero
    are such rows.
    """
    device, metric, xp, n = problem.device, problem.metric, problem.device.xp, problem.n
    if not (problem.by_reachability and metric.is_of_ends):
        return None
    src, dst, weight = tree.columns.values()
    core, number, is_wanted = xp.zeros(n), xp.arange(n, dtype="int32"), xp.zeros(n, bool)
    for end in (src, dst):
        is_wanted[end[weight > 0]] = True
    wanted = number[is_wanted]
    if not wanted.size:
        return core
    samples = xp.full(wanted.size, problem.settings.min_samples)
    if groups is not None:
        rows = xp.concatenate([rows, GROUP_GAP * groups.number[:, None]], axis=1)
        samples = xp.minimum(samples, device.asarray(groups.sizes)[groups.number[wanted]] - 1)
    search = prepare_search(rows, device, Report(), metric=metric)
    none_of_others = xp.full(wanted.size, GROUP_GAP**2 / 2)
    nearest = search.find(SearchTask(wanted, int(samples.max()), number, number, none_of_others))
    at = xp.arange(wanted.size), samples - 1
    surrogate, ends = nearest.weights[at], (wanted, nearest.ids[at])
    core[wanted] = xp.where(surrogate > 0, distances(metric, surrogate, ends, (values, values), device), 0.0)
    return core
