"""Frames over arrays, and results in the type of the input: pandas, cuDF, ``cudf.pandas``, Polars, Arrow, arrays.

    kernels write columns ──▶ PreallocatedFrame ──▶ next stage ──▶ ...
    input ──OutputKind.of──▶ frame of pandas or cuDF, or array ──▶ ... ──▶ result ──OutputKind──▶ the input's type

Edge lists are frames with the columns of `EDGE_TYPES`. Inside the package all frames are pandas' or cuDF's. A table of
any other library that exports Arrow's stream counts as a table of Arrow, whose results export it in turn. No library of
the caller's is imported here unless an object comes from it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self, TypeAlias

import numpy as np

from rapids_slink.runtime.device import CPU, Array, Device, is_on_gpu, on_current_gpu, to_host
from rapids_slink.runtime.memory import outside_pool

#: The types of models' attributes and results on either device. Typing tools read them as types of pandas and NumPy,
#: whose methods cuDF and CuPy share. `storage` reads from them which types the attributes have on the host. `Rows` is a
#: value for each row: a Series for a frame, an array for an array. `Numbers` and `Distances` are the types of
#: parameters that take one value or several.
if TYPE_CHECKING:
    import pandas as pd

    Frame: TypeAlias = pd.DataFrame
    Rows: TypeAlias = pd.Series[Any] | Any
    Values: TypeAlias = np.ndarray[Any, Any]
    Index: TypeAlias = pd.Index[Any]
    Numbers: TypeAlias = int | Sequence[int] | np.ndarray[Any, Any]
    Distances: TypeAlias = float | Sequence[float] | np.ndarray[Any, Any]
else:
    Frame = Annotated[Any, "DataFrame"]
    Rows = Annotated[Any, "Series", "ndarray"]
    Values = Annotated[Any, "ndarray"]
    Index = Annotated[Any, "Index"]
    Numbers = Annotated[Any, "int", "Sequence", "ndarray"]
    Distances = Annotated[Any, "float", "Sequence", "ndarray"]

#: For each of cuML's output types that name a library: whether it has frames, and whether it is on the GPU.
CUML_KINDS = {"numpy": (False, False), "cupy": (False, True), "pandas": (True, False), "cudf": (True, True)}
PROXIED = "cudf.pandas"
#: The classes of each library for tables and for their parts.
FRAMES = {"pandas": ("DataFrame", "Series", "Index"), "cudf": ("DataFrame", "Series", "Index")}
TABLES = {"polars": ("DataFrame", "Series"), "pyarrow": ("Table", "RecordBatch", "ChunkedArray", "Array")}
#: The columns of an edge frame.
EDGE_TYPES = {"src": "int32", "dst": "int32", "weight": "float64"}
#: Columns in one block start at multiples of this many bytes, like device allocations.
ALIGNMENT = 256


@dataclass(frozen=True)
class OutputKind:
    """The type of the caller's input, with methods that convert results to it."""

    is_frame: bool  # whether it is a DataFrame or Series, not an array
    gpu: bool  # whether it is cuDF's or in GPU memory, not of pandas, NumPy or plain Python
    #: what results of pandas or cuDF become: "cudf.pandas" for proxies, or a library of `TABLES`; "" for themselves
    wrapper: str = ""

    @classmethod
    def of(cls, X: Any, device: Device) -> tuple[Any, Self]:
        """Return `X` without the proxy, the table or the collection that holds it, and its kind.

        A ``cudf.pandas`` proxy gives cuDF's object on a GPU, unless only pandas can hold its values. A table of
        Polars or Arrow becomes a frame of pandas, as does what exports Arrow's stream. A Dask collection is computed.
        An object of cuDF is copied if it is on another GPU than the current one; arrays stay until `Device.asarray`
        takes them.
        """
        if type(X) is np.ndarray:
            return X, cls(is_frame=False, gpu=False)
        X, wrapper = X.compute() if is_collection(X) else as_known(X), ""
        library = library_of(X)
        if library in TABLES:
            X, wrapper = as_frame(X), library
        elif _is_proxy(X):
            X, wrapper = _inside_proxy(X, device), PROXIED
        elif library == "cudf":
            X = on_current_gpu(X)
        return X, cls(is_frame=bool(library_of(X)), gpu=is_on_gpu(X), wrapper=wrapper)

    def from_cuml_setting(self) -> Self:
        """Return the kind that cuML's global output type names; this kind if cuML is not loaded or names none.

        ``cuml.accel`` sets that type for the estimators that it replaces, so it does not count there.
        """
        cuml, accelerator = sys.modules.get("cuml"), sys.modules.get("cuml.accel")
        if cuml is None or (accelerator is not None and accelerator.enabled()):
            return self
        settings = getattr(cuml, "global_settings", None)
        kind = CUML_KINDS.get(str(getattr(settings, "output_type", None)))
        if kind is None:
            return self
        is_frame, gpu = kind
        return type(self)(is_frame, gpu)

    def array(self, array: Array) -> Any:
        """Return an array of either device as one of NumPy or CuPy, whichever this kind has."""
        if type(array) is np.ndarray and not (self.gpu or self.wrapper):
            return array
        return self.wrap(self._move(array))

    def series(self, array: Array, index: Any = None, name: str | None = None) -> Any:
        """Return an array of either device as a Series of the caller's library, with this index and name."""
        return self.wrap(self._frames().Series(self._move(array), index=self.index(index), name=name))

    def labels(self, array: Array, index: Any = None, name: str = "label") -> Any:
        """Return one value per row: a Series for a frame, an array for an array."""
        return self.series(array, index=index, name=name) if self.is_frame else self.array(array)

    def frame(self, frame: Any, index: Any = None) -> Any:
        """Return a frame of either device as one of the caller's library, with this `index` if it is not None."""
        on_gpu = library_of(frame) == "cudf"
        if on_gpu and not self.gpu:
            frame = frame.to_pandas()
        elif self.gpu and not on_gpu:
            frame = self._frames().from_pandas(frame)
        if index is not None:
            frame.index = self.index(index)
        return self.wrap(frame)

    def wrap(self, result: Any) -> Any:
        """Return a result of pandas, cuDF, NumPy or CuPy as a proxy or table of the caller's library, or as it is."""
        if self.wrapper == PROXIED:
            return sys.modules[PROXIED].as_proxy_object(result)
        return _as_table(result, self.wrapper) if self.wrapper and library_of(result) else result

    def index_of(self, X: Any) -> Any:
        """Return the index of a frame of this kind, None for a table, an Index or an array."""
        return getattr(X, "index", None) if self.is_frame and self.wrapper not in TABLES else None

    def index(self, index: Any) -> Any:
        """Return an Index of pandas or cuDF as one of the library that this kind has."""
        if library_of(index) == "cudf" and not self.gpu:
            return index.to_pandas()
        return self._frames().from_pandas(index) if self.gpu and library_of(index) == "pandas" else index

    def _move(self, array: Array) -> Any:
        if not self.gpu:
            return array if type(array) is np.ndarray else to_host(type(self).of(array, CPU)[0])
        import cupy

        if type(array) is not np.ndarray:
            return cupy.asarray(array)
        moved = cupy.empty(array.shape, array.dtype)
        moved.set(np.ascontiguousarray(array))  # `asarray` would first copy it into pinned memory, which takes longer
        return moved

    def _frames(self) -> Any:
        if self.gpu:
            import cudf

            return cudf
        return CPU.frames


