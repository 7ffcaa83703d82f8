"""The parameters of a fit, and the metric that `metric`, `p`, `missing`, `box` and `scales` make.

**Missing values** are NaN inside the pipeline. Let c of d features be present in both of two rows.

- "pairwise": the sum over these is multiplied by d/c, as `sklearn.metrics.pairwise.nan_euclidean_distances` does, with
  its bits wherever that computes squared distances exactly. hamming is the share of the c features that differ.
- "hiercc": the distance of allele profiles in HierCC (Zhou, Charlesworth, Achtman 2021). x of the c features differ,
  and at most p are present in one of the rows. If l = p - 0.05d is above c, x grows by l - c and c becomes l. The
  distance is the integer part of x/c·d + 0.5, and d where c is 0 from the start.

None of these is a metric: by its missing values a row may be near two rows that are far apart. The tree's proof needs
symmetry alone; see spanning_tree/lists.py. Filters and trees that rest on the triangle inequality do not serve them.

**A box** has a length L for each column; an infinite one does not repeat. A coordinate outside [0, L) is wrapped, as
``numpy.mod`` does in float64, and rounded to the values' type. Where that gives L, or less than the type's normal
numbers, it is 0. Then the difference of two coordinates x and y is the nearer image's, in float64:

    d = |x - y|,    min(d, L - d)

**Scales** put the columns into groups. The distance is the largest of the groups' distances, each divided by its scale:

    max over groups of distance(x, y) / scale

Both are computed from these definitions, in float64 and in this order. They take metrics of one operation on the
differences of two rows. With scales the surrogate distance is the distance.

Rows are read with the columns of a group together, in the order in which `scales` has them.

*A box of points bounds them.* For coordinates in [a, b] and [p, q] let m = max(p - b, a - q) and n = min(p - b, a - q).
Every |x - y| is from m to -n. So no difference is below min(m, L + n), nor below 0, and the formula of these is a lower
bound. It also bounds the computed values: rounding is monotone, and so are all operations except the differences, where
m and n are rounded as |x - y| and its negative are, or down.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property
from math import inf, isfinite
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np

from rapids_slink.metrics import FORMULAS, PRECOMPUTED, Formula, Metric, Rows, get_metric
from rapids_slink.report import listed
from rapids_slink.runtime.cuda import ConstantOption

#: By the parameter `missing` and the metric's name: formula, distance and rows.
MISSING = {
    "pairwise": {
        "euclidean": (Formula.PRESENT_SQUARED_EUCLIDEAN, "root", Rows.GIVEN),
        "sqeuclidean": (Formula.PRESENT_SQUARED_EUCLIDEAN, "value", Rows.GIVEN),
        "cityblock": (Formula.PRESENT_MANHATTAN, "value", Rows.GIVEN),
        "hamming": (Formula.PRESENT_HAMMING, "value", Rows.GIVEN),
    },
    "hiercc": {"hamming": (Formula.HIERCC, "value", Rows.COUNTED)},
}
#: Texts that usually mean missing.
USUAL_MARKS = ("-", "", "?", "NA")
#: The beginning of a text of `missing_value` that stands for all numbers up to one.
UP_TO = "<="
#: The metrics that take a box. They also take scales, except sqeuclidean, which is no length.
BOX_METRICS = ("euclidean", "sqeuclidean", "cityblock", "chebyshev")
#: With scales between these a distance neither overflows nor vanishes where the values' squares do not.
LEAST_SCALE, LARGEST_SCALE = 1e-150, 1e150
#: The most columns: a GPU's kernels hold their lengths and scales in its constant memory.
MAX_COLUMNS = 2048


@dataclass(frozen=True)
class Settings:
    """How the tree of points is made: parameters of `SingleLinkage` and `HDBSCAN`."""

    metric: Metric
    device: str = "auto"
    memory_limit: Any = None
    n_neighbors: int | None = None
    min_samples: int = 1  # the number of neighbours of a core distance; 1 for the metric's own distances
    clipped: bool = True  # whether `min_samples` is a default, which is lowered if there are few rows
    progress: bool | str = False
    max_distance: float | None = None
    #: the distance within which rows are in one cluster, if no more of their tree than these clusters is wanted
    friends_within: float | None = None
    missing_values: tuple[Any, ...] = ()  # the result of `missing_values_of`
    prediction_data: bool = False  # whether the model keeps its rows and what its predictions read
    gen_min_span_tree: bool = False  # whether the model keeps its rows, if it has any, to draw its tree on them
    weights: Any = None  # array of shape (n,), optional; how many equal rows each counts for
    store_centers: str | None = None
    groups: Any = None  # `points.keys.GroupBy`, optional; rows of different groups are not compared
    cannot_link: Any = None  # optional; the parameter of `SingleLinkage.fit`

    def of_columns(self, names: Sequence[Any] | None, d: int) -> Self:
        """Return the settings for d columns, which may have names: see `Metric.of_columns`."""
        return self if self.metric.space is None else replace(self, metric=self.metric.of_columns(names, d))

    def for_rows(self, n: int) -> Self:
        """Return the settings for n rows: lower a default `min_samples` to n - 1, and raise if a given one is above."""
        if not self.clipped and self.min_samples > n - 1:
            raise ValueError(f"min_samples must be at most n - 1 = {n - 1}, got {self.min_samples}")
        min_samples = max(1, min(self.min_samples, n - 1))
        return self if min_samples == self.min_samples else replace(self, min_samples=min_samples)


@dataclass(frozen=True)
class DensityRule:
    """When a row is core: the parameters of `DBSCAN`."""

    eps: float  # the distance within which rows count, and core rows are connected
    min_samples: float  # the least sum of the weights within it


def metric_of(
    name: Any, p: Any = 2.0, missing: Any = None, box: Any = None, scales: Any = None, allow_precomputed: bool = False
) -> Metric:
    """Return the metric of `metric`, `p`, `missing`, `box` and `scales`; "precomputed" only if allowed."""
    metric = get_metric(name, p, allow_precomputed)
    metric = metric if missing is None else with_missing(metric, missing)
    return metric if box is None and scales is None else with_space(metric, box, scales)


def parameters_of(metric: Metric) -> tuple[Any, ...]:
    """Return the arguments of `metric_with` for this metric of known columns: its name, p, `missing` and any space."""
    space = () if metric.space is None else ((metric.space.columns, metric.space.periods, metric.space.scales),)
    return metric.name, metric.p, missing_of(metric), *space


def metric_with(name: str, p: float, missing: str | None = None, space: Any = None) -> Metric:
    """Return the metric that `parameters_of` describes. Models saved by former versions have fewer parameters."""
    metric = metric_of(name, p, missing)
    if space is None:
        return metric
    columns, periods, scales = space
    return in_space(metric, Placed(metric.formula, columns, periods, scales))


# ------------------------------------------------------------------------------------------------------- missing values


def with_missing(metric: Metric, missing: Any) -> Metric:
    """Return the metric of rows with missing values, which are treated as `missing` says."""
    if not isinstance(missing, str) or missing not in MISSING:
        raise ValueError(f"missing must be None or one of {', '.join(map(repr, MISSING))}, got {missing!r}")
    if metric.name not in MISSING[missing]:
        names = ", ".join(map(repr, MISSING[missing]))
        raise ValueError(f"missing={missing!r} takes the metrics {names}, got {metric.name!r}")
    kind = "codes" if metric.name == "hamming" else "none"
    formula, distance, rows = MISSING[missing][metric.name]
    return Metric(metric.name, formula, distance=distance, rows=rows, filter=kind, missing=True)


def missing_of(metric: Metric) -> str | None:
    """Return the parameter `missing` that the metric was made with."""
    return next((kind for kind, names in MISSING.items() if names.get(metric.name, ("",))[0] == metric.formula), None)


def missing_values_of(value: Any, missing: Any) -> tuple[Any, ...]:
    """Return the values of the parameter `missing_value`, as `as_read` has them; () for None.

    The text "<=0", or another number after the sign, stands for all numbers up to this one. Raises TypeError or
    ValueError for other values, and for any value without `missing`.
    """
    if value is None:
        return ()
    values = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for one in values:
        if isinstance(one, bool) or not isinstance(one, Real | str):
            raise TypeError(f"missing_value must be a number, a text, or a list of these, got {one!r}")
    if missing is None:
        raise ValueError(f"missing_value={value!r} needs missing='pairwise' or missing='hiercc'")
    for one in values:
        if isinstance(one, str) and one.startswith(UP_TO) and not isinstance(as_read(one.removeprefix(UP_TO)), Real):
            raise ValueError(f"missing_value={one!r} must have a number after {UP_TO}")
    return tuple(dict.fromkeys(map(as_read, values)))


def up_to_of(missing_values: Collection[Any]) -> float:
    """Return the number up to which all numbers are missing, the largest of texts such as "<=0"; else -infinity."""
    limits = (one.removeprefix(UP_TO) for one in missing_values if isinstance(one, str) and one.startswith(UP_TO))
    return max(map(as_read, limits), default=-inf)


def means_missing_in(metric: Metric, value: Any) -> bool:
    """Return whether a value of a column usually means missing: some texts, and in HierCC all numbers up to 0."""
    is_number = isinstance(value, Real | Decimal)
    return value in USUAL_MARKS or (metric.formula is Formula.HIERCC and is_number and value <= 0)


def as_read(value: Any) -> Any:
    """Return the value as it counts: a text that is a finite number as this number, any other value unchanged.

    So a column has the same categories whether a file's reader makes numbers or text of it.
    """
    if not isinstance(value, str) or "_" in value:  # which only Python's own numbers have
        return value
    with suppress(ValueError):
        return int(value)
    with suppress(ValueError):
        return number if isfinite(number := float(value)) else value
    return value


# ----------------------------------------------------------------------------------------------------- boxes and scales


class SpatialFormula(NamedTuple):
    """The formula as the CPU's kernels take it, which would count references to arrays in it at every call."""

    kind: int  # the number of the formula of a group's differences, in `FORMULAS`
    periods: int  # the address of float64 numbers: the length after which each column repeats
    #: the address of float64 numbers: for each column the scale of the group that ends there, 0 if the group goes on.
    #: The address is 0 if there are no scales
    scales: int


