"""Text as characters: a Series or column of pandas, cuDF, Polars or Arrow, an array or a list of strings.

A string of Python becomes four bytes a character by one encoding of all strings; what cuDF holds stays on its GPU.
"""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from rapids_slink.metrics import Metric
from rapids_slink.points.check import MAX_ROWS, InputTypeError
from rapids_slink.points.output import OutputKind, column_names, is_dataframe, library_of
from rapids_slink.report import counted
from rapids_slink.runtime.device import CPU, Array, Device, is_on_gpu

#: Strings that are encoded at a time.
ENCODED = 2**20


def characters_of(X: Any, metric: Metric, device: Device, name: str) -> tuple[Array, Array]:
    """The code points of all strings, one after the other, (c,) int32, and the strings' lengths, (n,) int64.

    Raises InputTypeError for what holds no text and ValueError for nulls, several columns and no rows.
    """
    column, label = column_of(X, metric, device, name)
    if not len(column):
        raise ValueError(f"{name} has no rows")
    if len(column) > MAX_ROWS:
        raise ValueError(f"up to {MAX_ROWS} rows are possible, got {len(column)}")
    if library_of(column) == "cudf":
        if column.dtype.kind not in "OT" or getattr(column, "str", None) is None:
            raise InputTypeError(f"metric={metric.name!r} takes text, and {label} has dtype {column.dtype}")
        if missing := int(column.isna().sum()):
            raise _of_nulls(label, missing)
        if device.is_gpu:
            points = column.str.code_points().values.astype("int32")
            return _decoded(points, device), column.str.len().values.astype("int64")
        column = column.to_pandas()
    values = _objects(column)
    _check(values, metric, label)
    strings = values.tolist()
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    encoded = [
        "".join(strings[i : i + ENCODED]).encode("utf-32-le", "surrogatepass") for i in range(0, len(strings), ENCODED)
    ]
    points = np.frombuffer(encoded[0] if len(encoded) == 1 else b"".join(encoded), np.int32)
    return device.asarray(points), device.asarray(lengths)


def strings_of(X: Any, metric: Metric, device: Device) -> np.ndarray:
    """The strings of an input that `characters_of` has read, (n,) objects of Python."""
    column, _ = column_of(X, metric, device, "X")
    return _objects(column.to_pandas() if library_of(column) == "cudf" else column).copy()


def _objects(column: Any) -> np.ndarray:
    values: np.ndarray = (
        column.to_numpy(dtype=object) if hasattr(column, "to_numpy") else np.asarray(column, dtype=object)
    )
    return values


def column_of(X: Any, metric: Metric, device: Device, name: str) -> tuple[Any, str]:
    """The one column of text, a Series or a one-dimensional array, and what messages call it."""
    X, _ = OutputKind.of(X, device)
    if is_dataframe(X):
        if X.shape[1] != 1:
            held = f"{name} has {counted(X.shape[1], 'column')}"
            advice = f": pass one of {column_names(X)}, and others as groups" if X.shape[1] else ""
            raise ValueError(f"metric={metric.name!r} takes one column of text, and {held}{advice}")
        return X.iloc[:, 0], f"column {column_names(X)[0]!r} of {name}"  # type: ignore[index]
    if library_of(X):
        return X, name if X.name is None else f"column {X.name!r} of {name}"
    if is_on_gpu(X) or isinstance(X, str | bytes | Set | Mapping) or not hasattr(X, "__len__"):
        raise InputTypeError(f"metric={metric.name!r} takes text, and {name} is of type {type(X).__name__}")
    if np.ma.isMaskedArray(X) and np.ma.is_masked(X):
        raise _of_nulls(name, int(np.ma.count_masked(X)))
    if not hasattr(X, "dtype"):
        column = np.empty(len(X), object)
        column[:] = [x[0] if isinstance(x, list | tuple) and len(x) == 1 else x for x in X]
        return column, name
    if X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    if X.ndim != 1:
        raise ValueError(f"metric={metric.name!r} takes one column of text, and {name} has shape {tuple(X.shape)}")
    return X, name


def _check(values: np.ndarray, metric: Metric, label: str) -> None:
    """Raise unless all objects are strings."""
    kinds = set(map(type, values))
    if kinds <= {str}:
        return
    missing = int(CPU.frames.isna(values).sum())
    if missing:
        raise _of_nulls(label, missing)
    row = next((i for i, value in enumerate(values) if not isinstance(value, str)), None)
    if row is not None:
        raise InputTypeError(
            f"metric={metric.name!r} takes text, and {label} holds {values[row]!r} in row {row}, of type "
            f"{type(values[row]).__name__}"
        )


def _of_nulls(label: str, missing: int) -> ValueError:
    return ValueError(f"{label} has {counted(missing, 'null')}: drop these rows, or fill them with a text")


def _decoded(words: Array, device: Device) -> Array:
    """Code points of characters in UTF-8, whose bytes are a number with the first byte on top, as cuDF has them."""
    xp = device.xp
    words = words.view("uint32")
    tail = words & 0x3F | words >> 2 & 0xFC0 | words >> 4 & 0x3F000
    two, three = words & 0x1F00, words & 0xF0000
    four = words >> 24 & 0x07
    decoded = xp.where(words < 0x80, words, xp.where(words < 0xE000, words & 0x3F | two >> 2, 0))
    decoded = xp.where((words >= 0xE000) & (words < 0xF0000000), tail & 0xFFF | three >> 4, decoded)
    return xp.where(words >= 0xF0000000, tail & 0x3FFFF | four << 18, decoded).astype("int32")
