"""Filters: low precision rules pairs out under a bound on its error. Where pairs are counted, it also rules pairs in.

    cpu.py        tiles of products by a CPU's BLAS, tested in memory
    cuda.py       points quantized, and first bounds, on a GPU; metrics without a product form: sums of float32 terms,
                  and the proof for each metric
    fused/        the same products tested in registers and never written, by a GPU's tensor cores

Here are the test and why it loses no neighbour: points centred, scaled and rounded, how far each was moved, principal
axes to test, and a trial of a GPU's kernels. The true distances of the proof are `Metric.true_distance_bound`. A
`TileFilter` is chosen by the metric, the points and the device. `brute_force.BruteForceSearch` re-ranks what passes.

*The test.* Let z = scale·(x - centre) and y its rounding to fp16 or float32, with ‖z_i - y_i‖ <= e_i. A pair whose
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

`accumulation_bound`, the η, is about the tensor cores that are known. Those of later generations need not be as
precise, and a filter that takes their sums for more precise than they are loses neighbours. So each kernel that forms
such products is tried by the rows of a `Trial` before a process uses it on a GPU. What fails is not used.

Projections are partial distances on principal axes, and the length of the rest. Let P have m nearly orthonormal
columns, z = Pᵀw for w = scale·(x - c) and r = ‖w - P z‖, the length of what P leaves
out. Then ‖w_i - w_j‖² >= ‖z_i - z_j‖² + (r_i - r_j)²: a test on m + 1 coordinates loses no neighbour. (Panorama, arXiv
2510.00566, has partial distances on rotated axes, too.) With PᵀP = 1 + E and ‖E‖ <= δ the right-hand side is at most
(1 + δ + δ²)‖w_i - w_j‖², since 1 - A + A² for A = PPᵀ has no larger eigenvalue: that is `stretch`.

r is computed as √(‖w‖² - ‖z‖²), which is off by at most √(δ + 2(d + 8)ε)·‖w‖ in float64, for |√a - √b| <= √|a - b|.
A GPU shares it out to `REST` coordinates of r / √REST each, less a constant, so that it fits into bytes.

The axes need not be eigenvectors. They come from the orthogonal factor of C(CΩ), C the covariance of a sample and Ω
random: its leading columns span nearly the leading eigenvectors' space, for every m at once. If a sample S has fewer
rows than features, SᵀG(GΩ) serves as well, G = SSᵀ: no matrix is larger than the sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, frexp, inf, log2
from typing import Any, NamedTuple

import numpy as np

from rapids_slink.forced import forced
from rapids_slink.metrics import EPSILON, EUCLIDEAN, Metric
from rapids_slink.neighbors.exact import Candidates, ExactPoints, Groups, same_candidates
from rapids_slink.neighbors.exact import kernels as exact_kernels
from rapids_slink.neighbors.rows import norms_are_within, product_form
from rapids_slink.neighbors.task import BLOCK_VALUES, SearchTask, equal_slices, inverse, low_discrepancy_order
from rapids_slink.runtime.device import Array, Device, half, share_true, to_host

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)
#: About how many rows the centre is computed from.
CENTRE_ROWS = 2**10
#: Squares of shorter rows lose bits to underflow, and no bound holds for what is computed from them.
SHORTEST_ROW = 1e-140
#: The largest exponent of a direct filter's sums, doubled: powers go up to the eighth.
MAX_HALVES = 16
#: The least number of points from which each row's first bound is computed.
SEED_POINTS = 2048
#: The least number of points from which first bounds are computed by surrogate distances.
SEEDS_BY_DISTANCE = 128
#: Where the rows of a k-NN graph have bounds, one in TRIED tries a sample of points. All do if more than the share
#: MIN_LOWERED of these bounds become lower.
TRIED, MIN_LOWERED = 64, 0.05
#: The least number of rows of a chunk.
MIN_ROWS = 64


@dataclass(frozen=True)
class ValueRange:
    """The range of all values of some points."""

    deviation: float  # the largest |x - centre| of any feature
    largest: float  # the largest |x|
    byte_values: bool  # all are integers from 0 to 255


@dataclass(frozen=True)
class Scaling:
    """z = scale·(x - centre), as large as keeps |z| below 2¹⁵ and ‖z‖²/2 below 2³⁰, which suits fp16."""

    centre: Array  # (d,) float64 array
    scale: float  # a power of two
    byte_values: bool = False  # all values are integers from 0 to 255
    bits: int = 8  # that the largest of these integers has, from 1 to 8


@dataclass(frozen=True)
class QuantizedPoints:
    """Points as the filter's kernels read them."""

    #: (n, d) float32 or, padded with zeros to a multiple of eight features, fp16; or an image of fp16 or int8, see
    #: `fused/pass.cuh`
    y: Array
    half_norm: Array  # (n,) float32, int32 of an int8 image; see above. None for direct filters without products
    error: Array  # (n,) float32; see above and `cuda`
    ids: Array = None  # (n,) int32, which rows of the values these are; None of an image

    def take(self, rows: Any) -> QuantizedPoints:
        """Return some of the rows, which an index array or a slice selects."""
        half_norm = None if self.half_norm is None else self.half_norm[rows]
        ids = None if self.ids is None else self.ids[rows]
        return QuantizedPoints(self.y[rows], half_norm, self.error[rows], ids)


