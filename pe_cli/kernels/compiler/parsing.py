"""Parses the source of kernels into syntax trees, by one thread at a time."""

from __future__ import annotations

import ast
import threading

#: Python 3.11 counts how deep its parser is for all threads together, and calls a difference an error.
_PARSING = threading.Lock()


def statements(text: str) -> list[ast.stmt]:
    """Return the statements of a text of ours."""
    with _PARSING:
        return ast.parse(text).body


def expression(text: str) -> ast.expr:
    """Return a text of ours as one expression."""
    with _PARSING:
        return ast.parse(text, mode="eval").body
