"""The product filter over a whole band of points in one launch."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, candidate_capacity
from rapids_slink.neighbors.filter.bounds import radius_terms
from rapids_slink.neighbors.filter.cuda import WARP
from rapids_slink.neighbors.filter.fused.encodings import MAX_FEATURES, Fp16, Int8, Projected, cheapest
from rapids_slink.neighbors.filter.fused.launch import (
    BLOCK_ROWS,
    TILE,
    Destination,
    Products,
    Radii,
    Survivors,
    append_survivors,
    item_splits,
    padded,
)
from rapids_slink.neighbors.filter.product import ProductFilter, TileFilter
from rapids_slink.neighbors.filter.quantize import QuantizedPoints, Scaling
from rapids_slink.neighbors.slices import geometric_slices, golden_stride
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.cuda import c_struct, check_arrays, launch, launch_blocks, power_of_two, value_option
from rapids_slink.runtime.device import Array, Device

TIGHTEN = "neighbors/filter/fused/tighten.cu"
TIGHTEN_WARPS = 2  # a block
#: Outliers: points whose bounds, of squared distances, exceed `FAR` times the median, if they are at most `MAX_FAR`.
FAR, MAX_FAR = 2**14, 32
#: The share of the rows that may overflow in a slice before the filter gives way to a finer one.
MAX_OVERFLOWED = 1 / 4
ON_AXES, ALL_FEATURES, PRECISE = range(3)  # int8, int8, fp16
#: The first and the largest capacity for pairs of points between components.
FIRST_PAIRS, MAX_PAIRS = 2**20, 2**26


class FusedFilter(ProductFilter):
    """The product filter over a whole band of points in one launch.

    Parameters
    ----------
    points, queries, metric, device, scaling
        As of a `ProductFilter`.
    exact : ExactPoints
        The same as they are re-ranked.
    tier : int
        `ON_AXES` where that takes less time, `ALL_FEATURES` or `PRECISE`.
    """

    is_symmetric = True
    #: A chunk has few rows, and a band brings each about 7k survivors; `candidate_capacity` says how many there is room
    #: for.
    first_band, growth = 2**14, 8
    #: In blocks of rows. There are many rows: a launch costs little, a survivor much.
    first_offsets, offset_growth = 4, 1.5
    max_rows = 2**18  # a launch: enough blocks to fill the GPU evenly
    max_candidates = 2**26  # a launch

    def __init__(
        self,
        points: Array,
        queries: Array,
        metric: Metric,
        device: Device,
        scaling: Scaling,
        exact: ExactPoints,
        tier: int = 0,
    ) -> None:
        super().__init__(points, queries, metric, device, scaling)
        self.exact = exact
        self.encoding: Fp16 | Int8
        if tier == PRECISE or self.n_features > MAX_FEATURES:
            self.encoding = Fp16(self.n_features, scaling)
        elif tier == ALL_FEATURES:
            self.encoding = Int8(points, scaling)
        else:
            self.encoding = cheapest(points, len(queries), scaling, device)
        self.name = self.encoding.name
        terms = radius_terms(self.n_features, self.encoding.scale * self.encoding.stretch, metric)
        self.radius_struct = c_struct(*terms)

    @staticmethod
    def row_bytes(d: int) -> int:
        """What a row of d features takes in the image of the larger type, and beside it."""
        return 128 * -(-d // 64) + 8

    @staticmethod
    def symmetric_bytes(n: int, k: int) -> int:
        """Bytes of a symmetric pass, in addition to the result: all rows' bounds, survivors and lists."""
        return n * (24 + 12 * k + 8 * survivor_capacity(k))

    def finer(self) -> TileFilter | None:
        """The same filter with all features in int8, then in fp16."""
        if isinstance(self.encoding, Fp16):
            return None
        tier = ALL_FEATURES if isinstance(self.encoding, Projected) else PRECISE
        finer = FusedFilter(self.points, self.queries, self.metric, self.device, self.scaling, self.exact, tier)
        finer.arrange(self.order, self.far)
        return finer

    def arrange(self, order: Any, far: Any = None) -> None:
        """Put the points into this order, except some far ones; their image is made when it is first needed."""
        self.order, self.far = order, far
        self.points_image: Any = None

    def rows_at_once(self, k: int) -> int:
        """How many rows a launch should have."""
        by_candidates = self.max_candidates // candidate_capacity(k) // BLOCK_ROWS * BLOCK_ROWS
        return max(BLOCK_ROWS, min(self.max_rows, by_candidates))

    def query(self, rows: Any) -> QuantizedPoints:
        """The image of the rows."""
        return self.encoding.encode(self.queries, rows, padded(rows.size, BLOCK_ROWS))

    def candidates(
        self, rows: Any, band: slice, bound: Any, groups: tuple[Any, Any], task: SearchTask, capacity: int | None = None
    ) -> Candidates:
        """As of a `TileFilter`, in one launch.

        Where every row is its own group, one more candidate is cheaper than to look up the group of every survivor.
        """
        if band.start % TILE:
            raise ValueError(f"a band starts at a multiple of {TILE} points, got {band.start}")
        row_group, point_group = (groups[0], groups[1][self.order]) if task.per_group_minimum else (None, None)
        check_arrays("int32", row_group, point_group)
        m = bound.size
        counts = cp.zeros(m + 1, cp.int32)  # and the next work item
        found = Candidates(cp.empty((m, capacity or candidate_capacity(task.k)), cp.int32), counts[:m], self.order)
        blocks, tiles = rows.half_norm.size // BLOCK_ROWS, (band.start // TILE, -(-band.stop // TILE))
        last = min(band.stop, self.order.size)
        products = Products(rows, blocks, item_splits(blocks, tiles[1] - tiles[0]), tiles, last)
        radii = self.radii(bound, rows.error, rows.half_norm.size)
        self._append(products, radii, Destination(found, counts[m:], row_group, point_group))
        return found

    # -------------------------------------------------------------------------------------- the symmetric pass

    def order_by_bound(self, bound: Any) -> tuple[Any, Any]:
        """An order for `append_both`: tiles of points with similar bounds, in a low-discrepancy order.

        A few points whose bounds are far above most are not in it, but returned, too.
        """
        by_bound = cp.argsort(bound.astype(cp.float32))  # half the digits to sort by
        last = bound[by_bound[-MAX_FAR - 1 :]].get()
        far = int((last > FAR * float(bound[by_bound[bound.size // 2]])).sum())
        n = bound.size - (far if far <= MAX_FAR else 0)
        order = cp.empty(n, cp.int32)
        launch(TIGHTEN, "stride_tiles", n, np.int64(n), np.int64(golden_stride(n // TILE)), by_bound, order)
        return order, by_bound[n:].astype(cp.int32)

    def arrange_parts(self, bound: Any, split: int) -> bool:
        """Arrange each of two parts by its bounds, unless a part has far points or the first is no whole blocks."""
        if split % BLOCK_ROWS:
            return False
        (first, far), (second, more_far) = (self.order_by_bound(part) for part in (bound[:split], bound[split:]))
        if far.size or more_far.size:
            return False
        self.arrange(cp.concatenate((first, second + np.int32(split))), far)
        return True

    def symmetric_slices(self, split: int = 0) -> list[slice]:
        """Ranges of offsets, in blocks of rows, that together form every pair of blocks once; see `append_both`."""
        blocks = self.image().half_norm.size // BLOCK_ROWS - split // BLOCK_ROWS
        last = blocks if split else blocks // 2 + 1
        return geometric_slices(min(self.first_offsets, max(1, blocks // 16)), last, self.offset_growth)

    def is_coarse(self, survivors: Survivors) -> bool:
        """Whether too many rows have more survivors than there is room for: a finer encoding takes less time."""
        if self.encoding.sum_type != "int32":
            return False
        overflowed = int((survivors.count > survivors.capacity).sum())
        return overflowed > MAX_OVERFLOWED * survivors.count.size

    def empty_survivors(self, k: int) -> Survivors:
        """Buffers for `append_both`: a slice brings a row about k, as many stay, and the rest is spare."""
        n = self.order.size
        shape = n, survivor_capacity(k)
        ids, count = cp.empty(shape, cp.int32), cp.zeros(n, cp.int32)
        return Survivors(ids, count, self.order, cp.empty(shape, self.encoding.sum_type))

    def append_both(self, offsets: slice, bound: Any, into: Survivors, split: int = 0) -> None:
        """Append to the candidates of every point, taken as a row in that order, those of the blocks at these offsets.

        Offset s means the pairs of each block of rows with the s-th block after it, modulo their number: what passes
        for either of the two points is appended for that one. If `split` is given, the blocks before that point meet
        only those from it on, counted from the first of these.
        """
        image = self.image()
        all_tiles, tiles = image.half_norm.size // TILE, (2 * offsets.start, 2 * offsets.stop)
        among = split // TILE, all_tiles - split // TILE
        blocks = (split or image.half_norm.size) // BLOCK_ROWS
        splits = item_splits(blocks, tiles[1] - tiles[0])
        products = Products(image, blocks, splits, tiles, self.order.size, among)
        radii = self.radii(bound, image.error, image.half_norm.size)
        self._append(products, radii, Destination(into, cp.zeros(1, cp.int32)))

    def tighten(self, survivors: Survivors, bound: Array, k: int) -> None:
        """Tighten the bounds to what each row's k-th survivor is at most, and drop those that cannot be within them."""
        image, n = self.image(), self.order.size
        check_arrays("int32", survivors.ids, survivors.count)
        check_arrays(self.encoding.sum_type, survivors.half_sq_dist)
        check_arrays("float64", bound)
        keys = max(4, power_of_two(-(-survivors.capacity // WARP)))  # few sizes, each of which is compiled
        known = c_struct(self.scaling.scale, *self.metric.surrogate_bound_terms(self.n_features))
        int8 = int(self.encoding.sum_type == "int32")
        launch_blocks(
            TIGHTEN, "tighten", (-(-n // TIGHTEN_WARPS),), TIGHTEN_WARPS * WARP,
            np.int32(n), np.int32(k), np.int32(survivors.capacity), self.points, np.int32(self.n_features), self.order,
            image.error, self.tile_error, self.radius_struct, known, np.float32(self.missing), bound, survivors.ids,
            survivors.half_sq_dist, survivors.count,
            options=(f"-DKEYS_PER_LANE={keys}", f"-DINT8={int8}", value_option(self.points.dtype)),
        )  # fmt: skip

    # ------------------------------------------------------------------------- pairs of points between components

    def component_pairs(self, order: Any, items: Any, upper: Any, most: int) -> tuple[Any, Any, Any] | None:
        """The pairs of points whose surrogate distance is at most that of their component pair, and maybe others.

        Parameters
        ----------
        order : (n',) int32 array
            The points, in blocks of `BLOCK_ROWS`; in a block one more than once only in a run.
        items : (m, 4) int32 array
            A block of rows by the number of its first tile; the first tile of points and the one after the last, at
            most `MAX_ITEM_TILES`; and the number of its component pair.
        upper : float64 array
            By component pair, the surrogate distance.
        most : int
            How many pairs of points there may be: if there are more the answer is None.

        Returns
        -------
        src, dst, pair : int32 arrays
            The points, none for those that fill up a block, and the number of their component pair.
        """
        arranged = self.order, self.far
        self.arrange(order)
        try:
            image = self.image()
            # A row's radius is its own error; the component pair's threshold is added to it.
            products, radii = Products(image, len(items), 1, (0, 0), order.size), Radii(image.error, None)
            thresholds = self.radii(upper, None, padded(upper.size, TILE)).of_row
            for capacity in sorted({min(FIRST_PAIRS, most), min(MAX_PAIRS // 4, most), most}):
                counts = cp.zeros(2, cp.uint64)  # found, and the next work item
                found = Candidates(cp.empty((3, capacity), cp.int32), counts[:1])
                self._append(products, radii, Destination(found, counts[1:], None, order, items, thresholds))
                n_found = int(counts[0])
                if n_found <= capacity:
                    src, dst, pair = found.ids[:, :n_found]
                    return src, dst, pair
            return None
        finally:
            self.arrange(*arranged)

    # ------------------------------------------------------------------------------------------------ the image

    def image(self) -> QuantizedPoints:
        """All points in their order."""
        if self.points_image is None:
            self.points_image = image = self.encoding.encode(
                self.points, self.order, padded(self.order.size, BLOCK_ROWS)
            )
            self.missing = self.encoding.missing(image.half_norm[: self.order.size])
            self.tile_error = cp.empty(image.error.size // TILE, cp.float32)  # the largest of each
            sizes = (self.tile_error.size,), TILE, np.int64(self.order.size)
            launch_blocks(TIGHTEN, "largest_of_tiles", *sizes, image.error, self.tile_error)
        return self.points_image

    def radii(self, bound: Array, error: Array, size: int) -> Radii:
        """`bounds.filter_radius` of rows with these bounds and errors (None: of no error), in one launch."""
        check_arrays("float64", bound)
        radii = Radii(cp.empty(size, cp.float32), cp.empty(size // TILE, cp.float32))
        arguments = np.int64(bound.size), bound, error, self.radius_struct, radii.of_row, radii.of_tile
        launch_blocks(TIGHTEN, "radius_of_rows", (size // TILE,), TILE, *arguments)
        return radii

    def _append(self, products: Products, radii: Radii, into: Destination) -> None:
        image = self.image()
        append_survivors(products, image, self.encoding.steps, radii, self.tile_error, into)


def survivor_capacity(k: int) -> int:
    """The capacity for a row's survivors between two slices of a symmetric pass."""
    return 48 + 4 * k
