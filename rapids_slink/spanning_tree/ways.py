"""The ways to the tree of points, in one order, and the two that sort: a line, and rows that repeat.

Some ways serve points by their sizes alone, and some by a look at the values as well. `ways_of` returns those that may
serve a problem: ways that look, and as the last one the first way that serves whatever the values are. The first way
that prepares makes the tree. A fit is checked for the memory of the last way before there are values: a way that looks
takes no more, or serves only where the rest fits into what that estimate leaves.

**A line.** Equal points join at zero, each to the one of the least id. Each value joins the next value by the points of
least ids of the two. No other pair across that gap has an equally small weight, unless rounding makes a larger
difference equal to it. If a check finds that, `tree_of_line` returns None.

*In a box that repeats* the line is a ring, and the last value joins the first. The tree is all of these edges except
the last in the total order, which crosses a gap h. Proof: let i be any other gap. A pair between the two arcs that i
and h leave crosses one of both gaps, whichever way round it goes. Except the two edges themselves, each such pair
crosses a further gap as well, so it weighs more than one of the two edges, of which that across i comes first. Each of
two differences loses half a spacing of the length, so here a longer way must be longer by more than that.

**Repeats.** The tree of the distinct rows is searched, and `copies` joins the others. The weight between equal rows is
what the metric says of the row with itself, or their core distance. If a row with copies has a lighter pair, for
instance if products of tiny numbers underflow, all rows are searched.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import PRECOMPUTED, Metric
from rapids_slink.neighbors.choose import is_searched_by_tree
from rapids_slink.neighbors.exact import kernels
from rapids_slink.neighbors.task import NeighborLists, by_mutual_reachability, core_places, row_blocks
from rapids_slink.ordering import sort_in_place, stable_order
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, all_true, to_host
from rapids_slink.runtime.frames import EDGE_TYPES, PreallocatedFrame
from rapids_slink.runtime.memory import MemoryEstimate, free_bytes
from rapids_slink.spanning_tree import blocks, boxes, lists, pairs
from rapids_slink.spanning_tree.copies import Copies
from rapids_slink.spanning_tree.problem import Look, Prepared, Problem, Tree

# --------------------------------------------------------------------------------------------------------------- a line

#: Bytes per point at the peak: the values in order, the steps between them, and the edges.
LINE_BYTES = 128
#: More than rounding takes from two ways round a ring, in lengths of the box.
SLACK = 2.0**-49


def prepare_line(look: Look) -> Prepared | None:
    """Return the way by a sort, with its tree; None if rounding makes the sorted order insufficient."""
    problem = look.problem
    with look.report.stage("spanning_tree", problem.device):
        edges = tree_of_line(look.rows, problem.metric, problem.device)
    if edges is None:
        return None
    look.report.count("spanning_tree", rows_sorted=problem.n)
    return Prepared(lambda: (edges, 1), lambda: MemoryEstimate(LINE_BYTES * problem.n))


def tree_of_line(rows: Array, metric: Metric, device: Device) -> PreallocatedFrame | None:
    """Return n - 1 edges in the total order, weighted by surrogate distances; None if a sort does not give the tree.

    `rows`, (n, 1), n at least 2, is the result of `neighbors.rows.metric_rows`.
    """
    tree = _steps_of_line(rows, metric, device)
    if tree is None:
        return None
    sort_in_place(tree.columns, device.xp)
    return tree.head(len(rows) - 1)


def _steps_of_line(rows: Array, metric: Metric, device: Device) -> PreallocatedFrame | None:
    """Return the edges between neighbours on the line, and on a ring the longest one too; None as `tree_of_line`."""
    xp = device.xp
    x = rows[:, 0].astype("float64")
    order = stable_order(x, xp).astype("int32")
    x = x[order]
    is_first = xp.concatenate([xp.ones(1, bool), x[1:] != x[:-1]])
    first = xp.flatnonzero(is_first)
    ids, values = order[first], x[first]
    period = math.inf if metric.space is None else metric.space.periods[0]
    is_ring = values.size > 2 and period < math.inf
    step, two_steps = values[1:] - values[:-1], values[2:] - values[:-2]
    if is_ring:
        step = xp.concatenate([step, period - (values[-1:] - values[:1])])
        two_steps = xp.concatenate([two_steps, period - (values[-2:] - values[:2])]) - SLACK * period
    weight, step_weight = _surrogates(xp.minimum(step, period - step), metric, xp), _surrogates(step, metric, xp)
    longer = _surrogates(xp.maximum(two_steps, 0), metric, xp)
    neighbors = step_weight[: longer.size], xp.roll(step_weight, -1)[: longer.size]
    if not (all_true(weight > 0) and all(all_true(longer > one) for one in neighbors)):
        return None
    repeated = xp.flatnonzero(~is_first)
    tree = PreallocatedFrame.empty(device, repeated.size + weight.size, EDGE_TYPES)
    src, dst, weights = tree.columns.values()
    m = repeated.size
    src[:m], dst[:m], weights[:m] = ids[xp.searchsorted(first, repeated, side="right") - 1], order[repeated], 0.0
    src[m:], dst[m:], weights[m:] = ids[: weight.size], xp.roll(ids, -1)[: weight.size], weight
    return tree


def _surrogates(difference: Array, metric: Metric, xp: Any) -> Any:
    """Return the surrogate distances of pairs, by their differences."""
    if metric.space is None:
        return difference * difference if metric.formula == "squared_euclidean" else difference
    scale = metric.space.scales[0] if metric.space.scales else None
    if metric.space.within != "squared_euclidean":
        return difference if scale is None else difference / scale
    square = difference * difference
    return square if scale is None else xp.sqrt(square) / scale


# -------------------------------------------------------------------------------------------------------------- repeats

#: The sample has SAMPLE_FACTOR √n rows. If every row occurs c times, about 8c pairs of the sample are equal.
SAMPLE_FACTOR = 4
#: All rows are compared if the sample has at least this many equal pairs, and joined if this share of them is repeated.
MIN_EQUAL, MIN_REPEATED = 16, 1 / 64
COMPARED = 2**18  # values that are compared at a time
ID_BYTES = 16  # bytes of a row that are kept: which rows are distinct, which repeat, and what row these repeat
REPEAT_BYTES = 80  # bytes of a row at the peak: hashes and their order, or edges that are joined to those of others


def prepare_repeats(look: Look) -> Prepared | None:
    """Return the way by distinct rows; None unless many rows are equal."""
    problem, rows, report, device = look.problem, look.rows, look.report, look.problem.device
    with report.stage("neighbors", device):
        repeats = find_repeats(rows, device)
    if repeats is None:
        return None
    report.count("spanning_tree", repeated_rows=repeats.repeated.size)
    distinct = Look(replace(problem, n=repeats.first.size, part_lists=None), rows[repeats.first], report)
    by_cores = problem.by_reachability and distinct.problem.n > 1
    if by_cores:
        way_of_distinct, report["way"] = lists.prepare(distinct), LISTS.name
    else:
        way_of_distinct = next(prepared_ways(distinct.problem, distinct.rows, report))

    def make() -> Tree | None:
        if by_cores:
            return tree_at_cores(repeats, distinct, lists.lists_of(distinct, by_distance=True))
        tree = way_of_distinct.make()
        if tree is None:
            return None
        with report.stage("spanning_tree", device):
            number = device.xp.arange(repeats.first.size, dtype="int32")
            own = kernels(device).pair_distances(distinct.rows, number, number, problem.metric)
            edges = repeats.join(tree[0], own, device)
        return None if edges is None else (edges, tree[1])

    copy = repeats.first.size * problem.d * rows.dtype.itemsize
    return Prepared(make, lambda: MemoryEstimate(REPEAT_BYTES * problem.n + copy) + way_of_distinct.estimate())


def tree_at_cores(repeats: Copies, distinct: Look, listed: NeighborLists) -> Tree | None:
    """Return the tree of all rows by mutual reachability; None if a row has others that are nearer than its equals.

    `listed` are lists of the distinct rows by distance, whose arrays are reused for the result.
    """
    problem, report, device = distinct.problem, distinct.report, distinct.problem.device
    xp, m = device.xp, problem.settings.min_samples
    with report.stage("neighbors", device):
        row, copies = xp.arange(problem.n, dtype="int32"), repeats.counts(xp)
        own = kernels(device).pair_distances(distinct.rows, row, row, problem.metric)
        if not all_true((copies == 0) | (own <= listed.weights[:, 0])):
            return None
        at = core_places(listed.ids, copies + 1.0, m, xp)
        core = xp.where(copies >= m, own, listed.weights[row, at])
        by_cores = by_mutual_reachability(listed, core, m, device)
        del listed
    tree, components = lists.connected(distinct, by_cores)
    with report.stage("spanning_tree", device):
        edges = repeats.join(tree, core, device)
    return None if edges is None else (edges, components)


def find_repeats(values: Array, device: Device) -> Copies | None:
    """Return which rows, as the metric's formula reads them, are copies of others; None if hardly any are."""
    xp, (n, d), hash_rows = device.xp, values.shape, kernels(device).hash_rows
    if values.nbytes + ID_BYTES * n > free_bytes():  # a copy of most rows may come on top of another way's memory
        return None
    size = int(SAMPLE_FACTOR * n**0.5)
    gaps = np.random.default_rng(0).standard_exponential(size) * (n / size)
    rows = np.cumsum(gaps.astype("int64") + 1) - 1  # ascending, each row with nearly the same probability
    rows = rows[rows < n]
    sample = np.sort(to_host(hash_rows(values, xp.asarray(rows))))
    if (sample[1:] == sample[:-1]).sum() < MIN_EQUAL:
        return None
    _, first, number = xp.unique(hash_rows(values), return_index=True, return_inverse=True)
    if first.size > n * (1 - MIN_REPEATED):
        return None
    first_equal = first[number.reshape(-1)]  # the smallest id with the same hash
    if not all(all_true(values[rows] == values[first_equal[rows]]) for rows in row_blocks(n, d, COMPARED)):
        return None
    return Copies.of(first_equal, xp)


