"""Patterns of names: `*` stands for any text, `?` for one character, `[ab]` for one of them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence

from pe_cli.core.errors import did_you_mean


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether a name fits one of some patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def nearest(pattern: str, known: Sequence[str]) -> str:
    """Return a hint for a pattern that no name fits: the closest name, or some of those that there are."""
    rest = f" and {len(known) - 8} more" if len(known) > 8 else ""
    return did_you_mean(pattern.replace("*", ""), known) or f"there are {', '.join(known[:8]) or 'none'}{rest}"


def renamed(name: str, pattern: str, target: str) -> str | None:
    """Return a name with what the `*` of a pattern stand for put into those of a target; None where it does not fit.

    >>> renamed("backbone/fc.w_0", "backbone/*", "encoder/*")
    'encoder/fc.w_0'
    """
    # Each star becomes a group, so that what it stood for can be put into the target in order.
    found = re.fullmatch("(.*)".join(map(re.escape, pattern.split("*"))), name)
    if found is None:
        return None
    first, *rest = target.split("*")
    return first + "".join(text + part for text, part in zip(found.groups(), rest, strict=False))
