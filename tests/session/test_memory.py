"""A training holds on to nothing of its steps, checkpoints and epochs: counted in objects and blocks of memory, which are exact."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.rotation import of_today, on_its_day
from tests.session.conftest import Bench
from tests.session.test_soak import WAYS, line

__all__ = ["line"]

BEGIN, END = 400, 1200


def watched(line: Bench, *options: str) -> list[str]:
    """Return the arguments of a program that trains and counts; a process of its own holds nothing of other tests."""
    train = ["train", line.base / "run.yaml", "--quiet", "-o", "train.epochs=60", "-o", f"output.dir={line.base / 'runs'}", *options]
    return ["-m", "tests.session.memory_watch", *map(str, (line.base / "found", BEGIN, END, *train))]


def check(started: subprocess.Popen[str], line: Bench, ranks: int) -> None:
    """Nothing waits for the collector, no step adds a block of memory, and no thread is started anew."""
    code, _, err = finished(started)
    assert code == 0, err
    for rank in range(ranks):
        found = json.loads((line.base / f"found.{rank}").read_text())
        assert found, "the run was too short"
        assert found["garbage"] <= (END - BEGIN) // 10, found
        assert found["blocks"] <= 1.5, found
        assert found["threads"] <= 3, found


@pytest.mark.parametrize("options", of_today([pytest.param(options, id=name) for name, options in WAYS.items()], 3))
def test_steps_leave_nothing_behind(line: Bench, options: list[str]) -> None:
    pipe = subprocess.PIPE
    check(subprocess.Popen([sys.executable, *watched(line, *options)], stdout=pipe, stderr=pipe, text=True), line, 1)


@needs_mpi
@on_its_day(1, of=3)
def test_steps_of_two_processes_leave_nothing_behind(line: Bench) -> None:
    check(mpiexec(2, *watched(line, "-o", "distributed.mode=collective", *WAYS["checkpoints"])), line, 2)


@on_its_day(2, of=3)
def test_arrays_are_written_down_without_a_cycle() -> None:
    """`json.dumps(indent=...)` leaves 30 objects that only the collector frees."""
    import gc

    from pe_cli.io import strict_json

    value = {"a": [1, 2.5, {"b": [], "c": {}, 'd"\n': None}], "e": np.float32(1), "ü": [[True]], "f": float("nan")}
    for indent in (0, 1, 2):
        assert strict_json.dumps(value, indent=indent) == json.dumps(
            strict_json.plain(value), indent=indent, ensure_ascii=False, allow_nan=False
        )
    found = []
    for _ in range(5):  # threads of other tests may leave something, too
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                strict_json.dumps(value, indent=1)
            found.append(gc.collect())
        finally:
            gc.enable()
    assert min(found) < 100
