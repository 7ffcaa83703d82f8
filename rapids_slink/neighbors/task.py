"""The input and the output of every neighbour search, weights for HDBSCAN's hierarchy, and orders and slices of points.

A search over n points takes a `SearchTask` and returns a `SearchResult`, whether it is by trees or by brute force and
either device. The weight of a pair is its surrogate distance or its *mutual reachability*: a point's core distance
is the surrogate distance of its m-th nearest other, and the weight is the largest of the pair's surrogate distance and
the core distances of its two points. Distances are monotone in surrogate distances, so that is as true of distances:

    weight(i, j) = max(core(i), core(j), distance(i, j))

This is the definition of Campello, Moulavi and Sander ("Density-based clustering based on hierarchical density
estimates", 2013), with m counted as the package hdbscan counts it, the point itself left out. For m = 1 no core
distance is above any of its point's distances, and the weights are the distances.

**The bound of a list.** A list holds a point's k nearest in the order of (surrogate distance, id), then sorted again by
(weight, id). The lower bound of unlisted points is the last entry (w, l) before that sort. An unlisted point j comes
after it in the first order, and its weight is at least its surrogate distance. So the weight is above w or, if it is w,
the surrogate distance is w too and j > l: then the edge to j has the larger code. Listed entries may have a larger
weight than the bound, however.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, gcd, inf
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from rapids_slink.forced import forced
from rapids_slink.metrics import EUCLIDEAN, Metric
from rapids_slink.neighbors.exact import ExactPoints, TopLists, kernels, scan_bytes
from rapids_slink.report import Report
from rapids_slink.runtime.device import Array, Device
from rapids_slink.runtime.memory import rows_that_fit
from rapids_slink.runtime.threads import Progress, for_each_chunk, shares, workers

if TYPE_CHECKING:
    from rapids_slink.neighbors.bvh import BoxSearch
    from rapids_slink.neighbors.filter import ProductFilter

#: A row's first bound is the distance of its neighbour of this number among some points, if lists need not be full.
FEW = 2
#: The most values of a block of rows that are converted, or computed, at a time.
BLOCK_VALUES = 2**21
#: Rows of a chunk that are compared with all points.
SCANNED_ROWS = {"cpu": 2**9, "cuda": 2**13}
BoundsByLists: TypeAlias = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class SearchTask:
    """For each row, find the `k` nearest points, in the total order, whose exclusion ids are not the row's."""

    rows: Array  # (m,) int32, distinct; which of the search's queries
    k: int
    #: `row_group` and `point_group`: int32, the exclusion ids of queries and points. Pairs of equal ids are left out.
    #: `row_group` may be `rows` itself if these are all points in order, each with an id of its own
    row_group: Array
    point_group: Array
    #: (m,) float64, each row's distance bound: no surrogate distance above it is wanted. By default no row has one
    upper: Array = None
    #: whether only the least distance of each exclusion id is wanted, with `k` 1. Then a distance that one row finds
    #: bounds all rows of its id, and ids are below the number of queries
    only_minima: bool = False
    #: (n,) float64, core distances: then the weight of a pair is its mutual reachability, in the bounds and in the
    #: result, and the queries have to be the points themselves
    core: Array = None
    #: if it is not 0, all points are rows, in order, and those before this number have one exclusion id, the others
    #: another: a search may test each pair of both parts once, for both its points
    split: int = 0
    #: for a k-NN graph: takes the ids and weights of the lists so far and returns bounds, (m,) float64. Nothing above
    #: them is wanted. A search may ignore it
    bounds_by_lists: BoundsByLists | None = None

    @property
    def for_first_bounds(self) -> Self:
        """Return the task for the first bounds, with at most `FEW` neighbours if bounds by lists follow."""
        return replace(self, k=min(self.k, FEW)) if self.bounds_by_lists else self

    @property
    def is_knn_graph(self) -> bool:
        """Return whether every point is a row, in order, with an exclusion id of its own."""
        return self.row_group is self.rows and self.point_group is self.rows

    @property
    def forms_each_pair(self) -> bool:
        """Return whether a search may form each pair once, for both its points."""
        return self.split > 0 or self.is_knn_graph

    def groups(self, rows: Array) -> Array:
        """Return the exclusion ids of some of the rows, int32."""
        return rows if self.row_group is self.rows else self.row_group[rows]

    def bounds(self, xp: Any) -> Array:
        """Return a copy of the rows' bounds, (m,) float64, for the search to tighten: infinite ones by default."""
        return xp.full(self.rows.size, xp.inf) if self.upper is None else self.upper.copy()

    def progress(self, shown: bool | str) -> Progress | None:
        """Return the task's progress bar, or None if it is not `shown`."""
        label = "Searching crossing edges" if self.only_minima else "Searching neighbours"
        return Progress(label, self.rows.size, shown) if shown else None


