"""Points from files of tables. An ambiguous file is refused, and the error names the option that decides.

    text ──▶ layout of its first lines ──▶ a frame ──▶ points, their index
    Parquet ─────────────────────────────▶ a frame ──▶ points, their index

`text.py` decompresses, decodes and reads; `layout.py` finds separator, decimal sign and header. pandas reads for both
devices, so both have the same points.
"""

import csv
import importlib.util
import io
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.report import counted
from rapids_slink.tables.layout import is_unnamed, leading_unnamed
from rapids_slink.tables.text import Text

NO_PYARROW = "Parquet files need pyarrow: pip install 'rapids_slink[parquet]'"
#: What pandas.api.types.infer_dtype says of object columns that `fit` takes, or refuses for other reasons.
NUMERIC_OBJECTS = ("boolean", "decimal", "empty", "floating", "integer", "mixed-integer-float")
#: What stands for the standard input.
STANDARD_INPUT = Path("-")
#: The largest number of columns that a line names.
NAMED_COLUMNS = 8


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
) -> tuple[pd.DataFrame, str]:
    """The points in a file, a frame of pandas with columns of numbers, and a line that says what was read.

    `path` may be a pipe, or `STANDARD_INPUT`. The file is Parquet or text, which may be compressed; the suffix does not
    matter. How a text is written is recognised where `sep`, `decimal`, `header` or `encoding` is None; `sep` " " is any
    run of blanks and tabs. `index_column`, `columns` and `exclude` hold names as in a line of CSV: columns that name
    the rows, columns to use, columns to leave out. Without a header columns are called 0, 1, ... The index is
    `index_column`, the Parquet file's own or the leading columns without a name. The line has the rows, the columns,
    those left out and why, and differences from plain CSV.

    Raises ValueError if the file cannot be read or can be read in more than one way, or if a column does not hold
    numbers.
    """
    asked, wanted, unwanted = (_split_names(names) for names in (index_column, columns, exclude))
    options, name = (sep, decimal, header, encoding), "standard input" if path == STANDARD_INPUT else str(path)
    try:
        with _seekable(path) as file:
            frame, sign, notes = (_read_parquet if is_parquet(file) else _read_text)(file, options, asked, wanted)
        points, reasons = _choose(frame, wanted, unwanted)
        _check_numbers(points, sign)
        if not (asked or wanted):
            _check_row_numbers(points)
    except MemoryError:
        raise
    except UnicodeError as error:
        raise ValueError(f"cannot read {name}: {error}; say --encoding, such as latin-1 or utf-16-le") from error
    except Exception as error:  # pandas, pyarrow and the decompressors share no base class
        raise ValueError(f"cannot read {name}: {error}") from error
    size = f"{counted(len(points), 'row')} of {counted(points.shape[1], 'column')}: {_quoted(points)}"
    index = _quoted(name for name in points.index.names if name is not None)
    numbered = isinstance(points.index, pd.RangeIndex) and not index
    parts = [size] if numbered else [size, f"index {index or 'without a name'}"]
    parts += [f"without {_quoted(names)} ({reason})" for reason, names in reasons.items()]
    return points, f"{name}: {'; '.join(parts + notes)}"


@contextmanager
def _seekable(path: Path) -> Iterator[Path]:
    """A file that can be read more than once: itself, or a copy of what comes through a pipe."""
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


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its first and last bytes."""
    with path.open("rb") as stream:
        if stream.read(4) != b"PAR1":
            return False
        stream.seek(-4, io.SEEK_END)
        return stream.read() == b"PAR1" or path.suffix.lower() == ".parquet"


def _read_parquet(
    path: Path, options: tuple[Any, ...], asked: list[str], wanted: list[str]
) -> tuple[pd.DataFrame, str, list[str]]:
    """The frame, the decimal sign of texts in it, and an empty list of notes."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ImportError(NO_PYARROW)
    if any(option is not None for option in options):
        raise ValueError("--sep, --decimal, --header and --encoding are for text, this is Parquet")
    frame = pd.read_parquet(path)
    unnamed = leading_unnamed(list(frame)) if isinstance(frame.index, pd.RangeIndex) else []
    return _with_index(frame, _index_places(list(frame), unnamed, asked, wanted)), ".", []


