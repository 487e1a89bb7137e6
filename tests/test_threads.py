"""Threads that cannot begin."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pe_cli.core import threads
from pe_cli.core.threads import Thread

PACKAGE = Path(__file__).parents[1] / "pe_cli"


def test_a_thread_that_gets_no_memory_is_told_to_who_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "_bootstrap", lambda self: None)
    monkeypatch.setattr(threads, "SECONDS", 0.01)
    with pytest.raises(MemoryError):
        Thread(target=int, daemon=True).start()


def test_a_thread_runs_and_an_error_in_it_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    for target in (lambda: seen.append(1), lambda: 1 / 0):
        thread = Thread(target=target)
        thread.start()
        thread.join()
    assert seen == [1, ZeroDivisionError]


def test_every_thread_is_one_of_them() -> None:
    assert not [path for path in PACKAGE.rglob("*.py") if "threading.Thread(" in path.read_text(encoding="utf-8")]
