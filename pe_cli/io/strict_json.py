"""JSON that every reader accepts: no NaN, no infinity, numbers of NumPy written as numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pe_cli.core import json_reading


def plain(value: object) -> object:
    """Return the same value made of what JSON has.

    NaN and the infinities become the strings "nan", "inf", "-inf": `float()` reads both forms back.

    Raises:
        TypeError: the value has no place in JSON.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no place in JSON")


def dumps(value: object, *, indent: int | None = None) -> str:
    """Return strict JSON, one line unless indent (spaces) is given.

    Raises:
        TypeError: a value has no place in JSON.
    """
    found = plain(value)
    return _line(found) if indent is None else _indented(found, "\n", " " * indent)


#: One encoder for all: to make one takes as long as to write a line.
_line = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


def _indented(value: object, begin: str, step: str) -> str:
    """Return a value as `json.dumps(indent=...)` writes it, which leaves 30 objects in a cycle behind with each call.

    Args:
        value: of `plain`.
        begin: the line break and the blanks before its last line.
        step: blanks that its items have more.
    """
    inner = begin + step
    if value and isinstance(value, dict):
        rows = [f"{_line(key)}: {_indented(item, inner, step)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(rows)}{begin}}}"
    if value and isinstance(value, list):
        rows = [_indented(item, inner, step) for item in value]
        return f"[{inner}{f',{inner}'.join(rows)}{begin}]"
    return _line(value)


def loads(text: str | bytes) -> object:
    """Read strict JSON; see `pe_cli.core.json_reading`.

    Raises:
        ValueError: it isn't JSON, or it holds NaN or an infinity as a number, or it is nested too deeply.
    """
    found: object = json_reading.loads(text)
    return found
