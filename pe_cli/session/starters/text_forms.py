"""Says what texts look like that differ in nearly every row, and how to write them instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pe_cli.data.column_inference import TRIED

_DAY = r"\d{4}[-./ ]\d{1,2}[-./ ]\d{1,2}|\d{1,2}[-./ ]\d{1,2}[-./ ]\d{2,4}"
#: Forms of numbers that no notation of a column reads, and what is said of a column of them.
_NUMBERS = (
    (r"\d+[ -]\d{1,2}/\d{1,3}|[1-9]\d?/\d{1,2}|\d*\s?[\u00bc-\u00be\u2150-\u215e]",
     "fractions? write them as decimals, such as 1.5"),
    (r"\d+\s?(['\u2032]|ft\.?)\s?\d+(\.\d+)?\s?(\"|''|\u2033|in\.?)?", "feet and inches? write them as numbers, such as inches"),
    (r"[$\u20ac\u00a3]?\d+([.,]\d+)?\s?[kKMB]", "thousands and millions by a letter? write the numbers in full"),
    (r"[<>~\u2264\u2265\u2248]\s*\d.*", "numbers with a sign of bounds? write them as numbers"),
    (r"-?\d+([.,]\d+)?\s?(\u00b1|\+/-)\s?\d+([.,]\d+)?", "numbers with their errors? write each into a column of its own"),
)
#: Forms of texts that differ in every row, and what is said of a column of them.
_FORMS = (
    *_NUMBERS,
    (r"\d{1,3}(\.\d{1,3}){3}(/\d+)?|[0-9a-f:]{8,39}:[0-9a-f]+", "addresses of machines? a column of their first parts may tell something"),
    (r"[-+]?\d{1,3}\s?\u00b0.*|[-+]?\d{1,3}\.\d+\s?\u00b0?\s?[NSEWO]|POINT.*",
     "coordinates? write degrees as numbers, negative in the south and west"),
    (r"(\d+\s?(d|h|m|s|min|std|days?)\.?[ ,]*)+([\d:]+)?|P(\d+D)?T?(\d+[HMS])+", "lengths of time? write them as numbers, such as minutes"),
    (r"\d{1,4}:[0-5]\d(:[0-5]\d([.,]\d+)?)?", "times? write them as numbers, such as minutes"),
    (r"[(\[]?[+-]?\d+([.]\d+)?\s*[,;/ x]\s*[+-]?\d+([.]\d+)?[)\]]?", "two numbers in a cell? write each into a column of its own"),
    (r"\[[-+\d.eE, ]+\]", "lists of numbers? write each number into a column of its own"),
    (r"\d{4}[- /]?Q[1-4]|Q[1-4][- /]?\d{4}", "quarters? write the first day of each, as 2026-04-01"),
    (rf"({_DAY})(\D.*)?|\d{{1,2}}[. ]+[^\W\d]{{3,}}[. ]+\d{{2,4}}.*",
     "dates of several forms? write all as 2026-11-25"),
    (r"\d+\s?[-\u2013]\s?\d+", "ranges? write the ends of each into columns of their own"),
    (r"v?\d+\.\d+\.\d+\S*", "versions? write their parts into columns of their own"),
    (r"\+?[\d() /.-]{9,20}", "numbers of telephones, or codes?"),
)  # fmt: skip


def what_texts_are(words: Sequence[str]) -> str:
    """Return what to say of texts that differ in nearly every row.

    >>> what_texts_are(["3:19:52", "0:10:00"]), what_texts_are(["a81", "b7"])
    ('times? write them as numbers, such as minutes', 'an id?')
    """
    return _most(words, _FORMS, 0) or "an id?"


def numbers_unread(words: Sequence[str]) -> str:
    """Return what to say of classes that look like numbers which are written as no column of numbers reads them; nothing for others.

    >>> numbers_unread(["1 1/2", "3", "2 3/4", "1/4"]), numbers_unread(["18-24", "25-34", "35+"])
    ('fractions? write them as decimals, such as 1.5', '')
    """
    return _most(words, _NUMBERS, sum(word.isdigit() for word in words[:TRIED]))


def _most(words: Sequence[str], forms: Sequence[tuple[str, str]], plain: int) -> str:
    """Return what is said of the first form that most texts have, where some numbers of it may be plain; nothing where none has it."""
    tried = words[:TRIED]
    counts = ((what, sum(re.fullmatch(form, word) is not None for word in tried)) for form, what in forms)
    return next((what for what, count in counts if count and 2 * (count + plain) > len(tried) and count >= plain), "")
