"""Points from files of tables, which pandas reads for both devices: CSV and its like, also compressed, or Parquet.

Separator and header are found in the first lines. Where these can be read in two ways, the error names the option that
decides.
"""

import codecs
import csv
import importlib.util
import io
import re
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import islice, takewhile
from pathlib import Path
from statistics import mode
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd

from rapids_slink.parquet import NO_PYARROW
from rapids_slink.report import counted, listed

STANDARD_INPUT = Path("-")
#: " " is any run of blanks and tabs, and is tried last.
SEPARATORS = (",", ";", "\t", "|", " ")
NAMED_SEPARATORS = {"tab": "\t", "blanks": " "}
DECIMAL_SIGNS = (".", ",")
EMPTY = "empty"  # why a column is left out
SAMPLE_LINES = 100
#: The modules that open files with these first bytes.
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "lzma",
    b"\x28\xb5\x2f\xfd": "compression.zstd" if sys.version_info >= (3, 14) else "zstandard",
}
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
#: Columns of these names hold names of rows, of files or genomes. HierCC and GrapeTree pass over those with "#".
ROW_NAME = re.compile(
    r"#.*|(.*[ _.-])?(ids?|names?|accession|barcode)|file|filename|isolate|strain|sample|sampleid|genome|assembly|st|"
    r"key",
    re.IGNORECASE,
)
EVERY_COLUMN = "*"  # in `columns`
#: The number of rows of a column that are searched for repeated values before all are.
FIRST_ROWS = 1000
#: Cells that mean that there is no text, unless `empty_text` is "keep".
NO_TEXT = ("", "-", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "NaN", "nan", "None")
EMPTY_TEXT = ("refuse", "keep", "drop")
EXACT_INTEGERS = 2.0**53  # float64 holds integers up to here exactly
#: What pandas.api.types.infer_dtype says of object columns that `fit` takes, or refuses for other reasons.
NUMERIC_OBJECTS = ("boolean", "decimal", "empty", "floating", "integer", "mixed-integer-float")
#: pandas before version 3 needs this to read the last place of a float correctly; later versions do not accept it.
CORRECT_FLOATS: Any = {"float_precision": "round_trip"} if int(pd.__version__.partition(".")[0]) < 3 else {}


class Table(NamedTuple):
    """A table that was read: frames of pandas with one index, the names of the rows."""

    points: pd.DataFrame  # the columns to be clustered
    frame: pd.DataFrame  # all columns, except empty ones without a name
    groups: pd.DataFrame | None  # those that say which rows belong together
    summary: str  # a line that says what was read


@dataclass(frozen=True)
class Names:
    """The names of columns that the caller gives: those that name the rows, are used, are left out, or hold groups."""

    index: list[str]
    columns: list[str]
    exclude: list[str]
    groups: list[str]


