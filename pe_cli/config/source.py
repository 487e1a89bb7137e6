"""A text with a name, into which error messages point by line and column."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from pe_cli.core.errors import Span
from pe_cli.core.lazy_dataclass import dataclass

BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Source:
    """A text that places point into.

    Args:
        file: path as the user gave it, or what else to call the text.
        text: the YAML.
        before: what stands before it on its first line, for values of the command line.
    """

    file: str
    text: str
    before: str = ""
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        # what is shown on a terminal must not steer it
        shown = UNPRINTABLE.sub("\ufffd", self.before + self.text)
        object.__setattr__(self, "lines", BREAK.split(shown))

    def span(self, line: int, column: int, length: int = 1) -> Span:
        """Return a place from 0-based counts within the text."""
        text = self.lines[line] if line < len(self.lines) else ""
        shift = len(self.before) if line == 0 else 0
        return Span(self.file, line + 1, column + shift + 1, max(1, length), text)

    def between(self, start: Any, end: Any) -> Span:
        """Return the place between two marks of PyYAML; only its first line."""
        if start.line == end.line:
            return self.span(start.line, start.column, end.column - start.column)
        shift = len(self.before) if start.line == 0 else 0
        text = self.lines[start.line] if start.line < len(self.lines) else ""
        return self.span(start.line, start.column, len(text.rstrip()) - start.column - shift)
