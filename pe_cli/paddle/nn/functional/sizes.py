"""Sizes as 2.x writes them: one number, or one for every axis."""

from __future__ import annotations

from typing import Any


def two(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else [int(v) for v in value]


def flat(value: Any) -> Any:
    """Return a number of a row as that of an image of height 1, or text as it is."""
    if isinstance(value, str):
        return value
    return int(value) if isinstance(value, int) else int(value[0])
