"""Errors of the original's types that still say where, what and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pe_cli.core.errors import PeError


class FluidValueError(PeError, ValueError):
    """A value that does not fit."""


class FluidTypeError(PeError, TypeError):
    """A value of the wrong type."""


class EnforceNotMet(PeError, RuntimeError):
    """What the original raises when a step fails."""


class NotThereYet(PeError, NotImplementedError):
    """A wish that the core cannot act on yet."""


@contextmanager
def raised_as(kind: type[PeError]) -> Iterator[None]:
    """Let errors of the core leave as one of the original's types."""
    try:
        yield
    except PeError as error:
        if isinstance(error, (FluidValueError, FluidTypeError, EnforceNotMet, NotThereYet)):
            raise
        made = kind(error.message, at=error.at, hint=error.hint, notes=error.notes, code=error.code)
        raise made from None
