"""The process between mpiexec, here the other end of a socket, and one that trains."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from pe_cli.collectives import hydra, process_supervisor
from pe_cli.core.errors import ExitCode


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch):
    """The launcher's end of the way to this process, which it calls the second of three."""
    ours, theirs = socket.socketpair()
    for name, value in {"PMI_FD": str(theirs.fileno()), "MPI_LOCALNRANKS": "3", "PMI_SIZE": "3", "PMI_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(process_supervisor.OVERSEER, raising=False)
    monkeypatch.setattr(hydra, "END", 0.0)
    monkeypatch.setattr(hydra, "DRAIN", 0.0)
    monkeypatch.setattr(process_supervisor, "MERCY", 0.0)
    monkeypatch.setattr(process_supervisor, "FIRST", 0.0)
    monkeypatch.setattr(process_supervisor, "OTHERS", 0.0)
    with ours, theirs:
        ours.settimeout(20)
        yield ours


def heard(launcher: socket.socket) -> str:
    launcher.setblocking(False)
    try:
        return launcher.recv(4096).decode()
    except BlockingIOError:
        return ""


def test_who_takes_leave_waits_until_the_launcher_has_heard_it(launcher: socket.socket) -> None:
    answer = threading.Thread(target=lambda: launcher.sendall(b"cmd=finalize_ack\n" * (launcher.recv(4096) == b"cmd=finalize\n")))
    answer.start()
    assert hydra.take_leave()
    answer.join()


def test_the_launcher_says_its_word_for_the_processes_that_it_has_started(launcher: socket.socket) -> None:
    """The question and the answer are those of MPICH 5.0's hydra."""
    answer = b"cmd=my_kvsname rc=0 kvsname=kvs_28634_0_947786114_vm\n"
    asked = threading.Thread(target=lambda: launcher.sendall(answer * (launcher.recv(4096) == b"cmd=get_my_kvsname\n")))
    asked.start()
    assert hydra.job() == "kvs_28634_0_947786114_vm"
    asked.join()


def test_other_launchers_are_told_nothing(launcher: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPI_LOCALNRANKS")  # Slurm has the descriptor, and speaks PMI 2
    assert not hydra.take_leave()
    assert not hydra.job()
    hydra.abort(6)
    process_supervisor.supervise(lambda folder, why: True)
    assert heard(launcher) == ""


def test_the_launcher_has_time_to_pass_on_what_was_said_before_it_is_told_to_end_all(launcher: socket.socket, monkeypatch) -> None:
    """Standing still meanwhile, as on a busy machine, MPICH's had lost the message in three of four trials."""
    monkeypatch.setattr(hydra, "DRAIN", 0.5)
    telling = threading.Thread(target=hydra.abort, args=(6,))
    telling.start()
    launcher.settimeout(0.25)
    with pytest.raises(TimeoutError):
        launcher.recv(4096)
    telling.join()
    assert heard(launcher) == "cmd=abort exitcode=6\n"


def written(folder, why: str) -> bool:
    folder.write_text(why)
    return True


def ended(work, lost=written, quiet: bool = True) -> int:
    """Return how a process ended that was overseen while it did some work, as `waitpid` tells it."""
    process = os.fork()
    if process == 0:
        if quiet:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        faulthandler.disable()  # it would tell of a signal of these tests as if it were an accident
        process_supervisor.supervise(lost)
        try:
            work()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def killed(number: int) -> None:
    os.kill(os.getpid(), number)


def ended_by_a_wish() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    killed(signal.SIGTERM)


BEGUN = (process_supervisor.BEGUN, 0.01)


@pytest.mark.parametrize(
    ("said", "work", "code", "told"),
    [
        pytest.param([BEGUN], lambda: killed(signal.SIGKILL), ExitCode.PEER_LOST, "cmd=abort exitcode=6\n", id="killed"),
        pytest.param([], lambda: killed(signal.SIGKILL), ExitCode.PEER_LOST, "cmd=abort exitcode=6\n", id="killed before MPI has begun"),
        pytest.param([], ended_by_a_wish, -signal.SIGTERM, "", id="asked to end before MPI has begun"),
        pytest.param([BEGUN, (process_supervisor.LEFT,)], lambda: os._exit(3), 3, "", id="an error that the others know of"),
        pytest.param([BEGUN], lambda: os._exit(130), 130, "cmd=abort exitcode=130\n", id="an end that the others do not know of"),
        pytest.param([], lambda: os._exit(2), 2, "", id="an error before MPI has begun"),
        pytest.param([BEGUN], lambda: os._exit(0), 0, "", id="done"),
    ],
)
def test_the_overseer_ends_as_what_it_oversees_and_tells_the_launcher_what_the_others_cannot_know(
    launcher: socket.socket, said, work, code: int, told: str
) -> None:
    def tells() -> None:
        for words in said:
            process_supervisor.tell(*words)
        work()

    assert ended(tells) == code
    assert heard(launcher) == told


def test_the_folder_of_a_run_is_told_why_it_has_failed(launcher: socket.socket, tmp_path) -> None:
    def tells() -> None:
        process_supervisor.tell(*BEGUN)
        process_supervisor.tell(process_supervisor.RUN, tmp_path / "a run")
        killed(signal.SIGSEGV)

    assert ended(tells) == ExitCode.PEER_LOST
    assert (tmp_path / "a run").read_text() == "process 1 of 3 was ended by signal 11"
    assert heard(launcher) == "cmd=abort exitcode=6\n"


def test_who_holds_the_folder_is_waited_for(launcher: socket.socket, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process lives on for a moment, and then is ended by MPI, too: that is not why the run has failed."""
    monkeypatch.setattr(process_supervisor, "AGAIN", 0.01)

    def tells() -> None:
        process_supervisor.tell(process_supervisor.BEGUN, 5)
        process_supervisor.tell(process_supervisor.RUN, tmp_path / "a run")
        killed(signal.SIGKILL)

    def lost(folder, why: str) -> bool | None:
        with (tmp_path / "trials").open("a") as trials:
            trials.write(".")
            written(folder, why)
            if trials.tell() == 3:
                os._exit(6)  # the rest is waiting for the others
        return None

    assert ended(tells, lost) == 6
    assert (tmp_path / "trials").read_text() == "..."


def parent_of(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        pytest.param([None, True], True, id="another holds the folder"),
        pytest.param([True], True, id="this one held it"),
        pytest.param([False], False, id="another one has said why already, and had the launcher end all"),
    ],
)
def test_where_the_overseer_is_killed_another_process_writes_why_and_has_the_launcher_end_all(
    launcher: socket.socket, tmp_path: Path, ends: list[bool | None], told: bool
) -> None:
    done, said, answers = tmp_path / "done", tmp_path / "said", iter(ends)

    def tells() -> None:
        process_supervisor.tell(*BEGUN)
        process_supervisor.tell(process_supervisor.RUN, said)
        os.kill(parent_of(os.getppid()), signal.SIGKILL)
        time.sleep(20)
        os._exit(0)

    def lost(folder: Path, text: str) -> bool | None:
        answer = next(answers)
        if answer:
            folder.write_text(text)
        if answer is not None:
            done.touch()
        return answer

    assert ended(tells, lost) == -signal.SIGKILL
    until = time.monotonic() + 20
    while not done.exists() and time.monotonic() < until:
        time.sleep(0.01)
    launcher.settimeout(20 if told else 0.3)
    with contextlib.nullcontext() if told else pytest.raises(TimeoutError):
        assert launcher.recv(4096) == b"cmd=abort exitcode=6\n"
    assert (said.read_text() if said.exists() else "") == "process 1 of 3 was ended, as its overseer was killed" * told


def test_where_what_started_the_overseer_is_killed_nothing_goes_on(launcher: socket.socket, tmp_path: Path) -> None:
    """MPICH's mpiexec would wait for ever for the processes of a proxy that is gone, and they would train on."""
    pid, said = tmp_path / "pid", tmp_path / "said"

    def tells() -> None:
        process_supervisor.tell(*BEGUN)
        process_supervisor.tell(process_supervisor.RUN, said)
        pid.with_suffix(".new").write_text(str(os.getpid()))
        pid.with_suffix(".new").rename(pid)
        time.sleep(60)
        os._exit(0)

    proxy = os.fork()
    if proxy == 0:
        os._exit(ended(tells))
    until = time.monotonic() + 60
    while not pid.exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(proxy, signal.SIGKILL)
    os.waitpid(proxy, 0)
    why, trains = "process 1 of 3 was ended, as its overseer was killed", Path(f"/proc/{pid.read_text()}")
    while (trains.exists() or not said.exists() or said.read_text() != why) and time.monotonic() < until:
        time.sleep(0.01)
    assert said.read_text() == why
    assert not trains.exists()
    assert heard(launcher) == "", "nobody is there who could be told"


def test_a_library_that_ends_a_process_with_a_code_of_its_own_has_not_said_why(launcher: socket.socket, tmp_path: Path) -> None:
    """Open MPI 5.0 ends processes with 195 when their launcher is killed."""

    def tells() -> None:
        process_supervisor.tell(*BEGUN)
        process_supervisor.tell(process_supervisor.RUN, tmp_path / "a run")
        os._exit(195)

    assert ended(tells) == 195
    assert (tmp_path / "a run").read_text() == "process 1 of 3 ended with exit code 195"
    assert heard(launcher) == "cmd=abort exitcode=195\n"


def test_a_library_that_does_not_start_names_the_remedy(launcher: socket.socket, capfd: pytest.CaptureFixture[str]) -> None:
    """MPICH 5.0 ends with 16 below the launcher of Open MPI."""

    def tells() -> None:
        process_supervisor.tell(*BEGUN)
        os._exit(16)

    assert ended(tells, quiet=False) == ExitCode.USAGE
    assert heard(launcher) == "cmd=abort exitcode=2\n"
    said = capfd.readouterr().err
    assert "error: MPI did not start: its library has ended process 1 of 3 with exit code 16\n" in said
    assert "the launcher of the library that mpi4py uses" in said


def test_signals_reach_what_is_overseen(launcher: socket.socket) -> None:
    del launcher

    def asks() -> None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
        os.kill(os.getppid(), signal.SIGTERM)
        while True:  # not in one call, which a signal just before it would not end
            time.sleep(0.01)

    assert ended(asks) == 75
