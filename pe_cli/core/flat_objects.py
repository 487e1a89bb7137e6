"""Flattens objects in rows of JSON: a column for each value, whose name is the keys with dots between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Twice(ValueError):
    """Two values of a row have one name."""


def flattened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose objects are columns of their own; an empty object is none.

    Raises:
        Twice: a name stands there already.
        RecursionError: objects are nested too deeply.

    >>> flattened({"user": {"age": 49, "name": {"first": "y"}}, "tags": [1, 2]})
    {'user.age': 49, 'user.name.first': 'y', 'tags': [1, 2]}
    """
    if not any(isinstance(value, dict) for value in row.values()):
        return dict(row)
    found: dict[str, Any] = {}
    for key, value in row.items():
        # Rows of most tables are flat, so that only objects cost a second call.
        inner = {f"{key}.{name}": one for name, one in flattened(value).items()} if isinstance(value, dict) else {key: value}
        for name, one in inner.items():
            if name in found:
                raise Twice(name)
            found[name] = one
    return found
