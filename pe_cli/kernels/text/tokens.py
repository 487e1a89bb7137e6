"""Tokenization kernels: cut texts into pieces, and map pieces to ids.

Texts are valid UTF-8 and lie one after the other in a buffer with `SLACK` bytes behind it. `classes` is a table of the code points
below `LIMIT`: in an entry, the lower bits are the kind, the others the code point in lower case.
"""

from __future__ import annotations

from pe_cli.kernels.language import Addr, Int, PtrI32, PtrI64, helper, kernel, pointer_i32, pointer_i64
from pe_cli.kernels.text.characters import BLOCK, byte, copy_bytes, find_zero, lowest_bit, put_byte, same_bytes
from pe_cli.kernels.text.distinct_texts import (
    BYTES,
    COUNT,
    ENTRIES,
    ENTRY,
    HASH,
    KEY,
    LENGTH,
    MASK,
    MOST,
    SLOTS,
    START,
    USED,
    code_of,
    hash_bytes,
)

#: Code points from here on are unassigned, but for planes of private use and the marks below.
LIMIT = 0x40000
FIRST_MARK, LAST_MARK = 0xE0100, 0xE01EF
#: Kinds of characters: symbols, letters, marks and connectors, decimal digits and letter-like numbers, other numbers, blanks.
OTHER, LETTER, MARK, DIGIT, NUMBER, BLANK = range(6)
KIND_BITS = 3
KIND = (1 << KIND_BITS) - 1
#: A letter whose lower case is two characters, i and a dot above.
DOTTED_I, DOT_ABOVE = 0x130, 0x307
#: How a text is cut: words and runs of symbols without blanks, or pieces of bytes with all of it.
WORDS, BYTES_OF_PAIRS = range(2)
#: Ids that mean the same for all tokenizers that are learned here.
PADDING, UNKNOWN = 0, 1
#: Letters after an apostrophe that belong to it.
_S, _T, _R, _E, _V, _M, _L, _D = b"strevmld"
APOSTROPHE, SPACE = 39, 32


@helper
def code_point(text, i):
    """Return the character at i, and its bytes."""
    c = byte(text + i)
    if c < 0x80:
        return c, 1
    second = byte(text + i + 1) & 0x3F
    if c < 0xE0:
        return (c & 0x1F) << 6 | second, 2
    third = byte(text + i + 2) & 0x3F
    if c < 0xF0:
        return (c & 0x0F) << 12 | second << 6 | third, 3
    return (c & 0x07) << 18 | second << 12 | third << 6 | (byte(text + i + 3) & 0x3F), 4


@helper
def kind_of(text, i, classes):
    """Return the kind of the character at i, and its bytes."""
    c = byte(text + i)
    if c < 0x80:
        return classes[c] & KIND, 1
    point, size = code_point(text, i)
    if point < LIMIT:
        return classes[point] & KIND, size
    return (MARK if FIRST_MARK <= point <= LAST_MARK else OTHER), size


@helper
def _next_word(text, i, end, classes):
    """Return start and end of the next word: a run of letters, marks and digits, or of symbols; both are `end` where there is none."""
    kind, size = BLANK, 0
    while i < end:
        kind, size = kind_of(text, i, classes)
        if kind != BLANK:
            break
        i += size
    start = i
    if i >= end:
        return end, end
    word = LETTER <= kind <= DIGIT
    i += size
    while i < end:
        kind, size = kind_of(text, i, classes)
        if kind == BLANK or (LETTER <= kind <= DIGIT) != word:
            break
        i += size
    return start, i


@helper
def _contraction(text, i, end):
    """Return the bytes of 's, 't, 're, 've, 'm, 'll or 'd at i; 0 where there is none."""
    if byte(text + i) != APOSTROPHE or i + 1 >= end:
        return 0
    c = byte(text + i + 1)
    if c in (_S, _T, _M, _D):
        return 2
    if i + 2 >= end:
        return 0
    d = byte(text + i + 2)
    if (c in (_R, _V) and d == _E) or (c == _L and d == _L):
        return 3
    return 0


@helper
def _group(kind):
    """Return what a piece of bytes runs over: letters, numbers, blanks, or the rest."""
    if kind in (LETTER, BLANK):
        return kind
    return DIGIT if kind in (DIGIT, NUMBER) else OTHER


