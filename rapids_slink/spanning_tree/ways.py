"""The ways to the tree of points, in one order: a line, all pairs, rows that repeat and others; and groups of rows.

Some ways serve points by their sizes alone, and some by a look at the values as well. `ways_of` returns those that may
serve a problem: ways that look, and as the last one the first way that serves whatever the values are. The first way
that prepares makes the tree. A fit is checked for the memory of the last way before there are values: a way that looks
takes no more, or serves only where the rest fits into what that estimate leaves.

**A line.** Equal points are connected by edges of weight zero, each to the one of the least id. An edge between the
points of least ids connects each value to the next. No other pair across that gap has an equally small weight, unless
rounding makes a larger difference equal to it. If a check finds that, `tree_of_line` returns None.

*In a box that repeats* the line is a ring: an edge connects the last value to the first. The tree is all edges except
the last in the total order, which crosses a gap h. Proof: let i be any other gap. A pair between the two arcs that i
and h leave crosses one of both gaps, whichever way round it goes. Except the two edges themselves, each such pair
crosses a further gap as well, so it weighs more than one of the two edges, of which that across i comes first. Each of
two differences loses half a spacing of the length, so here a longer way must be longer by more than that.

**All pairs.** The distances of all pairs are given as a matrix, or computed: where points are few, and for codes on a
GPU where all distances fit into memory. A CPU runs Prim's algorithm, on the matrix or, without storing a distance, on
points of few features. A GPU runs Borůvka's on the matrix.

**Repeats.** Equal rows are at the same distances to all others, so copies only count for core distances, and their
edges come last. Let w be the weight between the copies of a row: its core distance, or what the metric says of the row
with itself, which is zero or, for cosine, what rounding leaves of it. If a row with copies has a lighter pair, for
instance if products of tiny numbers underflow, all rows are searched. Otherwise the lightest pairs of a copy weigh w:
those with its first row f, with other copies and with what is at w from f. By the total order Kruskal's algorithm meets
that with the least id i first, and i is at most f. Until then the copy is alone, so an edge connects it to i. Next it
is in the component of f, and each of its further pairs comes after that of f with the same row, so it stays a leaf. The
tree has the least id among the distinct rows at w from f: if it is below f, its edge to f is the first of f's edges
that Kruskal's algorithm meets, and so in the tree.

**Groups.** Small groups have a tree each, all at once, and large ones their usual way, one by one. Nothing is compared
across groups. Within a group rows keep their order. So the total order of its edges is the same by the group's own
numbers as by those of all rows, and each group's tree is that of the group alone, to the last bit.

**Ahead.** On a GPU threads compile what a fit launches while the points are read, by the way that serves them:

    for noise of 64 features:   points ▶ rows ▶ quantize ▶ the fused filter ▶ rerank ▶ forest ▶ dendrogram

Nothing depends on that list. A source that is missing is compiled when it is launched, and one too many costs a thread
some time, and all others a little (`compile_ahead`). Within a way the sources come in the order of their first
launches, and last those that only some values need.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rapids_slink.dendrogram.cutting import FEW_LEAVES
from rapids_slink.forced import forced
from rapids_slink.metrics import EUCLIDEAN, PRECOMPUTED, Metric, Rows
from rapids_slink.neighbors import estimate_search
from rapids_slink.neighbors.choose import few_points, is_searched_by_tree, is_worth_a_look, takes_all_distances
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import kernels as filter_kernels
from rapids_slink.neighbors.rows import Copies, find_repeats, require_common_features, undefined_for_zeros, zero_rows
from rapids_slink.neighbors.task import BLOCK_VALUES, NeighborLists, by_mutual_reachability, core_positions, row_blocks
from rapids_slink.ordering import sort_in_place, stable_order
from rapids_slink.points.check import FEW_VALUES
from rapids_slink.points.keys import Groups
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import WARP, Ahead, compile_ahead, power_of_two, value_option
from rapids_slink.runtime.device import CPU, Array, Device, all_true, to_host
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate, current_run, usable_cores
from rapids_slink.runtime.threads import for_each_chunk, workers
from rapids_slink.settings import Space
from rapids_slink.spanning_tree import Prepared, Problem, Tree, TreeInput, boxes, kernels, lists

# --------------------------------------------------------------------------------------------------------------- a line

#: Bytes per point at the peak: the values in order, the steps between them, and the edges.
LINE_BYTES = 128
#: More than rounding takes from two ways round a ring, in lengths of the box.
SLACK = 2.0**-49


def prepare_line(inputs: TreeInput) -> Prepared | None:
    """Return the way by a sort, with its tree; None if rounding makes the sorted order insufficient."""
    problem = inputs.problem
    with inputs.report.stage("spanning_tree", problem.device):
        edges = tree_of_line(inputs.rows, problem.metric, problem.device)
    if edges is None:
        return None
    inputs.report.count("spanning_tree", rows_sorted=problem.n)
    return Prepared(lambda: (edges, 1), lambda: MemoryEstimate(LINE_BYTES * problem.n))


def tree_of_line(rows: Array, metric: Metric, device: Device) -> PreallocatedFrame | None:
    """Return n - 1 edges in the total order, weighted by surrogate distances; None if a sort does not give the tree.

    `rows`, (n, 1), n at least 2, is the result of `neighbors.rows.metric_rows`.
    """
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
    if is_ring:  # then the edges are one too many, and the last in the total order is not in the tree
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
    sort_in_place(tree.columns, xp)
    return tree.head(len(rows) - 1)


def _surrogates(difference: Array, metric: Metric, xp: Any) -> Any:
    """Return the surrogate distances of pairs, by their differences."""
    if metric.space is None:
        return difference * difference if metric.formula == "squared_euclidean" else difference
    scale = metric.space.scales[0] if metric.space.scales else None
    if metric.space.within != "squared_euclidean":
        return difference if scale is None else difference / scale
    square = difference * difference
    return square if scale is None else xp.sqrt(square) / scale


# ----------------------------------------------------------------------------------------------------------- all pairs

#: For more features a CPU stores the distances, which are computed in tiles: so it reads the points less often.
MAX_FEATURES = 64
#: The largest `min_samples` for which a kernel finds core distances.
MAX_SAMPLES = {"cpu": 2**7, "cuda": 2**5}
#: The bytes of a pair where memory is limited: 8 for its distance and 8 for everything else.
LIMITED_PAIR_BYTES = 16


def pairs_serve(problem: Problem) -> bool:
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
    is_limited = LIMITED_PAIR_BYTES * n * n > (current_run().limit or math.inf)
    if is_limited and stores_distances(d, metric, min_samples, device, is_compact):
        return False
    by_kernel = not device.is_gpu or min_samples <= MAX_SAMPLES["cuda"]
    return by_kernel and takes_all_distances(n, d, metric, min_samples, device, is_compact)


def may_serve_codes(problem: Problem) -> bool:
    """Return whether all pairs may serve codes on a GPU, if their distances fit into memory.

    They do not if lists are asked for, if core distances are given, or if `min_samples` is too large for a kernel.
    """
    settings, by_kernel = problem.settings, problem.settings.min_samples <= MAX_SAMPLES["cuda"]
    return problem.metric.filter == "codes" and by_kernel and settings.n_neighbors is None and problem.core is None


def estimate_pairs(problem: Problem) -> MemoryEstimate:
    """Return the bytes of the rows and of `tree_of_pairs`."""
    n, d, metric, device = problem.n, problem.d, problem.metric, problem.device
    min_samples = problem.settings.min_samples
    others = (metric.rows.row_bytes(problem.n_features) + TREE_BYTES[device.name]) * n
    others += 8 * min(n * n, workers(device) * max(n, BLOCK_VALUES)) if min_samples > 1 else 0
    if metric is PRECOMPUTED:
        return MemoryEstimate(others)
    if stores_distances(d, metric, min_samples, device, problem.is_compact):
        return MemoryEstimate(8 * n * n + others, workers(device) * 2**19)
    return MemoryEstimate((8 * n + 2**10) * (d + 4) + others)


def prepare_pairs(inputs: TreeInput) -> Prepared:
    """Return the way by all pairs."""
    return Prepared(lambda: _weigh_all(inputs), lambda: estimate_pairs(inputs.problem))


def prepare_codes(inputs: TreeInput) -> Prepared | None:
    """Return the way by all pairs of codes on a GPU; None if their distances do not fit into memory."""
    from rapids_slink.neighbors import matrix

    n, d, metric = inputs.problem.n, inputs.problem.n_features, inputs.problem.metric
    if not matrix.fits(n, d, metric):
        return None
    others = MemoryEstimate((metric.rows.row_bytes(d) + TREE_BYTES["cuda"]) * n)
    return Prepared(
        lambda: _weigh_all(inputs, matrix.all_distances), lambda: others + matrix.estimate_matrix(n, d, metric)
    )


def _weigh_all(inputs: TreeInput, distances: Callable[[Array, Metric], Array] | None = None) -> Tree:
    """Return the tree by given distances, by those that the function `distances` computes, or by those of all pairs."""
    problem, values, metric = inputs.problem, inputs.rows, inputs.problem.metric
    count = "pairs_given" if metric is PRECOMPUTED else "pairs_weighed"
    with inputs.report.stage("spanning_tree", problem.device):
        inputs.report.count("spanning_tree", **{count: problem.n * (problem.n - 1) // 2})
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


# -------------------------------------------------------------------------------------------------------------- repeats

#: Bytes of a row at the peak: its slot in a table and what it equals, or edges beside those of copies.
REPEAT_BYTES = 80


def connect_copies(copies: Copies, tree: PreallocatedFrame, own: Array, device: Device) -> PreallocatedFrame | None:
    """Return the tree of all rows, in the total order; None if a pair weighs less than the copies of one of its rows.

    `tree` is the tree or forest of the distinct rows, by their numbers, and `own`, (m,) float64, the weight between the
    copies of each.
    """
    whole = PreallocatedFrame.empty(device, copies.repeated + tree.columns["weight"].size, EDGE_TYPES)
    is_lighter, is_sorted = kernels(device).connect_copies(copies, own, tree.columns, whole.columns)
    if is_lighter:
        return None
    if not is_sorted:
        sort_in_place(whole.columns, device.xp)
    return whole


def prepare_repeats(inputs: TreeInput) -> Prepared | None:
    """Return the way by distinct rows; None unless many rows are equal."""
    problem, rows, report, device = inputs.problem, inputs.rows, inputs.report, inputs.problem.device
    with report.stage("neighbors", device):
        repeats = find_repeats(rows, device)
    if repeats is None:
        return None
    report.count("spanning_tree", repeated_rows=repeats.repeated)
    few = replace(problem, n=repeats.first.size)
    if device.is_gpu:
        compile_ahead([*_sources_of_copies(problem.metric, rows), *_sources(few)])
    distinct = TreeInput(few, rows[repeats.first], report)
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
            own = exact_kernels(device).pair_distances(rows, repeats.first, repeats.first, problem.metric)
            edges = connect_copies(repeats, tree[0], own, device)
        return None if edges is None else (edges, tree[1])

    copy = repeats.first.size * problem.d * rows.dtype.itemsize
    return Prepared(make, lambda: MemoryEstimate(REPEAT_BYTES * problem.n + copy) + way_of_distinct.estimate())


def tree_at_cores(repeats: Copies, distinct: TreeInput, listed: NeighborLists) -> Tree | None:
    """Return the tree of all rows by mutual reachability; None if a row has others that are nearer than its equals.

    `listed` are lists of the distinct rows by distance, whose arrays are reused for the result.
    """
    problem, report, device = distinct.problem, distinct.report, distinct.problem.device
    xp, m = device.xp, problem.settings.min_samples
    with report.stage("neighbors", device):
        row, count = xp.arange(problem.n, dtype="int32"), repeats.count
        own = exact_kernels(device).pair_distances(distinct.rows, row, row, problem.metric)
        if not all_true((count == 1) | (own <= listed.weights[:, 0])):
            return None
        at = core_positions(listed.ids, count.astype("float64"), m, xp)
        core = xp.where(count > m, own, listed.weights[row, at])
        by_cores = by_mutual_reachability(listed, core, m, device)
        del listed
    tree, components = lists.connected(distinct, by_cores)
    with report.stage("spanning_tree", device):
        edges = connect_copies(repeats, tree, core, device)
    return None if edges is None else (edges, components)


# ----------------------------------------------------------------------------------------------------------- the order


@dataclass(frozen=True)
class Way:
    """A way to the tree of points."""

    name: str  # for reports
    prepare: Callable[[TreeInput], Prepared | None]  # None if it does not serve these values
    estimate: Callable[[Problem], MemoryEstimate] | None = None  # bytes for any values; None if it serves only some


WAYS = LINE, PAIRS, REPEATS, CODES, BOXES, BOXES_IF_LOW, BLOCKS, LISTS = (
    Way("line", prepare_line),  # one feature: n log n, a sort
    Way("pairs", prepare_pairs, estimate_pairs),  # few points, or given distances: n²
    Way("repeats", prepare_repeats),  # repeated rows: n, and the tree of the distinct rows
    Way("pairs", prepare_codes),  # codes on a GPU whose distances fit into memory: n²
    Way("boxes", boxes.prepare, boxes.estimate),  # few features on a GPU: n log n
    Way("boxes", boxes.prepare),  # low dimension on a GPU: n log n
    Way("blocks", lists.prepare_blocks),  # up to a distance, many rows that are near few others: the trees of blocks
    Way("lists", lists.prepare, lists.estimate),  # all others: n² tests, or n log n by a tree
)


def tree_of_rows(problem: Problem, rows: Array, report: Report) -> Tree:
    """Return the minimum spanning tree of the problem's points; `rows` is what `neighbors.rows.metric_rows` returns."""
    return tree_by(prepared_ways(problem, rows, report), report)