def _read_text(
    path: Path, options: tuple[Any, ...], asked: list[str], wanted: list[str]
) -> tuple[pd.DataFrame, str, list[str]]:
    """The frame, its decimal sign, and notes of differences from plain CSV."""
    text = Text.find(path, *options)
    places = _index_places(text.layout.names, text.layout.index, asked, wanted)
    return _with_index(text.read(places), places), text.layout.decimal, text.notes


def _split_names(text: str | None) -> list[str]:
    """Names as in a line of CSV."""
    if text is None:
        return []
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True))] or [""]


def _quoted(names: Iterable[Any]) -> str:
    """Names of columns, shortened to the first ones and the last if there are many."""
    texts = [repr(str(name)) for name in names]
    if len(texts) > NAMED_COLUMNS:
        texts[NAMED_COLUMNS - 2 : -1] = ["..."]
    return ", ".join(texts)


def _places(names: list[Any], requested: list[str]) -> list[int]:
    """The positions of the requested columns."""
    texts = [str(name) for name in names]
    if unknown := [name for name in requested if name not in texts]:
        raise ValueError(f"unknown column {_quoted(unknown)}; the table has {_quoted(texts)}")
    return [i for name in requested for i, text in enumerate(texts) if text == name]


def _index_places(names: list[Any], unnamed: list[int], asked: list[str], wanted: list[str]) -> list[int]:
    """The positions of the columns that name the rows."""
    return _places(names, asked) or [i for i in unnamed if names[i] not in wanted]


def _with_index(frame: pd.DataFrame, places: list[int]) -> pd.DataFrame:
    """The frame with the columns at these positions as its index, if there are any."""
    if not places:
        return frame
    columns = [frame.iloc[:, i] for i in places]
    names = [None if is_unnamed(column.name) else column.name for column in columns]
    frame = frame.iloc[:, [i for i in range(frame.shape[1]) if i not in places]]
    frame.index = pd.MultiIndex.from_arrays(columns) if len(columns) > 1 else pd.Index(columns[0])
    return frame.rename_axis(names)


def _choose(frame: pd.DataFrame, wanted: list[str], unwanted: list[str]) -> tuple[pd.DataFrame, dict[str, list[Any]]]:
    """The columns to use, and the names of the others by the reason for leaving them out."""
    names = list(frame)
    chosen = _places(names, wanted) or list(range(len(names)))
    reasons = dict.fromkeys(set(range(len(names))).difference(chosen), "not in --columns")
    if not wanted:
        nameless = [i for i, name in enumerate(names) if is_unnamed(name) or not isinstance(name, str)]
        reasons |= {i: "empty" for i in nameless if frame.iloc[:, i].isna().all()}
        reasons |= dict.fromkeys(leading_unnamed(names), "no name")
    reasons |= dict.fromkeys(_places(names, unwanted), "--exclude")
    chosen = [i for i in chosen if i not in reasons]
    if not chosen:
        raise ValueError(f"no column remains to be clustered of {_quoted(names)}")
    others: dict[str, list[Any]] = {}
    for i in sorted(reasons):
        others.setdefault(reasons[i], []).append(names[i])
    return frame.iloc[:, chosen], others


def _check_numbers(points: pd.DataFrame, decimal: str) -> None:
    """Refuse columns that do not hold numbers, and name the first other value."""
    for name, column in points.select_dtypes(exclude=["number", "bool"]).items():
        if pd.api.types.infer_dtype(column) in NUMERIC_OBJECTS:
            continue
        numbers = pd.to_numeric(column.astype(str).str.replace(decimal, "."), errors="coerce")
        row = int(np.argmax(numbers.isna() & column.notna()))
        raise ValueError(
            f"column {str(name)!r} is not of numbers, as {str(column.iloc[row])!r} in row {row}: leave it out "
            f"(--exclude {shlex.quote(str(name))}), or say how it is written (--decimal, --sep)"
        )


def _check_row_numbers(points: pd.DataFrame) -> None:
    """Refuse a first column without a name that counts the rows, since it may be a coordinate or the index."""
    name: Any = points.columns[0]
    numbers = points.iloc[:, 0].to_numpy()
    counts = any(np.array_equal(numbers, np.arange(len(points)) + start) for start in (0, 1))
    if counts and not isinstance(name, str) and points.shape[1] > 1 and len(points) > 2:
        raise ValueError("its first column counts the rows: say --index-column 0, or the coordinates by --columns")