@helper
def _next_bytes(text, i, end, classes):
    """Return start and end of the next piece of byte pairs, as GPT-2's pattern cuts them; both are `end` where there is none.

    's|'t|'re|'ve|'m|'ll|'d| ?letters| ?numbers| ?others|blanks that no text follows|blanks
    """
    start = i
    if i >= end:
        return end, end
    short = _contraction(text, i, end)
    if short > 0:
        return start, i + short
    kind, size = kind_of(text, i, classes)
    if byte(text + i) == SPACE and i + 1 < end:
        behind, size_behind = kind_of(text, i + 1, classes)
        if behind != BLANK:
            i += 1
            kind, size = behind, size_behind
    group = _group(kind)
    last = i
    i += size
    while i < end:
        kind, size = kind_of(text, i, classes)
        if _group(kind) != group:
            break
        last = i
        i += size
    if group == BLANK and i < end and last > start:
        # the last blank goes with what follows it
        return start, last
    return start, i


@helper
def next_piece(rule, text, i, end, classes):
    """Return start and end of the next piece of a text; both are `end` where there is none."""
    if rule == WORDS:
        return _next_word(text, i, end, classes)
    return _next_bytes(text, i, end, classes)


@helper
def index_of(table, at, length):
    """Return the index of a text in a table; -1 where it is not in it."""
    slots, entries = pointer_i32(table[SLOTS]), pointer_i64(table[ENTRIES])
    found = hash_bytes(at, length, table[KEY])
    slot = found & table[MASK]
    while slots[slot] != 0:
        e = ENTRY * (slots[slot] - 1)
        if entries[e + HASH] == found and entries[e + LENGTH] == length and same_bytes(table[BYTES] + entries[e + START], at, length):
            return slots[slot] - 1
        slot = (slot + 1) & table[MASK]
    return -1


# --- texts ------------------------------------------------------------------------------------------------------------


@kernel
def gather_texts(source: Addr, offsets: PtrI64, rows: PtrI64, count: Int, target: Addr, ends: PtrI64):
    """Copy some texts one behind the other, and write where they begin and end: [count + 1]."""
    at = 0
    ends[0] = 0
    for k in range(count):
        row = rows[k]
        start = offsets[row]
        copy_bytes(source + start, target + at, offsets[row + 1] - start)
        at += offsets[row + 1] - start
        ends[k + 1] = at


@kernel
def find_nul(text: Addr, n: Int, out: PtrI64):
    """Write the index of the first byte that is 0; -1 where there is none. Up to 63 bytes behind the text are read."""
    out[0] = -1
    for base in range(0, n, BLOCK):
        mask = find_zero(text + base)
        if mask != 0:
            at = base + lowest_bit(mask)
            if at < n:
                out[0] = at
            return


@helper
def _put_point(target, at, point):
    """Write a character; return the index behind it."""
    if point < 0x80:
        put_byte(target + at, point)
        return at + 1
    if point < 0x800:
        put_byte(target + at, 0xC0 | point >> 6)
    elif point < 0x10000:
        put_byte(target + at, 0xE0 | point >> 12)
        at += 1
        put_byte(target + at, 0x80 | (point >> 6 & 0x3F))
    else:
        put_byte(target + at, 0xF0 | point >> 18)
        at += 1
        put_byte(target + at, 0x80 | (point >> 12 & 0x3F))
        at += 1
        put_byte(target + at, 0x80 | (point >> 6 & 0x3F))
    put_byte(target + at + 1, 0x80 | (point & 0x3F))
    return at + 2


@kernel
def lower_texts(text: Addr, offsets: PtrI64, count: Int, classes: PtrI32, target: Addr, ends: PtrI64):
    """Write texts in lower case, character by character; the target has room for half as many bytes again."""
    at = 0
    ends[0] = 0
    for k in range(count):
        i = offsets[k]
        end = offsets[k + 1]
        while i < end:
            c = byte(text + i)
            if c < 0x80:
                put_byte(target + at, classes[c] >> KIND_BITS)
                at += 1
                i += 1
                continue
            point, size = code_point(text, i)
            i += size
            if point == DOTTED_I:
                at = _put_point(target, _put_point(target, at, 105), DOT_ABOVE)
            else:
                at = _put_point(target, at, classes[point] >> KIND_BITS if point < LIMIT else point)
        ends[k + 1] = at


