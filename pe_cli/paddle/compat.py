"""`paddle.compat`: helpers for scripts that ran on Python 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

long_type = int


def _converted(obj: Any, one: Callable[[Any], Any], inplace: bool) -> Any:
    """Convert a text, or those in a list, set or dict."""
    if isinstance(obj, dict):
        made: Any = {_converted(k, one, False): _converted(v, one, False) for k, v in obj.items()}
    elif isinstance(obj, (list, set)):
        made = type(obj)(_converted(v, one, False) for v in obj)
    else:
        return one(obj)
    if not inplace:
        return made
    obj.clear()
    (obj.extend if isinstance(obj, list) else obj.update)(made)
    return obj


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Return texts for bytes, also of those in a list, set or dict; everything else stays."""
    return _converted(obj, lambda v: v.decode(encoding) if isinstance(v, bytes) else v, inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Return bytes for texts, also for those in a list, set or dict; everything else stays."""
    return _converted(obj, lambda v: v.encode(encoding) if isinstance(v, str) else v, inplace)


def round(x: float, d: int = 0) -> float:
    """Round a number to d decimals, a half away from 0."""
    scale = 10.0**d
    if x > 0:
        return math.floor(x * scale + 0.5) / scale
    return math.ceil(x * scale - 0.5) / scale if x < 0 else 0.0


def floor_division(x: Any, y: Any) -> Any:
    """Divide and round down."""
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """Return the text of an exception."""
    return str(exc)


__all__ = ["floor_division", "get_exception_message", "long_type", "round", "to_bytes", "to_text"]