def read_table(
    path: Path,
    *,
    sep: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    index_column: str | None = None,
    columns: str | None = None,
    exclude: str | None = None,
    groups: str | None = None,
    empty_text: str = "refuse",
    text: bool = False,
    categories: bool = False,
    as_written: bool = False,
) -> Table:
    """Read the table in a file.

    `path` may be a pipe, or `STANDARD_INPUT`. The first bytes tell Parquet, compression and byte order mark; the suffix
    does not matter. `sep` and `header` are found if they are None; `decimal` is "." and `encoding` UTF-8 then.
    `index_column`, `columns`, `exclude` and `groups` hold names as in a line of CSV: columns that name the rows,
    columns to use (`EVERY_COLUMN` for all), columns to leave out, columns of groups. Without a header columns are
    called 0, 1, ... The index is `index_column`, the Parquet file's own or the leading columns without a name. With
    `text` the points may be text; with `categories` only whether values are equal counts.

    In a file of text the columns that are not used are read as they are written, unless all of their cells are numbers
    that print in the same way. If the points are strings, all columns are read `as_written`, and `empty_text` says
    whether rows without text are refused, kept or dropped.

    Raises ValueError if the file cannot be read or can be read in more than one way, if a column does not hold numbers,
    or seems to name the rows, or if a row has no text or is in no group.
    """
    used, are_settled = None if columns == EVERY_COLUMN else columns, columns is not None
    asked = Names(*map(split_names, (index_column, used, exclude, groups)))
    name = "standard input" if path == STANDARD_INPUT else str(path)
    try:
        with _seekable(path) as file:
            if not _is_parquet(file):
                frame, notes = _read_text(file, sep, decimal, header, encoding, asked, as_written)
            elif any(option is not None for option in (sep, decimal, header, encoding)):
                raise ValueError("--sep, --decimal, --header and --encoding are for text, this is Parquet")
            else:
                frame, notes = _read_parquet(file, asked), []
        chosen, reasons = _choose(frame, asked)
        points, keys = frame.iloc[:, chosen], frame.iloc[:, _places(list(frame), asked.groups)]
        _check_groups(keys)
        if not as_written and not are_settled:
            _check_row_names(points, categories)
        if not (text or as_written):
            _check_numbers(points, decimal or ".", bool(asked.index) or are_settled)
        has_text = _has_text(points, empty_text) if as_written and points.shape[1] == 1 else np.full(len(points), True)
    except MemoryError:
        raise
    except UnicodeError as error:
        raise ValueError(f"cannot read {name}: {error}; say --encoding, such as latin-1 or utf-16-le") from error
    except Exception as error:  # pandas, pyarrow and the decompressors share no base class
        raise ValueError(f"cannot read {name}: {error}") from error
    parts = [f"{counted(len(points), 'row')} of {counted(points.shape[1], 'column')}: {_quoted(points)}"]
    index = _quoted(name for name in points.index.names if name is not None)
    if index or not isinstance(points.index, pd.RangeIndex):
        parts.append(f"index {index or 'without a name'}")
    if asked.groups:
        parts.append(f"groups {_quoted(keys)}")
    if not has_text.all():
        parts.append(f"without {counted(int((~has_text).sum()), 'row')} of no text (--empty-text)")
        points, frame, keys = (part[has_text] for part in (points, frame, keys))
    left_out: dict[str, list[Any]] = {}
    for i, reason in sorted(reasons.items()):
        left_out.setdefault(reason, []).append(frame.columns[i])
    parts += [f"without {_quoted(names)} ({reason})" for reason, names in left_out.items()]
    kept = frame.iloc[:, [i for i in range(frame.shape[1]) if reasons.get(i) != EMPTY]]
    return Table(points, kept, keys if asked.groups else None, f"{name}: {'; '.join(parts + notes)}")


@contextmanager
def _seekable(path: Path) -> Iterator[Path]:
    """Yield a file that can be read more than once: `path` itself, or a copy of what comes through a pipe."""
    if path.is_file() and path != STANDARD_INPUT:
        yield path
        return
    if path == STANDARD_INPUT and sys.stdin is None:
        raise ValueError("it is closed")
    with TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        stream: Any = nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else path.open("rb")
        with stream as source, copy.open("wb") as file:
            shutil.copyfileobj(source, file)
        yield copy


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as stream:
        if stream.read(4) != b"PAR1":
            return False
        stream.seek(-4, io.SEEK_END)
        return stream.read() == b"PAR1" or path.suffix.lower() == ".parquet"


