"""Refuse shapes, types, gaps and values that have no distances. Errors name the column or the argument."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.points.kernels import kernels
from rapids_slink.points.output import library_of
from rapids_slink.runtime.device import Device, to_host

#: Cluster ids go up to 2n - 2 and are int32.
MAX_ROWS = 2**30
#: The largest number of offending columns that an error names.
NAMED_COLUMNS = 5


class InputTypeError(TypeError, ValueError):
    """The input has a type without distances. Also a ValueError, as scikit-learn's estimator checks expect."""


def check_type(dtype: Any, what: str, objects: bool = True) -> None:
    """Raise unless `dtype` is numeric, or, if `objects` is true, the object type, whose values are checked later."""
    if dtype.kind == "c":
        raise InputTypeError(f"Complex data not supported: {what} has dtype {dtype}")
    # Categories and decimals say kind "O" too, hence the comparison.
    if dtype.kind not in "biuf" and not (objects and dtype == np.dtype(object)):
        raise InputTypeError(
            f"{what} has dtype {dtype}, which is not numeric; drop, encode or convert it "
            "(integers, booleans and floats are valid)"
        )


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Raise unless there are columns and rows, and no more rows than `MAX_ROWS`."""
    if shape[0] > MAX_ROWS:
        raise ValueError(f"{name} has {shape[0]} rows; up to {MAX_ROWS} are possible")
    for count, what in zip(shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ValueError(f"Found array with 0 {what}(s) (shape={tuple(shape)}) while a minimum of 1 is required.")


def check_same_columns(x: tuple[int, list[Any] | None], y: tuple[int, list[Any] | None]) -> None:
    """Raise unless X and Y, by their numbers of features and a frame's names, have the same columns in one order."""
    (d, names), (of_y, others) = x, y
    if d != of_y:
        raise ValueError(f"X and Y must have the same number of features, got {d} and {of_y}")
    if names and others and all(isinstance(name, str) for name in names + others) and names != others:
        i = next(i for i in range(d) if names[i] != others[i])
        raise ValueError(
            f"X and Y must have the same columns in the same order, but column {i} is {names[i]!r} in X and "
            f"{others[i]!r} in Y"
        )


def dimension_error(X: Any) -> str:
    """The message for an array that is not two-dimensional, in scikit-learn's words."""
    if X.ndim > 2:
        return f"Found array with dim {X.ndim}, while dim <= 2 is required."
    return (
        f"Expected 2D array, got {dimension(X)} array instead. Reshape your data either using array.reshape(-1, 1) "
        "(for a Series: to_frame()) if it has a single feature or array.reshape(1, -1) if it contains a single sample."
    )


def dimension(X: Any) -> str:
    """The dimension of an array that is not two-dimensional, in scikit-learn's words."""
    return f"{X.ndim}D" if X.ndim else "scalar"


def no_table(X: Any, name: str) -> str:
    """What an argument is that is neither a frame nor an array, and what to pass in its place."""
    if isinstance(X, str | PathLike):
        return f"{name} is the text {str(X)!r}. Read a file first, such as by pandas.read_csv"
    if isinstance(X, list | tuple) and X:
        return f"{name} is a {type(X).__name__} of {type(X[0]).__name__}, not of rows of numbers"
    return f"{name} is {'' if X is None else 'of type '}{type_and_advice(X, name)}"


def type_and_advice(X: Any, name: str, columns: Sequence[Any] = ()) -> str:
    """The type of an argument that is no frame, of these columns if any, and how to make one if that is evident."""
    kind = "None" if X is None else type(X).__name__
    if kind == "LazyFrame":
        return f"{kind}. Pass {name}.collect()"
    if isinstance(X, dict):
        return f"{kind}. Pass pandas.DataFrame({name})"
    if columns and isinstance(X, list | tuple | np.ndarray):
        return f"{kind}. Pass pandas.DataFrame({name}, columns={list(columns)})"
    return f"{kind}. Pass list({name})" if isinstance(X, Iterator) else kind


def not_numeric(what: str, dtype: Any, value: Any, advice: str = "") -> InputTypeError:
    """The error for a text, or another value, where there must be numbers."""
    held = f"{'text, such as ' if isinstance(value, str | bytes) else ''}{value!r}"
    return InputTypeError(f"{what} has dtype {dtype}, and not all of it is numeric: it holds {held}{advice}")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line that called this package."""
    package, frame, level = __name__.partition(".")[0], sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def from_objects(values: np.ndarray, what: str) -> np.ndarray:
    """Python's numbers as float64."""
    text = next((value for value in values.flat if isinstance(value, str | bytes)), None)
    if text is not None:
        raise not_numeric(what, values.dtype, text)
    try:
        return values.astype(np.float64)
    except OverflowError as error:
        raise ValueError(f"{what} holds an integer beyond float64's range, about 1.8e308") from error
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"{what} has dtype object, and not all of it is numeric: {error}") from error