# --- counting ---------------------------------------------------------------------------------------------------------

#: Words of a count: text at hand, index in it, pieces in all, pieces that are too long to be counted, bytes that the table needs to go on.
TEXT, PLACE, TOTAL, TOO_LONG, NEEDS, COUNTING = range(6)


@kernel
def count_pieces(
    text: Addr,
    offsets: PtrI64,
    texts: Int,
    rule: Int,
    longest: Int,
    classes: PtrI32,
    table: PtrI64,
    room: Int,
    counts: PtrI64,
    state: PtrI64,
):
    """Count the pieces of texts; end before one that the table has no room for."""
    while state[TEXT] < texts:
        end = offsets[state[TEXT] + 1]
        i = state[PLACE]
        while True:
            start, stop = next_piece(rule, text, i, end, classes)
            length = stop - start
            if length == 0:
                break
            if length <= longest:
                if table[COUNT] >= table[MOST] or table[USED] + length > room:
                    state[PLACE] = i
                    state[NEEDS] = length
                    return
                counts[code_of(table, text + start, length, 0)] += 1
            else:
                state[TOO_LONG] += 1
            state[TOTAL] += 1
            i = stop
        state[TEXT] += 1
        state[PLACE] = end
    state[NEEDS] = 0


@kernel
def add_words(other: PtrI64, other_counts: PtrI64, table: PtrI64, room: Int, counts: PtrI64, state: PtrI64):
    """Add the counts of another table's words, from word `state[TEXT]` on; end before one that the table has no room for."""
    entries = pointer_i64(other[ENTRIES])
    while state[TEXT] < other[COUNT]:
        k = state[TEXT]
        length = entries[ENTRY * k + LENGTH]
        if table[COUNT] >= table[MOST] or table[USED] + length > room:
            state[NEEDS] = length
            return
        counts[code_of(table, other[BYTES] + entries[ENTRY * k + START], length, 0)] += other_counts[k]
        state[TEXT] += 1
    state[NEEDS] = 0


@kernel
def list_words(text: Addr, ends: PtrI64, count: Int, table: PtrI64):
    """Enter words into a table that has room for all of them."""
    for k in range(count):
        code_of(table, text + ends[k], ends[k + 1] - ends[k], 0)


@kernel
def count_points(text: Addr, n: Int, counts: PtrI64):
    """Count the characters of texts."""
    i = 0
    while i < n:
        point, size = code_point(text, i)
        counts[point] += 1
        i += size


# --- encoding ---------------------------------------------------------------------------------------------------------
# Kernels that encode write the ids of all texts, `filled` ids at least and `most` ids at most of each, and where they end; an id is
# written for `filled` where a text has none. They add up how many ids are unknown in unknown[0].


@kernel
def encode_words(
    text: Addr,
    offsets: PtrI64,
    texts: Int,
    classes: PtrI32,
    table: PtrI64,
    first: Int,
    filled: Int,
    most: Int,
    out: PtrI32,
    ends: PtrI64,
    unknown: PtrI64,
):
    """Look up the words of texts; word k of the table has the id `first + k`."""
    at = 0
    ends[0] = 0
    for k in range(texts):
        i = offsets[k]
        end = offsets[k + 1]
        begin = at
        while at - begin < most:
            start, stop = _next_word(text, i, end, classes)
            if stop == start:
                break
            found = index_of(table, text + start, stop - start)
            if found < 0:
                unknown[0] += 1
                out[at] = UNKNOWN
            else:
                out[at] = first + found
            at += 1
            i = stop
        while at - begin < filled:
            out[at] = PADDING
            at += 1
        ends[k + 1] = at


@kernel
def encode_points(
    text: Addr,
    offsets: PtrI64,
    texts: Int,
    ids: PtrI32,
    filled: Int,
    most: Int,
    out: PtrI32,
    ends: PtrI64,
    unknown: PtrI64,
):
    """Look up the characters of texts; ids has one for every code point."""
    at = 0
    ends[0] = 0
    for k in range(texts):
        i = offsets[k]
        end = offsets[k + 1]
        begin = at
        while i < end and at - begin < most:
            point, size = code_point(text, i)
            i += size
            found = ids[point]
            unknown[0] += found == UNKNOWN
            out[at] = found
            at += 1
        while at - begin < filled:
            out[at] = PADDING
            at += 1
        ends[k + 1] = at
