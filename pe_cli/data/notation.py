"""Notations of numbers: the signs before decimals and between thousands, the unit, and numbers that stand for missing cells."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass

#: Signs that may stand between thousands, and what is written for each of them.
GROUPS = {".": ".", ",": ",", "'": "'\N{RIGHT SINGLE QUOTATION MARK}", " ": " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"}
#: Blanks that are no part of a number.
BLANKS = " \t\n\r\x0b\x0c\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
#: Minus signs, as a pattern's set of characters has them.
MINUS = "\\-\N{MINUS SIGN}"
#: Bytes of a number at most, its unit and blanks counted.
LONGEST = 128


@dataclass(frozen=True)
class Notation:
    """How a column writes its numbers.

    Args:
        decimal: sign before the decimals.
        thousands: sign between thousands, a key of `GROUPS`; nothing where there is none.
        unit: text that may stand before or behind the digits; nothing where there is none.
        empty: numbers that stand for a missing cell.
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    empty: tuple[float, ...] = ()

    @property
    def signs(self) -> Notation:
        """The notation without numbers for missing cells."""
        return Notation(self.decimal, self.thousands, self.unit)

    @property
    def is_plain(self) -> bool:
        """Whether a number is written as programs write it, like -1234.5."""
        return self.signs == PLAIN

    def plain(self, text: str) -> str | None:
        """Return a number as programs write it; None for what is no number of this notation.

        A unit may be left out, and so may signs between thousands; where they are, the last group has three digits, others two or
        three, and the first does not begin with 0. A number in parentheses is negative, and so is one with a minus behind it.

        >>> Notation(",", ".", "€").plain("1.234,56 €"), Notation(",", ".").plain("12.34"), Notation(unit="%").plain("(84.7%)")
        ('1234.56', None, '-84.7')
        """
        text = text.strip(" \t\n\r\x0b\x0c")
        found = _pattern(self.signs).fullmatch(text.strip(BLANKS)) if len(text.encode("utf-8", "replace")) <= LONGEST else None
        if not found or (found["opened"] is None) != (found["closed"] is None) or (found["before"] and found["behind"]):
            return None
        signs = [found[name] for name in ("opened", "sign", "second", "last") if found[name]]
        if len(signs) > 1:
            return None
        grouped = found["grouped"] or ""
        whole = re.sub(r"\D", "", grouped) if grouped else found["whole"]
        if not whole and not found["decimals"]:
            return None
        minus = "-" if signs and signs[0] != "+" else ""
        point = f".{found['decimals']}" if found["decimals"] else ""
        return f"{minus}{whole}{point}{found['power'] or ''}"

    def drop_empty(self, values: NDArray[np.float64]) -> None:
        """Make numbers that stand for a missing cell NaN, in place."""
        for value in self.empty:
            values[values == value] = np.nan

    @property
    def written(self) -> dict[str, object]:
        """The options of a column that says so."""
        found: dict[str, object] = {}
        if self.decimal != ".":
            found["decimal"] = self.decimal
        if self.thousands:
            found["thousands"] = self.thousands
        if self.unit:
            found["unit"] = self.unit
        return found | ({"empty": [int(value) if value.is_integer() else value for value in self.empty]} if self.empty else {})

    @property
    def said(self) -> str:
        """How a number of it looks, for a message."""
        sign = self.thousands
        shown = f"1{sign}234{self.decimal}5"
        return f"{shown} {self.unit}".rstrip()


PLAIN = Notation()
#: Columns that are read as numbers: those of a sequence as programs write numbers.
Notations = Mapping[str, Notation] | Sequence[str]


def notations_of(numbers: Notations) -> Mapping[str, Notation]:
    """Return the notation of every column."""
    return numbers if isinstance(numbers, Mapping) else dict.fromkeys(numbers, PLAIN)


@functools.lru_cache(64)
def _pattern(notation: Notation) -> re.Pattern[str]:
    """Return what matches a number of a notation."""
    blank = f"[{BLANKS}]*"
    sign = f"[+{MINUS}]"
    unit = re.escape(notation.unit)
    before, behind = (f"(?P<{name}>{unit})?" if unit else f"(?P<{name}>(?!))?" for name in ("before", "behind"))
    between = f"[{re.escape(GROUPS[notation.thousands])}]" if notation.thousands else "(?!)"
    grouped = rf"(?P<grouped>[1-9][0-9]{{0,2}}(?:{between}[0-9]{{2,3}})*{between}[0-9]{{3}})"
    number = rf"(?:{grouped}|(?P<whole>[0-9]*))(?:{re.escape(notation.decimal)}(?P<decimals>[0-9]*))?(?P<power>[eE][+-]?[0-9]+)?"
    return re.compile(
        rf"(?:(?P<opened>\(){blank})?(?:(?P<sign>{sign}){blank})?{before}{blank}(?:(?P<second>{sign}){blank})?"
        rf"{number}{blank}{behind}{blank}(?P<last>[{MINUS}])?{blank}(?P<closed>\))?"
    )
