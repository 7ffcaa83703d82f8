"""The direct filter: the kernel's value itself, of points rounded to float32, in tiles of rows and columns.

Let z be a row's features, scaled by a power of two so that |z| <= 1, and centred where only differences count; y is z
in float32. With u = 2⁻²⁴ a float32 sum of d terms that are not negative is off by less than a factor of 1 ± (d + 1)u.
The terms and the tests that no pair of a value up to w fails:

norms (absolutes, largest, powers)
    ‖y_i - y_j‖ <= U + e_i + e_j by the triangle inequality, with e = Σ|z - y|, which is above every p-norm of z - y,
    and U the scaled norm that w stands for. Powers are tested as powers. A p-norm is not below a q-norm if q >= p: for
    exponents that are no multiple of a half, and for large ones, the filter takes the next that is easy.
canberra
    A term is at most 1, and rounding x and y moves it by less than 12u.
mismatches, jaccard
    Rounding makes numbers equal, never different, and counts are exact.
braycurtis
    Numerator a and denominator b are both off by at most e_i + e_j = q: a <= w(b + q) + q.
inner_product
    Off by at most (d + 4)2u‖z_i‖‖z_j‖.

Every bound is enlarged by more roundings than there are, and by `TINY`, which is above what underflow may take. A row
whose candidates all fit into its buffer, while its bound holds, is proven; the others are compared with all columns
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from math import ceil, frexp, isfinite
from typing import Any

import numpy as np

from rapids_slink.device import Device
from rapids_slink.memory import Need
from rapids_slink.metrics import BEYOND, EPSILON, Metric
from rapids_slink.neighbors.operand import blocks
from rapids_slink.neighbors.tiles import TileSearch

NORMS = ("absolutes", "largest", "powers")
#: Its p-th power is above what float32 loses to underflow.
TINY = 1e-30
SMALLEST_NORMAL = 2.0**-126
MOST_HALVES = 16  # of the exponent: powers up to the eighth
MOST_FEATURES = 2**18  # so that d times float32's spacing stays small
SAMPLE = 128  # columns, at least, that give each row its first bound
UNIT = EPSILON["float32"]  # 2u


@dataclass(frozen=True)
class Form:
    """What the filter's kernels sum.

    Attributes
    ----------
    kernel : str
        One of `metrics.KERNELS`.
    halves : int
        Twice the exponent of "powers"; 2 for the others.
    """

    kernel: str
    halves: int = 2

    @classmethod
    def of(cls, metric: Metric) -> Form | None:
        """The form of a metric, None if it has none."""
        if metric.kernel != "powers":
            return cls(metric.kernel)
        if metric.p < 1:
            return None
        halves = ceil(2 * metric.p)
        return cls("powers", halves) if halves <= MOST_HALVES else cls("largest")

    @property
    def tiny(self) -> float:
        """See `TINY`."""
        return TINY ** (2 / self.halves)


@dataclass(frozen=True)
class DirectOperand:
    """Points as the filter reads them: `y` (n, d) float32 and `error` (n,) float32, what the tests say of a row."""

    y: Any
    error: Any

    def take(self, at: Any) -> DirectOperand:
        """The rows `at` (an index array or a slice)."""
        return DirectOperand(self.y[at], self.error[at])


def all_pairs_search(metric: Metric) -> type[TileSearch]:
    """The search that looks at all pairs with the metric's filter."""
    return TileSearch if metric.filter == "product" else DirectSearch


