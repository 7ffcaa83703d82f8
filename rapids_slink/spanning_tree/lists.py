"""The way by lists: k-NN lists, the forest of the edges that these prove, and searches that connect it.

`docs/algorithms.md` has the proofs, under "The spanning forest" and "Connect".

**Certain edges** are taken by Borůvka's algorithm. In a round every point v of a component C proposes the edge to its
first listed neighbour outside C. It proposes the edge to the components of both ends, and `best(C)` is the lightest
proposal to C. Each point also has a lower bound: every edge to a point that it does not list comes after the bound. C
is *certified* if no lower bound of a point in C is below best(C). Then best(C) is the lightest of all edges that leave
C. A list may have entries above its bound, if it is sorted by mutual reachability or ends at a search's bound. So the
bounds of all points count, not only those of exhausted lists.

Each device runs the rounds in ``grow_forest(lists, forest)``. A list is sorted and components only grow, so a cursor
into it never steps back: all rounds together read it once.

**Connecting.** Each round searches for every component that is not certified, except the largest. Those of its points
search that may have an edge lighter than the component's best one. They look for the nearest point outside, bounded by
that best edge. The forest records the points found and the raised bounds, so the next round of Borůvka certifies the
lightest edge of each of these components. If most points would search, component_pairs.py may connect all components at
once instead.

**Where lists end.** Most edges of a minimum spanning tree connect a small cluster, of fewer than `LARGE` points, to
another. Let w be the weight at which a point's cluster becomes large, by the edges found so far. With more edges it
becomes large no later. So the lightest edge that leaves a small cluster weighs at most the w of each of its points, and
lists that are complete up to each point's own w certify it. Few pairs are that near: w is about the distance of the
first or second neighbour, and the list's last neighbour is the eighth. No proof rests on this: the weights bound a
search, whose result says up to which bounds its lists are complete.

**Blocks** make the tree up to a distance of many rows that are near few others.

    rows ──▶ blocks around pivots ──▶ the edges of each block's tree by lists ──▶ the tree of these edges

Any two rows within the distance meet in a block (`neighbors/pivots.py`). A pair that is in the tree of no block in
which it meets is the heaviest of a cycle of pairs within the distance, so it is not in the tree of all rows either.
A block's rows are in the order of their numbers, and so its edges are in the total order. The rows of a sample tell how
many pairs meet in blocks. All pairs are searched if most pairs meet, as in noise.

**Appended points.** The edges of the new tree are in the old one or have a new end, as `docs/algorithms.md` proves
under "Rows added to a tree". So rounds run on lists of these edges alone. A new point lists its nearest others. An old
one lists its nearest new points, up to a height of the old tree, and its lightest edges of that tree; its lower bound
is that of the first edge it does not list, of either kind. A search (`AppendedSearch`) looks for the nearest new point
of an old one, among the points, and for its lightest unlisted edge of the old tree.

**Two parts** whose trees are known have a tree within these trees and the pairs between the parts: any other pair is
the heaviest of a cycle in its part. So each point lists its nearest points of the other part and its lightest edges of
the tree of its own part, and its lower bound is as for appended points. The lists between the parts end at the weight
at which the point's cluster becomes large in its own part's tree. The searches that follow look among all points.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Self

import numpy as np

from rapids_slink.dendrogram import build_linkage
from rapids_slink.dendrogram import kernels as dendrogram_kernels
from rapids_slink.forced import forced
from rapids_slink.neighbors import DEFAULT_NEIGHBORS, estimate_search, lists_within, neighbor_lists, prepare_search
from rapids_slink.neighbors.choose import block_rows, ends_lists, is_searched_by_tree, takes_blocks
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.pivots import candidates, deal_out, pivots_of, radius_of
from rapids_slink.neighbors.task import NeighborLists, Search, SearchResult, SearchTask, golden_stride
from rapids_slink.ordering import NO_EDGE, edge_codes, sort_in_place, stable_order
from rapids_slink.points.output import EDGE_TYPES, PreallocatedFrame
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device, all_true
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate, release_cached
from rapids_slink.settings import Settings
from rapids_slink.spanning_tree import Prepared, Problem, Tree, TreeInput, kernels
from rapids_slink.spanning_tree.component_pairs import connect_components, is_worthwhile
from rapids_slink.spanning_tree.graphs import EdgeList, forest_of_edges


@dataclass(frozen=True)
class Forest:
    """A forest under construction. The kernels write into the arrays, of length n except `edges` and `n_taken`."""

    #: int32, the label of each point's component: the number of one of its points, the component's root
    component: Array
    cursor: Array  # int32, the position in each point's list up to which it has been read; k when it is exhausted
    #: int32 and float64, the result of the last search, -1 if there was none
    nearest_outside: Array
    nearest_outside_weight: Array
    #: float64 and int64: every edge from the point to an unlisted point outside its component comes after this key or
    #: equals it; after a search, every edge to any point outside
    bound_weight: Array
    bound_code: Array
    #: float64, int64 and bool, by component root: the lightest edge seen in the last round, and whether it is certain
    best_weight: Array
    best_code: Array
    certified: Array
    edges: PreallocatedFrame  # the edges taken so far, ``src < dst``, in the first of its n - 1 rows
    n_taken: Array  # int32 array of shape (1,), the number of edges taken so far

    @classmethod
    def of_points(cls, lists: NeighborLists, device: Device) -> Self:
        """Return a forest without edges: every point is a component, with the lower bound of its list."""
        xp, (n, k) = device.xp, lists.ids.shape
        rows = xp.arange(n, dtype="int32")
        if k >= n - 1 and lists.unlisted_lower_bound is None:  # every row lists all others
            return cls.of_components(rows, (xp.full(n, xp.inf), xp.full(n, NO_EDGE)), device)
        ends, weights = lists.unlisted_lower_bound or (lists.ids, lists.weights)
        bound = kernels(device).last_listed(ends.reshape(n, -1), weights.reshape(n, -1))
        return cls.of_components(rows, bound, device)

    @classmethod
    def of_components(
        cls, component: Array, bound: tuple[Array, Array], device: Device, edges: PreallocatedFrame | None = None
    ) -> Self:
        """Return a forest of these components, of whose points only the lower bounds (weights, codes) are known."""
        xp, n = device.xp, component.size
        empty = exact_kernels(device).empty_lists(n, 1)
        return cls(
            component=component,
            cursor=xp.zeros(n, "int32"),
            nearest_outside=empty.ids.ravel(),
            nearest_outside_weight=empty.weights.ravel(),
            bound_weight=bound[0],
            bound_code=bound[1],
            best_weight=xp.empty(n),
            best_code=xp.empty(n, "int64"),
            certified=xp.zeros(n, bool),
            edges=edges or PreallocatedFrame.empty(device, n - 1, EDGE_TYPES),
            n_taken=xp.zeros(1, "int32"),
        )


@dataclass(frozen=True)
class Growth:
    """The outcome of rounds of Borůvka."""

    edges: int  # the number of edges taken
    rounds: int
    certified: int  # how many times, over all rounds, a component chose a certain edge
    components: int  # how many remain; the forest holds the proposals of a last round that connected none


def estimate(problem: Problem, chosen: Search | None = None) -> MemoryEstimate:
    """Return the bytes of the rows, the lists, the tree and the search, which may be chosen already."""
    n, d, device, min_samples = problem.n, problem.n_features, problem.device, problem.settings.min_samples
    k = length_by_search(problem, chosen)
    later, metric = TREE_BYTES[device.name], problem.metric
    return estimate_search(n, d, problem.itemsize, k, device, None, min_samples, metric, chosen, later)


def prepare(inputs: TreeInput) -> Prepared:
    """Return the way by the search that suits the points; the search is made now."""
    over_all_pairs = inputs.search.is_over_all_pairs  # the report of a plan names the search
    return Prepared(
        lambda: connected(inputs, lists_of(inputs)), lambda: estimate(inputs.problem, inputs.search), over_all_pairs
    )


def lists_of(inputs: TreeInput, by_distance: bool = False) -> NeighborLists:
    """Return the lists of all points, by surrogate distances alone if they are wanted `by_distance`."""
    problem, search, device = inputs.problem, inputs.search, inputs.problem.device
    settings, k = problem.settings, length_by_search(problem, search)
    with inputs.report.stage("neighbors", device):
        if by_distance:
            return neighbor_lists(search, problem.n, k, device)
        bounds_by_lists = None
        if settings.n_neighbors is None and inputs.max_weight == inf and ends_lists(problem.n, device):
            bounds_by_lists = partial(growth_weights, device=device)
        return neighbor_lists(
            search, problem.n, k, device, settings.min_samples, problem.core, inputs.max_weight, bounds_by_lists
        )


def connected(inputs: TreeInput, lists: NeighborLists) -> Tree:
    """Return the tree of the points whose lists these are."""
    report, device = inputs.report, inputs.problem.device
    for_connecting = inputs.search.for_connecting(lists.ids)
    del inputs.search  # the next search may take its memory
    search = for_connecting()
    release_cached()
    with report.stage("components", device):
        components = kernels(device).connected_components(lists.ids)
    return tree_of_lists(lists, search, device, report, inputs.max_weight), components


def list_length(settings: Settings) -> int:
    """Return the length of the neighbour lists.

    With core distances it exceeds `min_samples`, so that edges that weigh the core distance come before the list's
    bound.
    """
    k = settings.n_neighbors or DEFAULT_NEIGHBORS
    return k if settings.min_samples == 1 else max(k, settings.min_samples + 1)


def length_by_search(problem: Problem, search: Search | None = None) -> int:
    """Return the length of the lists that the search makes; None stands for a search that is not chosen yet.

    Lists that end where clusters become large may be longer than others.
    """
    settings, n, device, metric = problem.settings, problem.n, problem.device, problem.metric
    may_differ = settings.n_neighbors is None and not problem.by_reachability
    if may_differ and search is not None and search.for_lists:
        return WIDE_NEIGHBORS
    if search is None:
        may_end = metric.filter == "product" and not is_searched_by_tree(n, problem.d, metric, device)
    else:
        may_end = search.ends_lists
    if may_differ and may_end and problem.max_weight == inf and ends_lists(n, device) and n <= MAX_ENDED_ROWS:
        return ENDED_NEIGHBORS
    return list_length(settings)


def tree_of_lists(
    lists: NeighborLists, search: Search, device: Device, report: Report, max_weight: float = inf
) -> PreallocatedFrame:
    """Return the minimum spanning tree of all pairs, from the k-NN lists and a search over all points.

    It has n - 1 edges in the total order, whose weights are surrogate distances. If `max_weight` is finite, it has the
    edges up to that, and maybe some above.
    """
    forest = Forest.of_points(lists, device)
    connect_forest(forest, lists, search, device, report, max_weight)
    with report.stage("spanning_tree", device):
        edges = forest.edges if max_weight == inf else forest.edges.head(int(forest.n_taken[0]))
        sort_in_place(edges.columns, device.xp)
    return edges


def connect_forest(
    forest: Forest,
    lists: NeighborLists,
    search: Search,
    device: Device,
    report: Report,
    max_weight: float = inf,
    among_all: Search | None = None,
) -> None:
    """Append edges to the forest until it is a tree, or until no component has an edge up to `max_weight`.

    `among_all` is a search over all points if `search` looks for some pairs only, which are enough.

    A component whose rows are all bounded by `max_weight` is finished: no edge up to it leaves the component. In the
    end all except the largest are finished, and an edge that leaves the largest enters another.
    """
    searched, most_components, is_bounded, n_open = False, inf, max_weight < inf, inf
    whole = among_all or search

    def search_outside(rows: Array) -> None:
        """Find each row's nearest point outside its component, unless the component has a lighter edge."""
        own, upper = forest.component, forest.best_weight[forest.component[rows]]
        if is_bounded:
            upper = device.xp.minimum(upper, max_weight)
        result = search.find(SearchTask(rows, 1, own, own, upper, only_minima=True, core=lists.core))
        report.count("connect", rows_searched=rows.size)
        kernels(device).record_search(forest, rows, result)

    def are_connected(components: int, rows: Array) -> bool:
        """Connect the last components at once; return whether it was done."""
        nonlocal most_components
        edges = connect_components(whole, lists.core, forest.component, components, rows, report)
        if edges is None:
            # This is tried again when half of the components remain, unless rounds take less time than that.
            most_components = components / 2 if whole.is_over_all_pairs else 0
            return False
        report.count("connect", edges_certified_by_search=components - 1)
        for column, values in zip(forest.edges.columns.values(), edges, strict=True):
            column[column.size - len(values) :] = values
        return True

    while True:
        with report.stage("spanning_tree", device):
            grown = kernels(device).grow_forest(lists, forest)
            report.count("spanning_tree", rounds=grown.rounds, components_certified=grown.certified)
        if not searched:
            report.count("spanning_tree", edges_certified_by_lists=grown.edges)
        else:
            report.count("connect", edges_certified_by_search=grown.edges)
        if grown.components == 1:
            return
        with report.stage("connect", device):
            report.count("connect", rounds=1)
            rows = kernels(device).rows_to_search(forest)
            if is_bounded:
                weight, code = forest.bound_weight[rows], forest.bound_code[rows]
                rows = rows[(weight < max_weight) | ((weight == max_weight) & (code < NO_EDGE))]
                if not rows.size:
                    return
            if searched and not grown.edges and (not is_bounded or rows.size >= n_open):
                raise RuntimeError("a search has made no component certain of an edge: please report this")
            n_open = rows.size
            at_once = not is_bounded and grown.components <= most_components
            at_once = at_once and is_worthwhile(whole, grown.components, forest.component.size, rows.size)
            if at_once and are_connected(grown.components, rows):
                return
            search_outside(rows)
            searched = True


