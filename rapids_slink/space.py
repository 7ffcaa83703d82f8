"""Boxes that repeat, and distances by groups of columns: what the parameters `box` and `scales` make of a metric.

**A box** has a length L for each column; an infinite one does not repeat. A coordinate outside [0, L) is wrapped, as
``numpy.mod`` does in float64, and rounded to the values' type. Where that gives L, or less than the type's normal
numbers, it is 0. Then the difference of two coordinates x and y is the nearer image's, in float64:

    d = |x - y|,    min(d, L - d)

**Scales** put the columns into groups. The distance is the largest of the groups' distances, each divided by its scale:

    max over groups of distance(x, y) / scale

Both are computed from these definitions, in float64 and in this order. They take metrics of one operation on the
differences of two rows. With scales the surrogate distance is the distance.

Rows are read with the columns of a group together, in the order in which `scales` has them.

*A box of points bounds them.* Of coordinates in [a, b] and [p, q] let m = max(p - b, a - q) and n = min(p - b, a - q).
Every |x - y| is from m to -n. So no difference is below min(m, L + n), nor below 0, and the formula of these is a lower
bound. It holds for what is computed, too: rounding is monotone, and so are all operations but the differences, in which
m and n are rounded as |x - y| and its negative are, or down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import inf
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from rapids_slink.metrics import FORMULAS, PRECOMPUTED, Formula, Metric, Rows, get_metric
from rapids_slink.missing import missing_of, with_missing
from rapids_slink.runtime.cuda import ConstantOption

#: The metrics that take a box. Those but sqeuclidean, which is no length, take scales.
METRICS = ("euclidean", "sqeuclidean", "cityblock", "chebyshev")
#: With scales between these a distance neither overflows nor vanishes where the values' squares do not.
LEAST_SCALE, LARGEST_SCALE = 1e-150, 1e150
#: The most columns: a GPU's kernels hold their lengths and scales in its constant memory.
MAX_COLUMNS = 2048


class SpatialFormula(NamedTuple):
    """The formula as the CPU's kernels take it, which would count references to arrays in it at every call."""

    kind: int  # the number of the formula of a group's differences, in `FORMULAS`
    periods: int  # the address of float64, the length after which each column repeats
    #: the address of float64, the scale of the group that ends with each column, 0 where it goes on; 0: no scales
    scales: int


@cache
def _kept(numbers: tuple[float, ...]) -> np.ndarray:
    """The numbers as an array whose address stays what it is in this process."""
    return np.array(numbers)


@dataclass(frozen=True)
class Placed:
    """A space of known columns."""

    within: Formula  # of the differences, or of those of a group
    columns: tuple[int, ...]  # in the order in which rows are read
    periods: tuple[float, ...]  # of these; infinite where they do not repeat
    scales: tuple[float, ...]  # see `SpatialFormula`

    def place(self, names: Sequence[Any] | None, d: int) -> "Placed":
        """Itself. Raises ValueError if it is none of d columns, as in a damaged file: kernels rely on it."""
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
        """The formula for the CPU's kernels."""
        scales = _kept(self.scales).ctypes.data if self.scales else 0
        return SpatialFormula(FORMULAS.index(self.within), _kept(self.periods).ctypes.data, scales)

    @cached_property
    def cuda_options(self) -> tuple[str, ...]:
        """The options that select the formula in the GPU's kernels, and what they read as a `Space`."""
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
    """What `box` and `scales` say of columns that are not known yet."""

    within: Formula
    box: float | tuple[float, ...]
    scales: tuple[tuple[Any, float], ...]  # a column or a tuple of them, and the scale

    def place(self, names: Sequence[Any] | None, d: int) -> Placed:
        """The space of d columns, which may have names."""
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
            found = [_place_of(column, names, d) for column in ((group,) if one else group)]
            columns += found
            scales += [0.0] * (len(found) - 1) + [scale]
        labels = list(range(d)) if names is None else list(names)
        if twice := [labels[c] for c in columns if columns.count(c) > 1]:
            raise ValueError(f"scales has column {twice[0]!r} twice: each is in one group")
        if left := [labels[c] for c in range(d) if c not in columns]:
            raise ValueError(f"scales leaves column {left[0]!r} of X out: each is in a group, or drop it from X")
        return Placed(self.within, tuple(columns), tuple(periods[c] for c in columns), tuple(scales))

    def like(self, d: int) -> Placed:
        """A space of d columns, of which no more is known, that has the same kernels."""
        return Placed(self.within, tuple(range(d)), (inf,) * d, (1.0,) * d if self.scales else ())


def _place_of(column: Any, names: Sequence[Any] | None, d: int) -> int:
    if names is not None and column in names:
        if list(names).count(column) > 1:
            raise ValueError(f"scales has column {column!r}, and X has {list(names).count(column)} of this name")
        return list(names).index(column)
    if isinstance(column, int | np.integer) and not isinstance(column, bool) and 0 <= column < d:
        return int(column)
    valid = f"positions from 0 to {d - 1}" if names is None else f"{list(names)}, or positions from 0 to {d - 1}"
    raise ValueError(f"scales has column {column!r}, and the columns of X are {valid}")


def metric_of(
    name: Any, p: Any = 2.0, missing: Any = None, box: Any = None, scales: Any = None, given: bool = False
) -> Metric:
    """The metric of the parameters `metric`, `p`, `missing`, `box` and `scales`; `given` is that of `get_metric`."""
    return with_space(with_missing(get_metric(name, p, given), missing), box, scales)


def with_space(metric: Metric, box: Any, scales: Any) -> Metric:
    """The metric in a box, or by groups of columns that have scales; itself without either."""
    if box is None and scales is None:
        return metric
    name = "box" if scales is None else "scales"
    if metric is PRECOMPUTED:
        raise ValueError(f"{name}= takes points, and metric='precomputed' has distances")
    if metric.missing:
        raise ValueError(f"{name}= takes no missing values: leave missing= out")
    valid = [one for one in METRICS if scales is None or one != "sqeuclidean"]
    if metric.name not in valid:
        raise ValueError(f"{name}= takes the metrics {', '.join(map(repr, valid))}, got {metric.name!r}")
    space = Space(metric.formula, inf if box is None else _box_of(box), () if scales is None else _scales_of(scales))
    return in_space(metric, space)


def in_space(metric: Metric, space: Space | Placed) -> Metric:
    """The metric in a space; with scales its surrogate distance is the distance."""
    distance = "value" if space.scales else metric.distance
    return replace(
        metric, formula=Formula.SPATIAL, distance=distance, rows=Rows.PLACED, filter="none", boxes=True, space=space
    )


def parameters_of(metric: Metric) -> tuple[Any, ...]:
    """The arguments of `metric_with` for this metric of known columns: its name, p, `missing` and any space."""
    space = () if metric.space is None else ((metric.space.columns, metric.space.periods, metric.space.scales),)
    return metric.name, metric.p, missing_of(metric), *space


def metric_with(name: str, p: float, missing: str | None = None, space: Any = None) -> Metric:
    """The inverse of `parameters_of`. Models saved by former versions have fewer parameters."""
    metric = with_missing(get_metric(name, p), missing)
    return metric if space is None else in_space(metric, Placed(metric.formula, *space))


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
