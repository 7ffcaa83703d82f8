"""The fused filters: the passes over images of rows and points, a whole band in one launch.

What the filters of products and of bits share is `ImageFilter`. Rows of bits are tested by the number of ones that two
rows have in common; see `counts.cu`.
"""

from functools import cached_property
from math import inf
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import WORD_BITS
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, candidate_capacity
from rapids_slink.neighbors.exact.cuda import alignment
from rapids_slink.neighbors.filter import (
    MIN_ROWS,
    ProductFilter,
    QuantizedPoints,
    Scaling,
    TileFilter,
    UpperBound,
    n_seeds,
    radius_terms,
)
from rapids_slink.neighbors.filter.fused import (
    ATOM_STEPS,
    BLOCK_ROWS,
    COUNTS,
    FP16_QUERIES,
    MAX_FEATURES,
    STEP_BYTES,
    TIGHTEN,
    TILE,
    Destination,
    Fp16,
    Int8,
    Projected,
    Radii,
    Survivors,
    append_survivors,
    cheapest,
    fp16_keeps_bound,
    padded,
    square_bound,
    work_items,
)
from rapids_slink.neighbors.task import (
    SearchTask,
    equal_slices,
    geometric_slices,
    golden_stride,
    low_discrepancy_order,
)
from rapids_slink.runtime.cuda import (
    WARP,
    c_struct,
    check_arrays,
    constant,
    launch,
    launch_blocks,
    power_of_two,
    value_option,
)
from rapids_slink.runtime.device import Array, Device

TIGHTEN_WARPS = constant(TIGHTEN, "WARPS")  # warps of a block


