"""The product filter over a whole band of points in one launch."""

from collections.abc import Iterator
from math import inf
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints
from rapids_slink.neighbors.filter.bounds import QuantizedPoints, Scaling, radius_terms, scale_of
from rapids_slink.neighbors.filter.fused.encodings import MAX_FEATURES, Fp16, Int8, Projected, cheapest
from rapids_slink.neighbors.filter.fused.image import TIGHTEN, TIGHTEN_WARPS, ImageFilter, tiles_in_strides
from rapids_slink.neighbors.filter.fused.launch import (
    TILE,
    Destination,
    Products,
    Radii,
    Survivors,
    padded,
)
from rapids_slink.neighbors.filter.fused.precision import fp16_keeps_bound
from rapids_slink.neighbors.filter.fused.surroundings import surroundings
from rapids_slink.neighbors.filter.product import ProductFilter, TileFilter
from rapids_slink.runtime.cuda import WARP, c_struct, check_arrays, launch_blocks, power_of_two, value_option
from rapids_slink.runtime.device import Array, Device

#: Outliers: points whose bounds, of squared distances, exceed `FAR` times the median, if they are at most `MAX_FAR`.
FAR, MAX_FAR = 2**14, 32
#: The share of the rows that may overflow in a slice before the filter gives way to a finer one.
MAX_OVERFLOWED = 1 / 4
ON_AXES, ALL_FEATURES, PRECISE = range(3)  # int8, int8, fp16
#: The first capacity for pairs of points between components.
FIRST_PAIRS = 2**24