@dataclass(frozen=True)
class SearchResult:
    """The result of a task."""

    #: (m, k) int32, points in the total order; -1 where there are fewer within the bound. Points above the bound may
    #: follow, with gaps between them
    ids: Array
    weights: Array  # (m, k) float64, their surrogate distances, infinite where the id is -1
    #: (m,) float64: the bound that was reached. A point with another exclusion id that is not listed comes after the
    #: last one listed, if the list is full and within this bound, and is above this bound if not
    upper: Array


@dataclass(frozen=True)
class SearchState:
    """The state of a `ListSearch`, for all rows of its task."""

    upper: Array  # (m,) float64, their bounds
    top: TopLists
    minima: Array = None  # array, optional: the least distance found, by exclusion id

    def at(self, rows: slice) -> tuple[Array, TopLists]:
        """Return views of the bounds and lists of a range of rows, which the search tightens and fills in place."""
        return self.upper[rows], TopLists(self.top.ids[rows], self.top.weights[rows], self.top.overflowed[rows])


@dataclass(eq=False, repr=False)
class Search:
    """A prepared search: `find` solves tasks, and stages may use the other members too.

    `values`, (n, d), are the points, and `queries`, (m, d), the rows of its tasks, by default the same points. Both are
    as `rows.metric_rows` makes them for `metric`. `progress` is whether to show progress bars. `follower` makes another
    search, if that may connect components in less time.
    """

    values: Array
    device: Device
    report: Report
    queries: Array = None
    progress: bool | str = False
    metric: Metric = EUCLIDEAN
    follower: "Callable[[], Search] | None" = None

    name = ""  # for reports
    is_over_all_pairs = False  # whether a task takes time in proportion to the number of its pairs
    connects_at_once = False  # whether components may be connected at once instead of by searches of their rows
    for_lists = False  # whether another search connects its lists, whatever they are
    ends_lists = False  # whether bounds by lists cut off the lists of its k-NN graph, and few distances are equal
    #: set by a search that has `by_products`; the memory is for its tasks and for connecting components at once
    exact: ExactPoints = field(init=False)
    free_bytes: float = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the search."""

    def for_connecting(self, ids: Array) -> "Callable[[], Search]":
        """Return a function that makes the search for connecting its lists, (n, k) ids.

        It makes this search or another, which may take this one's memory.
        """
        return self.follower or (lambda: self)

    @property
    def by_products(self) -> "ProductFilter | None":
        """Return the product filter by which components may be connected at once, or None if there is none.

        Its points are as the metric reads them.
        """
        return None

    def find(self, task: SearchTask) -> SearchResult:
        """Return the nearest points of a task's rows, as a `SearchResult`."""
        raise NotImplementedError

    def distances(self, src: Array, dst: Array) -> Array:
        """Return the surrogate distances of pairs of points, float64, for connecting components at once."""
        return kernels(self.device).pair_distances(self.exact.points, src, dst, self.exact.metric)

    @property
    def by_boxes(self) -> "BoxSearch | None":
        """Return this search if it has a GPU's tree of boxes, otherwise None."""
        return None


