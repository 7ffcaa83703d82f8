"""The common parts of filters, first bounds by products y_i·y_j (`bounds` has the test), and fewer coordinates to test.

Projections are partial distances on principal axes, and the length of the rest. Let P have m nearly orthonormal
columns, z = Pᵀw for w = scale·(x - c) and r = ‖w - P z‖, the length of what P leaves
out. Then ‖w_i - w_j‖² >= ‖z_i - z_j‖² + (r_i - r_j)²: a test on m + 1 coordinates loses no neighbour. (Panorama, arXiv
2510.00566, has partial distances on rotated axes, too.) With PᵀP = 1 + E and ‖E‖ <= δ the right-hand side is at most
(1 + δ + δ²)‖w_i - w_j‖², since 1 - A + A² for A = PPᵀ has no larger eigenvalue: that is `stretch`.

r is computed as √(‖w‖² - ‖z‖²), which is off by at most √(δ + 2(d + 8)ε)·‖w‖ in float64, for |√a - √b| <= √|a - b|.
It is shared out to `REST` coordinates of r / √REST each, less a constant, so that it fits into bytes.

The axes need not be eigenvectors. They come from the orthogonal factor of C(CΩ), C the covariance of a sample and Ω
random: its leading columns span nearly the leading eigenvectors' space, for every m at once.

A CPU checks a pair that passes by t = Σ(x_f - y_f)², summed over all features in the precision of the values, in any
order. A difference, a square and an addition each err by a factor of at most 1 ± ε/2, ε the spacing above 1, so that
t and ‖x - y‖² differ by a factor of at most 1 + (d + 4)ε for dε <= 1/8; underflow may take d times the smallest normal
number from t, and overflow makes it infinite. So a pair within U has t <= (1 + (d + 4)ε)U² or t = ∞, and is kept.
Conversely ‖x - y‖² <= (1 + (d + 4)ε)(t + d·smallest): the first bounds, since coordinates bound from below alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log
from typing import Any

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, same_candidates
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter.bounds import QuantizedPoints, Scaling, UpperBound
from rapids_slink.neighbors.task import BLOCK, SearchTask, equal_slices, inverse
from rapids_slink.runtime.device import Array, Device, half

#: The least number of points from which each row's first bound is computed.
SEED_POINTS = 2048
#: The least number of points where first bounds are by surrogate distances.
SEEDS_BY_DISTANCE = 128
#: Where the rows of a k-NN graph have bounds, one in TRIED tries a sample of points. All do if more than the share
#: MIN_LOWERED of these bounds become lower.
TRIED, MIN_LOWERED = 64, 0.05
#: Rows of a chunk at least.
MIN_ROWS = 64


class TileFilter:
    """A filter that tests rows and points in tiles; subclasses have the methods below `candidates`.

    `points`, (n, d), and `queries`, (m, d), are as the filter reads them, maybe the same array.
    """

    name = ""  # for reports
    exact: ExactPoints
    #: The end of the first band of points, the factor by which each further band extends it, and how many times
    #: `candidate_capacity` a row has room for in a band.
    first_band, growth, room = 2048, 4, 1
    is_symmetric = False  # whether it can test each pair once for both its points
    order: Array  # int32, the points that it tests, as they are arranged
    far: Array = None  # int32, those that it does not: candidates of every row

    def __init__(self, points: Array, queries: Array, metric: Metric, device: Device) -> None:
        self.points, self.queries, self.metric, self.device = points, queries, metric, device
        self.n_features = points.shape[1]
        self.kernels = half(device, __package__)
        self.exact_kernels = exact_kernels(device)
        self.quantized_points: Any = None
        self.quantized_queries: Any = None

    def first_order(self) -> Array:
        """An order of which every leading part is spread evenly over the points."""
        return self.exact_kernels.low_discrepancy_order(len(self.points))

    def arrange(self, order: Array) -> None:
        """Put the points into this order, an (n,) int32 array; the rows' are found through its inverse."""
        xp = self.device.xp
        self.order = order
        self.quantized_points = self.quantized_queries = None  # gone before the next are made
        self.quantized_points = self.quantized_queries = self.quantize(self.points, order)
        self.position = inverse(order, xp)
        if self.queries is not self.points:
            self.quantized_queries = self.quantize(self.queries)
            self.position = xp.arange(self.queries.shape[0], dtype="int32")

    def arrange_parts(self, bound: Array, split: int) -> bool:
        """Arrange the points before `split`, then the others, each part as `first_order` does; False if that cannot be.

        `bound` is (n,) float64, their bounds, by which some filters sort.
        """
        xp = self.device.xp
        first, second = (self.exact_kernels.low_discrepancy_order(size) for size in (split, bound.size - split))
        self.arrange(xp.concatenate((first, second + xp.int32(split))))
        return True

    def rows_at_once(self, k: int) -> int:
        """How many rows a chunk should have."""
        return int(self.kernels.TILE_ROWS)

    def query(self, rows: Array) -> Any:
        """The rows, as `candidates` takes them."""
        return self.quantized_queries.take(self.position[rows])

    def tested_groups(self, groups: Groups, task: SearchTask) -> Groups:
        """The groups of some rows, and of the points by id, as `candidates` takes them."""
        return groups

    def localized(self, rows: Array, bound: Array) -> Iterator[tuple[TileFilter | None, Array]]:
        """Filters as fine as some rows with these bounds need, each with the numbers of those that it serves.

        Each number comes once, at last those that none serves, with None.
        """
        yield None, self.device.xp.arange(rows.size, dtype="int32")

    def by_band(
        self, task: SearchTask, rows: Array, groups: Groups, bound: Array, bands: list[slice], capacity: int | None
    ) -> Iterator[Candidates]:
        """The candidates of some rows from each band of points, and the far points; see `candidates`.

        The bounds may be tightened in between.
        """
        queries, tested = self.query(rows), self.tested_groups(groups, task)
        for band in bands:
            yield self.candidates(queries, band, bound, tested, task, capacity)
        if self.far is not None and self.far.size:
            yield same_candidates(self.far, rows.size, self.device)

    def candidates(
        self, rows: Any, band: slice, bound: Array, groups: Groups, task: SearchTask, capacity: int | None = None
    ) -> Candidates:
        """Each row's candidates among the points of a band of the order.

        The rows are of `query`, and no surrogate distance above their `bound`, (m,) float64, is wanted. The groups,
        (m,) and (n,) int32, are of `tested_groups`: pairs of one group may be left out. A row has room for `capacity`
        candidates, by default `room` times `candidate_capacity`.
        """
        radius = self.radius(bound, rows)
        candidates: Candidates = self.exact_kernels.new_candidates(bound.size, task.k, capacity)
        for tile in equal_slices(band, self.kernels.TILE_POINTS):
            self.append(rows, self.points_at(tile), radius, groups, candidates)
        return candidates

    def points_at(self, positions: slice) -> Any:
        """The points at these positions of the order, as the tests of tiles read them."""
        return self.quantized_points.take(positions)

    def quantize(self, values: Array, order: Array = None) -> Any:
        """The values of `order` (default: all) as the filter's kernels read them."""
        raise NotImplementedError

    def radius(self, bound: Array, rows: Any) -> Any:
        """The radii that the test takes for rows with these bounds."""
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
            all_rows = float((tried < bound[::TRIED]).mean()) > MIN_LOWERED
        if all_rows:
            self.seed(task, rows, bound, most_rows)
        elif (unbounded := self.exact_kernels.flatnonzero(bound == inf)).size:
            some = bound[unbounded]
            self.seed(task, rows[unbounded], some, most_rows)
            bound[unbounded] = some
        return all_rows

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by a sample of points, at most `most_rows` at a time.

        By default by surrogate distances, for a filter that has its points as `exact`.
        """
        self.seed_by_distances(task, rows, bound, self.order[: max(SEEDS_BY_DISTANCE, 2 * task.k)])

    def seed_by_distances(self, task: SearchTask, rows: Array, bound: Array, sample: Array) -> None:
        """`seed` by the surrogate distances to the points `sample`."""
        top, groups = self.exact_kernels.empty_lists(rows.size, task.k), (task.groups(rows), task.point_group)
        candidates = same_candidates(sample, rows.size, self.device)
        self.exact_kernels.rerank(self.exact, rows, candidates, groups, bound, top, task.core)

    def finer(self) -> TileFilter | None:
        """A more precise filter, if there is one, for rows that this one leaves unproven."""
        return None


class ProductFilter(TileFilter):
    """The filter of metrics with a product form; points and queries are unit rows for cosine and correlation."""

    def __init__(self, points: Array, queries: Array, metric: Metric, device: Device, scaling: Scaling) -> None:
        super().__init__(points, queries, metric, device)
        self.scaling = scaling
        self.check: Any = None  # `cpu.Check` of pairs that pass

    def quantize(self, values: Array, order: Array = None) -> QuantizedPoints:
        """The values of `order` (default: all), centred, scaled and rounded."""
        quantized: QuantizedPoints = self.kernels.quantize(values, self.scaling, order)
        return quantized

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by the converse of the test, for a sample of points.

        By surrogate distances if the products are less precise than the converse assumes.
        """
        if not self.kernels.products_keep_bound():
            super().seed(task, rows, bound, most_rows)
            return
        sample = slice(0, n_seeds(self.points.shape[0], task.k))
        points = self.seed_points(sample)
        upper_bound = UpperBound.of(self.n_features, self.scaling.scale, self.metric)
        of_a_tile = max(MIN_ROWS, self.kernels.TILE_ROWS * self.kernels.TILE_POINTS // sample.stop)
        for at in equal_slices(slice(0, rows.size), min(most_rows, of_a_tile)):
            queries = self.seed_queries(rows[at])
            seeds = queries, points, task, upper_bound, bound[at], *([self.check] if self.check else [])
            self.kernels.seed_bounds(self.kernels.product(queries, points), *seeds)

    def seed_queries(self, rows: Array) -> Any:
        """Some queries as first bounds are taken from them."""
        return self.quantize(self.queries, rows)

    def seed_points(self, positions: slice) -> Any:
        """The points at these positions of the order, as first bounds are taken from them."""
        return self.quantize(self.points, self.order[positions])


def n_seeds(n: int, k: int) -> int:
    """How many of n points the first bounds come from."""
    return min(n, max(SEED_POINTS, 32 * k))


#: Coordinates that the length of the rest is shared out to. With them there are a multiple of `STEP`.
REST, STEP = 4, 32
#: Rows of the sample of the covariance, queries, and points among which survivors are counted, of up to `BLOCK` values.
SAMPLE, QUERIES, POINTS = 4096, 128, 2**14
NEIGHBORS = 8  # of each query
#: The numbers of axes that are tried, with the rest, in steps, and their largest share of the features.
STEPS, MAX_SHARE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), 0.8
#: Fewer products cost too little for the choice to pay. Covariances whose eigenvalues are nearly equal, as tr(C)² over
#: d tr(C²) says, have no few principal axes.
MIN_PRODUCTS, MAX_FLATNESS = {"cpu": 2**36, "cuda": 2**46}, 1 / 3


