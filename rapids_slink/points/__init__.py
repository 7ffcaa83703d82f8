"""Input to validated points, and results back in the caller's type.

    as_points(X, device)             X of any type       ──▶  Points: a C-contiguous float array on the device
    as_distances(X, device)          given distances     ──▶  Points: a square matrix on the device
    points.labels / frame            device results      ──▶  objects of the caller's type

`check.py` refuses invalid input and reads frames of edges, `output.py` converts results.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, reduce
from importlib import import_module
from math import isqrt
from operator import or_
from typing import Any

import numpy as np

from rapids_slink.metrics import EUCLIDEAN, SPARSE_METRICS, Metric
from rapids_slink.points.check import (
    BIT_VECTORS,
    SOURCE,
    Codes,
    InputTypeError,
    check_finite,
    check_nulls,
    check_shape,
    check_type,
    column_label,
    dimension,
    dimension_error,
    from_objects,
    has_fields,
    no_table,
    text_columns,
    warn,
    without_text,
)
from rapids_slink.points.narrow import Scaled as Scaled
from rapids_slink.points.narrow import Stored, from_dlpack, narrow_type, of_bits, scaled_rows
from rapids_slink.points.output import OutputKind, array_of, column_names, is_dataframe, library_of
from rapids_slink.report import counted
from rapids_slink.runtime.cuda import THREADS, c_name, constant, launch_blocks, value_option
from rapids_slink.runtime.device import CPU, Array, Device, all_true, is_elsewhere, is_on_gpu, to_host
from rapids_slink.runtime.memory import MemoryEstimate, check_memory
from rapids_slink.runtime.threads import for_each_chunk
from rapids_slink.settings import up_to_of

#: A function of rows, features and bytes of a value that estimates the memory of the stages after the input.
Following = Callable[[int, int, int], MemoryEstimate] | None
#: The rows and columns of a frame that a block interleaves, and the rows that it compares with their transpose.
ROWS, COLUMNS, COMPARED = (constant(SOURCE, name) for name in ("ROWS", "COLUMNS", "TILE"))
EXACT = 2.0**53  # float64 holds all integers up to this number, but not all beyond it
#: The triangle inequality is tested for the SHORTEST of SIDES random distances, each with SHORTEST third points. A
#: vector breaks it if the share BROKEN of these triangles does. Fewer than LEAST_POINTS points may break it by chance.
SIDES, SHORTEST, BROKEN, LEAST_POINTS = 2**12, 2**6, 0.01, 16
TILE = {"cpu": 2**8, "cuda": 2**12}  # rows and columns that are compared with their transpose at a time


@dataclass(frozen=True)
class Points:
    """The rows to be clustered, and the type of the input that they come from."""

    #: (n, d) float32 or float64, uint8 for a metric of packed bits, C-contiguous, on the device. Every value is finite,
    #: or NaN where it is missing and the metric takes missing values, and no distance is above float64's range. It may
    #: share memory with the caller's data, so it must not be written
    values: Array
    names: list[Any] | None  # the column labels of a frame of any library; None for an array
    index: Any  # the frame's index
    output: OutputKind  # the type of X

    def labels(self, array: Array, name: str = "label") -> Any:
        """Return one value per row: a Series with X's index for a frame, an array for an array, or cuML's type."""
        return self.output.from_cuml_setting().labels(array, self.index, name)

    def frame(self, frame: Any) -> Any:
        """Return a frame of the device in the caller's library (pandas for NumPy, cuDF for CuPy)."""
        return self.output.frame(frame)


