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
from types import FrameType
from typing import NoReturn

from pe_cli.collectives import hydra
from pe_cli.collectives.launchers import OPEN_MPI, started_by
from pe_cli.core.errors import ExitCode

#: Tells the child its own number and the descriptor that leads to the overseer: `number:descriptor`, which its own children ignore.
OVERSEER = "PE_OVERSEER"
#: What the child says: that MPI has begun, with the seconds that others may be silent; that it has taken leave.
BEGUN, LEFT = "begun", "left"
#: Seconds beside the timeout that the others have to end all by themselves.
MERCY = 7.0
#: Of Linux's prctl: the signal that a process gets when its parent dies, and the name that `ps` and `top` show.
_PARENT_DEATH_SIGNAL, _NAME = 1, 15


def oversee() -> None:
    """Return in a child that does the work, where mpiexec has started several processes; this one ends as the child does."""
    started = started_by(os.environ)
    if started is None or started.size == 1 or not sys.platform.startswith("linux") or _line() is not None:
        return
    if hydra.way() is None and started.variable != OPEN_MPI:  # srun, for example, lets the others go on
        return
    here, there = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(here)
        os.setpgid(0, 0)  # a signal for all comes from the overseer alone
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(int(ExitCode.PEER_LOST))
        os.environ[OVERSEER] = f"{os.getpid()}:{there}"
        return
    os.close(there)
    ctypes.CDLL(None).prctl(_NAME, b"pe-overseer")

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the launcher's word that another one is gone
    _, status = os.waitpid(child, 0)
    _end(os.waitstatus_to_exitcode(status), _said(here), f"process {started.rank} of {started.size}")


def tell(what: str, seconds: float = 0.0) -> None:
    """Tell the overseer of this process how far it is; nothing where there is none.

    Args:
        what: BEGUN or LEFT.
        seconds: that others may be silent.
    """
    line = _line()
    if line is not None:
        os.write(line, f"{what} {seconds:g}\n".encode())


def _line() -> int | None:
    """Return the descriptor that leads to the overseer of this very process."""
    number, _, descriptor = os.environ.get(OVERSEER, "").partition(":")
    return int(descriptor) if number == str(os.getpid()) and descriptor.isdigit() else None


def _said(descriptor: int) -> list[list[str]]:
    """Return the words of each line that the child has written."""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        return [line.split() for line in os.read(descriptor, 4096).decode().splitlines()]
    return []


def _end(code: int, said: list[list[str]], who: str) -> NoReturn:
    """End as the child did; where it was killed, after the others have noticed.

    Args:
        code: of the child; negative for a signal.
        said: by it.
        who: which process it was.
    """
    begun = [float(words[1]) for words in said if words[0] == BEGUN]
    left = any(words[0] == LEFT for words in said)
    if code < 0 and begun and not left:
        text = f"error: {who} was ended by signal {-code}; the others notice within {begun[0]:g} seconds (executor.peer_timeout)\n"
        os.write(2, text.encode())
        time.sleep(begun[0] + MERCY)  # they end all, when they have said so
        hydra.abort(ExitCode.PEER_LOST)
    elif code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no other action
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    elif code and begun and not left:
        hydra.abort(code)
    os._exit(code if code >= 0 else int(ExitCode.PEER_LOST))
