"""Finds rows of a table that are no samples: titles above the header, units below it, sums and notes at the end, the header again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.data.raw_cells import Table
from pe_cli.data.tables.dialect import DELIMITERS, first_rows
from pe_cli.session.starters.guesses import three
from pe_cli.session.starters.names import said
from pe_cli.session.starters.numbers import EMPTY_WORDS

#: Words of a row of sums, or of a note, at the end of a table, in small letters.
ENDS = (
    "total", "totals", "grand total", "subtotal", "sum", "sums", "summe", "gesamt", "gesamtsumme", "insgesamt", "zusammen", "average",
    "avg", "mean", "mittelwert", "durchschnitt", "totaal", "totale", "totaux", "total général", "total geral", "suma", "razem",
    "celkem", "итого", "всего", "合计", "总计", "合計", "source", "sources", "quelle", "fuente", "fonte", "note", "notes", "hinweis",
    "anmerkung", "footnote", "generated", "exported", "as of", "stand", "copyright",
)  # fmt: skip
#: Lines of titles, rows of units and rows at the end that are looked for, at most; and rows of the table, at least.
TITLES, UNITS, LAST, ROWS = 20, 2, 3, 8


def titles(head: bytes, delimiter: str | None) -> int:
    r"""Return how many lines stand above the header of a text.

    Args:
        head: its first bytes, UTF-8 or of another encoding that has ASCII.
        delimiter: of the table; None tries all.

    >>> titles(b"price;sold\n" + b"1,5;2\n" * 9, None)
    0
    >>> titles(b"Sales of 2024\n\n" + b"day,sold\n" + b"1,2\n" * 9, None), titles(b"day,sold\n" + b"1,2\n" * 9, None)
    (2, 0)
    """
    best = (0, 0)
    for sign in (delimiter,) if delimiter else DELIMITERS:
        rows = first_rows(head, sign, end=False)
        counts = [len(row.cells) for row in rows]
        if len(rows) < ROWS or b"\0" in head:
            continue
        width = max(set(counts), key=counts.count)
        filled = [sum(bool(cell.text) for cell in row.cells) for row in rows]
        above = next((i for i, many in enumerate(filled) if counts[i] == width and many > max(1, width // 3)), 0)
        regular = all(count == width for count in counts[above:])
        if width > 1 and above == 0 and regular:
            return 0  # a sign that divides every line into as many cells is the delimiter, whatever decimal commas do
        # One column has no width to tell titles by, and a table with gaps in its first row has none either.
        if width > best[0] and width > 1 and 0 < above <= TITLES and regular and _all_filled(filled, above):
            best = (width, head[: rows[above].start].count(b"\n") or head[: rows[above].start].count(b"\r"))
    return best[1]


def _all_filled(filled: Sequence[int], above: int) -> bool:
    """Return whether the header, and most rows below it, have more filled cells than the lines above."""
    return bool(filled[above] >= np.median(filled[above + 1 :]) > max(filled[:above]))


def repeated_header(table: Table, names: Sequence[str]) -> PeError | None:
    """Return the error that the header stands in the table again; None where it does not."""
    rows = None
    for name in names:
        if not table.cells(name).numbers().bad_count:
            return None
        codes = table.cells(name).codes()
        if name not in codes.words:
            return None
        here = codes.codes == codes.words.index(name)
        rows = here if rows is None else rows & here
    if rows is None or len(names) < 2 or not rows.any():
        return None
    row, more = int(np.flatnonzero(rows)[0]), int(rows.sum()) - 1
    again = f"the header stands here again{f', and {more:,} times more' if more else ''}"
    hint = "take this line out; where files were put together, name them by a pattern instead: data/*.csv"
    return table.error(row, names[0], again, hint)


def units(table: Table, names: Sequence[str]) -> int:
    """Return how many rows at the start tell units, types or questions, and no values: numbers begin below them."""
    if len(table) < ROWS:
        return 0
    for rows in range(1, UNITS + 1):
        found = False
        for name in names:
            cells = table.cells(name)
            numbers = cells.numbers()
            is_number = numbers.bad_count <= rows and np.isfinite(numbers.values).sum() > 1
            texts = [cells.text(row) for row in range(rows)]
            if is_number and not numbers.bad_count and any(np.isfinite(numbers.values[:rows])):
                break
            if is_number and numbers.bad_count:
                if numbers.bad.tolist() != list(range(rows)) or any(text.lower() in EMPTY_WORDS - {"---", "--"} for text in texts):
                    break
                found = True
            elif not is_number and any(_is_elsewhere(table, name, row) for row in range(rows)):
                break
        else:
            if found:
                return rows
    return 0


def _is_elsewhere(table: Table, name: str, row: int) -> bool:
    """Return whether other rows have the text of a row."""
    codes = table.cells(name).codes()
    code = codes.codes[row]
    return code >= 0 and int((codes.codes == code).sum()) > 1


def ends(table: Table, names: Sequence[str]) -> int:
    """Return how many rows at the end are sums, notes or empty: they begin with such a word, or have few cells where others are full."""
    if len(table) < ROWS or len(names) < 2:
        return 0
    filled = [sum(bool(table.cells(name).text(row)) for name in names) for row in range(min(len(table) - LAST, 30))]
    usual = float(np.median(filled)) if filled else 0.0
    rows = found = 0
    while rows < len(table) - ROWS and found < LAST:
        row = len(table) - rows - 1
        if _is_end(table, names, row, usual):
            found += 1
        elif any(table.cells(name).text(row) for name in names):
            break
        rows += 1
    return rows


def _is_end(table: Table, names: Sequence[str], row: int, usual: float) -> bool:
    there = [(name, text) for name in names if (text := table.cells(name).text(row))]
    if not there:
        return False
    name, first = there[0]
    word = first.lower().strip(" :.*")
    said_so = any(word == end or word.startswith((f"{end}:", f"{end} ")) for end in ENDS)
    sparse = len(names) > 2 and len(there) <= max(1, len(names) // 3) and usual >= 0.9 * len(names)
    likely = (said_so and len(there) < len(names)) or (said_so and word in ENDS) or sparse
    # Asked for last: different texts of a column may take more memory than there is.
    return likely and not _is_elsewhere(table, name, row)


def told(table: Table, names: Sequence[str], row: int) -> str:
    """Return the first cells of a row for the screen."""
    return three([text for name in names if (text := table.cells(name).text(row))] or [""])


def of_lines(lines: int, head: bytes) -> str:
    """Return what is said of lines above the header."""
    shown = [said(line.decode("utf-8", "replace"), 40) for line in head.splitlines()[:lines] if line.strip()]
    what = "the first line is taken for a title" if lines == 1 else f"the first {lines} lines are taken for titles"
    return f"{what} above the header, and left out (titles: {lines}): {three(shown)}"
