"""Points as the product filter reads them: centred, scaled by a power of two and rounded."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, inf, log2
from typing import Any

from rapids_slink.neighbors.filter.bounds import EPSILONS, SMALLEST_NORMAL, round_up, shrink_factor
from rapids_slink.neighbors.slices import row_blocks
from rapids_slink.runtime.device import Array

#: fp16 holds integers up to here.
MAX_EXACT_INTEGER = 2048


@dataclass(frozen=True)
class ValueRange:
    """What all values of some points have in common."""

    deviation: float  # the largest |x - centre| of any feature
    largest: float  # the largest |x|
    small_integers: bool  # all are integers up to `MAX_EXACT_INTEGER`, whatever their type
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

    #: fp16, float32 or float64: (n, d'), fp16 rows padded with zeros to a multiple of eight features, or an image of
    #: fp16 or int8, see `fused/pass.cuh`
    y: Array
    half_norm: Array  # (n,) float32, or float64 for a float64 `y`, int32 of an int8 image; see `bounds`
    error: Array  # (n,) float32 or float64; see `bounds`
    ids: Array = None  # (n,) int32, which rows of the values these are, if pairs are checked by the values

    @property
    def accumulator(self) -> str:
        """The precision in which products of `y` are summed."""
        return "float64" if self.y.dtype == "float64" else "float32"

    def take(self, rows: Any) -> QuantizedPoints:
        """Some rows (an index array or a slice)."""
        ids = None if self.ids is None else self.ids[rows]
        return QuantizedPoints(self.y[rows], self.half_norm[rows], self.error[rows], ids)


def quantize(values: Array, scaling: Scaling, dtype: str, xp: Any, order: Array = None) -> QuantizedPoints:
    """`values`, in the order of the rows `order` (default: as they are), rounded to `dtype`."""
    n, d = values.shape[0] if order is None else order.size, values.shape[1]
    width = d if dtype != "float16" else -(-d // 8) * 8
    accumulator = "float64" if dtype == "float64" else "float32"
    epsilon = EPSILONS[accumulator]
    shrink = shrink_factor(width, accumulator)
    y = xp.zeros((n, width), dtype)
    half_norm, error = xp.empty(n, accumulator), xp.empty(n, accumulator)
    for rows in row_blocks(n, d):
        z = ((values[rows] if order is None else values[order[rows]]) - scaling.centre) * scaling.scale
        y[rows, :d] = z
        rounded = y[rows, :d].astype("float64")
        half_norm[rows] = (rounded * rounded).sum(axis=1) * (shrink / 2)
        moved = xp.sqrt(((rounded - z) ** 2).sum(axis=1)) + xp.sqrt((z * z).sum(axis=1)) * EPSILONS["float64"]
        if values.dtype == "float32":  # CuPy's arithmetic makes zeros of subnormal values
            moved += scaling.scale * (d**0.5 * SMALLEST_NORMAL)
        error[rows] = round_up(moved, epsilon)
    return QuantizedPoints(y, half_norm, error)
