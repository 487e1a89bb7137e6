"""Guesses columns of numbers: how their texts write them, which numbers stand for missing cells, and which are codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.notation_detection import Guessed, is_grouped, notation_of
from pe_cli.data.raw_cells import MISSING, Codes, Table
from pe_cli.session.starters.dates import compact, excel_note, no_days, since, years
from pe_cli.session.starters.guesses import Asked, Guess, short, three
from pe_cli.session.starters.names import said

#: Texts without a digit that stand for a missing number, at most so many in a column.
MOST_MARKERS = 3
#: Texts that stand for a missing cell in columns of texts, too, in small letters.
EMPTY_WORDS = frozenset([
    "k.a.", "k. a.", "keine angabe", "n/a", "#n/a", "#nv", "n.a.", "n. a.", "<na>", "(null)", "-", "--", "---", "\u2013", "\u2014", "?",
    "??", ".", "..", "...", "s/d", "n/d", "#value!", "#wert!", "#div/0!", "#ref!", "#null!", "#name?", "\\n",
])  # fmt: skip
#: Numbers that stand for a missing cell, and how often the others go into one that is positive.
EMPTY_NUMBERS, APART = (99.0, 999.0, 9999.0, 99999.0, 999999.0, -99.0, -999.0, -9999.0, -99999.0), 3.0
#: Cells that have such a number at least.
OFTEN = 2
#: Deviations from the mean beyond which a number is clipped, and the quantiles that are kept.
FAR, KEPT = 10.0, (0.001, 0.999)
#: How often one number in twenty has the median of those that are not 0, where logarithms are seen; and how large it is at least, as asinh
#: leaves small numbers as they are.
SCALES, LARGE, LARGER_SHARE, SEVERAL = 1000.0, 100.0, 0.95, 10
#: A code is below.
MOST_CODE = 1e15
#: Rows of a class at least in larger tables, as others teach what an unknown one means; and share of rows that may have codes of their own.
FEW, LARGER, OWN_SHARE = 2, 500, 0.5
_ID = re.compile(
    r"(^|[\W_])(id|idx|index|key|uuid|guid|nr|no|row|rownum|rownames)$|^(id|index|row)([\W_]|$)|^unnamed|^\d*$",
    re.IGNORECASE,
)
#: Names of whole numbers that tell things apart, and are no magnitudes, however often each is there.
_KEY = re.compile(r"(^|[\W_])(id|ids|uuid|guid|key|code|nr|no|sku)$|^(id|key|code)([\W_]|$)", re.IGNORECASE)
_CAMEL_ID = re.compile(r"[a-z](Id|ID)$")
_VERSION = re.compile(r"(^|[\W_])(version|ver|release|firmware|revision|rev)$", re.IGNORECASE)
#: Numbers above are likely codes like 12E40; whole numbers of eight digits and more are likely those of telephones, accounts or articles
#: where most differ.
HUGE, LONG_CODE, DISTINCT = 1e18, 1e7, 0.9
_CODE = re.compile(
    r"(^|[\W_])(plz|postleitzahl|zip|zip_?code|post_?code|postal_?code|code_?postal|cep|pin_?code|blz|fips|naics|isbn|ean|gtin|phone|telephone|tel|telefon|mobile|fax|handy|imei|ssn|barcode)([\W_]|$)",
    re.IGNORECASE,
)


def evidence(table: Table, names: Iterable[str], delimiter: str | None, asked: Asked) -> Asked:
    """Return what columns of a table tell of one another: the sign before decimals."""
    votes = {",": 0, ".": 0}
    ahead: dict[str, Notation] = {}
    for name in names:
        if table.cells(name).numbers().bad_count and (found := notation_of(table.cells(name).codes().words)):
            ahead[name] = found.notation
            if found.other is None and (found.notation.decimal == "," or found.notation.thousands):
                votes["," if found.notation.decimal == "," or found.notation.thousands == "." else "."] += 1
    table.prepare(ahead, [])
    if votes[","] != votes["."]:
        sign = max(votes, key=lambda sign: votes[sign])
        return Asked(asked.ask, sign, f"other columns write decimals with '{sign}'", sure=True)
    if delimiter is None:
        return asked
    return Asked(asked.ask, "," if delimiter == ";" else ".", f"the file is separated by '{delimiter}'")


def read_codes(table: Table, names: Iterable[str]) -> None:
    """Let the table read columns of whole numbers, which may be codes, as texts in one pass."""
    table.prepare([], [name for name in names if not (found := table.cells(name).numbers()).bad_count and _may_be_code(found.values)])


def _may_be_code(values: NDArray[np.float64]) -> bool:
    there = values[np.isfinite(values)]
    return len(there) > 1 and bool((there == np.rint(there)).all() and (there >= 0).all() and there.max() < MOST_CODE)


def markers(table: Table, names: Iterable[str], targets: Sequence[str] = ()) -> tuple[str, ...]:
    """Return texts that stand for missing cells.

    They are those of columns that are numbers but for them, without a digit, and known ones such as `k.A.` and `-` among other texts.
    """
    found: dict[str, None] = {}
    kept: set[str] = set()
    for name in names:
        cells = table.cells(name)
        numbers = cells.numbers()
        if not numbers.bad_count:
            continue
        codes = cells.codes()
        found.update(dict.fromkeys(no_days(codes.words)))
        written = notation_of(codes.words)
        if numbers.bad_count * 2 > np.isfinite(numbers.values).sum() + numbers.bad_count:
            if written is None:
                known = [word for word in codes.words if word.lower() in EMPTY_WORDS]
                signs = name in targets or "+" in codes.words or len(codes.words) - len(known) < 1
                (kept.update if signs else lambda words: found.update(dict.fromkeys(words)))(known)
                continue
            numbers = cells.numbers(written.notation)
        odd = {cells.text(int(row)) for row in numbers.bad}
        if numbers.bad_count > len(odd):
            odd = {word for word in codes.words if written is None or written.notation.plain(word) is None} - {*MISSING}
            odd = {word for word in odd if not is_number(word)} if written is None or written.notation.is_plain else odd
        if not odd or len(odd) > MOST_MARKERS or any(c.isdigit() for word in odd for c in word):
            continue
        counts = counts_of(codes)
        if sum(int(counts[codes.words.index(word)]) for word in odd if word in codes.words) == numbers.bad_count:
            found.update(dict.fromkeys(word for word in codes.words if word in odd))
    return tuple(word for word in found if word not in MISSING and word not in kept)


def is_number(word: str) -> bool:
    """Return whether a text is a finite number as programs write it."""
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False


def counts_of(codes: Codes, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return how many rows have each text."""
    used = codes.codes if rows is None else codes.codes[rows]
    return np.bincount(used[used >= 0], minlength=len(codes.words)).astype(np.int64)


