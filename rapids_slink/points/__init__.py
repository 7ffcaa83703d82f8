"""Input to validated points, and results back in the caller's kind.

    as_points(X, device)       X of any kind          ──▶  Points: a C-contiguous float array on the device
    points.labels / frame / array    device results   ──▶  what the caller would have written himself

`Caller` is that second half alone, for the stages that take frames of edges instead of points. No GPU package is
imported here unless the device is a GPU or the caller's object already comes from one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np

from rapids_slink.device import CPU, Device, is_on_gpu, to_host
from rapids_slink.memory import Need, in_turn
from rapids_slink.report import counted

#: The output types of cuML that name a kind: whether of frames, and whether on the GPU.
CUML_KINDS: dict[Any, tuple[bool, bool]] = {
    "numpy": (False, False),
    "cupy": (False, True),
    "pandas": (True, False),
    "cudf": (True, True),
}
#: What follows the input takes, by rows, features and bytes of a value.
Stages = Callable[[int, int, int], Need] | None
#: The largest root of a sum of squares that leaves the sum itself below float64's maximum, with room to add two.
LARGEST_DISTANCE = 1e154
#: Cluster ids go up to 2n - 2 and are int32.
MOST_ROWS = 2**30
#: How many offending columns an error names.
NAMED_COLUMNS = 5


class InputTypeError(TypeError, ValueError):
    """The input is of a kind that has no distances (also a ValueError, as scikit-learn's estimator checks expect)."""


@dataclass(frozen=True)
class Caller:
    """The kind of object somebody handed in, and how to answer in it.

    Attributes
    ----------
    frame_given : bool
        A DataFrame (or Series) rather than an array.
    gpu : bool
        It is cuDF's or lies in GPU memory; otherwise pandas, NumPy or plain Python.
    proxy : bool
        It is a proxy of ``cudf.pandas``, and so will the answers be.
    """

    frame_given: bool
    gpu: bool
    proxy: bool = False

    @classmethod
    def of(cls, X: Any, device: Device) -> tuple[Any, Caller]:
        """`X` without its proxy, if it has one, and its caller."""
        bare, proxy = _without_proxy(X, device)
        family = _family(bare)
        return bare, cls(frame_given=bool(family), gpu=family == "cudf" or is_on_gpu(bare), proxy=proxy)

    def asked(self) -> Caller:
        """Who cuML's global output type says the caller is, if cuML is loaded and names a kind."""
        settings = getattr(sys.modules.get("cuml"), "global_settings", None)
        kind = CUML_KINDS.get(getattr(settings, "output_type", None))
        return self if kind is None else Caller(*kind)

    def array(self, array: Any) -> Any:
        """An array of either device as NumPy's or CuPy's."""
        return self.dress(self._move(array))

    def series(self, array: Any, index: Any = None, name: str | None = None) -> Any:
        """An array of either device as a Series of pandas or cuDF."""
        return self.dress(self._frames().Series(self._move(array), index=self._index(index), name=name))

    def labels(self, array: Any, index: Any = None, name: str = "label") -> Any:
        """One value a row: a Series for a frame, an array for an array."""
        return self.series(array, index=index, name=name) if self.frame_given else self.array(array)

    def frame(self, frame: Any, index: Any = None) -> Any:
        """A frame of either device as pandas' or cuDF's, its rows named by `index` if that is given."""
        on_gpu = _family(frame) == "cudf"
        if on_gpu and not self.gpu:
            frame = frame.to_pandas()
        elif self.gpu and not on_gpu:
            frame = self._frames().from_pandas(frame)
        if index is not None:
            frame.index = self._index(index)
        return self.dress(frame)

    def dress(self, result: Any) -> Any:
        """A result of the caller's library as a proxy, if the caller has proxies."""
        return sys.modules["cudf.pandas"].as_proxy_object(result) if self.proxy else result

    def _index(self, index: Any) -> Any:
        """An Index of either library in the caller's."""
        if _family(index) == "cudf" and not self.gpu:
            return index.to_pandas()
        return self._frames().from_pandas(index) if self.gpu and _family(index) == "pandas" else index

    def _move(self, array: Any) -> Any:
        if not self.gpu:
            return to_host(array)
        import cupy

        return cupy.asarray(array)

    def _frames(self) -> Any:
        if self.gpu:
            import cudf

            return cudf
        return CPU.frames


@dataclass(frozen=True)
class Points:
    """Rows to be clustered.

    Attributes
    ----------
    values : array of shape (n, d), float32 or float64
        C-contiguous, on the device, every value finite, no squared distance above float64's range. It may share
        memory with the caller's data: read only.
    names : list or None
        The columns' labels, as the frame spells them; None for an array.
    index : Index or None
        The frame's index.
    caller : Caller
        What X was.
    """

    values: Any
    names: list[Any] | None
    index: Any
    caller: Caller

    def labels(self, array: Any, name: str = "label") -> Any:
        """One value a row: a Series with X's index for a frame, an array for an array, or what cuML's type says."""
        return self.caller.asked().labels(array, self.index, name)

    def frame(self, frame: Any) -> Any:
        """A frame of the device in the caller's kind (pandas for NumPy, cuDF for CuPy)."""
        return self.caller.frame(frame)


def as_points(X: Any, device: Device, need: Stages = None, *, name: str = "X", checked: bool = True) -> Points:
    """Check `X` and put it on `device`.

    Parameters
    ----------
    X : DataFrame, array or nested list of shape (n, d)
        cuDF or pandas frame, ``cudf.pandas`` proxy, CuPy or NumPy array, or anything with
        ``__cuda_array_interface__``, ``__array__`` or DLPack. float32 and float64 keep their values and type; bool,
        float16 and integers of up to 16 bits become float32; other numbers become float64 (beyond 2**53, integers
        are rounded). A frame of several types takes their common type.
    device : Device
        Where the points go.
    need : callable, optional
        What the stages that follow take, of n, d and the bytes of a value. Checked together with what X itself takes,
        before it is copied.
    name : str
        The argument's, for errors.
    checked : bool
        Whether to look at the values; if not, `check_finite` has to.

    Raises
    ------
    InputTypeError
        Complex or sparse input, and columns that are not numbers. Both a TypeError and a ValueError.
    ValueError
        Not two-dimensional, empty, missing or infinite values, or distances beyond float64.
    DeviceMemoryError
        It would not fit.
    """
    X, caller = Caller.of(X, device)
    names, index = (list(X), X.index) if _is_dataframe(X) else (None, None)  # X.columns are slow to go through
    values = _frame_values(X, device, need, name) if names is not None else _array_values(X, device, need, name)
    points = Points(values, names, index, caller)
    if checked:
        check_finite({name: points}, device)
    return points


def _admit(shape: tuple[int, ...], dtype: np.dtype, copies: int, device: Device, need: Stages) -> None:
    """Raise unless so many copies of X, of which one stays, fit into memory, and then what follows."""
    n, d = shape
    if not copies and not need:
        return
    size = n * d * dtype.itemsize
    stages = [Need(copies * size, kept=size)] if copies else []
    if need:
        stages.append(need(n, d, dtype.itemsize))
    device.admit(in_turn(*stages), f"{counted(n, 'row')} of {counted(d, 'feature')}", reserve=True)


def on_device(frame: Any, device: Device) -> Any:
    """A frame of either kind (without a proxy) as one of `device`."""
    return Caller(frame_given=True, gpu=device.name == "cuda").frame(frame)


def on_host(value: Any) -> Any:
    """What a result is without a GPU: pandas' for cuDF's and for proxies, NumPy's for CuPy's, or itself."""
    if isinstance(value, Caller):
        return replace(value, gpu=False, proxy=False)
    value, _ = _without_proxy(value, CPU)
    if not is_on_gpu(value):
        return value
    return value.to_pandas() if hasattr(value, "to_pandas") else to_host(value)


def pandas_is_proxied() -> bool:
    """Whether ``cudf.pandas`` stands in for pandas in this process."""
    return bool(getattr(sys.modules.get("cudf.pandas"), "LOADED", False))


def require_columns(frame: Any, columns: tuple[str, ...], name: str) -> None:
    """Raise unless `frame`, the argument `name`, is a DataFrame with these columns."""
    valid = f"{name} must be a DataFrame with columns {', '.join(columns)}"
    if not _is_dataframe(frame):
        raise InputTypeError(f"{valid}, got {type(frame).__name__}")
    found = list(frame.columns)
    missing = [column for column in columns if column not in found]
    if missing:
        raise ValueError(f"{valid}; {', '.join(missing)} not found in {found}")


def as_integer(value: Any, name: str) -> int:
    """The value of a parameter that has to be an integer."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return int(value)


def require_edges(edges: Any, name: str) -> None:
    """Raise unless `edges`, the argument `name`, is a DataFrame of weighted edges without gaps."""
    require_columns(edges, ("src", "dst", "weight"), name)
    for column, kinds, valid in (("src", "iu", "integers"), ("dst", "iu", "integers"), ("weight", "iuf", "numbers")):
        if edges[column].dtype.kind not in kinds:
            raise InputTypeError(f"column {column!r} of the {name} must hold {valid}, got dtype {edges[column].dtype}")
        if has_gaps(edges[column]):
            raise ValueError(f"column {column!r} of the {name} holds nulls or NaN")


def has_gaps(column: Any) -> bool:
    """Whether a column of numbers holds nulls or NaN."""
    nulls = getattr(column, "null_count", None)
    if nulls is None:
        return bool(column.isna().any())
    if nulls or column.dtype.kind != "f":  # cuDF keeps that count
        return bool(nulls)
    values = column.values
    return bool((values != values).any())


def column_values(column: Any, device: Device) -> Any:
    """A column of numbers without gaps as an array of the device, which may share its memory: read only."""
    if device.name == "cuda" and _family(column) == "cudf":
        return column.values
    if isinstance(column.dtype, np.dtype):
        values = column.to_numpy()
        # Long doubles and swapped bytes are NumPy's alone.
        plain = np.float64 if values.dtype.itemsize > 8 else values.dtype.newbyteorder("=")
        return device.asarray(values.astype(plain, copy=False))
    return device.asarray(column.to_numpy(dtype={"i": "int64", "u": "uint64", "f": "float64"}[column.dtype.kind]))


def _without_proxy(X: Any, device: Device) -> tuple[Any, bool]:
    """The object inside a ``cudf.pandas`` proxy: the GPU's on a GPU, unless it holds what only pandas can."""
    module = sys.modules.get("cudf.pandas")
    if module is None or not module.is_proxy_object(X):
        return X, False
    if device.name == "cuda":
        try:
            return X.as_gpu_object(), True
        except (TypeError, ValueError, NotImplementedError):  # mixed objects: the checks below name the column
            pass
    return X.as_cpu_object(), True


def _family(X: Any) -> str:
    """Whose DataFrame, Series or Index this is, "pandas" or "cudf"; "" for anything else."""
    kind: Any = type(X)
    return _family_of(kind)


@cache
def _family_of(kind: type) -> str:
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("pandas", "cudf") and base.__name__ in ("DataFrame", "Series", "Index"):
            return package
    return ""


def _is_dataframe(X: Any) -> bool:
    return bool(_family(X)) and getattr(X, "ndim", 0) == 2 and hasattr(X, "columns")


def _frame_values(X: Any, device: Device, need: Stages, name: str) -> Any:
    """A frame's values on `device`: one copy out of the columns, one into rows."""
    _check_shape(X.shape, name)
    dtypes = list(X.dtypes)
    on_gpu = _family(X) == "cudf"
    distinct = list(dict.fromkeys(dtypes))
    for dtype in distinct:
        _check_type(dtype, _column_of(X, dtypes.index(dtype), name), objects=not on_gpu)
    target = np.result_type(*(_float_type(dtype) for dtype in distinct))
    plain = all(isinstance(dtype, np.dtype) for dtype in distinct)
    at_once = on_gpu and device.name == "cuda" and plain and len(distinct) == 1
    _admit(X.shape, target, 1 if at_once else 2, device, need)  # by columns, then by rows
    if at_once:
        rows = device.kernels("points").interleave(X, distinct[0], target)
        if rows is not None:
            return rows
    _check_nulls(X, dtypes, name)
    if on_gpu:
        # A nullable type without nulls casts to its plain twin; only then may a GPU array be taken.
        X = X if plain else X.astype(target)
        columns = X.to_cupy(dtype=target) if device.name == "cuda" else X.to_numpy(dtype=target)
    elif plain:
        columns = X.to_numpy(dtype=target)
    else:
        columns = np.empty((X.shape[1], X.shape[0]), dtype=target)
        for i in range(X.shape[1]):
            columns[i] = X.iloc[:, i].to_numpy(dtype=target)
        columns = columns.T
    array_module = np if isinstance(columns, np.ndarray) else device.xp
    return device.asarray(array_module.ascontiguousarray(columns))


def _column_of(X: Any, i: int, name: str) -> str:
    """What an error calls column i of the frame that is the argument `name`: there is seldom another."""
    return f"column {X.columns[i]!r}" + (f" of {name}" if name != "X" else "")


def _check_nulls(X: Any, dtypes: list[Any], name: str) -> None:
    """Raise for missing values other than NaN, which is looked for later, together with infinity."""
    if _family(X) == "cudf":
        nulls = np.array([X[column].null_count for column in X.columns])  # cuDF keeps these counts
    else:
        unsure = [i for i, dtype in enumerate(dtypes) if not isinstance(dtype, np.dtype) or dtype.kind == "O"]
        nulls = np.zeros(len(dtypes), dtype=np.int64)
        for i in unsure:
            nulls[i] = X.iloc[:, i].isna().sum()
            if nulls[i] == 0 and dtypes[i].kind == "O":
                _from_objects(X.iloc[:, i].to_numpy(), _column_of(X, i, name))
    if nulls.any():
        i = int(np.argmax(nulls > 0))
        values = "value" if nulls[i] == 1 else "values"
        raise ValueError(
            f"{_column_of(X, i, name)} has {nulls[i]} missing {values} (null or NaN); "
            "SingleLinkage needs finite numbers: drop or fill them"
        )


def _check_type(dtype: Any, what: str, objects: bool = True) -> None:
    """Raise unless `dtype` is a number's, or `objects` may be and a look at each value has to decide."""
    if dtype.kind == "c":
        raise InputTypeError(f"Complex data not supported: {what} has dtype {dtype}")
    # Categories and decimals say kind "O" too, hence the comparison.
    if dtype.kind not in "biuf" and not (objects and dtype == np.dtype(object)):
        raise InputTypeError(
            f"{what} has dtype {dtype}, which is not numeric; drop, encode or convert it "
            "(integers, booleans and floats are valid)"
        )


@cache
def _float_type(dtype: Any) -> np.dtype:
    """float32 if it holds every value of `dtype`, otherwise float64."""
    size = getattr(dtype, "subtype", dtype).itemsize  # a subtype: pandas' sparse columns
    small = dtype.kind == "b" or (dtype.kind in "iuf" and size <= (4 if dtype.kind == "f" else 2))
    return np.dtype(np.float32 if small else np.float64)


def _array_values(X: Any, device: Device, need: Stages, name: str) -> Any:
    """An array's, or a nested list's, values on `device`."""
    X = _as_array(X, device, name)
    if X.ndim != 2:
        raise ValueError(_wrong_dimensions(X))
    _check_shape(X.shape, name)
    _check_type(X.dtype, name)
    if X.dtype.kind == "O":
        X = _from_objects(X, name)
    target = _float_type(X.dtype)
    as_it_is = X.dtype == target and X.flags.c_contiguous and is_on_gpu(X) == (device.name == "cuda")
    _admit(X.shape, target, 0 if as_it_is else 1, device, need)
    if as_it_is:
        return X
    if X.dtype.itemsize > 8 or not X.dtype.isnative:  # NumPy's long double and swapped bytes, which CuPy does not know
        X = X.astype(target)
    return device.xp.ascontiguousarray(device.asarray(X), dtype=target)


def _as_array(X: Any, device: Device, name: str) -> Any:
    """`X` as an array of NumPy or CuPy, wherever its data is."""
    if type(X) is device.xp.ndarray:
        return X
    if not _family(X) and (hasattr(X, "tocsr") or hasattr(X, "tocoo")):  # a Series has what its labels are called
        raise InputTypeError(f"Sparse input is not supported by SingleLinkage: pass {name}.toarray()")
    if hasattr(X, "detach"):  # a torch tensor that records gradients refuses to be read
        X = X.detach()
    if _family(X) == "cudf":  # a Series, whose dimensions are refused next; cuDF refuses np.asarray
        return X
    if np.ma.is_masked(X):
        masked = np.ma.count_masked(X)
        raise ValueError(f"{name} has {masked} masked values; SingleLinkage needs finite numbers: fill them")
    if is_on_gpu(X) and not hasattr(X, "__cuda_array_interface__"):
        import cupy

        X = cupy.from_dlpack(X)
    if is_on_gpu(X):
        return device.asarray(X)
    if hasattr(X, "__dlpack__") and not hasattr(X, "__array__"):
        return np.from_dlpack(X)
    try:
        return np.asarray(X)
    except ValueError as error:
        raise ValueError(f"{name} is not a table of numbers with rows of equal length: {error}") from error


def _from_objects(values: np.ndarray, what: str) -> np.ndarray:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"{what} has dtype object, and not all of it is numeric: {error}") from error


