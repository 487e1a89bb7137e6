"""Work on data that the processes of one machine share: each does a part, and all read the results in shared memory."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Communicator
from pe_cli.core.errors import ExitCode, PeError

Array = np.ndarray[Any, Any]
#: Alignment of arrays in bytes.
ALIGNED = 64
#: Shape and element type of an array.
Sizes = tuple[tuple[int, ...], str]


class MachineProcesses:
    """The processes that prepare the same data at the same time; all make the same calls in the same order.

    Rows and columns are divided among the processes of a machine. Nothing of them crosses a network: each machine reads all of its own.

    Args:
        peers: all processes, those of other machines, too.

    Attributes:
        index: of this process among those of its machine.
        count: processes of this machine.
    """

    def __init__(self, peers: Communicator) -> None:
        self.peers = peers
        found = self._all("machine", _machine())
        self._here = [rank for rank, machine in enumerate(found) if machine == found[peers.rank]]
        # Only processes of this machine share memory; others read for themselves.
        self.index, self.count = self._here.index(peers.rank), len(self._here)
        self._owners: dict[str, int] = {}

    def _all(self, what: str, mine: Any) -> list[Any]:
        """Tell all processes something, as JSON; return what each of them tells.

        Raises:
            PeError: DATA; another process tells something else, because it has read other files.
            PeerError: another process is lost, or has ended.
        """
        found = [json.loads(message) for message in self.peers.gather(json.dumps([what, mine], allow_nan=False).encode())]
        # An exchange that means different things to two processes is found here, and not by wrong data.
        for rank, (other, _) in enumerate(found):
            if other != found[0][0]:
                text = f"process {rank} has other data than process 0: it reads {other}, not {found[0][0]}"
                raise PeError(text, hint="give all the same files and options", code=ExitCode.DATA)
        return [told for _, told in found]

    def told(self, what: str, mine: Any) -> list[Any]:
        """Tell the processes of this machine something, and return what each of them tells, in order.

        Args:
            what: is told; the same in all processes.
            mine: JSON values.

        Raises:
            PeError: DATA; another process is at something else, because it has read other files.
        """
        found = self._all(what, mine)
        return [found[rank] for rank in self._here]

    def first(self, what: str, mine: Any) -> Any:
        """Return what the first of all processes has, as JSON values, that has anything but None; None where all have that."""
        return next((told for told in self._all(what, mine) if told is not None), None)

    def span(self, rows: int) -> tuple[int, int]:
        """Return the range of rows that this process works on: the first, and the one after the last."""
        # Rows without remainders at the end: each process has about as many.
        return rows * self.index // self.count, rows * (self.index + 1) // self.count

    def owns(self, name: str) -> bool:
        """Return whether this process does what a column needs; they are dealt in the order in which they are first asked for."""
        # Owners in the order in which columns are asked for, which is the same in all processes.
        return self._owners.setdefault(name, len(self._owners)) % self.count == self.index

    def rooms(self, sizes: Sequence[Sizes], what: str) -> list[Array] | None:
        """Return arrays of zeros that the processes of this machine have in common.

        They lie in a file in `$TMPDIR`, which nobody else can open and which is gone with the arrays.

        Args:
            sizes: of the arrays; the same in all processes.
            what: they are for.

        Returns:
            The arrays; None in all processes where there is no room on one of the machines: each keeps its own then.
        """
        nbytes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in sizes]
        starts = [0, *itertools.accumulate(-(-size // ALIGNED) * ALIGNED for size in nbytes)]
        total = starts[-1]
        with contextlib.ExitStack() as stack:
            path = None
            # One process makes the file, and all map it; it has no name any more when they have.
            if self.index == 0:
                with contextlib.suppress(OSError):
                    path = stack.enter_context(_file(total))
            path = self.told(f"{sum(nbytes):,} bytes of {what}", path)[0]
            space = None
            with contextlib.suppress(OSError):
                space = None if path is None else _mapped(Path(path), total)
            # All use it or none: a machine without room falls back together.
            if not all(self._all(f"{what} in memory", space is not None)) or space is None:
                return None
        parts = zip(starts, nbytes, sizes, strict=False)
        return [space[start : start + size].view(dtype).reshape(shape) for start, size, (shape, dtype) in parts]

    def wait(self, what: str) -> None:
        """Return when all processes have written their part."""
        self._all(f"{what} done", None)


def _machine() -> list[object]:
    """Return what processes have alike that can open each other's temporary files."""
    folder = Path(tempfile.gettempdir())
    try:
        found = folder.stat()
        return [socket.gethostname(), str(folder), found.st_dev, found.st_ino]
    except OSError:
        return [socket.gethostname(), os.getpid()]


@contextlib.contextmanager
def _file(size: int) -> Iterator[str]:
    """Create a file of a given size with its disk space allocated; the name is removed at the end.

    Raises:
        OSError: there is no room.
    """
    with tempfile.TemporaryDirectory(prefix="pe-columns-") as folder:
        path = Path(folder) / "columns"
        # O_EXCL and 0600: nobody else can have put it there, or can read it.
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size)  # else a full disk would end the process at a write
            os.ftruncate(fd, size)
        finally:
            os.close(fd)
        yield str(path)


def _mapped(path: Path, size: int) -> Array:
    """Return the bytes of a file of this user's, to read and to write.

    Raises:
        OSError: it is not there, or is none of this user's.
    """
    if not size:
        return np.zeros(0, np.uint8)
    # No link and no other user's file: the path was told by another process.
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "r+b") as file:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_size != size:
            raise OSError(f"{path} is another file")
        return np.memmap(file, np.uint8, "r+", shape=(size,))
