"""Text files as UTF-8 bytes with random access: mapped as they are, or unpacked and recoded into an unnamed file."""

from __future__ import annotations

import codecs
import contextlib
import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.reader_context import Origin
from pe_cli.data.tables.decompression import CHUNK, packing, unpacked

if TYPE_CHECKING:
    from pe_cli.data.machine_processes import MachineProcesses

#: Bytes that a row may have, which is read as a whole: one that is longer has an unclosed quote, or is no row of a table.
LONGEST = 1 << 26
#: Bytes that are unpacked or recoded up to which they stay in memory.
KEPT = 1 << 24
#: Bytes behind a mistake that are shown at most.
SHOWN_BYTES = 400
#: First bytes of files that are no tables.
_OTHER = (
    (b"PK\x03\x04", "a zip archive, as Excel's workbooks are", "unpack it, or save the sheet as CSV"),
    (b"BZh", "packed by bzip2", "unpack it with bunzip2, or pack it with gzip or zstd"),
    (b"\xfd7zXZ\x00", "packed by xz", "unpack it with unxz, or pack it with gzip or zstd"),
    (b"\xd0\xcf\x11\xe0", "a workbook of an old Excel", "save the sheet as CSV"),
    (
        b"SQLite format 3\x00",
        "a database of SQLite",
        "export the table: sqlite3 -header -csv FILE 'select * from TABLE' > table.csv",
    ),
    (b"\x89HDF", "an HDF5 file", "save the table as Parquet or CSV"),
    (b"%PDF", "a PDF", "a table is read from text, Parquet or Arrow"),
    *((mark, "a web page, as some programs save for Excel", "save the sheet as CSV") for mark in (b"<html", b"<HTML", b"<!DOC", b"<table")),
    (b"@relation", "an ARFF file of Weka", "save the table as CSV"),
    (b"@RELATION", "an ARFF file of Weka", "save the table as CSV"),
)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Spool:
    """Bytes that are appended and then read at any offset: in memory, or in a file without a name in `$TMPDIR` where they are many.

    Several sources lie in it one behind the other; what it takes is gone with the object.
    """

    def __init__(self) -> None:
        self.size = 0
        self._memory = bytearray()
        self._file: IO[bytes] | None = None

    def write(self, data: bytes, what: Path) -> None:
        """Append bytes.

        Raises:
            PeError: DEVICE; there is no room on the disk.
        """
        self._memory += data
        self.size += len(data)
        # In memory as long as it is small; a file is made for what is not.
        if len(self._memory) <= (CHUNK if self._file else KEPT):
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="pe-table-")  # noqa: SIM115 - it lives as long as the table
                weakref.finalize(self, self._file.close)
            self._file.write(self._memory)
            self._file.flush()
        except OSError as error:
            raise no_room(f"what {what} unpacks to", error) from None
        self._memory.clear()

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill a buffer with the bytes from an offset on; they are there."""
        written = self.size - len(self._memory)
        done = 0
        while done < len(buffer) and start + done < written:
            assert self._file is not None
            done += _read_at(self._file.fileno(), buffer[done : written - start], start + done)
        buffer[done:] = memoryview(self._memory)[start + done - written :][: len(buffer) - done]


def changed(path: Path, origin: Origin) -> PeError:
    """Return the error that a file has changed."""
    return origin.error(f"{path} was changed while it is read", "write a new file beside it and rename that, and start again")


def no_room(what: str, error: OSError) -> PeError:
    """Return the error that `$TMPDIR` has no room for something."""
    return PeError(
        f"no room for {what} in {tempfile.gettempdir()}: {(error.strerror or str(error)).lower()}",
        hint="set TMPDIR to a folder on a larger disk",
        code=ExitCode.DEVICE,
    )


@dataclass(frozen=True)
class Source:
    """Text as UTF-8 bytes.

    Args:
        path: of the file that it was found in.
        origin: gives errors their place.
        start: offset of the first byte, behind a byte-order mark.
        end: offset behind the last one.
        spool: holds it where it was unpacked or recoded; None where it is read from `path`.
        stamp: tells whether the file at `path` is still the same.
        before: lines before the start.
    """

    path: Path
    origin: Origin
    start: int
    end: int
    spool: Spool | None
    stamp: tuple[int, int, int, int]
    before: int = 0

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Open it for a pass: a file descriptor for `read_into`.

        Raises:
            PeError: DATA; the file is gone, or is another than before.
        """
        if self.spool is not None:
            yield -1
            return
        try:
            fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise self.origin.error(
                f"cannot read {self.path} again: {(error.strerror or str(error)).lower()}"
            ) from None
        try:
            # Compared each time it is opened: offsets that were found before hold for that file alone.
            if stamp_of(fd) != self.stamp:
                raise self.changed()
            yield fd
        finally:
            os.close(fd)

    def shared(self, threads: int) -> MachineProcesses | None:
        """Return the processes that open this very file at the same time, with as many threads; None for this one alone.

        `told` is to be called afterwards, once, whatever this returns: other machines may do otherwise.
        """
        together = self.origin.together
        if together is None:
            return None
        # Processes of a machine share the work only if they see the same file.
        told = together.told(f"rows of {self.path.name}", [list(self.stamp), self.start, self.end, threads])
        return together if all(each == told[0] for each in told) else None

    def told(self, mine: Any) -> list[Any]:
        """Tell those processes what this one has found, as JSON values; return what each has."""
        return [] if self.origin.together is None else self.origin.together.told(f"rows found in {self.path.name}", mine)

    def changed(self) -> PeError:
        """Return the error that the file has changed."""
        return changed(self.path, self.origin)

    def read_into(self, fd: int, buffer: memoryview, start: int, size: int) -> None:
        """Read bytes of a pass; may be called from several threads.

        Raises:
            PeError: DATA; the file has become shorter.
        """
        if self.spool is not None:
            self.spool.read_into(buffer[:size], start)
            return
        done = 0
        while done < size:
            count = _read_at(fd, buffer[done:size], start + done)
            if count == 0:
                raise self.changed()
            done += count

    def read(self, start: int, size: int) -> bytes:
        """Return bytes from an offset; fewer at the end."""
        size = max(0, min(size, self.end - start))
        buffer = bytearray(size)
        with self.opened() as fd:
            self.read_into(fd, memoryview(buffer), start, size)
        return bytes(buffer)

    def below(self, lines: int) -> Source:
        """Return the text that begins so many lines further down.

        Raises:
            PeError: DATA; it has no line there.
        """
        at = self.start
        for _ in range(lines):
            found = -1
            while found < 0 and at < self.end:
                data = self.read(at, CHUNK)
                # a carriage return ends a line by itself where no newline follows
                ends = [place for place in (data.find(b"\n"), data.find(b"\r")) if place >= 0]
                found = min(ends, default=-1)
                at += found + 1 + (data[found : found + 2] == b"\r\n") if found >= 0 else len(data)
            if at >= self.end:
                raise self.origin.error(f"{self.path} has no line below its first {lines}", "leave out fewer: titles")
        return replace(self, start=at, before=self.before + lines)

    def error_at(self, offset: int, message: str, hint: str | None = None, length: int = 1) -> PeError:
        """Return a data error at a byte.

        Args:
            offset: of the byte.
            message: what is wrong.
            hint: what to do.
            length: characters to underline.
        """
        notes = [(self.origin.at, "the table is read here")] if self.origin.at else []
        return PeError(message, at=self.span(offset, length), hint=hint, notes=notes, code=ExitCode.DATA)

    def span(self, offset: int, length: int = 1) -> Span:
        """Return the line and column of a byte, with the text of its line."""
        line, begin, position = 1 + self.before, self.start, self.start
        previous = b""
        while position < offset:
            data = self.read(position, min(CHUNK, offset - position))
            line += data.count(b"\n")
            # Line ends are counted over the borders of chunks.
            if previous == b"\r" or b"\r" in data:
                # it ends a line by itself unless a newline follows, which may be in the next chunk
                both = previous + data
                line += both.count(b"\r") - both.count(b"\r\n") - both.endswith(b"\r")
            last = max(data.rfind(b"\n"), data.rfind(b"\r"))
            begin = position + last + 1 if last >= 0 else begin
            previous, position = data[-1:], position + len(data)
        tail = self.read(offset, SHOWN_BYTES)
        line += previous == b"\r" and not tail.startswith(b"\n")
        head = self.read(begin, min(offset - begin, CHUNK))
        end = min((i for i in (tail.find(b"\n"), tail.find(b"\r")) if i >= 0), default=len(tail))
        text = (head + tail[:end]).decode("utf-8", "replace")
        column = len(head.decode("utf-8", "replace")) + 1
        return Span(str(self.path), line, column, max(1, length), text if offset - begin < CHUNK else "")


