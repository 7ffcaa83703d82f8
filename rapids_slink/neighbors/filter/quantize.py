"""Points as the product filter reads them: centred, scaled by a power of two and rounded."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, inf, log2
from typing import Any

from rapids_slink.runtime.device import Array


@dataclass(frozen=True)
class ValueRange:
    """What all values of some points have in common."""

    deviation: float  # the largest |x - centre| of any feature
    largest: float  # the largest |x|
    byte_values: bool  # all are integers from 0 to 255


@dataclass(frozen=True)
class Scaling:
    """z = scale·(x - centre), as large as keeps |z| below 2¹⁵ and ‖z‖²/2 below 2³⁰, which suits fp16."""

    centre: Array  # (d,) float64 array
    scale: float  # a power of two
    byte_values: bool = False  # all values are integers from 0 to 255
    bits: int = 8  # of the largest of these integers, from 1 to 8
    limit: float = inf  # beyond which a |z| is cut off, in fp16


def scale_of(largest: float, points: Array) -> float:
    """The scale of points with |x - centre| up to `largest`."""
    headroom = min(15, int((31 - log2(points.shape[1])) // 2))
    exponent = frexp(largest)[1] if largest > 0 else headroom
    # Beyond these the absolute errors of subnormal numbers, scaled, would leave the range of float32 once squared.
    return float(2.0 ** min(headroom - exponent, 180 if points.dtype == "float32" else 590))


@dataclass(frozen=True)
class QuantizedPoints:
    """Points as the filter's kernels read them."""

    #: (n, d) float32 or, padded with zeros to a multiple of eight features, fp16; or an image of fp16 or int8, see
    #: `fused/pass.cuh`
    y: Array
    half_norm: Array  # (n,) float32, int32 of an int8 image; see `bounds`. None for `direct`, which has no products
    error: Array  # (n,) float32; see `bounds` and `direct`
    ids: Array = None  # (n,) int32, which rows of the values these are; None of an image

    def take(self, rows: Any) -> QuantizedPoints:
        """Some rows (an index array or a slice)."""
        parts = self.y, self.half_norm, self.error, self.ids
        return QuantizedPoints(*(None if part is None else part[rows] for part in parts))
