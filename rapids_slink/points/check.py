"""Checks of input: shapes, types, gaps and values without distances, and the columns of edges and merges.

Errors name the column or the argument.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np

from rapids_slink.metrics import ITEM_METRICS, OVERFLOW, SET_METRICS, Formula, Metric
from rapids_slink.points.output import (
    FRAMES,
    OutputKind,
    array_of,
    as_known,
    is_collection,
    is_dataframe,
    library_of,
    on_host,
)
from rapids_slink.report import counted, listed
from rapids_slink.runtime.cuda import THREADS, launch_blocks, value_option
from rapids_slink.runtime.device import CPU, Array, Device, all_true, device_of, is_on_gpu, to_host
from rapids_slink.settings import as_read, means_missing_in, up_to_of

SOURCE = "points/points.cu"
#: At most this many blocks sum a GPU's squares.
BLOCKS = 2048
#: Cluster ids go up to 2n - 2 and are int32.
MAX_ROWS = 2**30
#: The largest number of offending columns that an error names.
NAMED_COLUMNS = 5
#: The largest number of columns that an error lists.
LISTED_COLUMNS = 20
#: Up to this number of a GPU's values are looked at on the host: a copy takes less time than a launch and its result.
FEW_VALUES = 2**15
#: By the type of RDKit's bit vectors, the expression that turns them into rows of points, or into sets.
BIT_VECTORS = {"ExplicitBitVect": "list({})", "SparseBitVect": "[set(bits.GetOnBits()) for bits in {}], which are sets"}
#: How the names of the types of lists begin in Polars, Arrow, and pandas' Arrow types.
LISTS = ("list", "large_list", "fixed_size_list", "array")
#: How the names of pandas' Arrow types for text and for categories begin.
ARROW_TEXT = "string[", "large_string[", "dictionary<"


class InputTypeError(TypeError, ValueError):
    """The input has a type without distances. It is a ValueError too, as scikit-learn's estimator checks expect."""


def check_type(dtype: Any, what: str, metric: Metric, objects: bool = True) -> None:
    """Raise unless `dtype` is numeric, or, if `objects` is true, the object type, whose values are checked later.

    A metric of packed bits takes uint8 alone.
    """
    if metric.rows.are_packed and dtype != np.uint8:
        name = f"metric={metric.name!r} takes uint8 with eight bits in each, as numpy.packbits makes them"
        raise InputTypeError(f"{name}: {what} has dtype {dtype}")
    if dtype.kind == "c":
        raise InputTypeError(f"Complex data not supported: {what} has dtype {dtype}")
    # Categories and decimals say kind "O" too, hence the comparison.
    if dtype.kind not in "biuf" and not (objects and dtype == np.dtype(object)):
        if is_list_type(dtype):
            column = "column.to_pandas()" if type(dtype).__name__ == "ListDtype" else "column"
            raise InputTypeError(f"{what} has dtype {dtype}: of vectors numpy.stack({column}) makes an array")
        raise InputTypeError(
            f"{what} has dtype {dtype}, which is not numeric; drop, encode or convert it "
            "(integers, booleans and floats are valid)"
        )


def is_list_type(dtype: Any) -> bool:
    """Return whether a column of this type holds a list in each row."""
    return type(dtype).__name__ == "ListDtype" or str(dtype).startswith(LISTS)


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Raise unless there are columns and rows, and no more rows than `MAX_ROWS`."""
    if shape[0] > MAX_ROWS:
        raise ValueError(f"{name} has {shape[0]} rows; up to {MAX_ROWS} are possible")
    for count, what in zip(shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ValueError(f"Found array with 0 {what}(s) (shape={tuple(shape)}) while a minimum of 1 is required.")


def check_same_columns(x: tuple[int, list[Any] | None], y: tuple[int, list[Any] | None]) -> None:
    """Raise unless X and Y, by their numbers of features and a frame's names, have the same columns in one order."""
    (d, names), (d_of_y, others) = x, y
    if d != d_of_y:
        raise ValueError(f"X and Y must have the same number of features, got {d} and {d_of_y}")
    if names and others and all(isinstance(name, str) for name in names + others) and names != others:
        i = next(i for i in range(d) if names[i] != others[i])
        raise ValueError(
            f"X and Y must have the same columns in the same order, but column {i} is {names[i]!r} in X and "
            f"{others[i]!r} in Y"
        )