def tree_by(ways: Iterable[Prepared], report: Report) -> Tree:
    """Return the tree by the first of these ways that serves the points."""
    for prepared in ways:
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
    inputs = TreeInput(problem, rows, report)
    for way in ways_of(problem):
        prepared = way.prepare(inputs)
        if prepared is not None:
            report.setdefault("way", way.name)  # the way of the distinct rows stays, if it is there
            yield prepared


def ways_of(problem: Problem) -> list[Way]:
    """Return the ways that may serve points of the problem's sizes, the last of them whatever the values are."""
    ways, metric, wanted = [], problem.metric, forced().tree
    by_distance, n, d, device = not problem.by_reachability, problem.n, problem.d, problem.device
    # The distance of a line is one operation on a difference.
    if by_distance and d == 1 and (metric.formula.is_one_operation or metric.space is not None):
        ways.append(LINE)
    fallback = PAIRS if pairs_serve(problem) else LISTS
    if fallback is LISTS:
        # Equal rows are nearest to each other. With missing values others are often at zero too. Core distances that
        # are given may be of rows with weights.
        if problem.core is None and metric.formula.has_equal_rows_first and not metric.missing:
            ways.append(REPEATS)
        if device.is_gpu and may_serve_codes(problem):
            ways.append(CODES)
        # Boxes take less time than the lists alone (bench/NOTES.md). Core distances need the lists, and most of the
        # tree follows from these.
        if by_distance and device.is_gpu and is_searched_by_tree(n, d, metric, device):
            fallback = BOXES
        elif by_distance and device.is_gpu:  # `prepare` makes the search, which the other ways need as well
            ways.append(BOXES_IF_LOW)
        if fallback is LISTS and problem.max_weight < math.inf and lists.may_have_blocks(problem):
            ways.append(BLOCKS)
    ways.append(fallback)
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
    *looking, fallback = ways_of(problem)
    assert fallback.estimate is not None
    needed = fallback.estimate(problem)
    return replace(needed, peak=max(needed.peak, LINE_BYTES * problem.n)) if LINE in looking else needed


