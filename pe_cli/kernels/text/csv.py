"""Tables of text with a delimiter, RFC 4180: where rows begin, and what their cells hold.

A window of a file lies in a buffer that has `SLACK` bytes behind it. Blanks around a cell are no part of it; a cell that begins with a
quote ends with one, and holds delimiters, ends of lines and doubled quotes; lines of blanks alone are left out.
"""

from __future__ import annotations

import math

from pe_cli.kernels.language import (
    Addr,
    Int,
    PtrI64,
    helper,
    kernel,
    pointer_f64,
    pointer_i32,
    pointer_i64,
)
from pe_cli.kernels.notation import rewrite_number
from pe_cli.kernels.text.characters import (
    BLOCK,
    QUOTE,
    all_blank,
    byte,
    copy_bytes,
    find_odd,
    find_special,
    find_zero,
    is_blank,
    lowest_bit,
    put_byte,
    same_bytes,
    trim,
)
from pe_cli.kernels.text.decimal import HARD, NO_NUMBER, READ, read_decimal
from pe_cli.kernels.text.distinct_texts import COUNT, MOST, code_of

#: Words of a scan. All offsets are in the file.
(
    AT,  #      of the window's first byte
    ROWS,  #    rows that have ended
    CELLS,  #   cells of the row at hand that have ended
    WIDTH,  #   cells of the first row; 0 before it
    QUOTED,  #  1 inside quotes, 2 behind the closing one, else 0
    TOUCH,  #   whether the closing quote was the last byte of the window before
    EMPTY,  #   whether the cell at hand had blanks only, in the windows before
    OPEN,  #    offset of the last opening quote
    ROW,  #     offset of the row at hand
    BLOCKS,  #  blocks that have begun
    HIGH,  #    whether a byte is no ASCII
    ENOUGH,  #  rows after which to stop
    WHY,  #     what ended the scan, of those below
    PLACE,  #   offset of that
    FOUND,  #   cells of a row with another number of cells
    SCAN,
) = range(16)
#: Why a scan or a pass ended.
DONE, RAGGED, NUL, BEHIND_QUOTE, FULL, CHANGED = range(6)
#: A block of rows ends after this many rows or bytes, whichever comes first.
BLOCK_ROWS, BLOCK_BYTES = 256, 1 << 20


@helper
def _behind_blanks(text, start, end):
    """Return the index of the first byte that is no blank; end where there is none."""
    while start < end and is_blank(byte(text + start)):
        start += 1
    return start


@kernel
def find_rows(text: Addr, n: Int, delimiter: Int, state: PtrI64, blocks: PtrI64):  # noqa: C901, PLR0912, PLR0915 - one machine of states
    """Find the rows of a window: count them, compare their numbers of cells, and write down (row, offset) of every block of rows.

    `blocks` has room for n // (2 * BLOCK_ROWS) + n // BLOCK_BYTES + 1 more.
    """
    at = state[AT]
    start = 0
    empty = state[EMPTY]
    quoted = state[QUOTED]
    touch = state[TOUCH]
    after = 0
    cells = state[CELLS]
    for base in range(0, n, BLOCK):
        mask = find_special(text + base, delimiter)
        odd = find_odd(text + base)
        # bytes behind the window's end are readable and meaningless: their bits are cleared
        if n - base < BLOCK:
            inside = (1 << (n - base)) - 1
            mask &= inside
            odd &= inside
        if odd != 0:
            zeros = find_zero(text + base) & odd
            if zeros != 0:
                state[WHY] = NUL
                state[PLACE] = at + base + lowest_bit(zeros)
                return
            state[HIGH] = 1
        while mask != 0:
            p = base + lowest_bit(mask)
            mask &= mask - 1  # clears the lowest bit, which is the byte at hand
            c = byte(text + p)
            if quoted == 1:
                if c == QUOTE:
                    quoted = 2
                    after = p + 1
                    touch = 1
                continue
            if quoted == 2:
                # a quote right behind a closing one is an escaped quote, also where the window ended between the two
                if c == QUOTE and p == after and touch == 1:
                    quoted = 1
                    continue
                if c == QUOTE or not all_blank(text, after, p):
                    state[WHY] = BEHIND_QUOTE
                    state[PLACE] = at + _behind_blanks(text, after, p)
                    return
            elif c == QUOTE:
                if empty == 1 and all_blank(text, start, p):
                    quoted = 1
                    state[OPEN] = at + p
                continue
            if c == delimiter:
                cells += 1
            else:
                if cells > 0 or quoted == 2 or empty == 0 or not all_blank(text, start, p):
                    if state[WIDTH] == 0:
                        state[WIDTH] = cells + 1
                    if cells + 1 != state[WIDTH]:
                        state[WHY] = RAGGED
                        state[PLACE] = state[ROW]
                        state[FOUND] = cells + 1
                        return
                    state[ROWS] += 1
                    last = 2 * (state[BLOCKS] - 1)
                    if state[ROWS] - blocks[last] >= BLOCK_ROWS or at + p + 1 - blocks[last + 1] >= BLOCK_BYTES:
                        blocks[last + 2] = state[ROWS]
                        blocks[last + 3] = at + p + 1
                        state[BLOCKS] += 1
                cells = 0
                state[ROW] = at + p + 1
                if state[ROWS] == state[ENOUGH]:
                    state[WHY] = FULL
                    return
            start = p + 1
            empty = 1
            quoted = 0
    if quoted == 2 and after < n:
        if not all_blank(text, after, n):
            state[WHY] = BEHIND_QUOTE
            state[PLACE] = at + _behind_blanks(text, after, n)
            return
        touch = 0
    if empty == 1 and quoted == 0 and not all_blank(text, start, n):
        empty = 0
    state[CELLS], state[QUOTED], state[TOUCH], state[EMPTY] = cells, quoted, touch, empty