@dataclass(frozen=True)
class FilterCosts:
    """The costs of a filter."""

    product: float  # seconds for a product of one feature
    survivor: float  # seconds for a survivor
    byte: float  # seconds for each byte of its row
    rounding: float  # how far rounding moves a coordinate, relative to their root mean square


@dataclass(frozen=True)
class Projection:
    """The map from points to coordinates."""

    scaling: Scaling
    axes: Array  # (d, m) float64: nearly orthonormal columns
    offset: float  # what is taken from the coordinates of the rest
    departure: float  # δ
    device: Device

    @classmethod
    def of(cls, points: Array, scaling: Scaling, axes: Array, device: Device) -> Projection:
        """The projection onto these axes."""
        xp, (d, m) = device.xp, axes.shape
        departure = float(xp.linalg.norm(axes.T @ axes - xp.eye(m))) + d * m * 2.0**-52
        centred = cls(scaling, axes, 0.0, departure, device)
        rest = centred.coordinates(points[:: _stride(len(points), d, SAMPLE)])[:, -1]
        return cls(scaling, axes, float(xp.median(rest)), departure, device)

    @property
    def stretch(self) -> float:
        """How many times as far apart as two points their coordinates may be."""
        return float((1 + self.departure + self.departure**2) ** 0.5 + 1e-12)

    @property
    def error(self) -> float:
        """How far coordinates may be from exact ones; ‖w‖ is at most 2¹⁵√d, as `Scaling` has it."""
        d = self.axes.shape[0]
        return float((self.departure + 2 * (d + 8) * 2.0**-52) ** 0.5 * 2.0**15 * d**0.5)

    def coordinates(self, values: Array) -> Array:
        """Project points to (n, m + `REST`) float64 coordinates."""
        xp, m = self.device.xp, self.axes.shape[1]
        w = (values - self.scaling.centre) * self.scaling.scale
        z = xp.empty((len(w), m + REST))
        z[:, :m] = w @ self.axes
        rest = xp.sqrt(xp.maximum((w * w).sum(axis=1) - (z[:, :m] ** 2).sum(axis=1), 0))
        z[:, m:] = (rest / REST**0.5 - self.offset)[:, None]
        return z