#: The fewest points of a large cluster.
LARGE = 1024
#: The length of lists that end at these weights. Few rows have half as many neighbours within them, but points with
#: near copies list these first. With more points than `MAX_ENDED_ROWS` such lists would take too much memory.
ENDED_NEIGHBORS, MAX_ENDED_ROWS = 16, 2**24
#: The length of lists in clusters that are about as wide as they are far apart: then another search connects most of
#: the components.
WIDE_NEIGHBORS = 4


def growth_weights(ids: Array, weights: Array, device: Device) -> Array:
    """Return the weight at which each point's cluster becomes large by the edges of lists, (n,) float64.

    It is infinite for points whose cluster never does. A list with fewer than k entries ends in `ids`, (n, k) int32, of
    -1 and `weights`, float64 and ascending, of infinity. The weight of a few points is too large: without lower bounds
    of what is not listed, Borůvka's forest is not always the lightest.
    """
    xp, n = device.xp, len(ids)
    rows = xp.arange(n, dtype="int32")
    frame = PreallocatedFrame({name: xp.empty(n - 1, dtype) for name, dtype in EDGE_TYPES.items()}, device)
    forest = Forest.of_components(rows, (xp.full(n, xp.inf), xp.full(n, NO_EDGE)), device, frame)
    lists = NeighborLists(xp.where(ids < 0, rows[:, None], ids), weights)
    m = kernels(device).grow_forest(lists, forest).edges
    del forest, lists  # what follows takes their memory
    edges = {name: column[:m] for name, column in frame.columns.items()}
    sort_in_place(edges, xp)
    return _growth(edges, n, device)