@cache
def _kept(numbers: tuple[float, ...]) -> np.ndarray:
    """Return the numbers as an array whose address stays what it is in this process."""
    return np.array(numbers)


@dataclass(frozen=True)
class Placed:
    """A space of known columns."""

    within: Formula  # the formula of the differences, or of a group's differences
    columns: tuple[int, ...]  # in the order in which rows are read
    periods: tuple[float, ...]  # the length after which each column repeats; infinite if it does not
    scales: tuple[float, ...]  # see `SpatialFormula`

    def place(self, names: Sequence[Any] | None, d: int) -> "Placed":
        """Return this space; raise ValueError if it is not one of d columns, as in a damaged file. Kernels need it."""
        numbers, is_scaled = (self.periods, self.scales), len(self.scales) > 0
        sizes = d, d if is_scaled else 0
        if (
            sorted(self.columns) != list(range(d))
            or tuple(map(len, numbers)) != sizes
            or not all(period > 0 for period in self.periods)
            or (is_scaled and not (min(self.scales) >= 0 and self.scales[-1] > 0))
        ):
            raise ValueError(f"box= and scales= of the metric are not those of {d} columns")
        return self

    @property
    def cpu_formula(self) -> SpatialFormula:
        """Return the formula for the CPU's kernels."""
        scales = _kept(self.scales).ctypes.data if self.scales else 0
        return SpatialFormula(FORMULAS.index(self.within), _kept(self.periods).ctypes.data, scales)

    @cached_property
    def cuda_options(self) -> tuple[str, ...]:
        """Return the options that select the formula in the GPU's kernels, and the constants that these read."""
        formula = f"scaled<{self.within}>" if self.scales else str(self.within)
        periods = np.array(self.periods)
        with np.errstate(over="ignore"):
            below = periods.astype(np.float32)
            below = np.where(below > periods, np.nextafter(below, np.float32(0)), below)
        scales = np.array(self.scales or np.zeros(periods.size), np.float64)
        values = periods.tobytes() + scales.tobytes() + below.astype(np.float32).tobytes()
        return f"-DFORMULA=periodic<{formula}>", ConstantOption.of(f"-DCOLUMNS={periods.size}", "SPACE", values)


