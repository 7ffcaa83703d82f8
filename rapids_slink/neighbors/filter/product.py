"""What filters have in common, and the first bounds of those by products y_i·y_j; `bounds` has the test."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, same_candidates
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.filter.bounds import UpperBound
from rapids_slink.neighbors.filter.quantize import QuantizedPoints, Scaling
from rapids_slink.neighbors.slices import equal_slices, inverse
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.device import Array, Device, half

#: The least number of points from which each row's first bound is computed.
SEED_POINTS = 2048
#: The same where it takes surrogate distances.
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
        """What the test takes for rows with these bounds."""
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
        """The points at these positions of the order, likewise."""
        return self.quantize(self.points, self.order[positions])


def n_seeds(n: int, k: int) -> int:
    """How many of n points the first bounds come from."""
    return min(n, max(SEED_POINTS, 32 * k))
