"""The fused filter for integers from 0 to 255, such as pixels."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from rapids_slink.neighbors.filter.cuda import QUANTIZE, QUANTIZE_WARPS, WARP
from rapids_slink.neighbors.filter.hopper.fused import FusedFilter
from rapids_slink.neighbors.filter.hopper.launch import BLOCK_ROWS, NORM_BYTES, TILE, Radii, Survivors, padded
from rapids_slink.neighbors.filter.quantize import QuantizedPoints
from rapids_slink.runtime.cuda import check_arrays, launch, launch_blocks


class ByteFilter(FusedFilter):
    """The filter for squared distances of integers from 0 to 255, without error and at twice the rate."""

    name = "uint8 tensor cores (fused)"
    step = 32
    threshold_type = "int32"
    tile_error = None
    MAX_FEATURES = 32_000  # sums of more would leave int32
    #: The largest difference of the points' half squared norms: the largest sum of 32 signed bytes with the weights 1,
    #: 1, 255, 255, ...
    MAX_SPREAD = 254 + 30 * 255 * 128
    UNBOUNDED = 2**30  # half of a bound that all pairs are within
    PADDING_NORM = 2**31 - 1  # the half norm of a padding row

    @classmethod
    def supports(cls, values: Any) -> bool:
        """Whether these can be the points."""
        if values.dtype != np.uint8 or values.shape[1] > cls.MAX_FEATURES:
            return False
        half_norm = quantize_bytes(values, None, len(values)).half_norm
        return int(half_norm.max() - half_norm.min()) <= cls.MAX_SPREAD

    def query(self, rows: Any) -> QuantizedPoints:
        """The image of the rows."""
        self.image()  # by whose least norm all are offset
        return self._offset_norms(self._bytes(self.exact.queries, rows), rows.size)

    def tighten(self, found: Survivors, bound: Any, k: int) -> None:
        """As of a `FusedFilter`; a squared distance with `half` known is 2 half, 2 half + 1 or 2 half + 2."""
        self._tighten("tighten_bytes", found, bound, k, np.int32(self.UNBOUNDED))

    def radii(self, bound: Any, error: Any, size: int) -> Radii:
        """Half of each bound, rounded down."""
        return self._radii("radius_of_bytes", bound, size, np.int32(self.UNBOUNDED))

    def _make_image(self) -> QuantizedPoints:
        n, made = self.order.size, self._bytes(self.exact.points, self.order)
        size = made.half_norm.size
        self.least_norm = int(made.half_norm[:n].min())
        norm_columns = cp.empty(size * NORM_BYTES // TILE, cp.uint8)
        sizes = np.int32(self.least_norm), np.int64(n), np.int64(size)
        launch(QUANTIZE, "split_byte_norms", size, made.half_norm, *sizes, norm_columns)
        return self._offset_norms(made, n, norm_columns)

    def _bytes(self, values: Any, rows: Any) -> QuantizedPoints:
        return quantize_bytes(values, rows, padded(rows.size, BLOCK_ROWS), self.atoms)

    def _offset_norms(self, made: QuantizedPoints, m: int, norm_columns: Any = None) -> QuantizedPoints:
        """Norms as the test takes them for m rows: those in the norm columns are less by the least."""
        half_norm = made.half_norm + cp.int32(self.least_norm)
        half_norm[m:] = self.PADDING_NORM
        return QuantizedPoints(made.y, half_norm, None, norm_columns)


def quantize_bytes(values: Any, rows: Any, size: int, atoms: int = 0) -> QuantizedPoints:
    """The points of `rows` (None: all) of `values` as `filter.cuda.to_uint8` gives them, filled up to `size` rows.

    They are an image of so many `atoms` a row, or the norms alone.
    """
    check_arrays("uint8", values)
    check_arrays("int32", rows)
    m, pitch = len(values) if rows is None else rows.size, values.shape[1]
    if pitch % 16:
        raise ValueError(f"rows of bytes start at multiples of 16, got {pitch} bytes a row")
    y, half_norm = cp.empty(size * atoms * 128, cp.uint8) if atoms else None, cp.empty(size, cp.int32)
    launch_blocks(
        QUANTIZE, "quantize_bytes", (-(-size // QUANTIZE_WARPS),), QUANTIZE_WARPS * WARP,
        values, np.int32(pitch), rows, np.int64(m), np.int64(size), np.int32(atoms or -(-pitch // 128)), y, half_norm,
    )  # fmt: skip
    return QuantizedPoints(y, half_norm, None)