def _read_parquet(path: Path, asked: Names) -> pd.DataFrame:
    """Return the frame of a Parquet file."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ImportError(NO_PYARROW)
    frame = _integers_with_nulls(pd.read_parquet(path), path)
    unnamed = _leading_unnamed(frame) if isinstance(frame.index, pd.RangeIndex) else []
    return _with_index(frame, _index_places(list(frame), unnamed, asked))


def _integers_with_nulls(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the frame of a Parquet file with exact integers where pandas reads integers and nulls as floats."""
    import pyarrow
    from pyarrow.parquet import read_schema

    integers = {field.name for field in read_schema(path) if pyarrow.types.is_integer(field.type)}
    rounded = [i for i, name in enumerate(frame) if frame.dtypes.iloc[i].kind == "f" and str(name) in integers]
    is_index_rounded = frame.index.dtype.kind == "f" and str(frame.index.name) in integers
    if rounded or is_index_rounded:
        exact = pd.read_parquet(path, columns=list(map(str, frame.columns[rounded])), dtype_backend="numpy_nullable")
        for k, i in enumerate(rounded):
            frame.isetitem(i, exact.iloc[:, k].array)
        if is_index_rounded:
            frame.index = exact.index
    return frame


def _read_text(
    path: Path,
    sep: str | None,
    decimal: str | None,
    header: bool | None,
    encoding: str | None,
    asked: Names,
    as_written: bool,
) -> tuple[pd.DataFrame, list[str]]:
    """Return the frame of a file of text, and notes of differences from plain CSV."""
    with _open(path) as stream:
        start = stream.read(3)
    encoding = encoding or next((name for mark, name in BYTE_ORDER_MARKS.items() if start.startswith(mark)), "utf-8")
    with io.TextIOWrapper(_open(path), encoding=encoding) as text:
        lines = list(islice(text, SAMPLE_LINES))
    if any("\0" in line for line in lines):
        raise UnicodeError("it holds null characters")
    sep, rows = _separated(lines, sep, decimal)
    has_header = header if header is not None else _has_header(rows, decimal or ".", asked if as_written else None)
    if has_header and len(rows) == 1:
        raise ValueError("it has a header and no rows")
    names: list[Any] = list(range(len(rows[-1])))
    if has_header:
        filled = [*rows[0], ""] if all(row[-1] == "" for row in rows[1:]) else ["", *rows[0]]
        names = [name or f"Unnamed: {i}" for i, name in enumerate(filled if _is_short(rows) else rows[0])]
    unnamed = [i for i in _leading_unnamed(names) if any(row[i] for row in rows[1:])]
    index = _index_places(names, unnamed, asked)
    unused = [i for i in range(len(names)) if i not in _places(names, asked.columns)] if asked.columns else []
    as_text: Iterable[int] = (
        range(len(names))
        if as_written
        else dict.fromkeys([*index, *unused, *_places(names, [*asked.exclude, *asked.groups])])
    )

    def read(**more: Any) -> pd.DataFrame:
        with _open(path) as stream:
            return pd.read_csv(
                stream,
                sep=r"\s+" if sep == " " else sep,
                decimal=decimal or ".",
                encoding=encoding,
                header=None,
                names=range(len(names)),
                index_col=False,
                skiprows=has_header + sum(1 for _ in takewhile(lambda line: not line.strip(), lines)),
                skipinitialspace=True,
                low_memory=False,  # one type per column
                **CORRECT_FLOATS,
                **more,
            )

    frame = read(converters=dict.fromkeys(as_text, "_".__add__))  # else "NA" would be missing, and "007" a number
    if frame.iloc[:, -1].isin([np.nan, "_"]).any():
        _check_ends(path, encoding, sep, len(names), has_header)
    if rounded := [
        i for i, column in frame.items() if column.dtype.kind == "f" and column.abs().max() >= EXACT_INTEGERS
    ]:
        exact = read(usecols=rounded, dtype_backend="numpy_nullable")
        for i in rounded:
            if exact[i].dtype.kind in "iu":  # integers beside empty cells
                frame[i] = exact[i]
    for i in as_text:
        cells = frame[i].str[1:]
        frame[i] = cells if as_written else _numbers(cells)
    frame.columns = pd.Index(names)
    words = {separator: name for name, separator in NAMED_SEPARATORS.items()}
    notes = {
        f"separator {words.get(sep, repr(sep))}": sep != "," and len(names) > 1,
        "decimal comma": decimal == ",",
        "no header": not has_header,
        f"encoding {encoding}": not encoding.startswith("utf-8"),
    }
    return _with_index(frame, index), [note for note, applies in notes.items() if applies]


