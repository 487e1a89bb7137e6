"""Names of the original: what is there is an attribute; what is not is an AttributeError that says so."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pe_cli.core.errors import did_you_mean


@functools.cache
def known() -> frozenset[str]:
    """Return every name of the original's reference."""
    text = (Path(__file__).parent / "reference_names.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text))


def missing(module: str, there: Callable[[], Iterable[str]]) -> Callable[[str], Any]:
    """Return a module's `__getattr__`.

    Args:
        module: as users call it.
        there: the names that it has, for a hint.

    Raises:
        AttributeError: when called: the name is not there, with a hint where there is one.
    """

    def getattribute(name: str) -> Any:
        if name in known():
            raise AttributeError(f"{module}.{name} is a name of PaddlePaddle's reference that is not there yet")
        hint = did_you_mean(name, [n for n in there() if not n.startswith("_")])
        raise AttributeError(
            f"{module} has no '{name}'" + (f" (hint: {hint})" if hint and not name.startswith("_") else "")
        )

    return getattribute
