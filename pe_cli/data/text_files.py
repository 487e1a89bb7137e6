"""Text of files in one buffer: mapped where it is one plain file, else read; checked, and cut into lines, files or pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.dataset import map_array
from pe_cli.data.raw_cells import Strings
from pe_cli.data.reader_context import Origin
from pe_cli.data.spill_storage import room
from pe_cli.data.tables.text_source import Source, Spool, open_source
from pe_cli.data.tokens.text_chunks import call, in_order
from pe_cli.kernels.text.characters import SLACK

#: Bytes of a piece of a long text: at least, and where no line ends, at most.
MIN_PIECE, MAX_PIECE = 512, 4096
#: Bytes that are checked at a time.
STEP = 1 << 20


@dataclass(frozen=True)
class TextFiles:
    """Text of files, one after the other.

    Args:
        sources: the files.
        buffer: uint8, UTF-8 of all of them; in memory or mapped.
        bounds: int64 [files + 1], where each file begins and the last one ends.
    """

    sources: Sequence[Source]
    buffer: NDArray[np.uint8]
    bounds: NDArray[np.int64]

    @classmethod
    def read(cls, paths: Sequence[Path], encoding: str, origin: Origin) -> TextFiles:
        """Open files.

        Args:
            paths: of files that are there, in order.
            encoding: Python's name of it, or auto.
            origin: gives errors their place.

        Raises:
            PeError: DATA; a file is empty, packed in an unknown way, or no text: a NUL byte, or no UTF-8.
        """
        spool = Spool()
        sources = []
        for path in paths:
            sources.append(open_source(path, encoding, origin, spool))
            if sources[-1].end == sources[-1].start:
                raise origin.error(f"{path} is empty: it has no text", "leave it out, or check what wrote it")
        sizes = [source.end - source.start for source in sources]
        bounds = np.append(0, np.cumsum(sizes)).astype(np.int64)
        # A single plain file is mapped: its text is never in memory twice.
        if len(sources) == 1 and sources[0].spool is None:
            found = map_array(sources[0].path, np.dtype(np.uint8), (sizes[0],), sources[0].start)
            made = cls(sources, np.asarray(found), bounds)
        else:
            buffer = room((int(bounds[-1]),), "uint8", "texts")
            for source, start, size in zip(sources, bounds.tolist(), sizes, strict=False):
                with source.opened() as fd:
                    source.read_into(fd, buffer[start : start + size].data, source.start, size)
            made = cls(sources, buffer, bounds)
        made.check()
        return made

    def check(self) -> None:
        """Check that all of it is text.

        Raises:
            PeError: DATA; at the first byte that is none, or the file has changed since it was opened.
        """
        self.unchanged()
        total = len(self.buffer)

        def work(i: int) -> tuple[int, int]:
            # A stretch ends where a character does, or the check would find half of one.
            start, stop = self._stretch(i * STEP), self._stretch(min(total, (i + 1) * STEP))
            part = np.zeros(stop - start + SLACK, np.uint8)
            part[: stop - start] = self.buffer[start:stop]
            found = np.empty(2, np.int64)
            call("find_nul", part, stop - start, found[:1])
            call("check_utf8", part, stop - start, found[1:])
            return (int(found[0]) + start if found[0] >= 0 else -1), (int(found[1]) + start if found[1] >= 0 else -1)

        for nul, wrong in in_order(work, max(1, -(-total // STEP))):
            # Whichever mistake comes first in the file is told.
            if nul >= 0 and not 0 <= wrong < nul:
                raise self.error_at(nul, "a NUL byte, which no text has", "the file is binary, or cut off while it was written")
            if wrong >= 0:
                raise self.error_at(
                    wrong,
                    f"byte {int(self.buffer[wrong]):#04x} is no UTF-8",
                    "give the encoding that it was saved in, such as encoding: latin-1 or cp1252",
                )

    def _stretch(self, at: int) -> int:
        """Return the first byte from `at` on that begins a character, or three bytes on."""
        for i in range(at, min(at + 3, len(self.buffer))):
            if self.buffer[i] & 0xC0 != 0x80:
                return i
        # A damaged text may have no character there; the check finds that out.
        return min(at + 3, len(self.buffer))

    def unchanged(self) -> None:
        """Check that the file that is mapped is still as it was: what is cut off can no longer be read.

        Raises:
            PeError: DATA; it is not.
        """
        with contextlib.ExitStack() as stack:
            for source in self.sources[:1]:
                stack.enter_context(source.opened())

    def error_at(self, offset: int, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a byte of the buffer."""
        file = int(np.searchsorted(self.bounds, offset, side="right")) - 1
        source = self.sources[min(file, len(self.sources) - 1)]
        return source.error_at(source.start + offset - int(self.bounds[file]), message, hint)

    def _files(self) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
        """Yield number, start and bytes of every file."""
        for file, (start, stop) in enumerate(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True)):
            yield file, start, self.buffer[start:stop]

    def files(self) -> Strings:
        """Return one text per file."""
        return Strings(self.buffer, self.bounds)

    def lines(self) -> tuple[Strings, NDArray[np.int64]]:
        """Return one text per line that holds more than blanks; and how many of them are in every file, int64 [files].

        Raises:
            PeError: DATA; there is none.
        """
        out = np.zeros(3, np.int64)
        counts, sizes = [], []
        # Counted first, so that the text is copied once into room of the right size.
        for _, _, part in self._files():
            call("split_lines", part, len(part), -1, 0, out, out)
            counts.append(int(out[0]))
            sizes.append(int(out[1]))
        if not sum(counts):
            path = self.sources[0].path
            raise self.sources[0].origin.error(f"{path} has blanks alone: there is no line of text", "check what wrote it")
        buffer, offsets = room((sum(sizes) + 1,), "uint8", "lines"), np.zeros(sum(counts) + 1, np.int64)
        at = row = 0
        for file, _, part in self._files():
            offsets[row] = at
            call("split_lines", part, len(part), -1, buffer[at:], offsets[row:], out)
            at, row = at + sizes[file], row + counts[file]
        return Strings(buffer[:at], offsets), np.array(counts, np.int64)

    def line_start(self, file: int, line: int) -> int:
        """Return where a line of a file begins in the buffer; only lines that hold more than blanks count, from 0."""
        out = np.zeros(3, np.int64)
        part = self.buffer[self.bounds[file] : self.bounds[file + 1]]
        call("split_lines", part, len(part), line, 0, out, out)
        return int(self.bounds[file]) + max(0, int(out[2]))

    def pieces(self) -> NDArray[np.int64]:
        """Return where a long text may be cut, int64 [pieces + 1]: behind lines, at blanks, and at the ends of files."""
        found = [np.zeros(1, np.int64)]
        out = np.zeros(1, np.int64)
        for _, start, part in self._files():
            offsets = np.zeros(len(part) // MIN_PIECE + 2, np.int64)
            offsets[0] = start
            call("cut_pieces", part, len(part), MIN_PIECE, MAX_PIECE, offsets, out)
            found.append(offsets[1 : int(out[0]) + 1])
        return np.concatenate(found)