def _open(path: Path) -> IO[bytes]:
    """Open a file as a stream of its bytes, decompressed."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
            if len(names) != 1:
                raise ValueError(f"it is an archive of {len(names)} files, not of one table as text")
            return archive.open(names[0])
    module = next((module for magic, module in COMPRESSED.items() if start.startswith(magic)), None)
    return import_module(module).open(path, "rb") if module else path.open("rb")


def _separated(lines: list[str], sep: str | None, decimal: str | None) -> tuple[str, list[list[str]]]:
    """Return the only separator by which all rows have the same number of cells, and these rows."""
    candidates = [sep] if sep else [s for s in SEPARATORS if s != decimal]
    readings = {s: rows for s in candidates if (rows := _split(lines, s))}
    if not "".join(lines).strip():
        raise ValueError("it is empty")
    if not readings:
        raise ValueError("its lines are long and have no separator: say --sep")
    several = {s: rows for s, rows in readings.items() if max(map(len, rows)) > 1}
    regular = [s for s, rows in several.items() if _is_regular(rows, short=s == sep or len(rows[0]) > 1)]
    if len(regular) > 1 and " " in regular:
        regular.remove(" ")  # blanks are within cells
    if len(regular) > 1:
        raise ValueError(f"the separator may be {regular[0]!r} or {regular[1]!r}: say --sep")
    if not regular and several.keys() - ({" "} - {sep}):
        chosen = max(several, key=lambda s: sum(map(len, several[s])))
        widths = {line: len(row) for line, row in _records(lines, chosen)}
        usual = mode(widths.values())
        line = next(line for line, width in widths.items() if width != usual)
        raise ValueError(f"{_unequal(line, widths[line], usual)}, or say --sep or --decimal")
    chosen = regular[0] if regular else next(iter(readings))
    return chosen, readings[chosen]


def _unequal(line: int, width: int, usual: int) -> str:
    return f"line {line} has {counted(width, 'cell')}, others have {usual}: correct it"


def _records(lines: Iterable[str], sep: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line, from 1, and the cells of each row that is not blank."""
    if sep == " ":
        lines = (line.strip().replace("\t", " ") for line in lines)
    reader = csv.reader(lines, delimiter=sep, skipinitialspace=True)
    for cells in reader:
        row = [cell.strip() for cell in cells]
        if "".join(row) or len(row) > 1:
            yield reader.line_num, row


def _split(lines: list[str], sep: str) -> list[list[str]]:
    """Return the rows of cells; none if a cell is longer than the csv module takes."""
    try:
        rows = [row for _, row in _records(lines, sep)]
    except csv.Error:
        return []
    return rows[:-1] if len(lines) == SAMPLE_LINES else rows  # the last one may end within quotes


def _check_ends(path: Path, encoding: str, sep: str, width: int, has_header: bool) -> None:
    """Raise ValueError if a line ends early: pandas takes its last cells for empty ones."""
    with io.TextIOWrapper(_open(path), encoding=encoding) as text:
        for line, row in islice(_records(text, sep), int(has_header), None):
            if len(row) < width:
                raise ValueError(_unequal(line, len(row), width))


def _is_regular(rows: list[list[str]], short: bool) -> bool:
    """Return whether all rows have the same number of cells; the first may be a `short` header."""
    same = all(len(row) == len(rows[-1]) for row in rows[1:])
    return same and (len(rows[0]) == len(rows[-1]) or (short and _is_short(rows)))


def _is_short(rows: list[list[str]]) -> bool:
    """Return whether the header has one name less than there are columns: R writes no name for the index."""
    return len(rows[0]) == len(rows[-1]) - 1


