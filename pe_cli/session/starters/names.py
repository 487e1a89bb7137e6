"""Names and texts of the user's data in files that we write: quoted where YAML needs it, and safe names for feeds and layers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(?<![.-])")
#: Plain texts that some reader of YAML takes for something else.
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
#: Characters of a name that is made for a feed, and of a text in a comment.
LONGEST, SHOWN = 40, 60


def quoted(text: str) -> str:
    r"""Return a text as a scalar of YAML: plain where that is safe, else between double quotes.

    >>> print(quoted("age"), quoted("no"), quoted("3"), quoted('a "b": c'), quoted("tab\there"))
    age "no" "3" "a \"b\": c" "tab\there"
    """
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escaped(c)) for c in text) + '"'


def _escaped(c: str) -> str:
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def flow(value: Any) -> str:
    """Return a value in one line of YAML.

    >>> print(flow({"type": "number", "clip": [0, 2.5], "of": "a b", "x": True}))
    {type: number, clip: [0, 2.5], of: "a b", x: true}
    """
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(str(key))}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return "null" if value is None else repr(value)


def said(text: object, most: int = SHOWN) -> str:
    r"""Return a text for a comment or a message: one line, not long.

    >>> said("two\nlines"), said("x" * 99, 8)
    ('two lines', 'xxxxx...')
    """
    line = "".join(c if c.isprintable() else " " for c in str(text))
    line = " ".join(line.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def safe(name: str, taken: Iterable[str], instead: str = "column") -> str:
    """Return a name for a feed or a layer: letters, digits and underscores of ASCII, and none that is taken.

    Args:
        name: of the user's.
        taken: names that are in use.
        instead: what stands for a name without a usable character.

    >>> safe("Größe (cm)", []), safe("loss", ["loss"]), safe("2nd", []), safe("年齢", []), safe("null", [])
    ('grosse_cm', 'loss_2', 'column_2nd', 'column', 'column_null')
    """
    folded = unicodedata.normalize("NFKD", name.replace("ß", "ss").replace("ẞ", "SS"))
    made = re.sub(r"[^A-Za-z0-9]+", "_", "".join(c for c in folded if not unicodedata.combining(c))).strip("_").lower()
    made = made[:LONGEST].rstrip("_")
    if not made:
        made = instead
    elif made[0].isdigit() or made in _WORDS:
        made = f"{instead}_{made}"
    used, found, number = set(taken), made, 2
    while found in used:
        found, number = f"{made}_{number}", number + 1
    return found