class DirectSearch(TileSearch):
    """`TileSearch` with the direct filter."""

    tiers = ("filter",)
    first_band = 4 * SAMPLE

    @property
    def name(self) -> str:
        """The filter's, for reports."""
        return "float32 terms"

    @property
    def tests_pairs(self) -> bool:
        """There is no product to test."""
        return False

    @staticmethod
    def need(n: int, m: int, d: int, k: int, itemsize: int, device: Device) -> Need:
        """As of a `TileSearch`, with operands of four bytes a feature."""
        found = TileSearch.need(n, m, d, k, itemsize, device)
        operands = 4 * d * (n + (m if m != n else 0))
        return replace(found, peak=found.peak + operands, kept=found.kept + operands, wanted=0)

    def _prepare_filter(self, fused: bool) -> bool:
        self.points, self.query_points = self.values, self.queries
        form, xp = Form.of(self.metric), self.device.xp
        if form is None or self.features > MOST_FEATURES:
            return False
        self.form = form
        self.tiles = import_module(f"rapids_slink.neighbors.direct_{self.device.name}")
        self.centre = xp.zeros(self.features)
        if form.kernel in NORMS:
            sample = self.points[:: max(1, self.points.shape[0] // 1024)]
            self.centre = xp.median(sample, axis=0).astype("float64")
        both = [self.points] if self.query_points is self.points else [self.points, self.query_points]
        extents = self.kernels.extents(both, self.centre)
        largest = max(extent.moved for extent in extents)
        self.scale = 2.0 ** -max(frexp(largest)[1], -500) if isfinite(largest) and form.kernel != "mismatches" else 1.0
        return isfinite(largest)

    def _pack(self, points: Any, order: Any = None) -> DirectOperand:
        xp, d = self.device.xp, self.features
        n = points.shape[0] if order is None else order.size
        y, error = xp.empty((n, d), "float32"), xp.zeros(n)
        for at in blocks(n, d):
            z = ((points[at] if order is None else points[order[at]]).astype("float64") - self.centre) * self.scale
            with np.errstate(over="ignore", under="ignore"):  # mismatches: beyond float32 all numbers are equal
                y[at] = z
            if self.form.kernel in (*NORMS, "braycurtis"):
                moved = xp.abs(z - y[at].astype("float64")).sum(axis=1) + d * SMALLEST_NORMAL
                error[at] = moved * self._slack() + self.form.tiny
            elif self.form.kernel == "inner_product":
                error[at] = ((2 * d + 16) * UNIT) ** 0.5 * xp.sqrt((z * z).sum(axis=1)) + TINY**0.5
            elif self.form.kernel == "jaccard":
                error[at] = TINY
        return DirectOperand(y, error.astype("float32"))

    def _slack(self) -> float:
        return 1 + (3 * self.features + 16) * UNIT

    def _reach(self, bound: Any, error: Any) -> Any:
        kernel = self.form.kernel
        with np.errstate(over="ignore", under="ignore"):
            if kernel in NORMS:
                return (error + self._norm_above(bound) * (self.scale * self._slack())).astype("float32")
            if kernel == "canberra":
                return (bound * self._slack() + 16 * self.features * UNIT).astype("float32")
            if kernel == "inner_product":
                # The value's products lose at most this to underflow; what else it rounds is in the errors.
                scaled = (bound + self.features * 5e-324) * self.scale * self.scale
                return (scaled + self.device.xp.abs(scaled) * (4 * UNIT) + TINY).astype("float32")
            return ((bound + 5e-324) * self._slack()).astype("float32")

    def _norm_above(self, bound: Any) -> Any:
        """An upper bound of the true norm of pairs whose computed kernel value is at most `bound`.

        The value's relative error is below (d + 4p)2⁻⁵³ but for powers that underflow, which is all that is left of
        the factor and of the summand under the root. `BEYOND` stands for any value above it.
        """
        d, p = self.features, self.metric.p
        if self.metric.kernel != "powers":
            return (bound + d * 5e-324) * (1 + (d + 8) * EPSILON["float64"])
        norm = (bound + d * 1e-300) ** (1 / p) * (1 + (d + 4 * p + 8) * EPSILON["float64"] / p + 1e-12)
        return self.device.xp.where(bound < BEYOND, norm, np.inf)

    def _keep(self, rows: Any, columns: Any, radius: Any, *groups_ids_into: Any) -> None:
        self.tiles.keep(self.form, rows, columns, radius, *groups_ids_into)

    def _seed(self, task: Any, rows: Any, group: Any, bound: Any) -> None:
        """Lower the rows' bounds by their exact values with a sample of the columns."""
        xp, kernels = self.device.xp, self.kernels
        sample = self.order[: max(SAMPLE, 2 * task.k)]
        ids = xp.where(task.column_group[sample] != group[:, None], sample, xp.int32(-1))
        likely = kernels.Candidates(ids, xp.full(rows.size, sample.size, "int32"))
        top = kernels.new_lists(rows.size, task.k)
        self._rerank(rows, likely, (group, task.column_group), bound, top, task.core)
