"""Filters: low precision rules pairs out, under a bound on its error, and decides nothing else.

    bounds.py     why products lose no neighbour: points centred, scaled and rounded, how far each was moved, principal
                  axes to test, and a trial of a GPU's kernels; the true distances of the proof are
                  `Metric.true_distance_bound`
    cpu.py        tiles of products by a CPU's BLAS, tested in memory
    cuda.py       points quantized, and first bounds, on a GPU; metrics without a product form: sums of float32 terms,
                  and the proof for each metric
    fused/        the same products tested in registers and never written, by a GPU's tensor cores

A `TileFilter` is chosen by the metric, the points and the device. `brute_force.BruteForceSearch` re-ranks what passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import ceil, frexp, inf
from typing import Any

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, same_candidates
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter.bounds import MAX_FEATURES, QuantizedPoints, Scaling, UpperBound, scale_of
from rapids_slink.neighbors.rows import product_form
from rapids_slink.neighbors.task import SearchState, SearchTask, equal_slices, inverse
from rapids_slink.runtime.device import Array, Device, half, share_true

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)
#: About how many rows the centre is computed from.
CENTRE_ROWS = 2**10
#: Squares of shorter rows lose bits to underflow, and no bound holds for what is computed from them.
SHORTEST_ROW = 1e-140
#: The largest exponent of a direct filter's sums, doubled: powers go up to the eighth.
MAX_HALVES = 16
#: The least number of points from which each row's first bound is computed.
SEED_POINTS = 2048
#: The least number of points from which first bounds are computed by surrogate distances.
SEEDS_BY_DISTANCE = 128
#: Where the rows of a k-NN graph have bounds, one in TRIED tries a sample of points. All do if more than the share
#: MIN_LOWERED of these bounds become lower.
TRIED, MIN_LOWERED = 64, 0.05
#: The least number of rows of a chunk.
MIN_ROWS = 64


def choose_filter(
    exact: ExactPoints, device: Device, max_weight: float = inf, listed: int = 0
) -> tuple[TileFilter | None, ExactPoints]:
    """Return the filter for some points and queries, or None, and these in the type that is re-ranked fastest.

    It is None if a filter could prove nothing for these values, if the metric or the GPU has none, or if computing the
    distances takes as little time: on a CPU, for bits and codes. The caller wants no surrogate distance above
    `max_weight`, and lists of `listed` neighbours, or 0 if most lists end before.
    """
    metric, device_kernels = exact.metric, kernels(device)
    if forced().filter == "none":
        return None, exact
    if exact.points.dtype == "uint64" or metric.filter == "direct":
        return device_kernels.filter_of_sums(exact), exact
    if metric.filter in ("bits", "codes", "none"):
        return None, exact
    if not all(serves_products(rows, metric, device) for rows in (exact.points, exact.queries)):
        return None, exact
    points = product_form(exact.points, metric, device)
    queries = points if exact.queries is exact.points else product_form(exact.queries, metric, device)
    scaling = scaling_of(*([points] if queries is points else [points, queries]), device=device)
    within = float(metric.true_distance_bound(np.float64(max_weight), np, *metric.rounding_terms(points.shape[1])))
    chosen: tuple[TileFilter, ExactPoints] = device_kernels.filter_of_products(
        points, queries, exact, scaling, within, listed
    )
    return chosen


def serves_products(rows: Array, metric: Metric, device: Device) -> bool:
    """Return whether products of low precision prove something of such rows; the metric has a product form."""
    d = rows.shape[1]
    if d > MAX_FEATURES or (device.is_gpu and not kernels(device).serves(d)):
        return False
    return not metric.formula.is_of_unit_rows or exact_kernels(device).norms_are_within(rows, SHORTEST_ROW, inf)


def scaling_of(*point_sets: Any, device: Device) -> Scaling:
    """Return the scaling of one or several arrays of points; its centre is that of the first array."""
    centre = kernels(device).centre_of_rows(point_sets[0], max(1, len(point_sets[0]) // CENTRE_ROWS))
    ranges = kernels(device).value_ranges(point_sets, centre)
    deviation = max(one.deviation for one in ranges)
    scale = min(scale_of(deviation, points) for points in point_sets)
    byte_values = all(one.byte_values for one in ranges)
    bits = min(8, max(1, frexp(max(one.largest for one in ranges))[1]))
    return Scaling(centre, scale, byte_values, bits)


def fused_filter(device: Device) -> Any:
    """Return the class of the fused filter; None on a CPU, and on a GPU without its products."""
    return kernels(device).fused_filter()


def filter_formula(metric: Metric) -> tuple[str, int] | None:
    """Return the formula of the sums that a direct filter's kernels form for a metric; None if they cannot.

    The result is one of `metrics.FORMULAS`, and twice the exponent of "minkowski", or 2 for the others.
    """
    if not metric.formula.has_powers:
        return metric.formula, 2
    if metric.p < 1:
        return None
    halves = ceil(2 * metric.p)
    return ("minkowski", halves) if halves <= MAX_HALVES else ("chebyshev", 2)


class TileFilter:
    """A filter that tests rows and points in tiles; subclasses have the methods below `candidates`.

    `points`, (n, d), and `queries`, (m, d), are as the filter reads them, maybe the same array.
    """

    name = ""  # for reports
    exact: ExactPoints
    #: The end of the first band of points, the factor by which each further band extends it, and how many times
    #: `candidate_capacity` a row has room for in a band.
    first_band, growth, room = 2048, 4, 1
    is_of_products = False  # whether it is a `ProductFilter`
    is_symmetric = False  # whether it is an `ImageFilter`, which can test each pair once for both its points
    has_exact_products = False  # whether rounding moves no point
    check: Any = None  # a CPU's `Check` of the pairs that pass; without one they are candidates
    order: Array  # int32, the points that it tests, as they are arranged
    far: Array = None  # int32, the points that it does not test: candidates of every row

    def __init__(self, points: Array, queries: Array, metric: Metric, device: Device) -> None:
        self.points, self.queries, self.metric, self.device = points, queries, metric, device
        self.n_features = points.shape[1]
        self.kernels = kernels(device)
        self.exact_kernels = exact_kernels(device)
        self.quantized_points: Any = None
        self.quantized_queries: Any = None

    def first_order(self) -> Array:
        """Return an order of the points, (n,) int32; each leading part of it is spread evenly over the points."""
        return self.exact_kernels.low_discrepancy_order(len(self.points))

    def arrange(self, order: Array) -> None:
        """Put the points into this order, an (n,) int32 array, and quantize them.

        Rows that are the points themselves are found through its inverse.
        """
        xp = self.device.xp
        self.order = order
        self.quantized_points = self.quantized_queries = None  # released before the next are made
        self.quantized_points = self.quantized_queries = self.quantize(self.points, order)
        self.position = inverse(order, xp)
        if self.queries is not self.points:
            self.quantized_queries = self.quantize(self.queries)
            self.position = xp.arange(self.queries.shape[0], dtype="int32")

    def arrange_parts(self, bound: Array, split: int) -> bool:
        """Arrange the points before `split`, then the others; return False if that cannot be.

        Each part is arranged as `first_order` does. `bound` is (n,) float64: the points' bounds, by which some filters
        sort.
        """
        xp = self.device.xp
        first, second = (self.exact_kernels.low_discrepancy_order(size) for size in (split, bound.size - split))
        self.arrange(xp.concatenate((first, second + xp.int32(split))))
        return True

    def rows_at_once(self, k: int) -> int:
        """Return how many rows a chunk should have."""
        return int(self.kernels.TILE_ROWS)

    def query(self, rows: Array) -> Any:
        """Return the rows in the form that `candidates` takes."""
        return self.quantized_queries.take(self.position[rows])

    def tested_groups(self, groups: Groups, task: SearchTask) -> Groups:
        """Return the groups of some rows, and of the points by id, as `candidates` takes them."""
        return groups

    def by_band(
        self, task: SearchTask, rows: Array, groups: Groups, bound: Array, bands: list[slice], capacity: int | None
    ) -> Iterator[Candidates]:
        """Yield the candidates of some rows from each band of points, then the far points; see `candidates`.

        The caller may tighten the bounds between two bands.
        """
        queries, tested = self.query(rows), self.tested_groups(groups, task)
        for band in bands:
            yield self.candidates(queries, band, bound, tested, task, capacity)
        if self.far is not None and self.far.size:
            yield same_candidates(self.far, rows.size, self.device)

    def candidates(
        self, rows: Any, band: slice, bound: Array, groups: Groups, task: SearchTask, capacity: int | None = None
    ) -> Candidates:
        """Return each row's candidates among the points of a band of the order.

        The rows are those that `query` returned. The caller wants no surrogate distance above a row's `bound`, (m,)
        float64. The groups, (m,) and (n,) int32, are those that `tested_groups` returned: pairs within a group may be
        left out. A row has room for `capacity` candidates, by default for `room` times `candidate_capacity`.
        """
        radius = self.radius(bound, rows)
        candidates: Candidates = self.exact_kernels.new_candidates(bound.size, task.k, capacity)
        for tile in equal_slices(band, self.kernels.TILE_POINTS):
            self.append(rows, self.quantized_points.take(tile), radius, groups, candidates)
        return candidates

    def quantize(self, values: Array, order: Array = None) -> Any:
        """Return the values of `order` (default: all) in the form that the filter's kernels read."""
        raise NotImplementedError

    def radius(self, bound: Array, rows: Any) -> Any:
        """Return the radii that the test takes for rows with these bounds."""
        raise NotImplementedError

    def append(self, rows: Any, points: Any, radius: Any, groups: Groups, into: Candidates) -> None:
        """Append the points of a tile that pass to the rows' candidates."""
        raise NotImplementedError

    def first_bounds(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> bool:
        """Tighten the bounds by a sample of points: infinite ones and, for a k-NN graph, all if many become lower.

        Returns whether all rows have tried the sample.
        """
        all_rows = task.upper is None and task.part_lists is None
        if task.is_knn_graph and task.upper is not None:
            tried = bound[::TRIED].copy()
            self.seed(task, rows[::TRIED].copy(), tried, most_rows)
            all_rows = share_true(tried < bound[::TRIED]) > MIN_LOWERED
        if all_rows:
            self.seed(task, rows, bound, most_rows)
        elif (unbounded := self.exact_kernels.unbounded(bound)).size:
            some = bound[unbounded]
            self.seed(task, rows[unbounded], some, most_rows)
            bound[unbounded] = some
        return all_rows

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by a sample of points, at most `most_rows` at a time.

        The default measures surrogate distances, for a filter whose points are those of `exact`.
        """
        self.seed_by_distances(task, rows, bound, self.order[: max(SEEDS_BY_DISTANCE, 2 * task.k)])

    def seed_by_distances(self, task: SearchTask, rows: Array, bound: Array, sample: Array) -> None:
        """Tighten the rows' bounds by their surrogate distances to the points `sample`; see `seed`."""
        top, groups = self.exact_kernels.empty_lists(rows.size, task.k), (task.groups(rows), task.point_group)
        candidates = same_candidates(sample, rows.size, self.device)
        self.exact_kernels.rerank(self.exact, rows, candidates, groups, bound, top, task.core)

    def search_each_pair(
        self, task: SearchTask, reached: SearchState, exact: ExactPoints, rows_at_once: int, progress: bool | str
    ) -> Array:
        """Find the k-NN graph on a CPU, with each pair tested once: see `cpu.BlasFilter.search_each_pair`."""
        raise NotImplementedError

    def finer(self) -> TileFilter | None:
        """Return a more precise filter for rows that this one leaves unproven; None if there is none."""
        return None


class ProductFilter(TileFilter):
    """The filter of metrics with a product form; points and queries are unit rows for cosine and correlation."""

    is_of_products = True
    #: Whether first bounds are taken from rows and points as they are tested. If not, they are quantized anew.
    seeds_as_tested = False

    def __init__(self, points: Array, queries: Array, metric: Metric, device: Device, scaling: Scaling) -> None:
        super().__init__(points, queries, metric, device)
        self.scaling, self.has_exact_products = scaling, scaling.byte_values

    def quantize(self, values: Array, order: Array = None) -> QuantizedPoints:
        """Return the values of `order` (default: all), centred, scaled and rounded."""
        quantized: QuantizedPoints = self.kernels.quantize(values, self.scaling, order)
        return quantized

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by the converse of the test, for a sample of points.

        Where products are less precise than the converse assumes, surrogate distances tighten them instead.
        """
        if not self.kernels.products_keep_bound():
            super().seed(task, rows, bound, most_rows)
            return
        sample = slice(0, n_seeds(self.points.shape[0], task.k))
        as_tested, order = self.seeds_as_tested, self.order[sample]
        points = self.quantized_points.take(sample) if as_tested else self.quantize(self.points, order)
        upper_bound = UpperBound.of(self.n_features, self.scaling.scale, self.metric)
        tile_rows = max(MIN_ROWS, self.kernels.TILE_ROWS * self.kernels.TILE_POINTS // sample.stop)
        for at in equal_slices(slice(0, rows.size), min(most_rows, tile_rows)):
            queries = self.query(rows[at]) if as_tested else self.quantize(self.queries, rows[at])
            product, more = self.kernels.product(queries, points), {"check": self.check} if self.check else {}
            self.kernels.seed_bounds(product, queries, points, task, upper_bound, bound[at], **more)


def n_seeds(n: int, k: int) -> int:
    """Return how many of n points the first bounds come from."""
    return min(n, max(SEED_POINTS, 32 * k))