def dimension_error(X: Any, name: str) -> str:
    """Return the message for an array that is not two-dimensional, in scikit-learn's words."""
    if X.ndim > 2:
        return f"Found array with dim {X.ndim}, while dim <= 2 is required."
    items = items_of(X, name)
    return (
        f"Expected 2D array, got {dimension(X)} array instead. Reshape your data either using array.reshape(-1, 1) "
        "(for a Series: to_frame()) if it has a single feature or array.reshape(1, -1) if it contains a single sample."
        + (f" {name} holds {items}." if items else "")
    )


def dimension(X: Any) -> str:
    """Return the dimension of an array that is not two-dimensional, in scikit-learn's words: "1D", "scalar"."""
    return f"{X.ndim}D" if X.ndim else "scalar"


def items_of(X: Any, name: str) -> str:
    """Describe what a column, an array or a list holds, and which metric or conversion takes it.

    Returns "" for numbers and anything else.
    """
    if is_collection(X) or getattr(X, "ndim", 1) != 1 or getattr(X, "dtype", np.dtype(object)).kind not in "OUT":
        return ""
    rows = X.head(NAMED_COLUMNS).to_pandas() if library_of(X) == "cudf" else X
    return next(filter(None, (_words_of_item(row, name) for row in rows)), "")


def _words_of_item(item: Any, source: str) -> str:
    """Describe what `source` holds if `item` is in one of its rows, and which metric or conversion takes it.

    Returns "" for numbers and anything else.
    """
    if isinstance(item, str):
        return f"text, which the metrics {', '.join(map(repr, ITEM_METRICS))} take"
    if (kind := type(item).__name__) in BIT_VECTORS:
        return f"{kind}s of RDKit: pass {BIT_VECTORS[kind].format(source)}"
    sets = f"sets, which the metrics {', '.join(map(repr, SET_METRICS))} take"
    if isinstance(item, set | frozenset):
        return sets
    if not isinstance(item, list | tuple | np.ndarray):
        return ""
    vectors = f"vectors, of which numpy.stack({source}) makes an array"
    if any(isinstance(value, float | np.floating) for value in item):
        return vectors
    return f"{vectors}, or {sets}" if all(isinstance(value, Real | np.bool_) for value in item) else sets


def no_table(X: Any, name: str) -> str:
    """Describe the type of an argument that is neither a frame nor an array, and say what to pass in its place."""
    if isinstance(X, str | PathLike):
        return f"{name} is the text {str(X)!r}. Read a file first, such as by pandas.read_csv"
    if isinstance(X, list | tuple) and X:
        items = items_of(X, name)
        advice = f". It holds {items}" if items else ""
        return f"{name} is a {type(X).__name__} of {type(X[0]).__name__}, not of rows of numbers{advice}"
    return f"{name} is {'' if X is None else 'of type '}{type_and_advice(X, name)}"


def type_and_advice(X: Any, name: str, columns: Sequence[Any] = ()) -> str:
    """Describe the type of an argument that is no frame, and say how to make a frame of it if that is evident.

    `columns` are those that the frame must have.
    """
    kind = "None" if X is None else type(X).__name__
    if kind == "LazyFrame":
        return f"{kind}. Pass {name}.collect()"
    if kind.endswith("GroupBy"):
        return f"{kind}. Pass the frame itself, and groups= the columns by which it groups"
    if kind == "AnnData":
        return f"{kind}. Pass {name}.obsm['X_pca'], or {name}.X"
    if kind == "Graph" and hasattr(X, "to_networkx"):  # a graph of igraph
        return f"{kind}. Pass {name}.to_networkx()"
    if hasattr(X, "to_pandas"):
        return f"{kind}. Pass {name}.to_pandas()"
    if isinstance(X, dict) or has_fields(X):
        return f"{kind}. Pass pandas.DataFrame({name})"
    if columns and isinstance(X, list | tuple | np.ndarray):
        return f"{kind}. Pass pandas.DataFrame({name}, columns={list(columns)})"
    return f"{kind}. Pass list({name})" if isinstance(X, Iterator) else kind


