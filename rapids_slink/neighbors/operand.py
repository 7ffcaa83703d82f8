"""The filter's operand: points centred, scaled by a power of two and rounded, and how far each was moved.

Let z = scale·(x - centre) and y its rounding to fp16, float32 or float64, with ‖z_i - y_i‖ <= e_i. A pair whose
kernel value is at most w has, with U = scale·distance_above(w) as the metric has it,

    ‖y_i - y_j‖ <= U + e_i + e_j              (triangle inequality)

and ‖y_i - y_j‖² = n_i + n_j - 2 y_i·y_j, n = ‖y‖², where the product is known up to η‖y_i‖‖y_j‖ <= η(n_i + n_j)/2.
Hence every such pair passes the test that the filter's kernels make,

    product >= half_norm_i + half_norm_j - (reach_i + error_j)²,

with half_norm <= n(1 - η)/2, reach >= (U + e)/√2 and error >= e/√2. Evaluating the right-hand side in the
accumulator's precision takes six roundings; the factors with `SLACK` roundings absorb them.

The converse bounds a value from above, without a look at the points. Let h be the half norms, and half = h_i - s where
s is what a filter computes for product - h_j. Norms are at most 2h/(1 - η - slack). The sum s is off by at most
η(n_i + n_j)/2 + ηh_j, and what it has for h_j is at least h_j(1 - η) - `LOST`. All in all

    ‖y_i - y_j‖² <= 2(half + excess(h_i + h_j) + LOST),

and the kernel value is at most what `Metric.ceiling` makes of (‖y_i - y_j‖ + e_i + e_j) / scale.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import frexp, log2
from typing import Any

from rapids_slink.device import Device
from rapids_slink.metrics import EPSILON, EUCLIDEAN, Metric, accumulation_bound

SMALLEST_NORMAL = 2.0**-126  # of float32
SLACK = 8  # in units of the accumulator's spacing
#: Its square is above what a sum of products may lose to underflow in float32; beside |y| it is nothing.
TINY = 1e-15
#: A filter may let the product subtract the norms, by that many more features.
EXTRA_FEATURES = 8
#: Of a half norm below 2³⁰, at most so much is missing once it is cut into the fused filter's units (less than 2⁻²⁴ is;
#: the rest is for float32's underflow).
LOST = 2.0**-19
#: Beyond, what a sum may be off is as large as the sum, and the filter proves nothing.
MOST_FEATURES = 2**21
BLOCK = 2**21  # values converted at a time
SMALL = 2048  # fp16 holds integers up to here
SAMPLED = 2**10  # rows, about, whose mean is the centre


@dataclass(frozen=True)
class Extent:
    """What a look at all values of some points tells.

    Attributes
    ----------
    moved, largest : float
        The largest |x - centre| and |x| of any feature.
    small_integers : bool
        All are integers up to `SMALL`, whatever their type.
    byte_values : bool
        All are integers from 0 to 255.
    """

    moved: float
    largest: float
    small_integers: bool
    byte_values: bool


@dataclass(frozen=True)
class Scaling:
    """z = scale·(x - centre), as large as keeps |z| below 2¹⁵ and ‖z‖²/2 below 2³⁰, which suits fp16.

    Attributes
    ----------
    centre : (d,) float64 array
    scale : float, a power of two
    byte_values : bool
        All values are integers from 0 to 255.
    """

    centre: Any
    scale: float
    byte_values: bool = False

    @classmethod
    def of(cls, *values: Any, device: Device) -> Scaling:
        """The scaling of one or several arrays of points, the first of them centred.

        Small integers stay where they are: fp16 holds them exactly.
        """
        kernels, d = device.kernels("neighbors"), values[0].shape[1]
        centre = kernels.centre(values[0], max(1, len(values[0]) // SAMPLED))
        extents = kernels.extents(values, centre)
        integral = all(extent.small_integers for extent in extents)
        largest = max(extent.largest if integral else extent.moved for extent in extents)
        room = min(15, int((31 - log2(d)) // 2))
        exponent = frexp(largest)[1] if largest > 0 else room
        # Beyond these the absolute errors of subnormal numbers, scaled, would leave the range of float32 once squared.
        most = min(180 if part.dtype == "float32" else 590 for part in values)
        byte_values = all(extent.byte_values for extent in extents)
        return cls(device.xp.zeros(d) if integral else centre, 2.0 ** min(room - exponent, most), byte_values)


@dataclass(frozen=True)
class Ceiling:
    """What bounds kernel values from above by their products in float32; see the module's text.

    Attributes
    ----------
    excess, lost : float
        Half a squared distance exceeds `half` by at most excess·(h_i + h_j) + lost.
    unscale : float
        √2 over the scale: errors are over √2, and of squared distances half is looked at.
    more, factor, off : float
        `Metric.ceiling`.
    """

    excess: float
    lost: float
    unscale: float
    more: float
    factor: float
    off: float

    @classmethod
    def of(cls, n_features: int, scaling: Scaling, metric: Metric) -> Ceiling:
        """That of the operands of points.

        A norm is n <= 2hr, and the sum is off by η(n_i + n_j)/2 + ηh_j: of either half norm r(1 + 2η) - (1 - η) is
        missing at most. All of it needs r, and so `shrinkage`, to be positive.
        """
        width = -(-n_features // 8) * 8 + EXTRA_FEATURES
        eta, slack = accumulation_bound(width, "float32"), SLACK * EPSILON["float32"]
        excess = (1 + slack) / shrinkage(width, "float32") * (1 + 2 * eta) - (1 - eta) + slack
        return cls(excess, LOST, 2**0.5 / scaling.scale, *metric.ceiling(n_features))

    @property
    def numbers(self) -> tuple[float, ...]:
        """All of them, in the order of `ceiling.cuh`."""
        return tuple(map(float, astuple(self)))


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
    shrink = shrinkage(width + EXTRA_FEATURES, accumulator)
    y = xp.zeros((n, width), dtype)
    half_norm, error = xp.empty(n, accumulator), xp.empty(n, accumulator)
    for at in blocks(n, d):
        z = ((values[at] if order is None else values[order[at]]) - scaling.centre) * scaling.scale
        y[at, :d] = z
        rounded = y[at, :d].astype("float64")
        half_norm[at] = (rounded * rounded).sum(axis=1) * (shrink / 2)
        moved = xp.sqrt(((rounded - z) ** 2).sum(axis=1)) + xp.sqrt((z * z).sum(axis=1)) * EPSILON["float64"]
        if values.dtype == "float32":  # CuPy's arithmetic makes zeros of subnormal values
            moved += scaling.scale * (d**0.5 * SMALLEST_NORMAL)
        error[at] = grow(moved, epsilon)
    return Operand(y, half_norm, error)


def reach(weight: Any, error: Any, scaling: Scaling, n_features: int, xp: Any, metric: Metric = EUCLIDEAN) -> Any:
    """The test's `reach` of rows with the given `error` that look for kernel values up to `weight`."""
    epsilon = EPSILON[str(error.dtype)]
    return (error + grow(scaling.scale * metric.distance_above(weight, n_features, xp), epsilon)).astype(error.dtype)


def reach_numbers(n_features: int, scale: float, metric: Metric) -> tuple[float, ...]:
    """What `reach` takes for a float32 error, in the order of reach.cuh."""
    return tuple(map(float, (*metric.margins(n_features), scale, growth(EPSILON["float32"]), TINY)))


def grow(length: Any, epsilon: float) -> Any:
    """`length` over √2, rounded up for the test."""
    return length * growth(epsilon) + TINY


def growth(epsilon: float) -> float:
    """1 over √2, rounded up for the test."""
    return 0.5**0.5 * (1 + SLACK * epsilon)


def shrinkage(n_features: int, accumulator: str) -> float:
    """What a squared norm is multiplied by, so that the test forgives whatever the product may be off."""
    lost = accumulation_bound(n_features, accumulator) + SLACK * EPSILON[accumulator]
    return 1 - lost - n_features * EPSILON["float64"]


def blocks(n: int, d: int, size: int = BLOCK) -> list[slice]:
    """Rows, so many at a time that their values are about `size`."""
    rows = max(1, size // d)
    return [slice(a, min(a + rows, n)) for a in range(0, n, rows)]
