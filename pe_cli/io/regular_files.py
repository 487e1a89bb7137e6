"""Opens regular files alone, in folders that others can write: a pipe or a device in a file's place would block the reader."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: it can't be read, or is a pipe, a socket or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(descriptor, path)
        return open(descriptor, "rb")  # noqa: PTH123 - of a descriptor
    except BaseException:
        os.close(descriptor)
        raise


def open_to_append(path: Path) -> int:
    """Return a descriptor of a regular file, created where missing, that is read and appended to.

    Raises:
        OSError: it can't be written, or is a pipe, a socket or a device.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        _check(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        OSError: see `open_regular`.
    """
    with open_regular(path) as stream:
        return stream.read()


def _check(descriptor: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
