"""The programs that layer functions and initialisers append to, a pair for each context."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from pe_cli.program.ir import Program

# Context variables, so that programs that are built in two threads or coroutines do not mix.
_MAIN: contextvars.ContextVar[Program | None] = contextvars.ContextVar("main_program", default=None)
_STARTUP: contextvars.ContextVar[Program | None] = contextvars.ContextVar("startup_program", default=None)


def default_main_program() -> Program:
    """Return the program that layer functions append to."""
    found = _MAIN.get()
    if found is None:
        found = Program("main")
        _MAIN.set(found)
    return found


def default_startup_program() -> Program:
    """Return the program that initialisers append to."""
    found = _STARTUP.get()
    if found is None:
        found = Program("startup")
        _STARTUP.set(found)
    return found


@contextlib.contextmanager
def program_guard(main: Program, startup: Program | None = None) -> Iterator[None]:
    """Make these the default programs inside."""
    token = _MAIN.set(main)
    second = _STARTUP.set(startup) if startup is not None else None
    try:
        yield
    finally:
        _MAIN.reset(token)
        if second is not None:
            _STARTUP.reset(second)