# ------------------------------------------------------------------------------------------------------ several trees


@dataclass
class SharedLists:
    """Makes trees of the same points by mutual reachability, for several `min_samples`, from the lists of the most.

    The core distance for m samples is the m-th weight of a list, so the first entries of long lists are the lists of
    fewer samples. Where no lists are made, each tree is made by itself.
    """

    min_samples: int  # the most
    #: the distinct points with their search; which rows are copies, if many are; and lists by distance
    shared: tuple[TreeInput, Copies | None, NeighborLists] | None = None

    def grow(self, problem: Problem, rows: Array, report: Report) -> Tree:
        """Return the tree of a problem of these points; `rows` is the result of `neighbors.rows.metric_rows`."""
        ways, settings = ways_of(problem), problem.settings
        if ways[-1] is not LISTS or not problem.by_reachability:
            return tree_of_rows(problem, rows, report)
        if self.shared is None:
            with report.stage("neighbors", problem.device):
                repeats = find_repeats(rows, problem.device) if REPEATS in ways else None
            if repeats is not None and repeats.first.size == 1:
                repeats = None
            distinct = rows if repeats is None else rows[repeats.first]
            longest = replace(settings, min_samples=self.min_samples)
            inputs = TreeInput(replace(problem, settings=longest, n=len(distinct)), distinct, report)
            self.shared = inputs, repeats, lists.lists_of(inputs, by_distance=True)
        first_inputs, repeats, nearest = self.shared
        k = lists.list_length(settings)
        inputs = TreeInput(replace(first_inputs.problem, settings=settings), first_inputs.rows, report)
        inputs.search = first_inputs.search
        listed = NeighborLists(nearest.ids[:, :k].copy(), nearest.weights[:, :k].copy())
        report.setdefault("way", LISTS.name)
        if repeats is None:
            return lists.connected(inputs, by_mutual_reachability(listed, None, settings.min_samples, problem.device))
        tree = tree_at_cores(repeats, inputs, listed)
        return tree_of_rows(problem, rows, report) if tree is None else tree


