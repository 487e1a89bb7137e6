"""Messages of a process to MPICH's launcher hydra in its protocol PMI 1.

It ends all processes of a machine when one closes its end without having taken leave, or is killed; then its own exit code is that of
whichever process it hears of last, 9 for one that it has killed itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Mapping

#: Seconds that the launcher may take to answer, and to end all; and those that it is left to pass on what was said: told to end all, it
#: does not look for more, and a launcher that a busy machine kept from running for less has lost the only message.
ANSWER, END, DRAIN = 1.0, 1.0, 1.0
#: Seconds that it may take to say its word for a job: a process that goes on without it is taken for one of another job.
NAME = 30.0
#: Bytes of an answer, at most.
_MOST = 1 << 12


def way(environment: Mapping[str, str] | None = None) -> int | None:
    """Return the descriptor by which this process talks to hydra; None where another launcher, or none, has started it."""
    facts = os.environ if environment is None else environment
    descriptor = facts.get("PMI_FD", "")
    return int(descriptor) if descriptor.isdigit() and facts.get("MPI_LOCALNRANKS", "").isdigit() else None


def take_leave() -> bool:
    """Tell hydra that this process has finished, so that its end does not end the others; return whether hydra has confirmed it."""
    descriptor = way()
    if descriptor is None:
        return False
    with contextlib.suppress(OSError):
        os.write(descriptor, b"cmd=finalize\n")
        return bool(select.select([descriptor], [], [], ANSWER)[0]) and b"finalize_ack" in os.read(descriptor, _MOST)
    return False


def job() -> str:
    """Return the word by which hydra calls the processes that it has started together; empty where another launcher has."""
    descriptor = way()
    if descriptor is None:
        return ""
    answer = b""
    with contextlib.suppress(OSError):
        os.write(descriptor, b"cmd=get_my_kvsname\n")
        if select.select([descriptor], [], [], NAME)[0]:
            answer = os.read(descriptor, _MOST)
    return answer.decode("ascii", "replace").strip().partition("kvsname=")[2].partition(" ")[0]


def abort(code: int) -> None:
    """Ask hydra to end all processes, and itself with an exit code, once it has passed on what was said; others see how this one ends.

    Args:
        code: 1 to 255.
    """
    descriptor = way()
    if descriptor is not None:
        time.sleep(DRAIN)
        with contextlib.suppress(OSError):
            os.write(descriptor, f"cmd=abort exitcode={int(code)}\n".encode())
            time.sleep(END)