class FusedFilter(ImageFilter, ProductFilter):
    """The product filter over a whole band of points in one launch.

    `exact` has the same points as they are re-ranked, and `within` is the largest distance that is wanted. The `tier`
    is `ON_AXES`, which are taken where that takes less time, `ALL_FEATURES` or `PRECISE`.
    """

    def __init__(
        self,
        points: Array,
        queries: Array,
        metric: Metric,
        device: Device,
        scaling: Scaling,
        exact: ExactPoints,
        tier: int = 0,
        within: float = inf,
    ) -> None:
        super().__init__(points, queries, metric, device, scaling)
        self.exact, self.within = exact, within
        self.encoding: Fp16 | Int8
        if tier == PRECISE or self.n_features > MAX_FEATURES:
            self.encoding = Fp16(self.n_features, scaling)
        elif tier == ALL_FEATURES:
            self.encoding = Int8(points, scaling)
        else:
            self.encoding = cheapest(points, len(queries), scaling, device, within)
        self.name = self.encoding.name
        terms = radius_terms(self.n_features, self.encoding.scale * self.encoding.stretch, metric)
        self.radius_struct = c_struct(*terms)

    @staticmethod
    def serves(n_features: int) -> bool:
        """Whether there is an encoding of this number of features for the current GPU."""
        return n_features <= MAX_FEATURES or fp16_keeps_bound()

    @property
    def is_finest(self) -> bool:
        """Whether no filter is finer: fp16 is none on a GPU whose sums are less precise than the test assumes."""
        return self.encoding.is_finest or not (isinstance(self.encoding, Projected) or fp16_keeps_bound())

    def finer(self) -> TileFilter | None:
        """The same filter with all features in int8, then in fp16; None if that is no finer."""
        if self.is_finest:
            return None
        tier = ALL_FEATURES if isinstance(self.encoding, Projected) else PRECISE
        points = self.points, self.queries, self.metric, self.device, self.scaling, self.exact
        finer = FusedFilter(*points, tier, self.within)
        finer.arrange(self.order, self.far)
        return finer

    def localized(self, rows: Array, bound: Array) -> Iterator[tuple[TileFilter | None, Array]]:
        """As of a `TileFilter`: in fp16 about points that rows are near for how far they look."""
        if not fp16_keeps_bound():
            yield from super().localized(rows, bound)
            return
        self.points_image = None  # whose memory another image takes
        reach = self.metric.true_distance_bound(bound, self.n_features, cp)
        for members, centre, radius in surroundings(self.queries, rows, reach):
            if centre is None:
                yield None, members
                continue
            scale = scale_of(2 * radius, self.points)
            scaling = Scaling(self.queries[centre].astype(float), scale, limit=2 * radius * scale)
            arguments = self.points, self.queries, self.metric, self.device, scaling, self.exact
            local = FusedFilter(*arguments, PRECISE, self.within)
            local.arrange(self.order, self.far)
            yield local, members

    def order_by_bound(self, bound: Array, first: int = 0) -> tuple[Array, Array]:
        """An order for `append_both`: tiles of points with similar bounds, in a low-discrepancy order.

        Of similar filter radii, if there is a largest distance. A few points far above most are not in the order, but
        returned, too.
        """
        n, key = bound.size, bound.astype(cp.float32)  # half the digits to sort by
        if self.within < inf:  # then most bounds are equal, but rows of large errors should share tiles
            image = self.encoding.encode(self.points, cp.arange(first, first + n, dtype=cp.int32), padded(n, TILE))
            key = self.radii(bound, image.error, image.error.size).of_row[:n] ** 2
        by_key = cp.argsort(key)
        last = key[by_key[-MAX_FAR - 1 :]].get()
        far = int((last > FAR * float(key[by_key[n // 2]])).sum())
        n -= far if far <= MAX_FAR else 0
        return tiles_in_strides(by_key, n), by_key[n:].astype(cp.int32)

    def is_coarse(self, survivors: Survivors) -> bool:
        """As of an `ImageFilter`."""
        overflowed = int((survivors.count > survivors.capacity).sum())
        return overflowed > MAX_OVERFLOWED * survivors.count.size

    def tighten(self, survivors: Survivors, bound: Array, k: int, last: bool) -> None:
        """Tighten the bounds to what each row's k-th survivor is at most, and drop those that cannot be within them.

        `last`: they are measured as far as that is worthwhile, since no other slice follows.
        """
        image, n = self.image(), self.order.size
        check_arrays("int32", survivors.ids, survivors.count)
        check_arrays(self.encoding.sum_type, survivors.half_sq_dist)
        check_arrays("float64", bound)
        keys = max(4, power_of_two(-(-survivors.capacity // WARP)))  # few sizes, each of which is compiled
        bound_of_distance = c_struct(self.scaling.scale, *self.metric.surrogate_bound_terms(self.n_features))
        int8 = int(self.encoding.sum_type == "int32")
        launch_blocks(
            TIGHTEN, "tighten", (-(-n // TIGHTEN_WARPS),), TIGHTEN_WARPS * WARP,
            np.int32(n), np.int32(k), np.int32(survivors.capacity), self.points, np.int32(self.n_features), self.order,
            image.error, self.tile_error, self.largest_error, self.radius_struct, bound_of_distance,
            np.float32(self.missing), np.bool_(last), bound, survivors.ids, survivors.half_sq_dist, survivors.count,
            options=(f"-DKEYS_PER_LANE={keys}", f"-DINT8={int8}", value_option(self.points.dtype)),
        )  # fmt: skip

    def component_pairs(self, order: Any, items: Any, upper: Any, max_pairs: int) -> Any:
        """The pairs of points whose surrogate distance is at most that of their component pair, and maybe others.

        `order`, int32, has the points in blocks of `BLOCK_ROWS`; in a block one more than once only in a run. `items`,
        (m, 4) int32, each have a block of rows by the number of its first tile; the first tile of points and the one
        after the last, at most `MAX_ITEM_TILES`; and the number of its component pair. `upper`, float64, is the
        surrogate distance by component pair.

        Returns (3, pairs) int32, the points, none for those that fill up a block, and the number of their component
        pair; None if there are more than `max_pairs`.
        """
        arranged = self.order, self.far
        self.arrange(order)
        try:
            thresholds = self.radii(upper, None, padded(upper.size, TILE)).of_row
            pairs = self.pairs_of_items(items, thresholds, min(FIRST_PAIRS, max_pairs))
            if pairs is None and max_pairs > FIRST_PAIRS:
                pairs = self.pairs_of_items(items, thresholds, max_pairs)
            return pairs
        finally:
            self.arrange(*arranged)

    def pairs_of_items(self, items: Any, thresholds: Any, capacity: int, first_row: int = 0) -> Any:
        """As `component_pairs` if there are at most `capacity`, of the points as they are arranged.

        A row's radius is its own error and one of the `thresholds`: that of its component pair or, (tiles, rows), that
        of the tile and the row, whose position is counted from `first_row`.
        """
        image, counts = self.image(), cp.zeros(2, cp.uint64)  # found, and the next work item
        products, radii = Products(image, len(items), 1, (0, 0), self.order.size), Radii(image.error, None)
        pairs = Candidates(cp.empty((3, capacity), cp.int32), counts[:1])
        self._append(products, radii, Destination(pairs, counts[1:], None, self.order, items, thresholds, first_row))
        n_found = int(counts[0])
        return pairs.ids[:, :n_found] if n_found <= capacity else None

    def sum_up_tiles(self, image: QuantizedPoints) -> None:
        """Set the largest error of each tile and of all, and what half a squared distance by this image lacks."""
        super().sum_up_tiles(image)
        self.missing = self.encoding.missing(image.half_norm[: self.order.size])
        self.largest_error = self.tile_error.max()

    def radii(self, bound: Array, error: Array, size: int) -> Radii:
        """`bounds.filter_radius` of rows with these bounds and errors (None: of no error), in one launch."""
        check_arrays("float64", bound)
        radii = Radii(cp.empty(size, cp.float32), cp.empty(size // TILE, cp.float32))
        arguments = np.int64(bound.size), bound, error, self.radius_struct, radii.of_row, radii.of_tile
        launch_blocks(TIGHTEN, "radius_of_rows", (size // TILE,), TILE, *arguments)
        return radii
