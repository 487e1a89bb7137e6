"""Storage for columns and unpacked files: memory, or an unnamed file on disk where they are larger than their share of memory."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import sys
import tempfile
from typing import IO, Any, Protocol

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.dataset import Array
from pe_cli.data.origin import memory_of_one

#: Share of the machine's memory above which one column lies in a file and not in memory.
SHARE = 1 / 8
#: Bytes that are unpacked at a time.
_CHUNK = 1 << 20


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
        An array in memory; one above `SHARE` of the machine's memory is mapped from a temporary file in `$TMPDIR`, which is gone
        with the array.

    Raises:
        PeError: DEVICE; there is no room on the disk.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size <= memory_of_one() * SHARE:
        return np.zeros(shape, kind)
    if size > sys.maxsize:
        raise _no_room(what, size, OSError(errno.EFBIG, "no file is so large"))
    try:
        with tempfile.TemporaryFile(prefix="pe-column-") as file:
            file.truncate(size)
            return np.memmap(file, kind, "r+", shape=shape)
    except OSError as error:
        raise _no_room(what, size, error) from None


def unpacked(stream: Readable, size: int, what: str) -> Array:
    """Return the bytes of a stream.

    Args:
        stream: packed data; its errors come through.
        size: bytes that it says it has.
        what: names it in an error.

    Returns:
        uint8, what there is, and at most one more than `size` where there is more than that. Above `SHARE` of the machine's memory it
        is written to a temporary file in `$TMPDIR`, mapped, and gone with the array.

    Raises:
        PeError: DEVICE; there is no room on the disk.
    """
    with contextlib.ExitStack() as stack:
        into: IO[bytes] = io.BytesIO()
        if size > memory_of_one() * SHARE:
            into = stack.enter_context(tempfile.TemporaryFile(prefix="pe-unpacked-"))
        got = 0
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
