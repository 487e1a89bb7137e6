"""Errors that one of several processes meets alone: all end with 6, it says what it was, and the run goes on as if undisturbed."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.rotation import of_today, on_its_day
from tests.session.conftest import Bench

pytestmark = needs_mpi

#: Runs pe, with the process between it and the launcher, and an error that the processes of a list meet: `RANKS WHAT arguments`.
PROGRAM = """
import itertools, os, signal, sys
from pe_cli.__main__ import _lost, main
from pe_cli.collectives.process_supervisor import supervise
supervise(_lost)
ranks, what = sys.argv.pop(1), sys.argv.pop(1)
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.reader_context import Origin
from pe_cli.session.training.step import Stepper
from pe_cli.session.processes.peer_group import PeerGroup
find, run, resources, steps = Origin.find, Stepper.run, PeerGroup.resources, itertools.count(1)
def no_memory(*arguments, **options):
    if next(steps) == 5:
        raise MemoryError
    return run(*arguments, **options)
def still(*arguments, **options):
    if next(steps) == 5:
        os.kill(os.getpid(), signal.SIGSTOP)
    return run(*arguments, **options)
def no_device(*arguments):
    raise PeError("place: cuda, but no GPU is visible", code=ExitCode.DEVICE)
if os.environ["PMI_RANK"] in ranks:
    if what == "memory":
        Stepper.run = no_memory
    if what == "memory and a process that stands still":
        Stepper.run = no_memory if os.environ["PMI_RANK"] == "1" else still
    if what == "device":
        PeerGroup.resources = no_device
    if what == "file":
        Origin.find = lambda self, name: find(self, "nosuch.npz")
main()
"""

#: Processes, what they meet, the exit code of all, and what is said.
MET = [
    pytest.param("1", "memory", ExitCode.PEER_LOST, "error: process 1 of 3: out of memory", id="memory"),
    pytest.param("12", "memory", ExitCode.PEER_LOST, "error: process 1 of 3: out of memory", id="memory of two"),
    pytest.param("2", "file", ExitCode.PEER_LOST, ": error: process 2 of 3: no such file: ", id="a file"),
    pytest.param("012", "file", ExitCode.DATA, ": error: no such file: ", id="a file that none has"),
    pytest.param("0", "device", ExitCode.PEER_LOST, "error: process 0 of 3: place: cuda, but no GPU is visible", id="a device"),
    pytest.param("012", "device", ExitCode.DEVICE, "error: place: cuda, but no GPU is visible", id="a device that none has"),
]


def start(bench: Bench, where: Path, *arguments: object, ranks: str = "", what: str = "", processes: int = 3) -> subprocess.Popen[str]:
    program = bench.base / "program.py"
    program.write_text(PROGRAM)
    line = ["train", bench.base / "run.yaml", "--quiet", "-o", "executor.processes=auto", "-o", "executor.peer_timeout=5"]
    return mpiexec(processes, program, f"[{ranks}]", what, *line, "-o", f"output.dir={where}", *arguments)


@on_its_day(2, of=3)
def test_a_full_disk_ends_all_with_6_and_the_run_goes_on_bit_for_bit(bench: Bench, disk: Path) -> None:
    code, _, err = finished(start(bench, bench.base / "whole", processes=2))
    assert code == ExitCode.DONE, err
    (whole,) = (bench.base / "whole").iterdir()
    begun = time.monotonic()
    (disk / "others").write_bytes(bytes(150 << 10))
    code, _, err = finished(start(bench, disk, processes=2))
    assert code == ExitCode.PEER_LOST, err
    assert time.monotonic() - begun < 5 + 10 + 10, "the timeout, ten seconds, and what the start takes"
    (run,) = (path for path in disk.iterdir() if path.is_dir())
    said = f"process 0 of 2: cannot write {run}"
    assert err.count("error: ") == err.count(f"error: {said}") == 1, err
    assert "no space left on device" in err
    assert f"mpiexec -n 2 pe train --resume {run} goes on from the last checkpoint" in err
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], "no space left on device" in status["error"]) == ("failed", True)
    assert checkpoint.steps(run / "checkpoints")
    (disk / "others").unlink()
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    code, _, err = finished(start(bench, disk, "--resume", processes=2))
    assert code == ExitCode.DONE, err
    assert bench.seen(run) == bench.seen(whole)


@pytest.mark.parametrize(("ranks", "what", "code", "said"), of_today(MET, 3))
def test_what_one_process_meets_alone_ends_all_with_6_and_what_all_meet_with_its_own_code(
    bench: Bench, ranks: str, what: str, code: ExitCode, said: str
) -> None:
    into = bench.base / "into"
    found, _, err = finished(start(bench, into, ranks=ranks, what=what), 60)
    assert found == code, err
    assert err.count("error: ") == err.count(said) == 1, err
    assert "bug of pe" not in err
    for path in into.glob("*/status.json"):
        status = json.loads(path.read_text())
        assert status["state"] == "failed"
        assert status["error"] in {f"process {rank} has ended: out of memory" for rank in ranks}, "of two the first that was heard"
    assert (what == "memory") is into.exists()


def test_who_stands_still_meanwhile_holds_nobody_up(bench: Bench) -> None:
    begun = time.monotonic()
    found, _, err = finished(start(bench, bench.base / "into", ranks="12", what="memory and a process that stands still"), 60)
    assert found == ExitCode.PEER_LOST, err
    assert time.monotonic() - begun < 5 + 10 + 10, "the timeout, ten seconds, and what the start takes"
    assert err.count("error: process 1 of 3: out of memory") == 1, err
