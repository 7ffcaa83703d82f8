"""The layout of a table in a text, from its first lines. An ambiguous one is refused with the option that decides.

Every separator and decimal sign is tried. A cell is of one of three kinds:

    "n"  a number or a boolean        "m"  a missing value        "t"  other text
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

from rapids_slink.report import counted

SEPARATORS = (",", ";", "\t", "|", " ")
DECIMAL_SIGNS = (".", ",")
#: The texts that pandas.read_csv reads as missing values.
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
_NUMBERS = {
    sign: re.compile(rf"[+-]?({digits}(e[+-]?[0-9]+)?|inf(inity)?)|true|false", re.IGNORECASE)
    for sign, digits in ((".", r"([0-9]+\.?[0-9]*|\.[0-9]+)"), (",", "[0-9]+(,[0-9]+)?"))
}
#: A number whose comma or point may group thousands.
_GROUPED = re.compile("[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")

#: Digits that are rarely an integer.
_DECIMALS = re.compile("0[0-9]+|[0-9]{16,}")


@dataclass(frozen=True)
class Layout:
    """How to read a text."""

    separator: str  # one character; a blank stands for any run of blanks and tabs
    decimal: str  # {".", ","}
    #: the columns' names; numbers without a header. One without a name is called "Unnamed: 0", as in pandas
    names: list[Any]
    skip: int  # lines above the first row of data
    index: list[int]  # the leading columns that have values but no name: they name the rows

    @property
    def has_header(self) -> bool:
        """Whether the text names the columns, which are numbered otherwise."""
        return self.skip > 0


@dataclass(frozen=True)
class Reading:
    """The first lines by one separator and decimal sign: rows of cells. The first `header` (0, 1) rows may be names."""

    separator: str
    decimal: str
    rows: list[list[str]]
    header: int

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of each row's cells, without the names."""
        return ["".join(kind_of(cell, self.decimal) for cell in row) for row in self.rows[self.header :]]

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of cells of each kind."""
        return Counter("".join(self.kinds))

    @property
    def width(self) -> int:
        """Cells per row."""
        return len(self.rows[-1])

    @property
    def is_short(self) -> bool:
        """Whether the header has one name less than there are columns, as R's, which has none for the index."""
        return self.header == 1 and len(self.rows[0]) == self.width - 1

    @property
    def is_regular(self) -> bool:
        """Whether all rows have the same number of cells."""
        same = all(len(row) == self.width for row in self.rows[1:])
        return same and (self.is_short or len(self.rows[0]) == self.width)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Lower is more likely."""
        return self.is_short, -self.counts["n"], self.counts["t"] > 0


def kind_of(cell: str, decimal: str) -> str:
    """The letter of a cell's kind."""
    return "m" if cell in MISSING else "n" if _NUMBERS[decimal].fullmatch(cell) else "t"


def is_unnamed(name: Any) -> bool:
    """Whether this is what pandas calls a column without a name."""
    return isinstance(name, str) and bool(re.fullmatch("Unnamed: [0-9]+", name))


def leading_unnamed(names: Sequence[Any]) -> list[int]:
    """The positions of the columns without a name before the first one with a name."""
    return list(takewhile(lambda i: is_unnamed(names[i]), range(len(names))))


def find_layout(
    lines: Sequence[str], complete: bool, separator: str | None, decimal: str | None, header: bool | None
) -> Layout:
    """The layout of a text from its first lines, which are all its lines if `complete`.

    Separator, decimal sign and header are recognised if they are None. Raises ValueError if there are no rows, if they
    are of different lengths, or if they can be read in more than one way.
    """
    readings = []
    for s in [separator] if separator else [s for s in SEPARATORS if s != decimal]:
        try:
            rows = _split(lines, s)
        except csv.Error:  # a cell of more than 131,072 characters
            continue
        if not rows:
            raise ValueError("it is empty")
        if not complete and len(rows) > 1:
            rows.pop()  # it may end within quotes
        # Quoted commas between commas may group thousands.
        signs = [decimal] if decimal else DECIMAL_SIGNS[:1] if s == "," else DECIMAL_SIGNS
        readings += [Reading(s, sign, rows, int(header is not False and len(rows) > 1)) for sign in signs]
    if not readings:
        raise ValueError("its lines are long and have no separator: say --sep")
    best = _choose(readings)
    if decimal is None:
        _check_signs(best, separator)
    if not (best.is_short or (_has_header(best) if header is None else header)):
        return Layout(best.separator, best.decimal, list(range(best.width)), 0, [])
    if len(best.rows) == 1:
        raise ValueError("it has a header and no rows")
    names = [name or f"Unnamed: {i}" for i, name in enumerate(_names(best))]
    index = [i for i in leading_unnamed(names) if any(row[i] for row in best.rows[1:])]
    blank = sum(1 for _ in takewhile(lambda line: not line.strip(), lines))
    return Layout(best.separator, best.decimal, names, blank + 1, index)


