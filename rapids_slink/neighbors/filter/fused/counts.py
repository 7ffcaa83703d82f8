"""The fused filter of rows of bits, by the number of ones that two rows have in common; see `counts.cu`."""

from functools import cached_property
from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.metrics import WORD_BITS
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.filter.bounds import QuantizedPoints
from rapids_slink.neighbors.filter.fused.filter import TIGHTEN_WARPS, ImageFilter, tiles_in_strides
from rapids_slink.neighbors.filter.fused.launch import ATOM_STEPS, STEP_BYTES, TILE, Radii, Survivors
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.cuda import WARP, check_arrays, launch_blocks, power_of_two
from rapids_slink.runtime.device import Array, Device

COUNTS = "neighbors/filter/fused/counts.cu"
MAX_BITS = 2**24  # counts and numbers of ones are exact in float32
#: Points, at least, that give each row its first bound, by whether that bounds all rows of its group.
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
        """The image of some rows, filled up to `size` rows; its errors are the numbers of ones, negated."""
        check_arrays("int32", rows)
        image = cp.empty(size * self.atoms * ATOM_STEPS * STEP_BYTES, cp.uint8)
        half_norm, error = cp.empty(size, cp.int32), cp.empty(size, cp.float32)
        launch_blocks(
            COUNTS, "put_bits", (size,), WARP,
            values, np.int32(values.shape[1]), rows, np.int64(rows.size), np.int32(self.atoms), image, half_norm, error,
            options=self.options,
        )  # fmt: skip
        return QuantizedPoints(image, half_norm, error)


class CountFilter(ImageFilter):
    """The filter of rows of bits, words of zeros and ones."""

    #: Equal distances are many, and the first bounds come from few points.
    first_band, growth, room = 2**12, 4, 4

    encoding: Bits

    def __init__(self, exact: ExactPoints, device: Device) -> None:
        super().__init__(exact.points, exact.queries, exact.metric, device)
        self.exact = exact
        self.encoding = Bits(exact)
        self.name = self.encoding.name

    def first_order(self) -> Array:
        """Tiles of rows with similar numbers of ones, in a low-discrepancy order."""
        return tiles_in_strides(cp.argsort(self._ones), len(self.points))

    def order_by_bound(self, bound: Array, first: int = 0) -> tuple[Array, Array]:
        """See `FusedFilter.order_by_bound`: by the number of ones, then by the bound; no points are far."""
        key = bound.astype(cp.float32)
        key = self._ones[first : first + key.size] + key / (1 + cp.where(cp.isfinite(key), key, 0).max())
        return tiles_in_strides(cp.argsort(key), key.size), cp.empty(0, cp.int32)

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by their distances to a sample of points."""
        size = max(SEED_POINTS[task.per_group_minimum], 8 * task.k)
        self.seed_by_distances(task, rows, bound, self.order[:: max(1, self.order.size // size)][:size])

    def tighten(self, survivors: Survivors, bound: Array, k: int, last: bool) -> None:
        """Tighten the bounds to each row's k-th survivor's distance, which follows from its count."""
        check_arrays("int32", survivors.ids, survivors.half_sq_dist, survivors.count)
        check_arrays("float64", bound)
        n, keys = self.order.size, max(4, power_of_two(-(-survivors.capacity // WARP)))
        launch_blocks(
            COUNTS, "tighten", (-(-n // TIGHTEN_WARPS),), TIGHTEN_WARPS * WARP,
            np.int32(n), np.int32(k), np.int32(survivors.capacity), self.image().error, bound, survivors.ids,
            survivors.half_sq_dist, survivors.count,
            options=(f"-DKEYS_PER_LANE={keys}", *self.encoding.options),
        )  # fmt: skip

    def radii(self, bound: Array, error: Array, size: int) -> Radii:
        """The lines of rows with these bounds and errors."""
        check_arrays("float64", bound)
        check_arrays("float32", error)
        lines = Radii(cp.empty((size, 2), cp.float32), cp.empty((size // TILE, 2), cp.float32))
        arguments = np.int64(bound.size), bound, error, *self._range_of_ones, lines.of_row, lines.of_tile
        launch_blocks(COUNTS, "lines_of_rows", (size // TILE,), TILE, *arguments, options=self.encoding.options)
        return lines

    def pairs_within(self, items: Any, limit: float, capacity: int) -> Any:
        """The pairs that an `ImageFilter` lists: see there."""
        error = self.image().error
        radii = self.radii(cp.full(self.order.size, limit), error, error.size)
        return self._listed_pairs(items, radii, cp.zeros(1, cp.float32), capacity)

    @cached_property
    def _range_of_ones(self) -> tuple[np.float64, np.float64]:
        """The least and the largest number of ones of a point."""
        return np.float64(float(self._ones.min())), np.float64(float(self._ones.max()))

    @cached_property
    def _ones(self) -> Array:
        return self.points[:, -1].astype(cp.float32)
