"""Collects mistakes, so that one run of a command reports all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pe_cli.core.errors import PeError, Span, as_one

#: A mistake that a check finds: what is wrong, where, and what to do about it.
Mistake = tuple[str, Span | None, str | None]
#: Mistakes that are kept; a file that is all wrong does not need more.
MOST = 100


class TooLargeError(PeError):
    """Ends the reading of a file at once: what would come after it is without bounds."""


class Mistakes:
    """Errors in the order of their places; the same sentence at the same place is kept once.

    Attributes:
        errors: what was kept.
        total: how many there were, with those that say the same again.
    """

    def __init__(self) -> None:
        self.errors: list[PeError] = []
        self.total = 0
        self._seen: set[tuple[str, Span | None]] = set()

    def __bool__(self) -> bool:
        return bool(self.errors)

    def add(self, error: PeError) -> None:
        """Keep an error, or all of a `PeErrors`."""
        for inner in error.each:
            self.total += 1
            key = (inner.message, inner.at)
            if key not in self._seen and len(self.errors) < MOST:
                self._seen.add(key)
                self.errors.append(inner)

    def again(self) -> None:
        """Count a consequence of a mistake that was added already."""
        self.total += 1

    def say(
        self, message: str, at: Span | None, hint: str | None = None, notes: tuple[tuple[Span, str], ...] = ()
    ) -> None:
        """Keep an error made of these."""
        self.add(PeError(message, at=at, hint=hint, notes=notes))

    @contextlib.contextmanager
    def catch(self) -> Iterator[None]:
        """Keep a `PeError` that is raised inside, and go on after the block; a `TooLargeError` goes through."""
        try:
            yield
        except TooLargeError:
            raise
        except PeError as error:
            self.add(error)

    @contextlib.contextmanager
    def catch_all(self) -> Iterator[None]:
        """Keep any `PeError` that is raised inside, where nothing more is read after the block."""
        try:
            yield
        except PeError as error:
            self.add(error)

    def raise_all(self) -> None:
        """Raise what was kept, sorted by file and place; return when there was nothing.

        Raises:
            PeError: the only mistake, or a `PeErrors` with all.
        """
        if not self.errors:
            return
        files = list(dict.fromkeys(error.at.file for error in self.errors if error.at))
        ordered = sorted(
            self.errors, key=lambda e: (files.index(e.at.file), e.at.line, e.at.column) if e.at else (len(files), 0, 0)
        )
        raise as_one(ordered)
