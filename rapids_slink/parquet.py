"""Parquet files in which each row has a vector: what they hold, blocks of near rows, and files of some of their rows.

    files ──VectorFiles.of──▶ schemas ──read──▶ (m, d) arrays ──write_some──▶ files like these, of some rows

A vector is in one column of lists, or in several columns of numbers, with a value in each. Parquet has no bfloat16 and
no float8: their bits are unsigned integers, or bytes of a fixed number. Rows are numbered over all files, in their
order. A block is decoded by all cores, each of which takes a row group at a time.
"""

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from rapids_slink.hierarchy.storage import replace_file
from rapids_slink.neighbors.pivots import candidates, deal_out, pivots_of
from rapids_slink.points.narrow import NARROW, NarrowRows
from rapids_slink.report import listed
from rapids_slink.runtime.device import CPU, Device, to_host
from rapids_slink.runtime.memory import usable_cores

NO_PYARROW = "Parquet files need pyarrow: pip install 'rapids_slink[parquet]'"
#: How many rows are decoded at a time.
BATCH = 2**14


class Part(NamedTuple):
    """A row group of a file."""

    file: int
    group: int
    start: int  # the number of its first row
    stop: int  # one more than that of its last


@dataclass(frozen=True)
class VectorFiles:
    """Parquet files whose vectors have one type and one length, and the columns that hold the vectors."""

    paths: tuple[Path, ...]
    columns: tuple[str, ...]
    parts: tuple[Part, ...]  # in the order of the rows
    dtype: np.dtype  # the type of a value
    width: int = 0  # the number of values of a vector
    refuses_zeros: bool = False  # whether a vector of zeros is an error
    group_bytes: int = 0  # the bytes of the largest row group
    narrow: str = ""  # the type in `NARROW` whose bits are stored; then `dtype` is float32
    n_own: int = 0  # how many of the files are cleaned; the others, behind them, are another table

    @classmethod
    def of(cls, paths: Any, column: Any, refuses_zeros: bool, narrow: str | None = None, against: Any = None) -> Self:
        """Return the files at `paths`, whose vectors are in `column`: a name or several, None for the only list column.

        `narrow` is the type in `NARROW` whose bits they hold, if any, and `against` the paths of another table. Raise
        ValueError or TypeError, which names the file, unless all files have these columns in one type.
        """
        if narrow is not None and narrow not in NARROW:
            raise ValueError(f"dtype must be one of {listed(NARROW)}, or None for numbers, got {narrow!r}")
        if importlib.util.find_spec("pyarrow") is None:
            raise ImportError(NO_PYARROW)
        from pyarrow.parquet import read_metadata

        files, kinds, parts, start, group_bytes = _paths_of(paths), [], [], 0, 0
        n_own = len(files)
        files += [] if against is None else _paths_of(against)
        if len({file.resolve() for file in files}) < len(files):
            raise ValueError("a file is there twice among the paths")
        columns: tuple[str, ...] = () if column is None else (column,) if isinstance(column, str) else tuple(column)
        for number, path in enumerate(files):
            try:
                metadata = read_metadata(path)
                schema = metadata.schema.to_arrow_schema()
            except Exception as error:  # pyarrow's errors share no base class
                raise ValueError(f"cannot read {path}: {error}") from error
            columns = columns or _list_column(schema, path, narrow)
            kinds.append(_kind_of(schema, columns, path, narrow))
            if kinds[-1] != kinds[0]:
                (dtype, width), (other, size) = kinds[-1], kinds[0]
                what = f"{dtype} vectors" if dtype != other else f"vectors of {width or 'any number of'} values"
                raise ValueError(f"{path} has {what}, and {files[0]} {other if dtype != other else size or 'others'}")
            for group in range(metadata.num_row_groups):
                stop = start + metadata.row_group(group).num_rows
                group_bytes = max(group_bytes, metadata.row_group(group).total_byte_size)
                parts.append(Part(number, group, start, stop))
                start = stop
        if not any(part.file < n_own and part.stop > part.start for part in parts):
            raise ValueError(f"there are no rows in {listed(map(str, files[:n_own]))}")
        dtype, width = kinds[0]
        whole = cls(tuple(files), columns, tuple(parts), dtype, width, refuses_zeros, group_bytes, narrow or "", n_own)
        return whole if width else replace(whole, width=whole._width_of_first())

    @property
    def n_rows(self) -> int:
        """Return the number of rows of all files."""
        return self.parts[-1].stop

    @property
    def n_cleaned(self) -> int:
        """Return the number of rows of the files that are cleaned."""
        return int(self.starts[self.n_own])

    @cached_property
    def starts(self) -> np.ndarray:
        """Return the number of the first row of each file, and last the number of all rows, int64."""
        sizes = np.zeros(len(self.paths) + 1, np.int64)
        for part in self.parts:
            sizes[part.file + 1] += part.stop - part.start
        return np.cumsum(sizes)

    def read(self, start: int, values: np.ndarray) -> None:
        """Write the vectors of the rows from number `start` on into `values`, (m, d).

        Raise ValueError, which names the file and the row, for one that is missing, not finite or of another width.
        """
        stop = start + len(values)

        def read_part(part: Part) -> None:
            for at, batch in self._batches(part, start, stop):
                low, high = max(start, at), min(stop, at + batch.num_rows)
                every = self._stored(batch, at)
                every = NarrowRows(every, self.narrow).decode(CPU) if self.narrow else every
                some = every[low - at : high - at]
                self._check_values(some, low)
                values[low - start : high - start] = some

        on_all_cores(read_part, [part for part in self.parts if part.start < stop and part.stop > start])

    def column(self, name: str) -> np.ndarray:
        """Return a column of all rows that are cleaned, (n,); raise ValueError or TypeError if a number is missing."""
        columns: list[np.ndarray] = []
        for path, column in self._columns(name):
            values = column.to_numpy()
            if values.dtype.kind not in "biuf":
                raise TypeError(f"column {name!r} of {path} must hold numbers, got {column.type}")
            if columns and values.dtype != columns[0].dtype:
                raise TypeError(f"column {name!r} is {values.dtype} in {path}, and {columns[0].dtype} in others")
            columns.append(values)
        return np.concatenate(columns)

    def keys(self, name: str) -> np.ndarray:
        """Return a number for each value of a column, of all rows that are cleaned, (n,) int64; raise as `column`."""
        import pyarrow as pa

        columns = dict(self._columns(name))
        types = {column.type for column in columns.values()}
        if len(types) > 1:
            raise TypeError(f"column {name!r} has several types: {listed(map(str, types))}")
        chunks = [chunk for column in columns.values() for chunk in column.chunks]
        encoded = pa.chunked_array(chunks).dictionary_encode()
        return np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.int64)

    def _columns(self, name: str) -> Iterator[tuple[Path, Any]]:
        """Yield the files that are cleaned, each with a column, of which no value is missing."""
        from pyarrow.parquet import ParquetFile

        for path in self.paths[: self.n_own]:
            with ParquetFile(path) as file:
                if name not in file.schema_arrow.names:
                    raise ValueError(f"{path} has no column {name!r}, only {listed(file.schema_arrow.names)}")
                column = file.read([name]).column(name)
            missing = np.asarray(column.is_null(nan_is_null=True))
            if missing.any():
                raise ValueError(f"row {int(missing.argmax())} of {path} has no value in column {name!r}")
            yield path, column

    def location(self, row: int) -> str:
        """Return which row of which file has this number, as text."""
        file = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"row {row - int(self.starts[file])} of {self.paths[file]}"

    def write_some(self, file: int, kept: np.ndarray, path: Path) -> None:
        """Write a file like one of these, of the rows that are `kept`, (rows of the file,) bool.

        It has the same schema, compression, and number of rows of a row group.
        """
        from pyarrow import Table
        from pyarrow.parquet import ParquetFile, ParquetWriter

        with ParquetFile(self.paths[file], memory_map=True) as source:
            groups = [source.metadata.row_group(group) for group in range(source.num_row_groups)]
            columns = [groups[0].column(i) for i in range(groups[0].num_columns)] if groups else []
            codec = {"UNCOMPRESSED": "NONE"}
            how = {
                "compression": {c.path_in_schema: codec.get(c.compression, c.compression) for c in columns} or "NONE",
                "use_dictionary": [c.path_in_schema for c in columns if "DICTIONARY" in str(c.encodings)] or False,
                "write_statistics": [
                    c.path_in_schema
                    for c in columns
                    if c.is_stats_set and c.path_in_schema.partition(".")[0] not in self.columns
                ]
                or False,  # those of vectors take a third of the time, and nobody reads them
            }
            size, waiting, at = max((group.num_rows for group in groups), default=1), [], 0
            with ParquetWriter(path, source.schema_arrow, **how) as writer:
                for batch in source.iter_batches(BATCH):
                    waiting.append(batch.filter(kept[at : at + batch.num_rows]))
                    at += batch.num_rows
                    if sum(part.num_rows for part in waiting) >= size:
                        table = Table.from_batches(waiting)
                        writer.write_table(table[:size], row_group_size=size)
                        waiting = table[size:].to_batches()
                if any(part.num_rows for part in waiting):
                    writer.write_table(Table.from_batches(waiting), row_group_size=size)

    # ----------------------------------------------------------------------------------------------------- a batch

    def _batches(self, part: Part, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Yield the batches of a row group that have rows from `first` to before `last`, each with its first row."""
        from pyarrow.parquet import ParquetFile

        at = part.start
        with ParquetFile(self.paths[part.file], memory_map=True) as file:
            how = {"row_groups": [part.group], "columns": list(self.columns), "use_threads": False}
            for batch in file.iter_batches(BATCH, **how):
                if at >= last:
                    return
                if at + batch.num_rows > first:
                    yield at, batch
                at += batch.num_rows

    def _stored(self, batch: Any, at: int) -> np.ndarray:
        """Return the vectors of a batch of rows from number `at` on as they are stored.

        Raises ValueError unless each row has one of this width.
        """
        import pyarrow.compute as pc
        from pyarrow.types import is_fixed_size_binary

        columns = [batch.column(batch.schema.get_field_index(name)) for name in self.columns]
        for column in columns:
            if column.null_count:
                row = at + int(np.asarray(column.is_null()).argmax())
                raise ValueError(f"{self.location(row)} has no value in column {self.columns[0]!r}")
        if is_fixed_size_binary(columns[0].type):
            every = np.frombuffer(columns[0].buffers()[1], NARROW[self.narrow][1]).reshape(-1, self.width)
            return every[columns[0].offset :][: batch.num_rows]
        if not _is_list(columns[0].type):
            values = np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)
            return values if self.narrow else values.astype(self.dtype, copy=False)
        lengths = pc.list_value_length(columns[0])
        other = np.asarray(lengths) != self.width
        if other.any():
            row = int(other.argmax())
            what = f"{lengths[row]} values in column {self.columns[0]!r}, and rows before it {self.width}"
            raise ValueError(f"{self.location(at + row)} has {what}")
        flat = columns[0].flatten()
        if flat.null_count:
            row = at + int(np.asarray(flat.is_null()).argmax()) // self.width
            raise ValueError(f"{self.location(row)} has a missing value in column {self.columns[0]!r}")
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, self.width)

    def _check_values(self, values: np.ndarray, first: int) -> None:
        """Raise unless all values are finite and, if a vector of zeros is an error, each row has one that is not 0."""
        wrong = ~np.isfinite(values)
        if wrong.any():
            row = first + int(wrong.any(axis=1).argmax())
            raise ValueError(f"{self.location(row)} has a value that is not finite: NaN or infinite")
        if self.refuses_zeros and not (is_any := values.any(axis=1)).all():
            raise ValueError(f"{self.location(first + int(is_any.argmin()))} is zero in every value: it has no cosine")

    def _width_of_first(self) -> int:
        part = next(part for part in self.parts if part.stop > part.start)
        _, batch = next(self._batches(part, part.start, part.stop))
        first = batch.column(0)[0].as_py()
        if not first:
            raise ValueError(f"{self.location(part.start)} has no value in column {self.columns[0]!r}")
        return len(first)


def on_all_cores(work: Callable[[Any], object], parts: Iterable[Any], max_threads: int = 2**10) -> None:
    """Call `work` for every part, in up to `max_threads` threads, one for each core; raise the first error."""
    with ThreadPoolExecutor(min(usable_cores(), max_threads)) as threads:
        list(threads.map(work, parts))  # after an error it starts no more


def _paths_of(paths: Any) -> list[Path]:
    """Return the files at some paths, of which a folder stands for its ``*.parquet``, by name."""
    paths = [paths] if isinstance(paths, str | PathLike) else list(paths)
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"no such file: {path}")
        files += sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"there is no *.parquet in {listed(map(str, paths))}")
    return files


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _list_column(schema: Any, path: Path, narrow: str | None) -> tuple[str, ...]:
    """Return the only column of lists of a schema; raise ValueError if there is none or more than one.

    Bytes of a fixed number are like lists if they may be bits of a `narrow` type.
    """
    from pyarrow.types import is_fixed_size_binary

    names = [field.name for field in schema if _is_list(field.type) or (narrow and is_fixed_size_binary(field.type))]
    if len(names) != 1:
        columns = listed(names or schema.names)
        raise ValueError(f"name the column of the vectors of {path} (column=, --column); it may be one of {columns}")
    return tuple(names)


def _kind_of(schema: Any, columns: tuple[str, ...], path: Path, narrow: str | None) -> tuple[np.dtype, int]:
    """Return the type of the values of the vectors and their number, 0 if only the rows tell."""
    from pyarrow import types

    kinds, width = [], len(columns)
    bits = np.dtype(NARROW[narrow][1]) if narrow else None
    for name in columns:
        if name not in schema.names:
            raise ValueError(f"{path} has no column {name!r}, only {listed(schema.names)}")
        kind, what = schema.field(name).type, f"column {name!r} of {path} is {schema.field(name).type}"
        if len(columns) == 1 and _is_list(kind):
            width, kind = kind.list_size if types.is_fixed_size_list(kind) else 0, kind.value_type
        elif bits and len(columns) == 1 and types.is_fixed_size_binary(kind) and not kind.byte_width % bits.itemsize:
            return np.dtype(np.float32), kind.byte_width // bits.itemsize
        if bits and kind != str(bits):
            raise TypeError(
                f"{what}: with dtype={narrow!r} a vector is a list of {bits}, several columns of {bits}, or bytes of a "
                f"fixed number, {bits.itemsize} for each value"
            )
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise TypeError(
                f"{what}: a vector is a list of float16, float32, float64 or int8, or several columns of numbers. "
                "Parquet has no bfloat16: its bits, as uint16 or as bytes of a fixed number, take dtype='bfloat16'"
            )
        kinds.append(kind.to_pandas_dtype())
    return np.dtype(np.float32) if narrow else np.result_type(*map(np.dtype, kinds)), width


# ---------------------------------------------------------------------------------------------------- pieces and blocks
#
#     files ──▶ pieces of rows in their order ──▶ pivots and blocks of rows near them ──▶ rows that meet in a block
#
# Vectors of files are put on disk in pieces. Any two near rows meet in a block. `neighbors.pivots` deals out rows to
# blocks, and says why no near row is missed.

#: The number of rows that a thread takes at a time from pieces.
TAKEN = 2**14
#: The file that says which rows are compared among themselves.
KEYS = "keys.npy"
#: A search of two parts of a block's rows and visitors: the block, and where each part begins. They are one if all fit.
Search: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Pieces:
    """The vectors of all rows in files of NumPy, which workers of Dask read, too."""

    folder: Path
    bounds: tuple[int, ...]  # the number of the first row of each piece, and behind them the number of rows

    def path(self, piece: int) -> Path:
        """Return the file of a piece. Its name has the time of boot: data of an earlier boot may not be on the disk."""
        return self.folder / f"piece-{boot()}-{piece}.npy"

    def load(self, piece: int) -> np.ndarray:
        """Return a piece, mapped into memory."""
        return np.asarray(np.load(self.path(piece), mmap_mode="r"))

    def keys(self) -> np.ndarray | None:
        """Return the number of the group of each row, int64, -1 if it is compared with no other; None for one group."""
        path = self.folder / KEYS
        return np.load(path, mmap_mode="r") if path.exists() else None

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the vectors of rows, in their order."""
        parts = [self.load(piece) for piece in range(len(self.bounds) - 1)]
        values = np.empty((numbers.size, parts[0].shape[1]), parts[0].dtype)
        order = np.argsort(numbers, kind="stable")
        stops = np.searchsorted(numbers[order], self.bounds)
        chunks = [
            (piece, start, min(start + TAKEN, stop))
            for piece, (begin, stop) in enumerate(pairwise(stops.tolist()))
            for start in range(begin, stop, TAKEN)
        ]

        def copy(chunk: tuple[int, int, int]) -> None:
            piece, start, stop = chunk
            at = order[start:stop]
            values[at] = parts[piece][numbers[at] - self.bounds[piece]]

        on_all_cores(copy, chunks)
        return values


@dataclass(frozen=True)
class Blocks:
    """Which block each row is in, and which earlier blocks it visits; without pivots all rows are in one block."""

    pieces: Pieces
    count: int
    max_rows: int  # how many rows are searched together

    def path(self, piece: int) -> Path:
        """Return the file with the blocks of the rows of a piece, as `blocks_of_piece` makes them."""
        return self.pieces.folder / f"blocks-{piece}.npy"

    @cached_property
    def searches(self) -> dict[Search, int]:
        """Return the searches in which all rows of a block meet each other and its visitors, with their sizes."""
        sizes: dict[Search, int] = {}
        for block in range(self.count):
            own, visiting = map(len, self._rows_of(block))
            size, step = own + visiting, self._step(own + visiting)
            for first, second in [*combinations(range(0, size, step), 2)] or [(0, 0)]:
                if first < own:  # else both are parts of the block's visitors
                    sizes[block, first, second] = min(step, size - first) + (second > first) * min(step, size - second)
        return sizes

    def _step(self, size: int) -> int:
        """Return the number of rows of a part of a block, which has this many rows and visitors."""
        return max(1, size if size <= self.max_rows else self.max_rows // 2)

    def pairs_of_rows(self) -> int:
        """Return how many pairs of rows meet in all searches."""
        return sum(size * (size - 1) // 2 for size in self.searches.values())

    def rows(self, search: Search) -> np.ndarray:
        """Return the numbers of the rows of a search."""
        block, *starts = search
        own, visiting = self._rows_of(block)
        step, parts = self._step(len(own) + len(visiting)), []
        for start in sorted({*starts}):
            low, high = (max(0, end - len(own)) for end in (start, start + step))
            parts += [own[start : start + step], visiting[low:high]]
        return np.concatenate([np.asarray(part, np.int64) for part in parts])

    def _rows_of(self, block: int) -> tuple[Any, Any]:
        """Return the rows of a block, and those of later blocks that visit it, ascending."""
        if self.count == 1:
            return range(self.pieces.bounds[-1]), range(0)
        own, visiting = [], []
        for piece, first in enumerate(self.pieces.bounds[:-1]):
            block_of_row, *visited = np.load(self.path(piece), mmap_mode="r")
            visits = (visited[block // 16] >> np.uint16(block % 16)) & 1 == 1
            own.append(first + np.flatnonzero(block_of_row == block))
            visiting.append(first + np.flatnonzero(visits & (block_of_row > block)))
        return np.concatenate(own), np.concatenate(visiting)


def pivots_of_pieces(pieces: Pieces, radius: float, is_cosine: bool, count: int, device: Device) -> np.ndarray:
    """Return pivots of the rows of pieces, (k, 2 + d) float32: see `neighbors.pivots.pivots_of`."""
    rows = pieces.take(candidates(pieces.bounds[-1], count))
    return to_host(pivots_of(device.asarray(rows), radius, is_cosine, count, device))


def blocks_of_piece(
    values: np.ndarray, pivots: np.ndarray, radius: float, is_cosine: bool, device: Device
) -> np.ndarray:
    """Return the block of each row, and bits of the blocks that may have a row near it, (1 + words, m) uint16."""
    blocks = np.zeros((1 + -(-(int(pivots[-1, 0]) + 1) // 16), len(values)), np.uint16)
    for some, block, may_be_near in deal_out(values, pivots, radius, is_cosine, device):
        blocks[0, some] = to_host(block)
        for b, visits in enumerate(to_host(may_be_near)):
            blocks[1 + b // 16, some] |= visits.astype(np.uint16) << np.uint16(b % 16)
    return blocks


def boot() -> str:
    """Return the name of the time since which this machine has run; "" if it is not known."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def saved(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the array in a file; first make it, and write it to the disk, if it is not there."""
    if not path.exists():
        save(path, make())
    return np.load(path)


def save(path: Path, array: np.ndarray) -> None:
    """Save an array to a file, which is on the disk when it has its name."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())

    replace_file(path, write)
