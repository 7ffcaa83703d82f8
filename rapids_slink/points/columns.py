"""Columns of frames that hold edges or merges: checks, and conversion to arrays."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from rapids_slink.metrics import OVERFLOW, Metric
from rapids_slink.missing import USUAL_MARKS, as_read
from rapids_slink.points.output import array_of, is_dataframe, library_of, on_host
from rapids_slink.points.validate import InputTypeError, column_label, not_numeric, type_and_advice, warn
from rapids_slink.report import counted
from rapids_slink.runtime.device import Array, Device, all_true, device_of, to_host

#: The largest number of columns that an error lists.
LISTED_COLUMNS = 20
#: How the names of pandas' Arrow types of text and of categories begin.
ARROW_TEXT = "string[", "large_string[", "dictionary<"


def require_columns(frame: Any, columns: Sequence[Any], name: str, *, others: bool = True) -> None:
    """Raise unless `frame`, the argument `name`, is a DataFrame with these columns, and `others` only if allowed."""
    valid = f"{name} must be a DataFrame with columns {_listed(columns)}"
    if not is_dataframe(frame):
        raise InputTypeError(f"{valid}, got {type_and_advice(frame, name, columns)}")
    wanted, counts = Counter(columns), Counter(frame)
    if missing := wanted - counts:
        raise ValueError(f"{valid}; {_listed(missing)} not found in [{_listed(map(repr, frame))}]")
    for column in columns:
        if counts[column] > 1:
            raise ValueError(f"{valid}; {column!r} is there {counts[column]} times")
    if not others and (surplus := counts - wanted):
        raise ValueError(f"{valid} and no others; it has {_listed(map(repr, surplus))} too")


def _listed(columns: Iterable[Any]) -> str:
    names = [str(column) for column in columns]
    more = f" and {len(names) - LISTED_COLUMNS} more" if len(names) > LISTED_COLUMNS else ""
    return ", ".join(names[:LISTED_COLUMNS]) + more


def require_numbers(frame: Any, name: str, **kinds: str) -> None:
    """Raise unless these columns of the argument `name` hold numbers of NumPy's `kinds`, without gaps."""
    for column, kind in kinds.items():
        if frame[column].dtype.kind not in kind:
            valid = "numbers" if "f" in kind else "integers"
            raise InputTypeError(f"column {column!r} of the {name} must hold {valid}, got dtype {frame[column].dtype}")
        if has_gaps(frame[column]):
            raise ValueError(f"column {column!r} of the {name} holds nulls or NaN")


def require_edges(edges: Any, name: str) -> None:
    """Raise unless `edges`, the argument `name`, is a DataFrame of weighted edges without gaps."""
    require_columns(edges, ("src", "dst", "weight"), name)
    require_numbers(edges, name, src="iu", dst="iu", weight="iuf")


def without_text(
    X: Any, types: list[Any], metric: Metric, missing_values: Collection[Any], coded: bool, name: str
) -> tuple[Any, Any]:
    """A frame of these types with numbers in place of text and categories, and which of its columns have such numbers.

    Values count as `as_read` says, and NaN stands for nulls and for `missing_values`. If `coded`, equal values of a
    column have equal codes, and that is all that hamming asks. Otherwise each text must be a number. Only hamming takes
    categories. If no column holds either, X itself and None.

    Warns of a text that usually means missing and is not among `missing_values`, for a metric that takes these.
    """
    may_be = [(i, X.iloc[:, i]) for i, dtype in enumerate(types) if dtype.kind in "OU"]
    columns = {i: column for i, column in may_be if _is_text(column, metric)}
    if not columns:
        return X, None
    advice = "; name it in missing_value if it means missing" if metric.missing else ""
    marked = {}
    for i, column in columns.items():
        label = column_label(X, i, name)
        columns[i], marks = _numbers(column, label, missing_values, coded, advice)
        if marks:
            marked[label] = marks
    if marked and metric.missing:
        label, marks = next(iter(marked.items()))
        others = f" ({counted(len(marked) - 1, 'other column')} likewise)" if len(marked) > 1 else ""
        warn(f"{label} holds {', '.join(map(repr, marks))}{others}, a value like any other{advice}")
    frame = type(X)({i: columns[i] if i in columns else X.iloc[:, i] for i in range(len(types))})
    frame.columns = X.columns
    return frame, np.isin(np.arange(len(types)), list(columns))