@dataclass(frozen=True)
class Space:
    """The parameters `box` and `scales`, for columns that are not known yet."""

    within: Formula
    box: float | tuple[float, ...]
    scales: tuple[tuple[Any, float], ...]  # a column or a tuple of them, and the scale

    def place(self, names: Sequence[Any] | None, d: int) -> Placed:
        """Return the space of d columns, which may have names."""
        if d > MAX_COLUMNS:
            raise ValueError(f"box= and scales= take up to {MAX_COLUMNS:,} columns, and X has {d:,}")
        if isinstance(self.box, tuple) and len(self.box) != d:
            raise ValueError(f"box must have a length for each of {d} columns, or one for all, got {len(self.box)}")
        periods = self.box if isinstance(self.box, tuple) else (self.box,) * d
        if not self.scales:
            return Placed(self.within, tuple(range(d)), periods, ())
        columns: list[int] = []
        scales: list[float] = []
        for group, scale in self.scales:
            one = not isinstance(group, tuple) or (names is not None and group in names)
            positions = [_position_of(column, names, d) for column in ((group,) if one else group)]
            columns += positions
            scales += [0.0] * (len(positions) - 1) + [scale]
        labels = list(range(d)) if names is None else list(names)
        if twice := [labels[c] for c in columns if columns.count(c) > 1]:
            raise ValueError(f"scales has column {twice[0]!r} twice: each is in one group")
        if ungrouped := [labels[c] for c in range(d) if c not in columns]:
            raise ValueError(f"scales leaves column {ungrouped[0]!r} of X out: each is in a group, or drop it from X")
        return Placed(self.within, tuple(columns), tuple(periods[c] for c in columns), tuple(scales))

    def like(self, d: int) -> Placed:
        """Return a space of d columns that takes the same kernels; nothing else of the columns is known."""
        return Placed(self.within, tuple(range(d)), (inf,) * d, (1.0,) * d if self.scales else ())