def has_fields(X: Any) -> bool:
    """Return whether this is a structured array, or a table with such a type."""
    return getattr(getattr(X, "dtype", None), "names", None) is not None


def not_numeric(what: str, dtype: Any, value: Any, advice: str = "") -> InputTypeError:
    """Return the error for a text, or another value, where there must be numbers."""
    held = f"{'text, such as ' if isinstance(value, str | bytes) else ''}{value!r}"
    return InputTypeError(f"{what} has dtype {dtype}, and not all of it is numeric: it holds {held}{advice}")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Give a warning that names the line that called this package."""
    package, frame, level = __name__.partition(".")[0], sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def from_objects(values: np.ndarray, what: str) -> np.ndarray:
    """Return an array of Python's numbers as float64. Raise if it holds text or anything that is no number."""
    text = next((value for value in values.flat if isinstance(value, str | bytes)), None)
    if text is not None:
        raise not_numeric(what, values.dtype, text)
    try:
        return values.astype(np.float64)
    except OverflowError as error:
        raise ValueError(f"{what} holds an integer beyond float64's range, about 1.8e308") from error
    except (TypeError, ValueError) as error:
        items = next(filter(None, (_words_of_item(value, "column") for value in values.flat)), "")
        reason = f"it holds {items}" if items else error
        raise InputTypeError(f"{what} has dtype object, and not all of it is numeric: {reason}") from error