FLOAT32_EPSILON = 2.0**-23  # float32's spacing above 1
SMALLEST_NORMAL = 2.0**-126  # float32's smallest normal number
SLACK = 8  # what is added for roundings, in units of float32's spacing
#: 1 over √2, rounded up for the test.
ROUND_UP = 0.5**0.5 * (1 + SLACK * FLOAT32_EPSILON)
#: Its square is above what a sum of products may lose to underflow in float32; it is negligible against |y|.
TINY = 1e-15
#: It is above what half a squared distance may lose to underflow in float32.
ABSOLUTE_SLACK = 2.0**-19
#: With more, the error of a sum may be as large as the sum, and the filter proves nothing.
MAX_FEATURES = 2**20


def accumulation_bound(n_features: int) -> float:
    """Return η with |computed x·y - x·y| <= η ‖x‖ ‖y‖ for a matrix product that accumulates in float32.

    Products of the operands are exact or rounded once. A tensor core adds b >= 4 products to its accumulator at a time,
    each addend cut to float32's precision at the largest one's exponent (Fasi et al., "Numerical behavior of NVIDIA
    tensor cores", 2021), so d/b steps err by at most (b + 1)ε each: 1.25 dε in all, relative to the sum of |x_f y_f|,
    which is at most ‖x‖‖y‖. Plain and fused summation in any order stay below dε. The 16 covers what a library may add
    when it splits the sum into parts. A GPU's kernels are tried before their first products: see `Trial`.
    """
    return (1.25 * n_features + 16) * FLOAT32_EPSILON


def shrink_factor(n_features: int) -> float:
    """Return the factor that squared norms are multiplied by, so that the test allows for the product's error."""
    return 1 - 2 * accumulation_bound(n_features) - SLACK * FLOAT32_EPSILON - n_features * EPSILON


def filter_radius(
    surrogate: Array, error: Array, scale: float, n_features: int, xp: Any, metric: Metric = EUCLIDEAN
) -> Array:
    """Return the filter radius, float32, of rows with the given `error` and the distance bound `surrogate`."""
    radius = scale * metric.true_distance_bound(surrogate, xp, *metric.rounding_terms(n_features)) * ROUND_UP + TINY
    return (error + radius).astype("float32")


def radius_terms(n_features: int, scale: float, metric: Metric) -> tuple[float, ...]:
    """Return the parameters of `filter_radius`, in the order of radius.cuh."""
    return tuple(map(float, (*metric.rounding_terms(n_features), scale, ROUND_UP, TINY)))