# --- texts that are numbers -------------------------------------------------------------------------------------------


def written(table: Table, name: str, codes: Codes, asked: Asked) -> Guess | None:
    """Return a column whose texts are numbers of a notation; None for others."""
    found = notation_of(codes.words)
    if found is None or (found.notation.is_plain and not found.units):
        return None
    if found.units:
        units = ", ".join(said(unit, 12) for unit in found.units[:4])
        return Guess(name, None, why=f"numbers of several units ({units}), such as {three(codes.words)}: write all in one unit")
    notation, why, note = settled(name, codes, found, asked)
    numbers = table.cells(name).numbers(notation)
    if numbers.bad_count:
        if numbers.bad_count * 2 > np.isfinite(numbers.values).sum():
            return None
        row = int(numbers.bad[0])
        what = "1 cell is no number" if numbers.bad_count == 1 else f"{numbers.bad_count:,} cells are no numbers"
        return Guess(name, None, why=f"{what} like {notation.said}, such as '{said(table.cells(name).text(row), 30)}' in row {row + 1}")
    if not np.isfinite(numbers.values).any():
        return None
    made = number(name, numbers.values, notation)
    note = note or made.note or _signs(name, codes, notation)
    return Guess(name, made.type, made.options, f"{made.why}; written like {notation.said}{why}", note)


def _signs(name: str, codes: Codes, notation: Notation) -> str:
    """Return what to say where some numbers are negative by a minus behind them, or by parentheses; nothing for others."""
    ends = ("-", "\N{MINUS SIGN}", ")")
    odd = [word for word in codes.words if word.endswith(ends) and (notation.plain(word) or "").startswith("-")]
    return f"'{said(name, 30)}': {three(odd)} are taken for {', '.join(str(notation.plain(word)) for word in odd[:3])}" if odd else ""


def settled(name: str, codes: Codes, found: Guessed, asked: Asked) -> tuple[Notation, str, str]:
    """Return the notation of a column, by what it was chosen where there are two, and what to say of that."""
    if found.other is None:
        return found.notation, "", ""
    pair = (found.notation, found.other)
    meant = [f"{pair[i].plain(codes.words[0])}" for i in range(2)]
    chosen = next((i for i in range(2) if asked.decimal and asked.decimal == _decimal(pair[i])), None)
    why = asked.seen
    if chosen is None or not asked.sure:
        answer = asked.choose(f"'{said(name, 30)}': {three(codes.words)}. What number is the first of these?", meant)
        chosen, why = (answer, "as was answered") if answer is not None else (chosen, why)
    if chosen is None:
        chosen, why = 1, "three digits behind each sign"
    notation = pair[chosen]
    taken = ", ".join(str(notation.plain(word)) for word in codes.words[:3])
    note = (
        f"'{said(name, 30)}': {three(codes.words)} are taken as {taken} ({why}); "
        f"to take them otherwise: {otherwise(name, pair[1 - chosen])}"
    )
    return notation, f", as {why}", note