def check_nulls(X: Any, dtypes: list[Any], name: str, allowed: bool = False) -> bool:
    """Whether there are missing values other than NaN, which is checked later, together with infinity.

    Raise if there are, unless they are allowed.
    """
    if library_of(X) == "cudf":
        nulls = np.array([X[column].null_count for column in X.columns])  # cuDF stores these counts
    else:
        possible = [i for i, dtype in enumerate(dtypes) if not isinstance(dtype, np.dtype) or dtype.kind == "O"]
        nulls = np.zeros(len(dtypes), dtype=np.int64)
        for i in possible:
            nulls[i] = X.iloc[:, i].isna().sum()
            if (nulls[i] == 0 or allowed) and dtypes[i].kind == "O":
                from_objects(X.iloc[:, i].dropna().to_numpy(), column_label(X, i, name))
    if nulls.any() and not allowed:
        i = int(np.argmax(nulls > 0))
        values = "value" if nulls[i] == 1 else "values"
        raise ValueError(f"{column_label(X, i, name)} has {nulls[i]} missing {values} (null or NaN): drop or fill them")
    return bool(nulls.any())


def column_label(X: Any, i: int, name: str) -> str:
    """The name of column i of the argument `name` in an error."""
    return f"column {X.columns[i]!r}" + (f" of {name}" if name != "X" else "")


def check_finite(inputs: dict[str, Any], metric: Metric, device: Device) -> bool:
    """Raise unless all values of these arguments are finite and all distances within each fit into float64.

    Returns whether the distances between rows of different arguments are certain to fit, too.

    One pass settles nearly every case, whatever the metric: the sum S of all squares is finite only if every value is.
    A float32's squares fit into float64 anyway. For float64, |x - y|² <= 2|x|² + 2|y|² <= 2S, and S is off by a factor
    of 1 + O(n·d·2⁻⁵²). So S below an eighth of the maximum leaves every squared distance finite. Between rows of two
    arguments S is the sum of both. Where the metric takes missing values, columns are looked at instead.
    """
    if metric.rows == "packed":
        return True
    if metric.missing:
        for name, points in inputs.items():
            _raise_for_values(points, name, metric, device)
        return False
    small = kernels(device).squares_are_finite(*(points.values for points in inputs.values()))
    for (name, points), fits in zip(inputs.items(), small, strict=True):
        if not fits:
            _raise_for_values(points, name, metric, device)
    return all(small)


def _raise_for_values(points: Any, name: str, metric: Metric, device: Device) -> None:
    values, names, xp = points.values, points.names, device.xp
    with np.errstate(over="ignore", invalid="ignore"):
        missing, infinities = xp.isnan(values), to_host(xp.isinf(values).sum(axis=0))
        high, low = xp.where(missing, -xp.inf, values).max(axis=0), xp.where(missing, xp.inf, values).min(axis=0)
        spans = to_host(high).astype(np.float64) - to_host(low)
        nans = np.zeros_like(infinities) if metric.missing else to_host(missing.sum(axis=0))
    bad = np.flatnonzero(nans + infinities)
    if bad.size:
        columns = [_count_bad(_column(c, names), int(nans[c]), int(infinities[c])) for c in bad[:NAMED_COLUMNS]]
        more = f" and {bad.size - NAMED_COLUMNS} more columns" if bad.size > NAMED_COLUMNS else ""
        raise ValueError(f"{name} contains values that are not finite: {'; '.join(columns)}{more}. Drop or fill them.")
    check_spans(spans, names, name, metric)


def check_spans(spans: np.ndarray, names: list[Any] | None, name: str, metric: Metric) -> None:
    """Raise if the span of a column (its largest minus its least value) lets distances overflow float64."""
    widest, largest = int(np.argmax(spans)), metric.largest_span(spans.size)
    if spans[widest] > largest:
        raise ValueError(
            f"{metric.name} distances may overflow float64: the values of {_column(widest, names)} span "
            f"{spans[widest]:.3g}, and up to {largest:.3g} is valid. Rescale {name}."
        )


def _column(c: Any, names: list[Any] | None) -> str:
    return f"column {int(c) if names is None else repr(names[c])}"


def _count_bad(column: str, nans: int, infinities: int) -> str:
    counts = [f"{count} {what}" for count, what in ((nans, "NaN"), (infinities, "infinity")) if count]
    return f"{column} has {' and '.join(counts)}"
