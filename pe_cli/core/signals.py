"""Signals that end a command by an exception, so that what it has begun is put in order."""

from __future__ import annotations

import signal
import threading

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def deaf() -> None:
    """Ignore SIGINT and SIGTERM from now on, for a process that ends when others do; only the main thread can say so."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def interruptible() -> None:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt from now on; only the main thread can say so."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.default_int_handler)