def _has_header(rows: list[list[str]], decimal: str, asked: Names | None) -> bool:
    """Return whether the first row names the columns: its cells are text and not numbers or missing values.

    Among strings that tells nothing. Then, with `asked`, the row names the columns if it has one of these names. Raises
    ValueError if the row may be either.
    """
    first, buffer = rows[0], io.StringIO()
    if asked is not None:
        if any(name in first for name in (*asked.index, *asked.columns, *asked.exclude, *asked.groups)):
            return True
    else:
        csv.writer(buffer, quoting=csv.QUOTE_ALL).writerow(first)
        buffer.seek(0)
        types = pd.read_csv(buffer, header=None, decimal=decimal).dtypes
        is_text = [c == "" or not pd.api.types.is_numeric_dtype(kind) for c, kind in zip(first, types, strict=True)]
        named = first[first[0] == "" :]
        are_places = named == [str(i) for i in range(len(named))]  # pandas writes columns without names like this
        if all(is_text) or (first[0] == "" and are_places):
            return True
        if not (any(is_text) or are_places):
            return False
    raise ValueError(f"its first row, {','.join(first)[:50]!r}, may be a header: say --header or --no-header")


def _numbers(column: pd.Series) -> pd.Series:
    """Return a column of text as integers or floats, if these print as the same text; otherwise as it is."""
    for kind in ("int64", "float64"):
        try:
            numbers = column.astype(kind)
        except (OverflowError, ValueError):
            continue
        if (numbers.astype(str) == column).all():
            return numbers
    return column


def split_names(text: str | None) -> list[str]:
    """Return the names in a line of CSV; none for None."""
    if text is None:
        return []
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True))] or [""]


def _quoted(names: Iterable[Any]) -> str:
    """Return names of columns as text."""
    return listed(map(str, names))


def _is_unnamed(name: Any) -> bool:
    """Return whether this is what pandas calls a column without a name."""
    return isinstance(name, str) and bool(re.fullmatch("Unnamed: [0-9]+", name))


def _leading_unnamed(names: Iterable[Any]) -> list[int]:
    """Return the positions of the columns without a name before the first one with a name."""
    return [i for i, _ in enumerate(takewhile(_is_unnamed, names))]


def _places(names: list[Any], requested: list[str]) -> list[int]:
    """Return the positions of the requested columns; raise ValueError for a name that no column has."""
    texts = [str(name) for name in names]
    if unknown := [name for name in requested if name not in texts]:
        raise ValueError(f"unknown column {_quoted(unknown)}; the table has {_quoted(texts)}")
    return [i for name in requested for i, text in enumerate(texts) if text == name]


def _index_places(names: list[Any], unnamed: list[int], asked: Names) -> list[int]:
    """Return the positions of the columns that name the rows."""
    return _places(names, asked.index) or [i for i in unnamed if names[i] not in (*asked.columns, *asked.groups)]


def _with_index(frame: pd.DataFrame, positions: list[int]) -> pd.DataFrame:
    """Return the frame with the columns at these positions as its index, if there are any."""
    if not positions:
        return frame
    columns = [frame.iloc[:, i] for i in positions]
    names = [None if _is_unnamed(column.name) else column.name for column in columns]
    frame = frame.iloc[:, [i for i in range(frame.shape[1]) if i not in positions]]
    frame.index = pd.MultiIndex.from_arrays(columns) if len(columns) > 1 else pd.Index(columns[0])
    return frame.rename_axis(names)


