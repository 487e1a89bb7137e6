"""Processes that compile: they wait for more, and what one of them does not give is made here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pe_cli.kernels import cache, workers
from pe_cli.kernels.cache import Instance
from pe_cli.kernels.workers import CHILDREN, compile_all, load


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache and children of this test's own."""
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    CHILDREN.end()
    yield
    CHILDREN.end()


def instances(*names: str) -> list[Instance]:
    return [Instance(load(f"pe_cli.ops.{name}")) for name in names]


def waiting() -> list[int]:
    return sorted(child.process.pid for child in CHILDREN._idle)


def test_a_child_waits_for_more_and_stores_what_it_makes(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    (first,) = instances("assign:copy")
    made = compile_all([first], lambda *said: told.append(said))
    assert told == [(0, 1, "pe_cli.ops.assign:copy")]
    assert list(made) == [first.key]
    pids = waiting()
    assert len(pids) == 1
    (second,) = instances("fill:fill")
    again = compile_all([second])
    assert waiting() == pids
    assert {path.stem for path in tmp_path.iterdir()} == {*made, *again}


def test_another_environment_gets_another_child(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(instances("assign:copy"))
    pids = waiting()
    monkeypatch.setenv("PE_TEST_CHILDREN", "1")
    compile_all(instances("fill:fill"))
    assert len(waiting()) == 1
    assert waiting() != pids


def test_a_child_that_died_meanwhile_is_replaced() -> None:
    compile_all(instances("assign:copy"))
    (child,) = CHILDREN._idle
    child.process.kill()
    child.process.wait()
    (found,) = instances("fill:fill")
    assert compile_all([found])[found.key]
    assert waiting() != [child.process.pid]


def test_what_no_child_makes_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no further process may be started, and as where one dies at work."""
    (found,) = instances("assign:copy")

    def none() -> workers._Child:
        raise OSError("no more processes")

    with monkeypatch.context() as patch:
        patch.setattr(CHILDREN, "take", none)
        assert compile_all([found])[found.key]
    monkeypatch.setattr(workers._Child, "compile", lambda *_: b"")
    assert compile_all([found])[found.key]
    assert waiting() == []
