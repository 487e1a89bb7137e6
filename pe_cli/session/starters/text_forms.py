"""Says what texts look like that differ in nearly every row, and how to write them instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pe_cli.data.column_inference import TRIED

_DAY = r"\d{4}[-./ ]\d{1,2}[-./ ]\d{1,2}|\d{1,2}[-./ ]\d{1,2}[-./ ]\d{2,4}"
#: Forms of texts that differ in every row, and what is said of a column of them.
_FORMS = (
    (r"\d{1,3}(\.\d{1,3}){3}(/\d+)?|[0-9a-f:]{8,39}:[0-9a-f]+", "addresses of machines? a column of their first parts may tell something"),
    (r"[-+]?\d{1,3}\s?\u00b0.*|[-+]?\d{1,3}\.\d+\s?\u00b0?\s?[NSEWO]|POINT.*",
     "coordinates? write degrees as numbers, negative in the south and west"),
    (r"(\d+\s?(d|h|m|s|min|std|days?)\.?[ ,]*)+([\d:]+)?|P(\d+D)?T?(\d+[HMS])+", "lengths of time? write them as numbers, such as minutes"),
    (r"\d{1,4}:[0-5]\d(:[0-5]\d([.,]\d+)?)?", "times? write them as numbers, such as minutes"),
    (r"[(\[]?[+-]?\d+([.]\d+)?\s*[,;/ x]\s*[+-]?\d+([.]\d+)?[)\]]?", "two numbers in a cell? write each into a column of its own"),
    (r"\[[-+\d.eE, ]+\]", "lists of numbers? write each number into a column of its own"),
    (r"\d{4}[- /]?Q[1-4]|Q[1-4][- /]?\d{4}", "quarters? write the first day of each, as 2026-04-01"),
    (r"[<>~\u2264\u2265]\s*\d.*", "numbers with a sign of bounds? write them as numbers"),
    (rf"({_DAY})(\D.*)?|\d{{1,2}}[. ]+[^\W\d]{{3,}}[. ]+\d{{2,4}}.*",
     "dates of several forms? write all as 2026-11-25"),
    (r"v?\d+\.\d+\.\d+\S*", "versions? write their parts into columns of their own"),
    (r"\+?[\d() /.-]{9,20}", "numbers of telephones, or codes?"),
)  # fmt: skip


def what_texts_are(words: Sequence[str]) -> str:
    """Return what to say of texts that differ in nearly every row.

    >>> what_texts_are(["3:19:52", "0:10:00"]), what_texts_are(["a81", "b7"])
    ('times? write them as numbers, such as minutes', 'an id?')
    """
    tried = words[:TRIED]
    most = (what for form, what in _FORMS if 2 * sum(re.fullmatch(form, word) is not None for word in tried) > len(tried))
    return next(most, "an id?")
