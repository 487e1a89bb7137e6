"""Training in several processes of which one is killed, at any instant: what has its final name is whole, and it goes on exactly.

Two instants of two processes in every run, one of them another each day. `PE_KILLS=60` tries so many of two and of three:
half of them at calls of the first process that change the disk, half at any time of any process. `PE_KILLS=1500` tries every call: 714.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode
from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.rotation import on_its_day, part_of_today
from tests.session.conftest import Bench
from tests.session.kill_while_training import finals

pytestmark = needs_mpi
PROGRAM = Path(__file__).with_name("killed_process.py")
#: How many instants are tried for each number of processes.
INSTANTS = int(os.environ.get("PE_KILLS", "0"))
SEED = int(os.environ.get("PE_KILLS_SEED", "34"))
#: Every kind of file, moments, averages and draws; enough steps that most of the time is training.
CHANGES = (
    ("epochs: 3", "epochs: 4\n  accumulate: 2\n  ema: {decay: 0.9}"),
    ("checkpoint: {every: 2 steps, keep: 2,", "checkpoint: {every: 3 steps, keep: 2,"),
)


def start(bench: Bench, where: str, processes: int, rank: int, how: str, when: object, *arguments: object) -> tuple[int, str]:
    """Train in several processes of which one is killed; return the launcher's exit code and all that was said."""
    line = ["train", bench.base / "run.yaml", "--quiet", "-o", "executor.processes=auto", "-o", f"output.dir={bench.base / where}"]
    # Those that are to notice a loss do so soon; the others wait, on machines with other work, for processes that start.
    patience = 5 if how in ("call", "time") else 60
    started = mpiexec(processes, PROGRAM, rank, how, when, *line, "-o", f"executor.peer_timeout={patience}", *arguments)
    code, out, err = finished(started)
    return code, out + err


def instants(processes: int, calls: int, seconds: float) -> list[tuple[int, str, float]]:
    """Return (rank, how, when) of kills: at calls of the first process that are spread over all, and by chance at any time."""
    chance = random.Random(SEED + processes)
    of_calls = min(calls, (INSTANTS + 1) // 2)
    at = [(0, "call", 1 + (calls - 1) * i // max(1, of_calls - 1)) for i in range(of_calls)]
    if not INSTANTS:
        at = [(0, "call", 1 + calls * part_of_today(8) // 8)]
    by_time = range((INSTANTS or 2) - len(at))
    return at + [(chance.randrange(processes), "time", round(chance.uniform(0.05, 0.95) * seconds, 4)) for _ in by_time]


@on_its_day(1, of=3)
@pytest.mark.parametrize("processes", [2, *[3] * bool(INSTANTS)], ids="{} processes".format)
def test_one_process_is_killed_and_all_go_on_bit_for_bit(bench: Bench, processes: int) -> None:
    config = bench.base / "run.yaml"
    text = config.read_text()
    for before, after in CHANGES:
        assert before in text
        text = text.replace(before, after)
    config.write_text(text)
    counted = bench.base / "counted"
    code, said = start(bench, "whole", processes, 0, "count", counted)
    assert code == 0, said
    calls, seconds = json.loads(counted.read_text())
    (whole,) = (bench.base / "whole").iterdir()
    expected = bench.seen(whole)
    found: Counter[str] = Counter()
    for rank, how, when in instants(processes, calls, seconds):
        trial = f"process {rank} of {processes} killed at {how} {when} of {calls} calls and {seconds} seconds"
        into = bench.base / "killed"
        code, said = start(bench, "killed", processes, rank, how, when)
        found["killed" if code else "ended"] += 1
        assert "Traceback" not in said, (trial, said)
        assert "bug of pe" not in said, (trial, said)
        assert finals(into) == [] if into.exists() else True, trial
        code, said = start(bench, "killed", processes, -1, "none", 0, "--resume")
        assert code == ExitCode.DONE, (trial, said)
        last = max(into.glob("*/status.json"), key=lambda path: path.stat().st_mtime).parent
        assert bench.seen(last) == expected, trial
        shutil.rmtree(into)
    assert found["killed"] >= found["ended"], found  # a run that is faster than the one that was timed ends before an instant
