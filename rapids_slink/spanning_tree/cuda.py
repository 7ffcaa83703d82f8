"""The kernels of trees on a GPU: launchers of this room's sources, with the functions of `cpu`.

All rounds of a forest, and of a distance matrix, are one launch whose blocks wait for each other: some hundred launches
would each cost the host more time than a few thousand points cost a GPU. Small groups take a launch each for groups of
up to 64 rows, of up to 256, and larger ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.filter.fused import BLOCK_ROWS, TILE, padded
from rapids_slink.neighbors.trees.bvh import SOURCE as BOXES
from rapids_slink.neighbors.trees.bvh import BoxSearch
from rapids_slink.report import Report
from rapids_slink.runtime.cuda import (
    THREADS,
    WARP,
    c_struct,
    check_arrays,
    constant,
    launch,
    launch_blocks,
    launch_resident,
    number_a_block,
    value_option,
)
from rapids_slink.runtime.device import Array, cuda
from rapids_slink.runtime.frames import EDGE_TYPES
from rapids_slink.spanning_tree.component_pairs import (
    SAMPLED,
    ComponentPairs,
    Components,
    SeparationErrors,
    Separations,
)
from rapids_slink.spanning_tree.grouped import Trees
from rapids_slink.spanning_tree.lists import LEAST_SHARE, Growth

FOREST, DENSE, GROUPED = "spanning_tree/forest.cu", "spanning_tree/dense.cu", "spanning_tree/grouped.cu"
COMPONENT_PAIRS, WORK_ITEMS = "spanning_tree/component_pairs.cu", "spanning_tree/work_items.cu"
FRIENDS = "spanning_tree/friends.cu"
STRETCH = constant(WORK_ITEMS, "STRETCH")  # tiles of an item at most


# ----------------------------------------------------------------------------------------------------- forests by lists

MAX_ROUNDS = constant(FOREST, "MAX_ROUNDS")
_launch_forest = partial(launch, FOREST)


def last_listed(ids: Array, weights: Array) -> tuple[Array, Array]:
    """Return the weight and the code of the edge to the last entry of each row's list."""
    check_arrays("int32", ids)
    check_arrays("float64", weights)
    n, k = ids.shape
    weight, code = cp.empty(n), cp.empty(n, cp.int64)
    _launch_forest("last_listed", n, np.int64(n), np.int32(k), ids, weights, weight, code)
    return weight, code


def connected_components(ids: Array) -> int:
    """Return the number of connected components of the undirected graph of neighbour lists."""
    check_arrays("int32", ids)
    n, k = ids.shape
    parent = cp.arange(n, dtype=cp.int32)
    _launch_forest("join_neighbors", n * k, np.int64(n), np.int32(k), ids, parent)
    count = cp.zeros(1, cp.int32)
    _launch_forest("count_roots", n, np.int64(n), parent, count)
    return int(count[0])


def join_pairs(parent: Array, src: Array, dst: Array) -> None:
    """Join the trees of both ends of every pair in `parent`, as `cpu.join_pairs` does."""
    check_arrays("int32", parent, src)
    check_arrays("int32", dst, size=src.size)
    _launch_forest("join_pairs", src.size, np.int64(src.size), src, dst, parent)


def grow_forest(lists: Any, forest: Any, least_share: int = LEAST_SHARE) -> Growth:
    """Run rounds of Borůvka as `cpu.grow_forest` does, in one launch whose blocks wait for each other."""
    f, (n, k) = forest, lists.ids.shape
    _check_forest(forest)
    check_arrays("int32", lists.ids)
    check_arrays("float64", lists.weights, size=n * k)
    check_arrays("int32", f.component, f.cursor, size=n)
    check_arrays("int32", f.n_taken, size=1)
    for name, column in f.edges.columns.items():
        check_arrays(EDGE_TYPES[name], column, size=n - 1)
    rounds = cp.zeros(6 + 2 * MAX_ROUNDS, cp.int32)
    launch_resident(
        FOREST, "grow_forest", n, np.int64(n), np.int32(k), lists.ids, lists.weights, f.component,
        f.cursor, f.nearest_outside, f.nearest_outside_weight, f.bound_weight, f.bound_code, f.best_weight,
        f.best_code, f.certified, cp.empty(n, cp.int32), f.n_taken, *f.edges.columns.values(), rounds,
        np.int32(least_share),
    )  # fmt: skip
    at_first, components, chosen, merged = rounds[2:6].tolist()
    return Growth(at_first - components, merged, chosen, components)