def _wrong_dimensions(X: Any) -> str:
    if X.ndim > 2:
        return f"Found array with dim {X.ndim}, while dim <= 2 is required by SingleLinkage."
    found = "scalar" if X.ndim == 0 else "1D"
    return (
        f"Expected 2D array, got {found} array instead. Reshape your data either using array.reshape(-1, 1) (for a "
        "Series: to_frame()) if it has a single feature or array.reshape(1, -1) if it contains a single sample."
    )


def _check_shape(shape: tuple[int, ...], name: str) -> None:
    if shape[0] > MOST_ROWS:
        raise ValueError(f"{name} has {shape[0]} rows; SingleLinkage takes up to {MOST_ROWS}")
    for count, what in zip(shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ValueError(
                f"Found array with 0 {what}(s) (shape={tuple(shape)}) while a minimum of 1 is required "
                "by SingleLinkage."
            )


def check_finite(given: dict[str, Points], device: Device) -> bool:
    """Raise unless all values of the arguments by these names are finite and all squared distances fit into float64.

    The answer is whether those between rows of different arguments are known to fit, too.

    One pass settles nearly every case: the sum S of all squares is finite only if every value is. A float32's squares
    fit into float64 anyway. For float64, |x - y|² <= 2|x|² + 2|y|² <= 2S, and S is off by a factor of
    1 + O(n·d·2⁻⁵²), so S below an eighth of the maximum leaves every squared distance finite, and between rows of
    two arguments S is the sum of both.
    """
    small = device.kernels("points").squares_are_finite(*(points.values for points in given.values()))
    for (name, points), fits in zip(given.items(), small, strict=True):
        if not fits:
            _look_for_values_that_do_not_fit(points, name, device)
    return all(small)


def _look_for_values_that_do_not_fit(points: Points, name: str, device: Device) -> None:
    values, names, xp = points.values, points.names, device.xp
    with np.errstate(over="ignore", invalid="ignore"):
        nans, infinities = to_host(xp.isnan(values).sum(axis=0)), to_host(xp.isinf(values).sum(axis=0))
        spans = to_host(values.max(axis=0)).astype(np.float64) - to_host(values.min(axis=0))
    bad = np.flatnonzero(nans + infinities)
    if bad.size:
        found = [_count_bad(_column(c, names), int(nans[c]), int(infinities[c])) for c in bad[:NAMED_COLUMNS]]
        more = f" and {bad.size - NAMED_COLUMNS} more columns" if bad.size > NAMED_COLUMNS else ""
        raise ValueError(f"{name} contains values that are not finite: {'; '.join(found)}{more}. Drop or fill them.")
    widest = int(np.argmax(spans))
    if spans[widest] > LARGEST_DISTANCE / values.shape[1] ** 0.5:
        raise ValueError(
            f"Squared distances overflow float64: the values of {_column(widest, names)} span {spans[widest]:.3g}, and "
            f"distances up to {LARGEST_DISTANCE:.0e} are valid. Rescale {name}."
        )


def _column(c: Any, names: list[Any] | None) -> str:
    return f"column {int(c) if names is None else repr(names[c])}"


def _count_bad(column: str, nans: int, infinities: int) -> str:
    counts = [f"{count} {what}" for count, what in ((nans, "NaN"), (infinities, "infinity")) if count]
    return f"{column} has {' and '.join(counts)}"
