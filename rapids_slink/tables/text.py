"""Text that holds a table. Its first bytes tell the compression and the encoding, its first lines the layout."""

import codecs
import io
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Self

import pandas as pd

from rapids_slink.tables.layout import Layout, find_layout

#: The modules that open files with these first bytes.
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "lzma",
    b"\x28\xb5\x2f\xfd": "compression.zstd" if sys.version_info >= (3, 14) else "zstandard",
}
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
#: The sample has about this many characters, and at least this many lines.
SAMPLE_CHARACTERS, SAMPLE_LINES = 65_536, 10
#: pandas before version 3 needs this to read the last place of a float correctly; later versions do not accept it.
CORRECT_FLOATS: Any = {"float_precision": "round_trip"} if int(pd.__version__.partition(".")[0]) < 3 else {}
#: Separators by their names in --sep.
NAMED_SEPARATORS = {"tab": "\t", "blanks": " "}


@dataclass(frozen=True)
class Text:
    """A text, its encoding and its layout."""

    path: Path
    encoding: str
    layout: Layout

    @classmethod
    def find(cls, path: Path, sep: str | None, decimal: str | None, header: bool | None, encoding: str | None) -> Self:
        """The text in a file. Parameters that are None are recognised."""
        with _open(path) as stream:
            start = stream.read(3)
        marked = (name for mark, name in BYTE_ORDER_MARKS.items() if start.startswith(mark))
        encoding = encoding or next(marked, "utf-8")
        return cls(path, encoding, find_layout(*_first_lines(path, encoding), sep, decimal, header))

    @property
    def notes(self) -> list[str]:
        """The differences from plain CSV."""
        names = {separator: name for name, separator in NAMED_SEPARATORS.items()}
        separator = names.get(self.layout.separator, repr(self.layout.separator))
        notes = {
            f"separator {separator}": self.layout.separator != "," and len(self.layout.names) > 1,
            "decimal comma": self.layout.decimal == ",",
            "no header": not self.layout.has_header,
            f"encoding {self.encoding}": not self.encoding.startswith("utf-8"),
        }
        return [note for note, applies in notes.items() if applies]

    def read(self, index: Sequence[int]) -> pd.DataFrame:
        """All columns. Those at the positions `index` hold integers, or unchanged text."""
        separator = self.layout.separator
        prefixed: dict[Any, Callable[[str], str]] = dict.fromkeys(index, "_".__add__)  # else "NA" would be missing
        with _open(self.path) as stream:
            frame = pd.read_csv(
                stream,
                sep=r"\s+" if separator == " " else separator,
                decimal=self.layout.decimal,
                encoding=self.encoding,
                header=None,
                names=range(len(self.layout.names)),
                index_col=False,
                skiprows=self.layout.skip,
                skipinitialspace=True,
                low_memory=False,  # one type per column
                **CORRECT_FLOATS,
                converters=prefixed,
            )
        for i in index:
            frame[i] = _integers(frame[i].str[1:])
        frame.columns = pd.Index(self.layout.names)
        return frame


def _open(path: Path) -> IO[bytes]:
    """The bytes of a file, decompressed."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
            if len(names) != 1:
                raise ValueError(f"it is an archive of {len(names)} files, not of one table as text")
            return archive.open(names[0])
    module = next((module for magic, module in COMPRESSED.items() if start.startswith(magic)), None)
    stream: IO[bytes] = import_module(module).open(path, "rb") if module else path.open("rb")
    return stream


def _first_lines(path: Path, encoding: str) -> tuple[list[str], bool]:
    """The first lines of a text, and whether these are all its lines."""
    lines: list[str] = []
    size = 0
    with io.TextIOWrapper(_open(path), encoding=encoding) as stream:
        for line in stream:
            if size > SAMPLE_CHARACTERS and len(lines) >= SAMPLE_LINES:
                return lines, False
            if "\0" in line:
                raise UnicodeError("it holds null characters")
            lines.append(line)
            size += len(line.strip())
    return lines, True


def _integers(column: pd.Series) -> pd.Series:
    """A column of text as integers, if these print as the same text."""
    try:
        numbers = column.astype("int64")
    except (OverflowError, ValueError):
        return column
    return numbers if (numbers.astype(str) == column).all() else column
