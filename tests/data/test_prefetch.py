"""The prefetch thread: order, failures, and that it always ends (the leak check is in conftest)."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import itertools
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import pe_cli
from pe_cli.data.prefetch import Prefetch


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_items_come_in_order_and_once(depth):
    assert list(Prefetch(iter(range(50)), depth)) == list(range(50))


def test_an_empty_source():
    assert list(Prefetch(iter(()), 2)) == []


def test_the_end_stays_the_end():
    items = Prefetch(iter([1]), 1)
    assert [next(items), next(items, None), next(items, None)] == [1, None, None]


def test_it_makes_only_as_many_items_ahead_as_asked():
    made, third = [], threading.Event()

    def source():
        for i in itertools.count():
            made.append(i)
            if i == 2:
                third.set()
            yield i

    with Prefetch(source(), 2):
        assert third.wait(5)
        # two are ready, the third is made and waits for room; a fourth would need a free place
        assert made == [0, 1, 2]


def failing(count, error):
    yield from range(count)
    raise error


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_failure_is_raised_after_the_items_before_it_and_once(count):
    items = Prefetch(failing(count, OSError("disk")), 2)
    assert list(itertools.islice(items, count)) == list(range(count))
    with pytest.raises(OSError, match="disk"):
        next(items)
    assert next(items, "end") == "end"


def test_a_stop_iteration_inside_the_source_is_no_silent_end():
    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        list(Prefetch(failing(1, StopIteration()), 2))


def endless():
    yield from itertools.count()


def test_breaking_out_of_the_loop_ends_the_thread():
    for item in Prefetch(endless(), 2):
        if item == 3:
            break


def test_an_exception_in_the_loop_ends_the_thread():
    def loop():
        for _ in Prefetch(endless(), 2):
            raise KeyError

    with pytest.raises(KeyError):
        loop()


def test_a_process_that_still_holds_one_ends():
    code = (
        "import itertools; from pe_cli.data.prefetch import Prefetch as P; items = P(itertools.count(), 2); next(items)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_dropping_it_unused_ends_the_thread():
    items = Prefetch(endless(), 2)
    del items
    gc.collect()


def test_closing_twice_and_reading_after_it():
    items = Prefetch(endless(), 2)
    assert next(items) == 0
    items.close()
    items.close()
    assert next(items, "end") == "end"


def test_a_failure_after_closing_is_nobodys():
    release = threading.Event()

    def source():
        yield 0
        release.wait(5)
        raise OSError("too late")

    items = Prefetch(source(), 1)
    assert next(items) == 0
    threading.Timer(0.05, release.set).start()
    with contextlib.closing(items):
        pass
    assert next(items, "end") == "end"


def test_the_source_is_closed_with_the_iterator():
    closed = threading.Event()

    def source():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    with Prefetch(source(), 1) as items:
        next(items)
    assert closed.is_set()


def finalized() -> list[type]:
    """Return every class of pe_cli with a finalizer of its own."""
    root = Path(pe_cli.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "def __del__" in text else ():
            if isinstance(node, ast.ClassDef) and any(getattr(inner, "name", "") == "__del__" for inner in node.body):
                module = importlib.import_module(".".join(path.relative_to(root.parent).with_suffix("").parts))
                found.append(getattr(module, node.name))
    return found


@pytest.mark.parametrize("kind", finalized())
def test_an_object_whose_constructor_has_failed_ends_without_a_word(kind: type) -> None:
    kind.__new__(kind).__del__()


def test_a_thread_that_cannot_be_started_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_start(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    unraised: list[object] = []
    monkeypatch.setattr("pe_cli.data.prefetch.Work", failing_start)
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    with pytest.raises(RuntimeError, match="start new thread"):
        Prefetch(iter(range(3)), 1)
    gc.collect()
    assert not unraised
