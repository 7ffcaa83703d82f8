"""The kernels of trees on a GPU: launchers of this folder's sources, with the functions of `cpu`.

All rounds of a forest, and of a distance matrix, are one launch whose blocks wait for each other: some hundred launches
would each cost the host more time than a few thousand points cost a GPU. Small groups take a launch each for groups of
up to 64 rows, of up to 256, and larger ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.bvh import SOURCE as BOXES
from rapids_slink.neighbors.bvh import BoxSearch
from rapids_slink.neighbors.filter.fused import BLOCK_ROWS, TILE, padded
from rapids_slink.neighbors.rows import Copies
from rapids_slink.points.output import EDGE_TYPES
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
from rapids_slink.spanning_tree.component_pairs import Ends, Separations
from rapids_slink.spanning_tree.lists import Growth

FOREST, DENSE, GROUPED = "spanning_tree/forest.cu", "spanning_tree/dense.cu", "spanning_tree/grouped.cu"
COMPONENT_PAIRS, COPIES = "spanning_tree/component_pairs.cu", "spanning_tree/copies.cu"
FRIENDS = "spanning_tree/friends.cu"
STRETCH = constant(COMPONENT_PAIRS, "STRETCH")  # the most tiles of a work item


# --------------------------------------------------------------------------------------------------------------- copies


def connect_copies(
    copies: Copies, own: Array, tree: Mapping[str, Array], whole: Mapping[str, Array]
) -> tuple[bool, bool]:
    """Write the edges of the tree of all rows: see `cpu.connect_copies`."""
    n, m, n_copies, (src, dst, weight) = copies.number.size, copies.first.size, copies.repeated, tree.values()
    nearer, state = cp.zeros(m, cp.int32), cp.zeros(3, cp.int32)  # lighter, listed, unsorted
    launch(COPIES, "find_ends", src.size, src.size, m, src, dst, weight, own, copies.count, nearer, state[:1])
    code = cp.empty(n_copies, cp.int64)
    launch(COPIES, "list_copies", n, n, m, copies.first, copies.number, nearer, code, state[1:2])
    code.sort()
    for in_turn in (False, True):
        launch(
            COPIES, "write_all_edges", n_copies + src.size, n_copies, src.size, in_turn, copies.first, copies.number,
            own, code, src, dst, weight, *whole.values(), state[2:],
        )  # fmt: skip
        is_lighter, _, is_unsorted = state.tolist()
        if is_lighter or not is_unsorted:
            return bool(is_lighter), True
    return False, False


# ----------------------------------------------------------------------------------------------------- forests by lists

MAX_ROUNDS = constant(FOREST, "MAX_ROUNDS")
_launch_forest = partial(launch, FOREST)


def last_listed(ids: Array, weights: Array) -> tuple[Array, Array]:
    """Return the weight and the code of the edge to the last entry of each row's list."""
    n, k = ids.shape
    weight, code = cp.empty(n), cp.empty(n, cp.int64)
    _launch_forest("last_listed", n, n, k, ids, weights, weight, code)
    return weight, code


def connected_components(ids: Array) -> int:
    """Return the number of connected components of the undirected graph of neighbour lists."""
    n, k = ids.shape
    parent = cp.arange(n, dtype=cp.int32)
    _launch_forest("unite_pairs", n * k, n * k, k, None, ids, parent)
    count = cp.zeros(1, cp.int32)
    _launch_forest("count_roots", n, n, parent, count)
    return int(count[0])


def unite_pairs(parent: Array, src: Array, dst: Array) -> None:
    """Unite the trees of both ends of every pair in `parent`, as `cpu.unite_pairs` does."""
    check_arrays("int32", dst, size=src.size)
    _launch_forest("unite_pairs", src.size, src.size, 1, src, dst, parent)


def grow_forest(lists: Any, forest: Any) -> Growth:
    """Run rounds of Borůvka as `cpu.grow_forest` does, in one launch whose blocks wait for each other."""
    f, (n, k) = forest, lists.ids.shape
    _check_forest(forest)
    check_arrays("float64", lists.weights, size=n * k)
    check_arrays("int32", f.component, f.cursor, size=n)
    check_arrays("int32", f.n_taken, size=1)
    for name, column in f.edges.columns.items():
        check_arrays(EDGE_TYPES[name], column, size=n - 1)
    rounds = cp.zeros(6 + 2 * MAX_ROUNDS, cp.int32)
    launch_resident(
        FOREST, "grow_forest", n, n, k, lists.ids, lists.weights, f.component, f.cursor, f.nearest_outside,
        f.nearest_outside_weight, f.bound_weight, f.bound_code, f.best_weight, f.best_code, f.certified,
        cp.empty(n, cp.int32), f.n_taken, *f.edges.columns.values(), rounds,
    )  # fmt: skip
    at_first, components, chosen, n_rounds = rounds[2:6].tolist()
    return Growth(at_first - components, n_rounds, chosen, components)