@helper
def _sequence(text, i):
    """Return how many bytes the character at i has in UTF-8; 0 where there is none."""
    c = byte(text + i)
    second = byte(text + i + 1)
    if 0xC2 <= c <= 0xDF:
        return 2 if second & 0xC0 == 0x80 else 0
    third = byte(text + i + 2)
    if second & 0xC0 != 0x80 or third & 0xC0 != 0x80:
        return 0
    if 0xE0 <= c <= 0xEF:
        overlong, surrogate = c == 0xE0 and second < 0xA0, c == 0xED and second >= 0xA0
        return 0 if overlong or surrogate else 3
    if 0xF0 <= c <= 0xF4 and byte(text + i + 3) & 0xC0 == 0x80:
        overlong, beyond = c == 0xF0 and second < 0x90, c == 0xF4 and second >= 0x90
        return 0 if overlong or beyond else 4
    return 0


@kernel
def check_utf8(text: Addr, n: Int, out: PtrI64):
    """Write the index of the first byte that is not UTF-8; -1 where all are."""
    i = 0
    while i < n:
        mask = find_odd(text + i)
        if mask == 0:
            i += BLOCK
            continue
        i += lowest_bit(mask)
        while i < n and byte(text + i) >= 0x80:
            size = _sequence(text, i)
            if size == 0 or i + size > n:
                out[0] = i
                return
            i += size
        if i < n and byte(text + i) == 0:
            i += 1
    out[0] = -1


#: How a column is read: not at all, as float64, as codes of words; and texts in two passes: their lengths, then their bytes.
SKIP, NUMBER, CODE, LENGTH, COPY = range(5)
#: Words of a column: how; address of what is written; address of its table of words, of the offsets of its texts, or of the notation of
#: its numbers (0: as programs write them); number of rows whose cell is no number, and the first of them.
KIND, OUT, ASIDE, BAD, FIRST_BAD = 0, 1, 2, 3, 4
SHOWN = 5
COLUMN = FIRST_BAD + SHOWN
#: Words of a pass: index of the next row's first byte; its row; rows from which and before which to write; row of the first value that
#: is written; entries of `later` that are in use, and of all; why it ended.
POS, NEXT, FROM, STOP, SHIFT, LATER, LATER_MOST, ENDED, PASS = range(9)
#: Words of an entry of `later`: column, row, start and length of a number that Python must read.
LATER_WORDS = 4


@helper
def _next_special(text, n, delimiter, base, mask):
    """Return the next special byte's index, n + 1 where there is none; and the block and mask after it."""
    while mask == 0:
        base += BLOCK
        if base > n:
            return n + 1, base, mask
        mask = find_special(text + base, delimiter)
    return base + lowest_bit(mask), base, mask & (mask - 1)


@helper
def _is_missing(at, length, missing, ends, count):
    """Return whether a text is one of those that count as missing."""
    if length == 0:
        return True
    for k in range(count):  # noqa: SIM110 - kernels have no generators
        if ends[k + 1] - ends[k] == length and same_bytes(missing + ends[k], at, length):
            return True
    return False


@helper
def _read(text, start, end, notation, powers, scratch):
    """Read a number as programs write it, or of a notation; see `read_decimal`."""
    if notation == 0:
        return read_decimal(text, start, end, powers)
    length = rewrite_number(text, start, end, pointer_i64(notation), scratch)
    if length <= 0:
        return NO_NUMBER, 0.0
    put_byte(scratch + length, 0)
    return read_decimal(scratch, 0, length, powers)


