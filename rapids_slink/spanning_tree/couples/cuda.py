"""The couples' kernels on the GPU: launchers of `couples.cu`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.device import check_arrays, cuda_kernel, launch, struct
from rapids_slink.neighbors.cuda import value_option
from rapids_slink.spanning_tree.couples.cpu import SAMPLED

SOURCE = "spanning_tree/couples/couples.cu"
ROWS, POINTS, THREADS, FACING = 64, 128, 128, 1024  # as there, and SAMPLED

_launch = partial(launch, SOURCE)


def sort_by_component(component: Any, k: int) -> tuple[Any, ...]:
    """As `rapids_slink.spanning_tree.couples.cpu.sort_by_component`."""
    check_arrays("int32", component)
    n = component.size
    order, begins, of_point = cp.empty((3, n), cp.int32)
    start = cp.empty(k + 1, cp.int64)
    _launch("mark_starts", n, np.int64(n), component, cp.argsort(component), order, begins)
    number = cp.cumsum(begins, dtype=cp.int32)
    _launch("list_starts", n, np.int64(n), np.int32(k), order, number, start, of_point)
    return order, number, start, of_point


def sample_components(points: Any, parts: Any, otherwise: Any) -> tuple[Any, Any]:
    """As `rapids_slink.spanning_tree.couples.cpu.sample_components`."""
    check_arrays(points.dtype, points)
    check_arrays("float64", otherwise)
    k, d = len(parts), points.shape[1]
    sample, middle = cp.empty((k, SAMPLED), cp.int32), cp.empty((k, d))
    cuda_kernel(SOURCE, "sample_components", value_option(points.dtype))(
        (k,), (THREADS,), (points, np.int32(d), parts.order, parts.start, otherwise, sample, middle)
    )
    return sample, middle


def raise_largest(largest: Any, half_norm: Any, error: Any = None) -> None:
    """As `rapids_slink.spanning_tree.couples.cpu.raise_largest`."""
    check_arrays("float32", largest, half_norm, *([] if error is None else [error]))
    n = half_norm.size
    _launch("raise_largest", n, np.int64(n), half_norm, np.uintp(0) if error is None else error, largest)


def new_supports(n: int) -> Any:
    """What `offer_supports` keeps for each two of n components."""
    return cp.zeros((n, n), cp.uint64)


def offer_supports(product: Any, number: Any, first: int, supports: Any) -> None:
    """As `rapids_slink.spanning_tree.couples.cpu.offer_supports`."""
    m, k = product.shape
    check_arrays("float32", product)
    check_arrays("int32", number)
    check_arrays("uint64", supports)
    grid = -(-m // ROWS), -(-k // THREADS)
    cuda_kernel(SOURCE, "offer_supports")(
        grid, (THREADS,), (product, np.int32(m), np.int32(k), np.int32(first), number, supports)
    )


def couples(supports: Any, order: Any, inner: Any, lost: float, more: float, moved: float) -> tuple[Any, ...]:
    """As `rapids_slink.spanning_tree.couples.cpu.couples`."""
    k = len(supports)
    check_arrays("int32", order)
    check_arrays("float64", inner)
    first, second = cp.empty((2, k * (k - 1) // 2), cp.int32)
    gap, facing = cp.empty(first.size), cp.empty((2, first.size), cp.int32)
    _launch(
        "measure_couples", k * k, np.int32(k), supports, order, inner, np.float64(lost), np.float64(more),
        np.float64(moved), first, second, gap, *facing,
    )  # fmt: skip
    return first, second, gap, facing


def take(couples: Any, at: Any) -> tuple[Any, ...]:
    """As `rapids_slink.spanning_tree.couples.cpu.take`."""
    n = at.size
    check_arrays("int32", at)
    first, second = cp.empty((2, n), cp.int32)
    gap, facing = cp.empty(n), cp.empty((2, n), cp.int32)
    given = *_two(couples), couples.gap, *couples.facing
    _launch("take_couples", n, np.int64(n), at, *given, first, second, gap, *facing)
    return first, second, gap, facing


def list_tree(taken: Any, couples: Any, weight: Any, n: int) -> tuple[np.ndarray, ...]:
    """As `rapids_slink.spanning_tree.couples.cpu.list_tree`."""
    m = taken.size
    check_arrays("bool", taken)
    check_arrays("float64", weight)
    edges, count = cp.empty((3, n)), cp.zeros(1, cp.int32)
    _launch("list_tree", m, np.int64(m), taken, *_two(couples), weight, np.int32(n), edges, count)
    src, dst, weight = edges.get()
    return src.astype(np.int32), dst.astype(np.int32), weight


def close(couples: Any, weight: Any, reach: tuple[float, ...]) -> Any:
    """As `rapids_slink.spanning_tree.couples.cpu.close`; in no order."""
    n = weight.size
    check_arrays("float64", couples.gap, weight)
    at, count = cp.empty(n, cp.int32), cp.zeros(1, cp.int32)
    _launch("keep_close", n, np.int64(n), couples.gap, weight, struct(*reach), at, count)
    return at[: int(count[0])]


def pair_samples(sample: Any, couples: Any, at: Any, step: int) -> tuple[Any, Any, Any]:
    """As `rapids_slink.spanning_tree.couples.cpu.pair_samples`."""
    check_arrays("int32", sample, at)
    taken = -(-SAMPLED // step)
    a, b, of_pair = cp.empty((3, at.size * taken**2), cp.int32)
    sizes = np.int32(taken), np.int32(step)
    _launch("pair_samples", a.size, np.int64(a.size), sample, *_two(couples), at, *sizes, a, b, of_pair)
    return a, b, of_pair


def within(couples: Any, ways: Any, reach: tuple[float, ...]) -> tuple[Any, Any]:
    """As `rapids_slink.spanning_tree.couples.cpu.within`; in no order."""
    n = couples.gap.size
    check_arrays("float64", couples.gap, ways)
    at, upper, count = cp.empty(n, cp.int32), cp.empty(n), cp.zeros(1, cp.int32)
    _launch(
        "keep_within", n, np.int64(n), *_two(couples), couples.gap, ways, np.int32(ways.shape[1]), struct(*reach),
        at, upper, count,
    )  # fmt: skip
    kept = int(count[0])
    return at[:kept], upper[:kept]


def shadows(points: Any, origin: Any, parts: Any, middles: Any, couples: Any, end: Any) -> Any:
    """As `rapids_slink.spanning_tree.couples.cpu.shadows`."""
    check_arrays(points.dtype, points)
    check_arrays("float64", origin, middles)
    blocks = cp.cumsum(-(-(parts.size[couples.first] + parts.size[couples.second]) // POINTS))
    shadow = cp.empty(int(end[-1]))
    cuda_kernel(SOURCE, "cast_shadows", value_option(points.dtype))(
        (int(blocks[-1]),), (THREADS,),
        (points, np.int32(points.shape[1]), origin, parts.order, parts.start, middles, np.int32(end.size),
         *_two(couples), end, blocks, shadow),
    )  # fmt: skip
    return shadow


def facing_points(shadow: Any, parts: Any, couples: Any, end: Any, far: Any, upper: Any, core: Any) -> tuple[Any, Any]:
    """As `rapids_slink.spanning_tree.couples.cpu.facing_points`."""
    check_arrays("float64", shadow, far, upper, *([] if core is None else [core]))
    near, count = cp.empty(shadow.size, cp.int32), cp.empty((end.size, 2), cp.int32)
    cuda_kernel(SOURCE, "keep_facing")(
        (end.size,), (THREADS,),
        (shadow, parts.order, parts.start, *_two(couples), end, far, upper, np.uintp(0) if core is None else core,
         near, count),
    )  # fmt: skip
    return near, count


def facing_pairs(
    shadow: Any, near: Any, count: Any, parts: Any, couples: Any, end: Any, far: Any, capacity: int
) -> tuple[Any, int]:
    """As `rapids_slink.spanning_tree.couples.cpu.facing_pairs`."""
    check_arrays("float64", shadow, far)
    check_arrays("int32", near, count)
    found, n_found = cp.empty((3, capacity), cp.int32), cp.zeros(1, cp.int32)
    of_first, of_second = count.astype(cp.int64).T
    blocks = cp.cumsum(-(-of_first // THREADS) * -(-of_second // FACING))
    if n_blocks := int(blocks[-1]):
        cuda_kernel(SOURCE, "pair_facing")(
            (n_blocks,), (THREADS,),
            (shadow, near, count, blocks, parts.order, parts.start, np.int32(end.size), *_two(couples), end, far,
             np.int32(capacity), *found, n_found),
        )  # fmt: skip
    return found, int(n_found[0])


def keep_light(pairs: Any, weight: Any, upper: Any, of_point: Any) -> tuple[Any, Any]:
    """As `rapids_slink.spanning_tree.couples.cpu.keep_light`; in no order."""
    n = weight.size
    check_arrays("int32", *pairs, of_point)
    check_arrays("float64", weight, upper)
    kept, kept_weight, count = cp.empty((n, 4), cp.int32), cp.empty(n), cp.zeros(1, cp.int32)
    _launch("keep_light", n, np.int64(n), *pairs, weight, upper, of_point, kept, kept_weight, count)
    found = int(count[0])
    return kept[:found], kept_weight[:found]


@dataclass(frozen=True)
class Plan:
    """How the fused filter forms the pairs of couples.

    Attributes
    ----------
    of_rows, of_columns : int
        The size of a block of rows and of a tile of columns.
    ends : (K + M,) int64 array
        Where each component's blocks end and, counted on, each couple's items.
    n_items, n_blocks : int
        How many there are.
    formed : int
        How many pairs are formed, with as many as it takes to begin an item.
    """

    of_rows: int
    of_columns: int
    ends: Any
    n_items: int
    n_blocks: int
    formed: int


def plan_items(parts: Any, couples: Any, of_rows: int, of_columns: int) -> Plan:
    """How to form all of their pairs."""
    n, k = couples.first.size, len(parts)
    counts, totals = cp.empty(k + n, cp.int64), cp.zeros(3, cp.int64)
    shape = np.int32(of_rows), np.int32(of_columns)
    _launch(
        "count_items", max(n, k), np.int64(n), np.int32(k), *_two(couples), parts.start, *shape,
        counts, totals,
    )  # fmt: skip
    ends = cp.cumsum(counts)
    n_items, n_blocks, tiles = totals.tolist()
    return Plan(of_rows, of_columns, ends, n_items, n_blocks, tiles * of_columns**2)


def items(parts: Any, couples: Any, plan: Plan) -> tuple[Any, Any]:
    """The points in blocks, and the items as the fused filter takes them, numbered by their couples."""
    filled, found = cp.empty(plan.n_blocks * plan.of_rows, cp.int32), cp.empty((plan.n_items, 4), cp.int32)
    _launch(
        "fill_blocks", filled.size, np.int64(filled.size), np.int32(len(parts)), parts.order, parts.start,
        plan.ends, np.int32(plan.of_rows), filled,
    )  # fmt: skip
    _launch(
        "list_items", plan.n_items, np.int64(plan.n_items), np.int32(len(parts)), np.int32(couples.first.size),
        *_two(couples), parts.start, plan.ends, np.int32(plan.of_rows), np.int32(plan.of_columns), found,
    )  # fmt: skip
    return filled, found


def _two(couples: Any) -> tuple[Any, Any]:
    check_arrays("int32", couples.first, couples.second)
    return couples.first, couples.second