def rows_to_search(forest: Any) -> Array:
    """Return the points, int32, in any order, that `cpu.rows_to_search` returns."""
    f, n = forest, forest.component.size
    _check_forest(forest)
    size = np.int64(n)
    members, largest = cp.zeros(n, cp.int32), cp.zeros(1, cp.uint64)  # CuPy's bincount would take a gigabyte
    _launch_forest("count_members", n, size, f.component, members)
    _launch_forest("find_largest", n, size, members, largest)
    rows, count = cp.empty(n, cp.int32), cp.zeros(1, cp.int32)
    state = (f.bound_weight, f.bound_code, f.best_weight, f.best_code, f.certified)
    _launch_forest("list_rows_to_search", n, size, f.component, largest, *state, rows, count)
    return rows[: int(count[0])]


def record_search(forest: Any, rows: Array, result: Any) -> None:
    """Store the result of a search and the raised lower bounds, as `cpu.record_search` does."""
    f, m = forest, rows.size
    _check_forest(forest)
    check_arrays("int32", rows, result.ids, size=m)
    check_arrays("float64", result.weights, result.upper, size=m)
    state = (f.nearest_outside, f.nearest_outside_weight, f.bound_weight, f.bound_code)
    _launch_forest("record_search", m, np.int64(m), rows, result.ids, result.weights, result.upper, *state)


def _check_forest(forest: Any) -> None:
    """Raise unless the arrays of the forest's points are as the kernels read them."""
    f, n = forest, forest.component.size
    check_arrays("int32", f.component, f.nearest_outside, size=n)
    check_arrays("float64", f.nearest_outside_weight, f.bound_weight, f.best_weight, size=n)
    check_arrays("int64", f.bound_code, f.best_code, size=n)
    check_arrays("bool", f.certified, size=n)


# ------------------------------------------------------------------------------------------------------------ all pairs


def find_cores(matrix: Array, min_samples: int, counts: Array = None) -> Any:
    """Return the distance within which each point has `min_samples` others, (n,) float64.

    `counts`, (n,) int64, is optional: how many equal points each one stands for.
    """
    check_arrays(matrix.dtype, matrix)
    n, options, core = len(matrix), (value_option(matrix.dtype),), cp.empty(len(matrix))
    check_arrays("int64", counts, size=n)
    launch(DENSE, "find_cores", n * WARP, matrix, np.int32(n), np.int32(min_samples), counts, core, options=options)
    return core


def tree_of_matrix(matrix: Array, core: Array, edges: Mapping[str, Any]) -> None:
    """Write the tree of (n, n) distances in the total order; with (n,) core distances by mutual reachability."""
    check_arrays(matrix.dtype, matrix)
    check_arrays("float64", core)
    n, options = len(matrix), (value_option(matrix.dtype),)
    arguments = matrix, np.int32(n), core, cp.zeros(2 + 7 * n, "uint64"), *edges.values()
    launch_resident(DENSE, "grow_tree_of_matrix", n * WARP, *arguments, options=options)


# --------------------------------------------------------------------------------------------------------------- groups

#: Warps of a team and rows a thread: a team makes the tree of a group of at most WARP times both.
TEAMS = ((1, 2), (1, 8), (8, 8))
NO_GROUP = np.iinfo(np.int32).max