# ----------------------------------------------------------------------------------------------------------- the order


@dataclass(frozen=True)
class Way:
    """A way to the tree of points."""

    name: str  # for reports
    prepare: Callable[[Look], Prepared | None]  # None if it does not serve these values
    estimate: Callable[[Problem], MemoryEstimate] | None = None  # bytes for any values; None if it serves only some


WAYS = LINE, PAIRS, REPEATS, CODES, BOXES, BOXES_IF_LOW, BLOCKS, LISTS = (
    Way("line", prepare_line),  # one feature: n log n, a sort
    Way("pairs", pairs.prepare, pairs.estimate),  # few points, or given distances: n²
    Way("repeats", prepare_repeats),  # repeated rows: n, and the tree of the distinct rows
    Way("pairs", pairs.prepare_codes),  # codes on a GPU whose distances fit into memory: n²
    Way("boxes", boxes.prepare, boxes.estimate),  # few features on a GPU: n log n
    Way("boxes", boxes.prepare),  # low dimension on a GPU: n log n
    Way("blocks", blocks.prepare),  # up to a distance, many rows that are near few others: the trees of blocks
    Way("lists", lists.prepare, lists.estimate),  # all others: n² tests, or n log n by a tree
)


def tree_of_rows(problem: Problem, rows: Array, report: Report) -> Tree:
    """Return the minimum spanning tree of the problem's points; `rows` is what `neighbors.rows.metric_rows` returns."""
    for prepared in prepared_ways(problem, rows, report):
        tree = prepared.make()
        if tree is not None:
            return tree
        report.pop("way")
    raise AssertionError("the last way serves all values")