def check_nulls(X: Any, dtypes: list[Any], name: str, allowed: bool = False) -> bool:
    """Return whether there are missing values other than NaN. Raise if there are, unless they are allowed.

    NaN is checked later, together with infinity.
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
    """Return the words by which an error names column i of the argument `name`."""
    return f"column {X.columns[i]!r}" + (f" of {name}" if name != "X" else "")


def check_finite(inputs: dict[str, Any], metric: Metric, device: Device) -> bool:
    """Raise unless all values of these arguments are finite and all distances within each argument fit into float64.

    Returns whether the distances between rows of different arguments are certain to fit, too.

    One pass settles nearly every case, whatever the metric: the sum S of all squares is finite only if every value is.
    A float32's squares fit into float64 anyway. For float64, |x - y|² <= 2|x|² + 2|y|² <= 2S, and S is off by a factor
    of 1 + O(n·d·2⁻⁵²). So S below an eighth of the maximum leaves every squared distance finite. Between rows of two
    arguments S is the sum of both. Where the metric takes missing values, columns are looked at instead.
    """
    if metric.rows.are_packed:
        return True
    if metric.missing:
        for name, points in inputs.items():
            _check_values(points, name, metric, device)
        return False
    arrays = [points.values for points in inputs.values()]
    if device.is_gpu and max(values.size for values in arrays) > FEW_VALUES:
        small = squares_are_finite(arrays, device)
    else:  # without BLAS: after a call its threads spin for a tenth of a second on cores that the search needs
        flat = [(to_host(values).astype(np.float64) if device.is_gpu else values).ravel() for values in arrays]
        with np.errstate(over="ignore", invalid="ignore"):
            small = [np.einsum("i,i->", values, values) <= np.finfo(values.dtype).max / 8 for values in flat]
    for (name, points), fits in zip(inputs.items(), small, strict=True):
        if not fits:
            _check_values(points, name, metric, device)
    return bool(all(small))


def squares_are_finite(arrays: list[Any], device: Device) -> list[bool]:
    """Return whether the float64 sum of squares of each array of a GPU is at most an eighth of the largest number."""
    totals = device.xp.zeros(len(arrays))
    for i, values in enumerate(arrays):
        blocks, options = min(BLOCKS, -(-values.size // THREADS)), (value_option(values.dtype),)
        launch_blocks(
            SOURCE, "add_squares", (blocks,), THREADS, values, np.int64(values.size), totals[i:], options=options
        )
    return [total <= np.finfo(np.float64).max / 8 for total in totals.tolist()]


def _check_values(points: Any, name: str, metric: Metric, device: Device) -> None:
    """Raise for values that are not finite or are too far apart. Warn of alleles that HierCC takes for missing."""
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
        wrong = xp.isinf(values) if metric.missing else ~xp.isfinite(values)
        row = int(wrong.astype("int8").max(axis=1).argmax())
        raise ValueError(
            f"{name} contains values that are not finite: {'; '.join(columns)}{more}. The first is in row {row}. "
            "Drop or fill them."
        )
    check_spans(spans, names, name, metric)
    least = to_host(low)
    if metric.formula is Formula.HIERCC and least.min() <= 0:
        c = int(least.argmin())
        label = _column(c, names) + (f" of {name}" if name != "X" else "")
        _warn_of_marks(label, [as_read(f"{least[c]:.17g}")], int((least <= 0).sum()), metric)


def check_spans(spans: np.ndarray, names: list[Any] | None, name: str, metric: Metric) -> None:
    """Raise if the span of a column (its largest minus its least value) lets distances overflow float64."""
    widest, largest = int(np.argmax(spans)), metric.formula.largest_span(spans.size)
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


# ----------------------------------------------------------------------------------- columns of edges and merges


def require_columns(frame: Any, columns: Sequence[Any], name: str, *, others: bool = True) -> None:
    """Raise unless `frame` is a DataFrame with these columns, alone unless `others`. Errors call it `name`."""
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
    """Raise unless these columns hold numbers of NumPy's `kinds`, without gaps; errors call the frame `name`."""
    for column, kind in kinds.items():
        if frame[column].dtype.kind not in kind:
            valid = "numbers" if "f" in kind else "integers"
            raise InputTypeError(f"column {column!r} of the {name} must hold {valid}, got dtype {frame[column].dtype}")
        if has_gaps(frame[column]):
            raise ValueError(f"column {column!r} of the {name} holds nulls or NaN")


def require_edges(edges: Any, name: str) -> None:
    """Raise unless `edges` is a DataFrame of weighted edges without gaps; errors call it `name`."""
    require_columns(edges, ("src", "dst", "weight"), name)
    require_numbers(edges, name, src="iu", dst="iu", weight="iuf")


#: The code of each value, by the number of a column that holds text or categories in one of the inputs.
Codes = dict[int, dict[Any, int]]


def without_text(
    X: Any, types: list[Any], metric: Metric, missing_values: Collection[Any], codes: Codes | None, name: str
) -> tuple[Any, Any]:
    """Return a frame with numbers in place of text and categories, and which of its columns were changed, (d,) bool.

    `types` are those of its columns. Returns X itself and None if no column holds text or categories. Values count as
    `as_read` says. NaN stands for nulls and for `missing_values`. Equal values of a column have equal `codes`, and
    hamming needs no more than that. Codes of further columns and values are added to `codes`. If it is None, each text
    must be a number. Only hamming takes categories.

    For a metric that takes missing values, warns of values that usually mean missing and are not in `missing_values`.
    """
    columns = {i: X.iloc[:, i] for i in sorted({*text_columns(X, types, metric), *(codes or ())}) if i < len(types)}
    if not columns:
        return X, None
    advice = "; name it in missing_value if it means missing" if metric.missing else ""
    marked = {}
    for i, column in columns.items():
        seen = None if codes is None else codes.setdefault(i, {})
        columns[i], held = _numbers(column, partial(column_label, X, i, name), missing_values, seen, advice)
        marks = [value for value in held if means_missing_in(metric, value)] if metric.missing else []
        if marks:
            marked[column_label(X, i, name)] = marks
    if marked:
        label, marks = next(iter(marked.items()))
        _warn_of_marks(label, marks, len(marked), metric)
    frame = type(X)({i: columns[i] if i in columns else X.iloc[:, i] for i in range(len(types))})
    frame.columns = X.columns
    return frame, np.isin(np.arange(len(types)), list(columns))