def rows_to_search(forest: Any) -> Array:
    """Return the points, int32, in any order, that `cpu.rows_to_search` returns."""
    f, n = forest, forest.component.size
    _check_forest(forest)
    members, largest = cp.zeros(n, cp.int32), cp.zeros(1, cp.uint64)  # CuPy's bincount would take a gigabyte
    _launch_forest("count_members", n, n, f.component, members)
    _launch_forest("find_largest", n, n, members, largest)
    rows, count = cp.empty(n, cp.int32), cp.zeros(1, cp.int32)
    _launch_forest(
        "list_rows_to_search", n, n, f.component, largest, f.bound_weight, f.bound_code, f.best_weight, f.best_code,
        f.certified, rows, count,
    )  # fmt: skip
    return rows[: int(count[0])]


def record_search(forest: Any, rows: Array, result: Any) -> None:
    """Store the result of a search and the raised lower bounds, as `cpu.record_search` does."""
    f, m = forest, rows.size
    _check_forest(forest)
    check_arrays("int32", rows, result.ids, size=m)
    check_arrays("float64", result.weights, result.upper, size=m)
    _launch_forest(
        "record_search", m, m, rows, result.ids, result.weights, result.upper, f.nearest_outside,
        f.nearest_outside_weight, f.bound_weight, f.bound_code,
    )  # fmt: skip


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
    n, options, core = len(matrix), (value_option(matrix.dtype),), cp.empty(len(matrix))
    check_arrays("int64", counts, size=n)
    launch(DENSE, "find_cores", n * WARP, matrix, n, min_samples, counts, core, options=options)
    return core


