"""The keys of groups of rows: any values that a frame can group by, as numbers.

    groups ──keys_of──▶ a frame of keys, a row for each of X ──numbered──▶ Groups: a number for each row

Groups are numbered in order of first appearance.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, Self

import numpy as np

from rapids_slink.metrics import PRECOMPUTED, Metric
from rapids_slink.ordering import stable_order
from rapids_slink.points.check import InputTypeError, check_finite, check_index, has_fields, type_and_advice
from rapids_slink.points.output import (
    TABLES,
    OutputKind,
    array_of,
    as_frame,
    column_names,
    is_collection,
    is_dataframe,
    library_of,
    on_device,
    take_rows,
)
from rapids_slink.report import Report, counted, listed
from rapids_slink.runtime.device import CPU, Array, Device, all_true, device_of, is_on_gpu, to_host
from rapids_slink.runtime.memory import MemoryEstimate, check_memory

#: The name in `groups_` of a key without a name, or with one of GROUP_COLUMNS, which are the other columns there.
UNNAMED, GROUP_COLUMNS = "group", ("rows", "clusters", "first_label")
#: Integers are used as codes, less the least one, if they span at most SPAN times their number, plus MORE.
SPAN, MORE = 4, 1024
#: Bytes per row that numbering takes at its peak, and bytes per row that are kept, for numbers and order.
ROW_BYTES, KEPT_BYTES = 64, 8


@dataclass(frozen=True)
class GroupBy:
    """The parameters `groups` and `dropna` of a fit, or another parameter that holds a key for each row."""

    groups: Any
    dropna: bool = True
    name: str = "groups"


@dataclass(frozen=True)
class Groups:
    """Groups of rows: which rows belong together, and their keys."""

    #: (n,) int32 arrays of the device. `number`: the group of each row; `order`: the rows of each group, ascending
    number: Array
    order: Array
    starts: np.ndarray  # (m + 1,) int64, on the host: where the rows of each group begin in `order`, and n
    keys: Any = None  # frame of pandas or cuDF with a row for each group
    #: the columns of `keys` that come from tables of Polars or Arrow, as they are there, by the number of the column
    in_tables: Mapping[int, Any] = field(default_factory=dict)
    columns: tuple[Any, ...] = ()  # the names of the columns of X that are keys

    def __len__(self) -> int:
        return self.starts.size - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """Return the number of rows of each group, (m,) int64."""
        return np.diff(self.starts)

    @cached_property
    def first(self) -> np.ndarray:
        """Return the first row of each group, (m,) int64."""
        return to_host(self.order)[self.starts[:-1]].astype(np.int64)

    def with_columns_of(self, columns: Sequence[Any]) -> Self:
        """Return the groups with keys in the types of Polars or Arrow, which frames of pandas or cuDF may lack.

        `columns` are the keys of all rows. Those of other libraries are left out.
        """
        in_tables = {}
        for i, column in enumerate(columns):
            if library_of(column) in TABLES:
                with suppress(NotImplementedError):  # Arrow cannot take rows of every type
                    in_tables[i] = take_rows(column, self.first)
        return replace(self, in_tables=in_tables)

    def in_types_of_tables(self, frame: Any) -> Any:
        """Return `groups_` of a model, `frame`, with the types of their table for keys from Polars or Arrow.

        Other columns stay as they are.
        """
        library = library_of(frame)
        for i, column in self.in_tables.items():
            if library == library_of(column) == "polars":
                frame = frame.with_columns(column.alias(frame.columns[i]))
            elif library == library_of(column) == "pyarrow":
                frame = frame.set_column(i, frame.column_names[i], column)
        return frame


def read_groups(X: Any, by: GroupBy, metric: Metric, device: Device, report: Report) -> tuple[Any, Groups]:
    """Return `X` without the columns that are keys, and its groups."""
    if metric is PRECOMPUTED:
        raise ValueError(
            "metric='precomputed' takes no groups: make the distances between them infinite, and each group has its "
            "tree"
        )
    names = names_of(X, by.groups) or ()
    with report.stage("groups", device):
        X, keys, columns = keys_of(X, by, device)
        check_memory(device, MemoryEstimate(ROW_BYTES * len(keys)), counted(len(keys), "key"))
        return X, replace(numbered(keys, device).with_columns_of(columns), columns=tuple(names))


def check_values(points: Any, groups: Groups, metric: Metric, device: Device) -> None:
    """Raise unless all `Points` have a key, all values are finite, and no distance within a group may overflow."""
    xp, values = device.xp, points.values
    check_keys(groups.number.size, len(values))
    try:
        check_finite({"X": points}, metric, device)
    except ValueError:
        if len(groups) == 1 or bool((xp.isinf(values) | (xp.isnan(values) & (not metric.missing))).any()):
            raise
        for begin, end in pairwise(groups.starts.tolist()):
            check_finite({"X": replace(points, values=values[groups.order[begin:end]])}, metric, device)


def keys_of(X: Any, by: GroupBy, device: Device) -> tuple[Any, Any, list[Any]]:
    """Return `X` without the columns that are keys, the keys as a frame, and the columns of the keys as given.

    The frame of keys is of pandas or cuDF and has a row for each row of `X`.

    Raises ValueError for names of columns that `X` does not have, a number of keys that is not that of the rows, an
    index that is not that of `X`, and missing keys unless they are a group of their own; TypeError for a collection.
    """
    names = names_of(X, by.groups, by.name)
    if names is None:
        names, columns = _columns_of_keys(by.groups)
    else:
        columns = [X[name] for name in names]
        X = without_columns(X, names)
    exact = [as_frame(column, exact=True) if library_of(column) in TABLES else column for column in columns]
    keys = [_as_series(OutputKind.of(column, device)[0], by.name) for column in exact]
    if not keys:
        raise ValueError(f"{by.name} has no column")
    if is_dataframe(X):
        check_index(by.groups, X.index, by.name)
    for name, column in zip(names, keys, strict=True):
        missing = int(column.isna().sum())
        if missing and by.dropna:
            label = by.name if name is None else f"column {name!r} of {by.name}"
            raise ValueError(
                f"{label} has {counted(missing, 'missing key')}: drop their rows, or pass dropna=False, which makes "
                "them a group of their own"
            )
    frames = device_of(keys[0]).frames
    frame = frames.DataFrame({i: column.reset_index(drop=True) for i, column in enumerate(keys)})
    frame.columns = _column_names(names)
    return X, frame, columns


def keys_of_both(X: Any, Y: Any, by: GroupBy, device: Device) -> tuple[Any, Any, Any, Any]:
    """Return X and Y without the columns that are keys, and the keys of each as `keys_of` returns them.

    `by` names columns of both, or has a pair of keys. Raises what `keys_of` raises, and InputTypeError if the keys of X
    and Y are of different types, by which none of them would be equal.
    """
    groups, is_pair = by.groups, is_pair_of_keys(by.groups)
    if not is_pair and names_of(X, groups) is None:
        raise ValueError(
            "groups must name columns of X and Y, or be a pair, such as (a, b), with a key for each row of X and of Y"
        )
    parts = []
    for rows, name, own in zip((X, Y), "XY", groups if is_pair else (groups, groups), strict=True):
        try:
            parts.append(keys_of(rows, replace(by, groups=own), device)[:2])
        except (TypeError, ValueError) as error:
            error.args = (str(error).replace("of X", f"of {name}").replace("and X is", f"and {name} is"),)
            raise
    (X, keys), (Y, others) = parts
    if keys.shape[1] != others.shape[1]:
        raise ValueError(f"groups has {keys.shape[1]} columns of keys for X and {others.shape[1]} for Y")
    for a, b in zip(keys.dtypes, others.dtypes, strict=True):
        if not _have_equal_values(a, b):
            raise InputTypeError(
                f"groups has keys of dtype {a} for X and {b} for Y, none of which are equal: convert one"
            )
    return X, Y, keys, others


def is_pair_of_keys(groups: Any) -> bool:
    """Return whether `groups` holds the keys of X and those of Y, and no two names of columns."""
    is_two = isinstance(groups, tuple | list) and len(groups) == 2
    return is_two and all(bool(library_of(keys)) or np.ndim(keys) > 0 for keys in groups)


def _have_equal_values(a: Any, b: Any) -> bool:
    """Return whether keys of two types may be equal: both are integers, or of one kind, or one is a category."""
    kinds = getattr(a, "kind", "O"), getattr(b, "kind", "O")
    if set(kinds) <= {"i", "u"}:
        return np.promote_types(str(a).lower(), str(b).lower()).kind in "iu"
    return kinds[0] == kinds[1] or "category" in (str(a), str(b))


def numbered_with(keys: Any, others: Any, device: Device) -> tuple[Array, Groups]:
    """Return the group of each row of `keys`, (n,) int32, among the groups of `others`, and these groups.

    Both are frames of keys. A row whose key is not in `others` gets the number of groups.
    """
    both = [on_device(frame, device_of(keys)) for frame in (others, keys)]
    for frame in both:
        frame.columns = range(frame.shape[1])
    all_groups = numbered(device_of(keys).frames.concat(both, ignore_index=True), device)
    n = len(others)
    # The numbers stay the same, because these rows appear first.
    groups = groups_of(all_groups.number[:n], len(all_groups), device)
    return device.xp.minimum(all_groups.number[n:], len(groups)), groups


def check_keys(count: int, n: int, name: str = "X") -> None:
    """Raise unless there is a key for each of n rows."""
    if count != n:
        whose = "" if name == "X" else f" of {name}"
        raise ValueError(f"groups must hold one key for each of {counted(n, 'row')}{whose}, got {count}")


def _columns_of_keys(groups: Any) -> tuple[list[Any], list[Any]]:
    """Return the names of keys, None for a key without one, and their columns: a frame's, a table's, or the keys."""
    names = column_names(groups) if library_of(groups) and getattr(groups, "ndim", 2) == 2 else None
    if names is None:
        name = getattr(groups, "name", None) if library_of(groups) else None
        return [None if name == "" else name], [groups]
    return names, [
        groups.iloc[:, i] if is_dataframe(groups) else groups[names[i] if library_of(groups) == "polars" else i]
        for i in range(len(names))
    ]


def numbered(keys: Any, device: Device) -> Groups:
    """Return the groups of a frame of keys, numbered in order of first appearance."""
    codes, count = _codes(keys.iloc[:, 0], device)
    for i in range(1, keys.shape[1]):
        more, more_count = _codes(keys.iloc[:, i], device)
        codes, count = _codes(device.frames.Series(codes.astype("int64") * more_count + more), device)
    groups = groups_of(codes, count, device)
    first = device_of(keys).asarray(groups.first)
    return Groups(groups.number, groups.order, groups.starts, keys.iloc[first].reset_index(drop=True))


def groups_of(codes: Array, count: int, device: Device) -> Groups:
    """Return the groups of equal codes, (n,) integers from 0 to `count` - 1, not all of which need occur."""
    xp, n = device.xp, codes.size
    first = xp.full(count, n, "int32")
    xp.minimum.at(first, codes, xp.arange(n, dtype="int32"))
    m = int((first < n).sum())
    rank = xp.empty(count, "int32")
    rank[xp.argsort(first)] = xp.arange(count, dtype="int32")
    number = rank[codes]
    is_ordered = all_true(number[1:] >= number[:-1])
    order = xp.arange(n, dtype="int32") if is_ordered else stable_order(number, xp).astype("int32")
    starts = np.zeros(m + 1, np.int64)
    np.cumsum(to_host(xp.bincount(number, minlength=m)), out=starts[1:])
    return Groups(number, order, starts)


def names_of(X: Any, groups: Any, what: str = "groups") -> list[Any] | None:
    """Return the names of `X`'s columns that `groups` names; None if it holds keys. Errors call it `what`."""
    if is_collection(groups):
        raise InputTypeError(f"{what} is a Dask collection, and X is in one piece: compute it")
    columns = list(X.columns) if is_collection(X) and hasattr(X, "columns") else column_names(X)
    names: list[Any] = groups if isinstance(groups, list) else [groups]
    others = (name for name in names if columns is None or not isinstance(name, Hashable) or name not in columns)
    other = list(islice(others, 1))
    are_columns = not other
    if isinstance(groups, list) and columns is not None:
        are_columns = are_columns and len(set(names)) == len(names)  # otherwise these are keys, which repeat
        if not are_columns and not is_collection(X) and len(names) != len(X):
            repeated = "" if other else max(names, key=names.count)
            reason = f"{other[0]!r} is not in [{listed(columns)}]" if other else f"{repeated!r} occurs twice"
            raise ValueError(
                f"{what} must hold one key for each of {counted(len(X), 'row')}, got {len(names)}; as a name of a "
                f"column, {reason}"
            )
    if not are_columns and (isinstance(groups, list | tuple) or library_of(groups) or np.ndim(groups)):
        return None
    if columns is None:
        got = type_and_advice(X, "X")
        advice = "" if "Pass" in got else ": pass an array of keys, one for each row"
        raise ValueError(f"{what}={groups!r} names a column, and X is {got}{advice}")
    for name in names:
        if name not in columns:
            raise ValueError(
                f"{what} must name a column of X, or hold a key for each row: {name!r} is not in [{listed(columns)}]"
            )
        if columns.count(name) > 1:
            raise ValueError(f"{what}={name!r} names a column that is there {columns.count(name)} times")
    return names


