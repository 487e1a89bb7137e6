"""Structures of lists in which functions of scripts give and take variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def flat(value: Any) -> list[Any]:
    """Return what a structure holds, in order."""
    return [v for part in value for v in flat(part)] if isinstance(value, (list, tuple)) else [value]


def like(structure: Any, values: Iterator[Any]) -> Any:
    """Return values in the structure of others; None stays."""
    if isinstance(structure, (list, tuple)):
        return [like(part, values) for part in structure]
    return None if structure is None else next(values)
