"""Values and indexes of pandas as JSON and Parquet.

What JSON cannot spell is tagged, as in ``{"float": "inf"}`` and ``{"tuple": [...]}``. Parquet keeps every bit of a
number but not every index: each is decoded again before it is trusted to a file.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from rapids_slink.report import Report


def pandas_kind(value: Any) -> str:
    """Which of pandas' classes this is of, by name: under ``cudf.pandas`` the classes at hand are proxies."""
    names = (base.__name__ for base in type(value).__mro__ if base.__module__.partition(".")[0] == "pandas")
    return next((name for name in names if name in ("DataFrame", "Series", "Index")), "")


def to_parquet(frame: Any) -> bytes:
    """A frame without its index as a Parquet file."""
    # Categories are a dictionary, and lost without one. Elsewhere it is the one encoding that compares floats.
    categories = [name for name, dtype in frame.dtypes.items() if dtype == "category"]
    buffer = BytesIO()
    frame.to_parquet(buffer, engine="pyarrow", index=False, compression="zstd", use_dictionary=categories)
    return buffer.getvalue()


def encode_index(index: Any) -> tuple[dict[str, Any], bytes]:
    """An index as a description and a Parquet table, which is empty if the description says all."""
    import pandas as pd

    spec: dict[str, Any] = {"names": [to_json(name, "a name of the index") for name in index.names]}
    kind = type(index).__name__
    if kind == "RangeIndex":
        return {**spec, "range": [index.start, index.stop, index.step]}, b""
    spec["multi"] = kind == "MultiIndex"
    spec["freq"] = index.freqstr if kind in ("DatetimeIndex", "TimedeltaIndex") else None
    columns, spec["levels"] = {}, []
    for i in range(index.nlevels):
        level = index.get_level_values(i)
        text = level.dtype == object and pd.api.types.infer_dtype(level, skipna=False) == "string"
        if level.dtype != object or text:
            columns[str(i)] = pd.Series(level.astype("string") if text else level)
            spec["levels"].append({"dtype": str(level.dtype)})
        else:
            spec["levels"].append({"values": [to_json(value, "the index") for value in level]})
    try:
        table = to_parquet(pd.DataFrame(columns)) if columns else b""
        again = decode_index(spec, table)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # pyarrow's and pandas' errors share no base class
        raise TypeError(f"the index, of {_types(index)}, cannot be saved: {error}") from error
    if type(again).__name__ != kind or _types(again) != _types(index) or not again.equals(index):
        raise TypeError(f"the index, of {_types(index)}, cannot be saved: Parquet does not give it back as it was")
    return spec, table


def _types(index: Any) -> str:
    return ", ".join(f"{index.get_level_values(i).dtype}" for i in range(index.nlevels))


def to_json(value: Any, what: str) -> Any:
    """A value in JSON's terms, which `from_json` reads. `what` it is goes into the error."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [to_json(entry, what) for entry in value]}
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return {"objects": [to_json(entry, what) for entry in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        kind = "report" if isinstance(value, Report) else "dict"
        return {kind: {key: to_json(entry, what) for key, entry in value.items()}}
    raise TypeError(f"{what} cannot be saved: it holds {value!r}, of type {type(value).__name__}")


def decode_index(spec: dict[str, Any], table: bytes) -> Any:
    """The index that `encode_index` gave these for."""
    import pandas as pd

    names = [from_json(name) for name in spec["names"]]
    if "range" in spec:
        start, stop, step = spec["range"]
        return pd.RangeIndex(start, stop, step, name=names[0])
    columns: Any = pd.read_parquet(BytesIO(table), engine="pyarrow") if table else {}
    levels: list[Any] = []
    for i, of_level in enumerate(spec["levels"]):
        if "values" in of_level:
            values = [from_json(value) for value in of_level["values"]]
            levels.append(pd.Index(values, dtype=object, tupleize_cols=False))
        else:
            level, dtype = pd.Index(columns[str(i)]), of_level["dtype"]
            levels.append(level if str(level.dtype) == dtype else level.astype(dtype))
    if spec["multi"]:
        return pd.MultiIndex.from_arrays(levels, names=names)
    if spec["freq"] is not None:
        levels[0].freq = spec["freq"]
    return levels[0].set_names(names)


def from_json(value: Any) -> Any:
    """The value that `to_json` gave this for."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "float":
        return float(inner)
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(from_json(entry) for entry in inner)
    if kind == "objects":
        array = np.empty(len(inner), dtype=object)
        array[:] = [from_json(entry) for entry in inner]
        return array
    if kind in ("dict", "report"):
        entries = {key: from_json(entry) for key, entry in inner.items()}
        return Report(entries) if kind == "report" else entries
    raise ValueError(f"there is no kind of value called {kind!r}")
