"""The product filter: tiles of products y_i·y_j, tested as `bounds` says, by BLAS or cuBLAS."""

from __future__ import annotations

from typing import Any

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, same_candidates
from rapids_slink.neighbors.exact.kernels import kernels as exact_kernels
from rapids_slink.neighbors.filter.bounds import UpperBound, filter_radius
from rapids_slink.neighbors.filter.kernels import kernels as filter_kernels
from rapids_slink.neighbors.filter.projection import REST, Projection
from rapids_slink.neighbors.filter.quantize import QuantizedPoints, Scaling
from rapids_slink.neighbors.slices import equal_slices, inverse, row_blocks
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.device import Device

#: The least number of points from which each row's first bound is computed.
SEED_POINTS = 2048
#: Rows of a chunk at least.
MIN_ROWS = 64


class TileFilter:
    """A filter that tests rows and points in tiles; subclasses have the methods below `candidates`.

    Parameters
    ----------
    points, queries : (n, d) and (m, d) arrays
        As the filter reads them; maybe the same array.
    metric : Metric
    device : Device

    Attributes
    ----------
    name : str
        For reports.
    first_band, growth : int
        The end of the first band of points, and the factor by which each further band extends it.
    is_symmetric : bool
        Whether it can test each pair once for both its points.
    order : int32 array
        The points that it tests, as they are arranged.
    far : int32 array, optional
        Those that it does not: candidates of every row.
    """

    name = ""
    exact: ExactPoints
    first_band, growth = 2048, 4
    is_symmetric = False

    def __init__(self, points: Any, queries: Any, metric: Metric, device: Device) -> None:
        self.points, self.queries, self.metric, self.device = points, queries, metric, device
        self.n_features = points.shape[1]
        self.kernels = filter_kernels(device)
        self.exact_kernels = exact_kernels(device)
        self.quantized_points: Any = None
        self.quantized_queries: Any = None
        self.far: Any = None

    def first_order(self) -> Any:
        """An order of which every leading part is spread evenly over the points."""
        return self.exact_kernels.low_discrepancy_order(len(self.points))

    def arrange(self, order: Any) -> None:
        """Put the points into this order, an (n,) int32 array; the rows' are found through its inverse."""
        xp = self.device.xp
        self.order = order
        self.quantized_points = self.quantized_queries = None  # gone before the next are made
        self.quantized_points = self.quantized_queries = self.quantize(self.points, order)
        self.position = inverse(order, xp)
        if self.queries is not self.points:
            self.quantized_queries = self.quantize(self.queries)
            self.position = xp.arange(self.queries.shape[0], dtype="int32")

    def rows_at_once(self, k: int) -> int:
        """How many rows a chunk should have."""
        return int(self.kernels.TILE_ROWS)

    def query(self, rows: Any) -> Any:
        """The rows, as `candidates` takes them."""
        return self.quantized_queries.take(self.position[rows])

    def candidates(
        self, rows: Any, band: slice, bound: Any, groups: tuple[Any, Any], task: SearchTask, capacity: int | None = None
    ) -> Candidates:
        """Each row's candidates among the points of a band of the order.

        Parameters
        ----------
        rows
            Of `query`.
        band : slice
        bound : (m,) float64 array
            No surrogate distance above it is wanted.
        groups : (m,) and (n,) int32 arrays
            The rows', and by id: pairs of one group may be left out.
        task : SearchTask
        capacity : int, optional
            How many a row has room for; by default `candidate_capacity`.
        """
        radius = self.radius(bound, rows)
        found: Candidates = self.exact_kernels.new_candidates(bound.size, task.k, capacity)
        for tile in equal_slices(band, self.kernels.TILE_POINTS):
            self.append(rows, self.points_at(tile), radius, groups, self.order[tile], found)
        return found

    def points_at(self, positions: slice) -> Any:
        """The points at these positions of the order, as the tests of tiles read them."""
        return self.quantized_points.take(positions)

    def quantize(self, values: Any, order: Any = None) -> Any:
        """The values of `order` (default: all) as the filter's kernels read them."""
        raise NotImplementedError

    def radius(self, bound: Any, rows: Any) -> Any:
        """What the test takes for rows with these bounds."""
        raise NotImplementedError

    def append(self, rows: Any, points: Any, radius: Any, groups: Any, ids: Any, into: Candidates) -> None:
        """Append the points of a tile that pass to the rows' candidates."""
        raise NotImplementedError

    def seed(self, task: SearchTask, rows: Any, bound: Any, most_rows: int) -> None:
        """Tighten the rows' infinite bounds by a sample of points, at most `most_rows` at a time."""
        raise NotImplementedError

    def seed_by_distances(self, task: SearchTask, rows: Any, bound: Any, sample: Any) -> None:
        """`seed` by the surrogate distances to the points `sample`, for a filter that has its points as `exact`."""
        top, groups = self.exact_kernels.empty_lists(rows.size, task.k), (task.groups(rows), task.point_group)
        candidates = same_candidates(sample, rows.size, self.device)
        self.exact_kernels.rerank(self.exact, rows, candidates, groups, bound, top, task.core)

    def for_unproven(self) -> TileFilter | None:
        """The first filter for rows that this one has left unproven: itself, with the bounds that they have reached."""
        return self

    def finer(self) -> TileFilter | None:
        """A more precise filter, if there is one, for rows that this one leaves unproven."""
        return None