def _read_at(fd: int, buffer: memoryview, start: int) -> int:
    """Read bytes from an offset on and return how many there were."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [buffer], start)
    data = os.pread(fd, len(buffer), start)
    buffer[: len(data)] = data
    return len(data)


def stamp_of(file: int | Path) -> tuple[int, int, int, int]:
    """Return what tells whether a file, open or at a path, is still the same."""
    found = os.fstat(file) if isinstance(file, int) else file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_dev


def first_bytes(path: Path, size: int = 64) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(size)


def check_kind(head: bytes, path: Path, origin: Origin) -> None:
    """Refuse files that are certainly no table.

    Raises:
        PeError: DATA; says what it is, and what to do.
    """
    for magic, what, hint in _OTHER:
        if head.startswith(magic):
            raise origin.error(f"{path} is {what}", hint)


def open_source(path: Path, encoding: str, origin: Origin, spool: Spool) -> Source:
    """Make the text of a file readable as UTF-8.

    Args:
        path: of a file that is there.
        encoding: Python's name of it; `auto` is UTF-8, or UTF-16 by its byte-order mark.
        origin: gives errors their place.
        spool: takes what is unpacked or recoded.

    Raises:
        PeError: DATA; it is no text in that encoding (UTF-8 is checked later, as it is read), cut off, or unpacks to too much.
    """
    with path.open("rb") as file:
        stamp = stamp_of(file.fileno())
        head = file.read(64)
        check_kind(head, path, origin)
        file.seek(0)
        packed = packing(head)
        if packed:
            stream = unpacked(file, packed, path, origin)
            head = next(stream, b"")
            check_kind(head, path, origin)
        else:
            stream = iter(lambda: file.read(CHUNK), b"")
        mark, marked = next(((m, name) for m, name in _MARKS if head.startswith(m)), (b"", "utf-8"))
        # A byte-order mark is believed where nobody has named an encoding.
        named = marked if encoding == "auto" else _plain_name(encoding, marked)
        skip = len(mark) if named == marked else 0
        if not packed and named == "utf-8":
            return Source(path, origin, skip, stamp[1], None, stamp)
        start = spool.size
        if packed:
            stream = _chain(head, stream)
        for data in stream if named == "utf-8" else _recoded(stream, skip, named, path, origin):
            spool.write(data, path)
            if packed and origin.only_looks(spool.size - start, path):
                break
        return Source(path, origin, start + (skip if named == "utf-8" else 0), spool.size, spool, stamp)


def _plain_name(encoding: str, marked: str) -> str:
    """Return the codec of an encoding that was asked for; UTF-16 without a direction takes that of its mark."""
    name = codecs.lookup(encoding).name
    if name == "utf-8-sig":
        return "utf-8"
    return marked if name == "utf-16" and marked.startswith("utf-16") else name


def _chain(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def _recoded(stream: Iterator[bytes], skip: int, encoding: str, path: Path, origin: Origin) -> Iterator[bytes]:
    """Yield text in another encoding as UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    for data in _ended(stream):
        body, last = data
        body, skip = body[skip:], max(0, skip - len(body))
        try:
            text = decoder.decode(body, last)
        except UnicodeDecodeError as error:
            good = error.object[: error.start].decode(encoding, "replace")
            odd, at = error.object[error.start], line + good.count("\n")
            raise origin.error(
                f"{path} is no {encoding} text: byte {odd:#04x} in line {at} ({error.reason})",
                "give the encoding that it was saved in, such as encoding: latin-1 or cp1252",
            ) from None
        except UnicodeError as error:  # no byte-order mark
            hint = "give its order of bytes: utf-16-le or utf-16-be"
            raise origin.error(f"{path} is no {encoding} text: {str(error).lower()}", hint) from None
        line += text.count("\n")
        yield text.encode("utf-8", "replace")


def _ended(stream: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield chunks and, at the end, that it is the end."""
    for data in stream:
        yield data, False
    yield b"", True
