"""Kinds of characters, and their lower case, as tables that kernels read."""

from __future__ import annotations

import functools
import unicodedata

import numpy as np
from numpy.typing import NDArray

from pe_cli.kernels.text.tokens import BLANK, DIGIT, KIND_BITS, LETTER, LIMIT, MARK, NUMBER, OTHER

_KINDS = {
    **dict.fromkeys(("Lu", "Ll", "Lt", "Lm", "Lo"), LETTER),
    **dict.fromkeys(("Mn", "Mc", "Me", "Pc"), MARK),
    **dict.fromkeys(("Nd", "Nl"), DIGIT),
    "No": NUMBER,
}
#: Unicode's White_Space.
BLANKS = (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
#: Code points from here on have no case.
CASED = 0x20000
#: Characters that join others to one word.
JOINERS = (0x200C, 0x200D)


@functools.cache
def classes() -> NDArray[np.int32]:
    """Return kind and lower case of every code point below `LIMIT`, as `pe_cli.kernels.text.tokens` reads them.

    Characters are those of this Python's version of Unicode.
    """
    kinds = np.array([_KINDS.get(unicodedata.category(chr(c)), OTHER) for c in range(LIMIT)], np.int32)
    kinds[list(BLANKS)] = BLANK
    kinds[list(JOINERS)] = MARK
    lower = np.arange(LIMIT, dtype=np.int32)
    for c in range(CASED):
        small = chr(c).lower()
        # Letters that become several in lower case stay as they are: a table has one for each.
        if len(small) == 1:
            lower[c] = ord(small)
    return lower << KIND_BITS | kinds