def library_of(X: Any) -> str:
    """Return the library of a frame, a table or a part of one: "pandas", "cudf", "polars" or "pyarrow".

    Returns "" for anything else.
    """
    kind: Any = type(X)
    return _library_of_type(kind)


@cache
def _library_of_type(kind: type) -> str:
    classes = FRAMES | TABLES
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if base.__name__ in classes.get(package, ()):
            return package
    return ""


def array_of(X: Any) -> Any:
    """Return the values of a DataFrame or Series as an array: one of CuPy for cuDF, otherwise one of NumPy."""
    if library_of(X) == "cudf":
        return on_current_gpu(X).values
    return np.asarray(X) if library_of(X) == "pyarrow" else X.to_numpy()


def is_dataframe(X: Any) -> bool:
    """Return whether this is a DataFrame of pandas or cuDF."""
    return library_of(X) in FRAMES and getattr(X, "ndim", 0) == 2 and hasattr(X, "columns")


def column_names(X: Any) -> list[Any] | None:
    """Return the labels of the columns of a frame or a table of any library; None for an array."""
    if is_dataframe(X):
        return list(X)  # iterating over X.columns is slow
    if type(X).__name__ == "LazyFrame":  # its attribute would give a warning
        return None
    names = next((getattr(X, name) for name in ("column_names", "columns") if hasattr(X, name)), None)
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def number_of_rows(X: Any) -> int:
    """Return the number of rows of a frame, an array, a sparse matrix or a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """Return these rows of a frame, a table, an array, a tensor or a list of any library, in its type."""
    if library_of(X) in FRAMES:
        return X.iloc[rows]
    if library_of(X) == "pyarrow":
        return X.take(rows)
    if not (library_of(X) or hasattr(X, "shape")):
        return [X[row] for row in rows.tolist()]
    rows = np.ascontiguousarray(rows)  # Torch takes no other
    return X[import_module("cupy").asarray(rows)] if type(X).__module__.startswith("cupy") else X[rows]


def as_frame(X: Any, exact: bool = False) -> Any:
    """Return a table of Polars or Arrow as a frame of pandas, or a column of one as a Series.

    An object of cuDF is moved to the current GPU. Anything else is returned as it is. Nulls among numbers become NaN,
    other nulls become None. Columns pass through NumPy, which copies no numbers without nulls: Polars needs no Arrow
    for that. If `exact`, integers with nulls become nullable integers of pandas, which are not rounded, and days become
    dates of Python.
    """
    library = library_of(X)
    if library not in TABLES:
        return on_current_gpu(X) if library == "cudf" else X
    frames, names = CPU.frames, column_names(X)
    if names is None:
        return frames.Series(_values(X, exact))
    columns = X.get_columns() if library == "polars" else X.columns
    frame = frames.DataFrame(
        {i: _values(column, exact) for i, column in enumerate(columns)}, index=range(len(X)), copy=False
    )
    frame.columns = names
    return frame


def _values(column: Any, exact: bool) -> Any:
    """Return a column of a table as an array, with the changes of `as_frame` if `exact`."""
    is_polars = library_of(column) == "polars"
    to_array = type(column).to_numpy if is_polars else partial(type(column).to_numpy, zero_copy_only=False)
    if exact and (column.null_count() if is_polars else column.null_count):
        types = None if is_polars else sys.modules["pyarrow"].types
        if types and types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if types.is_integer(column.type) if types else column.dtype.is_integer():
            import pandas as pd

            return pd.arrays.IntegerArray(to_array(column.fill_null(0)).copy(), to_array(column.is_null()).copy())
    values = to_array(column)
    if exact and values.dtype == "M8[D]":
        return values.astype(object)
    return values if values.ndim == 1 else list(values)  # an object in each row


def _as_table(result: Any, library: str) -> Any:
    """Return a frame of pandas as a table of Polars or Arrow, or a Series as a column. Names become text."""
    module = import_module(library)
    if result.ndim == 2:
        columns = {str(name): _as_table(result.iloc[:, i], library) for i, name in enumerate(result)}
        return module.DataFrame(columns) if library == "polars" else module.table(columns)
    is_plain = isinstance(result.dtype, np.dtype)
    if is_plain and result.dtype.kind in "biufM":
        values = result.to_numpy()
        values = values.astype("M8[us]") if values.dtype == "M8[s]" else values  # Polars has no seconds
    else:
        values = [None if missing else value for value, missing in zip(result.tolist(), result.isna(), strict=True)]
    name = "" if result.name is None else str(result.name)
    if library == "polars":
        return module.Series(name, values)
    return module.array(values, "uint64" if str(result.dtype) == "UInt64" else None)


def as_known(X: Any) -> Any:
    """Return an object of an unknown library that exports Arrow's stream as a table or a column of pyarrow.

    Nothing is copied. An array of another library that exports it becomes one of NumPy, because xarray exports the
    stream of a table with a row for each element. Anything else is returned as it is. Raises ImportError without
    pyarrow.
    """
    kind = type(X)
    if not hasattr(kind, "__arrow_c_stream__") or library_of(X) or _is_proxy(X):
        return X
    if hasattr(kind, "ndim") and hasattr(kind, "dtype"):  # no table has these
        return np.asarray(X)
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"{kind.__name__} is read through Arrow, which needs pyarrow: pip install 'rapids_slink[parquet]'"
        ) from error
    try:
        stream = pyarrow.RecordBatchReader.from_stream(X)
    except pyarrow.ArrowInvalid:  # its rows have no fields
        return pyarrow.chunked_array(X)
    return stream.read_all()


def is_collection(X: Any) -> bool:
    """Return whether this is a Dask collection."""
    return "dask" in sys.modules and hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def _inside_proxy(X: Any, device: Device) -> Any:
    if device.is_gpu:
        try:
            return on_current_gpu(X.as_gpu_object())
        except (TypeError, ValueError, NotImplementedError):  # mixed objects: the checks below name the column
            pass
    return X.as_cpu_object()


def _is_proxy(X: Any) -> bool:
    """Return whether this is a proxy of ``cudf.pandas``."""
    module = sys.modules.get(PROXIED)
    return module is not None and bool(module.is_proxy_object(X))


def on_device(frame: Any, device: Device) -> Any:
    """Return a frame of pandas or cuDF (not a proxy) as a frame on `device`."""
    return OutputKind(is_frame=True, gpu=device.is_gpu).frame(frame)


def on_host(value: Any) -> Any:
    """Return a result as one of pandas or NumPy on the host. An object of any other kind is returned as it is."""
    if isinstance(value, OutputKind):
        return replace(value, gpu=False, wrapper="")
    value, _ = OutputKind.of(as_frame(value, exact=True) if library_of(value) in TABLES else value, CPU)
    if not is_on_gpu(value):
        return value
    return value.to_pandas() if hasattr(value, "to_pandas") else to_host(value)


# ----------------------------------------------------------------------------------------------- frames over arrays


@dataclass(frozen=True)
class PreallocatedFrame:
    """A dataframe over columns that are written first. Stages pass it to each other."""

    columns: dict[str, Any]  # dict of str to array of the device, without NaN
    device: Device
    block: Array = None  # uint8 memory that holds the columns of a GPU, if they are as `empty` makes them

    @classmethod
    def empty(cls, device: Device, rows: int, dtypes: Mapping[str, Any]) -> Self:
        """Return a frame whose values are not yet written. On a GPU it outlives the run's pool."""
        if not device.is_gpu:
            return cls({name: np.empty(rows, dtype) for name, dtype in dtypes.items()}, device)
        with outside_pool(device):
            block = device.xp.empty(sum(_sizes(rows, dtypes)), "uint8")
        return cls(_columns_of(block, rows, dtypes), device, block)

    @classmethod
    def of(cls, device: Device, columns: Mapping[str, Any]) -> Self:
        """Return the frame of these arrays, which have no NaN. A GPU's arrays are copied out of the run's pool."""
        if not device.is_gpu:
            return cls(dict(columns), device)
        rows = max((array.size for array in columns.values()), default=0)
        frame = cls.empty(device, rows, {name: array.dtype for name, array in columns.items()})
        for name, array in columns.items():
            frame.columns[name][...] = array
        return frame

    def head(self, rows: int) -> Self:
        """Return the first rows, copied out of a GPU's run unless they are all."""
        columns = {name: column[:rows] for name, column in self.columns.items()}
        return self if all(column.size <= rows for column in self.columns.values()) else self.of(self.device, columns)

    def on(self, device: Device) -> Self:
        """Return the frame with its columns on this device: itself if they are there."""
        if device.is_gpu == self.device.is_gpu:
            return self
        if device.is_gpu:
            return self.of(device, {name: device.asarray(column) for name, column in self.columns.items()})
        if self.block is None:
            return type(self)({name: to_host(column) for name, column in self.columns.items()}, device)
        dtypes = {name: column.dtype for name, column in self.columns.items()}
        rows = next(iter(self.columns.values())).size
        return type(self)(_columns_of(to_host(self.block), rows, dtypes), device)  # one copy takes less than three

    @cached_property
    def frame(self) -> Any:
        """Return the pandas or cuDF frame, which shares the columns' memory and has no nulls.

        Read it only after the columns are written: cuDF may spill a frame's memory to the host.
        """
        if not self.device.is_gpu:
            return self.device.frames.DataFrame(self.columns, copy=False)
        library = import_module("pylibcudf")  # cuDF takes several times as long to make a frame of arrays
        table = library.Table([
            library.Column(_cudf_type(array.dtype), array.size, _Span(array), None, 0, 0, [])
            for array in self.columns.values()
        ])  # fmt: skip
        return self.device.frames.DataFrame.from_pylibcudf(table, {"columns": list(self.columns)})


