"""The product filter's test, and the proof that it loses no neighbour.

Let z = scale·(x - centre) and y its rounding to fp16 or float32, with ‖z_i - y_i‖ <= e_i. A pair whose
surrogate distance is at most w has, with U = scale·Metric.true_distance_bound(w),

    ‖y_i - y_j‖ <= U + e_i + e_j              (triangle inequality)

and ‖y_i - y_j‖² = n_i + n_j - 2 y_i·y_j, n = ‖y‖², where the product is known up to η‖y_i‖‖y_j‖ <= η(n_i + n_j)/2, and
up to ηn_j/2 more if its sum begins at -n_j/2. Hence every such pair passes the test that the filter's kernels make,

    product >= half_norm_i + half_norm_j - (filter_radius_i + error_j)²,

with half_norm <= n(1 - 2η)/2, filter_radius >= (U + e)/√2 and error >= e/√2. Evaluating the right-hand side in
float32 takes six roundings; the factors with `SLACK` roundings absorb them.

The converse bounds a surrogate distance from above by the product alone. Let h be `half_norm`, s the sum
product - h_j as a filter computes it, and half = h_i - s. Norms n are at most 2h/(1 - 2η - slack). The sum s is off by
at most η(n_i + 2n_j)/2. All in all

    ‖y_i - y_j‖² <= 2(half + norm_slack·(h_i + h_j) + ABSOLUTE_SLACK),

and the surrogate distance is at most what `Metric.surrogate_bound_terms` makes of (‖y_i - y_j‖ + e_i + e_j) / scale.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from rapids_slink.metrics import EPSILON, EUCLIDEAN, Metric
from rapids_slink.runtime.device import Array

FLOAT32_EPSILON = 2.0**-23  # its spacing above 1
SMALLEST_NORMAL = 2.0**-126  # of float32
SLACK = 8  # in units of float32's spacing
#: 1 over √2, rounded up for the test.
ROUND_UP = 0.5**0.5 * (1 + SLACK * FLOAT32_EPSILON)
#: Its square is above what a sum of products may lose to underflow in float32; it is negligible against |y|.
TINY = 1e-15
#: Above what half a squared distance may lose to underflow in float32.
ABSOLUTE_SLACK = 2.0**-19
#: With more, the error of a sum may be as large as the sum, and the filter proves nothing.
MAX_FEATURES = 2**20


def accumulation_bound(n_features: int) -> float:
    """η with |computed x·y - x·y| <= η ‖x‖ ‖y‖ for a matrix product that accumulates in float32.

    Products of the operands are exact or rounded once. A tensor core adds b >= 4 products to its accumulator at a
    time, each addend cut to float32's precision at the largest one's exponent (Fasi et al., "Numerical
    behavior of NVIDIA tensor cores", 2021), so d/b steps err by at most (b + 1)ε each: 1.25 dε in all, relative to
    the sum of |x_f y_f|, which is at most ‖x‖‖y‖. Plain and fused summation in any order stay below dε. The 16
    covers what a library may add when it splits the sum into parts. A GPU's kernels are tried before their first
    products: see `precision`.
    """
    return (1.25 * n_features + 16) * FLOAT32_EPSILON


def round_up(length: Array) -> Array:
    """`length` over √2, rounded up for the test."""
    return length * ROUND_UP + TINY


def shrink_factor(n_features: int) -> float:
    """The factor of squared norms by which the test allows for the error of the product."""
    return 1 - 2 * accumulation_bound(n_features) - SLACK * FLOAT32_EPSILON - n_features * EPSILON


def filter_radius(
    surrogate: Array, error: Array, scale: float, n_features: int, xp: Any, metric: Metric = EUCLIDEAN
) -> Array:
    """The filter radius of rows with the given `error` and distance bound `surrogate`."""
    radius = round_up(scale * metric.true_distance_bound(surrogate, n_features, xp))
    return (error + radius).astype("float32")


def radius_terms(n_features: int, scale: float, metric: Metric) -> tuple[float, ...]:
    """The parameters of `filter_radius`, in the order of radius.cuh."""
    return tuple(map(float, (*metric.rounding_terms(n_features), scale, ROUND_UP, TINY)))


@dataclass(frozen=True)
class UpperBound:
    """The converse of the test: upper bounds of surrogate distances by products in float32."""

    #: half a squared distance exceeds `half` by at most norm_slack·(h_i + h_j) + absolute_slack
    norm_slack: float
    absolute_slack: float
    #: √2 over the scale: errors are over √2, and of squared distances it is the halves that are known
    inverse_scale: float
    more: float  # and the next two: `Metric.surrogate_bound_terms`
    factor: float
    error: float

    @classmethod
    def of(cls, n_features: int, scale: float, metric: Metric) -> UpperBound:
        """That of points of this number of features.

        A norm is n <= 2h/r with r = `shrink_factor`, and the sum is off by up to ηn of either; a filter that has the
        product subtract the norms may subtract ηh too little. So h(1 + 2η)/r - h(1 - η) is missing of a half norm at
        most. All of it needs r to be positive.
        """
        width = -(-n_features // 8) * 8
        eta, slack = accumulation_bound(width), SLACK * FLOAT32_EPSILON
        norm_slack = (1 + slack) / shrink_factor(width) * (1 + 2 * eta) - (1 - eta) + slack
        return cls(norm_slack, ABSOLUTE_SLACK, 2**0.5 / scale, *metric.surrogate_bound_terms(n_features))

    @property
    def terms(self) -> tuple[float, ...]:
        """All of them, in the order of upper_bound.cuh."""
        return tuple(map(float, astuple(self)))