@helper
def _number(text, start, end, column, plan, row, state, later, powers, missing, ends, count, scratch):
    """Read a cell as a number."""
    out = pointer_f64(plan[OUT])
    if start == end:
        out[row] = math.nan
        return
    found, value = _read(text, start, end, plan[ASIDE], powers, scratch)
    if found == READ:
        out[row] = value
        return
    out[row] = math.nan
    if found == HARD:
        k = LATER_WORDS * state[LATER]
        later[k], later[k + 1], later[k + 2], later[k + 3] = column, row, start, end - start
        state[LATER] += 1
    elif not _is_missing(text + start, end - start, missing, ends, count):
        if plan[BAD] < SHOWN:
            plan[FIRST_BAD + plan[BAD]] = row
        plan[BAD] += 1


@helper
def _unescape(text, start, end, scratch):
    """Copy a text with one quote for every two; return its length."""
    size = 0
    while start < end:
        c = byte(text + start)
        put_byte(scratch + size, c)
        size += 1
        start += 2 if c == QUOTE else 1
    return size


@helper
def _text(at, length, plan, row, missing, ends, count):
    """Read a cell as text; return whether its column's table has no room for another word."""
    kind = plan[KIND]
    if kind == CODE:
        table = pointer_i64(plan[ASIDE])
        pointer_i32(plan[OUT])[row] = code_of(table, at, length, row)
        return table[COUNT] >= table[MOST]
    if _is_missing(at, length, missing, ends, count):
        length = 0
    if kind == LENGTH:
        pointer_i64(plan[OUT])[row + 1] = length
    else:
        copy_bytes(at, plan[OUT] + pointer_i64(plan[ASIDE])[row], length)
    return False


@kernel(exact=True)
def read_cells(  # noqa: C901, PLR0912, PLR0915 - one loop over special bytes
    text: Addr,
    n: Int,
    delimiter: Int,
    columns: Int,
    plan_at: Addr,
    state: PtrI64,
    later: PtrI64,
    scratch: Addr,
    powers: PtrI64,
    missing: Addr,
    ends: PtrI64,
    count: Int,
):
    """Read cells of rows that `find_rows` has seen; end before a row that could need more room than there is.

    The byte at n is the end of a line. `scratch` has room for n bytes and `SLACK`.
    """
    base = state[POS]
    mask = find_special(text + base, delimiter)
    start = base
    full = False
    plan = pointer_i64(plan_at)
    while state[NEXT] < state[STOP]:
        if full or state[LATER] + columns > state[LATER_MOST]:
            state[ENDED] = FULL
            return
        column = 0
        counts = state[NEXT] >= state[FROM]
        row = state[NEXT] - state[SHIFT]
        while True:
            e, base, mask = _next_special(text, n, delimiter, base, mask)
            if e > n:
                state[ENDED] = CHANGED
                return
            c = byte(text + e)
            s = start
            t = e
            quoted = False
            escapes = 0
            if c == QUOTE:
                if not all_blank(text, start, e):
                    continue
                quoted = True
                s = e + 1
                while True:
                    e, base, mask = _next_special(text, n, delimiter, base, mask)
                    if e >= n:
                        state[ENDED] = CHANGED
                        return
                    if byte(text + e) == QUOTE:
                        if byte(text + e + 1) != QUOTE:
                            break
                        escapes += 1
                        e, base, mask = _next_special(text, n, delimiter, base, mask)
                t = e
                e, base, mask = _next_special(text, n, delimiter, base, mask)
                if e > n:
                    state[ENDED] = CHANGED
                    return
                c = byte(text + e)
            ends_row = c != delimiter
            start = e + 1
            if ends_row and column == 0 and not quoted and all_blank(text, s, t):
                continue
            if column < columns and counts and plan[COLUMN * column] != SKIP:
                s, t = trim(text, s, t)
                mine = pointer_i64(plan_at + 8 * COLUMN * column)
                if plan[COLUMN * column + KIND] == NUMBER:
                    _number(text, s, t, column, mine, row, state, later, powers, missing, ends, count, scratch)
                elif escapes > 0:
                    size = _unescape(text, s, t, scratch)
                    full |= _text(scratch, size, mine, row, missing, ends, count)
                else:
                    full |= _text(text + s, t - s, mine, row, missing, ends, count)
            column += 1
            if ends_row:
                break
        if column != columns:
            state[ENDED] = CHANGED
            return
        state[NEXT] += 1
        state[POS] = start
    state[ENDED] = DONE
