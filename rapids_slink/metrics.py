"""The metrics: each one's exact dissimilarity, and the filter that may stand in front of it.

Inside the pipeline an edge weighs the kernel's value; `Metric.distance` turns that into what the user reads, at
the very end.

=========== =========================== ============== ==================
metric      the kernel's value          distance       filter
=========== =========================== ============== ==================
euclidean   sum over f of (x_f - y_f)²  its root       product form
sqeuclidean sum over f of (x_f - y_f)²  the same       product form
=========== =========================== ============== ==================

The sum is taken in float64, in the order of the features, without fused multiply-add: the bits of
``scipy.spatial.distance.pdist``. The product form ‖x‖² + ‖y‖² - 2x·y is fast and imprecise. It never reports a
distance; it only rules pairs out, and the functions below say how far it may be off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: Spacing of float32 and float64 above 1.
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


@dataclass(frozen=True)
class Metric:
    """A row of the table.

    Attributes
    ----------
    name : str
        SciPy's name.
    rooted : bool
        Whether the distance is the square root of the kernel's value.
    """

    name: str
    rooted: bool

    def distance(self, weight: Any) -> Any:
        """Distances of an array of the kernel's values."""
        return np.sqrt(weight) if self.rooted else weight


METRICS = {
    "euclidean": Metric("euclidean", rooted=True),
    "sqeuclidean": Metric("sqeuclidean", rooted=False),
}


def get_metric(name: str) -> Metric:
    """The metric called `name`."""
    if not isinstance(name, str) or name not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}, got {name!r}")
    return METRICS[name]


def accumulation_bound(n_features: int, accumulator: str) -> float:
    """η with |computed x·y - x·y| <= η ‖x‖ ‖y‖ for a matrix product that accumulates in `accumulator`.

    Products of the operands are exact or rounded once. A tensor core adds b >= 4 products to its accumulator at a
    time, each addend cut to the accumulator's precision at the largest one's exponent (Fasi et al., "Numerical
    behavior of NVIDIA tensor cores", 2021), so d/b steps err by at most (b + 1)ε each: 1.25 dε in all, relative to
    the sum of |x_f y_f|, which is at most ‖x‖‖y‖. Plain and fused summation in any order stay below dε. The 16
    covers what a library may add when it splits the sum into parts.
    """
    return (1.25 * n_features + 16) * EPSILON[accumulator]


def distance_above(weight: Any, n_features: int, xp: Any) -> Any:
    """An upper bound of the true distance of every pair whose computed kernel value is at most `weight`.

    Each of the d terms is rounded three times and the sum d times, each by a factor of at most 1 ± 2⁻⁵³ or, under
    the normal range, by at most 2⁻¹⁰⁷⁵.
    """
    return xp.sqrt((weight + n_features * 5e-324) * (1 + (n_features + 8) * EPSILON["float64"]))