def drop_above_bound(ids: Array, weights: Array, upper: Array, xp: Any) -> None:
    """Empty the entries above the bounds that a task of minima per exclusion id has reached.

    A row may have listed a point before another row of its id lowered the bound. From then on points above the bound
    were skipped, so the listed one need not be the row's nearest.
    """
    above = weights > upper[:, None]
    ids[:] = xp.where(above, xp.int32(-1), ids)
    weights[:] = xp.where(above, inf, weights)


class ListSearch(Search):
    """A search that tests the points for each row and weighs those that pass, or all points for unproven rows."""

    def find(self, task: SearchTask) -> SearchResult:
        """Return the nearest points of a task's rows, and report how many were proven, searched again and scanned."""
        xp, on_device, stage = self.device.xp, kernels(self.device), "neighbors"
        reached = SearchState(task.bounds(xp), on_device.empty_lists(task.rows.size, task.k))
        if task.only_minima:
            reached, stage = replace(reached, minima=xp.full(task.row_group.size, xp.inf)), "connect"
        proven, redone, scanned = self.settle(task, reached)
        self.report.count(stage, rows_certified=proven, rows_redone=redone, rows_scanned_exactly=scanned)
        ids, weights, upper = reached.top.ids, reached.top.weights, reached.upper
        if task.only_minima:
            drop_above_bound(ids, weights, upper, self.device.xp)
        return SearchResult(ids, weights, upper)

    def settle(self, task: SearchTask, reached: SearchState) -> tuple[int, int, int]:
        """Fill the lists of a task's rows, and tighten their bounds.

        Returns how many rows were proven at once, were searched again, and were compared with all points.
        """
        raise NotImplementedError

    def scan(self, task: SearchTask, rows: Array, reached: SearchState) -> None:
        """Compute every distance of some of the task's rows."""
        on_device = kernels(self.device)

        def scan(chunk: Array) -> None:
            ids, bound = task.rows[chunk], reached.upper[chunk]
            groups = task.groups(ids), task.point_group
            top = on_device.scan(self.exact, ids, groups, bound, task.k, task.core)
            on_device.put_lists(reached, chunk, bound, top)

        row_bytes = scan_bytes(len(self.values), task.k, self.device) + 36 * task.k + 64
        size = rows_that_fit(SCANNED_ROWS[self.device.name], row_bytes, self.free_bytes / workers(self.device))
        for_each_chunk(self.device, scan, chunks_of(rows, size))


@dataclass(frozen=True)
class NeighborLists:
    """The k-NN graph as lists."""

    ids: Array  # (n, k) int32, each row's nearest others in the total order; the row itself is not among them
    weights: Array  # (n, k) float64, ascending: surrogate distances or, if there are cores, mutual reachability
    core: Array = None  # (n,) float64, optional; each row's core distance; see `mutual_reachability`
    #: (n,) int32 and (n,) float64, ids and weights: the edge from a row to an unlisted point comes after the edge of
    #: this weight to this id. By default that is the last edge of the row's list
    unlisted_lower_bound: tuple[Array, Array] | None = None


def mutual_reachability(surrogate: Array, core: Array, src: Array, dst: Array, xp: Any) -> Any:
    """Return the mutual reachability of pairs by their surrogate distances and their points' core distances."""
    return xp.maximum(surrogate, xp.maximum(core[src], core[dst]))


def by_mutual_reachability(lists: NeighborLists, core: Array, min_samples: int, device: Device) -> NeighborLists:
    """Return the lists by mutual reachability, which (n,) core distances make of surrogate distances, sorted again.

    `lists` have surrogate distances, and their arrays are overwritten and used for the result. If `core` is None, a
    row's core distance is the weight of number `min_samples` in its list, or the last if the list is shorter.
    """
    last = lists.ids[:, -1].copy(), lists.weights[:, -1].copy()
    core = lists.weights[:, min(min_samples, lists.ids.shape[1]) - 1].copy() if core is None else core
    kernels(device).sort_by_reachability(lists.ids, lists.weights, core)
    return NeighborLists(lists.ids, lists.weights, core, last)


