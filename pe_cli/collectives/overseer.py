"""A process between mpiexec and one that trains: mpiexec would end all others when that one is killed, before they know why.

The overseer is what the launcher has started. What trains is its child, which says when MPI has begun, and when it has taken leave of
the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from pe_cli.collectives import hydra
from pe_cli.collectives.launchers import OPEN_MPI, started_by
from pe_cli.core.errors import ExitCode
from pe_cli.core.signals import SIGNALS

#: Tells the child its own number and the descriptor that leads to the overseer: `number:descriptor`, which its own children ignore.
OVERSEER = "PE_OVERSEER"
#: What the child says: that MPI has begun, with the seconds that others may be silent; the folder of its run; that it has taken leave.
BEGUN, RUN, LEFT = "begun", "run", "left"
#: Seconds beside the timeout that the others have to end all by themselves.
MERCY = 7.0
#: Seconds between two trials to write why, and those that are left to who was killed: MPICH ends others with SIGSEGV or SIGABRT at their
#: next message to it, which is not why the run has failed.
AGAIN, FIRST = 0.2, 1.0
#: Of Linux's prctl: the signal that a process gets when its parent dies, and the name that `ps` and `top` show.
_PARENT_DEATH_SIGNAL, _NAME = 1, 15


def oversee(lost: Callable[[Path, str], bool]) -> None:
    """Return in a child that does the work, where mpiexec has started several processes; this one ends as the child does.

    Args:
        lost: writes into the folder of a run why it has failed, where the child was killed and cannot; False where another one writes.
    """
    started = started_by(os.environ)
    if started is None or started.size == 1 or not sys.platform.startswith("linux") or _line() is not None:
        return
    if hydra.way() is None and started.variable != OPEN_MPI:  # srun, for example, lets the others go on
        return
    here, there = os.pipe()
    # They are waited for: between a look for signals and a call that sleeps, a handler of Python's would run after the call alone.
    waited = {*SIGNALS, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(here)
        os.setpgid(0, 0)  # a signal for all comes from the overseer alone
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(int(ExitCode.PEER_LOST))
        os.environ[OVERSEER] = f"{os.getpid()}:{there}"
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os.close(there)
    ctypes.CDLL(None).prctl(_NAME, b"pe-overseer")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the launcher's word that another one is gone
    gone = 0
    while not gone:
        number = signal.sigwait(waited)
        if number == signal.SIGCHLD:
            gone, status = os.waitpid(child, os.WNOHANG)
        else:
            os.kill(child, number)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _end(os.waitstatus_to_exitcode(status), _said(here), lost, f"process {started.rank} of {started.size}")


def tell(what: str, fact: object = "") -> None:
    """Tell the overseer of this process how far it is; nothing where there is none.

    Args:
        what: BEGUN, RUN or LEFT.
        fact: seconds that others may be silent, or the folder of the run.
    """
    line = _line()
    if line is not None and "\n" not in str(fact):
        os.write(line, os.fsencode(f"{what} {fact}\n"))


def leave_launcher() -> bool:
    """Take leave of the others where MPI is not used, of the overseer and of hydra; whether the others may go on when this process ends."""
    tell(LEFT)
    return hydra.take_leave()


def _line() -> int | None:
    """Return the descriptor that leads to the overseer of this very process."""
    number, _, descriptor = os.environ.get(OVERSEER, "").partition(":")
    return int(descriptor) if number == str(os.getpid()) and descriptor.isdigit() else None


def _said(descriptor: int) -> dict[str, str]:
    """Return what the child has said, with the fact of each."""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        lines = os.fsdecode(os.read(descriptor, 1 << 16)).splitlines()
        return {what: fact for what, _, fact in (line.partition(" ") for line in lines)}
    return {}


def _end(code: int, said: Mapping[str, str], lost: Callable[[Path, str], bool], who: str) -> NoReturn:
    """End as the child did; where it was killed, after the others have noticed.

    Args:
        code: of the child; negative for a signal.
        said: by it.
        lost: see `oversee`.
        who: which process it was.
    """
    unknown = BEGUN in said and LEFT not in said  # to the others
    if code < 0 and unknown:
        text, until = f"{who} was ended by signal {-code}", time.monotonic() + float(said[BEGUN]) + MERCY
        os.write(2, f"error: {text}; the others notice within {said[BEGUN]} seconds (executor.peer_timeout)\n".encode())
        if RUN in said:
            time.sleep(0.0 if code == -signal.SIGKILL else FIRST)
            while not lost(Path(said[RUN]), text) and time.monotonic() < until:
                time.sleep(AGAIN)
        time.sleep(max(0.0, until - time.monotonic()))  # they end all, when they have said so
        hydra.abort(ExitCode.PEER_LOST)
    elif code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no other action
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    elif code and unknown:
        hydra.abort(code)
    os._exit(code if code >= 0 else int(ExitCode.PEER_LOST))
