"""Messages and sums between processes: in the order of ranks, the same bits for all, and no wait for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.collectives import mpi
from pe_cli.collectives.mpi import load_mpi
from pe_cli.core.errors import ExitCode, PeError
from tests.mpi_support import ENVIRONMENT, finished, mpiexec, needs_mpi

BEGIN = """
import os, sys, time
import numpy as np
from pe_cli.collectives.mpi import MpiPeers
from pe_cli.collectives.protocol import Failure
from pe_cli.core.errors import ExitCode, PeError
peers = MpiPeers(TIMEOUT)
rank = peers.rank
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole lines, whoever else writes
"""


def processes(tmp_path: Path, count: int, text: str, *, timeout: float = 30.0):
    program = tmp_path / "program.py"
    program.write_text(BEGIN.replace("TIMEOUT", str(timeout)) + text)
    code, out, err = finished(mpiexec(count, program))
    return code, sorted(out.splitlines()), err


@needs_mpi
def test_sums_are_taken_in_the_order_of_the_tree_whoever_comes_first(tmp_path: Path) -> None:
    """(1e8 - 1e8) + 1 = 1, but 1e8 + (1 - 1e8) = 0 in float32; arrays shorter than the processes have empty parts."""
    code, out, err = processes(
        tmp_path,
        3,
        """
peers.reserve(1 << 20)
for size in (0, 1, 2, 3, 7, 100_000):
    for last in range(3):
        values = np.full(size, [1e8, -1e8, 1][rank], np.float32)
        time.sleep(0.02 * (rank == last))
        job = peers.begin(values, 40_000)
        small = peers.begin(wide := np.arange(10, dtype=np.float64) * 10 ** rank, 10)
        small.wait()
        assert (values == 1).all(), (size, last, values)
        assert job.wait() is None
say(rank, wide[3], wide[9], peers.total(np.full(2, [1e8, -1e8, 1][rank], np.float32)))
peers.close()
""",
    )
    assert code == 0, err
    assert out == [f"{rank} 333.0 999.0 [1. 1.]" for rank in range(3)]


@needs_mpi
def test_everyone_gets_everyones_message(tmp_path: Path) -> None:
    code, out, err = processes(
        tmp_path,
        3,
        """
found = peers.gather(bytes([65 + rank]) * (0, 2, 300_000)[rank])
say(rank, [(m[:1].decode(), len(m)) for m in found])
peers.close()
""",
    )
    assert code == 0, err
    assert out == [f"{r} [('', 0), ('B', 2), ('C', 300000)]" for r in range(3)]


@needs_mpi
def test_processes_are_numbered_machine_by_machine(tmp_path: Path) -> None:
    """Four on two machines in turn, as some launchers place them; messages and sums then go by the new numbers."""
    code, out, err = processes(
        tmp_path,
        4,
        """
import socket
given = peers.rank
socket.gethostname = lambda: "ab"[given % 2]
peers.close = lambda: None
peers._lane.end()
peers = MpiPeers(30.0, by_machine=True)
values = np.full(5, [1e8, -1e8, 1, 1][peers.rank], np.float32)
peers.reserve(20)
peers.begin(values, 5).wait()
say(given, peers.rank, [m.decode() for m in peers.gather(str(given).encode())], values[0])
peers.close()
""",
    )
    assert code == 0, err
    assert out == [f"{given} {rank} ['0', '2', '1', '3'] 2.0" for given, rank in enumerate((0, 2, 1, 3))]


@needs_mpi
def test_who_does_not_answer_is_named(tmp_path: Path) -> None:
    """The first of three waits for the second, which stands still, and the third for the first: it hears from that why."""
    _, out, err = processes(
        tmp_path,
        3,
        """
import signal
from pathlib import Path
here = Path(__file__).parent
peers.doing, peers.advice = "at step 7", "do this"
ids = [int(m) for m in peers.gather(str(os.getpid()).encode())]
peers.gather(b"all have the ids")
if rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
begin = time.monotonic()
try:
    peers.gather(b"here")
except PeError as error:
    say(rank, 2.5 * (rank == 0) <= time.monotonic() - begin < 30, int(error.code), error.hint, error.message)
    peers.fail(Failure.of(error))
    (here / f"said.{rank}").touch()
    while len(list(here.glob("said.*"))) < 2:
        time.sleep(0.01)
    if rank == 0:
        os.kill(ids[1], signal.SIGKILL)  # the launcher ends all
    time.sleep(30)
""",
        timeout=2.5,  # what a loaded machine keeps a process from its signs of life
    )
    said = "process 1 of 3 did not answer for 2.5 seconds, at step 7; this is process 0"
    assert [line for line in out if " True " in line] == [
        f"0 True 6 do this {said}",
        f"2 True 6 None process 0 has ended: {said}",
    ], err


@needs_mpi
def test_who_is_slow_is_waited_for(tmp_path: Path) -> None:
    code, out, err = processes(
        tmp_path,
        3,
        """
if rank == 1:
    time.sleep(8)
say(rank, peers.gather(b"x"))
peers.close()
""",
        timeout=4.0,
    )
    assert code == 0, err
    assert out == [f"{rank} [b'x', b'x', b'x']" for rank in range(3)]


@needs_mpi
def test_who_ends_with_an_error_tells_the_others(tmp_path: Path) -> None:
    code, out, err = processes(
        tmp_path,
        2,
        """
if rank == 1:
    say(rank, "tells")
    peers.fail(Failure("no such file: a.npz", ExitCode.DATA))
    time.sleep(60)  # the launcher ends it as soon as the other has ended; an end before that would end the other
    os._exit(3)
try:
    peers.gather(b"here")
except PeError as error:
    say(rank, error.message, int(error.code), peers.failures() == {1: error.told}, error.told.met)
    os._exit(error.code)
""",
    )
    assert code == 3, err
    assert out == ["0 process 1 has ended: no such file: a.npz 3 True True", "1 tells"]


def test_without_mpi4py_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(PeError, match="needs the package mpi4py, which is not installed") as caught:
        load_mpi()
    assert caught.value.code == ExitCode.USAGE
    assert "pip install mpi4py mpich" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("local", "number", "fits"),
    [("2", "0", True), ("3", "0", False), ("", "", True), ("many", "0", True), ("3", "1", True)],  # the first decides for all
)
def test_too_little_shared_memory_is_told_before_mpi_dies_of_it(
    monkeypatch: pytest.MonkeyPatch, local: str, number: str, fits: bool
) -> None:
    ended: list[object] = []
    class Facts:
        f_bavail, f_frsize = (32 << 20) // 4096, 4096

    monkeypatch.setenv("MPI_LOCALNRANKS", local)
    monkeypatch.setenv("MPI_LOCALRANKID", number)
    monkeypatch.setattr(mpi.atexit, "register", lambda *of: ended.append(of))
    monkeypatch.setattr(mpi.os, "statvfs", lambda path: Facts)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(PeError) as caught:
        load_mpi()
    assert (caught.value.code == ExitCode.USAGE) is fits  # what comes after the look at the memory
    assert ended == [] if fits else [(mpi.hydra.abort, ExitCode.DEVICE)]
    if not fits:
        assert caught.value.code == ExitCode.DEVICE
        assert str(caught.value).startswith("error: MPI needs about 36 MiB in /dev/shm for 3 processes, and 32 MiB are free")
        assert "--shm-size" in str(caught.value.hint)


def test_mpi_is_loaded_only_where_it_is_asked_for() -> None:
    text = "import sys, pe_cli.session.training.loop; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], env=ENVIRONMENT, timeout=60).returncode == 0