# --------------------------------------------------------------------------------------------------------------- groups

#: The most rows of a small group, whose tree one block of a GPU makes, or a thread of a CPU that stores the distances,
#: which stay in its cache.
MAX_ROWS, MAX_STORED = 2048, 512


def forest_of_groups(
    problem: Problem, rows: Array, groups: Groups, values: Array, report: Report, numbers: Array = None
) -> Tree:
    """Return the trees of all groups in the total order, and the number of their components in k-NN graphs.

    The weights are surrogate distances. `problem` and `values` are those of all points, and `rows` is what the metric's
    formula reads of the values. Raises ValueError if a pair of a group has no distance, and names the rows by their
    `numbers` if these are given.
    """
    device, metric, sizes, starts, order = problem.device, problem.metric, groups.sizes, groups.starts, groups.order
    is_large = sizes > most_rows(problem)
    large, small = np.flatnonzero(is_large), np.flatnonzero(~is_large & (sizes > 1))
    check_zeros(values, groups, metric, device, numbers)
    large_trees, components = [], len(groups) - large.size
    for own in (order[starts[g] : starts[g + 1]] for g in large.tolist()):
        if metric.formula.is_undefined_without_common:
            require_common_features(values[own], "X", device, own)
        tree_report = Report()
        settings = replace(problem.settings, clipped=True).for_rows(own.size)
        tree, count = tree_of_rows(replace(problem, settings=settings, n=own.size), rows[own], tree_report)
        tree_report.pop("way")
        src, dst, weight = tree.columns.values()
        large_trees.append((own[src], own[dst], weight))
        components += count
        report.add(tree_report)
    with report.stage("spanning_tree", device):
        begin = int(sizes[small].sum()) - small.size
        forest = PreallocatedFrame.empty(device, begin + sum(part[2].size for part in large_trees), EDGE_TYPES)
        edges = list(forest.columns.values())
        if small.size:
            small_edges = [column[:begin] for column in edges]
            first, size = starts[small], sizes[small]
            samples = min(problem.settings.min_samples, int(size.max()))
            undefined = kernels(device).trees_of_groups(rows, metric, samples, order, first, size, small_edges)
            if undefined >= 0:
                own = order[first[undefined] :][: size[undefined]]
                require_common_features(values[own], "X", device, own)
        for part in large_trees:
            for column, its_own in zip(edges, part, strict=True):
                column[begin : begin + its_own.size] = its_own
            begin += part[2].size
        sort_in_place(forest.columns, device.xp)
    report.count("spanning_tree", groups=len(groups), large_groups=large.size)
    return forest, components


