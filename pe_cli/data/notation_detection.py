"""Detects how the texts of a column write numbers: decimal and thousands signs, and the unit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.notation import BLANKS, MINUS, PLAIN, Notation

#: Distinct texts of a column that are looked at; all of them when there are fewer.
TRIED = 1000
#: Share of the texts that are numbers, from which a column is one of numbers.
MOST = 0.5
#: Share of these that are numbers of one notation; others are mistakes.
NEARLY = 0.9
#: Units, in small letters, that may stand before or behind digits; any other text only behind them, with a blank or decimals.
UNITS = frozenset([
    "%", "‰", "€", "$", "£", "¥", "₹", "₽", "zł", "kč", "ft", "kr", "kr.", "fr", "fr.", "chf", "eur", "usd", "gbp", "jpy", "inr", "rs",
    "rs.", "r$", "us$", "a$", "c$", "pln", "czk", "huf", "sek", "nok", "dkk", "try", "brl", "cny", "rub", "k€", "t€", "mio", "mrd", "bn",
    "°", "°c", "°f", "kg", "g", "mg", "µg", "t", "lb", "lbs", "oz", "st", "m", "cm", "mm", "km", "mi", "yd", "in", "m²", "qm", "sqm", "ha",
    "l", "ml", "cl", "dl", "hl", "gal", "h", "hr", "hrs", "min", "s", "sec", "ms", "kw", "mw", "kwh", "mwh", "wh", "ma", "hz", "khz", "mhz",
    "ghz", "kb", "mb", "gb", "tb", "bar", "pa", "hpa", "kpa", "ppm", "km/h", "kmh", "mph", "m/s", "cal", "kcal", "kj",
])  # fmt: skip
#: Addresses of the internet, which are no numbers with signs between thousands.
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
#: Distinct texts at least of which some may have a minus behind them, or parentheses around them: fewer may be grades.
MANY_SIGNED = 10
#: Signs before decimals and between thousands that are tried; the first that fits is taken.
SIGNS = ((".", ""), (",", ""), (".", ","), (",", "."), (".", "'"), (",", "'"), (".", " "), (",", " "))
_UNIT = rf"[^\d()+.,'{MINUS}{BLANKS}][^\d()+{MINUS}{BLANKS}]{{0,23}}"
_LOOSE = re.compile(
    rf"[(]?[+{MINUS}]?(?P<before>{_UNIT})?[{BLANKS}]?[+{MINUS}]?(?P<core>\d(?:[\d.,'\u2019{BLANKS}]*\d)?(?:[eE][+-]?\d{{1,3}})?)"
    rf"[{BLANKS}]?(?P<behind>{_UNIT})?[{MINUS}]?[)]?"
)


@dataclass(frozen=True)
class Guessed:
    """How a column writes numbers.

    Args:
        notation: that fits.
        other: another one that fits as well, and means other numbers; None where there is none.
        units: units that the texts have, where they differ; nothing can be said then.
    """

    notation: Notation
    other: Notation | None = None
    units: tuple[str, ...] = ()


def notation_of(words: Sequence[str]) -> Guessed | None:
    """Return how texts write numbers; None where most of them are none.

    >>> notation_of(["1.234,56 €", "7,20 €"]).notation.said, notation_of(["1,234", "5,678"]).other.said
    ('1.234,5 €', '1,234.5')
    """
    words = words[:TRIED]
    if words and all(_ADDRESS.fullmatch(word) and max(map(int, word.split("."))) < 256 for word in words):
        return None
    found = [(word, match) for word in words if len(word) <= 64 and (match := _LOOSE.fullmatch(word.strip(BLANKS)))]
    if not found or len(found) < MOST * len(words):
        return None
    units = Counter(match["before"] or match["behind"] or "" for _, match in found)
    named = [unit for unit in units if unit]
    # A unit that nobody knows may be a part of a code, such as "12a": it has to stand apart from the digits.
    if not all(unit.lower() in UNITS or all(_is_behind(word, match, unit) for word, match in found) for unit in named):
        return None
    cores = [match["core"] for _, match in found]
    read = {signs: [Notation(*signs).plain(core) for core in cores] for signs in SIGNS}
    good = {signs: sum(one is not None for one in numbers) for signs, numbers in read.items()}
    best = max(good.values())
    # Some texts may be mistakes; a notation that reads nearly all is meant.
    if best < NEARLY * len(cores):
        return None
    fitting = [Notation(*signs) for signs in SIGNS if good[signs] == best]
    if any("e" in core.lower() for core in cores):  # numbers with an exponent have no signs between thousands
        fitting = [one for one in fitting if not one.thousands] or fitting
    main = max(named, key=lambda unit: units[unit], default="")
    first, other = fitting[0], None
    # Two notations that read the same texts differently cannot both be right, and the user is asked.
    if len(fitting) > 1 and read[fitting[1].decimal, fitting[1].thousands] != read[first.decimal, first.thousands]:
        other = fitting[1]
    if first.is_plain and other is None and not named and _are_signed(words):
        first = Notation(first.decimal, " ")  # reads the same texts, and the signs, which numbers as programs write them do not have
    several = tuple(sorted(named)) if len(named) > 1 and units[main] < 0.95 * sum(units[unit] for unit in named) else ()
    if not several and main in ("%", "\u2030") and _are_parts(found, read[first.decimal, first.thousands]):
        several = (main, "none")
    made = [Notation(one.decimal, one.thousands, main) for one in (first, *([other] if other else []))]
    return Guessed(made[0], made[1] if other else None, several)


def _are_signed(words: Sequence[str]) -> bool:
    """Return whether some texts are numbers with a minus behind them or parentheses around them, or the sign U+2212, and most are none.

    >>> _are_signed([f"{i}.50-" for i in range(5)] + [f"{i}.50" for i in range(9)]), _are_signed(["1-", "2-", "1", "2"] * 9)
    (True, False)
    """
    read = [PLAIN.plain(word) for word in words]
    if len(set(words)) < MANY_SIGNED or read.count(None) > (1 - NEARLY) * len(words):
        return False
    # Digits alone, such as 2-, are grades or notes as likely as amounts.
    amounts = sum("." in word or sum(map(str.isdigit, word)) > 2 for word in words)
    return amounts > MOST * len(words) and any(one is not None and not _is_plain(word) for one, word in zip(read, words, strict=True))


def _is_plain(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _are_parts(found: Sequence[tuple[str, re.Match[str]]], numbers: Sequence[str | None]) -> bool:
    """Return whether texts without a percent sign are parts of 1, where those with one are of 100."""
    signed = [bool(match["before"] or match["behind"]) for _, match in found]
    with_sign = [abs(float(one)) for one, sign in zip(numbers, signed, strict=True) if one is not None and sign]
    bare = [abs(float(one)) for one, sign in zip(numbers, signed, strict=True) if one is not None and not sign]
    return bool(bare and with_sign) and max(bare) <= 1 < sorted(with_sign)[len(with_sign) // 2] and max(bare) > 0


def _is_behind(word: str, match: re.Match[str], unit: str) -> bool:
    """Return whether a text has a unit behind its digits, apart from them or behind decimals, or has another one."""
    if (match["before"] or match["behind"]) != unit:
        return True
    return match["before"] is None and (not match["core"].isdigit() or word[match.end("core")] in BLANKS)


def are_numbers(words: Sequence[str]) -> bool:
    """Return whether nearly all texts are numbers, each in some notation."""
    words = words[:TRIED]
    found = sum(len(word) <= 64 and any(Notation(*signs).plain(word) is not None for signs in SIGNS) for word in words)
    return found >= NEARLY * len(words) > 0


def is_grouped(words: Sequence[str], sign: str) -> bool:
    """Return whether a sign stands in some texts, and then only before three digits, as one between thousands does."""
    grouped = re.compile(rf"[+{MINUS}]?[1-9]\d{{0,2}}({re.escape(sign)}\d{{3}})+")
    small = re.compile(rf"[+{MINUS}]?\d{{1,3}}")
    return any(sign in word for word in words) and all((grouped if sign in word else small).fullmatch(word) for word in words)