def _growth(edges: dict[str, Array], n: int, device: Device) -> Array:
    """Return the weight at which the cluster of each of n points becomes large, by a forest in the total order."""
    xp, (src, dst, weight), large = device.xp, edges.values(), forced().large_cluster or LARGE
    m = weight.size
    if not m:
        return xp.full(n, xp.inf)
    first, second, size = xp.empty((3, m), "int32")
    dendrogram_kernels(device).merge_in_order(src, dst, n, first, second, size)
    # Clusters are the leaves and then the merges. `holder` has the last cluster that holds each and is not large, and
    # `end` the weight at which that one ends.
    merge, holder, end = xp.arange(n, n + m, dtype="int32"), xp.arange(n + m, dtype="int32"), xp.full(n + m, xp.inf)
    for child in (first, second):
        holder[child] = xp.where(size < large, merge, child)
        end[child] = weight
    for _ in range(large.bit_length()):
        holder = holder[holder]
    return end[holder[:n]]


# --------------------------------------------------------------------------------------------------------------- blocks

FEWEST = 3  # the fewest blocks: if there were two, at least half of all pairs would meet
SAMPLED_ROWS = 2**12  # the rows that tell which share of the pairs meets


def may_have_blocks(problem: Problem) -> bool:
    """Return whether blocks may serve a problem up to a distance: the values decide."""
    if problem.by_reachability:
        return False
    return problem.metric.filter == "product" and not problem.is_compact