def as_points(
    X: Any,
    device: Device,
    estimate: Following = None,
    *,
    metric: Metric = EUCLIDEAN,
    name: str = "X",
    checked: bool = True,
    missing_values: tuple[Any, ...] = (),
    codes: Codes | None = None,
) -> Points:
    """Return the checked rows of `X` on `device`; errors call it `name`.

    `X` is a cuDF or pandas frame, a ``cudf.pandas`` proxy, a table of Polars or Arrow, a CuPy or NumPy array, nested
    lists, a list of RDKit's bit vectors, `Scaled`, or anything with ``__cuda_array_interface__``, ``__array__`` or
    DLPack, of shape (n, d). float32 and float64 keep their values and type; bool, float16, bfloat16, float8 and
    integers of up to 16 bits become float32; other numbers become float64. Beyond 2**53 integers are rounded, unless
    they are coded as categories. A frame of several types takes their common type. If X is a view, such as the first
    columns of an array, only the values in the view are copied.

    `estimate` is the memory of the later stages, from n, d and the bytes of a value. It is checked together with the
    memory of X itself, before X is copied. The distances of the `metric` must be finite: if the values are not
    `checked`, the caller must call `check_finite`. `missing_values`, of `missing_values_of`, are replaced by NaN.
    With `codes`, see `codes_of`, the rows hold codes in place of text, categories and such integers, for hamming.
    Without them hamming and metrics with missing values take text only if it holds numbers.

    Raises InputTypeError, which is a TypeError and a ValueError, for complex or sparse input and columns that are not
    numbers; ValueError if the input is not two-dimensional or empty, or has missing or infinite values or distances
    beyond float64; DeviceMemoryError if the input or a later stage does not fit into memory.
    """
    X, output = OutputKind.of(X, device)
    is_frame = output.is_frame and is_dataframe(X)
    names = None if type(X) is np.ndarray else column_names(X)
    index = output.index_of(X) if is_frame else None
    if not (is_frame or np.ma.isMaskedArray(X)):
        X = as_array(X, device, name, metric)
    uncoded, dtypes, is_text = X, None, None
    coded = codes is not None and metric.name == "hamming"
    if metric.name == "hamming" or metric.missing:
        table = _table_with_text(X, any_type=bool(codes))
        if table is not None:
            dtypes = list(table.dtypes)  # thousands of columns take milliseconds
            table, is_text = without_text(table, dtypes, metric, missing_values, codes if coded else None, name)
            if is_text is not None:
                X, dtypes, is_frame = table, None, True
    if is_frame:
        values = _frame_values(X, device, estimate, name, metric, dtypes)
    else:
        values = _array_values(X, device, estimate, name, metric)
    if coded and _are_rounded(values, list(X.dtypes) if is_frame else [X.dtype]):
        table = _with_categories(uncoded if is_dataframe(uncoded) else CPU.frames.DataFrame(to_host(uncoded)))
        points = as_points(
            table, device, estimate, metric=metric, name=name, checked=checked, missing_values=missing_values,
            codes=codes,
        )  # fmt: skip
        return replace(points, names=names, index=index, output=output)
    if missing_values and not (is_text is not None and is_text.all()):
        values = _without_marks(values, missing_values, is_text, device)
    points = Points(values, names, index, output)
    if checked:
        check_finite({name: points}, metric, device)
    return points


def _without_marks(values: Array, missing_values: tuple[Any, ...], is_text: Any, device: Device) -> Array:
    """Return the values with NaN in place of `missing_values`, except in columns of text, which have none left."""
    numbers = [value for value in missing_values if not isinstance(value, str)]
    up_to = up_to_of(missing_values)
    if not numbers and up_to == -np.inf:
        return values
    is_missing = reduce(or_, (values == number for number in numbers), values <= up_to)
    if is_text is not None:  # where codes are no values
        is_missing &= ~device.asarray(is_text)
    return device.xp.where(is_missing, values.dtype.type(np.nan), values)


def _are_wide(dtype: Any) -> bool:
    """Return whether values of this type are integers that float64 may round."""
    return dtype.kind in "iu" and dtype.itemsize == 8


