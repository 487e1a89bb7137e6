"""Detects the dialect of a text table from its first rows: the delimiter, and whether there is a header."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.tables import column_limit
from pe_cli.data.tables.text_source import LONGEST, Source

#: Delimiters that are tried, in this order.
DELIMITERS = (",", ";", "\t", "|")
#: Rows that are looked at.
SAMPLE = 100
BLANKS = b" \t\n\x0b\x0c\r"


#: Bytes that the delimiter and the header are found out from, unless the first row is longer.
HEAD = 1 << 16


@dataclass(frozen=True)
class Cell:
    """A cell of text.

    Args:
        start, end: of its text in the bytes, without quotes and without blanks around.
        text: as it is meant, UTF-8.
        quoted: whether it stands in quotes.
    """

    start: int
    end: int
    text: bytes
    quoted: bool

    def __str__(self) -> str:
        return self.text.decode("utf-8", "replace").strip()


@dataclass(frozen=True)
class Row:
    """A row of text.

    Args:
        start: of its first byte.
        cells: at least one.
        whole: whether the end of its line was found, or it has too many cells.
    """

    start: int
    cells: list[Cell]
    whole: bool


def split_rows(data: bytes, delimiter: str, start: int = 0) -> Iterator[Row]:
    """Yield rows as `pe_cli.kernels.text.csv` finds them, lines of blanks alone left out; what stands behind a closing quote is ignored.

    A row of more cells than a table has columns ends there, and is the last one.
    """
    find = re.compile(b'["\\r\\n' + re.escape(delimiter.encode()) + b"]").search
    quote = re.compile(b'"(")?').search
    cells: list[Cell] = []
    begin = at = row = start
    while True:
        found = find(data, at)
        end = found.start() if found else len(data)
        at = end + 1
        if found and found[0] == b'"':
            # A quote inside of text is no quote of a cell.
            if data[begin:end].strip(BLANKS):
                continue
            close = quote(data, at)
            while close and close[1]:
                close = quote(data, close.end())
            after = find(data, close.end()) if close else None
            stop = close.start() if close else len(data)
            cells.append(_cell(data, end + 1, stop, quoted=True))
            found, end = after, after.start() if after else len(data)
            at = end + 1
        elif not found and not cells and not data[begin:end].strip(BLANKS):
            return
        elif found and found[0] != delimiter.encode() and not cells and not data[begin:end].strip(BLANKS):
            begin = row = at
            continue
        else:
            cells.append(_cell(data, begin, end, quoted=False))
        begin = at
        # A row with more cells than any table has is an unclosed quote or no table: nothing behind it is looked at.
        if len(cells) > column_limit.MOST_COLUMNS:
            yield Row(row, cells, whole=True)
            return
        if found and found[0] == delimiter.encode():
            continue
        yield Row(row, cells, found is not None)
        if not found:
            return
        cells, row = [], at


def _cell(data: bytes, start: int, end: int, *, quoted: bool) -> Cell:
    text = data[start:end]
    left, right = len(text) - len(text.lstrip(BLANKS)), len(text.rstrip(BLANKS))
    text = text.strip(BLANKS)
    return Cell(start + left, max(start + left, start + right), text.replace(b'""', b'"') if quoted else text, quoted)


def first_bytes(source: Source, delimiter: str) -> tuple[bytes, bool]:
    """Return the first bytes of a table, with at least one whole row, and whether they are all."""
    size = HEAD
    while True:
        data = source.read(source.start, size)
        whole = source.start + len(data) >= source.end
        if whole or size >= LONGEST or any(row.whole for row in itertools.islice(split_rows(data, delimiter), 1)):
            return data, whole
        size *= 8


def sniff_delimiter(data: bytes, end: bool) -> tuple[str | None, bool]:
    """Return the delimiter that the first rows look separated by, None for one column; and whether all of these rows agree.

    Args:
        data: the first bytes of a table.
        end: whether they are all.
    """
    best: tuple[float, int, str] | None = None
    for delimiter in DELIMITERS:
        counts = [len(row.cells) for row in first_rows(data, delimiter, end)]
        # Only delimiters that every row has equally often are likely; of those the one with most columns.
        if not counts or counts[0] < 2:
            continue
        share = counts.count(counts[0]) / len(counts)
        if best is None or (share, counts[0]) > best[:2]:
            best = share, counts[0], delimiter
            rows = len(counts)
    return (best[2], best[0] == 1 and rows > 1) if best else (None, False)


def first_rows(data: bytes, delimiter: str, end: bool, most: int = SAMPLE) -> list[Row]:
    """Return the first rows; one that is cut off at the end of the data only where that is the end of the file."""
    rows: list[Row] = []
    for row in split_rows(data, delimiter):
        if len(rows) == most or not (row.whole or end):
            break
        rows.append(row)
    return rows


def is_number(text: str) -> bool:
    """Return whether a cell is a finite number."""
    try:
        return math.isfinite(float(text)) and "_" not in text and text.isascii()
    except ValueError:
        return False


def has_header(rows: Sequence[Sequence[str]], missing: Collection[str]) -> bool:
    """Return whether the first row has the names of the columns.

    It has when no cell in it is a number; when a column of numbers has no number there; when it counts 0, 1, 2, ...; and when its numbers
    are years, one after the other, as in tables with a column for each year.
    """
    first, rest = rows[0], rows[1:]
    counted = len(first) > 1 and list(first) == [str(i) for i in range(len(first))]
    # A table without numbers has a header, or there would be no way to name its columns.
    if counted or _are_years([cell for cell in first if is_number(cell)]) or not any(is_number(cell) for cell in first):
        return True
    for i, cell in enumerate(first):
        below = [row[i] for row in rest if i < len(row) and row[i] not in missing and row[i]]
        if cell and cell not in missing and not is_number(cell) and below and all(is_number(other) for other in below):
            return True
    return False


def _are_years(cells: Sequence[str]) -> bool:
    years = [int(cell) for cell in cells if cell.isdigit() and len(cell) == 4]
    steps = {after - before for before, after in itertools.pairwise(years)}
    # Three years in a row are no sample; of two, the second may be a number like any other.
    return len(years) == len(cells) >= 3 and years[0] >= 1700 and years[-1] <= 2200 and steps in ({1}, {-1})


def repeated(names: Sequence[str]) -> int | None:
    """Return the index of the first name that stands there a second time."""
    if len(set(names)) == len(names):
        return None
    left = Counter(names)
    seen: set[str] = set()
    for i, name in enumerate(names):
        if left[name] > 1 and name in seen:
            return i
        seen.add(name)
    return None


def called(delimiter: str) -> str:
    """Return a delimiter as a message names it."""
    return {"\t": "tab", " ": "blank"}.get(delimiter, f"'{delimiter}'")


def written(delimiter: str) -> str:
    """Return a delimiter as a config has it between quotes."""
    return "\\t" if delimiter == "\t" else delimiter
