"""What the fused filters share: images of rows and points, and the passes over them."""

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.neighbors.exact import Candidates, Groups, candidate_capacity
from rapids_slink.neighbors.filter.bounds import QuantizedPoints
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
from rapids_slink.neighbors.filter.product import TileFilter
from rapids_slink.neighbors.slices import geometric_slices, golden_stride
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.cuda import check_arrays, constant, launch, launch_blocks
from rapids_slink.runtime.device import Array

TIGHTEN = "neighbors/filter/fused/tighten.cu"
TIGHTEN_WARPS = constant(TIGHTEN, "WARPS")  # of a block


class ImageFilter(TileFilter):
    """A filter whose kernel tests images of rows and points, a whole band in one launch."""

    is_symmetric = True
    #: A chunk has few rows, and a band brings each about 7k survivors; `candidate_capacity` says how many there is room
    #: for.
    first_band, growth = 2**14, 8
    #: In blocks of rows. There are many rows: a launch costs little, a survivor much.
    first_offsets, offset_growth = 4, 1.5
    #: Where lists bound the rows: all slices grow by `listed_growth`, and lists are made after those that end at
    #: `listed_offsets` or later.
    listed_offsets, listed_growth = 128, 4.0
    max_rows = 2**18  # a launch: enough blocks to fill the GPU evenly
    max_candidates = 2**26  # a launch

    encoding: Any  # makes the images; see `encodings.py`
    points_image: QuantizedPoints | None
    tile_error: Array  # float32, what the test takes for each tile of the points' image, once that is made

    def order_by_bound(self, bound: Array, first: int = 0) -> tuple[Array, Array]:
        """An order for `append_both` of the points from `first` on, which have these bounds, and those not in it.

        Both are counted from that point.
        """
        raise NotImplementedError

    def is_coarse(self, survivors: Survivors) -> bool:
        """Whether too many rows have more survivors than there is room for: a finer one takes less time."""
        return False

    def image(self) -> QuantizedPoints:
        """All points in their order."""
        if self.points_image is None:
            self.points_image = self.encoding.encode(self.points, self.order, padded(self.order.size, BLOCK_ROWS))
            self.sum_up_tiles(self.points_image)
        return self.points_image

    def sum_up_tiles(self, image: QuantizedPoints) -> None:
        """Set `tile_error`, by the new image of the points."""
        self.tile_error = cp.empty(image.error.size // TILE, cp.float32)
        launch_blocks(TIGHTEN, "largest_of_tiles", (self.tile_error.size,), TILE, image.error, self.tile_error)

    def radii(self, bound: Array, error: Array, size: int) -> Radii:
        """What the test takes for rows with these bounds and errors."""
        raise NotImplementedError

    @staticmethod
    def row_bytes(d: int) -> int:
        """What a row of d features takes in the image of the larger type, and beside it."""
        return 128 * -(-d // 64) + 8

    @staticmethod
    def symmetric_bytes(n: int, k: int, d: int) -> int:
        """Bytes of a symmetric pass, in addition to the result: all rows' bounds, survivors and lists."""
        return n * (24 + 12 * k + 8 * survivor_capacity(k, d))

    def arrange(self, order: Any, far: Any = None) -> None:
        """Put the points into this order, except some far ones; their image is made when it is first needed."""
        self.order, self.far = order, far
        self.points_image = None

    def rows_at_once(self, k: int) -> int:
        """How many rows a launch should have."""
        by_candidates = self.max_candidates // (self.room * candidate_capacity(k)) // BLOCK_ROWS * BLOCK_ROWS
        return max(BLOCK_ROWS, min(self.max_rows, by_candidates))

    def query(self, rows: Any) -> QuantizedPoints:
        """The image of the rows."""
        return self.encoding.encode(self.queries, rows, padded(rows.size, BLOCK_ROWS))

    def tested_groups(self, groups: Groups, task: SearchTask) -> Groups:
        """The rows' groups, and the points' by position.

        Where every row is its own group, one more candidate is cheaper than to look up the group of every survivor.
        """
        return (groups[0], groups[1][self.order]) if task.per_group_minimum else (None, None)

    def candidates(
        self, rows: Any, band: slice, bound: Any, groups: Groups, task: SearchTask, capacity: int | None = None
    ) -> Candidates:
        """As of a `TileFilter`, in one launch."""
        if band.start % TILE:
            raise ValueError(f"a band starts at a multiple of {TILE} points, got {band.start}")
        check_arrays("int32", *groups)
        m = bound.size
        counts = cp.zeros(m + 1, cp.int32)  # and the next work item
        capacity = capacity or self.room * candidate_capacity(task.k)
        candidates = Candidates(cp.empty((m, capacity), cp.int32), counts[:m], self.order)
        blocks, tiles = rows.half_norm.size // BLOCK_ROWS, (band.start // TILE, -(-band.stop // TILE))
        last = min(band.stop, self.order.size)
        products = Products(rows, blocks, item_splits(blocks, tiles[1] - tiles[0]), tiles, last)
        radii = self.radii(bound, rows.error, rows.half_norm.size)
        self._append(products, radii, Destination(candidates, counts[m:], *groups))
        return candidates

    def arrange_parts(self, bound: Any, split: int) -> bool:
        """Arrange each of two parts by its bounds, unless a part has far points or the first is no whole blocks."""
        if split % BLOCK_ROWS:
            return False
        (first, far), (second, more_far) = self.order_by_bound(bound[:split]), self.order_by_bound(bound[split:], split)
        if far.size or more_far.size:
            return False
        self.arrange(cp.concatenate((first, second + np.int32(split))), far)
        return True

    def symmetric_slices(self, split: int = 0, bounds_fall: bool = True, by_lists: bool = False) -> list[slice]:
        """Ranges of offsets, in blocks of rows, that together form every pair of blocks once; see `append_both`.

        Fewer if the bounds hardly fall from slice to slice, or are found `by_lists`.
        """
        blocks = self.image().half_norm.size // BLOCK_ROWS - split // BLOCK_ROWS
        last = blocks if split else blocks // 2 + 1
        growth = self.offset_growth if bounds_fall else 2 * self.offset_growth
        if by_lists:
            growth = self.listed_growth
        return geometric_slices(min(self.first_offsets, max(1, blocks // 16)), last, growth)

    def empty_survivors(self, k: int) -> Survivors:
        """Buffers for `append_both`: a slice brings a row about k, as many stay, and the rest is spare."""
        n = self.order.size
        shape = n, survivor_capacity(k, self.points.shape[1])
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

    def _append(self, products: Products, radii: Radii, into: Destination) -> None:
        image = self.image()
        append_survivors(products, image, self.encoding.steps, radii, self.tile_error, into)


def tiles_in_strides(sorted_points: Array, n: int) -> Array:
    """The first n of some points, int64, with whole tiles of them in a low-discrepancy order."""
    order = cp.empty(n, cp.int32)
    launch(TIGHTEN, "stride_tiles", n, np.int64(n), np.int64(golden_stride(n // TILE)), sorted_points, order)
    return order


def survivor_capacity(k: int, d: int) -> int:
    """The capacity for a row's survivors between two slices of a symmetric pass.

    Where they are half of it they are re-ranked, which takes longer the more features there are.
    """
    return 48 + 4 * k + d // 8