def worthwhile_projection(
    points: Array, n_queries: int, scaling: Scaling, costs: FilterCosts, device: Device, within: float = inf
) -> Projection | None:
    """The projection with which testing all pairs takes the least time, or None if that is with none.

    Survivors are counted on a sample, the pairs whose partial distance, less what rounding may hide, is within the
    exact distance of a query's `NEIGHBORS`-th nearest; and on a quarter of it, which shows how their number grows. No
    distance above `within` is wanted: for a short one few axes do, whatever the covariance is.
    """
    xp, (n, d) = device.xp, points.shape
    if float(n_queries) * n * d < MIN_PRODUCTS[device.name] or d < 2 * STEP:
        return None
    sample = ((points[:: _stride(n, d, SAMPLE)] - scaling.centre) * scaling.scale).astype("float64")
    sample -= sample.mean(axis=0)
    covariance = sample.T @ sample / len(sample)
    total = float(xp.trace(covariance))
    is_flat = within == inf and total**2 > MAX_FLATNESS * d * float((covariance**2).sum())
    if not 0 < total < inf or is_flat:
        return None
    covariance /= total
    axes = xp.linalg.qr(covariance @ (covariance @ xp.random.default_rng(0).standard_normal((d, d))))[0]
    rows = ((points[:: _stride(n, d, POINTS)] - scaling.centre) * scaling.scale).astype("float32")
    z = rows @ axes.astype("float32")
    queries = z[:: max(1, len(z) // QUERIES)][:QUERIES]
    sampled = _Sample(queries, z, within * scaling.scale, xp)
    best, best_time, itemsize = d, inf, points.dtype.itemsize  # seconds of a query
    for m in [*(end for end in (STEP * s - REST for s in STEPS) if end + REST <= MAX_SHARE * d), d]:
        width = m + REST if m < d else -(-d // STEP) * STEP
        products = n * width * costs.product
        if products >= best_time:
            break
        survivors = sampled.survivors(m, costs.rounding * width**0.5, n)
        time = products + survivors * (costs.survivor + costs.byte * d * itemsize)
        if time < best_time:
            best, best_time = m, time
    return None if best == d else Projection.of(points, scaling, xp.ascontiguousarray(axes[:, :best]), device)


def _stride(n: int, d: int, rows: int) -> int:
    return max(1, n // min(rows, max(1, BLOCK // d)))


class _Sample:
    """Queries and points on all axes; the distances on the first of them grow from call to call."""

    def __init__(self, queries: Array, z: Array, within: float, xp: Any) -> None:
        self.queries, self.z, self.xp = queries, z, xp
        self.norms = [(rows * rows).sum(axis=1) for rows in (queries, z)]
        exact = self._distances(slice(None))
        self.own = xp.abs(exact) <= 1e-6 * (self.norms[0][:, None] + self.norms[1])
        self.partial, self.axes = xp.zeros_like(exact), 0
        exact[self.own] = xp.inf
        self.bounds = []  # each query's, among a quarter of the points and among all
        for some in (slice(None, None, 4), slice(None)):
            nearest = xp.partition(exact[:, some], NEIGHBORS - 1, axis=1)[:, NEIGHBORS - 1]
            self.bounds.append((some, xp.minimum(xp.sqrt(xp.maximum(nearest, 0)), within)))

    def _distances(self, axes: slice) -> Array:
        a, b = self.queries[:, axes], self.z[:, axes]
        return (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * (a @ b.T)

    def survivors(self, m: int, rounding: float, n: int) -> float:
        """How many of n points pass the test on the first m axes, about, over all bands."""
        xp = self.xp
        self.partial += self._distances(slice(self.axes, m))
        self.axes = m
        of_axes = [(rows[:, :m] ** 2).sum(axis=1) for rows in (self.queries, self.z)]
        rest = [xp.sqrt(xp.maximum(norm - part, 0)) for norm, part in zip(self.norms, of_axes, strict=True)]
        distances = self.partial + (rest[0][:, None] - rest[1]) ** 2
        slack = 2 * rounding * float(xp.sqrt(of_axes[1].mean() / m))
        counts = []
        for some, bound in self.bounds:
            within = distances[:, some] <= (bound + slack)[:, None] ** 2
            counts.append(max(1.0, float((within & ~self.own[:, some]).sum(axis=1).mean())))
        share = max(1.0, n / len(self.z))
        growth = max(0.0, log(counts[1] / counts[0], 4))
        return counts[1] * share**growth * (1 + log(share))
