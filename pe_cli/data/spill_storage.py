"""Room for columns and for what is unpacked: memory, or a file without a name where all of it together takes too much memory."""

from __future__ import annotations

import collections
import contextlib
import errno
import io
import math
import os
import sys
import tempfile
import threading
import weakref
from typing import IO, Any, Protocol

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.dataset import Array
from pe_cli.data.reader_context import memory_of_one

#: Share of the memory that all columns that live together may take, where the config says nothing; one column may take half of that.
#: What is beyond lies in files.
TOGETHER = 1 / 4
#: Bytes that are unpacked at a time.
_CHUNK = 1 << 20


class _Held:
    """How many bytes of columns are in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self.asked: int | None = None
        #: Of arrays that are gone: the garbage collector may free one at any time, also while the lock is held.
        self._gone: collections.deque[int] = collections.deque()

    def most(self) -> float:
        """Return the bytes that all may take together."""
        return memory_of_one() * TOGETHER if self.asked is None else self.asked

    def zeros(self, shape: tuple[int, ...], kind: np.dtype[Any], size: int) -> Array | None:
        """Return zeros in memory; None where they do not fit in."""
        most = self.most()
        with self._lock:
            # The collector notes sizes without the lock, which this thread may hold; they are subtracted here.
            while self._gone:
                self._bytes -= self._gone.popleft()
            if size > most / 2 or self._bytes + size > most:
                return None
            self._bytes += size
        made = np.zeros(shape, kind)
        # At the end of the process nobody counts any more.
        weakref.finalize(made, self._gone.append, size).atexit = False
        return made


_HELD = _Held()


def bound_memory(most: int | None) -> None:
    """Set the bytes that the data of this process may take in memory; None for a share of the machine's."""
    _HELD.asked = most


def most_of_one() -> float:
    """Return the bytes of memory that one column, or one cache, may take."""
    return _HELD.most() / 2


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = ..., /) -> bytes:
        """Return up to a number of bytes; fewer at the end of the file."""


def room(shape: tuple[int, ...], dtype: np.dtype[Any] | str, what: str = "a column") -> Array:
    """Return an array of zeros that may be written.

    Args:
        shape: sizes.
        dtype: element type.
        what: names it in an error.

    Returns:
        An array in memory; one above `most_of_one`, or with which all take more than twice that, is mapped from a temporary file in
        `$TMPDIR`, which is gone with the array.

    Raises:
        PeError: DEVICE; there is no room on the disk.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    made = _HELD.zeros(shape, kind, size)
    if made is not None:
        return made
    if size > sys.maxsize:
        raise _no_room(what, size, OSError(errno.EFBIG, "no file is so large"))
    try:
        # A file without a name: nothing is left of it, however the process ends.
        with tempfile.TemporaryFile(prefix="pe-column-") as file:
            _reserve(file, size)
            return np.memmap(file, kind, "r+", shape=shape)
    except OSError as error:
        raise _no_room(what, size, error) from None


def _reserve(file: IO[bytes], size: int) -> None:
    """Give a file so many bytes that the disk has: who writes to a mapped one without them is ended by SIGBUS, with no word."""
    # A sparse file on a full disk would end the process by a signal at the first write.
    if hasattr(os, "posix_fallocate") and size:
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def unpacked(stream: Readable, size: int, what: str) -> Array:
    """Return the bytes of a stream.

    Args:
        stream: packed data; its errors come through.
        size: bytes that it says it has.
        what: names it in an error.

    Returns:
        uint8, what there is, and at most one more than `size` where there is more than that. Above `most_of_one` it
        is written to a temporary file in `$TMPDIR`, mapped, and gone with the array.

    Raises:
        PeError: DEVICE; there is no room on the disk.
    """
    with contextlib.ExitStack() as stack:
        into: IO[bytes] = io.BytesIO()
        if size > most_of_one():
            into = stack.enter_context(tempfile.TemporaryFile(prefix="pe-unpacked-"))
        got = 0
        # One byte more than expected tells that there is more.
        while got <= size and (chunk := stream.read(min(_CHUNK, size + 1 - got))):
            got += len(chunk)
            try:
                into.write(chunk)
            except OSError as error:
                raise _no_room(what, size, error) from None
        if isinstance(into, io.BytesIO) or not got:
            return np.frombuffer(into.getbuffer() if isinstance(into, io.BytesIO) else b"", np.uint8)
        into.flush()
        return np.memmap(into, np.uint8, "r", shape=(got,))


def _no_room(what: str, size: int, error: OSError) -> PeError:
    return PeError(
        f"no room for {what} of {size:,} bytes in {tempfile.gettempdir()}: {(error.strerror or str(error)).lower()}",
        hint="set TMPDIR to a folder on a larger disk",
        code=ExitCode.DEVICE,
    )