def most_rows(problem: Problem) -> int:
    """Return the most rows of a small group: more rows take less time in their usual way."""
    if forced().tree not in (None, "pairs"):
        return 1
    if problem.device.is_gpu:
        return MAX_ROWS
    is_matrix = is_stored(problem.metric, problem.settings.min_samples, problem.is_compact)
    return MAX_STORED if is_matrix else few_points(problem.d, problem.metric)


def estimate_groups(problem: Problem, sizes: np.ndarray) -> MemoryEstimate:
    """Return the bytes of the metric's rows, the trees of groups of these sizes, their core distances, and the rest."""
    n, d, metric, device, largest = problem.n, problem.n_features, problem.metric, problem.device, int(sizes.max())
    later, itemsize, samples = TREE_BYTES[device.name], problem.itemsize, problem.settings.min_samples
    if problem.by_reachability and metric.is_of_ends:  # then core distances are searched for among all rows
        needed = estimate_search(n, d, itemsize, samples, device, metric=metric, later=later)
    else:
        needed = MemoryEstimate((metric.rows.row_bytes(d) + later) * n)
    if device.is_gpu:  # the rows of each group by columns
        needed += MemoryEstimate((metric.rows.row_bytes(d) or itemsize * d) * n)
    if largest > most_rows(problem):
        settings = replace(problem.settings, clipped=True).for_rows(largest)
        needed += estimate_tree(replace(problem, settings=settings, n=largest))
    return needed


