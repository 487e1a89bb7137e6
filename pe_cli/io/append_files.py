"""Append-only files: whole records are added at the end, and a file is cut back to an earlier length on resume."""

from __future__ import annotations

import os
from pathlib import Path

from pe_cli.io import atomic
from pe_cli.io.regular_files import open_to_append


def append_line(path: Path, text: str, *, shown: Path | None = None) -> None:
    """Add one line to a file in a single write, so that another process never reads half of it.

    A line that a power failure cut short is ended first. On a full disk the file is cut back to its whole lines.

    Args:
        path: the file, created where missing; one writer at a time.
        text: the line, without its newline; several lines stand with newlines between them.
        shown: the file's name in an error, `path` when None.

    Raises:
        PeError: the file can't be written (USAGE), or the disk is full or failed (DEVICE).
    """
    _append(path, f"{text}\n".encode(), shown or path, "the lines before are unchanged", lines=True)


def append_bytes(path: Path, data: bytes, *, shown: Path) -> None:
    """Add bytes to a file; on a full disk it is cut back to what it was.

    Raises:
        PeError: the file can't be written (USAGE), or the disk is full or failed (DEVICE).
    """
    _append(path, data, shown, "what was written before is unchanged", lines=False)


def _append(path: Path, data: bytes, shown: Path, kept: str, *, lines: bool) -> None:
    try:
        descriptor = open_to_append(path)
        try:
            size = os.fstat(descriptor).st_size
            # half a line that a kill has left must not become one line with this one
            if lines and size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            try:
                atomic.write_all(descriptor, data)
            except OSError:
                # a full disk takes part of a line; a reader of the file would stumble over it, so it is taken back
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise atomic.write_error(error, shown, wanted=len(data), kept=kept) from None


def length(path: Path) -> int:
    """Return the bytes of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def cut(path: Path, size: int) -> bool:
    """Cut a file back to a length; one of no bytes is left as it is, absent or empty.

    Args:
        path: the file.
        size: bytes that stay.

    Returns:
        Whether the file had that many: False says that something else has shortened or removed it.

    Raises:
        PeError: the file can't be written (USAGE), or the disk failed (DEVICE).
    """
    there = length(path)
    if there > size:
        try:
            os.truncate(path, size)
        except OSError as error:
            raise atomic.write_error(error, path) from None
    return there >= size


def cut_torn_line(path: Path) -> None:
    """Remove an unfinished last line: every line of ours ends with a newline, so that it is half of one.

    Raises:
        PeError: the file can't be written (USAGE), or the disk failed (DEVICE).
    """
    if not path.is_file():
        return
    try:
        with path.open("r+b") as stream:
            end = stream.seek(0, os.SEEK_END)
            while end > 0:
                start = max(0, end - 65536)
                stream.seek(start)
                newline = stream.read(end - start).rfind(b"\n")
                if newline >= 0:
                    stream.truncate(start + newline + 1)
                    return
                end = start
            stream.truncate(0)
    except OSError as error:
        raise atomic.write_error(error, path) from None