def _split(lines: Sequence[str], separator: str) -> list[list[str]]:
    """The cells of each line that is not blank."""
    if separator == " ":
        lines = [line.strip().replace("\t", " ") for line in lines]
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in rows if "".join(row).strip() or len(row) > 1]


def _choose(readings: list[Reading]) -> Reading:
    """The reading with rows of equal length that has the most numbers."""
    split = [reading for reading in readings if any(len(row) > 1 for row in reading.rows)]
    regular = [reading for reading in split if reading.is_regular]
    if not split or (not regular and readings[0] not in split and not readings[0].counts["t"]):
        return readings[0]  # one column
    if not regular:
        rows = max((reading.rows for reading in split), key=lambda rows: sum(map(len, rows)))
        usual = Counter(map(len, rows)).most_common(1)[0][0]
        number, width = next((i, len(row)) for i, row in enumerate(rows, 1) if len(row) != usual)
        raise ValueError(
            f"row {number} has {counted(width, 'cell')}, others have {usual}: correct it, or say --sep or --decimal"
        )
    if any(reading.separator == "\t" for reading in regular):
        regular = [reading for reading in regular if reading.separator != " "]  # blanks are within cells
    best = min(regular, key=lambda reading: reading.rank)
    for rival in regular:
        if rival.rank == best.rank and rival.separator != best.separator:
            raise ValueError(f"the separator may be {best.separator!r} or {rival.separator!r}: say --sep")
        if rival.rank == best.rank and rival.kinds != best.kinds:
            raise ValueError("some numbers have a decimal comma, others a decimal point: say --decimal")
    return best


def _check_signs(reading: Reading, separator: str | None) -> None:
    """Refuse commas and points whose meaning is ambiguous."""
    line = ",".join(reading.rows[-1])
    decimals = reading.is_short or any(_DECIMALS.fullmatch(row[-1]) for row in reading.rows)
    if reading.separator == "," != separator and decimals and _NUMBERS[","].fullmatch(line):
        raise ValueError(f"{line!r} may be one number or two: say --decimal , or --sep ,")
    sign = reading.decimal
    cells = [cell for row in reading.rows for cell in row if sign in cell and kind_of(cell, sign) == "n"]
    if cells and (sign == "," or reading.separator == ";") and all(map(_GROUPED.fullmatch, cells)):
        name = "comma" if sign == "," else "point"
        raise ValueError(
            f"the {name} of {cells[0]!r} may group thousands; if it is a decimal sign, say --decimal {sign}"
        )


def _has_header(reading: Reading) -> bool:
    """Whether the first row names the columns: it has text where the others have numbers."""
    first = reading.rows[0]
    balance = [column.count("n") - column.count("t") for column in zip(*reading.kinds, strict=True)]
    numeric = [i for i, more_numbers in enumerate(balance) if more_numbers > 0 or not reading.header]
    kinds = {kind_of(first[i], reading.decimal) for i in numeric}
    if "n" not in kinds:
        return "t" in kinds or not numeric
    numbers = [first[i] for i in numeric if first[i] not in MISSING]
    are_places = numbers == [str(i) for i in range(len(numbers))]  # pandas writes columns without names like this
    if first[0] == "" and are_places:
        return True
    like_names = all(cell.isdecimal() for cell in numbers) and len(set(numbers)) == len(numbers)
    beside_text = min(balance) < 0
    if "t" in kinds or first[0] == "" or are_places or (beside_text and like_names):
        raise ValueError(f"its first row, {','.join(first)[:50]!r}, may be a header: say --header or --no-header")
    return False


def _names(reading: Reading) -> list[str]:
    """The header's names, one per column."""
    if not reading.is_short:
        return reading.rows[0]
    rows_end_in_separators = all(row[-1] == "" for row in reading.rows[1:])
    return [*reading.rows[0], ""] if rows_end_in_separators else ["", *reading.rows[0]]
