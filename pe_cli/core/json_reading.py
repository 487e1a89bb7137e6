"""Reads JSON and nothing else: Python's parser also takes NaN, Infinity, numbers beyond all others, and halves of characters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any


def loads(text: str | bytes) -> Any:
    """Read JSON.

    Args:
        text: bytes are UTF-8, with or without a mark at their start.

    Raises:
        ValueError: it is no JSON; a number is NaN, infinite or larger than a number can be; half of a character stands for one; or it is
            nested too deeply.

    >>> loads('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> loads("1e999")
    Traceback (most recent call last):
    ValueError: 1e999 is larger than a number can be
    """
    whole = text.decode("utf-8-sig") if isinstance(text, bytes) else text
    value = parse(whole)
    # Half of a pair of surrogates is JSON, but no text that could be written again.
    if "\\u" in whole:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def parse(text: str) -> Any:
    """Read JSON as `loads` does, in no more memory than its values take: halves of characters are let through.

    Raises:
        ValueError: it is no JSON; a number is NaN, infinite or larger than a number can be; or it is nested too deeply.
    """
    try:
        return _decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def constant(text: str) -> Any:
    """Refuse NaN and the infinities.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{text} is no JSON value")


def finite(text: str) -> float:
    """Return a number with decimals or an exponent.

    Raises:
        ValueError: it is larger than a number can be.
    """
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:24]} is larger than a number can be")
    return found


_decode: Callable[[str], Any] = json.JSONDecoder(parse_constant=constant, parse_float=finite).decode