class ProductFilter(TileFilter):
    """The filter of metrics with a product form.

    Parameters
    ----------
    points, queries, metric, device
        As of a `TileFilter`; unit rows for cosine and correlation.
    scaling : Scaling
    """

    def __init__(self, points: Any, queries: Any, metric: Metric, device: Device, scaling: Scaling) -> None:
        super().__init__(points, queries, metric, device)
        self.scaling = scaling
        self.name = self.name or self.kernels.FILTER_NAME
        self.workspace = self.kernels.Workspace()

    def quantize(self, values: Any, order: Any = None) -> QuantizedPoints:
        """The values of `order` (default: all), centred, scaled and rounded."""
        made: QuantizedPoints = self.kernels.quantize(values, self.scaling, self.kernels.FILTER_DTYPE, order)
        return made

    def radius(self, bound: Any, rows: QuantizedPoints) -> Any:
        """`bounds.filter_radius` of the rows."""
        return filter_radius(bound, rows.error, self.scaling.scale, self.n_features, self.device.xp, self.metric)

    def append(self, rows: Any, points: Any, radius: Any, groups: Any, ids: Any, into: Candidates) -> None:
        """Append the points of a tile that pass to the rows' candidates."""
        product = self.workspace.product(rows, points)
        self.kernels.append_candidates(product, rows, points, radius, groups, ids, into)

    def seed(self, task: SearchTask, rows: Any, bound: Any, most_rows: int) -> None:
        """Tighten the rows' infinite bounds by the converse of the test, for a sample of points."""
        sample = slice(0, n_seeds(self.points.shape[0], task.k))
        points, ids, group = self.seed_points(sample), self.order[sample], task.groups(rows)
        upper_bound = UpperBound.of(self.n_features, self.scaling.scale, self.metric)
        of_a_tile = max(MIN_ROWS, self.kernels.TILE_ROWS * self.kernels.TILE_POINTS // sample.stop)
        for at in equal_slices(slice(0, rows.size), min(most_rows, of_a_tile)):
            queries = self.seed_queries(rows[at])
            product = self.workspace.product(queries, points)
            groups = group[at], task.point_group
            core = None if task.core is None else (rows[at], task.core)
            self.kernels.seed_bounds(product, queries, points, groups, ids, task.k, upper_bound, bound[at], core)

    def seed_queries(self, rows: Any) -> QuantizedPoints:
        """Some queries, with all their features."""
        quantized: QuantizedPoints = self.query(rows)
        return quantized

    def seed_points(self, positions: slice) -> QuantizedPoints:
        """The points at these positions of the order, likewise."""
        quantized: QuantizedPoints = self.points_at(positions)
        return quantized

    def finer(self) -> TileFilter | None:
        """The same filter with products in float64, if the device's keep the bound."""
        if not self.kernels.keeps_accumulation_bound("float64"):
            return None
        made = Float64Filter(self.points, self.queries, self.metric, self.device, self.scaling)
        made.order, made.far = self.order, self.far
        return made


class Float64Filter(ProductFilter):
    """Products in float64. Nothing is kept in that precision: rows and points are quantized tile by tile."""

    def finer(self) -> None:
        """There is none."""

    def quantize(self, values: Any, order: Any = None) -> QuantizedPoints:
        """The values of `order`, centred and scaled."""
        made: QuantizedPoints = self.kernels.quantize(values, self.scaling, "float64", order)
        return made

    def rows_at_once(self, k: int) -> int:
        """How many rows a chunk should have: tiles take the same bytes."""
        return int(self.kernels.TILE_ROWS) // (8 // 4)

    def query(self, rows: Any) -> QuantizedPoints:
        """The rows, as `candidates` takes them."""
        return self.quantize(self.queries, rows)

    def points_at(self, positions: slice) -> QuantizedPoints:
        """The points at these positions of the order."""
        return self.quantize(self.points, self.order[positions])


class ProjectedFilter(ProductFilter):
    """The filter on the coordinates of a projection."""

    def __init__(
        self, points: Any, queries: Any, metric: Metric, device: Device, scaling: Scaling, projection: Projection
    ) -> None:
        super().__init__(points, queries, metric, device, scaling)
        self.projection = projection
        d, width = projection.axes.shape
        self.name = f"{self.name}, {width + REST} coordinates for {d} features"

    def quantize(self, values: Any, order: Any = None) -> QuantizedPoints:
        """The coordinates of the values of `order` (default: all), rounded."""
        xp, n = self.device.xp, len(values) if order is None else order.size
        width = self.projection.axes.shape[1] + REST
        dtype = self.kernels.FILTER_DTYPE
        parts, unscaled = [], Scaling(xp.zeros(width), 1.0)
        for block in row_blocks(n, values.shape[1]):
            z = self.projection.coordinates(values[block] if order is None else values[order[block]])
            parts.append(self.kernels.quantize(z, unscaled, dtype))
        y, half_norm, error = (
            xp.concatenate([getattr(part, name) for part in parts]) for name in ("y", "half_norm", "error")
        )
        return QuantizedPoints(y, half_norm, error + error.dtype.type(self.projection.error))

    def radius(self, bound: Any, rows: QuantizedPoints) -> Any:
        """`bounds.filter_radius` of the rows."""
        scale = self.scaling.scale * self.projection.stretch
        return filter_radius(bound, rows.error, scale, self.n_features, self.device.xp, self.metric)

    def seed_queries(self, rows: Any) -> QuantizedPoints:
        """Some queries, with all their features: a partial distance bounds no distance from above."""
        return super().quantize(self.queries, rows)

    def seed_points(self, positions: slice) -> QuantizedPoints:
        """The points at these positions of the order, likewise."""
        return super().quantize(self.points, self.order[positions])

    def finer(self) -> TileFilter | None:
        """The filter on all features."""
        finer = ProductFilter(self.points, self.queries, self.metric, self.device, self.scaling)
        finer.arrange(self.order)
        finer.far = self.far
        return finer


def n_seeds(n: int, k: int) -> int:
    """How many of n points the first bounds come from."""
    return min(n, max(SEED_POINTS, 32 * k))