def without_columns(X: Any, names: list[Any]) -> Any:
    """Return a frame or table of any library without these columns."""
    if library_of(X) in ("polars", "pyarrow"):
        return X.select([name for name in column_names(X) or () if name not in names])
    return X.drop(columns=names)


def _as_series(keys: Any, what: str) -> Any:
    """Return keys of any kind as a Series of pandas or cuDF; errors call them `what`."""
    is_index = library_of(keys) and not hasattr(keys, "iloc")
    series = keys.to_series() if is_index else keys if library_of(keys) else _series_of_values(keys, what)
    is_swapped = isinstance(series.dtype, np.dtype) and not series.dtype.isnative  # FITS files have such columns
    return series.astype(series.dtype.newbyteorder("=")) if is_swapped else series


def _series_of_values(keys: Any, what: str) -> Any:
    """Return the keys of an array or a list as a Series. Integers beside missing keys or floats stay integers."""
    if hasattr(keys, "detach"):
        keys = keys.detach()
    if is_on_gpu(keys):
        import cupy

        keys = cupy.asarray(keys)
        frames = device_of(keys).frames
    else:
        frames = CPU.frames
        if type(keys).__name__.endswith("GroupBy"):
            raise InputTypeError(f"{what} is of type {type(keys).__name__}: pass the columns by which it groups")
        if has_fields(keys):
            raise InputTypeError(f"{what} is of type {type_and_advice(keys, what)}")
        if not (hasattr(keys, "dtype") and hasattr(keys, "__len__")):
            if not hasattr(keys, "__len__"):
                raise InputTypeError(f"{what} must hold a key for each row, or name a column, got {keys!r}")
            keys = keys if isinstance(keys, list) else list(keys)
    if getattr(keys, "ndim", 1) != 1:
        raise ValueError(f"{what} must hold one key for each row, got shape {tuple(keys.shape)}: pass a DataFrame")
    if np.ma.isMaskedArray(keys) and keys.dtype.kind in "iu":
        values = keys.data.astype(keys.dtype.newbyteorder("="))
        return frames.Series(frames.arrays.IntegerArray(values, np.ma.getmaskarray(keys)))
    series = frames.Series(keys)
    if isinstance(keys, list) and series.dtype.kind == "f":
        keys = [int(key) if isinstance(key, np.integer) else key for key in keys]
        if any(isinstance(key, int) and float(key) != key for key in keys):
            return frames.Series(keys, dtype=object)
    return series


def _column_names(names: list[Any]) -> list[Any]:
    several = len(names) > 1
    unnamed = [f"{UNNAMED}_{i}" if several else UNNAMED for i in range(len(names))]
    clashes = [name is None or name in GROUP_COLUMNS or names.count(name) > 1 for name in names]
    return [unnamed[i] if clashes[i] else name for i, name in enumerate(names)]


def _codes(column: Any, device: Device) -> tuple[Array, int]:
    """Return an integer for each key, (n,), and a number that is above all of these.

    Equal keys have one integer, and missing keys have one of their own.
    """
    n = len(column)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu" and n and not getattr(column, "null_count", 0):
        values = device.asarray(array_of(column))
        low, high = int(values.min()), int(values.max())
        if high - low <= SPAN * n + MORE:
            codes = values.astype("uint64") - np.uint64(low % 2**64)  # modulo 2⁶⁴, so that no type is too narrow
            return codes.astype("int64"), high - low + 1
    try:
        codes, values = column.factorize()
    except TypeError as error:
        raise InputTypeError(f"groups has dtype {column.dtype}, by whose values no frame groups: {error}") from error
    codes = device.asarray(codes)
    return device.xp.where(codes < 0, len(values), codes), len(values) + 1