def _position_of(column: Any, names: Sequence[Any] | None, d: int) -> int:
    if names is not None and column in names:
        if list(names).count(column) > 1:
            raise ValueError(f"scales has column {column!r}, and X has {list(names).count(column)} of this name")
        return list(names).index(column)
    if isinstance(column, int | np.integer) and not isinstance(column, bool) and 0 <= column < d:
        return int(column)
    valid = f"positions from 0 to {d - 1}" if names is None else f"[{listed(names)}], or positions from 0 to {d - 1}"
    raise ValueError(f"scales has column {column!r}, and the columns of X are {valid}")


def with_space(metric: Metric, box: Any, scales: Any) -> Metric:
    """Return the metric in a box, or by groups of columns that have scales; one of the parameters is not None."""
    name = "box" if scales is None else "scales"
    if metric is PRECOMPUTED:
        raise ValueError(f"{name}= takes points, and metric='precomputed' has distances")
    if metric.missing:
        raise ValueError(f"{name}= takes no missing values: leave missing= out")
    valid = [one for one in BOX_METRICS if scales is None or one != "sqeuclidean"]
    if metric.name not in valid:
        raise ValueError(f"{name}= takes the metrics {', '.join(map(repr, valid))}, got {metric.name!r}")
    space = Space(metric.formula, inf if box is None else _box_of(box), () if scales is None else _scales_of(scales))
    return in_space(metric, space)


def in_space(metric: Metric, space: Space | Placed) -> Metric:
    """Return the metric in a space; with scales its surrogate distance is the distance."""
    distance = "value" if space.scales else metric.distance
    return replace(
        metric, formula=Formula.SPATIAL, distance=distance, rows=Rows.PLACED, filter="none", boxes=True, space=space
    )


def _box_of(box: Any) -> float | tuple[float, ...]:
    if isinstance(box, str | Mapping | set) or not (isinstance(box, Real) or np.ndim(box) == 1):
        raise TypeError(f"box must be a length, or a list of one for each column, got {box!r}")
    if isinstance(box, Real):
        return _positive(box, "box")
    return tuple(_positive(length, f"length {c} of box") for c, length in enumerate(box))


def _positive(value: Any, name: str, least: float = 0.0, largest: float = inf) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (number > 0 and least <= number <= largest):
        valid = "above 0; an infinite one does not repeat" if largest == inf else f"from {least:g} to {largest:g}"
        raise ValueError(f"{name} must be {valid}, got {value!r}")
    return number


def _scales_of(scales: Any) -> tuple[tuple[Any, float], ...]:
    if not isinstance(scales, Mapping):
        raise TypeError(f'scales must be a dictionary such as {{("x", "y"): 500.0, "t": 3600.0}}, got {scales!r}')
    if not scales or () in scales:
        raise ValueError(f"scales must have at least one column in each group, got {scales!r}")
    return tuple(
        (group, _positive(scale, f"the scale of {group!r}", LEAST_SCALE, LARGEST_SCALE))
        for group, scale in scales.items()
    )
