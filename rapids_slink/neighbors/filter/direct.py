"""A GPU's direct filter: the formula itself, of points rounded to float32, in tiles of rows and points (`direct.cu`).

Let z be a row's features, scaled by a power of two so that |z| <= 1, and centred where only differences count; y is z
in float32. With u = 2⁻²⁴ a float32 sum of d terms that are not negative is off by less than a factor of 1 ± (d + 1)u.
The terms, and the tests that no pair with a surrogate distance up to w fails:

norms (manhattan, chebyshev, minkowski)
    ‖y_i - y_j‖ <= U + e_i + e_j by the triangle inequality, with e = Σ|z - y|, which is above every p-norm of z - y,
    and U the scaled norm that w stands for. Powers are tested as powers. A p-norm is not below a q-norm if q >= p: for
    exponents that are no multiple of a half, and for large ones, the filter takes the next that is.
canberra
    A term is at most 1, and rounding x and y moves it by less than 12u.
braycurtis
    Numerator a and denominator b are both off by at most e_i + e_j = q: a <= w(b + q) + q.
inner_product
    Off by at most (d + 4)2u‖z_i‖‖z_j‖.

Every bound is enlarged by more roundings than there are, and by `TINY`, which is above what underflow may take. A row
whose candidates all fit into its buffer, while its bound holds, is proven; the others are compared with all points
exactly.
"""

from __future__ import annotations

from math import ceil, frexp, isfinite
from typing import Any

import numpy as np

from rapids_slink.metrics import EPSILON, OVERFLOW, Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints
from rapids_slink.neighbors.filter.bounds import SMALLEST_NORMAL, QuantizedPoints
from rapids_slink.neighbors.filter.product import SEEDS_BY_DISTANCE, TileFilter
from rapids_slink.neighbors.task import row_blocks
from rapids_slink.runtime.cuda import check_arrays, constant, launch_blocks
from rapids_slink.runtime.device import Device, half

NORMS = ("manhattan", "chebyshev", "minkowski")
#: Its p-th power is above what float32 loses to underflow.
TINY = 1e-30
MAX_HALVES = 16  # of the exponent: powers up to the eighth
MAX_DIRECT_FEATURES = 2**18  # so that d times float32's spacing stays small
UNIT = 2.0**-23  # 2u
SOURCE = "neighbors/filter/direct.cu"


def filter_formula(metric: Metric) -> tuple[str, int] | None:
    """The formula of the sums that the filter's kernels form for a metric, None if they cannot.

    One of `metrics.FORMULAS`, and twice the exponent of "minkowski", 2 for the others.
    """
    if metric.formula != "minkowski":
        return metric.formula, 2
    if metric.p < 1:
        return None
    halves = ceil(2 * metric.p)
    return ("minkowski", halves) if halves <= MAX_HALVES else ("chebyshev", 2)