def prepare_blocks(inputs: TreeInput) -> Prepared | None:
    """Return the way by blocks; None unless few pairs meet in them."""
    problem, rows, device, is_wanted = inputs.problem, inputs.rows, inputs.problem.device, forced().tree == "blocks"
    n, xp, is_cosine = problem.n, device.xp, problem.metric.formula.is_of_unit_rows
    count = max(FEWEST * is_wanted, n // block_rows(device))
    if count < FEWEST or inputs.max_weight == inf or not (inputs.search.is_over_all_pairs or is_wanted):
        return None
    radius = radius_of(problem.metric, problem.max_weight, problem.n_features, device)
    if radius is None:
        return None
    with inputs.report.stage("neighbors", device):
        values = rows[:, : problem.n_features]
        pivots = pivots_of(values[device.asarray(candidates(n, count))], radius, is_cosine, count, device)
        count = int(pivots[-1, 0]) + 1

        def meeting(values: Array) -> Iterator[tuple[slice, Array]]:
            """Yield ranges of rows, and in which blocks each row of these meets others, (blocks, m) bool."""
            for some, block, may_be_near in deal_out(values, pivots, radius, is_cosine, device):
                number = xp.arange(count)[:, None]
                yield some, (number == block) | (may_be_near & (number < block))

        sample = device.asarray(np.sort(np.arange(min(n, SAMPLED_ROWS)) * golden_stride(n) % n))
        shares = sum(meets.sum(axis=1) for _, meets in meeting(values[sample])) / sample.size
        share = float((shares * shares).sum())
    if not takes_blocks(share, len(pivots), n, problem.d, inputs.report) and not is_wanted:
        return None
    inputs.report.count("neighbors", blocks=count, pairs_of_rows=int(share * n * n / 2))

    def make() -> Tree:
        del inputs.search  # those of the blocks take its memory
        with inputs.report.stage("neighbors", device):
            meets = xp.empty((count, n), bool)
            for some, meets_some in meeting(values):
                meets[:, some] = meets_some
        trees = [_edges_of(inputs, xp.flatnonzero(block).astype("int32")) for block in meets]
        with inputs.report.stage("spanning_tree", device):
            src, dst, weight = (xp.concatenate([tree[column] for tree in trees]) for column in range(3))
            return forest_of_edges(EdgeList(src, dst, weight, n), 1, device)[0][0], 1

    def estimate_blocks() -> MemoryEstimate:
        largest = min(n, int(1.1 * n * float(shares.max())) + 1)
        kept = n * (count + TREE_BYTES[device.name]) + largest * rows.shape[1] * rows.dtype.itemsize
        return MemoryEstimate(kept) + estimate(replace(problem, n=largest))

    return Prepared(make, estimate_blocks)


def _edges_of(inputs: TreeInput, numbers: Array) -> tuple[Array, Array, Array]:
    """Return src, dst and weight of the tree's edges up to the largest weight, for the rows of these numbers."""
    problem, xp = inputs.problem, inputs.problem.device.xp
    if numbers.size < 2:
        return numbers[:0], numbers[:0], xp.empty(0)
    part = TreeInput(replace(problem, n=numbers.size), inputs.rows[numbers], inputs.report)
    near = lists_of(part)
    search = part.search.for_connecting(near.ids)()
    tree = tree_of_lists(near, search, problem.device, inputs.report, part.max_weight)
    src, dst, weight = tree.columns.values()
    kept = weight <= problem.max_weight
    return numbers[src[kept]], numbers[dst[kept]], weight[kept]


# ------------------------------------------------------------------------------------------------------ appended points

#: An old point lists this many new points, and this many edges of the old tree. With many features one point in 15 has
#: more than four edges, and each of these would keep the components around it uncertain.
NEW_LISTED, TREE_LISTED = 2, 8
#: How many others a new point lists.
LISTED_BY_NEW = 6
#: An old point lists new points up to the height at which its cluster is expected to hold this number of them.
NEW_A_CLUSTER = 4
#: Bytes of an entry of a list.
ENTRY_BYTES = 12


@dataclass(frozen=True)
class TreeEdges:
    """Edges of the old tree from each of their ends, by row and then in the total order."""

    #: `row` and `other`: int32 arrays
    row: Array
    other: Array
    weight: Array  # float64 array
    position: Array  # int array: the position of an edge, 0, 1, ..., among those of its row

    @classmethod
    def of(cls, columns: dict[str, Array], xp: Any) -> Self:
        """Return the edges of a tree from both ends; `columns` are its frame's, in the total order."""
        src, dst, weight = columns.values()
        row, other = (xp.stack(ends, axis=1).ravel() for ends in ((src, dst), (dst, src)))
        order = stable_order(row, xp)
        row = row[order]
        return cls(row, other[order], xp.repeat(weight, 2)[order], xp.arange(row.size) - xp.searchsorted(row, row))

    def at(self, kept: Array) -> Self:
        """Return the edges at the positions `kept`."""
        return type(self)(self.row[kept], self.other[kept], self.weight[kept], self.position[kept])


def tree_of_two_parts(
    rows: Array, split: int, trees: list[dict[str, Array]], problem: Problem, report: Report
) -> PreallocatedFrame:
    """Return the tree of two parts of points, those before `split` and the others, from the tree of each.

    `rows`, (n, d), are what the metric's formula reads. The columns of each tree, in the total order, number the points
    of its part. Edges above `Problem.max_weight` may be missing.
    """
    inputs, device, n, core = TreeInput(problem, rows, report), problem.device, problem.n, problem.core
    xp, sizes = device.xp, (split, n - split)
    k, number = min(list_length(problem.settings), *sizes), xp.arange(n, dtype="int32")
    with report.stage("neighbors", device):
        upper = xp.concatenate([_growth(tree, size, device) for tree, size in zip(trees, sizes, strict=True)])
        part = (number >= split).astype("int32")
        task = SearchTask(number, k, part, part, xp.minimum(upper, inputs.max_weight), split=split)
        nearest = inputs.search.find(task)
        src, dst, weight = (xp.concatenate(both) for both in zip(*(tree.values() for tree in trees), strict=True))
        for end in (src, dst):
            end[trees[0]["src"].size :] += xp.int32(split)
        columns = dict(zip(EDGE_TYPES, (src, dst, weight), strict=True))
        sort_in_place(columns, xp)
        own = TreeEdges.of(columns, xp)
        lists, bound = _lists_with_trees([(slice(0, n), nearest, False)], k, own, core, n, device)
        xp.minimum(bound[0], np.nextafter(problem.max_weight, inf), out=bound[0])  # heavier tree edges are not known
    search = inputs.search.for_connecting(lists.ids)()
    del inputs.search
    release_cached()
    forest = Forest.of_components(number, bound, device)
    connect_forest(forest, lists, search, device, report, inputs.max_weight)
    with report.stage("spanning_tree", device):
        edges = forest.edges if inputs.max_weight == inf else forest.edges.head(int(forest.n_taken[0]))
        sort_in_place(edges.columns, xp)
    return edges


class AppendedSearch(Search):
    """The nearest point outside a row's component: for an old row among new points and its unlisted tree edges."""

    def __init__(self, rows: Array, n_old: int, among_all: Search, problem: Problem, report: Report) -> None:
        device, metric, progress = problem.device, problem.metric, problem.settings.progress
        self.n_old, self.xp, self.among_all = n_old, device.xp, among_all
        self.among_new: Search = prepare_search(rows[n_old:].copy(), device, report, rows, progress, metric)
        self.unlisted: TreeEdges

    def find(self, task: SearchTask) -> SearchResult:
        """Return one neighbour outside its component for each row of a task, whose exclusion ids are the components."""
        xp, m = self.xp, task.rows.size
        is_new = task.rows >= self.n_old
        result = SearchResult(xp.empty((m, 1), "int32"), xp.empty((m, 1)), xp.empty(m))
        for chosen, search, first in ((is_new, self.among_all, 0), (~is_new, self.among_new, self.n_old)):
            at = xp.flatnonzero(chosen)
            if at.size:
                group = task.point_group[first:]
                nearest = search.find(replace(task, rows=task.rows[at], point_group=group, upper=task.upper[at]))
                result.ids[at] = xp.where(nearest.ids < 0, -1, nearest.ids + first)
                result.weights[at], result.upper[at] = nearest.weights, nearest.upper
        self._add_tree_edges(task, result)
        return result

    def _add_tree_edges(self, task: SearchTask, result: SearchResult) -> None:
        """Replace each row's neighbour by the other end of its lightest unlisted tree edge, if that comes before."""
        xp, group, edges = self.xp, task.point_group, self.unlisted
        edges = edges.at(xp.flatnonzero(group[edges.row] != group[edges.other]))
        if not edges.row.size:
            return
        first = xp.searchsorted(edges.row, task.rows)
        at = xp.minimum(first, edges.row.size - 1)
        other, weight = edges.other[at], edges.weight[at]
        ids, weights = result.ids[:, 0], result.weights[:, 0]
        before = (ids < 0) | (weight < weights) | ((weight == weights) & (other < ids))
        replaced = xp.flatnonzero((edges.row[at] == task.rows) & (weight <= result.upper) & before)
        ids[replaced], weights[replaced] = other[replaced], weight[replaced]


def tree_of_appended(
    rows: Array,
    n_old: int,
    edges: tuple[Array, Array],
    merges: tuple[Array, Array, Array],
    problem: Problem,
    report: Report,
) -> PreallocatedFrame:
    """Return the tree of old and new points, in the total order; the weights are surrogate distances.

    `rows`, (n, d), are the old points and then the new ones, as `neighbors.rows.metric_rows` makes them. `edges`, int32
    src and dst, are the old points' tree, or those of its edges that are within `Settings.max_distance`; `merges`,
    int32 left, right and size, are the linkage of these edges in their order.
    """
    device, xp, n = problem.device, problem.device.xp, problem.n
    with report.stage("neighbors", device):
        progress, metric = problem.settings.progress, problem.metric
        among_all = prepare_search(rows, device, report, progress=progress, metric=metric)
        weight = exact_kernels(device).pair_distances(rows, edges[0], edges[1], metric)
        columns = {"src": edges[0].copy(), "dst": edges[1].copy(), "weight": weight}
        if not all_true(weight[1:] >= weight[:-1]):  # distances that are rounded may have another order
            sort_in_place(columns, xp)
            merged = build_linkage(PreallocatedFrame(columns, device), n_old).columns
            weight, merges = merged["height"], (merged["left"], merged["right"], merged["size"])
        sort_in_place(columns, xp)
        search = AppendedSearch(rows, n_old, among_all, problem, report)
        old_edges = TreeEdges.of(columns, xp)
        search.unlisted = old_edges.at(xp.flatnonzero(old_edges.position >= TREE_LISTED))
        upper, min_size = xp.full(n_old, xp.inf), NEW_A_CLUSTER * max(1, n_old // (n - n_old))
        if weight.size == n_old - 1 > 0:
            first, second, size = merges
            upper = dendrogram_kernels(device).heights_of_size(first, second, columns["weight"], size, min_size)
        lists, bound = _lists_of_appended(search, old_edges, upper, n, device)
    forest = Forest.of_components(xp.arange(n, dtype="int32"), bound, device)
    connect_forest(forest, lists, search, device, report, among_all=among_all)
    with report.stage("spanning_tree", device):
        sort_in_place(forest.edges.columns, xp)
    return forest.edges


def _lists_of_appended(
    search: AppendedSearch, edges: TreeEdges, upper: Array, n: int, device: Device
) -> tuple[NeighborLists, tuple[Array, Array]]:
    """Return the lists and the lower bounds, as `_lists_with_trees` returns them."""
    n_old, rows = search.n_old, device.xp.arange(n, dtype="int32")
    k_old, k_new = min(NEW_LISTED, n - n_old), min(LISTED_BY_NEW, n - 1)
    no_group = device.xp.full(n - n_old, -1, "int32")
    old_nearest = search.among_new.find(SearchTask(rows[:n_old], k_old, rows, no_group, upper))
    old_nearest.ids[old_nearest.ids >= 0] += n_old
    new_nearest = search.among_all.find(SearchTask(rows[n_old:], k_new, rows, rows))
    parts = [
        (slice(0, n_old), old_nearest, k_old == n - n_old),
        (slice(n_old, n), new_nearest, k_new == n - 1),
    ]
    return _lists_with_trees(parts, NEW_LISTED, edges, None, n, device)


def _lists_with_trees(
    parts: list[tuple[slice, SearchResult, bool]], k: int, edges: TreeEdges, core: Array, n: int, device: Device
) -> tuple[NeighborLists, tuple[Array, Array]]:
    """Return lists of the nearest points and each row's lightest edges of known trees, from the entry `k` on.

    A part is a range of rows, their nearest points, and whether a full list has all points. The second result is the
    weight and the code, (n,) each, of a lower bound of the edges that each row does not list.
    """
    xp, rows = device.xp, device.xp.arange(n, dtype="int32")
    ids = xp.repeat(rows[:, None], k + TREE_LISTED, axis=1)  # a row itself is passed over
    weights, bound, code = xp.full(ids.shape, xp.inf), xp.empty(n), xp.empty(n, "int64")
    for part, result, has_all in parts:
        near, width = lists_within(result, rows[part], device), result.ids.shape[1]
        ids[part, :width], weights[part, :width] = near.ids, near.weights
        assert near.unlisted_lower_bound is not None
        last, least = near.unlisted_lower_bound
        bound[part] = xp.where((result.ids[:, -1] >= 0) & has_all, xp.inf, least)
        code[part] = edge_codes(rows[part], last, xp)
    listed = edges.at(xp.flatnonzero(edges.position < TREE_LISTED))
    at = listed.row, k + listed.position
    ids[at], weights[at] = listed.other, listed.weight
    first = edges.at(xp.flatnonzero(edges.position == TREE_LISTED))  # the first edge that a row does not list
    first_code = edge_codes(first.row, first.other, xp)
    before = (first.weight < bound[first.row]) | ((first.weight == bound[first.row]) & (first_code < code[first.row]))
    lower = xp.flatnonzero(before)
    bound[first.row[lower]], code[first.row[lower]] = first.weight[lower], first_code[lower]
    exact_kernels(device).sort_by_reachability(ids, weights, xp.full(n, -xp.inf) if core is None else core)
    return NeighborLists(ids, weights, core), (bound, code)


def estimate_appended(problem: Problem, n_old: int) -> MemoryEstimate:
    """Return the bytes that `tree_of_appended` takes, its rows included."""
    n, d, itemsize, device, metric = problem.n, problem.n_features, problem.itemsize, problem.device, problem.metric
    lists = MemoryEstimate(n * (NEW_LISTED + TREE_LISTED) * ENTRY_BYTES)
    among_all = estimate_search(n, d, itemsize, LISTED_BY_NEW, device, metric=metric, later=TREE_BYTES[device.name])
    among_new = estimate_search(n - n_old, d, itemsize, NEW_LISTED, device, n_queries=n, metric=metric)
    return among_all + among_new + lists