class UpperBound(NamedTuple):
    """The converse of the test: upper bounds of surrogate distances by products in float32; as in upper_bound.cuh."""

    #: half a squared distance exceeds `half` by at most norm_slack·(h_i + h_j) + absolute_slack
    norm_slack: float
    absolute_slack: float
    #: √2 over the scale: errors are divided by √2, and half a squared distance is what is known
    inverse_scale: float
    #: `more`, `factor` and `error`: those of `Metric.surrogate_bound_terms`
    more: float
    factor: float
    error: float

    @classmethod
    def of(cls, n_features: int, scale: float, metric: Metric) -> UpperBound:
        """Return the bound for points with this number of features.

        A norm is n <= 2h/r with r = `shrink_factor`, and the sum is off by up to ηn for either point. A filter whose
        product subtracts the norms may subtract ηh too little. So a half norm lacks at most h(1 + 2η)/r - h(1 - η). All
        of this needs a positive r.
        """
        width = -(-n_features // 8) * 8
        eta, slack = accumulation_bound(width), SLACK * FLOAT32_EPSILON
        norm_slack = (1 + slack) / shrink_factor(width) * (1 + 2 * eta) - (1 - eta) + slack
        more, factor, error = metric.surrogate_bound_terms(n_features)
        return cls(float(norm_slack), ABSOLUTE_SLACK, float(2**0.5 / scale), more, factor, error)


def sure_radius(surrogate: float, n_features: int, scale: float, metric: Metric) -> tuple[np.float32, np.float32]:
    """Return the radius in which a product proves a surrogate distance of at most `surrogate`, and the norms' slack.

    By the converse a pair is surely within if

        half + norm_slack·(h_i + h_j) + ABSOLUTE_SLACK <= (radius - e_i - e_j)²

    with positive radius - e_i - e_j: then D = ‖y_i - y_j‖ + √2(e_i + e_j), unscaled, is at most √2 radius / scale, with
    which `Metric.surrogate_bound_terms` gives no more than `surrogate`. Every operation of the test in float32 errs by
    at most 2⁻²⁴ of its result. So q = radius - e_i - e_j is off by less than 2⁻²² radius, which the radius leaves out
    in advance, and the sides by less than 8·2⁻²⁴ of the half norms and 4·2⁻²⁴ of q². Both slacks have more. The radius
    is negative, and nothing sure, if no such distance is at most `surrogate`.
    """
    bound = UpperBound.of(n_features, scale, metric)
    square = (surrogate - bound.error) / bound.factor
    if not 0 < square < inf:
        return np.float32(-1), np.float32(0)
    distance = square**0.5 * (1 - 2.0**-40) - bound.more
    radius = min(distance / bound.inverse_scale * (1 - 2.0**-20), LONGEST_RADIUS)
    return np.float32(radius), np.float32(bound.norm_slack + 2.0**-20)


#: An upper bound of the scaled distance of two points: half a squared length is below 2³⁰.
LONGEST_RADIUS = 2.0**17
#: A product that is added to this number's square loses all that is below the square's spacing, if addends are cut.
LARGE = 2.0**12
#: The small products, about, in units of that spacing. Where sums have one bit less than float32, the second and
#: later ones lose more than the bound allows.
SPACINGS = 1, 2, 4, 8
N_RANDOM = 8


def revealing_pairs(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows x and y of d features, (m, d) float32 that fp16 holds, whose products x_i·y_i lose much.

    In the first pairs all products are positive and have all their bits: each addition is cut, and always downwards
    where it is not rounded. In the others one product is much larger than the rest: it comes first, last, or first and
    with the other sign last.
    """
    random = np.random.default_rng(0).integers(2**10, 2**11, (2, N_RANDOM, d)) / 2**10
    x, y = [random[0]], [random[1]]
    for spacings in SPACINGS:
        small, factor = np.full((3, d), 1 - 2.0**-10), np.full((3, d), 2.0 * spacings)
        for row, end in ((0, 0), (1, -1), (2, 0), (2, -1)):
            small[row, end] = factor[row, end] = LARGE
        factor[2, -1] = -LARGE
        x.append(small)
        y.append(factor)
    return np.concatenate(x).astype(np.float32), np.concatenate(y).astype(np.float32)


def allowed_range(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest x_i·y_i that `accumulation_bound` allows, (m,) float32 each."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    exact, lengths = (x * y).sum(axis=1), np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    error = accumulation_bound(x.shape[1]) * lengths
    return (exact - error).astype(np.float32), (exact + error).astype(np.float32)


class Trial:
    """A trial of a kernel that keeps the points whose products with a row are at least the row's threshold.

    Nobody sees those products. So each row comes twice: with its own point it must pass at the least value that is
    allowed, and must not pass above the largest.
    """

    rows: np.ndarray  # (2m, d) float32
    points: np.ndarray  # (m, d) float32, of which row i has the one of number i modulo m
    thresholds: np.ndarray  # (2m,) float32

    def __init__(self, d: int) -> None:
        x, self.points = revealing_pairs(d)
        least, largest = allowed_range(x, self.points)
        self.rows = np.concatenate((x, x))
        self.thresholds = np.concatenate((least, np.nextafter(largest, np.float32(np.inf))))

    def padded_thresholds(self, rows: int) -> np.ndarray:
        """Return `rows` thresholds: those beyond the trial's own rows are infinite, and nothing passes them."""
        return np.pad(self.thresholds, (0, rows - len(self.rows)), constant_values=np.inf)

    def is_passed(self, ids: np.ndarray, count: np.ndarray) -> bool:
        """Return whether the kernel is as precise as assumed.

        `ids` are the points that each row kept, (2m, capacity), and `count` is how many of these there are, (2m,).
        """
        m = len(self.points)
        own = (ids == np.tile(np.arange(m), 2)[:, None]) & (np.arange(ids.shape[1]) < count[:, None])
        passes = own.any(axis=1)
        return bool(passes[:m].all() and not passes[m:].any())


REST = 4  # the coordinates over which a GPU spreads the length of the rest
SAMPLE = 4096  # rows for which the length of the rest is computed


@dataclass(frozen=True)
class PrincipalAxes:
    """The map from points to their coordinates on principal axes."""

    scaling: Scaling
    axes: Array  # (d, m) float64: nearly orthonormal columns
    offset: float  # what is subtracted from the coordinates of the rest
    departure: float  # δ
    device: Device
    rest: int = REST

    @classmethod
    def of(cls, points: Array, scaling: Scaling, axes: Array, device: Device, rest: int = REST) -> PrincipalAxes:
        """Return the projection onto these axes."""
        xp, (d, m) = device.xp, axes.shape
        departure = float(xp.linalg.norm(axes.T @ axes - xp.eye(m))) + d * m * 2.0**-52
        centred = cls(scaling, axes, 0.0, departure, device, rest)
        length = centred.coordinates(points[:: sample_stride(len(points), d, SAMPLE)])[:, -1]
        return replace(centred, offset=float(np.median(to_host(length))))

    @property
    def stretch(self) -> float:
        """Return by which factor two points' coordinates may be farther apart than the points."""
        return float((1 + self.departure + self.departure**2) ** 0.5 + 1e-12)

    @property
    def error(self) -> float:
        """Return how far coordinates may be from exact ones; ‖w‖ is at most 2¹⁵√d, as `Scaling` has it."""
        d = self.axes.shape[0]
        return float((self.departure + 2 * (d + 8) * 2.0**-52) ** 0.5 * 2.0**15 * d**0.5)

    def coordinates(self, values: Array) -> Array:
        """Project points to (n, m + `rest`) float64 coordinates."""
        xp, m = self.device.xp, self.axes.shape[1]
        w = (values - self.scaling.centre) * self.scaling.scale
        z = xp.empty((len(w), m + self.rest))
        z[:, :m] = w @ self.axes
        length = xp.sqrt(xp.maximum((w * w).sum(axis=1) - (z[:, :m] ** 2).sum(axis=1), 0))
        z[:, m:] = (length / self.rest**0.5 - self.offset)[:, None]
        return z


def sample_stride(n: int, d: int, rows: int) -> int:
    """Return how far apart the rows of a sample are, of n rows with up to `BLOCK_VALUES` values in all."""
    return max(1, n // min(rows, max(1, BLOCK_VALUES // d)))


def choose_filter(exact: ExactPoints, device: Device, max_weight: float = inf, listed: int = 0) -> TileFilter | None:
    """Return the filter for some points and queries, or None; its `exact` are these in the type re-ranked fastest.

    It is None if a filter could prove nothing for these values, if the metric or the GPU has none, or if computing the
    distances takes as little time: on a CPU, for bits and codes. The caller wants no surrogate distance above
    `max_weight`, and lists of `listed` neighbours, or 0 if most lists end before.
    """
    metric, device_kernels = exact.metric, kernels(device)
    if forced().filter == "none":
        return None
    if exact.points.dtype == "uint64" or metric.filter == "direct":
        return device_kernels.filter_of_sums(exact) if device.is_gpu else None
    if metric.filter in ("bits", "codes", "none"):
        return None
    if not all(serves_products(rows, metric, device) for rows in (exact.points, exact.queries)):
        return None
    points = product_form(exact.points, metric)
    queries = points if exact.queries is exact.points else product_form(exact.queries, metric)
    scaling = scaling_of(*([points] if queries is points else [points, queries]), device=device)
    within = float(metric.true_distance_bound(np.float64(max_weight), np, *metric.rounding_terms(points.shape[1])))
    chosen: TileFilter = device_kernels.filter_of_products(points, queries, exact, scaling, within, listed)
    return chosen


def serves_products(rows: Array, metric: Metric, device: Device) -> bool:
    """Return whether products of low precision prove something of such rows; the metric has a product form."""
    d = rows.shape[1]
    if d > MAX_FEATURES or (device.is_gpu and not kernels(device).serves(d)):
        return False
    return not metric.formula.is_of_unit_rows or norms_are_within(rows, SHORTEST_ROW, inf)


def scaling_of(*point_sets: Any, device: Device) -> Scaling:
    """Return the scaling of one or several arrays of points; its centre is that of the first array."""
    centre = kernels(device).centre_of_rows(point_sets[0], max(1, len(point_sets[0]) // CENTRE_ROWS))
    ranges = kernels(device).value_ranges(point_sets, centre)
    deviation = max(one.deviation for one in ranges)
    headroom = min(15, int((31 - log2(point_sets[0].shape[1])) // 2))
    exponent = frexp(deviation)[1] if deviation > 0 else headroom
    # Beyond these the absolute errors of subnormal numbers, scaled, would leave the range of float32 once squared.
    max_exponent = 180 if any(points.dtype == "float32" for points in point_sets) else 590
    byte_values = all(one.byte_values for one in ranges)
    bits = min(8, max(1, frexp(max(one.largest for one in ranges))[1]))
    return Scaling(centre, float(2.0 ** min(headroom - exponent, max_exponent)), byte_values, bits)


def filter_formula(metric: Metric) -> tuple[str, int] | None:
    """Return the formula of the sums that a direct filter's kernels form for a metric; None if they cannot.

    The result is one of `metrics.FORMULAS`, and twice the exponent of "minkowski", or 2 for the others.
    """
    if not metric.formula.has_powers:
        return metric.formula, 2
    if metric.p < 1:
        return None
    halves = ceil(2 * metric.p)
    return ("minkowski", halves) if halves <= MAX_HALVES else ("chebyshev", 2)


class TileFilter:
    """A filter that tests rows and points in tiles; subclasses have the methods below `candidates`.

    `points`, (n, d), and `queries`, (m, d), are as the filter reads them, maybe the same array, and `exact` has both as
    they are re-ranked.
    """

    name = ""  # for reports
    #: The end of the first band of points, the factor by which each further band extends it, and how many times
    #: `candidate_capacity` a row has room for in a band.
    first_band, growth, room = 2048, 4, 1
    max_rows: int  # the most rows of a chunk, and the most candidates for which it has room
    max_candidates = 2**62
    is_of_products = False  # whether it is a `ProductFilter`, whose points have a scaling
    is_symmetric = False  # whether it is an `ImageFilter`, which can test each pair once for both its points
    order: Array  # int32, the points that it tests, as they are arranged
    far: Array = None  # int32, the points that it does not test: candidates of every row

    def __init__(self, points: Array, queries: Array, exact: ExactPoints, device: Device, scaling: Any = None) -> None:
        self.points, self.queries, self.exact, self.device = points, queries, exact, device
        self.metric, self.scaling = exact.metric, scaling
        self.has_exact_products = scaling is not None and scaling.byte_values  # whether rounding moves no point
        self.n_features = points.shape[1]
        self.kernels = kernels(device)
        self.exact_kernels = exact_kernels(device)
        self.quantized_points: Any = None
        self.quantized_queries: Any = None

    def arrange(self, order: Array = None) -> None:
        """Put the points into this order, an (n,) int32 array, and quantize them.

        By default each leading part of the order is spread evenly over the points. Rows that are the points themselves
        are found through its inverse.
        """
        xp = self.device.xp
        self.order = order = low_discrepancy_order(len(self.points), xp) if order is None else order
        self.quantized_points = self.quantized_queries = None  # released before the next are made
        self.quantized_points = self.quantized_queries = self.quantize(self.points, order)
        self.position = inverse(order, xp)
        if self.queries is not self.points:
            self.quantized_queries = self.quantize(self.queries)
            self.position = xp.arange(self.queries.shape[0], dtype="int32")

    def arrange_parts(self, bound: Array, split: int) -> bool:
        """Arrange the points before `split`, then the others; return False if that cannot be.

        Each part is arranged as `arrange` does by default. `bound` is (n,) float64: the points' bounds, by which some
        filters sort.
        """
        xp = self.device.xp
        first, second = (low_discrepancy_order(size, xp) for size in (split, bound.size - split))
        self.arrange(xp.concatenate((first, second + xp.int32(split))))
        return True

    def query(self, rows: Array) -> Any:
        """Return the rows in the form that `candidates` takes."""
        return self.quantized_queries.take(self.position[rows])

    def by_band(
        self, task: SearchTask, rows: Array, groups: Groups, bound: Array, bands: list[slice], capacity: int | None
    ) -> Iterator[Candidates]:
        """Yield the candidates of some rows from each band of points, then the far points; see `candidates`.

        The caller may tighten the bounds between two bands.
        """
        queries = self.query(rows)
        for band in bands:
            yield self.candidates(queries, band, bound, groups, task, capacity)
        if self.far is not None and self.far.size:
            yield same_candidates(self.far, rows.size, self.device)

    def candidates(
        self, rows: Any, band: slice, bound: Array, groups: Groups, task: SearchTask, capacity: int | None = None
    ) -> Candidates:
        """Return each row's candidates among the points of a band of the order.

        The rows are those that `query` returned. The caller wants no surrogate distance above a row's `bound`, (m,)
        float64. The groups, (m,) and (n,) int32, are the exclusion ids of the rows and, by id, of the points: pairs of
        one may be left out. A row has room for `capacity` candidates, by default for `room` times `candidate_capacity`.
        """
        radius = self.radius(bound, rows)
        candidates: Candidates = self.exact_kernels.new_candidates(bound.size, task.k, capacity)
        for tile in equal_slices(band, self.kernels.TILE_POINTS):
            self.append(rows, self.quantized_points.take(tile), radius, groups, candidates)
        return candidates

    def quantize(self, values: Array, order: Array = None) -> Any:
        """Return the values of `order` (default: all) in the form that the filter's kernels read."""
        raise NotImplementedError

    def radius(self, bound: Array, rows: Any) -> Any:
        """Return the radii that the test takes for rows with these bounds."""
        raise NotImplementedError

    def append(self, rows: Any, points: Any, radius: Any, groups: Groups, into: Candidates) -> None:
        """Append the points of a tile that pass to the rows' candidates."""
        raise NotImplementedError

    def first_bounds(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> bool:
        """Tighten the bounds by a sample of points: infinite ones and, for a k-NN graph, all if many become lower.

        Returns whether all rows have tried the sample.
        """
        all_rows = task.upper is None
        if task.is_knn_graph and task.upper is not None:
            tried = bound[::TRIED].copy()
            self.seed(task, rows[::TRIED].copy(), tried, most_rows)
            all_rows = share_true(tried < bound[::TRIED]) > MIN_LOWERED
        if all_rows:
            self.seed(task, rows, bound, most_rows)
        elif (unbounded := self.exact_kernels.flatnonzero(bound == inf)).size:
            some = bound[unbounded]
            self.seed(task, rows[unbounded], some, most_rows)
            bound[unbounded] = some
        return all_rows

    def seed(self, task: SearchTask, rows: Array, bound: Array, most_rows: int) -> None:
        """Tighten the rows' bounds by a sample of points, at most `most_rows` at a time.

        The default measures surrogate distances.
        """
        self.seed_by_distances(task, rows, bound, self.order[: max(SEEDS_BY_DISTANCE, 2 * task.k)])

    def seed_by_distances(self, task: SearchTask, rows: Array, bound: Array, sample: Array) -> None:
        """Tighten the rows' bounds by their surrogate distances to the points `sample`; see `seed`."""
        top, groups = self.exact_kernels.empty_lists(rows.size, task.k), (task.groups(rows), task.point_group)
        candidates = same_candidates(sample, rows.size, self.device)
        self.exact_kernels.rerank(self.exact, rows, candidates, groups, bound, top, task.core)

    def finer(self) -> TileFilter | None:
        """Return a more precise filter for rows that this one leaves unproven; None if there is none."""
        return None


class ProductFilter(TileFilter):
    """The filter of metrics with a product form; points and queries are unit rows for cosine and correlation."""

    is_of_products = True
    scaling: Scaling


def n_seeds(n: int, k: int) -> int:
    """Return how many of n points the first bounds come from."""
    return min(n, max(SEED_POINTS, 32 * k))
