"""Watches MPI's start: without it, a process that dies early would leave the others waiting in MPI_Init for ever."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping

from pe_cli.collectives import hydra
from pe_cli.collectives.launcher_environment import Started, asked_for, started_by
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.signals import fatal

#: Which launcher goes with which library.
REMEDY = (
    "start it with the launcher of the library that mpi4py uses (the mpiexec beside this Python, for one from pip); "
    "with Slurm pe launch in the script of the job, without srun"
)


@contextlib.contextmanager
def watched_startup(seconds: float) -> Iterator[None]:
    """End this process with exit code 6 where what is inside takes longer.

    MPI_Init holds Python's lock and cannot be interrupted, so that no thread could do this: another process does. It sends SIGABRT, number
    6, whose handler inside is the C function `_exit`, which takes the number of the signal as the exit code.

    Args:
        seconds: that the others may take to come.
    """
    started = started_by(os.environ)
    if not hasattr(os, "fork") or started is None or started.size == 1:
        yield
        return
    assert int(signal.SIGABRT) == int(ExitCode.PEER_LOST)
    if hasattr(signal, "SIGUSR1") and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # MPICH's mpiexec tells so that a process is gone
    here, there = os.pipe()
    sys.stderr.flush()
    starting, watcher = os.getpid(), os.fork()
    if watcher == 0:
        _watch(here, there, seconds, starting, started)
    os.close(here)
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(signal.SIGABRT, ctypes.cast(libc._exit, ctypes.c_void_p))
    try:
        with fatal():
            yield
    finally:
        os.close(there)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(watcher, 0)
        libc.signal(signal.SIGABRT, None)


def _watch(here: int, there: int, seconds: float, starting: int, started: Started) -> None:
    """Wait until the process that starts has closed its end of the pipe, or end it; runs in a process of its own and never returns."""
    try:
        os.close(there)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if not select.select([here], [], [], seconds)[0]:
            text = (
                f"error: MPI has not started after {seconds:g} seconds: of {started.size} processes one has ended, or never came; this is "
                f"process {started.rank}\nhint: look at what the others said; executor.peer_timeout is how long they are waited for\n"
            )
            os.write(2, text.encode())
            hydra.abort(ExitCode.PEER_LOST)
            if os.getppid() == starting:  # else the launcher has ended it
                os.kill(starting, signal.SIGABRT)
    finally:
        os._exit(0)


def check_manager(environment: Mapping[str, str], mpich: str) -> None:
    """Refuse MPICH from pip below the PMI of Slurm's srun: the messages of one are longer than the 1,024 bytes that the other reads.

    MPICH sends its address with what lies behind it in memory, 4 KiB, so that only a process that has done nothing yet gets through.

    Args:
        environment: variables of this process.
        mpich: version of the wheel; empty where there is none.

    Raises:
        PeError: it is so.
    """
    if mpich and "PMI_FD" in environment and "SLURM_STEP_ID" in environment and hydra.way(environment) is None:
        text = f"MPICH {mpich} from pip does not start below srun: Slurm cuts what it says of itself after 1,024 bytes"
        raise PeError(text, hint="pe launch CONFIG in place of pe train CONFIG: with srun, or without it in the script of the job")


def check_size(size: int, environment: Mapping[str, str] | None = None) -> None:
    """Refuse to be alone where the launcher has started several: each would train by itself, without a word.

    Args:
        size: processes that MPI knows.
        environment: variables of the launcher; default: of this process.

    Raises:
        PeError: the launcher, or the job, says more.
    """
    facts = os.environ if environment is None else environment
    started, (count, variable) = started_by(facts), asked_for(facts)
    if size != 1 or (started.size if started else count) == 1:
        return
    if started is None:
        raise PeError(f"MPI knows 1 process, and the job has {count} ({variable}), which no launcher has started", hint=REMEDY)
    text = f"MPI knows 1 process, and {started.launcher} has started {started.size} ({started.variable})"
    raise PeError(f"{text}: this launcher does not go with the MPI library", hint=REMEDY)