def tree_of_matrix(matrix: Array, core: Array, edges: Mapping[str, Any]) -> None:
    """Write the tree of (n, n) distances in the total order; with (n,) core distances by mutual reachability."""
    n, options = len(matrix), (value_option(matrix.dtype),)
    launch_resident(
        DENSE, "grow_tree_of_matrix", n * WARP, matrix, n, core, cp.zeros(2 + 7 * n, "uint64"), *edges.values(),
        options=options,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- groups

#: Warps of a team, and rows of a thread: a team makes the tree of a group of at most WARP times both numbers.
TEAMS = ((1, 2), (1, 8), (8, 8))
NO_GROUP = np.iinfo(np.int32).max


def trees_of_groups(
    rows: Array, metric: Metric, min_samples: int, order: Array, first: np.ndarray, size: np.ndarray,
    edges: Sequence[Array],
) -> int:  # fmt: skip
    """Write the tree of each group as `cpu.trees_of_groups` does; return a group with a pair of `OVERFLOW`, or -1."""
    src, dst, weight = edges
    n, d = rows.shape
    size, first = cp.asarray(size.astype(np.int32)), cp.asarray(first)
    begin = cp.cumsum(size - 1, dtype=cp.int64) - (size - 1)
    values, core = cp.empty_like(rows), cp.empty(n) if min_samples > 1 else None
    undefined = cp.full(1, NO_GROUP, cp.int32)
    options = value_option(rows.dtype), *(metric.bit_options if rows.dtype == "uint64" else metric.cuda_options)
    smallest = 2
    for warps, items in TEAMS:
        largest = warps * WARP * items
        these = cp.flatnonzero((size >= smallest) & (size <= largest)).astype(cp.int32)
        smallest, blocks = largest + 1, -(-these.size * warps * WARP // THREADS)
        launch_blocks(
            GROUPED, "grow_trees", (blocks,), THREADS, rows, d, these.size, these, first, size, begin, order,
            min_samples, values, core, src, dst, weight, undefined, options=(*options, f"-DTEAM_WARPS={warps}",
            f"-DROWS_A_THREAD={items}"),
        )  # fmt: skip
    bad = int(undefined[0]) if metric.formula.is_undefined_without_common else NO_GROUP
    return -1 if bad == NO_GROUP else bad


# -------------------------------------------------------------------------------------------------- pairs of components

#: Rows and threads of a block of `update_supports`.
SUPPORT_ROWS, SUPPORT_THREADS = constant(COMPONENT_PAIRS, "ROWS"), constant(COMPONENT_PAIRS, "THREADS")

_launch_pairs = partial(launch, COMPONENT_PAIRS)


def new_supports(k: int) -> Array:
    """Return the support values and points of every two of k components before `update_supports`."""
    return cp.zeros((k, k), cp.uint64)


def update_supports(product: Array, number: Array, first: int, supports: Array) -> None:
    """Raise the support values of every two components by some points; see `cpu.update_supports`."""
    _launch_products("update_supports", product, number, first, number, supports)


def _launch_products(name: str, product: Array, number: Array, *others: Any) -> None:
    """Start a kernel that reads the products of some points, whose components are in `number`, with all centroids."""
    m, k = product.shape
    check_arrays("int32", number, size=m)
    grid = -(-m // SUPPORT_ROWS), -(-k // SUPPORT_THREADS)
    launch_blocks(COMPONENT_PAIRS, name, grid, SUPPORT_THREADS, product, m, k, *others)


def measure_pairs(separations: Separations, order: Array) -> tuple[Array, ...]:
    """Return all pairs of K components as the fields of `ComponentPairs`; see `cpu.measure_pairs`."""
    k = len(separations.supports)
    first, second = cp.empty((2, k * (k - 1) // 2), cp.int32)
    separation, support = cp.empty(first.size), cp.empty((2, first.size), cp.int32)
    _launch_pairs(
        "measure_pairs", k * k, k, separations.supports, order, *_structs(separations), first, second, separation,
        support[0], support[1],
    )  # fmt: skip
    return first, second, separation, support


def _structs(separations: Separations) -> tuple[Any, Any]:
    """Return the centroids, in fp16, and the errors, each as a struct that kernels read."""
    y = separations.centroids.y
    check_arrays("float16", y)
    return c_struct(np.uint64(y.data.ptr), np.int64(y.shape[1] // 8)), c_struct(separations.error, separations.moved)


def facing_limits(ends: Ends, upper: Array, separations: Separations, radius_terms: tuple[float, ...]) -> Array:
    """Return the limits of `list_facing`, (K, K, 4) float32: structs of component_pairs.cu."""
    n, k = upper.size, len(separations.supports)
    limits = cp.full((k, k, 4), cp.inf, cp.float32)
    _launch_pairs(
        "put_limits", n, n, k, ends.first, ends.second, upper, separations.supports, *_structs(separations),
        c_struct(*radius_terms), limits,
    )  # fmt: skip
    return limits


def list_facing(product: Array, number: Array, points: Array, limits: Array, keys: Array, count: Array) -> None:
    """Append to the uint64 `keys` those points whose products with the components' centroids reach the limits.

    `count`, (1,) uint64, becomes the number of such points; it is above the size of `keys` if they do not fit.
    """
    check_arrays("int32", points, size=number.size)
    _launch_products("list_facing", product, number, number, points, limits, keys.size, keys, count)


@dataclass(frozen=True)
class ItemPlan:
    """How the fused filter forms the products of component pairs."""

    #: `n_items` and `n_rows`: the number of items, and of the rows of all blocks
    n_items: int
    n_rows: int
    formed: int  # the number of pairs of points that are formed, including the overhead of starting an item
    #: (K + M,) uint32: where each component's blocks end, then, counted on, where each pair's work items end; None if
    #: blocks have points of several components
    ends: Array = None


def plan_items(start: Array, ends: Ends) -> ItemPlan:
    """Return a plan of the products of pairs of components, each of which begins at its `start`."""
    n, k = ends.first.size, start.size - 1
    sums, totals = cp.empty(k + n, cp.uint32), cp.zeros(4, cp.uint64)
    launch_resident(
        COMPONENT_PAIRS, "count_items", k + n, n, k, ends.first, ends.second, start, BLOCK_ROWS, TILE, sums,
        number_a_block(COMPONENT_PAIRS), totals, totals[3:],
    )  # fmt: skip
    n_items, n_blocks, tiles, _ = totals.tolist()
    return ItemPlan(n_items, n_blocks * BLOCK_ROWS, tiles * TILE**2, sums)


def work_items(keys: Array, start: Array, ends: Ends, plan: ItemPlan) -> tuple[Array, Array]:
    """Return the facing points of sorted keys in blocks, and the work items that the fused filter takes.

    Work items are numbered by pairs. They have the tiles whose points may be near those of a block.
    """
    filled, items = cp.empty(plan.n_rows, cp.int32), cp.empty((plan.n_items, 4), cp.int32)
    k, n = start.size - 1, plan.n_rows
    _launch_pairs("fill_blocks", n, n, k, keys, start, plan.ends, BLOCK_ROWS, filled)
    _launch_pairs(
        "list_items", plan.n_items, plan.n_items, k, ends.first.size, ends.first, ends.second, start, keys, plan.ends,
        BLOCK_ROWS, TILE, items,
    )  # fmt: skip
    return filled, items


def plan_blocks(component: Array, number: Array, upper: Array, limit: int | None = None) -> ItemPlan:
    """Return a plan of the products of pairs of components, in blocks that may have points of several components.

    `component`, (n,) int32, is the component of each point, ascending. `number` is of `pair_numbers`, and
    `upper` has a bound for each pair. If more than `limit` pairs of points would be formed, some are not counted.
    """
    n_items, _, tiles = _list_block_items(component, number, upper, None, limit).tolist()
    return ItemPlan(n_items, component.size, tiles * TILE**2)


def block_items(component: Array, number: Array, upper: Array, plan: ItemPlan) -> Array:
    """Return the items that `plan_blocks` has planned, (n_items, 4) int32, as the fused filter takes them."""
    items = cp.empty((plan.n_items, 4), cp.int32)
    _list_block_items(component, number, upper, items)
    return items


def _list_block_items(
    component: Array, number: Array, upper: Array, items: Array | None, limit: int | None = None
) -> Array:
    """Return the totals that list_block_items counts; write the items if there is an array for them."""
    n, totals = component.size, cp.zeros(3, cp.int64)
    jobs, room = -(-n // BLOCK_ROWS) * padded(-(-n // TILE), STRETCH), 0 if items is None else len(items)
    max_tiles = 2**63 if limit is None else limit // TILE**2
    _launch_pairs(
        "list_block_items", jobs, jobs, n, len(number), component, number, upper, BLOCK_ROWS, TILE, room, max_tiles,
        totals, items,
    )  # fmt: skip
    return totals


# -------------------------------------------------------------------------------------------------------------- friends


_launch_friends = partial(BoxSearch.launch, source=FRIENDS)


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
    _launch_friends(
        search, "reduce_near_points", n, search.points, search.leaf_of, n, search.nodes, search.order, values, limit,
        enough or 0, enough is not None, total,
    )  # fmt: skip


def write_friends(search: BoxSearch, limit: float, metric: Metric, labels: Array) -> int:
    """Write the label of each row, (n,) int32, and return the number of clusters, as `cpu.write_friends` does.

    Components become the exclusion ids of the search, so it serves no other task afterwards.
    """
    n = search.order.size
    search.check()
    check_arrays("int32", labels, size=n)
    _, leaves, spans, nodes = search.tree
    parent, others = cp.empty(n, cp.int32), cp.zeros(1, cp.uint64)
    _launch_friends(search, "mark_tight_nodes", 2 * int(leaves) - 1, leaves, spans, limit, nodes)
    _launch_friends(search, "begin_with_tight_nodes", n, search.leaf_of, n, nodes, search.parent, parent, others)
    first_point = parent.copy()
    _unite_points(search, first_point, True, limit, parent)
    if int(others[0]):
        unite_others(search, first_point, limit, parent)
    number, counters = cp.empty(n, cp.uint32), cp.zeros(1, cp.uint64)
    search.launch_resident(
        "number_components", n, n, search.order, parent, first_point, number, number_a_block(FRIENDS), labels, counters,
        source=FRIENDS,
    )  # fmt: skip
    return int(number[-1])


def unite_others(search: BoxSearch, first_point: Array, limit: float, parent: Array) -> None:
    """Unite the points that are not the first of their tight nodes, and pass over nodes of one component."""
    n = search.order.size
    component, changes, counters = cp.empty(n, cp.int32), cp.empty(n, cp.uint32), cp.zeros(1, cp.uint64)
    _launch_friends(search, "find_components", n, n, parent, component)
    search.launch_resident("write_groups", n, component, *search.tree, changes, number_a_block(BOXES), counters)
    _unite_points(search, first_point, False, limit, parent)


def _unite_points(search: BoxSearch, first_point: Array, firsts: bool, limit: float, parent: Array) -> None:
    n = search.order.size
    _launch_friends(
        search, "unite_near_points", n, search.points, search.leaf_of, n, search.nodes, first_point, firsts, limit,
        parent,
    )  # fmt: skip