def _choose(frame: pd.DataFrame, asked: Names) -> tuple[list[int], dict[int, str]]:
    """Return the positions of the columns to use, and why each other column is left out, by its position."""
    names = list(frame)
    chosen = _places(names, asked.columns) or list(range(len(names)))
    groups = _places(names, asked.groups)
    if both := set(groups).intersection(_places(names, [*asked.columns, *asked.exclude])):
        raise ValueError(f"column {_quoted([names[min(both)]])} is of groups: name it in --groups alone")
    reasons = dict.fromkeys(set(range(len(names))).difference(chosen), "not in --columns")
    if not asked.columns:
        nameless = [i for i, name in enumerate(names) if _is_unnamed(name) or not isinstance(name, str)]
        reasons |= {i: EMPTY for i in nameless if frame.iloc[:, i].isin(["", None, np.nan]).all()}
        reasons |= dict.fromkeys(_leading_unnamed(names), "no name")
    reasons |= dict.fromkeys(_places(names, asked.exclude), "--exclude")
    reasons = {i: reason for i, reason in reasons.items() if i not in groups}
    chosen = [i for i in chosen if i not in reasons and i not in groups]
    if not chosen:
        raise ValueError(f"no column remains to be clustered of {_quoted(names)}")
    return chosen, reasons


def _check_groups(keys: pd.DataFrame) -> None:
    """Raise ValueError if a row has no group."""
    for name, column in keys.items():
        missing = (column.isna() | (column == "")).to_numpy()
        if missing.any():
            raise ValueError(f"column {str(name)!r} of --groups is empty in row {missing.argmax()}: give it a value")


def _check_row_names(points: pd.DataFrame, categories: bool) -> None:
    """Raise ValueError for a column that seems to name the rows: it is called so, or its categories all differ."""
    if points.shape[1] == 1:
        return
    for name, column in points.items():
        if ROW_NAME.fullmatch(str(name)):
            why = "is called as names of rows are"
        elif categories and len(column) > 2 and column[:FIRST_ROWS].is_unique and column.is_unique:
            why = "differs in every row, as names of rows do"
        else:
            continue
        quoted = shlex.quote(str(name))
        raise ValueError(
            f"column {str(name)!r} {why}: say --index-column {quoted}, or --exclude {quoted}, or --columns "
            f"'{EVERY_COLUMN}' to use every column"
        )


def _has_text(points: pd.DataFrame, empty_text: str) -> np.ndarray:
    """Return whether each row has text, or counts as if it had; raise ValueError if rows without are refused."""
    column = points.iloc[:, 0]
    missing = (column.isna() | column.isin(NO_TEXT)).to_numpy()
    if missing.any() and empty_text == "refuse":
        row = int(missing.argmax())
        raise ValueError(
            f"column {str(column.name)!r} holds no text in {counted(int(missing.sum()), 'row')}, as "
            f"{column.iloc[row]!r} in row {row}: leave these rows out (--empty-text drop), or take that for text "
            "(--empty-text keep)"
        )
    return ~missing | (empty_text == "keep")


def _check_numbers(points: pd.DataFrame, decimal: str, is_asked: bool) -> None:
    """Raise ValueError for columns that do not hold numbers, and a first one without a name that counts rows."""
    for name, column in points.select_dtypes(exclude=["number", "bool"]).items():
        if pd.api.types.infer_dtype(column) in NUMERIC_OBJECTS:
            continue
        numbers = pd.to_numeric(column.astype(str).str.replace(decimal, "."), errors="coerce")
        row = int(np.argmax(numbers.isna() & column.notna()))
        raise ValueError(
            f"column {str(name)!r} is not of numbers, as {str(column.iloc[row])!r} in row {row}: leave it out "
            f"(--exclude {shlex.quote(str(name))}), or say how it is written (--decimal, --sep)"
        )
    name, values = next(iter(points)), points.iloc[:, 0].to_numpy()
    counts = any(np.array_equal(values, np.arange(len(points)) + start) for start in (0, 1))
    if counts and not is_asked and not isinstance(name, str) and points.shape[1] > 1 and len(points) > 2:
        raise ValueError("its first column counts the rows: say --index-column 0, or the coordinates by --columns")