def prepared_ways(problem: Problem, rows: Array, report: Report) -> Iterator[Prepared]:
    """Yield the ways that serve the points, in their order; the report names the last one that was asked for."""
    if problem.n == 1:
        yield Prepared(lambda: (PreallocatedFrame.empty(problem.device, 0, EDGE_TYPES), 1), lambda: MemoryEstimate(0))
        return
    look = Look(problem, rows, report)
    for way in ways_of(problem):
        prepared = way.prepare(look)
        if prepared is not None:
            report.setdefault("way", way.name)  # unless it has that of the distinct rows
            yield prepared


def ways_of(problem: Problem) -> list[Way]:
    """Return the ways that may serve points of the problem's sizes, the last of them whatever the values are."""
    ways, metric, wanted = [], problem.metric, forced().tree
    by_distance, n, d, device = not problem.by_reachability, problem.n, problem.d, problem.device
    # The distance of a line is one operation on a difference.
    if by_distance and d == 1 and (metric.formula.is_one_operation or metric.space is not None):
        ways.append(LINE)
    certain = PAIRS if pairs.serves(problem) else LISTS
    if certain is LISTS:
        # Equal rows are nearest to each other. With missing values others are often at zero too. Core distances that
        # are given may be of rows with weights.
        if problem.core is None and metric.formula.has_equal_rows_first and not metric.missing:
            ways.append(REPEATS)
        if device.is_gpu and pairs.may_serve_codes(problem):
            ways.append(CODES)
        # Boxes take less time than the lists alone (bench/NOTES.md). Core distances need the lists, and most of the
        # tree follows from these.
        if by_distance and device.is_gpu and is_searched_by_tree(n, d, metric, device):
            certain = BOXES
        elif by_distance and device.is_gpu:  # the search, which the other ways need as well, has looked at the values
            ways.append(BOXES_IF_LOW)
        if certain is LISTS and problem.max_weight < math.inf and blocks.may_serve(problem):
            ways.append(BLOCKS)
    ways.append(certain)
    if wanted is None or metric is PRECOMPUTED:
        return ways
    ways = [way for way in ways if way.name == wanted]
    return ways if ways and ways[-1].estimate else [*ways, LISTS]