def check_zeros(values: Array, groups: Groups, metric: Metric, device: Device, numbers: Array = None) -> None:
    """Raise ValueError if two rows of a group are zero and have no distance by this metric."""
    if not metric.formula.is_undefined_for_zeros:
        return
    zeros = to_host(zero_rows(values, device))
    number = to_host(groups.number)[zeros]
    order = np.argsort(number, kind="stable")
    same = np.flatnonzero(number[order][1:] == number[order][:-1])
    if same.size:
        pair = zeros[order[same[0] : same[0] + 2]]
        first, second = pair.tolist() if numbers is None else to_host(numbers)[pair].tolist()
        raise undefined_for_zeros(f"rows {first} and {second} of X", metric)


# ---------------------------------------------------------------------------------------------------------------- ahead

SOURCES_OF_LISTS = ("neighbors/exact/lists.cu",), ("spanning_tree/forest.cu",)
#: On fewer cores, or for fewer values, the sources that only some values need are compiled when they are launched.
MANY_CORES, MANY_VALUES = 8, 2**20


def compile_for(problem: Problem) -> None:
    """Let threads compile what the tree and the dendrogram of a problem's points need on its GPU."""
    if problem.metric is not PRECOMPUTED and problem.n > 1:
        compile_ahead(list(_sources(problem)))


def _sources(problem: Problem) -> Iterator[Ahead]:
    """Yield the sources with their options, in the order of their first launches."""
    metric = problem.metric
    if isinstance(metric.space, Space):  # the columns have not been read
        metric = replace(metric, space=metric.space.like(problem.n_features))
    input_value = value_option("float32" if problem.itemsize == 4 else "float64")
    value = value_option("uint64") if metric.rows.are_words else input_value
    if metric.rows.have_norms or metric.rows is Rows.SPHERE:
        value = value_option("float64")
    formula = value, *(metric.bit_options if metric.rows.are_words else metric.cuda_options)
    in_boxes = value, f"-DFEATURES={problem.d}", *metric.cuda_options
    if problem.n * problem.n_features > FEW_VALUES:
        yield "points/points.cu", input_value
    if metric.rows is not Rows.GIVEN:
        yield from (("neighbors/rows.cu", input_value), ("neighbors/rows.cu", value))
    if problem.finds_friends:
        yield from (("neighbors/bvh.cu", *in_boxes), ("spanning_tree/friends.cu", *in_boxes))
        return
    ways = ways_of(problem)
    if REPEATS in ways:
        yield "neighbors/rows.cu", value
    way = ways[-1].name
    if way == "pairs":
        yield from (("neighbors/exact/all_distances.cu", *formula), ("spanning_tree/dense.cu", value_option("float64")))
    elif way == "boxes":
        yield from (("neighbors/bvh.cu", *in_boxes), ("spanning_tree/boxes.cu", *in_boxes))
    elif metric.filter == "product" and filter_kernels(problem.device).fused_filter():
        yield from _sources_of_fused_lists(problem, value, formula)
        return
    else:
        yield from (*SOURCES_OF_LISTS, ("neighbors/exact/rerank.cu", *formula))
    yield from _sources_of_dendrogram(problem.n)