def text_columns(X: Any, types: list[Any], metric: Metric) -> list[int]:
    """Return the numbers of a frame's columns, of these types, that hold text or, for hamming, categories."""
    is_object = [dtype.kind in "OU" for dtype in types]
    if not any(is_object):  # a walk over thousands of columns takes milliseconds
        return []
    return [i for i, (_, column) in enumerate(X.items()) if is_object[i] and _is_text(column, metric)]


def _warn_of_marks(label: str, marks: list[Any], n_columns: int, metric: Metric) -> None:
    """Warn that a column, one of `n_columns`, holds values that usually mean missing and count like any other value."""
    others = f" ({counted(n_columns - 1, 'other column')} likewise)" if n_columns > 1 else ""
    advice = "name it in missing_value if it means missing"
    if metric.formula is Formula.HIERCC and not isinstance(marks[0], str):
        advice = "HierCC takes numbers up to 0 for missing, as missing_value='<=0' does"
    plain = [mark.item() if isinstance(mark, np.generic) else mark for mark in marks]
    warn(f"{label} holds {listed(plain)}{others}, a value like any other; {advice}")


def _numbers(
    column: Any, label: Callable[[], str], missing_values: Collection[Any], seen: dict[Any, int] | None, advice: str
) -> tuple[Array, Collection[Any]]:
    """Return a column of text or categories as numbers, and its values that are not missing; see `without_text`.

    The numbers are codes, and new ones are added to those `seen`. If that is None, they are the numbers that the text
    holds, and no values are returned.
    """
    try:
        codes, values = _categories(column)
    except TypeError as error:
        what = f"{label()} has dtype {column.dtype}, and its values are no categories"
        raise InputTypeError(f"{what}: {error}") from error
    number = np.full(len(values) + 1, np.nan)  # the last is the number of a null, code -1
    held, up_to = np.unique(to_host(codes)), up_to_of(missing_values)  # some categories may have no row
    for i in held[held >= 0].tolist():
        value = as_read(values[i])
        is_number = isinstance(value, Real | Decimal)
        if value in missing_values or (is_number and value <= up_to):
            continue
        if seen is not None:  # codes begin at 1, because numbers up to 0 give a warning for HierCC
            number[i] = seen.setdefault(value, len(seen) + 1)
        elif is_number and abs(value) <= OVERFLOW:
            number[i] = value
        else:
            raise not_numeric(label(), column.dtype, value, advice)
    if seen is not None and len(seen) < 2**24:
        number = number.astype(np.float32)
    return device_of(codes).xp.asarray(number)[codes], seen or ()


def _categories(column: Any) -> tuple[Array, list[Any]]:
    """Return the code of each value of a column, -1 for a null, and the values that the codes stand for."""
    if library_of(column) != "cudf" and column.dtype != "category":  # pandas' categories are slow for a few rows
        codes, values = CPU.frames.factorize(column.to_numpy(object))
        return codes, values.tolist()
    categories = column.astype("category").cat
    values = np.asarray(on_host(categories.categories), object)
    return array_of(categories.codes.fillna(-1)), values.tolist()


def _is_text(column: Any, metric: Metric) -> bool:
    """Return whether a column holds text or, for hamming, categories."""
    if column.dtype == "category" or str(column.dtype).startswith("dictionary"):
        return metric.name == "hamming"
    if column.dtype == "string" or str(column.dtype).startswith(ARROW_TEXT):
        return True
    is_cudf = library_of(column) == "cudf"  # all objects of cuDF are text
    return column.dtype == np.dtype(object) and (is_cudf or any(isinstance(value, str) for value in column))


