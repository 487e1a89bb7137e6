"""Pictures that lie in archives: a path `FILE.tar@OFFSET+SIZE` means so many bytes of a file."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import IO

_MEMBER = re.compile(r"(.+\.tar)@([0-9]{1,18})\+([0-9]{1,18})", re.DOTALL)
#: Bytes of a picture in an archive, at most.
LARGEST = 1 << 28


def member_path(archive: str, offset: int, size: int) -> str:
    """Return what bytes of an archive are called.

    >>> archive_of(member_path("a.tar", 512, 20)), archive_of("a.jpg")
    ('a.tar', 'a.jpg')
    """
    return f"{archive}@{offset}+{size}"


def archive_of(path: str) -> str:
    """Return the file that a path leads to: the archive of a member, else the path itself."""
    found = _MEMBER.fullmatch(path) if ".tar@" in path else None
    return found[1] if found else path


def opened(path: str) -> IO[bytes]:
    """Open a file, or the bytes of a member of an archive.

    Raises:
        OSError: it cannot be read, or the archive has fewer bytes.
    """
    found = _MEMBER.fullmatch(path) if ".tar@" in path else None
    if found is None:
        return Path(path).open("rb")
    offset, size = int(found[2]), int(found[3])
    with Path(found[1]).open("rb") as file:
        if size > LARGEST or offset + size > file.seek(0, 2):
            raise OSError("the archive was cut off, or the member is larger than 256 MiB")
        file.seek(offset)
        return io.BytesIO(file.read(size))
