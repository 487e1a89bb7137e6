"""Kernels for CUDA that are compiled on all cores, in copies of this process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from pe_cli.kernels.cuda import worker_processes
from pe_cli.kernels.cuda.compiler import is_kept
from pe_cli.kernels.cuda.language import Built, build, cuda_kernel
from pe_cli.kernels.language import Int, Ptr, T
from tests.cuda.ptx.device import needs_compiler

TEXT = "def {name}(x: Ptr, out: Ptr, n: Int):\n    for i in range(n):\n        out[i] = x[i] + T({number})\n"


def kernels(count: int) -> list[Built]:
    made = []
    for number in range(count):
        text, space = TEXT.format(name=f"more_{number}", number=number), {"Ptr": Ptr, "Int": Int, "T": T, "__name__": __name__}
        exec(text, space)
        made.append(build(cuda_kernel(space[f"more_{number}"], text=text, name=f"{__name__}:more_{number}"), "float32", "float32"))
    return made


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs_compiler()
    monkeypatch.setattr("pe_cli.kernels.compiler.cache.folder", lambda: tmp_path)


@pytest.mark.usefixtures("cold")
def test_copies_compile_what_is_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    wanted, told, before = kernels(5), [], children()
    worker_processes.compile_ahead(wanted, (9, 0), lambda *said: told.append(said))
    assert all(is_kept(built, (9, 0)) for built in wanted)
    assert {count for _, count, _ in told} == {5}
    assert children() <= before


def children() -> set[int]:
    """Return the numbers of the processes that this one has begun and not waited for."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # one that has ended meanwhile
            status = (folder / "stat").read_text().rpartition(")")[2].split()
            found |= {int(folder.name)} if int(status[1]) == os.getpid() else set()
    return found


@pytest.mark.usefixtures("cold")
def test_a_copy_that_fails_leaves_its_kernels_to_the_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    here, real = os.getpid(), worker_processes.cubin

    def failing(built: Built, capability: tuple[int, int]) -> object:
        if os.getpid() != here:
            raise MemoryError
        return real(built, capability)

    monkeypatch.setattr(worker_processes, "cubin", failing)
    wanted = kernels(4)
    worker_processes.compile_ahead(wanted, (9, 0))
    assert [is_kept(built, (9, 0)) for built in wanted] == [True, False, False, False]
