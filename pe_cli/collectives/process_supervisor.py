"""Supervisor processes between mpiexec and the one that trains, which keep mpiexec from killing the others before they know why.

The overseer is what the launcher has started. It has a child, which outlives it for a moment where the launcher, or somebody else, kills
it: nobody else could write then why the run has failed. What trains is that one's child, which says when MPI has begun, and when it has
taken leave of the others.
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
from pe_cli.collectives.launcher_environment import OPEN_MPI, started_by
from pe_cli.collectives.startup_watch import REMEDY
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
AGAIN, FIRST = 0.2, 3.0
#: Seconds that who has lost its overseer leaves to another one that lost its own before, and had the launcher end all.
OTHERS = 2.0
#: Of Linux's prctl: the signal that a process gets when its parent dies, whether it leaves a core, and the name that `ps` and `top` show.
_PARENT_DEATH_SIGNAL, _DUMPABLE, _NAME = 1, 4, 15
#: What tells the one between that the overseer is gone.
_ORPHANED = signal.SIGUSR2
#: Writes into the folder of a run why it has failed; False where it has ended already, None where a living process holds it.
Lost = Callable[[Path, str], bool | None]


def supervise(lost: Lost) -> None:
    """Return in a child that does the work, where mpiexec has started several processes; this one ends as the child does.

    Args:
        lost: writes into the folder of a run why it has failed, where the child was killed and cannot; see `Lost`.
    """
    # Only mpiexec kills the others at once; processes that were started alone need nobody above them.
    started = started_by(os.environ)
    if started is None or started.size == 1 or not sys.platform.startswith("linux") or _line() is not None:
        return
    if hydra.way() is None and started.variable != OPEN_MPI:  # srun, for example, lets the others go on
        return
    who, overseer, launcher = f"process {started.rank} of {started.size}", os.getpid(), os.getppid()
    if hydra.way() is not None:  # mpiexec waits for ever for those of a proxy that was killed, and they would go on
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    here, there = os.pipe()
    # They are waited for: between a look for signals and a call that sleeps, a handler of Python's would run after the call alone.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*SIGNALS, signal.SIGCHLD, _ORPHANED})
    between = _forked(_ORPHANED)
    child = 0 if between else _forked(signal.SIGKILL)
    if not between and not child:
        os.close(here)
        os.environ[OVERSEER] = f"{os.getpid()}:{there}"
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os.close(there)
    ctypes.CDLL(None).prctl(_NAME, b"pe-overseer")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the launcher's word that another one is gone
    code = _awaited(between, launcher) if between else _awaited(child, overseer)
    if code is None:
        _inherit(_said(here), lost, who, launcher)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if child:
        _end_alike(code)
    _end(code, _said(here), lost, who)


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


def _forked(orphaned: int) -> int:
    """Fork; return the number of the child, and 0 in the child, which gets a signal when its parent dies."""
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.setpgid(0, 0)  # a signal for all comes from the overseer alone
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, orphaned)
        # the parent may have died between the fork and prctl, and then no signal comes
        if os.getppid() != parent:
            os._exit(int(ExitCode.PEER_LOST))
    return child


def _awaited(child: int, parent: int) -> int | None:
    """Return the code with which a child ended, negative for a signal; None where this process has lost its parent, and ended the child.

    What asks for an end is passed on to the child.
    """
    while True:
        number = signal.sigwait({*SIGNALS, signal.SIGCHLD, _ORPHANED})
        if number == signal.SIGCHLD:
            gone, status = os.waitpid(child, os.WNOHANG)
            if gone:
                return os.waitstatus_to_exitcode(status)
        elif number != _ORPHANED:
            os.kill(child, number)
        elif os.getppid() != parent:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None


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


def _end(code: int, said: Mapping[str, str], lost: Lost, who: str) -> NoReturn:
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
            # SIGKILL is somebody else, and this the first to know; other signals may follow the end of another process, which says why.
            time.sleep(0.0 if code == -signal.SIGKILL else FIRST)
            while lost(Path(said[RUN]), text) is None and time.monotonic() < until:
                time.sleep(AGAIN)
        time.sleep(max(0.0, until - time.monotonic()))  # they end all, when they have said so
        hydra.abort(ExitCode.PEER_LOST)
        os._exit(int(ExitCode.PEER_LOST))
    if code < 0 and BEGUN not in said and -code not in SIGNALS:
        os.write(2, f"error: {who} was ended by signal {-code}, before it met the others\n".encode())
        hydra.abort(ExitCode.PEER_LOST)
        os._exit(int(ExitCode.PEER_LOST))
    if code > 0 and unknown:
        if code not in list(ExitCode):
            code = _ended_by_mpi(code, said, lost, who)
        hydra.abort(code)
    _end_alike(code)


def _ended_by_mpi(code: int, said: Mapping[str, str], lost: Lost, who: str) -> int:
    """Say that the MPI library has ended the child; return the exit code that it has then.

    Open MPI's ends a process that has lost its launcher, and MPICH's does not start below the launcher of another.

    Args:
        code: of the child.
        said, lost, who: see `_end`.
    """
    if RUN in said:
        lost(Path(said[RUN]), f"{who} ended with exit code {code}")
        return code
    text = f"error: MPI did not start: its library has ended {who} with exit code {code}\nhint: look at what it has said, and {REMEDY}\n"
    os.write(2, text.encode())
    return int(ExitCode.USAGE)


def _end_alike(code: int) -> NoReturn:
    """End with a code; by a signal where it is negative, as a child did that has left a core of its own."""
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no other action
            signal.signal(-code, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_DUMPABLE, 0)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else int(ExitCode.PEER_LOST))


def _inherit(said: Mapping[str, str], lost: Lost, who: str, launcher: int) -> NoReturn:
    """Write why the run has failed, where nobody else has, and have the launcher end those that are left: the overseer is gone.

    Args:
        said: by the child.
        lost: see `oversee`.
        who: which process it was.
        launcher: number of the process that has started the overseer.
    """
    why, until = f"{who} was ended, as its overseer was killed", time.monotonic() + MERCY
    if BEGUN not in said or LEFT in said:
        os._exit(int(ExitCode.PEER_LOST))
    time.sleep(OTHERS)
    written = lost(Path(said[RUN]), why) if RUN in said else None
    if written is not False:
        if hydra.way() is not None and Path(f"/proc/{launcher}").exists():  # it waits for what this process holds; others end all at once
            os.write(2, f"error: {why}\n".encode())
            hydra.abort(ExitCode.PEER_LOST)
        nothing = os.open(os.devnull, os.O_RDWR)
        for held in (0, 1, 2, hydra.way()):
            if held is not None:
                os.dup2(nothing, held)
        while written is None and RUN in said and lost(Path(said[RUN]), why) is None and time.monotonic() < until:
            time.sleep(AGAIN)
    os._exit(int(ExitCode.PEER_LOST))