def _numbers(
    column: Any, label: str, missing_values: Collection[Any], coded: bool, advice: str
) -> tuple[Any, list[str]]:
    """A column of text or categories as numbers, and its texts that usually mean missing; see `without_text`."""
    if str(column.dtype).startswith("dictionary"):  # pandas makes no categories of one with nulls
        column = column.astype(object)
    try:
        try:
            categories = column.astype("category").cat
        except OverflowError:  # pandas reads integers beyond float64 as float64 in some versions
            exact = column.map(lambda value: Decimal(value) if type(value) is int else value)
            categories = exact.astype("category").cat
    except TypeError as error:
        raise InputTypeError(f"{label} has dtype {column.dtype}, and its values are no categories: {error}") from error
    codes, values = array_of(categories.codes.fillna(-1)), on_host(categories.categories)
    number, seen = np.full(len(values) + 1, np.nan), dict[Any, int]()  # the last number is that of a null, code -1
    held = np.unique(to_host(codes))  # some categories may have no row
    for i in held[held >= 0].tolist():
        value = as_read(values[i])
        if value in missing_values:
            continue
        is_number = isinstance(value, Real | Decimal)
        if coded:
            number[i] = seen.setdefault(value, len(seen))
        elif is_number and abs(value) <= OVERFLOW:
            number[i] = value
        else:
            raise not_numeric(label, column.dtype, value, advice)
    if coded and len(seen) <= 2**24:
        number = number.astype(np.float32)
    numbers = type(column)(device_of(codes).xp.asarray(number)[codes], index=column.index)
    return numbers, [mark for mark in USUAL_MARKS if mark in seen]


def _is_text(column: Any, metric: Metric) -> bool:
    """Whether a column holds text or, for hamming, categories."""
    if column.dtype == "category" or str(column.dtype).startswith("dictionary"):
        return metric.name == "hamming"
    if column.dtype == "string" or str(column.dtype).startswith(ARROW_TEXT):
        return True
    is_cudf = library_of(column) == "cudf"  # which has no other objects
    return column.dtype == np.dtype(object) and (is_cudf or any(isinstance(value, str) for value in column))


def has_gaps(column: Array) -> bool:
    """Whether a column of numbers holds nulls or NaN."""
    nulls = getattr(column, "null_count", None)
    if nulls is None:
        return bool(column.isna().any())
    if nulls or column.dtype.kind != "f":  # cuDF stores the number of nulls
        return bool(nulls)
    values = column.values
    return not all_true(values == values)


def column_values(column: Array, device: Device) -> Any:
    """A column of numbers without gaps as an array of the device. It may share memory: it must not be written."""
    if device.is_gpu and library_of(column) == "cudf":
        return column.values
    if isinstance(column.dtype, np.dtype):
        values = column.to_numpy()
        # Only NumPy has long doubles and swapped bytes.
        plain = np.float64 if values.dtype.itemsize > 8 else values.dtype.newbyteorder("=")
        return device.asarray(values.astype(plain, copy=False))
    return device.asarray(column.to_numpy(dtype={"i": "int64", "u": "uint64", "f": "float64"}[column.dtype.kind]))


def as_integer(value: Any, name: str) -> int:
    """The value of a parameter that must be an integer."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return int(value)


def check_weights(weights: Any, n: int, device: Device) -> Array:
    """The parameter ``sample_weight`` as a float64 array of the device, one finite number above 0 for each row."""
    values = array_of(weights) if library_of(weights) else weights
    if not isinstance(values, np.ndarray | device.xp.ndarray):
        values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"sample_weight must hold one number for each of {n} rows, got shape {values.shape}")
    if values.dtype.kind not in "biuf":
        raise TypeError(f"sample_weight must hold numbers, got dtype {values.dtype}")
    values = device.asarray(values, "float64")
    valid = (values > 0) & (values < device.xp.inf)
    if not all_true(valid):
        row = int((~valid).argmax())
        raise ValueError(f"sample_weight must be above zero and finite: that of row {row} is {float(values[row])}")
    return values
