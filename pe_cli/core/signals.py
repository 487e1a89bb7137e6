"""Turns signals into exceptions, so that what a command has begun is cleaned up before it ends."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def deaf() -> None:
    """Ignore SIGINT and SIGTERM from now on, for a process that ends when others do; only the main thread can say so."""
    if threading.current_thread() is threading.main_thread():
        # Both signals: a terminal sends one to the whole group, a scheduler the other.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def interruptible() -> None:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt from now on; only the main thread can say so."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, _first)


def interrupted() -> bool:
    """Whether a signal has come since `interruptible`: what was raised after it may be what a library made of the interruption."""
    return signal.getsignal(signal.SIGINT) is _later


def _first(number: int, frame: FrameType | None) -> None:
    # The handler changes, so that whoever catches an odd error of a library can ask whether it was the interruption.
    for each in SIGNALS:
        signal.signal(each, _later)
    _later(number, frame)


def _later(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back for the processes that are started inside; `pe_cli.__main__` takes them once it is there.

    Without it a signal would come while Python itself starts, and be lost or end it with a traceback. A program that does not ask for
    its signals never gets them, so that this is for `pe` alone.
    """
    # A process that is started inherits the blocked signals: it takes them when it can answer, and not while it imports.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def fatal() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the process without a handler: what runs inside holds the lock of Python, so that none could run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
