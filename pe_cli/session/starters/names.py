"""Names for feeds and layers from the user's column names: short, valid and unique."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from pe_cli.core.yaml_inline import WORDS

#: Characters of a name that is made for a feed, and of a text in a comment.
LONGEST, SHOWN = 40, 60


def said(text: object, most: int = SHOWN) -> str:
    r"""Return a text for a comment or a message: one line, not long.

    >>> said("two\nlines"), said("x" * 99, 8)
    ('two lines', 'xxxxx...')
    """
    line = "".join(c if c.isprintable() else " " for c in str(text))
    line = " ".join(line.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def of_class(metric: str, name: str) -> str:
    """Return what a metric of one class is called; signs that names of metrics do not have become `_`.

    >>> of_class("recall", "ja/nein")
    'recall[ja_nein]'
    """
    written = re.sub(r"[^\w .@%+-]", "_", name)[:60]
    return f"{metric}[{written}]"


def safe(name: str, taken: Iterable[str], instead: str = "column") -> str:
    """Return a name for a feed or a layer: letters, digits and underscores of ASCII, and none that is taken.

    Args:
        name: of the user's.
        taken: names that are in use.
        instead: what stands for a name without a usable character.

    >>> safe("Größe (cm)", []), safe("loss", ["loss"]), safe("2nd", []), safe("年齢", []), safe("null", [])
    ('grosse_cm', 'loss_2', 'column_2nd', 'column', 'column_null')
    """
    # NFKD takes accents apart but does not decompose the sharp s, which would be lost.
    folded = unicodedata.normalize("NFKD", name.replace("ß", "ss").replace("ẞ", "SS"))
    made = re.sub(r"[^A-Za-z0-9]+", "_", "".join(c for c in folded if not unicodedata.combining(c))).strip("_").lower()
    made = made[:LONGEST].rstrip("_")
    if not made:
        made = instead
    elif made[0].isdigit() or made in WORDS:
        made = f"{instead}_{made}"
    used, found, number = set(taken), made, 2
    while found in used:
        found, number = f"{made}_{number}", number + 1
    return found