def direct_filter(exact: ExactPoints, device: Device) -> DirectFilter | None:
    """The filter for some points and queries, None if their formula has none or their values are beyond it."""
    formula, points, queries = filter_formula(exact.metric), exact.points, exact.queries
    if formula is None or points.shape[1] > MAX_DIRECT_FEATURES:
        return None
    centre = device.xp.zeros(points.shape[1])
    if formula[0] in NORMS:
        centre = device.xp.median(points[:: max(1, points.shape[0] // 1024)], axis=0).astype("float64")
    both = [points] if queries is points else [points, queries]
    ranges = half(device, __package__).value_ranges(both, centre)
    largest = max(one.deviation for one in ranges)
    if not isfinite(largest):
        return None
    scale = 2.0 ** -max(frexp(largest)[1], -500)
    return DirectFilter(exact, formula, centre, scale, device)


class DirectFilter(TileFilter):
    """The filter of metrics without a product form.

    `formula` is that of `filter_formula`, and z = scale·(x - centre), with a (d,) float64 centre.
    """

    name = "float32 terms"
    first_band = 4 * SEEDS_BY_DISTANCE

    def __init__(self, exact: ExactPoints, formula: tuple[str, int], centre: Any, scale: float, device: Device) -> None:
        super().__init__(exact.points, exact.queries, exact.metric, device)
        self.exact, self.centre, self.scale = exact, centre, scale
        self.formula, self.halves = formula

    def quantize(self, values: Any, order: Any = None) -> QuantizedPoints:
        """The values of `order` (default: all), centred, scaled and rounded; the errors are the e_i of the tests."""
        xp, d = self.device.xp, self.n_features
        ids = xp.arange(len(values), dtype="int32") if order is None else order
        n = ids.size
        y, error = xp.empty((n, d), "float32"), xp.zeros(n)
        for rows in row_blocks(n, d):
            z = (values[ids[rows]].astype("float64") - self.centre) * self.scale
            y[rows] = z
            if self.formula in (*NORMS, "braycurtis"):
                moved = xp.abs(z - y[rows].astype("float64")).sum(axis=1) + d * SMALLEST_NORMAL
                error[rows] = moved * self._slack() + TINY ** (2 / self.halves)
            elif self.formula == "inner_product":
                error[rows] = ((2 * d + 16) * UNIT) ** 0.5 * xp.sqrt((z * z).sum(axis=1)) + TINY**0.5
        return QuantizedPoints(y, None, error.astype("float32"), ids)

    def radius(self, bound: Any, rows: QuantizedPoints) -> Any:
        """The thresholds of the tests, (m,) float32."""
        name, xp = self.formula, self.device.xp
        if name in NORMS:
            return (rows.error + self._norm_bound(bound) * (self.scale * self._slack())).astype("float32")
        if name == "canberra":
            return (bound * self._slack() + 16 * self.n_features * UNIT).astype("float32")
        if name == "inner_product":
            # The distance's products lose at most this to underflow; what else it rounds is in the errors.
            scaled = (bound + self.n_features * 5e-324) * self.scale * self.scale
            return (scaled + xp.abs(scaled) * (4 * UNIT) + TINY).astype("float32")
        return ((bound + 5e-324) * self._slack()).astype("float32")

    def append(self, rows: Any, points: Any, radius: Any, groups: Any, into: Candidates) -> None:
        """Append the points of a tile that pass to the rows' candidates."""
        (m, d), n = rows.y.shape, points.y.shape[0]
        check_arrays("float32", rows.y, points.y, radius, rows.error, points.error)
        check_arrays("int32", *groups, points.ids, into.ids, into.count)
        tile, threads = constant(SOURCE, "TILE"), constant(SOURCE, "THREADS")
        launch_blocks(
            SOURCE, "append_candidates", (-(-n // tile), -(-m // tile)), threads,
            rows.y, np.int64(m), points.y, np.int64(n), np.int32(d), radius, rows.error, points.error, *groups,
            points.ids, np.int32(into.capacity), into.ids, into.count,
            options=(f"-DFORMULA={self.formula}", f"-DHALVES={self.halves}"),
        )  # fmt: skip

    def _slack(self) -> float:
        return 1 + (3 * self.n_features + 16) * UNIT

    def _norm_bound(self, bound: Any) -> Any:
        """An upper bound of the true norm of pairs whose computed surrogate distance is at most `bound`.

        Its relative error is below (d + 4p)2⁻⁵³ except for powers that underflow, which is all that is left of
        the factor and of the summand under the root. `OVERFLOW` stands for any distance above it.
        """
        d, p = self.n_features, self.metric.p
        if self.metric.formula != "minkowski":
            return (bound + d * 5e-324) * (1 + (d + 8) * EPSILON)
        norm = (bound + d * 1e-300) ** (1 / p) * (1 + (d + 4 * p + 8) * EPSILON / p + 1e-12)
        return self.device.xp.where(bound < OVERFLOW, norm, np.inf)
