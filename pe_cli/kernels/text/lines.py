"""Texts in files: where their lines are, and where a long text may be cut."""

from __future__ import annotations

from pe_cli.kernels.language import Addr, Int, PtrI64, kernel
from pe_cli.kernels.text.characters import NEWLINE, RETURN, all_blank, byte, copy_bytes, is_blank


@kernel
def split_lines(text: Addr, n: Int, wanted: Int, target: Addr, offsets: PtrI64, out: PtrI64):
    """Find the lines of a text that hold more than blanks; a line ends with a newline, a carriage return, or both.

    Args:
        text, n: address and bytes.
        wanted: line to stop before, or -1 for all.
        target: where the lines are copied to, without their ends; 0 to count them only.
        offsets: where each copied line begins and the last one ends, counted from offsets[0].
        out: lines and their bytes; and the index of the line that is wanted.
    """
    lines = 0
    size = 0
    start = 0
    i = 0
    out[2] = -1
    while i <= n:
        c = NEWLINE
        if i < n:
            c = byte(text + i)
        if c == NEWLINE or c == RETURN:  # noqa: SIM109 - two comparisons
            if not all_blank(text, start, i):
                if lines == wanted:
                    out[2] = start
                    break
                if target != 0:
                    copy_bytes(text + start, target + size, i - start)
                    offsets[lines + 1] = offsets[0] + size + i - start
                size += i - start
                lines += 1
            start = i + 1
        i += 1
    out[0] = lines
    out[1] = size


@kernel
def cut_pieces(text: Addr, n: Int, least: Int, most: Int, offsets: PtrI64, out: PtrI64):
    """Cut a text into pieces of `least` bytes or a few more.

    A piece ends behind the next newline; where there is none before `most` bytes, in front of the next blank; else between characters.
    offsets[1], ... get the ends, counted from offsets[0]; out[0] the number of pieces.
    """
    pieces = 0
    start = 0
    while start < n:
        end = n
        if n - start > least:
            last = min(n, start + most)
            end = -1
            for i in range(start + least, last):
                if byte(text + i - 1) == NEWLINE:
                    end = i
                    break
            if end < 0:
                for i in range(start + least, last):
                    if is_blank(byte(text + i)):
                        end = i
                        break
            if end < 0:
                end = last
                while end < n and byte(text + end) & 0xC0 == 0x80:
                    end += 1
        pieces += 1
        offsets[pieces] = offsets[0] + end
        start = end
    out[0] = pieces
