"""Structures of lists in which functions of scripts give and take variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def flat(value: Any) -> list[Any]:
    """Return the items of a structure, in order."""
    if isinstance(value, dict):
        return [v for key in sorted(value) for v in flat(value[key])]
    return [v for part in value for v in flat(part)] if isinstance(value, (list, tuple)) else [value]


def like(structure: Any, values: Iterator[Any]) -> Any:
    """Return values in the structure of others, named tuples by their type; None stays."""
    if isinstance(structure, dict):
        return {key: like(structure[key], values) for key in sorted(structure)}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(like(part, values) for part in structure))
    if isinstance(structure, (list, tuple)):
        return [like(part, values) for part in structure]
    return None if structure is None else next(values)


def mapped(change: Callable[..., Any], *structures: Any) -> Any:
    """Return what a function makes of the values of structures, in the structure of the first."""
    return like(structures[0], iter([change(*each) for each in zip(*map(flat, structures), strict=True)]))
