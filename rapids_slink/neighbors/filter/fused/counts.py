"""The fused filter of rows of bits, by the number of ones that two rows have in common; see `counts.cu`."""

from functools import cached_property

import cupy as cp
import numpy as np

from rapids_slink.metrics import METRICS
from rapids_slink.neighbors.compact import FEW_FEATURES
from rapids_slink.neighbors.exact import ExactPoints
from rapids_slink.neighbors.filter.codes import CodeFilter
from rapids_slink.neighbors.filter.cuda import WARP
from rapids_slink.neighbors.filter.fused.image import TIGHTEN_WARPS, ImageFilter, tiles_in_strides
from rapids_slink.neighbors.filter.fused.launch import (
    ATOM_STEPS,
    STEP_BYTES,
    TILE,
    Radii,
    Survivors,
    has_bit_products,
)
from rapids_slink.neighbors.filter.product import TileFilter
from rapids_slink.neighbors.filter.quantize import QuantizedPoints
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.runtime.cuda import check_arrays, launch_blocks, power_of_two, value_option
from rapids_slink.runtime.device import Array, Device

HAMMING = METRICS["hamming"]
COUNTS = "neighbors/filter/fused/counts.cu"
SYMBOLS = 16  # of a feature, as in counts.cu
MAX_BITS = 2**24  # counts and numbers of ones are exact in float32
#: Points, at least, that give each row its first bound.
SEED_POINTS = 256


def filter_of_counts(exact: ExactPoints, device: Device) -> TileFilter | None:
    """The filter for rows of words or of codes: by common bits if they are many, where the GPU counts these."""
    are_words, d = exact.points.dtype == "uint64", exact.points.shape[1]
    bits = 64 * d if are_words else SYMBOLS * d
    if has_bit_products() and (are_words or d > FEW_FEATURES) and bits <= MAX_BITS:
        return CountFilter(exact, device)
    return None if are_words else CodeFilter(exact, device)