def trees_of_groups(trees: Trees) -> int:
    """Write the edges of all groups' trees; return the number of a group with a pair of `OVERFLOW`, or -1.

    The number is always -1 unless rows may miss values.
    """
    rows, metric, edges = trees.rows, trees.metric, trees.edges
    check_arrays(rows.dtype, rows)
    check_arrays("int32", trees.order, *edges[:2])
    check_arrays("float64", edges[2])
    n, d = rows.shape
    size, first = cp.asarray(trees.size.astype(np.int32)), cp.asarray(trees.first)
    begin = cp.cumsum(size - 1, dtype=cp.int64) - (size - 1)
    values = cp.empty_like(rows)
    core = cp.empty(n) if trees.min_samples > 1 else None
    undefined = cp.full(1, NO_GROUP, cp.int32)
    options = value_option(rows.dtype), *(metric.bit_options if rows.dtype == "uint64" else metric.cuda_options)
    smallest = 2
    for warps, items in TEAMS:
        largest = warps * WARP * items
        these = cp.flatnonzero((size >= smallest) & (size <= largest)).astype(cp.int32)
        smallest, blocks = largest + 1, -(-these.size * warps * WARP // THREADS)
        launch_blocks(
            GROUPED, "grow_trees", (blocks,), THREADS, rows, np.int32(d), np.int32(these.size), these, first, size,
            begin, trees.order, np.int32(trees.min_samples), values, core, *edges, undefined,
            options=(*options, f"-DTEAM_WARPS={warps}", f"-DROWS_A_THREAD={items}"),
        )  # fmt: skip
    bad = int(undefined[0]) if metric.formula.is_undefined_without_common else NO_GROUP
    return -1 if bad == NO_GROUP else bad


# -------------------------------------------------------------------------------------------------- pairs of components

#: Rows and threads of a block of `update_supports` and `sample_components`.
SUPPORT_ROWS, SUPPORT_THREADS = constant(COMPONENT_PAIRS, "ROWS"), constant(COMPONENT_PAIRS, "THREADS")

_launch_pairs = partial(launch, COMPONENT_PAIRS)


def sort_by_component(component: Array, k: int) -> tuple[Array, ...]:
    """Return the points sorted by their labels, k different ones, as the fields of `Components`."""
    check_arrays("int32", component)
    n = component.size
    (order, number, of_point), start = cp.empty((3, n), cp.int32), cp.empty(k + 1, cp.int64)
    key, sums, arrived = cp.empty(n, cp.uint64), number_a_block(COMPONENT_PAIRS), cp.zeros(1, cp.uint64)
    _launch_pairs("pack_components", n, np.int64(n), component, key)
    key.sort()
    results = order, number, sums, start, of_point, arrived
    launch_resident(COMPONENT_PAIRS, "number_components", n, np.int64(n), np.int32(k), key, *results)
    return order, number, start, of_point


def sample_components(points: Array, components: Components, otherwise: Array) -> tuple[Array, Array]:
    """Return a sample of points of each component, and the means of the samples; see `cpu.sample_components`."""
    check_arrays(points.dtype, points)
    check_arrays("float64", otherwise)
    k, d = len(components), points.shape[1]
    sample, centroids = cp.empty((k, SAMPLED), cp.int32), cp.empty((k, d), points.dtype)
    arguments = points, np.bool_(points.dtype == cp.float64), np.int32(d), components.order, components.start, otherwise
    launch_blocks(COMPONENT_PAIRS, "sample_components", (k,), SUPPORT_THREADS, *arguments, sample, centroids)
    return sample, centroids


def new_supports(k: int) -> Array:
    """Return the support values and points of every two of k components before `update_supports`."""
    return cp.zeros((k, k), cp.uint64)


def update_supports(product: Array, number: Array, first: int, supports: Array) -> None:
    """Raise the support values of every two components by some points; see `cpu.update_supports`."""
    m, k = product.shape
    check_arrays("float32", product)
    check_arrays("int32", number)
    check_arrays("uint64", supports)
    grid = -(-m // SUPPORT_ROWS), -(-k // SUPPORT_THREADS)
    arguments = product, *map(np.int32, (m, k, first)), number, supports
    launch_blocks(COMPONENT_PAIRS, "update_supports", grid, SUPPORT_THREADS, *arguments)


def measure_pairs(supports: Array, order: Array, y: Array, errors: SeparationErrors) -> tuple[Array, ...]:
    """Return all pairs of K components as the fields of `ComponentPairs`; see `cpu.measure_pairs`."""
    k = len(supports)
    check_arrays("int32", order)
    first, second = cp.empty((2, k * (k - 1) // 2), cp.int32)
    separation, support = cp.empty(first.size), cp.empty((2, first.size), cp.int32)
    arguments = np.int32(k), supports, order, *_geometry(y, errors)
    _launch_pairs("measure_pairs", k * k, *arguments, first, second, separation, *support)
    return first, second, separation, support


def _geometry(y: Array, errors: SeparationErrors) -> tuple[Any, Any]:
    """Return the centroids, in fp16, and the errors, each as a struct that kernels read."""
    check_arrays("float16", y)
    return c_struct(np.uint64(y.data.ptr), np.int64(y.shape[1] // 8)), c_struct(errors.products, errors.moved)


def overlapping(pairs: ComponentPairs, weight: Array, radius_terms: tuple[float, ...]) -> Array:
    """Return the pairs, int32, in any order, that `cpu.overlapping` returns."""
    n = weight.size
    check_arrays("float64", pairs.separation, weight)
    at, count = cp.empty(n, cp.int32), cp.zeros(1, cp.int32)
    _launch_pairs("list_overlapping", n, np.int64(n), pairs.separation, weight, c_struct(*radius_terms), at, count)
    return at[: int(count[0])]


def pair_samples(sample: Array, pairs: ComponentPairs, at: Array, step: int) -> tuple[Array, Array, Array]:
    """Return all pairs of points between sampled points of two components; see `cpu.pair_samples`."""
    check_arrays("int32", sample, at)
    per_component = -(-SAMPLED // step)
    a, b, of_pair = cp.empty((3, at.size * per_component**2), cp.int32)
    sizes = np.int32(per_component), np.int32(step)
    ends = pairs.first, pairs.second
    check_arrays("int32", *ends)
    _launch_pairs("pair_samples", a.size, np.int64(a.size), sample, *ends, at, *sizes, a, b, of_pair)
    return a, b, of_pair


def within_bottlenecks(
    pairs: ComponentPairs, bottlenecks: Array, radius_terms: tuple[float, ...]
) -> tuple[Array, Array, Array]:
    """Return the pairs, in any order, that `cpu.within_bottlenecks` returns, and their bottlenecks."""
    n = pairs.separation.size
    check_arrays("int32", pairs.first, pairs.second)
    check_arrays("float64", pairs.separation, bottlenecks)
    (first, second), upper, count = cp.empty((2, n), cp.int32), cp.empty(n), cp.zeros(1, cp.int32)
    table = bottlenecks, np.int32(bottlenecks.shape[1])
    arguments = np.int64(n), pairs.first, pairs.second, pairs.separation, *table, c_struct(*radius_terms)
    _launch_pairs("list_within_bottlenecks", n, *arguments, first, second, upper, count)
    kept = int(count[0])
    return first[:kept], second[:kept], upper[:kept]


def lightest(src: Array, dst: Array, pair: Array, weight: Array, least: Array) -> tuple[Array, Array, Array]:
    """Return the pairs of points that weigh no more than their component pairs' `least`, in any order."""
    n, pairs = src.size, (src, dst, pair)
    check_arrays("int32", *pairs)
    check_arrays("float64", weight, least)
    ends, light, count = cp.empty((2, n), cp.int32), cp.empty(n), cp.zeros(1, cp.int32)
    _launch_pairs("list_lightest", n, np.int64(n), *pairs, weight, least, *ends, light, count)
    kept = int(count[0])
    return ends[0, :kept], ends[1, :kept], light[:kept]


def facing_limits(
    ends: tuple[Array, Array], upper: Array, separations: Separations, radius_terms: tuple[float, ...]
) -> Array:
    """Return the limits of `FacingPoints.append`, (K, K, 4) float32: structs of component_pairs.cu."""
    k = len(separations.centroids.y)
    check_arrays("int32", *ends)
    check_arrays("float64", upper)
    check_arrays("uint64", separations.supports)
    limits = cp.full((k, k, 4), cp.inf, cp.float32)
    bounds = separations.supports, *_geometry(separations.centroids.y, separations.errors), c_struct(*radius_terms)
    sizes = np.int64(upper.size), np.int32(k)
    _launch_pairs("put_limits", upper.size, *sizes, *ends, upper, *bounds, limits)
    return limits


class FacingPoints:
    """Up to `capacity` points that face a component, as keys of facing.cuh."""

    def __init__(self, capacity: int) -> None:
        self.listed, self.count = cp.empty(capacity, cp.uint64), cp.zeros(1, cp.uint64)

    def append(self, product: Array, number: Array, points: Array, limits: Array) -> None:
        """Append those of some points whose products with the components' centroids reach the limits."""
        m, k = product.shape
        check_arrays("float32", product, limits)
        check_arrays("int32", number, points)
        grid = -(-m // SUPPORT_ROWS), -(-k // SUPPORT_THREADS)
        arguments = product, *map(np.int32, (m, k)), number, points, limits, np.uint64(self.listed.size)
        launch_blocks(COMPONENT_PAIRS, "list_facing", grid, SUPPORT_THREADS, *arguments, self.listed, self.count)

    def sorted(self) -> Array | None:
        """Return the keys, int64 and ascending; None if there is no room for all."""
        count = int(self.count[0])
        return cp.sort(self.listed[:count].view(cp.int64)) if count <= self.listed.size else None


@dataclass(frozen=True)
class ItemPlan:
    """How the fused filter forms the products of component pairs."""

    #: (K + M,) uint32: where each component's blocks end, then, on top of these, each pair's work items; None of blocks
    #: that have points of several components
    ends: Array
    #: `n_items` and `n_rows`: the number of items, and of the rows of all blocks
    n_items: int
    n_rows: int
    formed: int  # the number of pairs of points that are formed, including the overhead of starting an item


def plan_items(start: Array, ends: tuple[Array, Array]) -> ItemPlan:
    """Return how to form the products of pairs of components.

    `ends` are the numbers of both components of each pair, and `start` says where each component begins.
    """
    check_arrays("int64", start)
    check_arrays("int32", *ends)
    n, k = ends[0].size, start.size - 1
    sums, totals = cp.empty(k + n, cp.uint32), cp.zeros(4, cp.uint64)
    sizes = np.int64(n), np.int32(k), *ends, start, *_tiling()
    results = sums, number_a_block(WORK_ITEMS), totals, totals[3:]
    launch_resident(WORK_ITEMS, "count_items", k + n, *sizes, *results)
    n_items, n_blocks, tiles, _ = totals.tolist()
    return ItemPlan(sums, n_items, n_blocks * BLOCK_ROWS, tiles * TILE**2)


def work_items(keys: Array, start: Array, ends: tuple[Array, Array], plan: ItemPlan) -> tuple[Array, Array]:
    """Return the facing points of sorted keys in blocks, and the work items that the fused filter takes.

    Items are numbered by pairs. They have the tiles whose points may be near to those of a block.
    """
    check_arrays("int64", keys)
    check_arrays("int32", *ends)
    filled, items = cp.empty(plan.n_rows, cp.int32), cp.empty((plan.n_items, 4), cp.int32)
    block, tile = _tiling()
    k = np.int32(start.size - 1)
    launch(WORK_ITEMS, "fill_blocks", filled.size, np.int64(filled.size), k, keys, start, plan.ends, block, filled)
    sizes, of_keys = (np.int64(plan.n_items), k, np.int32(ends[0].size)), (*ends, start, keys)
    launch(WORK_ITEMS, "list_items", plan.n_items, *sizes, *of_keys, plan.ends, block, tile, items)
    return filled, items


def pair_numbers(ends: tuple[Array, Array], leaf: Array) -> Array:
    """Return the number of the pair of each two of K components by their leaves, (K, K) int32; -1 without a pair."""
    check_arrays("int32", *ends, leaf)
    k, n = leaf.size, ends[0].size
    number = cp.empty((k, k), cp.int32)
    number.data.memset_async(0xFF, number.nbytes)  # -1: CuPy's `full` would be compiled
    launch(WORK_ITEMS, "number_pairs", n, np.int64(n), np.int32(k), *ends, leaf, number)
    return number


def plan_blocks(component: Array, number: Array, upper: Array, limit: int | None = None) -> ItemPlan:
    """Return how to form the products of pairs of components in blocks that may have points of several components.

    `component`, (n,) int32, is the component of each point, ascending. `number` is the result of `pair_numbers`, and
    `upper` has a bound for each pair. If more than `limit` pairs of points would be formed, some are not counted.
    """
    totals = _list_block_items(component, number, upper, None, limit)
    n_items, _, tiles = totals.tolist()
    return ItemPlan(None, n_items, component.size, tiles * TILE**2)


def block_items(component: Array, number: Array, upper: Array, plan: ItemPlan) -> Array:
    """Return the items that `plan_blocks` has planned, (n_items, 4) int32, as the fused filter takes them."""
    items = cp.empty((plan.n_items, 4), cp.int32)
    _list_block_items(component, number, upper, items)
    return items


def _list_block_items(
    component: Array, number: Array, upper: Array, items: Array | None, limit: int | None = None
) -> Array:
    """Return the totals that list_block_items counts; write the items if there is an array for them."""
    check_arrays("int32", component, number, items)
    check_arrays("float64", upper)
    n, totals = component.size, cp.zeros(3, cp.int64)
    jobs = -(-n // BLOCK_ROWS) * padded(-(-n // TILE), STRETCH)
    sizes = np.int64(jobs), np.int32(n), np.int32(len(number))
    room = np.int64(0 if items is None else len(items)), np.uint64(2**63 if limit is None else limit // TILE**2)
    launch(WORK_ITEMS, "list_block_items", jobs, *sizes, component, number, upper, *_tiling(), *room, totals, items)
    return totals


def _tiling() -> tuple[np.int32, np.int32]:
    return np.int32(BLOCK_ROWS), np.int32(TILE)


# -------------------------------------------------------------------------------------------------------------- friends


def make_boxes(rows: Array, metric: Metric) -> BoxSearch:
    """Return the bounding volume hierarchy of rows."""
    return BoxSearch(rows, cuda(), Report(), metric=metric)


def reduce_near_points(
    search: BoxSearch, limit: float, metric: Metric, values: Array | None, total: Array, enough: float | None
) -> None:
    """Reduce the values of the rows near each row into its total, as `cpu.reduce_near_points` does."""
    n = search.order.size
    search.check()
    if values is not None:
        values = values[search.order]
        check_arrays("float64", values, size=n)
    check_arrays("float64", total, size=n)
    points, how = (
        (search.points, search.leaf_of, np.int64(n), search.nodes),
        (np.float64(enough or 0), np.bool_(enough is not None)),
    )
    _launch_friends(search, "reduce_near_points", n, *points, search.order, values, np.float64(limit), *how, total)


def write_friends(search: BoxSearch, limit: float, metric: Metric, labels: Array) -> int:
    """Write the label of each row, (n,) int32, and return the number of clusters, as `cpu.write_friends` does.

    Afterwards the search has other groups.
    """
    n = search.order.size
    search.check()
    check_arrays("int32", labels, size=n)
    _, leaves, spans, nodes = search.tree
    parent, others = cp.empty(n, cp.int32), cp.zeros(1, cp.uint64)
    _launch_friends(search, "mark_cells", 2 * int(leaves) - 1, leaves, spans, np.float64(limit), nodes)
    _launch_friends(search, "begin_with_cells", n, search.leaf_of, np.int64(n), nodes, search.parent, parent, others)
    cell = parent.copy()
    _join_points(search, cell, True, limit, parent)
    if int(others[0]):
        join_others(search, cell, limit, parent)
    number, counters = cp.empty(n, cp.uint32), cp.zeros(1, cp.uint64)
    search.launch_resident(
        "number_components", n, np.int64(n), search.order, parent, cell, number, number_a_block(FRIENDS), labels,
        counters, source=FRIENDS,
    )  # fmt: skip
    return int(number[-1])


def join_others(search: BoxSearch, cell: Array, limit: float, parent: Array) -> None:
    """Join the points that are not the first of their cells, and pass over nodes of one component."""
    n = search.order.size
    component, changes, counters = cp.empty(n, cp.int32), cp.empty(n, cp.uint32), cp.zeros(1, cp.uint64)
    _launch_friends(search, "find_components", n, np.int64(n), parent, component)
    search.launch_resident("write_groups", n, component, *search.tree, changes, number_a_block(BOXES), counters)
    _join_points(search, cell, False, limit, parent)


def _join_points(search: BoxSearch, cell: Array, firsts: bool, limit: float, parent: Array) -> None:
    n = search.order.size
    points = search.points, search.leaf_of, np.int64(n), search.nodes
    _launch_friends(search, "join_near_points", n, *points, cell, np.bool_(firsts), np.float64(limit), parent)


def _launch_friends(search: BoxSearch, name: str, jobs: int, *arguments: Any) -> None:
    search.launch(name, jobs, *arguments, source=FRIENDS)
