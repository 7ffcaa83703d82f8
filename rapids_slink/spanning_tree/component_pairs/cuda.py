"""The kernels on the GPU: launchers of the sources in this folder."""

from dataclasses import dataclass
from functools import partial

import cupy as cp
import numpy as np

from rapids_slink.neighbors.filter.fused import BLOCK_ROWS, TILE
from rapids_slink.runtime.cuda import c_struct, check_arrays, constant, launch, launch_blocks, value_option
from rapids_slink.runtime.device import Array
from rapids_slink.spanning_tree.component_pairs import SAMPLED, ComponentPairs, Components, SeparationErrors

SOURCE = "spanning_tree/component_pairs/component_pairs.cu"
WORK_ITEMS = "spanning_tree/component_pairs/work_items.cu"
ROWS, THREADS = constant(SOURCE, "ROWS"), constant(SOURCE, "THREADS")

_launch = partial(launch, SOURCE)
_launch_blocks = partial(launch_blocks, SOURCE)


def sort_by_component(component: Array, k: int) -> tuple[Array, ...]:
    """See `rapids_slink.spanning_tree.component_pairs.cpu.sort_by_component`."""
    check_arrays("int32", component)
    n = component.size
    order, begins, of_point = cp.empty((3, n), cp.int32)
    start = cp.empty(k + 1, cp.int64)
    _launch("mark_starts", n, np.int64(n), component, cp.argsort(component), order, begins)
    number = cp.cumsum(begins, dtype=cp.int32)
    _launch("list_starts", n, np.int64(n), np.int32(k), order, number, start, of_point)
    return order, number, start, of_point


def sample_components(points: Array, components: Components, otherwise: Array) -> tuple[Array, Array]:
    """See `rapids_slink.spanning_tree.component_pairs.cpu.sample_components`."""
    check_arrays(points.dtype, points)
    check_arrays("float64", otherwise)
    k, d = len(components), points.shape[1]
    sample, centroids = cp.empty((k, SAMPLED), cp.int32), cp.empty((k, d))
    arguments = points, np.int32(d), components.order, components.start, otherwise, sample, centroids
    _launch_blocks("sample_components", (k,), THREADS, *arguments, options=(value_option(points.dtype),))
    return sample, centroids


def new_supports(k: int) -> Array:
    """The support values and points of every two of k components, for `update_supports`."""
    return cp.zeros((k, k), cp.uint64)


def update_supports(product: Array, number: Array, first: int, supports: Array) -> None:
    """See `rapids_slink.spanning_tree.component_pairs.cpu.update_supports`."""
    m, k = product.shape
    check_arrays("float32", product)
    check_arrays("int32", number)
    check_arrays("uint64", supports)
    grid = -(-m // ROWS), -(-k // THREADS)
    _launch_blocks("update_supports", grid, THREADS, product, *map(np.int32, (m, k, first)), number, supports)


def measure_pairs(supports: Array, order: Array, inner: Array, errors: SeparationErrors) -> tuple[Array, ...]:
    """See `rapids_slink.spanning_tree.component_pairs.cpu.measure_pairs`."""
    k = len(supports)
    check_arrays("int32", order)
    check_arrays("float64", inner)
    first, second = cp.empty((2, k * (k - 1) // 2), cp.int32)
    separation, support = cp.empty(first.size), cp.empty((2, first.size), cp.int32)
    off = c_struct(errors.products, errors.sq_distance, errors.moved)
    _launch("measure_pairs", k * k, np.int32(k), supports, order, inner, off, first, second, separation, *support)
    return first, second, separation, support


def overlapping(pairs: ComponentPairs, weight: Array, radius_terms: tuple[float, ...]) -> Array:
    """See `rapids_slink.spanning_tree.component_pairs.cpu.overlapping`, in any order."""
    n = weight.size
    check_arrays("float64", pairs.separation, weight)
    at, count = cp.empty(n, cp.int32), cp.zeros(1, cp.int32)
    _launch("list_overlapping", n, np.int64(n), pairs.separation, weight, c_struct(*radius_terms), at, count)
    return at[: int(count[0])]


def pair_samples(sample: Array, pairs: ComponentPairs, at: Array, step: int) -> tuple[Array, Array, Array]:
    """See `rapids_slink.spanning_tree.component_pairs.cpu.pair_samples`."""
    check_arrays("int32", sample, at)
    per_component = -(-SAMPLED // step)
    a, b, of_pair = cp.empty((3, at.size * per_component**2), cp.int32)
    sizes = np.int32(per_component), np.int32(step)
    _launch("pair_samples", a.size, np.int64(a.size), sample, *_ends(pairs), at, *sizes, a, b, of_pair)
    return a, b, of_pair


def within_bottlenecks(
    pairs: ComponentPairs, bottlenecks: Array, radius_terms: tuple[float, ...]
) -> tuple[Array, Array]:
    """See `rapids_slink.spanning_tree.component_pairs.cpu.within_bottlenecks`, in any order."""
    n = pairs.separation.size
    check_arrays("float64", pairs.separation, bottlenecks)
    at, upper, count = cp.empty(n, cp.int32), cp.empty(n), cp.zeros(1, cp.int32)
    table = bottlenecks, np.int32(bottlenecks.shape[1])
    arguments = np.int64(n), *_ends(pairs), pairs.separation, *table, c_struct(*radius_terms)
    _launch("list_within_bottlenecks", n, *arguments, at, upper, count)
    kept = int(count[0])
    return at[:kept], upper[:kept]


@dataclass(frozen=True)
class ItemPlan:
    """How the fused filter forms the products of component pairs."""

    ends: Array  # (K + M,) int64: where each component's blocks end, then, on top of these, each pair's work items
    #: `n_items` and `n_rows`: the number of items, and of the rows of all blocks
    n_items: int
    n_rows: int
    formed: int  # the number of pairs of points that are formed, including the overhead of starting an item


def plan_items(components: Components, pairs: ComponentPairs) -> ItemPlan:
    """How to form the products of all these component pairs."""
    n, k = pairs.first.size, len(components)
    counts, totals = cp.empty(k + n, cp.int64), cp.zeros(3, cp.int64)
    sizes = np.int64(n), np.int32(k)
    launch(WORK_ITEMS, "count_items", max(n, k), *sizes, *_ends(pairs), components.start, *_tiling(), counts, totals)
    n_items, n_blocks, tiles = totals.tolist()
    return ItemPlan(cp.cumsum(counts), n_items, n_blocks * BLOCK_ROWS, tiles * TILE**2)


def work_items(components: Components, pairs: ComponentPairs, plan: ItemPlan) -> tuple[Array, Array]:
    """The points in blocks, and the items in the form that the fused filter takes, numbered by their pairs."""
    order, items = cp.empty(plan.n_rows, cp.int32), cp.empty((plan.n_items, 4), cp.int32)
    block, tile = _tiling()
    k, sorted_points = np.int32(len(components)), (components.order, components.start)
    launch(WORK_ITEMS, "fill_blocks", order.size, np.int64(order.size), k, *sorted_points, plan.ends, block, order)
    sizes = np.int64(plan.n_items), k, np.int32(pairs.first.size)
    launch(
        WORK_ITEMS, "list_items", plan.n_items, *sizes, *_ends(pairs), components.start, plan.ends, block, tile, items
    )
    return order, items


def _tiling() -> tuple[np.int32, np.int32]:
    return np.int32(BLOCK_ROWS), np.int32(TILE)


def _ends(pairs: ComponentPairs) -> tuple[Array, Array]:
    check_arrays("int32", pairs.first, pairs.second)
    return pairs.first, pairs.second