def has_gaps(column: Array) -> bool:
    """Return whether a column of numbers holds nulls or NaN."""
    nulls = getattr(column, "null_count", None)
    if nulls is None:
        return bool(column.isna().any())
    if nulls or column.dtype.kind != "f":  # cuDF stores the number of nulls
        return bool(nulls)
    values = column.values
    return not all_true(values == values)


def column_values(column: Array, device: Device) -> Any:
    """Return a column of numbers without gaps as an array of the device. It may share memory: never write into it."""
    if device.is_gpu and library_of(column) == "cudf":
        return column.values
    if isinstance(column.dtype, np.dtype):
        values = column.to_numpy()
        # Only NumPy has long doubles and swapped bytes.
        plain = np.float64 if values.dtype.itemsize > 8 else values.dtype.newbyteorder("=")
        return device.asarray(values.astype(plain, copy=False))
    return device.asarray(column.to_numpy(dtype={"i": "int64", "u": "uint64", "f": "float64"}[column.dtype.kind]))


# ---------------------------------------------------------------------------------------------------- parameters


def as_integer(value: Any, name: str) -> int:
    """Return the value of the parameter `name` as an int. Raise TypeError unless it is an integer."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return int(value)


def check_index(values: Any, index: Any, name: str, rows: str = "X") -> None:
    """Raise if a Series or a frame, the argument `name`, has another index than that of `rows`.

    pandas would match the values by index. Values without an index go by position.
    """
    if index is None or library_of(values) not in FRAMES or not hasattr(values, "index"):
        return
    index, own = OutputKind.of(index, CPU)[0], OutputKind.of(values, CPU)[0].index
    own = OutputKind(is_frame=True, gpu=library_of(index) == "cudf").index(own)
    if len(own) == len(index) and not own.equals(index):
        raise ValueError(
            f"{name} has another index than {rows}: pass {name}.reindex({rows}.index), or {name}.to_numpy()"
        )


def _one_a_row(values: Any, n: int, name: str, what: str) -> Any:
    """Return the parameter of this name as an array of shape (n,), on the host or on a GPU as it is."""
    values = as_known(values)
    values = array_of(values) if library_of(values) else values
    if not (isinstance(values, np.ndarray) or is_on_gpu(values)):
        values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{name} must hold one {what} for each of {n} rows, got shape {values.shape}")
    return values


def check_labels(labels: Any, n: int, device: Device, index: Any = None) -> Array:
    """Return the parameter `labels` as an (n,) int32 array of the device, one label for each row; see `check_index`."""
    check_index(labels, index, "labels", "model.labels_")
    values = _one_a_row(labels, n, "labels", "label")
    if values.dtype.kind not in "iu":
        raise TypeError(f"labels must hold integers, -1 for noise, got dtype {values.dtype}")
    if n and int(values.max()) > np.iinfo(np.int32).max:
        raise ValueError(f"labels must be below 2^31, got {int(values.max())}")
    return device.asarray(values, "int32")


def check_weights(
    weights: Any,
    n: int,
    device: Device,
    name: str = "sample_weight",
    index: Any = None,
    rows: str = "X",
    any_sign: bool = False,
) -> Array:
    """Return the parameter of this name as an (n,) float64 array of the device.

    Raises unless it holds one finite number for each row, above 0 unless `any_sign` is true. `index` and `rows` are
    those of `check_index`.
    """
    check_index(weights, index, name, rows)
    values = _one_a_row(weights, n, name, "number")
    if values.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold numbers, got dtype {values.dtype}")
    values = device.asarray(values, "float64")
    valid = device.xp.isfinite(values) & (any_sign | (values > 0))
    if not all_true(valid):
        row, needed = int((~valid).argmax()), "finite" if any_sign else "above zero and finite"
        raise ValueError(f"{name} must be {needed}: that of row {row} is {float(values[row])}")
    return values