def _sources_of_copies(metric: Metric, rows: Array) -> tuple[Ahead, ...]:
    """Return the sources that connect copies of rows to the tree of the distinct rows, without those that make it."""
    formula = metric.bit_options if rows.dtype == "uint64" else metric.cuda_options
    return ("neighbors/exact/pair_distances.cu", value_option(rows.dtype), *formula), ("spanning_tree/copies.cu",)


def _sources_of_dendrogram(n: int) -> tuple[Ahead, ...]:
    """Return the sources that sort the edges of a tree and make its dendrogram; few leaves leave that to the host."""
    return (("ordering.cu",),) if n <= FEW_LEAVES else (("ordering.cu",), ("dendrogram/dendrogram.cu",))


def _sources_of_fused_lists(problem: Problem, value: str, formula: tuple[str, ...]) -> Iterator[Ahead]:
    """Yield the sources that make lists by the fused filter, fp16 and then int8, connect clusters, and make tiles."""
    from rapids_slink.neighbors.filter.fused import MIXED, TRIED_STEPS, source_of
    from rapids_slink.neighbors.filter.fused.filter import survivor_capacity

    d, k = problem.n_features, lists.length_by_search(problem)
    keys = max(4, power_of_two(-(-survivor_capacity(k, d) // WARP)))
    fp16, int8 = -(-d // 16), -(-d // MIXED)
    yield "neighbors/exact/all_distances.cu", value, *EUCLIDEAN.cuda_options
    yield "neighbors/filter/quantize.cu", value
    yield from (source_of(TRIED_STEPS), ("neighbors/exact/rerank.cu", *formula))
    yield from (source_of(fp16, symmetric=True), ("neighbors/filter/fused/tighten.cu",), *SOURCES_OF_LISTS)
    yield "neighbors/filter/filter.cu", f"-DKEYS_PER_LANE={max(1, power_of_two(2 * k) // WARP)}"
    yield "neighbors/filter/fused/tighten.cu", f"-DKEYS_PER_LANE={keys}", "-DINT8=0", value
    if problem.by_reachability:
        yield from (("neighbors/exact/mutual_reachability.cu",), ("dendrogram/clusters.cu",))
    yield from (source_of(fp16), *_sources_of_dendrogram(problem.n))
    if problem.n * d < MANY_VALUES or usable_cores() < MANY_CORES:
        return
    yield from (source_of(int8, symmetric=True, int8=True), source_of(int8, int8=True))
    yield "neighbors/filter/fused/tighten.cu", f"-DKEYS_PER_LANE={keys}", "-DINT8=1", value
    if problem.metric.formula == "squared_euclidean":  # whole numbers that are not large become bytes
        yield "neighbors/exact/rerank.cu", value_option("uint8"), *problem.metric.cuda_options
    yield from (("spanning_tree/component_pairs.cu",), ("spanning_tree/graphs/edges.cu",))
    yield from (("neighbors/exact/pair_distances.cu", *formula), source_of(fp16, between=True))
    if is_worth_a_look(problem.n, problem.n, d, problem.device):
        yield from (("neighbors/tiles/order.cu",), ("neighbors/tiles/encode.cu", value), ("neighbors/tiles/tiles.cu",))
        yield from (("neighbors/exact/rerank.cu", value, "-DMEASURED=1"), source_of(fp16, local=True))