def _decimal(notation: Notation) -> str:
    """Return the sign that a notation has, or would have, before decimals."""
    return {",": ".", ".": ","}.get(notation.thousands, notation.decimal)


def otherwise(name: str, notation: Notation) -> str:
    """Return the option that declares a column of numbers."""
    from pe_cli.core.yaml_inline import flow

    written = notation.written or {"decimal": "."}
    return f"--columns '{said(name, 60)}={flow({'type': 'number', **written})}'"


# --- numbers ----------------------------------------------------------------------------------------------------------


def plain(table: Table, name: str, asked: Asked) -> Guess:
    """Return a column whose cells are numbers as programs write them: numbers, codes, or an id."""
    values = table.cells(name).numbers().values
    there = values[np.isfinite(values)]
    if asked.decimal == "," and (there >= 0).all() and is_grouped(table.cells(name).codes().words, "."):
        codes, notation = table.cells(name).codes(), Notation(",", ".")
        found = number(name, table.cells(name).numbers(notation).values, notation)
        note = f"'{said(name, 30)}': {three([word for word in codes.words if '.' in word])} are taken for thousands, as {asked.seen}; "
        note += f"to take them otherwise: {otherwise(name, PLAIN)}"
        return Guess(name, found.type, found.options, f"{found.why}; written like {notation.said}", note)
    if _may_be_code(values):
        days = compact(table, name, values) or since(table, name, values)
        if days is not None:
            return days
        code = _code(table, name, there, len(values) - len(there))
        if code is not None:
            return code
    versions = years(table, name, values) or _versions(table, name, there)
    if versions is not None:
        return versions
    found = number(name, values)
    if found.type == "bool" and not set(table.cells(name).codes().words) <= {"0", "1"}:
        # A column of truth values reads texts, of which 1.0 is none: pandas writes it where a number was missing.
        found = Guess(name, "number", {"scale": "standard"}, found.why)
    told = excel_note(name, there) or _codes_note(table, name, there)
    return found if found.note or found.type != "number" or not told else replace(found, note=told)


def _versions(table: Table, name: str, there: NDArray[np.float64]) -> Guess | None:
    """Return numbers of versions, of which 3.10 comes after 3.9, by the column's name; None for others."""
    if not _VERSION.search(name) or (there == np.rint(there)).all():
        return None
    words = table.cells(name).codes().words
    if len(words) > OWN_SHARE * len(there):
        return Guess(name, None, why=f"numbers of versions by the column's name: {len(words):,} different ones in {len(there):,} rows")
    note = f"'{said(name, 30)}' is taken for versions, no numbers: {three(words)}; as numbers: --columns '{said(name, 60)}=number'"
    return Guess(name, "category", {}, f"versions by the column's name; {len(words):,} different", note)


def _codes_note(table: Table, name: str, there: NDArray[np.float64]) -> str:
    """Return what to say of numbers that may be codes: 3E5, or many digits of equal length; nothing for others."""
    whole = bool((there == np.rint(there)).all())
    size = np.abs(there)
    digits = whole and size.min() >= LONG_CODE and len(str(int(size.min()))) == len(str(int(size.max())))
    if not (size.max() > HUGE or (digits and len(np.unique(there)) > DISTINCT * len(there) and (there % 100 != 0).mean() > DISTINCT)):
        return ""
    words = table.cells(name).codes().words
    taken = ", ".join(f"{float(word):.10g}" for word in words[:3])
    how = f"--drop '{said(name, 60)}', or --columns '{said(name, 60)}=category'"
    return f"'{said(name, 30)}': {three(words)} are taken for the numbers {taken}; where they only tell things apart: {how}"


def _code(table: Table, name: str, there: NDArray[np.float64], missing: int) -> Guess | None:
    """Return whole numbers that are codes or keys: some begin with a zero, or the column is called so; None for others."""
    is_key = bool(_KEY.search(name) or _CAMEL_ID.search(name))
    called = is_key or bool(_CODE.search(name))
    codes = table.cells(name).codes()
    zeros = [word for word in codes.words if len(word) > 1 and word[0] == "0" and word.isdigit()]
    if not (called or (zeros and all(word.isdigit() for word in codes.words))):
        return None
    rows = len(there)
    what = f"codes with zeros in front, such as {three(zeros)}" if zeros else "codes by the column's name"
    if not zeros and (len(codes.words) == 2 or (len(codes.words) == rows and not missing and _is_id(name, there))):
        return None  # yes and no, or the number of the row
    if len(codes.words) == rows or ((is_key or rows < LARGER) and len(codes.words) > OWN_SHARE * rows):
        return Guess(name, None, why=f"{what}: {len(codes.words):,} different ones in {rows:,} rows")
    few = rows >= LARGER and bool((counts_of(codes) < FEW).any())
    gaps = f", {missing:,} missing" if missing else ""
    note = f"'{said(name, 30)}' is taken for {what}, no numbers: {three(codes.words)}; as numbers: --columns '{said(name, 60)}=number'"
    return Guess(name, "category", {"min_count": FEW} if few else {}, f"{what}; {len(codes.words):,} different{gaps}", note)