def way_of(problem: Problem) -> str:
    """Return the name of the way that serves the points whatever their values are."""
    return ways_of(problem)[-1].name


def estimate_tree(problem: Problem) -> MemoryEstimate:
    """Return the bytes of the metric's rows and the tree by the way that serves whatever the points' values are.

    A line, whose values decide, has its bytes too. The other ways that look at values take what is free.
    """
    *looking, certain = ways_of(problem)
    assert certain.estimate is not None
    needed = certain.estimate(problem)
    return replace(needed, peak=max(needed.peak, LINE_BYTES * problem.n)) if LINE in looking else needed


# ------------------------------------------------------------------------------------------------------ several trees


@dataclass
class SharedLists:
    """Grows trees of the same points by mutual reachability, of several `min_samples`, on the lists of the most.

    The core distance for m samples is the m-th weight of a list, so the first entries of long lists are the lists of
    fewer samples. Where no lists are made, each tree is grown by itself.
    """

    min_samples: int  # the most
    #: the distinct points with their search; which rows are copies, if many are; and lists by distance
    shared: tuple[Look, Copies | None, NeighborLists] | None = None

    def grow(self, problem: Problem, rows: Array, report: Report) -> Tree:
        """Return the tree of a problem of these points; `rows` is the result of `neighbors.rows.metric_rows`."""
        ways, settings = ways_of(problem), problem.settings
        if ways[-1] is not LISTS or not problem.by_reachability:
            return tree_of_rows(problem, rows, report)
        if self.shared is None:
            self.shared = self._find_lists(problem, rows, report, REPEATS in ways)
        first_look, repeats, nearest = self.shared
        k = lists.list_length(settings)
        look = Look(replace(first_look.problem, settings=settings), first_look.rows, report)
        look.search = first_look.search
        listed = NeighborLists(nearest.ids[:, :k].copy(), nearest.weights[:, :k].copy())
        report.setdefault("way", LISTS.name)
        if repeats is None:
            return lists.connected(look, by_mutual_reachability(listed, None, settings.min_samples, problem.device))
        tree = tree_at_cores(repeats, look, listed)
        return tree_of_rows(problem, rows, report) if tree is None else tree

    def _find_lists(
        self, problem: Problem, rows: Array, report: Report, may_repeat: bool
    ) -> tuple[Look, Copies | None, NeighborLists]:
        with report.stage("neighbors", problem.device):
            repeats = find_repeats(rows, problem.device) if may_repeat else None
        if repeats is not None and repeats.first.size == 1:
            repeats = None
        rows = rows if repeats is None else rows[repeats.first]
        settings = replace(problem.settings, min_samples=self.min_samples)
        look = Look(replace(problem, settings=settings, n=len(rows)), rows, report)
        return look, repeats, lists.lists_of(look, by_distance=True)
