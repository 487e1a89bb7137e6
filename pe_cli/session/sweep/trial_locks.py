"""Locks of a sweep that processes share: one at a time changes the record, and a trial's lock is released when its owner dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import atomic, lock
from pe_cli.session.sweep.record import Sweep, read_sweep

#: Folder of the claims in that of a sweep.
CLAIMS = ".claims"
#: Seconds to wait for the lock on the record, which others hold for a moment only.
PATIENCE = 60.0


@contextlib.contextmanager
def record(folder: Path) -> Iterator[Sweep]:
    """Have the record of a sweep for oneself: as it is now, and written anew where it was changed inside.

    Raises:
        PeError: DATA, the folder holds no record; DEVICE, another process does not let go of it; it can't be written.
    """
    until = time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock.held(folder))
                break
            # Others hold it for a moment: trying again soon is faster than a queue.
            except BlockingIOError:
                if time.monotonic() > until:
                    hint = "stop the process that has it"
                    raise PeError(f"{folder}: another process keeps the record of the sweep", hint=hint, code=ExitCode.DEVICE) from None
        sweep = read_sweep(folder)
        # Written only where something has changed, so that many that only look do not wear the disk.
        before = sweep.to_json()
        try:
            yield sweep
        finally:
            if sweep.to_json() != before:
                sweep.write()


def claim(folder: Path, number: int) -> int | None:
    """Claim a trial, for as long as this process or one that inherits the descriptor lives or keeps it open.

    Args:
        folder: of the sweep.
        number: of the trial.

    Returns:
        A descriptor; None where another process has the trial.

    Raises:
        PeError: the claim can't be written.
    """
    path = folder / CLAIMS / str(number)
    try:
        path.parent.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise atomic.write_error(error, path) from None
    try:
        # The lock is held by a descriptor: it goes when the last process that has it dies.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        # a file system that can't lock: then the user keeps one process for a sweep
        if error.errno not in atomic.NO_LOCKS:
            os.close(descriptor)
            raise atomic.write_error(error, path) from None
    return descriptor


def can_share(folder: Path) -> bool:
    """Return whether the file system can lock, so that several processes may share a sweep in this folder."""
    try:
        with lock.held(folder) as (_, sure):
            return sure
    except BlockingIOError:  # somebody does
        return True
