"""The lock on a run's folder: held by the process that trains in it, and visible to those that read it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from pe_cli.io import atomic

#: Another number every time that a machine starts.
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: How often a lock is tried for, and seconds between: who looks whether it is free has it for an instant.
_TRIES, _PAUSE = 5, 0.02


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[str | None]:
    """Keep other processes out of a folder; the system lets go when this process dies.

    Yields:
        What `is_free` knows the lock by; None where it can't be known: file system or machine don't tell.

    Raises:
        BlockingIOError: another process has it.
        PeError: USAGE, the folder can't be opened; DEVICE, the disk failed.
    """
    with held(folder) as (descriptor, sure):
        yield _mark(descriptor) if sure else None


@contextlib.contextmanager
def held(folder: Path) -> Iterator[tuple[int, bool]]:
    """Keep other processes out of a folder, as `locked` does; who inherits the descriptor keeps them out, too, for as long as it lives.

    Yields:
        The descriptor, and whether the file system can lock.

    Raises:
        BlockingIOError: another process has it.
        PeError: USAGE, the folder can't be opened; DEVICE, the disk failed.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise atomic.write_error(error, folder) from None
    try:
        yield descriptor, _lock(descriptor, folder)
    finally:
        os.close(descriptor)


def is_free(folder: Path, mark: object) -> bool | None:
    """Return whether nobody has the lock of a folder any more; None where that can't be known here.

    Locks on network file systems may be seen on one machine only, so this machine, not started since, and this very folder must be
    those of the mark.

    Args:
        folder: that was locked.
        mark: what `locked` yielded; of a file that is not trusted.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        if not isinstance(mark, str) or mark != _mark(descriptor):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    else:
        return True
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> bool:
    """Lock an open folder; return whether the file system can."""
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            time.sleep(_PAUSE)
        except OSError as error:
            # Some network file systems can't lock a folder: then the user keeps one process per folder.
            if error.errno not in atomic.NO_LOCKS:
                raise atomic.write_error(error, folder) from None
            return False
        else:
            break
    return True


def _mark(descriptor: int) -> str | None:
    """Return a digest of the machine, its start and an open folder, which names none of them; None where the start is not told."""
    try:
        boot, found = _BOOT.read_text(encoding="ascii").strip(), os.fstat(descriptor)
    except (OSError, ValueError):
        return None
    text = f"{socket.gethostname()}\n{boot}\n{found.st_dev}\n{found.st_ino}"
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest() if boot else None