class Bits:
    """Rows as images of bits.

    Parameters
    ----------
    exact : ExactPoints
    """

    sum_type = "int32"

    def __init__(self, exact: ExactPoints) -> None:
        d, metric = exact.points.shape[1], exact.metric
        self.are_words = exact.points.dtype == "uint64"
        self.name = "common bits (fused)" if self.are_words else "hashed codes (fused)"
        self.n_features = d - (self.are_words or metric.rows == "counted")
        n_bits = self.n_features * (64 if self.are_words else SYMBOLS)
        self.steps = -(-n_bits // (8 * STEP_BYTES))
        self.atoms = -(-self.steps // ATOM_STEPS)
        formula = metric.bit_options if self.are_words else metric.cuda_options
        self.options = *formula, value_option(exact.points.dtype)

    def encode(self, values: Array, rows: Array, size: int) -> QuantizedPoints:
        """The image of some rows, filled up to `size` rows; its errors are the numbers of ones."""
        check_arrays("int32", rows)
        image = cp.empty(size * self.atoms * ATOM_STEPS * STEP_BYTES, cp.uint8)
        half_norm, ones = cp.empty(size, cp.int32), cp.empty(size, cp.float32)
        launch_blocks(
            COUNTS, "put_bits", (size,), WARP,
            values, np.int32(values.shape[1]), rows, np.int64(rows.size), np.int32(self.atoms), image, half_norm, ones,
            options=self.options,
        )  # fmt: skip
        return QuantizedPoints(image, half_norm, ones)


class CountFilter(ImageFilter):
    """The filter of rows of bits, or of codes by the hashes of their values.

    Parameters
    ----------
    exact : ExactPoints
        Words of zeros and ones, or codes.
    device : Device
    """

    #: Equal distances are many, and the first bounds come from few points.
    first_band, growth = 2**12, 4

    encoding: Bits

    def __init__(self, exact: ExactPoints, device: Device) -> None:
        super().__init__(exact.points, exact.queries, exact.metric, device)
        self.exact = exact
        self.encoding = Bits(exact)
        self.name, self.by_hamming = self.encoding.name, False

    def first_order(self) -> Array:
        """Tiles of rows with similar numbers of ones, in a low-discrepancy order."""
        if not self.encoding.are_words:
            return super().first_order()
        return tiles_in_strides(cp.argsort(self._ones), len(self.points))

    def order_by_bound(self, bound: Array, first: int = 0) -> tuple[Array, Array]:
        """As of a `FusedFilter`, in order of the numbers of ones first, and without far points."""
        key = bound.astype(cp.float32)
        if self.encoding.are_words:
            key = self._ones[first : first + key.size] + key / (1 + cp.where(cp.isfinite(key), key, 0).max())
        return tiles_in_strides(cp.argsort(key), key.size), cp.empty(0, cp.int32)

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' infinite bounds by their distances to a sample of points, and to `_nearest_by_counts`."""
        size = max(SEED_POINTS, 8 * task.k)
        self.seed_by_distances(task, rows, bound, self.order[:: max(1, self.order.size // size)][:size])
        if task.is_knn_graph and not self.encoding.are_words:
            near, top = self._nearest_by_counts(task.k), self.exact_kernels.empty_lists(rows.size, task.k)
            self.exact_kernels.rerank(self.exact, self.order, near, None, by_order := bound[self.order], top)
            bound[self.order] = by_order

    def _nearest_by_counts(self, k: int) -> Survivors:
        """About k rows for each with which its hashes have the most in common, in a pass that may lose some of them.

        Hashes bound a distance from below only; their bounds here are those of hamming.
        """
        bound, survivors = cp.full(self.order.size, float(self.encoding.n_features)), self.empty_survivors(k)
        self.by_hamming = True
        for offsets in self.symmetric_slices():
            self.append_both(offsets, bound, survivors)
            cp.minimum(survivors.count, survivors.capacity, out=survivors.count)  # the others are lost
            self._tighten(survivors, bound, k)
        self.by_hamming = False
        return survivors

    def for_unproven(self) -> TileFilter | None:
        """The filter for rows that have too many survivors: of codes a finer one."""
        return self if self.encoding.are_words else self.finer()

    def finer(self) -> TileFilter | None:
        """Of codes, the filter that compares all of them."""
        if self.encoding.are_words:
            return None
        finer = CodeFilter(self.exact, self.device)
        finer.arrange(self.order)
        return finer

    def is_coarse(self, survivors: Survivors) -> bool:
        """No other encoding is finer."""
        return False

    def tighten(self, survivors: Survivors, bound: Array, k: int) -> None:
        """Tighten the bounds to each row's k-th survivor's distance, which follows from its count; not of codes."""
        if self.encoding.are_words:
            self._tighten(survivors, bound, k)

    def _tighten(self, survivors: Survivors, bound: Array, k: int) -> None:
        check_arrays("int32", survivors.ids, survivors.half_sq_dist, survivors.count)
        check_arrays("float64", bound)
        n, keys = self.order.size, max(4, power_of_two(-(-survivors.capacity // WARP)))
        launch_blocks(
            COUNTS, "tighten", (-(-n // TIGHTEN_WARPS),), TIGHTEN_WARPS * WARP,
            np.int32(n), np.int32(k), np.int32(survivors.capacity), np.int32(self.encoding.n_features),
            self.image().error, bound, survivors.ids, survivors.half_sq_dist, survivors.count,
            options=(f"-DKEYS_PER_LANE={keys}", *self._options),
        )  # fmt: skip

    def sum_up_tiles(self, image: QuantizedPoints) -> None:
        """Set the least number of ones of each tile."""
        self.tile_error = cp.empty(image.error.size // TILE, cp.float32)
        arguments = np.int64(self.order.size), image.error, self.tile_error
        launch_blocks(COUNTS, "least_ones", (self.tile_error.size,), TILE, *arguments, options=self.encoding.options)

    def radii(self, bound: Array, error: Array, size: int) -> Radii:
        """The lines of rows with these bounds and numbers of ones."""
        check_arrays("float64", bound)
        check_arrays("float32", error)
        lines = Radii(cp.empty((size, 2), cp.float32), cp.empty((size // TILE, 2), cp.float32))
        arguments = np.int64(bound.size), bound, error, np.int32(self.encoding.n_features), lines.of_row, lines.of_tile
        launch_blocks(COUNTS, "lines_of_rows", (size // TILE,), TILE, *arguments, options=self._options)
        return lines

    @property
    def _options(self) -> tuple[str, ...]:
        return HAMMING.cuda_options + self.encoding.options[-1:] if self.by_hamming else self.encoding.options

    @cached_property
    def _ones(self) -> Array:
        return self.points[:, -1].astype(cp.float32)
