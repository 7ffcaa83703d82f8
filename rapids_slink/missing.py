"""The metrics of rows with missing values, which are NaN inside the pipeline.

Let c of d features be present in both of two rows.

- "pairwise": the sum over these is multiplied by d/c, as `sklearn.metrics.pairwise.nan_euclidean_distances` does, with
  its bits wherever that computes squared distances exactly. hamming is the share of the c features that differ.
- "hiercc": the distance of allele profiles in HierCC (Zhou, Charlesworth, Achtman 2021). x of the c features differ,
  and at most p are present in one of the rows. If l = p - 0.05d is above c, x grows by l - c and c becomes l. The
  distance is the integer part of x/c·d + 0.5.

None of these is a metric: by its missing values a row may be near two rows that are far apart. The tree's proof needs
symmetry alone; see spanning_tree/lists.py. Filters and trees that rest on the triangle inequality do not serve them.
"""

from math import isfinite
from numbers import Real
from typing import Any

from rapids_slink.metrics import Formula, Metric, Rows

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


def with_missing(metric: Metric, missing: Any) -> Metric:
    """The metric of rows with missing values, which are treated as `missing` says; itself for None."""
    if missing is None:
        return metric
    if not isinstance(missing, str) or missing not in MISSING:
        raise ValueError(f"missing must be None or one of {', '.join(map(repr, MISSING))}, got {missing!r}")
    if metric.name not in MISSING[missing]:
        names = ", ".join(map(repr, MISSING[missing]))
        raise ValueError(f"missing={missing!r} takes the metrics {names}, got {metric.name!r}")
    kind = "codes" if metric.name == "hamming" else "none"
    formula, distance, rows = MISSING[missing][metric.name]
    return Metric(metric.name, formula, distance=distance, rows=rows, filter=kind, missing=True)


def missing_of(metric: Metric) -> str | None:
    """The parameter `missing` that the metric was made with."""
    return next((kind for kind, names in MISSING.items() if names.get(metric.name, ("",))[0] == metric.formula), None)


def missing_values_of(value: Any, missing: Any) -> tuple[Any, ...]:
    """The values of the parameter `missing_value`, as `as_read` has them; refuse others, and any without `missing`."""
    if value is None:
        return ()
    values = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for one in values:
        if isinstance(one, bool) or not isinstance(one, Real | str):
            raise TypeError(f"missing_value must be a number, a text, or a list of these, got {one!r}")
    if missing is None:
        raise ValueError(f"missing_value={value!r} needs missing='pairwise' or missing='hiercc'")
    return tuple(dict.fromkeys(map(as_read, values)))


def as_read(value: Any) -> Any:
    """The value as it counts: a text that is a finite number as this number, any other value unchanged.

    So a column has the same categories whether a file's reader makes numbers or text of it.
    """
    if not isinstance(value, str) or "_" in value:  # which only Python's own numbers have
        return value
    try:
        return int(value)
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return value
    return number if isfinite(number) else value
