"""Data set files: where they lie and how archives are read. Nothing is downloaded, and nothing is unpacked to the disk."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pe_cli.core.errors import ExitCode
from pe_cli.paddle.errors import FluidValueError

#: Where the original keeps what it downloaded.
HOME = "~/.cache/paddle/dataset"
#: Most bytes of a line, and of a member that is read as a whole.
LONGEST_LINE, LARGEST = 1 << 20, 1 << 26
#: Most bytes that are read of an archive: ten times what the largest text here has.
MOST = 1 << 30
_UNPACKING = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
#: RuntimeError is what `zipfile` says of encryption, and `tarfile` of links that lead to themselves.
_DAMAGED = (*_UNPACKING, OSError, KeyError, IndexError, ValueError, TypeError, OverflowError, RuntimeError)


def local(given: Any, folder: str, *names: str) -> Path:
    """Return a file: the given one, or the first of some names that is where the original keeps it.

    Raises:
        FluidValueError: it is not there; a ValueError.
    """
    places = [Path(given)] if given is not None else [Path(HOME).expanduser() / folder / name for name in names]
    for path in places:
        if path.is_file():
            return path
    text = f"there is no file {places[0]}, and nothing is downloaded"
    raise FluidValueError(text, hint="get it, and give its path or put it there", code=ExitCode.DATA)


def of_modes(mode: Any, *modes: str) -> str:
    """Return a mode in small letters.

    Raises:
        FluidValueError: it is none of the modes; a ValueError.
    """
    if not isinstance(mode, str) or mode.lower() not in modes:
        raise FluidValueError(f"mode is {mode!r}", hint=f"{', '.join(modes[:-1])} or {modes[-1]}")
    return mode.lower()


@contextmanager
def as_data(path: Path) -> Iterator[None]:
    """Turn what a damaged file raises into an error that names it.

    Raises:
        FluidValueError: the file is not what it should be; a ValueError.
    """
    try:
        yield
    except FluidValueError:
        raise
    except _DAMAGED as error:
        raise FluidValueError(f"{path} is not what this data set reads: {error}", code=ExitCode.DATA) from None


def lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, with their ends.

    Raises:
        ValueError: a line, or the file, is longer than any of a data set.
    """
    read = 0
    while line := file.readline(LONGEST_LINE + 1):
        read += len(line)
        if len(line) > LONGEST_LINE or read > MOST:
            raise ValueError(f"a line of more than {LONGEST_LINE} bytes" if read <= MOST else f"more than {MOST} bytes")
        yield line


def whole(file: IO[bytes], most: int | None = None) -> bytes:
    """Return all bytes of a file.

    Args:
        file: at its first byte.
        most: bytes that it may have; None: `LARGEST`.

    Raises:
        ValueError: it has more.
    """
    most = LARGEST if most is None else most
    pieces, read = [], 0
    while piece := file.read(min(LONGEST_LINE, most + 1 - read)):  # to ask for all at once would make room for all that is claimed
        pieces.append(piece)
        read += len(piece)
        if read > most:
            raise ValueError(f"a document of more than {most} bytes")
    return b"".join(pieces)


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and contents of files in a tar archive, packed or not, in their order; each is read before the next one.

    Raises:
        FluidValueError: the archive is damaged or has no such file; a ValueError.
    """
    read = -1
    with as_data(path), tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and wanted(member.name) else None
            if file is not None:
                read = max(0, read) + member.size
                if read > MOST:
                    raise ValueError(f"more than {MOST} bytes")
                yield member.name, file
    if read < 0:
        raise FluidValueError(f"{path} has none of the files that this data set reads", code=ExitCode.DATA)


def member(path: Path, name: str) -> Iterator[bytes]:
    """Yield the lines of a file in a tar archive; a name begins with ./ or not.

    Raises:
        FluidValueError: the archive is damaged or has no such file; a ValueError.
    """
    with as_data(path):
        for _, file in members(path, lambda at: at.removeprefix("./") == name.removeprefix("./")):
            yield from lines(file)
