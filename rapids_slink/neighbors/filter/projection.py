"""Fewer coordinates than features: partial distances on principal axes, and the length of the rest.

Let P have m nearly orthonormal columns, z = Pᵀw for w = scale·(x - c) and r = ‖w - P z‖, the length of what P leaves
out. Then ‖w_i - w_j‖² >= ‖z_i - z_j‖² + (r_i - r_j)²: a test on m + 1 coordinates loses no neighbour. (Panorama, arXiv
2510.00566, has partial distances on rotated axes, too.) With PᵀP = 1 + E and ‖E‖ <= δ the right-hand side is at most
(1 + δ + δ²)‖w_i - w_j‖², since 1 - A + A² for A = PPᵀ has no larger eigenvalue: that is `stretch`.

r is computed as √(‖w‖² - ‖z‖²), which is off by at most √(δ + 2(d + 8)ε)·‖w‖ in float64, for |√a - √b| <= √|a - b|.
It is shared out to `REST` coordinates of r / √REST each, less a constant, so that it fits into bytes.

The axes need not be eigenvectors. They come from the orthogonal factor of C(CΩ), C the covariance of a sample and Ω
random: its leading columns span nearly the leading eigenvectors' space, for every m at once.

A CPU checks a pair that passes by t = Σ(x_f - y_f)², summed over all features in the precision of the values, in any
order. A difference, a square and an addition each err by a factor of at most 1 ± ε/2, ε the spacing above 1, so that
t and ‖x - y‖² differ by a factor of at most 1 + (d + 4)ε for dε <= 1/8; underflow may take d times the smallest normal
number from t, and overflow makes it infinite. So a pair within U has t <= (1 + (d + 4)ε)U² or t = ∞, and is kept.
Conversely ‖x - y‖² <= (1 + (d + 4)ε)(t + d·smallest): the first bounds, since coordinates bound from below alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Any

from rapids_slink.neighbors.filter.quantize import Scaling
from rapids_slink.neighbors.slices import BLOCK
from rapids_slink.runtime.device import Array, Device

#: Coordinates that the length of the rest is shared out to. With them there are a multiple of `STEP`.
REST, STEP = 4, 32
#: Rows of the sample of the covariance, queries, and points among which survivors are counted, of up to `BLOCK` values.
SAMPLE, QUERIES, POINTS = 4096, 128, 2**14
NEIGHBORS = 8  # of each query
#: The numbers of axes that are tried, with the rest, in steps, and their largest share of the features.
STEPS, MAX_SHARE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), 0.8
#: Fewer products cost too little for the choice to pay. Covariances whose eigenvalues are nearly equal, as tr(C)² over
#: d tr(C²) says, have no few principal axes.
MIN_PRODUCTS, MAX_FLATNESS = {"cpu": 2**36, "cuda": 2**46}, 1 / 3


@dataclass(frozen=True)
class FilterCosts:
    """What a filter takes."""

    product: float  # seconds for a product of one feature
    survivor: float  # seconds for a survivor
    byte: float  # seconds for each byte of its row
    rounding: float  # how far rounding moves a coordinate, relative to their root mean square


@dataclass(frozen=True)
class Projection:
    """The map from points to coordinates."""

    scaling: Scaling
    axes: Array  # (d, m) float64: nearly orthonormal columns
    offset: float  # what is taken from the coordinates of the rest
    departure: float  # δ
    device: Device

    @classmethod
    def of(cls, points: Array, scaling: Scaling, axes: Array, device: Device) -> Projection:
        """That on these axes."""
        xp, (d, m) = device.xp, axes.shape
        departure = float(xp.linalg.norm(axes.T @ axes - xp.eye(m))) + d * m * 2.0**-52
        centred = cls(scaling, axes, 0.0, departure, device)
        rest = centred.coordinates(points[:: _stride(len(points), d, SAMPLE)])[:, -1]
        return cls(scaling, axes, float(xp.median(rest)), departure, device)

    @property
    def stretch(self) -> float:
        """How many times as far apart as two points their coordinates may be."""
        return float((1 + self.departure + self.departure**2) ** 0.5 + 1e-12)

    @property
    def error(self) -> float:
        """How far coordinates may be from exact ones; ‖w‖ is at most 2¹⁵√d, as `Scaling` has it."""
        d = self.axes.shape[0]
        return float((self.departure + 2 * (d + 8) * 2.0**-52) ** 0.5 * 2.0**15 * d**0.5)

    def coordinates(self, values: Array) -> Array:
        """Those of some points, (n, m + `REST`) float64."""
        xp, m = self.device.xp, self.axes.shape[1]
        w = (values - self.scaling.centre) * self.scaling.scale
        z = xp.empty((len(w), m + REST))
        z[:, :m] = w @ self.axes
        rest = xp.sqrt(xp.maximum((w * w).sum(axis=1) - (z[:, :m] ** 2).sum(axis=1), 0))
        z[:, m:] = (rest / REST**0.5 - self.offset)[:, None]
        return z


def worthwhile_projection(
    points: Array, n_queries: int, scaling: Scaling, costs: FilterCosts, device: Device, within: float = inf
) -> Projection | None:
    """The projection with which testing all pairs takes the least time, or None if that is with none.

    Survivors are counted on a sample, the pairs whose partial distance, less what rounding may hide, is within the
    exact distance of a query's `NEIGHBORS`-th nearest; and on a quarter of it, which shows how their number grows. No
    distance above `within` is wanted: for a short one few axes do, whatever the covariance is.
    """
    xp, (n, d) = device.xp, points.shape
    if float(n_queries) * n * d < MIN_PRODUCTS[device.name] or d < 2 * STEP:
        return None
    sample = ((points[:: _stride(n, d, SAMPLE)] - scaling.centre) * scaling.scale).astype("float64")
    sample -= sample.mean(axis=0)
    covariance = sample.T @ sample / len(sample)
    total = float(xp.trace(covariance))
    is_flat = within == inf and total**2 > MAX_FLATNESS * d * float((covariance**2).sum())
    if not 0 < total < inf or is_flat:
        return None
    covariance /= total
    axes = xp.linalg.qr(covariance @ (covariance @ xp.random.default_rng(0).standard_normal((d, d))))[0]
    rows = ((points[:: _stride(n, d, POINTS)] - scaling.centre) * scaling.scale).astype("float32")
    z = rows @ axes.astype("float32")
    queries = z[:: max(1, len(z) // QUERIES)][:QUERIES]
    sampled = _Sample(queries, z, within * scaling.scale, xp)
    best, best_time, itemsize = d, inf, points.dtype.itemsize  # seconds of a query
    for m in [*(end for end in (STEP * s - REST for s in STEPS) if end + REST <= MAX_SHARE * d), d]:
        width = m + REST if m < d else -(-d // STEP) * STEP
        products = n * width * costs.product
        if products >= best_time:
            break
        survivors = sampled.survivors(m, costs.rounding * width**0.5, n)
        time = products + survivors * (costs.survivor + costs.byte * d * itemsize)
        if time < best_time:
            best, best_time = m, time
    return None if best == d else Projection.of(points, scaling, xp.ascontiguousarray(axes[:, :best]), device)


def _stride(n: int, d: int, rows: int) -> int:
    return max(1, n // min(rows, max(1, BLOCK // d)))


class _Sample:
    """Queries and points on all axes; the distances on the first of them grow from call to call."""

    def __init__(self, queries: Array, z: Array, within: float, xp: Any) -> None:
        self.queries, self.z, self.xp = queries, z, xp
        self.norms = [(rows * rows).sum(axis=1) for rows in (queries, z)]
        exact = self._distances(slice(None))
        self.own = xp.abs(exact) <= 1e-6 * (self.norms[0][:, None] + self.norms[1])
        self.partial, self.axes = xp.zeros_like(exact), 0
        exact[self.own] = xp.inf
        self.bounds = []  # each query's, among a quarter of the points and among all
        for some in (slice(None, None, 4), slice(None)):
            nearest = xp.partition(exact[:, some], NEIGHBORS - 1, axis=1)[:, NEIGHBORS - 1]
            self.bounds.append((some, xp.minimum(xp.sqrt(xp.maximum(nearest, 0)), within)))

    def _distances(self, axes: slice) -> Array:
        a, b = self.queries[:, axes], self.z[:, axes]
        return (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * (a @ b.T)

    def survivors(self, m: int, rounding: float, n: int) -> float:
        """How many of n points pass the test on the first m axes, about, over all bands."""
        xp = self.xp
        self.partial += self._distances(slice(self.axes, m))
        self.axes = m
        of_axes = [(rows[:, :m] ** 2).sum(axis=1) for rows in (self.queries, self.z)]
        rest = [xp.sqrt(xp.maximum(norm - part, 0)) for norm, part in zip(self.norms, of_axes, strict=True)]
        distances = self.partial + (rest[0][:, None] - rest[1]) ** 2
        slack = 2 * rounding * float(xp.sqrt(of_axes[1].mean() / m))
        counts = []
        for some, bound in self.bounds:
            within = distances[:, some] <= (bound + slack)[:, None] ** 2
            counts.append(max(1.0, float((within & ~self.own[:, some]).sum(axis=1).mean())))
        share = max(1.0, n / len(self.z))
        growth = max(0.0, log(counts[1] / counts[0], 4))
        return counts[1] * share**growth * (1 + log(share))
