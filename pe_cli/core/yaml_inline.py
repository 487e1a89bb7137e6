"""Formats values as YAML on one line, and quotes text where YAML needs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(?<![.-])")
#: Plain texts that some reader of YAML takes for something else.
WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str) -> str:
    r"""Return a text as a scalar of YAML: plain where that is safe, else between double quotes.

    >>> print(quoted("age"), quoted("no"), quoted("3"), quoted('a "b": c'), quoted("tab\there"))
    age "no" "3" "a \"b\": c" "tab\there"
    """
    if _PLAIN.fullmatch(text) and text.lower() not in WORDS:
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
    # Before numbers: a bool is an int in Python.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(str(key))}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return "null" if value is None else repr(value)
