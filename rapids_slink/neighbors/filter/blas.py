"""The product filter on a CPU: tiles of products by BLAS, tested in memory."""

from typing import Any

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates
from rapids_slink.neighbors.filter import cpu
from rapids_slink.neighbors.filter.bounds import filter_radius
from rapids_slink.neighbors.filter.product import ProductFilter, TileFilter
from rapids_slink.neighbors.filter.projection import REST, Projection
from rapids_slink.neighbors.filter.quantize import QuantizedPoints, Scaling
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.runtime.device import Device


class BlasFilter(ProductFilter):
    """Products in float32."""

    def radius(self, bound: Any, rows: QuantizedPoints) -> Any:
        """`bounds.filter_radius` of the rows."""
        return filter_radius(bound, rows.error, self.scaling.scale, self.n_features, self.device.xp, self.metric)

    def append(self, rows: Any, points: Any, radius: Any, groups: Any, ids: Any, into: Candidates) -> None:
        """Append the points of a tile that pass to the rows' candidates."""
        cpu.append_candidates(self.workspace.product(rows, points), rows, points, radius, groups, ids, into)

    def seed_queries(self, rows: Any) -> QuantizedPoints:
        """Some queries, with all their features."""
        quantized: QuantizedPoints = self.query(rows)
        return quantized

    def seed_points(self, positions: slice) -> QuantizedPoints:
        """The points at these positions of the order, likewise."""
        quantized: QuantizedPoints = self.points_at(positions)
        return quantized

    def finer(self) -> TileFilter | None:
        """The same filter with products in float64."""
        finer = Float64Filter(self.points, self.queries, self.metric, self.device, self.scaling)
        finer.order, finer.far = self.order, self.far
        return finer


class Float64Filter(BlasFilter):
    """Products in float64. Nothing is kept in that precision: rows and points are quantized tile by tile."""

    def finer(self) -> None:
        """There is none."""

    def quantize(self, values: Any, order: Any = None) -> QuantizedPoints:
        """The values of `order`, centred and scaled."""
        return cpu.quantize(values, self.scaling, "float64", order)

    def rows_at_once(self, k: int) -> int:
        """How many rows a chunk should have: tiles take the same bytes."""
        return cpu.TILE_ROWS // (8 // 4)

    def query(self, rows: Any) -> QuantizedPoints:
        """The rows, as `candidates` takes them."""
        return self.quantize(self.queries, rows)

    def points_at(self, positions: slice) -> QuantizedPoints:
        """The points at these positions of the order."""
        return self.quantize(self.points, self.order[positions])


class ProjectedFilter(BlasFilter):
    """The filter on the coordinates of a projection."""

    growth = 2  # many pass that are not near, and their distances take longer than another band

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
        parts, unscaled = [], Scaling(xp.zeros(width), 1.0)
        for block in row_blocks(n, values.shape[1]):
            z = self.projection.coordinates(values[block] if order is None else values[order[block]])
            parts.append(cpu.quantize(z, unscaled, cpu.FILTER_DTYPE))
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
        return ProductFilter.quantize(self, self.queries, rows)

    def seed_points(self, positions: slice) -> QuantizedPoints:
        """The points at these positions of the order, likewise."""
        return ProductFilter.quantize(self, self.points, self.order[positions])

    def finer(self) -> TileFilter | None:
        """The filter on all features."""
        finer = BlasFilter(self.points, self.queries, self.metric, self.device, self.scaling)
        finer.arrange(self.order)
        finer.far = self.far
        return finer
