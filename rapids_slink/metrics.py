"""The metrics: one table for the kernels, the searches, the documentation and the tests.

Inside the pipeline the weight of an edge is the *surrogate distance* of its two rows x and y, the value of the metric's
formula. It is computed in float64 from its definition, term by term in the order of the features and without fused
multiply-add, with the same bits on either device. At the end `distances` converts it to the distance that is reported.

============== ================================ =============== ======== =====
metric         surrogate distance               distance        filter   boxes
============== ================================ =============== ======== =====
euclidean      Σ (x - y)²                       its root        product  yes
sqeuclidean    Σ (x - y)²                       the same        product  yes
cosine         1 - x·y / (‖x‖ ‖y‖)              the same        product  no
correlation    cosine's, of x - mean, y - mean  the same        product  no
cityblock      Σ |x - y|                        the same        direct   yes
chebyshev      max |x - y|                      the same        direct   yes
minkowski      Σ |x - y|ᵖ                       its p-th root   direct   yes
canberra       Σ |x - y| / (|x| + |y|)          the same        direct   no
braycurtis     Σ |x - y| / Σ |x + y|            the same        direct   no
hamming        Σ [x ≠ y]                        over d          codes    no
rogerstanimoto Σ [x ≠ y] = s                    2s / (d + s)    bits     no
jaccard        Σ [x ≠ y] / Σ [x or y]           the same        bits     no
dice           Σ [x ≠ y] / Σ (x + y)            the same        bits     no
containment    1 - Σ xy / min(Σ x, Σ y)         the same        bits     no
bit_hamming    hamming's of the bits            over 8d         bits     no
bit_jaccard    jaccard's of the bits            the same        bits     no
inner_product  -x·y                             the same        direct   no
haversine      Σ (u - v)² on the unit sphere    the angle       product  yes
============== ================================ =============== ======== =====

These are SciPy's definitions, with the bits of its `pdist` (SciPy 1.17 on x86-64), except for containment, which SciPy
lacks, and minkowski: for p >= 1 it agrees with a library's powers to within 4 units in the last place. A dot product
sums the even and the odd features separately, adds the two sums, and adds the last feature if the number of features is
odd. minkowski takes any p > 0; 1, 2 and infinity make it cityblock, euclidean and chebyshev.

Two metrics compare strings, whose characters are code points: levenshtein, the least number of characters to insert,
delete or replace, and string_hamming, the number of positions at which equally long strings differ, else infinite.
See items/strings.py.

For rows with missing values, and for boxes that repeat, see settings.py.

How to add a metric, step by step, is in CONTRIBUTING.md.

The rows of bit_hamming and bit_jaccard are uint8, each of eight bits, as `numpy.packbits` makes them.

inner_product is no metric: it may be negative, and a row need not be nearest to itself. Its tree is the maximum
spanning tree of the rows' dot products.

haversine takes latitude and longitude in radians. Pairs are compared by their chord on the unit sphere, which grows
with the angle. The angle itself is computed by the haversine formula for the pairs that are reported, and for each row
and the neighbour that its core distance is of. So rounding may decide between two angles that differ by less than about
1e-15 radians (6 nm on the Earth).

Filters rule pairs out before the surrogate distance is computed; they report none. A CPU has the product filter alone.

- product: ‖x - y‖² = ‖x‖² + ‖y‖² - 2x·y, of unit rows for cosine and correlation; `Metric.rounding_terms` bounds its
  error, and neighbors/filter/__init__.py proves that no neighbour is lost.
- direct: the formula itself in float32, with a bound on its error; see neighbors/filter/cuda.py.
- bits: counts of common ones (neighbors/filter/fused/counts.cu). codes: a GPU stores all distances (neighbors/matrix/).

Boxes: in few dimensions, the formula of the gaps between a point and a box is a lower bound for the points inside.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from math import factorial
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from rapids_slink.report import did_you_mean
from rapids_slink.runtime.cuda import launch
from rapids_slink.runtime.device import CPU, Array, Device, to_host
from rapids_slink.runtime.threads import for_each_chunk

#: A value that replaces all values beyond float64's range. It comes after all others and is a valid weight.
OVERFLOW = float(np.finfo(np.float64).max)
#: The largest root of a sum of squares such that two of these sums add up to less than float64's maximum.
LARGEST_DISTANCE = 1e154
#: The spacing of float64 numbers above 1.
EPSILON = 2.0**-52
#: Rounding takes a smaller share of a distance or its powers than ROUNDING, and underflow less than SMALLEST_NORMAL.
ROUNDING, SMALLEST_NORMAL = 1e-9, 2.3e-308
#: The most members of two sets together for which a distance tells of which fraction it is.
MAX_MEMBERS = 2**26
#: The number of features in a word of bits.
WORD_BITS = 64


def word_count(n_features: int) -> int:
    """Return the number of values in a row of words; the last value is the row's number of ones."""
    return -(-n_features // WORD_BITS) + 1


class Formula(StrEnum):
    """The formula of a surrogate distance, and what other modules have to know of it.

    The numbers of formulas in the CPU's kernels are in this order. `formulas.cuh` has a struct for each; jaccard and
    containment are of bits alone. SPATIAL stands for others in a space; see settings.py. GIVEN stands for distances in
    place of points, ITEMS for rows that have no coordinates.
    """

    SQUARED_EUCLIDEAN = "squared_euclidean"
    MANHATTAN = "manhattan"
    CHEBYSHEV = "chebyshev"
    MINKOWSKI = "minkowski"
    CANBERRA = "canberra"
    BRAYCURTIS = "braycurtis"
    HAMMING = "hamming"
    JACCARD = "jaccard"
    CONTAINMENT = "containment"
    COSINE = "cosine"
    INNER_PRODUCT = "inner_product"
    PRESENT_SQUARED_EUCLIDEAN = "present_squared_euclidean"
    PRESENT_MANHATTAN = "present_manhattan"
    PRESENT_HAMMING = "present_hamming"
    HIERCC = "hiercc"
    SPATIAL = "spatial"
    GIVEN = "given"
    ITEMS = "items"

    def __init__(self, name: str) -> None:
        #: whether it asks only which values differ
        self.compares_for_equality = name in ("hamming", "present_hamming", "hiercc")
        #: whether it applies one operation to the difference of two values of one feature
        self.is_one_operation = name in ("squared_euclidean", "manhattan", "chebyshev")
        #: whether it needs only counts of rows of zeros and ones: |a∩b|, |a| and |b|; for cosine only on a CPU
        self.is_of_counts = name in (
            "squared_euclidean", "manhattan", "braycurtis", "hamming", "jaccard", "containment", "cosine",
        )  # fmt: skip
        #: whether it is a function of the distance of the rows divided by their norms, which follow the features
        self.is_of_unit_rows = name == "cosine"
        #: whether its value for equal rows is the least value
        self.has_equal_rows_first = name not in ("inner_product", "given")
        #: whether two rows of zeros have no distance; its value is `OVERFLOW` for them
        self.is_undefined_for_zeros = name in ("braycurtis", "containment")
        #: whether a row of zeros has no distance from any row
        self.is_undefined_for_zero = name == "containment"
        #: whether two rows without a common feature have no distance; its value is `OVERFLOW` for them
        self.is_undefined_without_common = name in (
            "present_squared_euclidean", "present_manhattan", "present_hamming",
        )  # fmt: skip
        #: whether it is a product, whose only bound is that of the squares
        self.is_product = name == "inner_product"
        #: whether it is a sum of powers, to any exponent
        self.has_powers = name == "minkowski"
        #: whether its values are whole numbers, up to the number of features
        self.is_whole = name in ("hamming", "hiercc")

    def largest_span(self, n_features: int) -> float:
        """Return the largest difference of a feature's values for which all surrogate distances are finite."""
        if self.compares_for_equality:
            return math.inf
        if self in (Formula.MANHATTAN, Formula.CHEBYSHEV, Formula.PRESENT_MANHATTAN):
            return OVERFLOW / (4 * n_features)
        return LARGEST_DISTANCE / n_features**0.5


FORMULAS = tuple(formula for formula in Formula if formula not in (Formula.SPATIAL, Formula.GIVEN, Formula.ITEMS))


class Sums(NamedTuple):
    """A formula of sums over the features. Numba compiles a kernel for each of these four types that is asked for."""

    number: int
    p: float


class Products(Sums):
    """A formula of the rows' product."""


class Powers(Sums):
    """A sum of powers."""


class Present(Sums):
    """A formula that leaves missing values out."""


#: The types of the formulas that are not `Sums`.
KINDS: dict[Formula, type[Sums]] = {
    Formula.COSINE: Products, Formula.INNER_PRODUCT: Products, Formula.MINKOWSKI: Powers,
    Formula.PRESENT_SQUARED_EUCLIDEAN: Present, Formula.PRESENT_MANHATTAN: Present, Formula.PRESENT_HAMMING: Present,
    Formula.HIERCC: Present,
}  # fmt: skip


class Rows(StrEnum):
    """The form of the rows that a formula reads; `neighbors.rows` makes them."""

    GIVEN = "given"
    BOOLEAN = "boolean"
    PACKED = "packed"
    NORMED = "normed"
    CENTRED = "centred"
    COUNTED = "counted"
    SPHERE = "sphere"
    PLACED = "placed"

    def __init__(self, name: str) -> None:
        self.are_words = name in ("boolean", "packed")  # whether rows are words of bits
        self.have_norms = name in ("normed", "centred")  # which follow the features
        self.are_packed = name == "packed"  # eight features in each value of the input, a byte
        self.features_a_value = 8 if self.are_packed else 1

    def width(self, n_features: int) -> int:
        """Return the number of values that a row of this form has, if the input has `n_features` features."""
        if self is Rows.SPHERE:
            return 3
        if self.are_words:
            return word_count(n_features * self.features_a_value)
        return n_features + (self.have_norms or self is Rows.COUNTED)

    def row_bytes(self, n_features: int) -> int:
        """Return the bytes of a row that is made, and of the unit row that a filter takes of it; 0 if none is made."""
        if self.have_norms:
            return 8 * (2 * n_features + 1)
        return 0 if self is Rows.GIVEN else 8 * self.width(n_features)


@dataclass(frozen=True)
class Metric:
    """A row of the table."""

    name: str  # SciPy's name, or scikit-learn's
    formula: Formula  # the formula of the surrogate distance
    aliases: tuple[str, ...] = ()
    #: the reported distance: the surrogate distance ("value"), its p-th "root", its quotient by the number of features
    #: ("share"), Rogers and Tanimoto's function of both ("tanimoto"), the great-circle "angle"
    distance: str = "value"
    rows: Rows = Rows.GIVEN
    filter: str = "direct"  # {"product", "direct", "codes", "bits", "none"}
    boxes: bool = False  # whether boxes bound the surrogate distance
    p: float = 2.0  # the exponent of "minkowski", and of "root"
    missing: bool = False  # whether NaN is a missing value, which the formula leaves out
    space: Any = None  # a `Space` or `Placed` of settings.py: a box, or groups of columns that have scales

    def of_columns(self, names: Sequence[Any] | None, d: int) -> Self:
        """Return the metric of d columns, which may have names; raise ValueError if its space does not fit them."""
        return self if self.space is None else replace(self, space=self.space.place(names, d))

    @property
    def cpu_formula(self) -> Any:
        """Return what a CPU's kernels take: None for squared_euclidean, a `SpatialFormula`, or the number and p."""
        if self.space is not None:
            return self.space.cpu_formula
        if self.formula is Formula.SQUARED_EUCLIDEAN:
            return None
        return KINDS.get(self.formula, Sums)(FORMULAS.index(self.formula), self.p)

    @cached_property
    def cuda_options(self) -> tuple[str, ...]:
        """Return the compiler's options that select the formula in the GPU's kernels."""
        if self.rows.are_words:
            return self.bit_options
        if self.space is not None:
            return self.space.cuda_options
        options = (f"-DFORMULA={self.formula}",)
        if not self.formula.has_powers:
            return options
        power = f"-DHALVES={int(2 * self.p)}" if self.has_half_integer_power else f"-DEXPONENT={self.p.hex()}"
        return *options, power

    @property
    def bit_options(self) -> tuple[str, ...]:
        """Return the compiler's options for rows of words, which have fewer formulas; see neighbors/rows.py."""
        share_formulas = Formula.JACCARD, Formula.BRAYCURTIS, Formula.CONTAINMENT
        formula = self.formula if self.formula in share_formulas else Formula.HAMMING
        return (f"-DFORMULA=bit_{formula}",)

    @cached_property
    def has_half_integer_power(self) -> bool:
        """Return whether p is a multiple of a half: then a power is a product, with a square root for odd halves."""
        return (2 * self.p).is_integer() and self.p < 2**30

    @cached_property
    def changes_order(self) -> bool:
        """Return whether rounding may give distances another order than the surrogate distances have."""
        return self.is_of_ends or self.formula.has_powers

    @cached_property
    def is_of_ends(self) -> bool:
        """Return whether a reported distance is computed from the two rows, not from their surrogate distance."""
        return self.distance == "angle"

    @property
    def has_similarity(self) -> bool:
        """Return whether the distance is 1 minus a similarity: a share of common members, or a cosine."""
        is_share = self.formula in (Formula.JACCARD, Formula.CONTAINMENT)
        return is_share or self.formula.is_of_unit_rows or self.name == "dice"

    @staticmethod
    def true_distance_bound(surrogate: Array, xp: Any, error: float, stretch: float, factor: float, more: float) -> Any:
        """Bound the true distance of points in the product form (unit rows, for cosine and correlation) from above.

        It holds for every pair whose computed surrogate distance is at most `surrogate`. The four numbers are the
        metric's `rounding_terms`.
        """
        return xp.sqrt(xp.maximum(surrogate + error, 0.0) * stretch) * factor + more

    def rounding_terms(self, n_features: int) -> tuple[float, float, float, float]:
        """Return `error`, `stretch`, `factor` and `more` of `true_distance_bound`.

        Squares: each of the d terms is rounded three times and the sum d times, each by a factor of at most 1 ± 2⁻⁵³
        or, below the normal range, by at most 2⁻¹⁰⁷⁵. Cosine: the error of the dot product is at most d2⁻⁵³ of ‖x‖‖y‖,
        and that of a norm (d/2 + 1)2⁻⁵³ of itself. With the last three operations the error of the value is below
        (2d + 16)2⁻⁵³. The error of a computed unit row is below (d + 8)2⁻⁵³, and the chord of two exact unit rows is
        the root of twice the value.
        """
        if self.formula.is_of_unit_rows:
            error = (2 * n_features + 16) * EPSILON
            return error, 2.0, 1 + 8 * EPSILON, error
        return n_features * 5e-324, 1 + (n_features + 8) * EPSILON, 1.0, 0.0

    def surrogate_bound_terms(self, n_features: int) -> tuple[float, float, float]:
        """Return `more`, `factor` and `error`, by which the true distance bounds the computed surrogate distance.

        The bound is (D + more)² factor + error for points at a distance of at most D in the product form. The errors
        are those of `rounding_terms`; the factor covers a few roundings of this expression.
        """
        rounding = 1 + 2.0**-40
        if self.formula.is_of_unit_rows:
            error = (2 * n_features + 16) * EPSILON
            return error, 0.5 * rounding, error
        return 0.0, (1 + (n_features + 8) * EPSILON) * rounding, n_features * 5e-324


METRICS = {
    metric.name: metric
    for metric in (
        Metric("euclidean", Formula.SQUARED_EUCLIDEAN, ("l2",), distance="root", filter="product", boxes=True),
        Metric("sqeuclidean", Formula.SQUARED_EUCLIDEAN, filter="product", boxes=True),
        Metric("cosine", Formula.COSINE, rows=Rows.NORMED, filter="product"),
        Metric("correlation", Formula.COSINE, rows=Rows.CENTRED, filter="product"),
        Metric("cityblock", Formula.MANHATTAN, ("manhattan", "l1"), boxes=True),
        Metric("chebyshev", Formula.CHEBYSHEV, boxes=True),
        Metric("minkowski", Formula.MINKOWSKI, distance="root", boxes=True),
        Metric("canberra", Formula.CANBERRA),
        Metric("braycurtis", Formula.BRAYCURTIS),
        Metric("hamming", Formula.HAMMING, distance="share", filter="codes"),
        Metric("rogerstanimoto", Formula.HAMMING, distance="tanimoto", rows=Rows.BOOLEAN, filter="bits"),
        Metric("jaccard", Formula.JACCARD, rows=Rows.BOOLEAN, filter="bits"),
        Metric("bit_hamming", Formula.HAMMING, distance="share", rows=Rows.PACKED, filter="bits"),
        Metric("bit_jaccard", Formula.JACCARD, rows=Rows.PACKED, filter="bits"),
        Metric("dice", Formula.BRAYCURTIS, rows=Rows.BOOLEAN, filter="bits"),  # Σ [x ≠ y] / Σ (x + y) of bits
        Metric("containment", Formula.CONTAINMENT, rows=Rows.BOOLEAN, filter="bits"),
        Metric("inner_product", Formula.INNER_PRODUCT),
        Metric("haversine", Formula.SQUARED_EUCLIDEAN, (), "angle", Rows.SPHERE, filter="product", boxes=True),
    )
}
EUCLIDEAN = METRICS["euclidean"]
NAMES = {name: metric for metric in METRICS.values() for name in (metric.name, *metric.aliases)}
#: The metrics that minkowski equals at these p.
SPECIAL_POWERS = {1.0: "cityblock", 2.0: "euclidean", math.inf: "chebyshev"}


#: The metric that stands for given distances in place of points.
PRECOMPUTED = Metric("precomputed", Formula.GIVEN)
#: Metrics of rows that have no coordinates: `items` has their definitions.
ITEM_METRICS = {name: Metric(name, Formula.ITEMS) for name in ("levenshtein", "string_hamming")}
NAMES |= ITEM_METRICS
#: The names of all metrics, for typing tools and editors.
MetricName = Literal[
    "euclidean", "l2", "sqeuclidean", "cosine", "correlation", "cityblock", "manhattan", "l1", "chebyshev", "minkowski",
    "canberra", "braycurtis", "hamming", "rogerstanimoto", "jaccard", "bit_hamming", "bit_jaccard", "dice",
    "containment", "inner_product", "haversine", "levenshtein", "string_hamming",
]  # fmt: skip
#: Metrics of sets, in columns or sparse matrices; of rows of numbers in sparse matrices; of either.
SET_METRICS, SPARSE_ROW_METRICS = ("jaccard", "dice", "containment"), ("cosine", "euclidean")
SPARSE_METRICS = (*SET_METRICS, *SPARSE_ROW_METRICS)
#: The names that metrics have elsewhere, and their names here. This package lacks seuclidean, which stands for
#: itself because it resembles another name.
MEANINGS = {
    "tanimoto": "jaccard", "tversky": "jaccard", "sorensen": "dice", "czekanowski": "dice", "matching": "hamming",
    "sokalmichener": "rogerstanimoto", "taxicab": "cityblock", "city": "cityblock", "maximum": "chebyshev",
    "infinity": "chebyshev", "linf": "chebyshev", "overlap": "containment",
    "squared_euclidean": "sqeuclidean", "seuclidean": "seuclidean",
    "nan_euclidean": "euclidean", "angular": "cosine", "cos": "cosine", "pearson": "correlation",
    "dot": "inner_product", "great_circle": "haversine", "geodesic": "haversine", "distances": "precomputed",
    "distance_matrix": "precomputed", "edit_distance": "levenshtein", "edits": "levenshtein",
}  # fmt: skip


#: Metrics whose distances may be negative.
SIGNED = ("inner_product", PRECOMPUTED.name)


def get_metric(name: Any, p: Any = 2.0, allow_precomputed: bool = False) -> Metric:
    """Return the metric called `name`, which may be "precomputed" if `allow_precomputed`.

    `p` is checked for every metric of points, although only minkowski uses it.
    """
    if allow_precomputed and name == PRECOMPUTED.name:
        return PRECOMPUTED
    if not isinstance(name, str) or name not in NAMES:
        names = [*NAMES, *[PRECOMPUTED.name] * allow_precomputed]
        if isinstance(name, str) and (meant := did_you_mean(name, names, MEANINGS)):
            raise ValueError(f"metric must be one that is known, got {name!r}{meant}")
        own = "scipy.spatial.distance.pdist(X, ...) has the distances of others, for fit(..., metric='precomputed')"
        raise ValueError(f"metric must be one of {', '.join(map(repr, names))}, got {name!r}. {own}")
    if isinstance(p, bool) or not isinstance(p, int | float | np.integer | np.floating):
        raise TypeError(f"p must be a number, got {p!r}")
    try:
        p = float(p)
    except OverflowError:
        raise ValueError("p must be at most 1.8e308, float64's largest value; or use metric='chebyshev'") from None
    if not p > 0:
        raise ValueError(f"p must be above 0, got {p}")
    metric = NAMES[name]
    if not metric.formula.has_powers:
        return metric
    return METRICS[SPECIAL_POWERS[p]] if p in SPECIAL_POWERS else replace(metric, p=p)


def distances(
    metric: Metric,
    weight: Array,
    ends: tuple[Any, Any],
    points: tuple[Any, Any],
    device: Device,
    out: Array = None,
    core: Array = None,
) -> Any:
    """Return the reported distances of m pairs of rows, (m,) float64, from their weights, (m,) float64.

    The weights are surrogate distances or mutual reachability. In the latter case a metric that `is_of_ends` needs
    `core` too: the core distance of each row, (n,) float64, as it is reported. Roots are written into `out`, which may
    be the weights, if it is given. `ends` are two (m,) int32 arrays: a pair's rows, one in each of the `points`, two
    (n, d) arrays of the input. Raises ValueError if a pair's distance is beyond float64 or not defined.
    """
    may_overflow = metric.formula.has_powers or metric.formula.is_undefined_for_zeros
    if may_overflow and weight.size and not bool(weight.max() < OVERFLOW):
        at = int((~(weight < OVERFLOW)).argmax())
        pair = f"rows {int(ends[0][at])} and {int(ends[1][at])}"
        raise ValueError(f"the {metric.name} distance of {pair} is not finite in float64. Rescale them or drop one.")
    if metric.is_of_ends:
        places = (rows[end].astype("float64") for rows, end in zip(points, ends, strict=True))
        angles = in_chunks(great_circle, device, *(column for rows in places for column in rows.T))
        return angles if core is None else device.xp.maximum(angles, device.xp.maximum(core[ends[0]], core[ends[1]]))
    if metric.distance == "share":
        return weight / (points[0].shape[1] * metric.rows.features_a_value)
    if metric.distance == "tanimoto":
        return 2 * weight / (points[0].shape[1] + weight)
    if metric.formula.has_powers:  # with the host's library, because CuPy's powers have other bits
        return device.asarray(to_host(weight) ** (1 / metric.p))
    if metric.distance != "root":
        return weight
    if not device.is_gpu:
        return np.sqrt(weight, out=out)
    roots = device.xp.empty(weight.size) if out is None else out
    squares = device.xp.ascontiguousarray(weight, "float64")
    launch("ordering.cu", "take_roots", squares.size, np.int64(squares.size), squares, roots)
    return roots


def surrogate_of(metric: Metric, distance: float, n_features: int) -> float:
    """Return the surrogate distance that `distances` converts to this distance, of rows of `n_features` features.

    The features are those of the input. Raises OverflowError if the surrogate distance is beyond float64.
    """
    if metric.distance == "angle":  # the square of the chord, of points whose coordinates are rounded
        return (2 * math.sin(min(max(distance, 0.0), math.pi) / 2) + 1e-14) ** 2
    if metric.distance == "share":
        return distance * n_features * metric.rows.features_a_value
    if metric.distance == "tanimoto":
        return n_features * distance / (2 - min(distance, 1.0))
    return max(distance, 0.0) ** metric.p if metric.distance == "root" else distance


def surrogate_bound(metric: Metric, distance: float, n_features: int) -> float:
    """Return a number a little above the surrogate distances of all pairs within a distance, or infinity.

    It is the bound of the next larger distance: what rounds to a subnormal distance may be half a spacing above it,
    which is a large part of it.
    """
    try:
        bound = surrogate_of(metric, math.nextafter(distance, math.inf), n_features)
    except OverflowError:
        return math.inf
    return bound + abs(bound) * ROUNDING + SMALLEST_NORMAL


def largest(is_within: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest number from `low` to `high` that is within; all smaller numbers are within, too.

    `low` is within, and is not below 0. Floats of one sign have the order of their bits.
    """
    first, last = (int(np.float64(end).view(np.int64)) for end in (low, high))
    while first < last:
        middle = (first + last + 1) // 2
        if is_within(float(np.int64(middle).view(np.float64))):
            first = middle
        else:
            last = middle - 1
    return float(np.int64(first).view(np.float64))


def largest_distance(metric: Metric, similarity: float) -> float:
    """Return the largest distance of two rows whose similarity, as float64 has it, is at least `similarity`.

    ``1 - similarity`` may be below it: 1/5 is above ``1 - 0.8``. A share of members is the quotient of two numbers, of
    up to `MAX_MEMBERS`. Two different ones differ by 2⁻⁵² at least, so a distance tells its fraction, and that the
    similarity. The distance of a cosine of at least 1/2 is exact. That of a smaller one is rounded to a multiple of
    2⁻⁵³, so a cosine that is less than that below the least one may be among those within.
    """
    if not metric.has_similarity:
        names = ", ".join(repr(one.name) for one in METRICS.values() if one.has_similarity)
        raise ValueError(f"min_similarity takes the metrics {names}, got {metric.name!r}: give a distance")
    least = -1 if metric.formula.is_of_unit_rows else 0
    if not least <= similarity <= 1:
        raise ValueError(f"min_similarity must be from {least} to 1, got {similarity}")
    if metric.formula.is_of_unit_rows:
        return 1 - similarity

    def share(distance: float) -> Fraction:
        return Fraction(distance).limit_denominator(MAX_MEMBERS)

    return float(share(largest(lambda distance: float(1 - share(distance)) >= similarity, 0.0, 1.0)))


# ---------------------------------------------------------------------------------------------------- sines and cosines
#
# They have the same bits on either device. Libraries differ in the last bit. Here every operation is an IEEE 754
# operation on arrays of NumPy or CuPy, rounded once. Errors stay below one unit in the last place. The series are
# Taylor's.

#: π/2 in parts of 33 bits and a rest, whose products with whole numbers up to 2^20 are exact; and in two float64
#: numbers.
HALF_PI = tuple(
    map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2ep-69", "0x1.b839a252049c1p-104"))
)
HALF_PI_HIGH, HALF_PI_LOW = np.pi / 2, float.fromhex("0x1.1a62633145c07p-54")
#: The Earth's mean radius in kilometres: an angle in radians times this is a great-circle distance.
EARTH_RADIUS = 6371.0088
#: The largest angle, in radians.
MAX_ANGLE = 2.0**20
#: Coefficients of sin(r)/r - 1 and cos(r) - 1 + r²/2 in powers of r², |r| up to π/4; of arcsin(s)/s - 1, s up to 1/2.
SINE = [(-1) ** k / factorial(2 * k + 1) for k in range(1, 10)]
COSINE = [(-1) ** k / factorial(2 * k) for k in range(2, 11)]
ARCSINE = [factorial(2 * k) / (4**k * factorial(k) ** 2 * (2 * k + 1)) for k in range(1, 28)]
#: The number of values that are computed at a time; a chunk's intermediate results stay in a CPU's cache.
CHUNK = {"cpu": 2**15, "cuda": 2**22}
#: Fewer values than this are computed on the host, with the same bits, in less time than a GPU's launches take.
FEW = 2**15


def sine_and_cosine(x: Any, xp: Any) -> tuple[Any, Any]:
    """Return the sine and the cosine of angles up to `MAX_ANGLE`."""
    quarters = xp.rint(x * (2 / np.pi))
    high, low = _two_sum(x - quarters * HALF_PI[0], -quarters * HALF_PI[1])
    high, lower = _two_sum(high, -quarters * HALF_PI[2])
    low = low + (lower - quarters * HALF_PI[3])
    r = high + low
    rest = (high - r) + low
    z = r * r
    half = 0.5 * z
    sine = r + (r * _series(SINE, z) + rest * (1 - half))
    cosine = (1 - half) + (((1 - (1 - half)) - half) + (z * _series(COSINE, z) - r * rest))
    quadrant = quarters - 4 * xp.floor(quarters / 4)
    odd = (quadrant == 1) | (quadrant == 3)
    sine, cosine = xp.where(odd, cosine, sine), xp.where(odd, sine, cosine)
    return xp.where(quadrant >= 2, -sine, sine), xp.where((quadrant == 1) | (quadrant == 2), -cosine, cosine)


def arcsine(x: Any, xp: Any) -> Any:
    """Return the arcsine of numbers from 0 to 1; above a half it follows from the arcsine of sqrt((1 - x)/2)."""
    is_small = x <= 0.5
    z = xp.where(is_small, x * x, (1 - x) / 2)
    s = xp.where(is_small, x, xp.sqrt(z))
    more = s * _series(ARCSINE, z)
    short = s.astype("float32").astype("float64")  # its square is exact
    both = s + short
    rest = xp.where(both > 0, (z - short * short) / xp.where(both > 0, both, 1), 0)  # what the root has beyond `short`
    large = (HALF_PI_HIGH - 2 * short) - (2 * (rest + more) - HALF_PI_LOW)
    return xp.where(is_small, s + more, large)


def great_circle(latitude: Any, longitude: Any, other_latitude: Any, other_longitude: Any, xp: Any) -> Any:
    """Return the angles between points by the haversine formula; all angles are in radians."""
    north, _ = sine_and_cosine((other_latitude - latitude) / 2, xp)
    east, _ = sine_and_cosine((other_longitude - longitude) / 2, xp)
    _, level = sine_and_cosine(latitude, xp)
    _, other_level = sine_and_cosine(other_latitude, xp)
    haversine = north * north + level * other_level * east * east
    return 2 * arcsine(xp.sqrt(xp.minimum(haversine, 1.0)), xp)


def in_chunks(function: Callable[..., Any], device: Device, *columns: Any) -> Any:
    """Return ``function(*columns, xp)`` of (m,) arrays of the device, (m,) or (m, k), computed chunk by chunk."""
    n = columns[0].size
    if device.is_gpu and n < FEW:
        return device.asarray(in_chunks(function, CPU, *map(to_host, columns)))
    size = CHUNK[device.name]
    chunks = [slice(start, start + size) for start in range(0, max(n, 1), size)]
    parts = for_each_chunk(device, lambda chunk: function(*(column[chunk] for column in columns), device.xp), chunks)
    return device.xp.concatenate(parts)


def _series(coefficients: list[float], z: Any) -> Any:
    """Return the sum of coefficients[i] z^(i + 1), by Horner's rule."""
    total = coefficients[-1] * z
    for coefficient in reversed(coefficients[:-1]):
        total += coefficient
        total *= z
    return total


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a + b as its rounded value and the rounding error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)