def core_positions(ids: Array, weights: Array, min_samples: int, xp: Any) -> Any:
    """Return the position in each of n lists at which a row's copies and the listed rows come to `min_samples`, int64.

    The ids are (n, k). A row of weight w, (n,) float64, has w - 1 copies, which are nearest to it. Sums are rounded, so
    a sum a little below `min_samples` suffices. The position is the last one if no sum suffices.
    """
    position = xp.empty(len(ids), "int64")
    for rows in row_blocks(*ids.shape):
        total = xp.cumsum(weights[ids[rows]], axis=1) + (weights[rows] - 1)[:, None]
        enough = total >= min_samples * (1 - 2.0**-40)  # sums are rounded
        position[rows] = xp.where(enough[:, -1], enough.argmax(axis=1), ids.shape[1] - 1)
    return position


def golden_stride(n: int) -> int:
    """Return a number near n/φ that shares no factor with n.

    Its multiples modulo n visit all of 0..n-1, and those visited are evenly spread at any time. In such a
    low-discrepancy order every leading part is a fair sample.
    """
    step = max(1, round(n * 0.6180339887498949))
    while gcd(step, n) != 1:
        step += 1
    return step


def low_discrepancy_order(n: int, xp: Any) -> Array:
    """Return a permutation of n points, int32, of which every leading part is spread evenly over all of them."""
    return (xp.arange(n, dtype="int64") * golden_stride(n) % n).astype("int32")


def inverse(order: Array, xp: Any) -> Array:
    """Return the position of each number in an order, an int32 array that holds each of 0..n-1 once."""
    position = xp.empty_like(order)
    position[order] = xp.arange(order.size, dtype="int32")
    return position


def geometric_slices(first: int, last: int, growth: float) -> list[slice]:
    """Split 0 to `last` into slices: the first ends at `first`, and each further one ends `growth` times as far."""
    ends, end = [0], first
    while end < last:
        ends.append(end)
        end = ceil(end * growth)
    return [slice(a, b) for a, b in pairwise([*ends, last]) if a < b]


def equal_slices(whole: slice, size: int) -> list[slice]:
    """Split a slice into slices of `size`; the last holds what is left."""
    return [slice(a, min(a + size, whole.stop)) for a in range(whole.start, whole.stop, size)]


def chunks_of(rows: slice | Array, size: int) -> list[Any]:
    """Split a range of rows, or an array of row numbers, into parts of `size`."""
    if isinstance(rows, slice):
        return equal_slices(rows, size)
    return [rows[part] for part in equal_slices(slice(0, rows.size), size)]


def row_blocks(n: int, d: int, size: int = BLOCK_VALUES) -> list[slice]:
    """Split n rows of d values into slices of rows with at most `size` values each, or of one row."""
    return equal_slices(slice(0, n), max(1, (forced().values or size) // d))


def rounds_of_pairs(blocks: list[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """Yield pairs of blocks in rounds: each block with itself, then as in a round-robin tournament.

    The number of blocks is even. A block is in one pair of a round.
    """
    *others, last = blocks
    yield [(block, block) for block in blocks]
    for turn, first in enumerate(others):
        yield [(first, last), *((others[turn - i], others[turn + i - len(others)]) for i in range(1, len(blocks) // 2))]


def rounds_of_blocks(n: int, split: int, pairs: int) -> tuple[list[slice], list[list[tuple[slice, slice]]]]:
    """Return about `pairs` pairs of blocks of n points, and the rounds in which they meet.

    A block is in one pair of a round. If there is a `split`, only blocks of both parts meet.
    """
    if not split:
        blocks = shares(slice(0, n), 2 * pairs)
        return blocks, list(rounds_of_pairs(blocks))
    pairs = min(pairs, split, n - split)
    first, second = shares(slice(0, split), pairs), shares(slice(split, n), pairs)
    return first + second, [list(zip(first, second[turn:] + second[:turn], strict=True)) for turn in range(pairs)]
