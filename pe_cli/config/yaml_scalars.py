"""Plain scalars by the rules of YAML 1.2's core schema: 1e-3 is a number, yes and on are text, 0o17 is fifteen."""

from __future__ import annotations

import math
import re

from pe_cli.core.errors import PeError

Value = None | bool | int | float | str

_CONSTANTS: dict[str, Value] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: float(sign + word[1:]) for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_INTEGERS = ((re.compile(r"[-+]?[0-9]+"), 10), (re.compile(r"0o[0-7]+"), 8), (re.compile(r"0x[0-9a-fA-F]+"), 16))
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# more digits than any number of ours needs, and few enough to convert in no time
_MOST_DIGITS = 400


def resolve(text: str) -> Value:
    """Return what a plain (unquoted) scalar means.

    Args:
        text: as written, without surrounding blanks.

    Returns:
        None, a bool, an int, a float, or the text itself.

    Raises:
        PeError: a number that neither int64 nor float64 can hold.

    Source:
        YAML 1.2.2, section 10.3.2.

    >>> [resolve(text) for text in ("1e-3", "yes", "0o17", "~", "-.inf", "1_000")]
    [0.001, 'yes', 15, None, -inf, '1_000']
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    for pattern, base in _INTEGERS:
        if pattern.fullmatch(text):
            number = int(text, base) if len(text) <= _MOST_DIGITS else 2**63
            if -(2**63) <= number < 2**63:
                return number
            raise PeError(f"{shorten(text)} does not fit into 64 bits", hint="quote it if it is text")
    if not _FLOAT.fullmatch(text):
        return text
    found = float(text)
    if math.isinf(found):
        raise PeError(f"{shorten(text)} is more than a float64 can hold", hint="write .inf for infinity")
    return found


def shorten(text: str, most: int = 40) -> str:
    """Return text that fits into a message."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def show(value: object) -> str:
    """Return a value as a config would write it, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{shorten(value)}'"
    if isinstance(value, float):
        return write_float(value)
    if isinstance(value, (list, tuple)):
        return shorten(f"[{', '.join(show(v) for v in value)}]", 60) if len(value) <= 20 else f"a list of {len(value)}"
    return "a mapping" if isinstance(value, dict) else shorten(repr(value))


def write_float(value: float) -> str:
    """Return a float as YAML 1.2 writes it; reading gives the same float."""
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return repr(value)