def _are_rounded(values: Array, dtypes: list[Any]) -> bool:
    """Return whether float64 may have rounded values that were of these types: 64-bit integers beyond 2**53."""
    return any(map(_are_wide, dtypes)) and bool(((values >= EXACT) | (values <= -EXACT)).any())


def _with_categories(X: Any) -> Any:
    """Return a frame whose 64-bit integers are categories, so that different ones stay different."""
    columns = [X.iloc[:, i] for i in range(X.shape[1])]
    frame = type(X)({i: c.astype("category") if _are_wide(c.dtype) else c for i, c in enumerate(columns)})
    frame.columns = X.columns
    return frame


def codes_of(Y: Any, metric: Metric, device: Device) -> Codes:
    """Return codes by column, still empty, to which `as_points` adds those of other rows and then of Y.

    Only hamming has codes. They stand for text, categories, and integers that float64 would round. A column that holds
    such values in one of the two inputs has codes in both. The result is empty if Y has no such column.
    """
    if metric.name != "hamming":
        return {}
    Y, _ = OutputKind.of(Y, device)
    is_known = is_dataframe(Y) or np.ma.isMaskedArray(Y)
    array = Y if is_known else as_array(Y, device, "Y", metric)
    table = _table_with_text(array, any_type=not is_known and _are_wide(array.dtype))
    if table is None:
        return {}
    dtypes, values = list(table.dtypes), (table.iloc[:, i] for i in range(table.shape[1]))
    rounded = [i for i, column in enumerate(values) if _are_rounded(column, [dtypes[i]])]
    return {i: {} for i in [*text_columns(table, dtypes, metric), *rounded]}


def _table_with_text(X: Any, any_type: bool = False) -> Any:
    """Return a frame as it is, and a frame of pandas for a two-dimensional array that may hold text.

    With `any_type` every two-dimensional array counts. Returns None for other arrays.
    """
    if is_dataframe(X):
        return X
    may_hold_text = X.ndim == 2 and (any_type or X.dtype.kind in "OU")
    return CPU.frames.DataFrame(to_host(X)) if may_hold_text else None


def _check_memory(shape: tuple[int, ...], dtype: np.dtype, copies: int, device: Device, estimate: Following) -> None:
    """Raise unless `copies` copies of X fit into memory, and then the later stages beside the one that is retained."""
    n, d = shape
    if not copies and not estimate:
        return
    size = n * d * dtype.itemsize
    later = estimate(n, d, dtype.itemsize) if estimate else MemoryEstimate(0)
    needed = replace(later, peak=max(copies * size, size + later.peak)) if copies else later
    check_memory(device, needed, f"{counted(n, 'row')} of {counted(d, 'feature')}")


def _frame_values(
    X: Any, device: Device, estimate: Following, name: str, metric: Metric, dtypes: list[Any] | None
) -> Any:
    """Return a frame's values on `device`: one copy by columns, then one by rows. Nulls become NaN if they are allowed.

    `dtypes` are the types of its columns if they are known already.
    """
    check_shape(X.shape, name)
    on_gpu = library_of(X) == "cudf"
    gpu_columns = X.to_pylibcudf()[0].columns() if on_gpu and device.is_gpu else []
    dtypes = dtypes or _type_of_all(gpu_columns) or list(X.dtypes)
    distinct = list(dict.fromkeys(dtypes))
    for dtype in distinct:
        check_type(dtype, column_label(X, dtypes.index(dtype), name), metric, objects=not on_gpu)
    target = np.result_type(*(_type_of_rows(dtype, metric.rows.are_packed) for dtype in distinct))
    plain = all(isinstance(dtype, np.dtype) for dtype in distinct)
    at_once = on_gpu and device.is_gpu and plain and len(distinct) == 1
    _check_memory(X.shape, target, 1 if at_once else 2, device, estimate)  # one copy by columns, then one by rows
    if at_once:
        rows = interleave(gpu_columns, distinct[0], target, device)
        if rows is not None:
            return rows
    if check_nulls(X, dtypes, name, metric.missing) or not plain:
        columns = _values_by_column(X, target, device)
    else:
        columns = X.to_cupy(dtype=target) if on_gpu and device.is_gpu else X.to_numpy(dtype=target)
    array_module = np if isinstance(columns, np.ndarray) else device.xp
    return device.asarray(array_module.ascontiguousarray(columns))


