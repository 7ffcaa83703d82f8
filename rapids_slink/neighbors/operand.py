"""The filter's operand: points centred, scaled by a power of two and rounded, and how far each was moved.

Let z = scale·(x - centre) and y its rounding to fp16, float32 or float64, with ‖z_i - y_i‖ <= e_i. A pair whose
kernel value is at most w has, with U = scale·distance_above(w),

    ‖y_i - y_j‖ <= U + e_i + e_j              (triangle inequality)

and ‖y_i - y_j‖² = n_i + n_j - 2 y_i·y_j, n = ‖y‖², where the product is known up to η‖y_i‖‖y_j‖ <= η(n_i + n_j)/2.
Hence every such pair passes the test that the filter's kernels make,

    product >= half_norm_i + half_norm_j - (reach_i + error_j)²,

with half_norm <= n(1 - η)/2, reach >= (U + e)/√2 and error >= e/√2. Evaluating the right-hand side in the
accumulator's precision takes six roundings; the factors with `SLACK` roundings absorb them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from rapids_slink.metrics import EPSILON, accumulation_bound, distance_above

SMALLEST_NORMAL = 2.0**-126  # of float32
SLACK = 8  # in units of the accumulator's spacing
#: Its square is above what a sum of products may lose to underflow in float32; beside |y| it is nothing.
TINY = 1e-15
#: A filter may let the product subtract the norms, by that many more features.
EXTRA_FEATURES = 8
BLOCK = 2**21  # values converted at a time


@dataclass(frozen=True)
class Scaling:
    """z = scale·(x - centre), as large as keeps |z| below 2¹⁵ and ‖z‖²/2 below 2³⁰, which suits fp16.

    Attributes
    ----------
    centre : (d,) float64 array
    scale : float, a power of two
    """

    centre: Any
    scale: float

    @classmethod
    def of(cls, *values: Any, xp: Any) -> Scaling:
        """The scaling of one or several arrays of points, the first of them centred.

        Integers up to 2048 stay where they are: fp16 holds them exactly.
        """
        integral = all(_is_small_integer(part, xp) for part in values)
        d = values[0].shape[1]
        centre = xp.zeros(d)
        if not integral:
            with np.errstate(over="ignore"):  # any finite centre serves
                centre = values[0].mean(axis=0, dtype="float64")
            centre = xp.where(xp.isfinite(centre), centre, 0.0)
        largest = max(float(xp.abs(part[at] - centre).max()) for part in values for at in _blocks(part.shape[0], d))
        room = min(15, int((31 - log2(d)) // 2))
        exponent = int(xp.frexp(xp.asarray(largest))[1]) if largest > 0 else room
        # Beyond these the absolute errors of subnormal numbers, scaled, would leave the range of float32 once squared.
        most = min(180 if part.dtype == "float32" else 590 for part in values)
        return cls(centre, 2.0 ** min(room - exponent, most))


@dataclass(frozen=True)
class Operand:
    """Points as the filter reads them.

    Attributes
    ----------
    y : (n, d') array
        fp16, float32 or float64; fp16 rows are padded with zeros to a multiple of eight features.
    half_norm, error : (n,) array
        float32, or float64 for a float64 `y`; see the module's text.
    """

    y: Any
    half_norm: Any
    error: Any

    @property
    def accumulator(self) -> str:
        """The precision in which products of `y` are summed."""
        return "float64" if self.y.dtype == "float64" else "float32"

    def take(self, at: Any) -> Operand:
        """The rows `at` (an index array or a slice)."""
        return Operand(self.y[at], self.half_norm[at], self.error[at])


def pack(values: Any, scaling: Scaling, dtype: str, xp: Any, order: Any = None) -> Operand:
    """The operand of `values` in the order of the rows `order` (default: as they are)."""
    n, d = values.shape[0] if order is None else order.size, values.shape[1]
    width = d if dtype != "float16" else -(-d // 8) * 8
    accumulator = "float64" if dtype == "float64" else "float32"
    epsilon = EPSILON[accumulator]
    shrink = 1 - accumulation_bound(width + EXTRA_FEATURES, accumulator) - SLACK * epsilon - width * EPSILON["float64"]
    y = xp.zeros((n, width), dtype)
    half_norm, error = xp.empty(n, accumulator), xp.empty(n, accumulator)
    for at in _blocks(n, d):
        z = ((values[at] if order is None else values[order[at]]) - scaling.centre) * scaling.scale
        y[at, :d] = z
        rounded = y[at, :d].astype("float64")
        half_norm[at] = (rounded * rounded).sum(axis=1) * (shrink / 2)
        moved = xp.sqrt(((rounded - z) ** 2).sum(axis=1)) + xp.sqrt((z * z).sum(axis=1)) * EPSILON["float64"]
        if values.dtype == "float32":  # CuPy's arithmetic makes zeros of subnormal values
            moved += scaling.scale * (d**0.5 * SMALLEST_NORMAL)
        error[at] = grow(moved, epsilon)
    return Operand(y, half_norm, error)


def reach(weight: Any, error: Any, scaling: Scaling, n_features: int, xp: Any) -> Any:
    """The test's `reach` of rows with the given `error` that look for kernel values up to `weight`."""
    epsilon = EPSILON[str(error.dtype)]
    return (error + grow(scaling.scale * distance_above(weight, n_features, xp), epsilon)).astype(error.dtype)


def grow(length: Any, epsilon: float) -> Any:
    """`length` over √2, rounded up for the test."""
    return length * (0.5**0.5 * (1 + SLACK * epsilon)) + TINY


def _is_small_integer(values: Any, xp: Any) -> bool:
    return all(
        bool((xp.abs(values[at]) <= 2048).all()) and bool((values[at] == xp.rint(values[at])).all())
        for at in _blocks(*values.shape)
    )


def _blocks(n: int, d: int) -> list[slice]:
    rows = max(1, BLOCK // d)
    return [slice(a, min(a + rows, n)) for a in range(0, n, rows)]