class ImageFilter(TileFilter):
    """A filter whose kernel tests images of rows and points, a whole band in one launch."""

    is_symmetric = True
    #: A chunk has few rows, and a band brings each about 7k survivors; `candidate_capacity` is the room for them.
    first_band, growth = 2**14, 8
    #: The slices' first offsets, in blocks of rows, and their growth. There are many rows, so a launch costs little and
    #: a survivor much.
    first_offsets, offset_growth = 4, 1.5
    #: Where lists bound the rows, all slices grow by `listed_growth`, and lists are made after the slices that end at
    #: `listed_offsets` or later.
    listed_offsets, listed_growth = 128, 4.0
    max_rows = 2**18  # a launch of this number has enough blocks to fill the GPU evenly
    max_candidates = 2**26

    encoding: Any  # makes the images; see `fused`
    points_image: QuantizedPoints | None
    tile_error: Array  # float32, what the test takes for each tile of the points' image, once that is made

    def order_by_bound(self, bound: Array, first: int = 0) -> tuple[Array, Array]:
        """Return an order for `append_both` of the points from `first` on, and the points that it leaves out.

        `bound` holds these points' bounds. Both results count from the first of these points.
        """
        raise NotImplementedError

    def order_for_limit(self, limit: float, n: int, first: int) -> tuple[Array, Array]:
        """Return an order for `pairs_within` of n points from `first` on, and the points that it leaves out."""
        order, far = self.order_by_bound(cp.full(n, limit), first)
        return order + np.int32(first), far + np.int32(first)

    def ones_of_tiles(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the least and the largest number of ones of each tile, on the host; None if points are not bits."""
        return None

    def tighten(self, survivors: Survivors, bound: Array, k: int, last: bool) -> None:
        """Tighten each row's bound to an upper bound of its k-th survivor's distance.

        `last` is whether no other slice follows.
        """
        raise NotImplementedError

    @property
    def is_finest(self) -> bool:
        """Return whether there is no finer filter."""
        return True

    def is_coarse(self, survivors: Survivors, room: int, share: float) -> bool:
        """Return whether a finer filter takes less time, because many rows have more survivors than `room`."""
        return False

    def image(self) -> QuantizedPoints:
        """Return the image of all points in their order; it is made when it is first needed."""
        if self.points_image is None:
            self.points_image = self.encoding.encode(self.points, self.order, padded(self.order.size, BLOCK_ROWS))
            self.sum_up_tiles(self.points_image)
        return self.points_image

    def sum_up_tiles(self, image: QuantizedPoints) -> None:
        """Set `tile_error` by the new image of the points."""
        self.tile_error = cp.empty(image.error.size // TILE, cp.float32)
        launch_blocks(TIGHTEN, "largest_of_tiles", (self.tile_error.size,), TILE, image.error, self.tile_error)

    def radii(self, bound: Array, error: Array, size: int) -> Radii:
        """Return the radii that the test takes for rows with these bounds and errors."""
        raise NotImplementedError

    @staticmethod
    def row_bytes(d: int) -> int:
        """Return the bytes that a row of d features takes in the image of the larger type, and beside it."""
        return 128 * -(-d // 64) + 8

    @staticmethod
    def symmetric_bytes(n: int, k: int, d: int) -> int:
        """Return the bytes of a symmetric pass beside its result: all rows' bounds, survivors and lists."""
        return n * (24 + 12 * k + 8 * survivor_capacity(k, d))

    def arrange(self, order: Any = None, far: Any = None) -> None:
        """Put the points into this order, except some far ones; their image is made when it is first needed."""
        self.order = low_discrepancy_order(len(self.points), cp) if order is None else order
        self.far = far
        self.points_image = None

    def query(self, rows: Any) -> QuantizedPoints:
        """Return the image of the rows."""
        return self.encoding.encode(self.queries, rows, padded(rows.size, BLOCK_ROWS))

    def candidates(
        self, rows: Any, band: slice, bound: Any, groups: Groups, task: SearchTask, capacity: int | None = None
    ) -> Candidates:
        """Return each row's candidates among the points of a band, in one launch: see `TileFilter.candidates`.

        If every row has an exclusion id of its own, one more candidate is cheaper than a look at that of each survivor.
        """
        if band.start % TILE:
            raise ValueError(f"a band starts at a multiple of {TILE} points, got {band.start}")
        m = bound.size
        counts = cp.zeros(m + 1, cp.int32)  # the last is the next work item
        capacity = capacity or self.room * candidate_capacity(task.k)
        candidates = Candidates(cp.empty((m, capacity), cp.int32), counts[:m], self.order)
        items = work_items(rows.half_norm.size // BLOCK_ROWS, band.start // TILE, -(-band.stop // TILE))
        radii = self.radii(bound, rows.error, rows.half_norm.size)
        row_group, point_group = (groups[0], groups[1][self.order]) if task.only_minima else (None, None)
        into, n_points = Destination(candidates, counts[m:], row_group, point_group), min(band.stop, self.order.size)
        self._append(rows, items, radii, into, n_points)
        return candidates

    def arrange_parts(self, bound: Any, split: int) -> bool:
        """Arrange each of two parts by its bounds; return False if that cannot be.

        It cannot if a part has far points or the first part is not made of whole blocks.
        """
        if split % BLOCK_ROWS:
            return False
        (first, far), (second, more_far) = self.order_by_bound(bound[:split]), self.order_by_bound(bound[split:], split)
        if far.size or more_far.size:
            return False
        self.arrange(cp.concatenate((first, second + np.int32(split))), far)
        return True

    def symmetric_slices(self, split: int = 0, bounds_fall: bool = True, by_lists: bool = False) -> list[slice]:
        """Return ranges of offsets, in blocks of rows, that together form every pair of blocks once; see `append_both`.

        They are fewer if the bounds hardly fall from slice to slice, or are found `by_lists`.
        """
        blocks = self.image().half_norm.size // BLOCK_ROWS - split // BLOCK_ROWS
        last = blocks if split else blocks // 2 + 1
        growth = self.offset_growth if bounds_fall else 2 * self.offset_growth
        if by_lists:
            growth = self.listed_growth
        return geometric_slices(min(self.first_offsets, max(1, blocks // 16)), last, growth)

    def empty_survivors(self, k: int) -> Survivors:
        """Return empty buffers for `append_both`.

        A slice brings a row about k survivors, as many stay, and the rest is spare.
        """
        n = self.order.size
        shape = n, survivor_capacity(k, self.points.shape[1])
        ids, count = cp.empty(shape, cp.int32), cp.zeros(n, cp.int32)
        return Survivors(ids, count, self.order, cp.empty(shape, self.encoding.sum_type))

    def append_both(self, offsets: slice, bound: Any, into: Survivors, split: int = 0) -> None:
        """Append to the candidates of every point, as a row in that order, the points of the blocks at these offsets.

        Offset s means the pairs of each block of rows with the s-th block after it, modulo the number of blocks. A pair
        that passes for one of its points is appended for that point. If `split` is given, the blocks before that point
        meet only those from it on, and offsets count from the first of these.
        """
        image = self.image()
        begin, blocks = split // TILE, (split or image.half_norm.size) // BLOCK_ROWS
        items = work_items(blocks, 2 * offsets.start, 2 * offsets.stop, begin, image.half_norm.size // TILE - begin)
        radii = self.radii(bound, image.error, image.half_norm.size)
        self._append(image, items, radii, Destination(into, cp.zeros(1, cp.int32)))

    def pairs_within(
        self, items: Any, limits: tuple[float, float], capacity: int, filled_block: int
    ) -> tuple[Any, int] | None:
        """Return the pairs that may be within the second limit, but not surely within the first; count the latter.

        `items` are those of `FusedFilter.component_pairs`, all of component pair 0. The result is the pairs, (3, pairs)
        int32, and the number of those surely within the first limit, or None if there are more than `capacity` pairs to
        weigh. A pair comes once, and no pair has a point twice; `filled_block` is the block of rows that repeats points
        to be full.
        """
        low, high = limits
        radii, thresholds = self._terms_within(low, high, filled_block)
        return self._listed_pairs(items, radii, thresholds, capacity, once=True)

    def _terms_within(self, low: float, high: float, filled_block: int) -> tuple[Radii, Array]:
        """Return the radii and the thresholds of `pairs_within`: one or, if pairs may be sure, five, as COUNT takes."""
        raise NotImplementedError

    def _listed_pairs(
        self,
        items: Any,
        radii: Radii,
        thresholds: Any,
        capacity: int,
        components: tuple[Any, Any] = (None, None),
        once: bool = False,
    ) -> tuple[Any, int] | None:
        """Return the pairs of work items that pass, (3, pairs) int32, and 0; None if there are more than `capacity`.

        What is added to a row's radius is one of the `thresholds`, that of the item's component pair. Where tiles have
        points of several components, `components` are the component of each point and the numbers of the components'
        pairs. If pairs come `once`, and are counted if they are surely within, that number is the second result.
        """
        counts = cp.zeros(3, cp.uint64)  # found, surely within, and the next work item
        pairs = Candidates(cp.empty((3, capacity), cp.int32), counts[:1])
        component, numbers = components
        sure = once and thresholds.size > 1
        into = Destination(pairs, counts[2:], component, self.order, thresholds, numbers, once, sure)
        self._append(self.image(), items, radii, into)
        n_found, surely, _ = (int(number) for number in counts.get())
        return (pairs.ids[:, :n_found], surely) if n_found <= capacity else None

    def _append(self, rows: QuantizedPoints, items: Array, radii: Radii, into: Destination, n_points: int = 0) -> None:
        image, n_points = self.image(), n_points or self.order.size
        append_survivors(rows, items, n_points, image, self.encoding.steps, radii, self.tile_error, into)


#: Tiles that follow each other share out their points: up to `DEALT` tiles, and at most one in `DEALT_OF` of all tiles.
#: A point's near copies have nearly its bound. In one tile they would be seen at once, and end each other's lists.
#: Outliers stay apart: a tile with a point of large error lets all pairs pass.
DEALT, DEALT_OF = 64, 64


def sorted_keys(values: Array) -> Array:
    """Return keys in ascending order, (n,) uint64: a value as float32 in the upper half, its position in the lower."""
    values = values.astype(cp.float64, copy=False)
    keys = cp.empty(values.size, cp.uint64)
    launch(TIGHTEN, "pack_keys", keys.size, keys.size, values, keys)
    keys.sort()
    return keys


def numbers_and_positions(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values, float32, and the positions, int32, that some of the `sorted_keys` hold."""
    bits, top = (keys >> np.uint64(32)).astype(np.uint32), np.uint32(1 << 31)
    return np.where(bits & top, bits ^ top, ~bits).view(np.float32), (keys & np.uint64(2**32 - 1)).astype(np.int32)


def tiles_in_strides(keys: Array, n: int) -> Array:
    """Return the first n points in the order of their `sorted_keys`, with whole tiles in a low-discrepancy order."""
    order, tiles = cp.empty(n, cp.int32), n // TILE
    launch(TIGHTEN, "stride_tiles", n, n, golden_stride(tiles), max(1, min(DEALT, tiles // DEALT_OF)), keys, order)
    return order


def survivor_capacity(k: int, d: int) -> int:
    """Return the capacity for a row's survivors between two slices of a symmetric pass.

    Survivors that fill half of it are re-ranked, which takes longer the more features there are.
    """
    return forced().candidates or 48 + 4 * k + d // 8


#: Outliers are points whose bounds of squared distances exceed `FAR` times the median, if at most `MAX_FAR` points do.
FAR, MAX_FAR = 2**14, 32
ON_AXES, ALL_FEATURES, PRECISE = range(3)  # int8 on principal axes, int8 on all features, fp16
#: The first capacity for pairs of points between components.
FIRST_PAIRS = 2**24


class FusedFilter(ImageFilter, ProductFilter):
    """The product filter over a whole band of points in one launch.

    `within` is the largest distance that is wanted, and `listed` the length of full lists. The `tier` is `ON_AXES`,
    which uses principal axes where that takes less time, `ALL_FEATURES` or `PRECISE`.
    """

    def __init__(
        self,
        points: Array,
        queries: Array,
        exact: ExactPoints,
        device: Device,
        scaling: Scaling,
        tier: int = 0,
        within: float = inf,
        listed: int = 0,
    ) -> None:
        super().__init__(points, queries, exact, device, scaling)
        self.within = within
        self.encoding: Fp16 | Int8
        if tier == PRECISE or self.n_features > MAX_FEATURES:
            self.encoding = Fp16(self.n_features, scaling)
        elif tier == ALL_FEATURES:
            self.encoding = Int8(points, scaling)
        else:
            listed *= 1 if queries is points else FP16_QUERIES
            self.encoding = cheapest(points, len(queries), scaling, device, within, listed)
        self.name = self.encoding.name
        unit = self.encoding.scale * self.encoding.stretch
        self.radius_struct = c_struct(*radius_terms(self.n_features, unit, self.metric))

    @property
    def is_finest(self) -> bool:
        """Return whether no filter is finer.

        fp16 is no finer filter on a GPU whose sums are less precise than the test assumes.
        """
        return self.encoding.is_finest or not (isinstance(self.encoding, Projected) or fp16_keeps_bound())

    def finer(self) -> TileFilter | None:
        """Return a filter with all features in int8, or then one in fp16; None if this one is the finest."""
        if self.is_finest:
            return None
        tier = ALL_FEATURES if isinstance(self.encoding, Projected) else PRECISE
        finer = FusedFilter(self.points, self.queries, self.exact, self.device, self.scaling, tier, self.within)
        self.points_image = None  # the finer one takes its memory
        finer.arrange(self.order, self.far)
        return finer

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by the converse of the test, for a sample of points.

        Where products are less precise than the converse assumes, surrogate distances tighten them instead.
        """
        form = self.kernels
        if not form.products_keep_bound():
            super().seed(task, rows, bound, most_rows)
            return
        points = form.quantize(self.points, self.scaling, self.order[: n_seeds(len(self.points), task.k)])
        upper_bound = UpperBound.of(self.n_features, self.scaling.scale, self.metric)
        tile_rows = max(MIN_ROWS, form.TILE_ROWS * form.TILE_POINTS // points.ids.size)
        for at in equal_slices(slice(0, rows.size), min(most_rows, tile_rows)):
            queries = form.quantize(self.queries, self.scaling, rows[at])
            form.seed_bounds(form.product(queries, points), queries, points, task, upper_bound, bound[at])

    def order_by_bound(self, bound: Array, first: int = 0) -> tuple[Array, Array]:
        """Return an order for `append_both`: tiles of points with similar bounds, in a low-discrepancy order.

        If there is a largest distance, a tile's points have similar filter radii instead. A few points whose bounds are
        far above most are not in the order; they are the second result.
        """
        n, key = bound.size, bound
        if self.within < inf:  # then most bounds are equal, but rows of large errors should share tiles
            image = self.encoding.encode(self.points, cp.arange(first, first + n, dtype=cp.int32), padded(n, TILE))
            key = self.radii(bound, image.error, image.error.size).by_row[:n] ** 2
        keys = sorted_keys(key)
        (last, positions), (median, _) = (
            numbers_and_positions(keys[some].get()) for some in (slice(-MAX_FAR - 1, None), slice(n // 2, n // 2 + 1))
        )
        far = int((last.astype("float64") > FAR * float(median[0])).sum())  # the product may be beyond float32
        far = far if far <= MAX_FAR else 0
        return tiles_in_strides(keys, n - far), cp.asarray(positions[positions.size - far :])

    def is_coarse(self, survivors: Survivors, room: int, share: float) -> bool:
        """Return whether more than a share of the rows has more survivors than `room`."""
        m, overflowed = survivors.count.size, cp.zeros(1, cp.int32)
        launch(TIGHTEN, "count_overflowed", m, m, survivors.count, room, overflowed)
        return int(overflowed[0]) > share * m

    def tighten(self, survivors: Survivors, bound: Array, k: int, last: bool) -> None:
        """Tighten each row's bound to an upper bound of its k-th survivor's distance.

        Survivors that cannot be within the new bound are dropped. If `last`, distances are measured as far as that is
        worthwhile, since no other slice follows.
        """
        image, n = self.image(), self.order.size
        check_arrays(self.encoding.sum_type, survivors.half_sq_dist)
        keys = max(4, power_of_two(-(-survivors.capacity // WARP)))  # few sizes, each of which is compiled
        distance_bound = square_bound(self.points, self.scaling.scale, self.metric)
        int8 = int(self.encoding.sum_type == "int32")
        launch_blocks(
            TIGHTEN, "tighten", (-(-n // TIGHTEN_WARPS),), TIGHTEN_WARPS * WARP, n, k, survivors.capacity, self.points,
            self.n_features, self.order, image.error, self.tile_error, self.largest_error, self.radius_struct,
            distance_bound, alignment(self.points), self.missing, last, bound, survivors.ids, survivors.half_sq_dist,
            survivors.count,
            options=(f"-DKEYS_PER_LANE={keys}", f"-DINT8={int8}", value_option(self.points.dtype)),
        )  # fmt: skip

    def component_pairs(
        self, order: Any, items: Any, upper: Any, max_pairs: int, components: tuple[Any, Any] = (None, None)
    ) -> Any:
        """Return the pairs of points whose surrogate distance is at most their component pair's, and maybe others.

        `order`, int32, has the points in blocks of `BLOCK_ROWS`; in a block a point's copies follow each other. Each of
        `items`, (m, 4) int32, has a block of rows by the number of its first tile; the first tile of points and the
        one after the last, at most `MAX_ITEM_TILES`; and the number of its component pair. `upper`, float64, is the
        surrogate distance by component pair. Where items have points of several components, their component pair is
        that of the largest `upper`, and `components` are the component of each point in that order, int32, and the
        number of each two components' pair, (K, K) int32, or -1.

        Returns (3, pairs) int32: two points, and the number of their component pair. No point that fills up a block is
        returned. The result is None if there are more than `max_pairs`.
        """
        before, far = self.order, self.far
        self.arrange(order)
        try:
            thresholds = self.radii(upper, None, padded(upper.size, TILE)).by_row
            radii = Radii(self.image().error, None)
            listed = self._listed_pairs(items, radii, thresholds, min(FIRST_PAIRS, max_pairs), components)
            if listed is None and max_pairs > FIRST_PAIRS:
                listed = self._listed_pairs(items, radii, thresholds, max_pairs, components)
            return listed and listed[0]
        finally:
            self.arrange(before, far)

    def _terms_within(self, low: float, high: float, filled_block: int) -> tuple[Radii, Array]:
        """Return the radii and thresholds of `pairs_within`: see `ImageFilter._terms_within`."""
        image, (radius, *slacks) = self.image(), self.encoding.sure_terms(self.n_features, low, self.metric)
        threshold = self.radii(cp.full(1, high), None, padded(1, TILE)).by_row[:1]
        if radius < 0:
            return Radii(image.error, None), threshold
        norms = cp.where(image.half_norm > -(2**30), image.half_norm, 0)  # padding counts as 0
        largest = -norms.reshape(-1, TILE).min(axis=1).astype(cp.float32) * np.float32(1 + 2.0**-22)
        terms = cp.asarray((radius, *slacks, float(filled_block)), cp.float32)
        return Radii(image.error, largest), cp.concatenate((threshold, terms))

    def sum_up_tiles(self, image: QuantizedPoints) -> None:
        """Set the largest error of each tile and of all, and what half a squared distance by this image lacks."""
        super().sum_up_tiles(image)
        self.missing = self.encoding.missing(image.half_norm[: self.order.size])
        self.largest_error = self.tile_error.max()

    def radii(self, bound: Array, error: Array, size: int) -> Radii:
        """Return the `filter.filter_radius` of rows with these bounds and errors, in one launch.

        If `error` is None, the rows have no errors.
        """
        radii = Radii(cp.empty(size, cp.float32), cp.empty(size // TILE, cp.float32))
        launch_blocks(
            TIGHTEN, "radius_of_rows", (size // TILE,), TILE, bound.size, bound, error, self.radius_struct,
            radii.by_row, radii.by_tile,
        )  # fmt: skip
        return radii


MAX_BITS = 2**24  # counts and numbers of ones are exact in float32
#: The least number of points that give each row its first bound, by whether that bounds all rows of its exclusion id.
SEED_POINTS = {False: 256, True: 64}


class Bits:
    """Rows of words as images of bits."""

    name = "common bits (fused)"
    sum_type = "int32"

    def __init__(self, exact: ExactPoints) -> None:
        self.steps = -(-WORD_BITS * (exact.points.shape[1] - 1) // (8 * STEP_BYTES))
        self.atoms = -(-self.steps // ATOM_STEPS)
        self.options = exact.metric.bit_options

    def encode(self, values: Array, rows: Array, size: int) -> QuantizedPoints:
        """Return the image of some rows, filled up to `size` rows; its errors are the numbers of ones, negated."""
        image = cp.empty(size * self.atoms * ATOM_STEPS * STEP_BYTES, cp.uint8)
        half_norm, error = cp.empty(size, cp.int32), cp.empty(size, cp.float32)
        launch_blocks(
            COUNTS, "put_bits", (size,), WARP, values, values.shape[1], rows, rows.size, self.atoms, image, half_norm,
            error, options=self.options,
        )  # fmt: skip
        return QuantizedPoints(image, half_norm, error)


class CountFilter(ImageFilter):
    """The filter of rows of bits, words of zeros and ones."""

    #: Equal distances are many, and the first bounds come from few points.
    first_band, growth, room = 2**12, 4, 4

    encoding: Bits

    def __init__(self, exact: ExactPoints, device: Device) -> None:
        super().__init__(exact.points, exact.queries, exact, device)
        self.encoding = Bits(exact)
        self.name = self.encoding.name

    def arrange(self, order: Any = None, far: Any = None) -> None:
        """Put the points into an order: see `ImageFilter`.

        By default rows with similar numbers of ones share a tile, and the tiles are spread evenly.
        """
        super().arrange(tiles_in_strides(sorted_keys(self._ones), len(self.points)) if order is None else order, far)

    def order_by_bound(self, bound: Array, first: int = 0) -> tuple[Array, Array]:
        """Return an order by the number of ones, then by the bound, without far points: see `FusedFilter`."""
        key = bound.astype(cp.float32)
        key = self._ones[first : first + key.size] + key / (1 + cp.where(cp.isfinite(key), key, 0).max())
        return tiles_in_strides(sorted_keys(key), key.size), cp.empty(0, cp.int32)

    def order_for_limit(self, limit: float, n: int, first: int) -> tuple[Array, Array]:
        """Return an order by the number of ones: see `ImageFilter.order_for_limit`."""
        return (cp.argsort(self._ones[first : first + n]) + first).astype(cp.int32), cp.empty(0, cp.int32)

    def ones_of_tiles(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest number of ones of each tile, on the host, (tiles,) each."""
        ones = self._ones[self.order].get()
        starts = np.arange(0, ones.size, TILE)
        return np.minimum.reduceat(ones, starts), np.maximum.reduceat(ones, starts)

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by their distances to a sample of points."""
        size = max(SEED_POINTS[task.only_minima], 8 * task.k)
        self.seed_by_distances(task, rows, bound, self.order[:: max(1, self.order.size // size)][:size])

    def tighten(self, survivors: Survivors, bound: Array, k: int, last: bool) -> None:
        """Tighten each row's bound to the distance of its k-th survivor, which follows from its count."""
        n, keys = self.order.size, max(4, power_of_two(-(-survivors.capacity // WARP)))
        launch_blocks(
            COUNTS, "tighten", (-(-n // TIGHTEN_WARPS),), TIGHTEN_WARPS * WARP, n, k, survivors.capacity,
            self.image().error, bound, survivors.ids, survivors.half_sq_dist, survivors.count,
            options=(f"-DKEYS_PER_LANE={keys}", *self.encoding.options),
        )  # fmt: skip

    def radii(self, bound: Array, error: Array, size: int) -> Radii:
        """Return the lines of rows with these bounds and errors, by which the test decides: see `Radii`."""
        lines = Radii(cp.empty((size, 2), cp.float32), cp.empty((size // TILE, 2), cp.float32))
        launch_blocks(
            COUNTS, "lines_of_rows", (size // TILE,), TILE, bound.size, bound, error, *self._range_of_ones,
            lines.by_row, lines.by_tile, options=self.encoding.options,
        )  # fmt: skip
        return lines

    def _terms_within(self, low: float, high: float, filled_block: int) -> tuple[Radii, Array]:
        """Return the radii and the threshold of `pairs_within`, none of them sure: see `ImageFilter._terms_within`."""
        error = self.image().error
        return self.radii(cp.full(self.order.size, high), error, error.size), cp.zeros(1, cp.float32)

    @cached_property
    def _range_of_ones(self) -> tuple[float, float]:
        """Return the least and the largest number of ones of a point."""
        return float(self._ones.min()), float(self._ones.max())

    @cached_property
    def _ones(self) -> Array:
        return self.points[:, -1].astype(cp.float32)
