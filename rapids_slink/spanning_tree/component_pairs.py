"""Connect the last components all at once, by bounds on all pairs of them, instead of by a search in each round.

`docs/algorithms.md` says why the edges are in the tree, under "The last components at once".

1. The products of all points with all centroids give the separation of every two components, a lower bound of the
   distance of their points, and two *support points* that attain it. If it is small or negative, samples of both
   components are compared as well.
2. The weights of these pairs of points give a spanning tree of the components. The bottleneck of two components is the
   heaviest edge on the tree's path between them. No heavier pair of their points is in the minimum spanning tree.
3. Few component pairs have a separation below their bottleneck, and they have few pairs of points to test. A GPU finds
   these by the fused filter, a CPU by the products of all points in float32.
4. The minimum spanning tree of the components over these pairs of points completes the forest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np

from rapids_slink.dendrogram.cpu import merge_in_order
from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.choose import COSTS, ROUNDS, connects
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter import (
    FLOAT32_EPSILON,
    ProductFilter,
    accumulation_bound,
    radius_terms,
    shrink_factor,
)
from rapids_slink.neighbors.task import BLOCK_VALUES, Search, equal_slices, mutual_reachability, row_blocks
from rapids_slink.ordering import sort_in_place, stable_order
from rapids_slink.points.output import EDGE_TYPES
from rapids_slink.report import Report
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.cuda import constant
from rapids_slink.runtime.device import Array, Device, to_host
from rapids_slink.runtime.threads import for_each_chunk
from rapids_slink.spanning_tree import kernels
from rapids_slink.spanning_tree.graphs import EdgeList, spanning_forest

SOURCE = "spanning_tree/component_pairs.cu"
SAMPLED = 64  # points of a component
SAMPLE_VALUES = 2**23  # values of samples that are added up at a time


@dataclass(frozen=True)
class Components:
    """Points sorted by component, K components in compressed rows."""

    order: Array  # (n,) int32: the points, those of a component together
    number: Array  # (n,) int32: the component of each, from 0 to K - 1, in that order
    start: Array  # (K + 1,) int64: where each component begins, and n
    of_point: Array  # (n,) int32: the component of each point by its number

    def __len__(self) -> int:
        return int(self.start.size) - 1

    @classmethod
    def of(cls, label: Array, k: int, xp: ModuleType) -> Self:
        """Sort points by their labels, k different ones of any values."""
        order = stable_order(label, xp).astype("int32")
        ordered = label[order]
        number = xp.concatenate((xp.zeros(1, "int32"), xp.cumsum(ordered[1:] != ordered[:-1], dtype="int32")))
        start, by_point = xp.searchsorted(number, xp.arange(k + 1, dtype="int32")), xp.empty_like(number)
        by_point[order] = number
        return cls(order, number, start, by_point)

    @cached_property
    def size(self) -> Array:
        """Return the number of points of each component, (K,) int64."""
        return self.start[1:] - self.start[:-1]


@dataclass(frozen=True)
class ComponentPairs:
    """M pairs of components."""

    #: `first` and `second`: (M,) int32
    first: Array
    second: Array
    #: (M,) float64: a lower bound of the distance of their points, in the filter's scale; negative if there is none
    separation: Array
    support: Array  # (2, M) int32: the support points of the first and of the second component


@dataclass(frozen=True)
class Separations:
    """The data from which the separations of all pairs of K components are computed."""

    centroids: Any  # quantized
    supports: Any  # see `new_supports`
    error: float  # a bound on the error of the four products of a separation together
    moved: float  # a bound on how far quantizing moved two points together


FOUND_BYTES = 64  # bytes of a surviving pair of points, or of a work item
ROUNDING = 1e-9  # relative; above the error of float64 sums of 2²¹ features
MAX_PAIRS = 2**26

#: Pairs of points, src and dst, and the number of their component pair; None if they are too many.
PointPairs = tuple[Any, Any, Any] | None


class Ends(NamedTuple):
    """Component pairs: (M,) int32 arrays, the numbers of their components."""

    first: Array
    second: Array


class Sets(NamedTuple):
    """The points that face other components (see docs/glossary.md), as sorted keys in sets."""

    keys: Array
    start: Array  # where each set begins
    ends: Ends  # the sets of component pairs


@dataclass(frozen=True)
class ConnectContext:
    """The components to connect, and the search with its distances and filter."""

    search: Search
    filter: ProductFilter
    core: Array  # (n,) float64, optional
    components: Components
    budget: int  # the number of pairs of points that rounds of searches would test

    @property
    def device(self) -> Device:
        """Return the search's device."""
        return self.filter.device

    @property
    def kernels(self) -> ModuleType:
        """Return the kernels of trees on the search's device."""
        return kernels(self.device)

    def pair_weights(self, src: Array, dst: Array) -> Any:
        """Return the weights of pairs of points: surrogate distances or mutual reachability."""
        weight = self.search.distances(src, dst)
        return weight if self.core is None else mutual_reachability(weight, self.core, src, dst, self.device.xp)

    def tighten(self, bound: Array, src: Array, dst: Array, pair: Any) -> Any:
        """Return the weights of pairs of points, and lower `bound`, by component pair, to the least of them."""
        weight = self.pair_weights(src, dst)
        self.filter.exact_kernels.scatter_min(bound, pair, weight[:, None])
        return weight

    def capacity(self, bytes_of_each: int) -> int:
        """Return the number of items of this size that fit into memory."""
        return int(min(self.search.free_bytes / (4 * bytes_of_each), 2**31 - 1))

    @property
    def max_pairs(self) -> int:
        """Return how many pairs of points may remain."""
        return min(self.budget // COSTS[self.device.name].weight, self.capacity(FOUND_BYTES), MAX_PAIRS)

    def products(self, centroids: Any) -> Iterator[tuple[slice, Any, Array]]:
        """Yield the points, sorted by component, in parts: positions, quantized points, and products with centroids.

        The products of a part take the memory of those of the part before.
        """
        components, filter_ = self.components, self.filter
        n, k = components.order.size, len(components)
        tile_rows = filter_.kernels.TILE_ROWS * filter_.kernels.TILE_POINTS // k
        by_memory = self.capacity(8 * (k + filter_.n_features) + 64)
        for at in equal_slices(slice(0, n), max(1, min(n, tile_rows, by_memory))):
            rows = filter_.kernels.quantize(filter_.points, filter_.scaling, components.order[at])
            yield at, rows, filter_.kernels.product(rows, centroids)
            del rows

    @cached_property
    def samples(self) -> tuple[Any, Any]:
        """Return a sample of each component and its mean, the centroid.

        Separations are valid for any finite centroids.
        """
        values = min(SAMPLE_VALUES, self.capacity(16))
        return sample_components(
            self.filter.points, self.components, self.filter.scaling.centre, values, self.device.xp
        )

    def scaled_distance(self, weight: Array) -> Any:
        """Return upper bounds of the distances of pairs of these weights, in the filter's scale."""
        *terms, scale, _, _ = self.radius_terms
        return scale * Metric.true_distance_bound(weight, self.device.xp, *terms)

    def flatnonzero(self, flags: Array) -> Array:
        """Return the indices of the flags that are set, int32, on a GPU in no order."""
        return self.filter.exact_kernels.flatnonzero(flags)

    @cached_property
    def radius_terms(self) -> tuple[float, ...]:
        """Return the terms of an upper bound of a pair's distance by its weight, in the filter's scale."""
        return radius_terms(self.filter.n_features, self.filter.scaling.scale * (1 + ROUNDING), self.filter.metric)


@np.errstate(over="ignore", invalid="ignore")
def sample_components(
    points: Array, components: Components, otherwise: Array, values: int, xp: ModuleType
) -> tuple[Array, Array]:
    """Return a sample of points of each of K components, (K, SAMPLED) int32, and the means of the samples, (K, d).

    The sample of a small component repeats points. `otherwise`, (d,) float64, replaces features of means that are not
    finite. Up to `values` numbers are added up at a time.
    """
    positions = components.start[:-1, None] + xp.arange(SAMPLED) * components.size[:, None] // SAMPLED
    sample, means = components.order[positions], xp.empty((len(components), points.shape[1]))
    for at in row_blocks(len(means), SAMPLED * points.shape[1], values):
        means[at] = points[sample[at]].astype("float64").sum(axis=1) / SAMPLED
    means = xp.where(xp.isfinite(means), means, otherwise)
    return sample, means.astype(np.result_type(points.dtype, "float32"), copy=False)


MAX_COMPONENTS = 4096  # more are not connected at once, since all their pairs are listed
#: Bits of a key below its set, of which the bits of a point are the lowest; more points would overflow launches, too.
SET_SHIFT = constant(SOURCE, "BIN_BITS") + constant(SOURCE, "POINT_BITS")
MAX_POINTS = 2 ** constant(SOURCE, "POINT_BITS")
PAIR_BYTES, CENTROID_BYTES = 128, 24  # for a pair while separations are measured, and a feature of a centroid
#: If all points would make more than FACING_COST pairs for each point and component, only facing points are compared
#: (see the glossary). On average a point is listed at most MAX_FACING times.
FACING_COST, MAX_FACING = 32, 16
MAX_OVERLAPPING = 32  # the most pairs of small or negative separation for each component
MIN_SAMPLED = 8  # the fewest points of a component that are compared with another's
MANY_ROUNDS = 10**5  # more than anything costs: for tests that want components connected at once
ROUNDS_OF_TILES = 1  # the cost of all rounds of searches in tiles, in rounds over all pairs


def is_worthwhile(search: Search, components: int, n: int, m: int) -> bool:
    """Return whether connecting the components of n points at once is possible and costs less than searching m rows."""
    if not search.connects_at_once or components > MAX_COMPONENTS or n > MAX_POINTS or forced().connect == "rounds":
        return False
    return bool(forced().connect) or connects(components, n, m, search.report) == "at_once"


def connect_components(
    search: Search, core: Array, component: Array, k: int, rows: Array, report: Report
) -> tuple[Any, Any, Any] | None:
    """Return the edges that connect all k components into one tree; None if too many pairs of points are candidates.

    The result is also None without memory, or without products that are as precise as the separations assume.
    `core` is as in a `SearchTask`, `component` is each point's label, and `rows` are the points that would otherwise
    have to search. The edges are in the total order, ``src < dst``.
    """
    filter_, rounds = search.by_products, ROUNDS if search.is_over_all_pairs else ROUNDS_OF_TILES
    rounds = MANY_ROUNDS if forced().connect else rounds
    if filter_ is None or not filter_.kernels.products_keep_bound():
        return None
    if PAIR_BYTES * k**2 / 2 + CENTROID_BYTES * k * filter_.n_features > search.free_bytes / 4:
        return None
    components = Components.of(component, k, filter_.device.xp)
    context = ConnectContext(search, filter_, core, components, rounds * rows.size * component.size)
    pairs, separations = _separations(context)
    weight = context.pair_weights(*pairs.support)
    if not _compare_samples(context, pairs, weight):
        return None
    ends, upper, leaf = _within_bottlenecks(context, pairs, weight)
    del weight, pairs
    if filter_.device.is_gpu:
        close_pairs = _by_filter(context, ends, upper, leaf, separations)
    else:
        close_pairs = _by_products(context, ends, upper)
    return None if close_pairs is None else _lightest_edges(context, close_pairs, upper, report)


def _separations(context: ConnectContext) -> tuple[ComponentPairs, Separations]:
    """Return all pairs of components, and the data from which their separations are computed.

    Quantizing moves a point by at most e, and the error of a product with a quantized centroid m is at most η|y||m|. A
    separation is a sum of four products.
    """
    components, filter_ = context.components, context.filter
    centroids = filter_.kernels.quantize(context.samples[1], filter_.scaling)
    supports = context.kernels.new_supports(len(components))
    half_norms, largest_errors = [centroids.half_norm.max()], []
    for at, rows, product in context.products(centroids):
        context.kernels.update_supports(product, components.number[at], at.start, supports)
        half_norms.append(rows.half_norm.max())
        largest_errors.append(rows.error.max())
        del product, rows  # the next ones take their memory
    width, rounding = centroids.y.shape[1], 2 * FLOAT32_EPSILON
    square = 2 * max(map(float, half_norms)) / shrink_factor(width) * (1 + rounding)  # the square of the longest y
    moved = 2**0.5 * max(map(float, largest_errors))
    error = 4 * (accumulation_bound(width) + rounding) * square
    separations = Separations(centroids, supports, error, 2 * moved)
    return ComponentPairs(*context.kernels.measure_pairs(separations, components.order)), separations


def _compare_samples(context: ConnectContext, pairs: ComponentPairs, weight: Array) -> bool:
    """Lower the weights of pairs of small separation to the least of their samples; return False if these are many."""
    near = context.flatnonzero(pairs.separation < context.scaled_distance(weight) / 2)
    width = min(SAMPLED, int((context.budget / COSTS[context.device.name].weight / max(1, near.size)) ** 0.5))
    are_many = near.size > MAX_OVERLAPPING * len(context.components) and not forced().connect
    if are_many or width < MIN_SAMPLED:
        return False
    sample, xp = context.samples[0][:, :: -(-SAMPLED // width)], context.device.xp
    for at in row_blocks(near.size, sample.shape[1] ** 2, min(BLOCK_VALUES, context.capacity(FOUND_BYTES))):
        src, dst, pair = pair_samples(sample, pairs, near[at], xp)
        context.tighten(weight, src, dst, pair)
    return True


def pair_samples(sample: Array, pairs: ComponentPairs, at: Array, xp: ModuleType) -> tuple[Array, Array, Array]:
    """Return all pairs of sampled points of the two components, for the pairs at `at`.

    The pairs of points come as two arrays, with the number of each one's component pair.
    """
    a, b = xp.broadcast_arrays(sample[pairs.first[at], :, None], sample[pairs.second[at], None, :])
    return a.ravel(), b.ravel(), xp.repeat(at, sample.shape[1] ** 2)


def _within_bottlenecks(context: ConnectContext, pairs: ComponentPairs, weight: Array) -> tuple[Ends, Array, Array]:
    """Return the pairs that the tree of these weights leaves, their bottlenecks, and the components' leaves."""
    in_tree = _tree(pairs.first, pairs.second, weight, context)
    table = path_bottlenecks(*(to_host(column[in_tree]) for column in (pairs.first, pairs.second, weight)))
    bottlenecks, leaf = (context.device.asarray(part) for part in (table, table[0].astype(np.int32)))
    return *within_bottlenecks(pairs, bottlenecks, context), leaf


def within_bottlenecks(pairs: ComponentPairs, table: Array, context: ConnectContext) -> tuple[Ends, Array]:
    """Return the pairs with a separation of at most the distance of points of their bottleneck's weight.

    The result is the ends of these pairs and their bottlenecks. A bottleneck is the largest height of a range of
    leaves, which two ranges of 2 to the `level` cover.
    """
    xp, position, largest = context.device.xp, table[0].astype("int32"), table[1:]
    first, second = position[pairs.first], position[pairs.second]
    low, high = xp.minimum(first, second), xp.maximum(first, second)
    level = xp.frexp((high - low).astype("float64"))[1] - 1
    bottleneck = xp.maximum(largest[level, low], largest[level, high - (1 << level)])
    at = context.flatnonzero(pairs.separation <= context.scaled_distance(bottleneck))
    return Ends(pairs.first[at], pairs.second[at]), bottleneck[at]


def _by_filter(context: ConnectContext, ends: Ends, upper: Array, leaf: Array, separations: Separations) -> PointPairs:
    """Return the pairs of points that weigh at most their component pair's `upper`, and some others.

    The fused filter finds them, or a finer one if too many pass this. The result is None if too many pass the finest,
    if more pairs would be formed than rounds of searches form, or without memory. Components follow each other as the
    leaves of their dendrogram do. So the components of a tile are near each other, and their pairs with those of
    another tile have about the same bottlenecks. The products are tested with the largest bottleneck, and those that
    pass with that of their own pair. If the pairs of points are many, only those of facing points are formed.
    """
    filter_: Any
    components, kernels, filter_ = context.components, context.kernels, context.filter
    by_leaf = Components.of(leaf[components.of_point], len(components), context.device.xp)
    order, component = by_leaf.order, by_leaf.number
    facing_cost = {None: FACING_COST, "facing": 0}.get(forced().connect, MANY_ROUNDS)
    many, number = facing_cost * order.size * len(components), pair_numbers(ends, leaf, context.device.xp)
    plan, sets = kernels.plan_blocks(component, number, upper, many), None
    if plan.formed > many:
        sets = _facing(context, ends, upper, separations)
        plan = kernels.plan_items(sets.start, sets.ends) if sets else kernels.plan_blocks(component, number, upper)
    image = (plan.n_rows - order.size) * filter_.row_bytes(filter_.n_features)
    if (
        plan.formed > context.budget
        or plan.n_items > context.capacity(FOUND_BYTES)
        or image > context.search.free_bytes / 4
    ):
        return None
    if sets:
        (order, items), tested = kernels.work_items(sets.keys, sets.start, sets.ends, plan), (None, None)
    else:
        items, tested = kernels.block_items(component, number, upper, plan), (component, number)
    close_pairs: PointPairs = None
    while filter_ and close_pairs is None:  # too many may pass if components are far apart and narrow
        close_pairs = filter_.component_pairs(order, items, upper, context.max_pairs, tested)
        filter_ = filter_.finer() if close_pairs is None else None
    return close_pairs


def pair_numbers(ends: Ends, leaf: Array, xp: ModuleType) -> Array:
    """Return the number of the pair of each two of K components by their leaves, (K, K) int32; -1 without a pair."""
    number, first, second = xp.full((leaf.size, leaf.size), -1, "int32"), leaf[ends.first], leaf[ends.second]
    number[first, second] = number[second, first] = xp.arange(first.size, dtype="int32")
    return number


def _facing(context: ConnectContext, ends: Ends, upper: Array, separations: Separations) -> Sets | None:
    """Return the points that may be within a pair's `upper` of a point of its other component; None if too many.

    The points of the first and of the second component of each pair come in turn, as keys: first those that are nearest
    to the other component along the centroids' line. With them come where each of these 2 M sets begins, and the
    numbers of each pair's sets.
    """
    kernels, components, xp = context.kernels, context.components, context.device.xp
    max_facing = 64 * MAX_FACING if forced().connect else MAX_FACING
    capacity = min(max_facing * components.order.size, context.capacity(FOUND_BYTES))
    limits = kernels.facing_limits(ends, upper, separations, context.radius_terms)
    listed, count = xp.empty(capacity, "uint64"), xp.zeros(1, "uint64")
    for at, _, product in context.products(separations.centroids):
        kernels.list_facing(product, components.number[at], components.order[at], limits, listed, count)
        del product
    if int(count[0]) > capacity:
        return None
    number, keys = xp.arange(2 * upper.size + 1, dtype="int64"), xp.sort(listed[: int(count[0])].view("int64"))
    start = xp.searchsorted(keys, number << SET_SHIFT).astype("int64")
    return Sets(keys, start, Ends(number[:-1:2].astype("int32"), number[1::2].astype("int32")))


def _lightest_edges(context: ConnectContext, close_pairs: Any, upper: Array, report: Report) -> tuple[Any, Any, Any]:
    """Return the minimum spanning tree of the components over these pairs of points: src, dst and weight."""
    src, dst, pair = close_pairs
    weight = context.tighten(upper, src, dst, pair)
    light = context.filter.exact_kernels.flatnonzero(weight <= upper[pair])  # the lightest of each component pair
    report.count("connect", joined_at_once=1, pairs_kept=light.size)
    columns = {name: column[light] for name, column in zip(EDGE_TYPES, (src, dst, weight), strict=True)}
    sort_in_place(columns, context.device.xp)
    src, dst, weight = columns.values()
    component = context.components.of_point
    in_tree = _tree(component[src], component[dst], weight, context)
    if in_tree.size != len(context.components) - 1:
        raise RuntimeError("some components are not connected by any pair of points: please report this")
    return src[in_tree], dst[in_tree], weight[in_tree]


def _tree(first: Array, second: Array, weight: Array, context: ConnectContext) -> Array:
    """Return the ascending positions of the edges in a spanning tree of the components; the earlier of ties wins."""
    device, xp = context.device, context.device.xp
    in_tree, _ = spanning_forest(EdgeList(first, second, weight, len(context.components)), device)
    return xp.sort(exact_kernels(device).flatnonzero(in_tree))


TESTED_BYTES = 32  # bytes of a point for each component that it is paired with


def _by_products(context: ConnectContext, ends: Ends, upper: Array) -> PointPairs:
    """Return the pairs of points that weigh at most their component pair's `upper`, by the products of all, on a CPU.

    A tile has points of one component, and of others that are paired with it. The pairs that pass lower `upper` for the
    next tile. The result is None if the pairs are too many.
    """
    components, filter_ = context.components, context.filter
    start, size, (first, second) = components.start, components.size, ends
    if (size[first] * size[second]).sum() > context.budget or size[second].sum() > context.capacity(TESTED_BYTES):
        return None
    if components.order.size > context.capacity(4 * filter_.n_features):
        return None
    points, kernels, room = filter_.query(components.order), filter_.kernels, context.max_pairs
    tiles, close_pairs, has_failed = [], [np.empty((3, 0), np.int32)], False
    by_first = np.argsort(first, kind="stable")
    for pairs in np.split(by_first, np.flatnonzero(np.diff(first[by_first])) + 1):
        own = slice(*start[first[pairs[0]] + np.arange(2)].tolist())
        others = np.concatenate([np.arange(start[c], start[c + 1]) for c in second[pairs]])
        pair = np.repeat(pairs, size[second[pairs]])
        tiles += [(own, others[at], pair[at]) for at in equal_slices(slice(0, others.size), kernels.TILE_POINTS)]

    def test(tile: tuple[slice, np.ndarray, np.ndarray]) -> None:
        nonlocal room, has_failed
        own, others, pair = tile
        rows, groups = points.take(others), (components.number[others], components.of_point)
        for at in equal_slices(own, kernels.TILE_ROWS):
            if has_failed:
                return
            some = points.take(at)
            passed = filter_.exact_kernels.new_candidates(others.size, 1, some.ids.size)
            filter_.append(rows, some, filter_.radius(upper[pair], rows), groups, passed)
            at_row = np.flatnonzero(passed.count)
            count = passed.count[at_row]
            near, dst = np.repeat(at_row, count), passed.ids[at_row][np.arange(some.ids.size) < count[:, None]]
            if near.size:
                src, near_pair = rows.ids[near], pair[near]
                light = context.tighten(upper, src, dst, near_pair) <= upper[near_pair]
                close_pairs.append(np.stack((src, dst, near_pair))[:, light])
                room -= src.size  # if two threads write at once, one update may be lost, which leaves too much room
                if room < 0:
                    has_failed = True

    for_each_chunk(context.device, test, tiles)
    return None if has_failed else tuple(np.concatenate(close_pairs, axis=1))


def path_bottlenecks(src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return a table of the heaviest edge on the path between any two nodes of a tree, whose edges come in any order.

    With the nodes in the order of the dendrogram's leaves, that edge is the largest height between their positions. The
    first of the (1 + levels, n) rows holds each node's position among the leaves. Further rows hold the largest of the
    1, 2, 4, ... heights from a position on.
    """
    rows, n = np.argsort(weight), weight.size + 1
    left_child, right_child, size = np.empty((3, n - 1), np.int32)
    merge_in_order(src[rows].astype(np.int32), dst[rows].astype(np.int32), n, left_child, right_child, size)
    start, height = np.zeros(2 * n - 1, np.int64), np.zeros(n)
    _order_leaves(left_child, right_child, size, weight[rows], start, height)
    position, largest = start[:n], [height]
    while 1 << len(largest) < n:
        following = np.minimum(np.arange(n) + (1 << len(largest) - 1), n - 1)
        largest.append(np.maximum(largest[-1], largest[-1][following]))
    return np.stack([position, *largest])


@njit(cache=True)
def _order_leaves(left_child: Any, right_child: Any, size: Any, weight: Any, start: Any, height: Any) -> None:
    """Write the positions of leaves, where those of clusters start, and the height between each leaf and the next."""
    n = weight.size + 1
    for i in range(n - 2, -1, -1):  # the leaves of a merge: those of its left child, then those of its right one
        first, second = left_child[i], right_child[i]
        start[first] = start[n + i]
        start[second] = start[n + i] + (1 if first < n else size[first - n])
        height[start[second] - 1] = weight[i]