class Later(NamedTuple):
    """A frame that is yet to be made, and the kind of output that it will be."""

    columns: PreallocatedFrame | Callable[[], PreallocatedFrame]
    output: OutputKind

    def frame(self) -> Any:
        """Return the frame."""
        columns = self.columns() if callable(self.columns) else self.columns
        return self.output.frame(columns.frame)


def with_frames(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return a model's attributes with the frames that are yet to be made."""
    return {name: value.frame() if isinstance(value, Later) else value for name, value in attributes.items()}


def frame_of(device: Device, columns: Mapping[str, Any]) -> Any:
    """Return the dataframe of `PreallocatedFrame.of`."""
    return PreallocatedFrame.of(device, columns).frame


class _Span:
    """An array's memory in the form that pylibcudf reads."""

    def __init__(self, array: Array) -> None:
        self.array, self.ptr, self.size = array, array.data.ptr, array.nbytes
        self.__cuda_array_interface__ = {
            "data": (self.ptr, False), "shape": (self.size,), "strides": None, "typestr": "|u1", "version": 3,
        }  # fmt: skip


@cache
def _cudf_type(dtype: Any) -> Any:
    """Return pylibcudf's type for a type of NumPy."""
    library = import_module("pylibcudf")
    return library.DataType(library.TypeId["BOOL8" if dtype.kind == "b" else dtype.name.upper()])


def _columns_of(block: Array, rows: int, dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns in one block of memory, because an allocation on a GPU takes longer than filling it."""
    start, columns = 0, {}
    for (name, dtype), size in zip(dtypes.items(), _sizes(rows, dtypes), strict=True):
        columns[name] = block[start : start + rows * np.dtype(dtype).itemsize].view(dtype)
        start += size
    return columns


def _sizes(rows: int, dtypes: Mapping[str, Any]) -> list[int]:
    """Return the bytes of each column in a block."""
    return [-(-rows * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT for dtype in dtypes.values()]
