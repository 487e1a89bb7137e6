"""Errors of PaddlePaddle's types that also say where, what and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pe_cli.core.errors import PeError, WrongType

Made = TypeVar("Made", bound=type)


class FluidError(PeError):
    """Base: one line, because scripts print what they catch."""

    def __str__(self) -> str:
        text = self.message if self.at is None else f"{self.at}: {self.message}"
        return f"{text} (hint: {self.hint})" if self.hint else text


class FluidValueError(FluidError, ValueError):
    """A value that does not fit."""


class FluidTypeError(FluidError, TypeError):
    """A value of the wrong type."""


class EnforceNotMet(FluidError, RuntimeError):
    """What the original raises when a step fails."""


class NotThereYet(FluidError, NotImplementedError):
    """A wish that the core cannot act on yet."""


class NoSuchName(FluidError, AttributeError):
    """A name that a module does not have."""


@contextmanager
def raised_as(kind: type[PeError]) -> Iterator[None]:
    """Let errors of the core leave as one of the original's types.

    Raises:
        PeError: of the type that is named; a FluidTypeError for a value of the wrong type, unless a step fails by it.
    """
    try:
        yield
    except PeError as error:
        if isinstance(error, FluidError):
            raise
        wanted = FluidTypeError if isinstance(error, WrongType) and kind is not EnforceNotMet else kind
        made = wanted(error.message, at=error.at, hint=error.hint, notes=error.notes, code=error.code)
        raise made from error.__cause__


def raising(made: Made) -> Made:
    """Let errors of the core leave a class's `__init__` and `__call__` as ValueErrors, or as TypeErrors; a decorator."""
    for name in ("__init__", "__call__"):
        if name == "__init__" or any(name in base.__dict__ for base in made.__mro__):
            setattr(made, name, raised_as(FluidValueError)(getattr(made, name)))
    return made
