"""Children that compile: what they return, how long they wait, and what they refuse."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from pe_cli.kernels.compiler import worker_processes
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.worker_processes import load


@pytest.fixture
def waiting(monkeypatch):
    made = worker_processes._Waiting()
    monkeypatch.setattr(worker_processes, "_WAITING", made)
    yield made
    made.close()


def instance():
    return Instance(load("pe_cli.ops.define.copy_kernels:fill"), "float64")


def test_children_compile_all_and_are_taken_again(waiting):
    wanted = [instance(), Instance(load("pe_cli.ops.define.copy_kernels:copy"), "float64")]
    objects = {}
    worker_processes._in_children(wanted, 2, objects, None)
    assert {key: f"pe_{key}".encode() in body for key, body in objects.items()} == {i.key: True for i in wanted}
    assert waiting.count() == 2
    first = list(waiting._children)
    worker_processes._in_children(wanted, 1, {}, None)
    assert {id(child) for child in waiting._children} == {id(child) for child in first}


def test_children_end_when_nobody_wants_more(waiting, monkeypatch):
    monkeypatch.setattr(worker_processes, "PATIENCE", 0.01)
    (child,) = waiting.take(1)
    waiting.put([child])
    for _ in range(500):
        if not waiting.count() and child._process.poll() is not None:
            break
        time.sleep(0.01)
    assert child._process.returncode == 0


def test_children_start_early_where_no_kernel_is_kept(waiting, monkeypatch, tmp_path):
    monkeypatch.setattr(worker_processes.cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(worker_processes, "usable_cores", lambda: 2)
    (tmp_path / ".0123.unfinished").touch()
    worker_processes.start_early()
    assert waiting.count() == 2
    waiting.close()
    (tmp_path / f"{'0' * 32}.o").touch()
    worker_processes.start_early()
    assert not waiting.count()


def test_children_of_another_environment_are_not_taken(waiting, monkeypatch):
    (child,) = waiting.take(1)
    waiting.put([child])
    monkeypatch.setenv("PE_VECTOR_BYTES", "32")
    assert not waiting.count()
    (other,) = waiting.take(1)
    waiting.put([other])
    assert other is not child
    assert child._process.returncode == 0


def test_a_child_that_has_other_code_under_a_name_compiles_nothing(waiting):
    @dataclass(frozen=True)
    class Changed(Instance):
        @property
        def key(self):
            return "0" * 32

    (child,) = waiting.take(1)
    assert child.compile(Changed(instance().kernel, "float64")) == b""
    assert child.alive
    assert child.compile(instance())
    waiting.put([child])


def test_what_a_dead_child_was_to_do_is_done_here(waiting):
    (child,) = waiting.take(1)
    child._process.kill()
    child._process.wait()
    waiting.put([child])
    assert waiting.count() == 1, "nobody has noticed yet"
    objects = {}
    worker_processes._in_children([instance()], 1, objects, None)
    assert not objects
    assert not waiting.count()
    assert set(worker_processes.compile_all([instance()])) == {instance().key}