def number(name: str, values: NDArray[np.float64], notation: Notation = PLAIN) -> Guess:
    """Return a column of numbers, NaN where the cell is missing, in a notation."""
    notation, note = _with_empty(name, values, notation)
    if notation.empty:
        values = np.where(np.isin(values, notation.empty), np.nan, values)
    there = values[np.isfinite(values)]
    missing = len(values) - len(there)
    distinct = np.unique(there)
    shown = f"{short(distinct[0])} to {short(distinct[-1])}" if len(distinct) > 1 else short(distinct[0])
    if len(distinct) == 1:
        if missing and notation == PLAIN:
            return Guess(name, "category", why=f"{shown} or missing")
        if not missing:
            return Guess(name, None, why=f"it is {shown} in every row")
    if not missing and len(distinct) == len(values) and _is_id(name, there):
        spare = {**notation.written, "scale": "standard"}
        return Guess(name, None, why="another whole number in every row: an id", spare=spare)
    if not missing and set(distinct.tolist()) <= {0.0, 1.0} and notation == PLAIN:
        return Guess(name, "bool", why="0 or 1")
    options: dict[str, Any] = notation.written | ({"missing": "median"} if missing else {})
    if missing:
        shown += f", {missing:,} missing"
    if notation.empty:
        shown += f", those that are {', '.join(short(value) for value in notation.empty)} among them"
    tamed, said_of = _tamed(there)
    return Guess(name, "number", {**options, **tamed, "scale": "standard"}, shown + said_of, note)


def _tamed(there: NDArray[np.float64]) -> tuple[dict[str, Any], str]:
    """Return options for numbers beside the largest of which most would be one and the same, or of which a few are far away; and why."""
    size = np.abs(there[there != 0])
    if len(np.unique(size)) >= SEVERAL and float(np.quantile(size, LARGER_SHARE)) > max(LARGE, SCALES * float(np.median(size))):
        return {"transform": "asinh"}, ", of very different sizes, whose logarithm is seen"
    if max(there.max() - there.mean(), there.mean() - there.min()) <= FAR * float(there.std()):
        return {}, ""
    low, high = (float(f"{value:.6g}") for value in np.quantile(there, KEPT))
    return ({"clip": [low, high]}, ", a few far from the others") if low < high else ({}, "")


def empty_number(values: NDArray[np.float64]) -> float | None:
    """Return a number that stands for a missing cell, far from all others; None where there is none.

    Args:
        values: [rows], NaN where the cell is missing.
    """
    there = values[np.isfinite(values)]
    for value in EMPTY_NUMBERS:
        count = int((there == value).sum())
        others = there[there != value]
        # 99 is a likely number by itself, so it has to be there more often.
        if count < OFTEN or len(others) < 2 * count or (value == 99 and count < 2 * OFTEN):
            continue
        if (others.max() * APART < value and others.min() > -value) if value > 0 else others.min() >= 0:
            return value
    return None


def _with_empty(name: str, values: NDArray[np.float64], notation: Notation) -> tuple[Notation, str]:
    """Return a notation with the numbers that stand for a missing cell; and what to say of them."""
    value = empty_number(values)
    if value is None:
        return notation, ""
    there = values[np.isfinite(values)]
    others = there[there != value]
    shown = ", ".join(short(one) for one in there[:3])
    note = (
        f"'{said(name, 30)}': {len(there) - len(others):,} cells are {short(value)}, far from the others ({short(others.min())} to "
        f"{short(others.max())}), and are taken for missing; its first cells are {shown}; to take them as numbers: "
        f"--columns '{said(name, 60)}={{type: number, empty: []}}'"
    )
    return Notation(notation.decimal, notation.thousands, notation.unit, (value,)), note


def _is_id(name: str, values: NDArray[np.float64]) -> bool:
    """Return whether whole numbers, another one in every row, number the rows."""
    if not (values == np.rint(values)).all():
        return False
    if np.abs(values).min() >= MOST_CODE:  # such digits are no magnitude, and float64 tells them apart no more
        return True
    consecutive = bool((np.diff(values) == 1).all())
    return consecutive or bool(_ID.search(name) or _CAMEL_ID.search(name))
