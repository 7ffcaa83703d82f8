"""The last components all at once: one look at every couple of them instead of a search a round.

Let w be the vector from the middle of a component A to that of another, B. With

    gap(A, B) = (least x_b·w of B's points - largest x_a·w of A's) / |w|

no point of A is nearer to one of B than their gap, and the two points at which it ends, which *face* each other, are
nearly the closest of the two where components are well apart.

1. The products of all points with all middles give every gap and the points that face each other. Where the gap is
   small, or there is none, some points of both are compared as well.
2. What these weigh makes a tree of the components. A pair of points of A and B that weighs more than the heaviest edge
   on the tree's way from A to B closes a cycle with lighter ones, so it is not in the minimum spanning tree.
3. Few couples have a gap within that bound, and few pairs of their points. These are found by each point's x·w, in
   float64, in large couples; by the fused filter in the others; by x·w in all where fp16 tells a component's points
   too little apart, or there is no fused filter; and if that leaves too many, by the fused filter among those that it
   leaves, or by products of all pairs.
4. With each component taken for one node, the minimum spanning tree of these pairs is exactly what was missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from rapids_slink.device import CPU, Device, to_host
from rapids_slink.metrics import EPSILON, accumulation_bound
from rapids_slink.neighbors.mutual_reachability import mutual_reachability
from rapids_slink.neighbors.operand import BLOCK, EXTRA_FEATURES, blocks, reach_numbers, shrinkage
from rapids_slink.neighbors.tiles import MOST_PAIRS, TileSearch
from rapids_slink.ordering import sorting_rows
from rapids_slink.report import Report
from rapids_slink.spanning_tree.couples.cpu import SAMPLED, heaviest_on_ways, joining, tree_of_all
from rapids_slink.spanning_tree.edges import EdgeList, spanning_forest

MOST_COMPONENTS = 4096  # their couples are listed
COUPLE_BYTES, MIDDLE_BYTES = 128, 24  # of each couple while their gaps are found, and of a middle's feature
MOST_CLOSE = 32  # couples with no gap, or a small one, for each component
LEAST_SAMPLED = 8  # points of a component, to be compared with another's
MANY_COUPLES = 2**18  # more are thinned out by gaps before any points are compared
FEW_EDGES, FEW_COMPONENTS = 2**12, 2**8  # take less time on the host than a GPU's calls do
LEAST_PAIRS = {"cpu": 2**23, "cuda": 2**32}  # of a round of searches: fewer take less time than all of this
SHARE, ROWS_A_COMPONENT = 1 / 16, 48  # of all points, and rows on average, that have to search if components are apart
ROUNDS = 3  # of searches that would be made otherwise
#: A round looks at its rows times all points. So many of these pairs take as long as
SHADOW_PAIRS = 512  # a product in float64,
TEST_PAIRS = 2  # a test of two such,
WEIGHT_PAIRS = 1024  # an exact weight.
SHADOW_BYTES, FOUND_BYTES = 16, 64  # of a product in float64, and of a pair of points that is left, or an item's
FIRST_ROOM, MOST_TESTS = 2**22, 2**31 - 1  # pairs of points
LARGE = 4096  # of two components the product of their sizes over the sum, where shadows take less time than the filter
ROUNDING = 1e-9  # more of a number than float64 loses, by sums over 2²¹ features
UNDERFLOW = 1e-290  # more than products of tiny numbers lose,
ROOT_OF_UNDERFLOW = 1.5e-154  # and than the root of a square does

#: Pairs of points, src and dst, and which couple's they are, or None.
PairsWithin = tuple[Any, Any, Any] | None


@dataclass(frozen=True)
class Components:
    """Points sorted by component, of which there are K.

    Attributes
    ----------
    order : (n,) int32 array
        The points, those of each component together.
    number : (n,) int32 array
        Of which component they are, from 0 to K - 1, in that order.
    start : (K + 1,) int64 array
        Where each begins, and n.
    of_point : (n,) int32 array
        The same number for each point.
    """

    order: Any
    number: Any
    start: Any
    of_point: Any

    @classmethod
    def of(cls, component: Any, k: int, device: Device) -> Components:
        """By any labels, of which there are k."""
        return cls(*device.kernels("spanning_tree.couples").sort_by_component(component, k))

    def __len__(self) -> int:
        return int(self.start.size) - 1

    @cached_property
    def size(self) -> Any:
        """How many points each has."""
        return self.start[1:] - self.start[:-1]

    @property
    def largest_couple(self) -> tuple[int, int]:
        """The sizes of the two largest."""
        *_, second, first = np.sort(np.diff(to_host(self.start))).tolist()
        return second, first


@dataclass(frozen=True)
class Couples:
    """Couples of components, M of them.

    Attributes
    ----------
    first, second : (M,) int32 arrays
    gap : (M,) float64 array
        What their points are apart at least, in the filter's scale; below zero where that is not known.
    facing : (2, M) int32 array
        The points that face each other.
    radius : float
        How far any point is from the centre of the scaling at most.
    """

    first: Any
    second: Any
    gap: Any
    facing: Any
    radius: float


@dataclass(frozen=True)
class Job:
    """What is to be joined, and by what.

    Attributes
    ----------
    core : (n,) float64 array, optional
    parts : Components
    budget : int
        As many pairs of points rounds of searches would look at.
    """

    search: TileSearch
    core: Any
    parts: Components
    budget: int
    device: Device

    def weigh(self, a: Any, b: Any) -> Any:
        """What pairs of points weigh."""
        weight = self.search.kernels.pair_values(self.search.values, a, b, metric=self.search.metric)
        return weight if self.core is None else mutual_reachability(weight, self.core, a, b, self.device.xp)

    def lower(self, bound: Any, src: Any, dst: Any, couple: Any) -> Any:
        """What pairs of points of these couples weigh: the couples' bounds are lowered to the least."""
        weight = self.weigh(src, dst)
        self.search.kernels.lower_groups(bound, couple, weight[:, None])
        return weight

    def take(self, couples: Couples, at: Any) -> Couples:
        """Those at these places."""
        first, second, gap, facing = self.kernels.take(couples, at)
        return Couples(first, second, gap, facing, couples.radius)

    def room(self, bytes_of_each: int) -> int:
        """How many there may be of what takes so many bytes each."""
        return int(min(self.search.room / (4 * bytes_of_each), 2**31 - 1))

    def most_found(self, budget: int) -> int:
        """How many pairs of points may be left."""
        return min(budget // WEIGHT_PAIRS, self.room(FOUND_BYTES), MOST_PAIRS)

    def blocks(self, n: int, size: int) -> list[slice]:
        """So many rows, that take `size` numbers each, a few at a time."""
        return blocks(n, size, min(BLOCK, self.room(FOUND_BYTES)))

    @cached_property
    def samples(self) -> tuple[Any, Any]:
        """Points of each component and their means, the middles, for which any finite vectors would serve."""
        search = self.search
        return self.kernels.sample_components(search.points, self.parts, search.scaling.centre)

    @property
    def kernels(self) -> Any:
        """The device's."""
        return self.device.kernels("spanning_tree.couples")

    @cached_property
    def reach(self) -> tuple[float, ...]:
        """What tells how far pairs of some weight are apart at most, in the filter's scale."""
        return reach_numbers(self.search.features, self.search.scaling.scale * (1 + ROUNDING), self.search.metric)


def pays(search: Any, components: int, rows: int, n: int) -> bool:
    """Whether looking at all couples of so many components is cheaper than rounds of searches of so many of n `rows`.

    Where many points of a component have to search it is apart: those that are near to them are its own.
    """
    if not isinstance(search, TileSearch) or not search.tests_pairs or components > MOST_COMPONENTS:
        return False
    if rows < max(ROWS_A_COMPONENT * components, SHARE * n) or rows * n < LEAST_PAIRS[search.device.name]:
        return False
    taken = COUPLE_BYTES * components**2 / 2 + MIDDLE_BYTES * components * search.features
    return bool(taken <= search.room / 4)


def join_components(
    search: TileSearch, core: Any, component: Any, k: int, rows: int, device: Device, report: Report
) -> tuple[Any, Any, Any] | None:
    """The bridges that make one tree of all k components, or None if too many pairs of points may be among them.

    They are the columns of an edge list, on the device or on the host. `core` is as in a `Task`: each point's, or
    None. So many `rows` would have to search otherwise.
    """
    job = Job(search, core, Components.of(component, k, device), ROUNDS * rows * component.size, device)
    couples = _couples(job)
    if thinned := couples.gap.size > MANY_COUPLES:
        tree = job.take(couples, search.kernels.positions(_tree(couples.first, couples.second, couples.gap, k, device)))
        couples = _within(job, couples, map(to_host, (tree.first, tree.second, job.weigh(*tree.facing))))[0]
    weight = job.weigh(*couples.facing)
    if not _compare_samples(job, couples, weight):
        return None
    few = k <= FEW_COMPONENTS and not thinned
    edges = tree_of_all(to_host(weight), k) if few else _listed_tree(job, couples, weight)
    couples, upper = _within(job, couples, edges)
    del weight
    found = None
    for way in (_by_size, _by_filter, _by_shadows, _by_products):
        found = way(job, couples, upper)
        if found is not None:
            break
    else:
        return None
    weight = job.lower(upper, *found)  # no couple needs any but its lightest
    kept, weight = job.kernels.keep_light(found, weight, upper, job.parts.of_point)
    del found
    report.count("connect", joined_at_once=1, pairs_kept=weight.size)
    where = CPU if weight.size <= FEW_EDGES else device
    xp, weight = where.xp, where.asarray(weight)
    src, dst, first, second = where.asarray(kept).T
    rising = sorting_rows(src, dst, weight, xp)
    first, second = first[rising], second[rising]
    joins = joining(first, second, k) if where is CPU else _tree(first, second, weight[rising], k, where)
    taken = rising[joins]
    if taken.size != k - 1:
        raise RuntimeError("some components are not joined by any pair of points: please report this")
    src, dst, weight = src[taken], dst[taken], weight[taken]
    return xp.minimum(src, dst), xp.maximum(src, dst), weight


def _couples(job: Job) -> Couples:
    """All couples.

    The filter's operands are points y that were moved by at most e, and a product is off by at most η|y||m|, where
    the middle m is one too. Two products are taken from two others.
    """
    search, parts, kernels = job.search, job.parts, job.kernels
    operand = search.kernels.pack(job.samples[1], search.scaling, search.kernels.FILTER_DTYPE)
    supports = kernels.new_supports(len(parts))
    n, largest = parts.order.size, job.device.xp.zeros(2, "float32")
    kernels.raise_largest(largest, operand.half_norm)  # a middle is what it was rounded to
    products = search.kernels.ROWS * search.kernels.COLUMNS  # as in a tile of a search
    at_once = max(1, min(n, products // len(parts), job.room(8 * (len(parts) + search.features) + 64)))
    for start in range(0, n, at_once):
        at = slice(start, start + at_once)
        rows = search.packed(parts.order[at])
        kernels.offer_supports(search.space.product(rows, operand), parts.number[at], start, supports)
        kernels.raise_largest(largest, rows.half_norm, rows.error)
    y = operand.y.astype("float64")
    inner = y @ y.T
    half_norm, error = largest.tolist()
    width = operand.y.shape[1] + EXTRA_FEATURES
    square = 2 * half_norm / shrinkage(width, "float32") * (1 + 2 * EPSILON["float32"])  # of the longest y
    moved = 2**0.5 * error
    lost = 4 * (accumulation_bound(width, "float32") + 2 * EPSILON["float32"]) * square
    first, second, gap, facing = kernels.couples(supports, parts.order, inner, lost, ROUNDING * square, 2 * moved)
    return Couples(first, second, gap, facing, (square**0.5 + moved) / search.scaling.scale)


def _tree(first: Any, second: Any, weight: Any, k: int, device: Device) -> Any:
    """Whether each of these edges is in the minimum spanning tree of k components; ties go to the earlier."""
    return spanning_forest(EdgeList(first, second, weight, k), device)[0]


def _listed_tree(job: Job, couples: Couples, weight: Any) -> tuple[np.ndarray, ...]:
    """The edges of a minimum spanning tree of the components, on the host."""
    k = len(job.parts)
    taken = _tree(couples.first, couples.second, weight, k, job.device)
    edges: tuple[np.ndarray, ...] = job.kernels.list_tree(taken, couples, weight, k - 1)
    return edges


def _compare_samples(job: Job, couples: Couples, weight: Any) -> bool:
    """Lower what couples of small gaps weigh to the least of their sampled points; False if there are too many."""
    close = job.kernels.close(couples, weight, job.reach)
    width = min(SAMPLED, int((job.budget / WEIGHT_PAIRS / max(1, close.size)) ** 0.5))
    if close.size > MOST_CLOSE * len(job.parts) or width < LEAST_SAMPLED:
        return False
    for at in job.blocks(close.size, SAMPLED**2):
        job.lower(weight, *job.kernels.pair_samples(job.samples[0], couples, close[at], -(-SAMPLED // width)))
    return True


def _within(job: Job, couples: Couples, tree: Iterable[np.ndarray]) -> tuple[Couples, Any]:
    """The couples that a tree of these edges does not rule out, and what pairs of each may weigh at most."""
    at, upper = job.kernels.within(couples, job.device.asarray(heaviest_on_ways(*tree)), job.reach)
    return job.take(couples, at), upper


def _by_size(job: Job, couples: Couples, upper: Any) -> PairsWithin:
    """The pairs of points that may weigh at most `upper` of their couple: by shadows where that is faster.

    These are large couples with a gap; the others are the fused filter's. None if there are none such, or too many
    pairs are left.
    """
    if job.search.filter is None:
        return None
    smaller, larger = job.parts.largest_couple
    if smaller * larger <= LARGE * (smaller + larger):
        return None
    a, b = job.parts.size[couples.first], job.parts.size[couples.second]
    large = (a * b > LARGE * (a + b)) & (couples.gap > 0)
    at = job.search.kernels.positions(large)
    if not at.size:
        return None
    groups: list[tuple[Any, Any]] = [(at, partial(_by_shadows, budget=int((a * b)[at].sum()) // 4))]
    if at.size < upper.size:
        groups.append((job.search.kernels.positions(~large), _by_filter))
    parts = []
    for at, way in groups:
        found = way(job, job.take(couples, at), upper[at])
        if found is None:
            return None
        parts.append((*found[:2], at[found[2]]))
    src, dst, couple = map(job.device.xp.concatenate, zip(*parts, strict=True))
    return src, dst, couple


def _by_filter(job: Job, couples: Couples, upper: Any) -> PairsWithin:
    """The same by the fused filter; None if there is none.

    Each component fills blocks of rows of its own, with its last point again and again in the end, and so a tile has
    one couple's pairs.
    """
    search, fused = job.search, job.search.filter
    if fused is None:
        return None
    kernels = job.kernels
    plan = kernels.plan_items(job.parts, couples, fused.BLOCK, fused.TILE)
    if plan.formed > job.budget or plan.n_items > job.room(FOUND_BYTES):
        return None
    if not search.packs(plan.n_blocks * fused.BLOCK):
        return None
    if not plan.n_items:  # of each couple one has no points
        src, dst, couple = job.device.xp.empty((3, 0), "int32")
        return src, dst, couple
    order, given = kernels.items(job.parts, couples, plan)
    return search.pairs_of(order, given, upper, job.most_found(job.budget))


def _by_shadows(job: Job, couples: Couples, upper: Any, budget: int | None = None) -> PairsWithin:
    """The same by each point's shadow (x - o)·w, with the centre o of the scaling and w between its couple's middles.

    It is off by less than (d + 4) of float64's roundings, relative to |x - o||w|. The budget for that is the job's, or
    less. If too many pairs are left, the fused filter looks at those of the points that are left.
    """
    search, parts, middles, xp = job.search, job.parts, job.samples[1], job.device.xp
    kernels, budget = job.kernels, job.budget if budget is None else min(job.budget, budget)
    end = xp.cumsum(parts.size[couples.first] + parts.size[couples.second])
    n_shadows, d = int(end[-1]), middles.shape[1]
    if SHADOW_PAIRS * n_shadows > budget or n_shadows > job.room(SHADOW_BYTES):
        return None
    length = xp.empty_like(upper)
    for at in job.blocks(length.size, d):
        between = middles[couples.second[at]] - middles[couples.first[at]]
        length[at] = xp.sqrt((between**2).sum(axis=1)) + d**0.5 * ROOT_OF_UNDERFLOW
    off = 4 * (d + 8) * EPSILON["float64"] * couples.radius
    far = (search.metric.distance_above(upper, search.features, xp) * (1 + ROUNDING) + off) * length + UNDERFLOW
    shadow = kernels.shadows(search.points, search.scaling.centre, parts, middles, couples, end)
    near, count = kernels.facing_points(shadow, parts, couples, end, far, upper, job.core)
    found = _facing_pairs(job, couples, shadow, end, far, near, count, budget)
    del shadow
    if found is not None or search.filter is None or not search.packs(int(count.sum())):
        return found
    sides = 2 * xp.arange(end.size, dtype="int32")
    facing = replace(couples, first=sides, second=sides + 1)
    return _by_filter(replace(job, parts=_facing_parts(parts, couples, end, near, count, xp)), facing, upper)


def _facing_pairs(
    job: Job, couples: Couples, shadow: Any, end: Any, far: Any, near: Any, count: Any, budget: int
) -> PairsWithin:
    """The pairs of points that `facing_points` has kept whose shadows are near; None if they are too many."""
    n_tests, most = int((count[:, 0].astype("int64") * count[:, 1]).sum()), job.most_found(budget)
    if TEST_PAIRS * n_tests > budget or n_tests > MOST_TESTS:
        return None
    capacity = min(n_tests, FIRST_ROOM, most)
    while capacity <= most:
        found, n_found = job.kernels.facing_pairs(shadow, near, count, job.parts, couples, end, far, capacity)
        if n_found <= capacity:
            src, dst, couple = found[:, :n_found]
            return src, dst, couple
        capacity = n_found
    return None


def _facing_parts(parts: Components, couples: Couples, end: Any, near: Any, count: Any, xp: Any) -> Components:
    """The points of the first couple's first component that `facing_points` has kept, its second's, and so on.

    A point may be in several of these, and only their `order` and `start` are known.
    """
    size_a, size_b = parts.size[couples.first], parts.size[couples.second]
    begin = xp.stack([end - size_a - size_b, end - size_b], axis=1).ravel()
    component = xp.stack([couples.first, couples.second], axis=1).ravel()
    start = xp.zeros(count.size + 1, "int64")
    start[1:] = xp.cumsum(count, dtype="int64")
    place = xp.arange(int(start[-1]))
    side = xp.searchsorted(start, place, side="right") - 1
    order = parts.order[parts.start[component[side]] + near[begin[side] + place - start[side]]]
    return Components(order, None, start, None)


def _by_products(job: Job, couples: Couples, upper: Any) -> PairsWithin:
    """The same by all pairs' products; not where they would be written while the fused filter is faster in rounds."""
    if job.search.filter is not None or job.search.tested_pairs(job.parts.of_point) > job.budget:
        return None
    n, xp, of_point = len(job.parts), job.device.xp, job.parts.of_point
    table = xp.zeros((n, n))  # what is left out is apart, and no pair of it weighs so little
    number = xp.full((n, n), -1, "int32")
    for ends in ((couples.first, couples.second), (couples.second, couples.first)):
        table[ends], number[ends] = upper, xp.arange(upper.size, dtype="int32")
    pairs = job.search.pairs_below(of_point, table, job.core)
    if pairs is None:
        return None
    src, dst = pairs
    couple = number[of_point[src], of_point[dst]]
    known = job.search.kernels.positions(couple >= 0)
    return src[known], dst[known], couple[known]