def interleave(columns: list[Any], dtype: np.dtype, target: np.dtype, device: Device) -> Any:
    """Return the rows of pylibcudf's columns, all of NumPy's `dtype`, as a `target` array; None if there are nulls.

    cuDF's own `interleave_columns` takes at least 4 ms, and more memory.
    """
    if any(column.null_count() for column in columns):
        return None
    at = np.array([column.data().ptr + column.offset() * dtype.itemsize for column in columns], np.uint64)
    n, d = columns[0].size(), len(columns)
    rows = device.xp.empty((n, d), target)
    grid, options = (-(-n // ROWS), -(-d // COLUMNS)), (f"-DCOLUMN={c_name(dtype)}", value_option(target))
    addresses = device.asarray(at)
    launch_blocks(SOURCE, "interleave", grid, ROWS, addresses, np.int64(n), np.int32(d), rows, options=options)
    return rows


def _values_by_column(X: Any, target: np.dtype, device: Device) -> Any:
    """Return a frame's values, (n, d), with NaN for nulls; on a GPU if the frame and the work are there."""
    on_gpu = library_of(X) == "cudf"
    columns = (device.xp if on_gpu else np).empty(X.shape[::-1], target)
    for i in range(X.shape[1]):
        column = X.iloc[:, i]
        if on_gpu and device.is_gpu:
            columns[i] = column.astype(target).fillna(0).values
            columns[i][column.isna().values] = np.nan
        else:
            columns[i] = (column.to_pandas() if on_gpu else column).to_numpy(target, na_value=np.nan)
    return columns.T


def _type_of_all(columns: list[Any]) -> list[Any] | None:
    """Return the types of pylibcudf's columns if all are booleans or of one float type, otherwise None.

    cuDF would make a Series of the types, which takes 0.3 ms, and more for many columns. pylibcudf does not tell
    integers from the codes of a categorical, so columns of integers give None.
    """
    kinds = {column.type().id() for column in columns}
    if len(kinds) != 1:
        return None
    library = import_module("pylibcudf")
    types = {library.TypeId.BOOL8: bool, library.TypeId.FLOAT32: np.float32, library.TypeId.FLOAT64: np.float64}
    dtype = types.get(kinds.pop())
    return None if dtype is None else [np.dtype(dtype)] * len(columns)


@cache
def _type_of_rows(dtype: Any, are_packed: bool = False) -> np.dtype:
    """Return the type in which values are read: uint8 for packed bits, float32 if it holds them, otherwise float64."""
    if are_packed:
        return np.dtype(np.uint8)
    size = getattr(dtype, "subtype", dtype).itemsize  # pandas' sparse columns have a subtype
    small = dtype.kind == "b" or (dtype.kind in "iuf" and size <= (4 if dtype.kind == "f" else 2))
    return np.dtype(np.float32 if small else np.float64)


def _array_values(X: Any, device: Device, estimate: Following, name: str, metric: Metric) -> Any:
    """Return the values of an array or a nested list, C-contiguous on `device`; an array that is so stays as it is."""
    if np.ma.isMaskedArray(X):
        if metric.missing:
            X = np.ma.filled(X.astype(_type_of_rows(X.dtype)), np.nan)
        X = as_array(X, device, name, metric)
    if X.ndim != 2:
        raise ValueError(dimension_error(X, name))
    check_shape(X.shape, name)
    check_type(X.dtype, name, metric)
    if X.dtype.kind == "O":
        X = from_objects(X, name)
    target = _type_of_rows(X.dtype, metric.rows.are_packed)
    is_there = is_on_gpu(X) == device.is_gpu and not (device.is_gpu and is_elsewhere(X))
    is_stored = isinstance(X, Stored)
    as_it_is = not is_stored and is_there and X.dtype == target and X.flags.c_contiguous
    _check_memory(X.shape, target, 0 if as_it_is else 1 + is_stored, device, estimate)
    if is_stored:
        return X.decode(device)
    if as_it_is:
        return X
    if X.dtype.itemsize > 8 or not X.dtype.isnative:  # NumPy's long double or swapped bytes, which CuPy lacks
        X = X.astype(target)
    return device.xp.ascontiguousarray(device.asarray(X), dtype=target)


def is_sparse(X: Any) -> bool:
    """Return whether this is a sparse matrix of SciPy, CuPy or another package."""
    if library_of(X):  # a column or a label named `tocsr` would be an attribute
        return False
    return hasattr(X, "tocsr") or hasattr(X, "tocoo")


def as_array(X: Any, device: Device, name: str, metric: Metric | None = None) -> Any:
    """Return `X` as an array of NumPy or CuPy, on the host or on a GPU like its data.

    An array of CuPy stays on its GPU. Numbers of a narrow type, or with scales, stay as they are stored: the result is
    `Stored`.
    """
    if isinstance(X, Stored) or (type(X) is device.xp.ndarray and X.dtype.isbuiltin == 1):  # a type without fields
        return X
    if isinstance(X, Scaled):
        scale = array_of(X.scale) if library_of(X.scale) else X.scale
        return scaled_rows(as_array(X.values, device, name), np.asarray(as_array(scale, CPU, "scale")), name)
    if is_sparse(X):
        has_others = metric is not None and metric.name not in SPARSE_METRICS
        others = f". The metrics {', '.join(map(repr, SPARSE_METRICS))} take it" if has_others else ""
        raise InputTypeError(f"Sparse input is not supported: pass {name}.toarray(){others}")
    if hasattr(X, "detach"):  # a torch tensor that records gradients cannot be read
        X = X.detach()
    if hasattr(X, "resolve_neg"):  # a tensor with a pending sign or conjugation cannot be read
        X = X.resolve_conj().resolve_neg()
    if library_of(X) == "cudf":  # a Series, which the check of dimensions refuses; np.asarray of it would fail
        return X
    if np.ma.is_masked(X):
        masked = np.ma.count_masked(X)
        raise ValueError(f"{name} has {masked} masked values: fill them")
    narrow, is_known = narrow_type(X), isinstance(X, np.ndarray) or type(X).__module__.startswith("cupy")
    if narrow and is_known:
        return of_bits(X, narrow)
    if is_on_gpu(X) and (narrow or not hasattr(X, "__cuda_array_interface__")):
        import cupy

        X = from_dlpack(X, cupy.from_dlpack)
        if isinstance(X, Stored):
            return X
    if is_on_gpu(X):
        return device.asarray(X)
    if hasattr(X, "__dlpack__") and (narrow or not hasattr(X, "__array__")):
        return from_dlpack(X, np.from_dlpack)
    if isinstance(X, list | tuple) and type(next((x for x in X if x is not None), None)).__name__ in BIT_VECTORS:
        return _bits_of_vectors(X, name)
    if type(X).__name__.endswith(("GroupBy", "AnnData")):
        raise InputTypeError(no_table(X, name))
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"{name} is not a table of numbers with rows of equal length: {error}") from error
    if array.ndim < 2 and (has_fields(array) or (array.dtype.kind in "OU" and not hasattr(X, "__array__"))):
        raise InputTypeError(f"Expected 2D array, got {dimension(array)} array instead: {no_table(X, name)}")
    narrow = narrow_type(array)
    return of_bits(array, narrow) if narrow else array


def _bits_of_vectors(vectors: Any, name: str) -> np.ndarray:
    """Return a row of booleans for each of RDKit's bit vectors.

    To read a vector as a sequence of bits would take microseconds a bit.
    """
    row = next((i for i, vector in enumerate(vectors) if type(vector).__name__ != "ExplicitBitVect"), None)
    if row is not None:
        kind = "None" if vectors[row] is None else type(vectors[row]).__name__
        advice = f"pass {BIT_VECTORS[kind].format(name)}" if kind in BIT_VECTORS else "drop it"
        raise InputTypeError(f"row {row} of {name} is {kind}, not an ExplicitBitVect of RDKit: {advice}")
    as_bytes = import_module("rdkit.DataStructs").BitVectToBinaryText
    sizes = {vector.GetNumBits() for vector in vectors}
    if len(sizes) > 1:
        raise ValueError(f"{name} is not a table with rows of equal length: its vectors have {sorted(sizes)} bits")
    packed = np.frombuffer(b"".join(map(as_bytes, vectors)), np.uint8).reshape(len(vectors), -1)
    return np.unpackbits(packed, axis=1, count=sizes.pop(), bitorder="little").view(bool)


# ----------------------------------------------------------------------------------------------- given distances


def as_distances(X: Any, device: Device, estimate: Following = None) -> tuple[Points, bool]:
    """Return the checked distances `X` as a square matrix on `device`, and whether all are finite.

    `X` is a frame, an array or nested lists, (n, n), symmetric, zero on the diagonal, infinite for pairs without an
    edge; or a vector or list of the entries above the diagonal, row by row, as `scipy.spatial.distance.pdist` returns
    them. The two entries of a pair may differ, and a diagonal entry may differ from zero, by the rounding error of a
    difference of squares: √ε times the largest finite entry (1.5e-8 in float64, 3.5e-4 in float32). Then the entry
    above the diagonal counts, and the diagonal is ignored. `estimate` and the errors are those of `as_points`. If `X`
    is not a distance matrix, the message names the rows.
    """
    plain, output = OutputKind.of(X, device)
    if not output.is_frame:
        X = as_array(plain, device, "X")
    elif plain.ndim == 1:  # a Series is a vector, and its index is not that of the rows
        X = array_of(plain)
    if library_of(X) or X.ndim != 1:
        points = as_points(X, device, estimate, checked=False)
        matrix, complete = _checked(points.values, device)
        return replace(points, values=matrix), complete

    def square_estimate(_: int, m: int, itemsize: int) -> MemoryEstimate:
        n = _side(m)
        matrix = MemoryEstimate(2 * n * n * itemsize)
        return matrix if estimate is None else matrix + estimate(n, n, itemsize)

    points = as_points(X[None, :], device, square_estimate, checked=False)
    _warn_of_lower_triangle(points.values[0], device)
    matrix = _square(points.values[0], device)
    complete = all_true(device.xp.isfinite(points.values)) or _checked(matrix, device)[1]  # `_checked` names the rows
    return replace(points, values=matrix), complete


def warn_of_distances(values: Array, device: Device) -> None:
    """Warn if points, (n, d), look like a matrix of distances by the rule of SciPy's `linkage`, and not all are zero.

    For nearly all points the shape or the diagonal decides.
    """
    n, size = len(values), TILE[device.name]
    is_square = values.shape == (n, n) and n > 1 and values.dtype.kind in "biuf"
    if not (is_square and np.allclose(to_host(values.diagonal()), 0)):
        return
    tiles, largest = [slice(a, a + size) for a in range(0, n, size)], 0.0
    for i, rows in enumerate(tiles):
        for columns in tiles[i:]:
            upper, lower = (tile.astype("float64") for tile in (values[rows, columns], values[columns, rows].T))
            if not (all_true((upper >= 0) & (lower >= 0)) and all_true(abs(upper - lower) <= 1e-8 + 1e-5 * lower)):
                return
            largest = max(largest, float(upper.max()))
    if not largest:
        return
    from scipy.cluster.hierarchy import ClusterWarning  # SciPy's own warning, so that filters for it apply

    warn(
        "X looks like a square matrix of distances, and its rows are taken for points: pass metric='precomputed' (in "
        "SciPy's linkage: pass squareform(X))",
        ClusterWarning,
    )


def _warn_of_lower_triangle(condensed: Array, device: Device) -> None:
    """Warn if a condensed vector breaks the triangle inequality, but keeps it if read as the lower triangle's rows.

    Read backwards, the rows of the upper triangle are those of the lower one of the points in reverse order.
    """
    n = _side(condensed.size)
    if n < LEAST_POINTS or _broken_triangles(condensed[::-1], n, device) < BROKEN:
        return
    if not _broken_triangles(condensed, n, device):
        warn(
            "X is read as SciPy's condensed vector, the rows of the upper triangle. As that it breaks the triangle "
            "inequality, and as the rows of the lower triangle, which RDKit makes, it does not. For those pass a "
            f"square matrix: D = numpy.zeros(({n}, {n})); D[numpy.tril_indices({n}, -1)] = X; D += D.T"
        )


def _broken_triangles(lower: Array, n: int, device: Device) -> float:
    """Return the share of triangles that break the triangle inequality, among a sample.

    `lower` holds the rows of the lower triangle for n points. A side of each is among the shortest of random pairs.
    """
    rng = np.random.default_rng(0)

    def distances(positions: np.ndarray) -> np.ndarray:
        return to_host(lower[device.asarray(positions)]).astype(np.float64)

    side = rng.integers(0, lower.size, SIDES)
    side = side[np.argsort(distances(side))[:SHORTEST, None]]
    row = ((1 + np.sqrt(1 + 8 * side)) // 2).astype(np.int64)
    row -= row * (row - 1) // 2 > side
    column, third = side - row * (row - 1) // 2, rng.integers(0, n, (1, SHORTEST))
    ends = []
    for end in (row, column):
        high, low = np.maximum(end, third), np.minimum(end, third)
        ends.append(np.where(high == low, 0, distances((high * (high - 1) // 2 + low) % lower.size)))
    with np.errstate(invalid="ignore"):
        longer = abs(ends[0] - ends[1]) - distances(side)
        return float(((longer > 1e-5 * ends[0]) & (longer < np.inf)).mean())


def _side(m: int) -> int:
    """Return the n of a condensed vector of m = n(n - 1)/2 distances. Raise if there is none."""
    n = (1 + isqrt(1 + 8 * m)) // 2
    if n * (n - 1) // 2 != m:
        raise ValueError(f"a condensed distance vector has n(n - 1)/2 entries for some n, got {m}")
    return n


def _square(condensed: Array, device: Device) -> Any:
    """Return the square matrix of a condensed vector, with zeros on the diagonal."""
    n = _side(condensed.size)
    matrix = device.xp.zeros((n, n), condensed.dtype)
    for row in range(n - 1):
        start = row * (2 * n - row - 1) // 2
        matrix[row, row + 1 :] = condensed[start : start + n - row - 1]
    for a in range(0, n, TILE[device.name]):
        rows = slice(a, a + TILE[device.name])
        matrix[rows, :a] = matrix[:a, rows].T
        matrix[rows, rows] += matrix[rows, rows].T.copy()
    return matrix


def _checked(matrix: Array, device: Device) -> tuple[Any, bool]:
    """Return the matrix, symmetric to the last bit, and whether all its entries are finite.

    It is the matrix itself, or a copy if rounding makes that asymmetric. Raises ValueError if it is no matrix of
    distances.
    """
    n, size, xp = len(matrix), TILE[device.name], device.xp
    if matrix.shape != (n, n):
        raise ValueError(f"metric='precomputed' takes a square matrix or a condensed vector, got shape {matrix.shape}")
    tiles = [slice(a, min(a + size, n)) for a in range(0, n, size)]
    if _is_symmetric(matrix, tiles, device):
        tiles = []  # nothing is left to look for
    uneven, complete = [], True
    for i, rows in enumerate(tiles):
        for columns in tiles[i:]:
            for a, b in ((rows, columns), (columns, rows)):
                if not all_true(matrix[a, b] > -xp.inf):  # false for NaN
                    u, v = _first(~(matrix[a, b] > -xp.inf), a, b, device)
                    what = f"the distance of rows {u} and {v} is {float(matrix[u, v])}"
                    raise ValueError(f"{what}: X must hold numbers, or infinity for no distance")
                complete = complete and all_true(matrix[a, b] < xp.inf)
            if not all_true(matrix[rows, columns] == matrix[columns, rows].T):
                uneven.append((rows, columns))
    diagonal = abs(matrix.diagonal())
    if float(diagonal.max()) > 0 and float(diagonal.max()) > _rounding(matrix, device):
        u = int(diagonal.argmax())
        raise ValueError(
            f"X must hold distances: that of row {u} to itself is {float(matrix[u, u])!r}, not zero. Similarities s "
            "become distances as 1 - s, for example"
        )
    return (_mirrored(matrix, uneven, device) if uneven else matrix), complete


def _is_symmetric(matrix: Array, tiles: list[slice], device: Device) -> bool:
    """Return whether a square matrix, whose rows and columns these tiles divide, is finite and symmetric."""
    if device.is_gpu:
        n, differs, options = len(matrix), device.xp.zeros(1, "int32"), (value_option(matrix.dtype),)
        grid = (-(-n // COMPARED), -(-n // COMPARED))
        launch_blocks(SOURCE, "compare_mirrored", grid, THREADS, matrix, np.int64(n), differs, options=options)
        return not int(differs[0])

    def check(i: int) -> bool:
        for columns in tiles[i:]:
            upper = matrix[tiles[i], columns]
            if not ((upper == matrix[columns, tiles[i]].T).all() and np.isfinite(upper).all()):
                return False
        return True

    return all(for_each_chunk(CPU, check, range(len(tiles))))


def _rounding(matrix: Array, device: Device) -> float:
    """Return the largest rounding error of an entry that is allowed; see `as_distances`.

    A few rows at a time are reduced: one block of CuPy's threads reduces 2³¹ values or more.
    """
    xp, step = device.xp, TILE["cpu"]
    parts = (matrix[a : a + step] for a in range(0, len(matrix), step))
    largest = max(float(abs(xp.where(xp.isfinite(part), part, 0)).max()) for part in parts)
    return float(np.finfo(matrix.dtype).eps) ** 0.5 * largest


def _mirrored(matrix: Array, uneven: list[tuple[slice, slice]], device: Device) -> Any:
    """Return a copy with the entries above the diagonal mirrored below. Raise if they differ by more than rounding."""
    xp = device.xp
    allowed, mirrored = _rounding(matrix, device), matrix.copy()
    for rows, columns in uneven:
        upper, lower = matrix[rows, columns], matrix[columns, rows].T
        with np.errstate(invalid="ignore"):
            differ = xp.abs(upper - lower) > allowed
        if not all_true(~differ):
            u, v = _first(differ, rows, columns, device)
            raise ValueError(
                f"X must be symmetric, but the distance of rows {u} and {v} is {float(matrix[u, v])!r} and that of "
                f"rows {v} and {u} is {float(matrix[v, u])!r}"
            )
        mirrored[columns, rows] = (xp.triu(upper) + xp.triu(upper, 1).T if rows == columns else upper).T
    return mirrored


def _first(flags: Any, rows: slice, columns: slice, device: Device) -> tuple[int, int]:
    """Return the row and the column, in the matrix, of the first flag that is set in a tile."""
    row, column = divmod(int(device.xp.flatnonzero(flags)[0]), flags.shape[1])
    return rows.start + row, columns.start + column
