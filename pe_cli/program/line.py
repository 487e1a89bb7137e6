"""Tokens of the lines in which programs and graphs are written."""

from __future__ import annotations

import re
from typing import Any

from pe_cli.core.errors import PeError, Span
from pe_cli.program.json_values import read_json

# One expression for all tokens: where it does not match, nothing else could be meant.
_TOKEN = re.compile(r'\s*(?:(->)|([\w.@/+-]+)|("(?:[^"\\]|\\.)*")|([(){}\[\]=:,]))')
#: Digits of a size, a seed or a number of a block: what int64 holds.
_DIGITS = 19


class Line:
    """Tokens of one line of a program's or a graph's text.

    Args:
        file: name for errors.
        row: number of the line, from 1.
        text: the line.
    """

    def __init__(self, file: str, row: int, text: str) -> None:
        self.file, self.row, self.text = file, row, text
        self.at = 0
        self.start = 0

    def span(self) -> Span:
        """Return the place of the last token."""
        return Span(self.file, self.row, self.start + 1, max(1, self.at - self.start), self.text)

    def error(self, message: str, hint: str | None = None) -> PeError:
        """Return an error at the last token."""
        return PeError(message, at=self.span(), hint=hint)

    def done(self) -> bool:
        """Return whether nothing but blanks is left."""
        return not self.text[self.at :].strip()

    def end(self) -> None:
        """Raise unless the line is used up.

        Raises:
            PeError: something is left; with its place.
        """
        if not self.done():
            raise self.error(f"unexpected '{self._next()[0]}'")

    def _next(self) -> tuple[str, bool]:
        found = _TOKEN.match(self.text, self.at)
        if not found:
            self.start, self.at = self.at, len(self.text)
            rest = self.text[self.start :].strip()
            raise self.error(f"cannot read '{rest[:40]}'" if rest else "the line ends too early")
        self.start, self.at = found.start(found.lastindex or 0), found.end()
        token = found.group(found.lastindex or 0)
        if found.group(3) is None:
            return token, found.group(2) is not None
        try:
            return str(read_json(token)[0]), True
        except ValueError as error:
            raise self.error(f"bad string: {error}") from None

    def peek(self) -> str:
        """Return the next token without taking it; empty at the end, a quote for a string."""
        found = _TOKEN.match(self.text, self.at)
        if not found:
            return ""
        # A string may look like a keyword, so that a peek says only that it is one.
        return '"' if found.group(3) else str(found.group(found.lastindex or 0))

    def word(self) -> str:
        """Take a name or a string.

        Raises:
            PeError: the next token is none; with its place.
        """
        token, is_word = self._next()
        if not is_word:
            raise self.error(f"expected a name, got '{token}'")
        return token

    def expect(self, wanted: str) -> None:
        """Take exactly this token.

        Raises:
            PeError: the next token is another; with its place.
        """
        token, _ = self._next()
        if token != wanted:
            raise self.error(f"expected '{wanted}', got '{token}'")

    def number(self, word: str) -> int:
        """Return a size.

        Raises:
            PeError: it is no number that fits into 64 bits; with its place.
        """
        if not word.isascii() or not word.isdigit():
            raise self.error(f"expected a number, got '{word:.40}'")
        if len(word) > _DIGITS:
            raise self.error(f"a number has at most {_DIGITS} digits, and {word:.10}... has {len(word)}")
        return int(word)

    def integer(self) -> int:
        """Take a number."""
        return self.number(self.word())

    def names(self, end: str) -> list[str]:
        """Take names with commas between them, up to a token that stays."""
        found: list[str] = []
        while self.peek() not in (end, ""):
            if found:
                self.expect(",")
            found.append(self.word())
        return found

    def json(self) -> dict[str, Any]:
        """Take a JSON object.

        Raises:
            PeError: what follows is no JSON object; with its place.
        """
        # Blanks are skipped here, because the decoder wants its value at the given place.
        begin = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
        self.start = begin
        try:
            value, self.at = read_json(self.text, begin)
        except ValueError as error:
            raise self.error(f"bad attributes: {error}", 'write {"name": value}') from None
        if not isinstance(value, dict):
            raise self.error("attributes must stand in {}")
        return value
