"""A hash table of distinct texts, each with the row of its first occurrence; the caller owns and grows its memory."""

from __future__ import annotations

from pe_cli.kernels.language import Int, PtrI32, PtrI64, helper, kernel, pointer_i32, pointer_i64
from pe_cli.kernels.text.characters import copy_bytes, eight_bytes, multiply_high, same_bytes

#: Words of a table: addresses of its slots, entries and bytes; slots - 1; entries; bytes in use; entries above which it is full;
#: and the key of its hash, odd.
SLOTS, ENTRIES, BYTES, MASK, COUNT, USED, MOST, KEY = range(8)
#: Words of an entry: hash, start and length of the text, and its first row.
HASH, START, LENGTH, ROW, ENTRY = 0, 1, 2, 3, 4


@helper
def hash_bytes(at, length, key):
    """Return the hash of a text; up to 7 bytes behind it are read."""
    found = length * 0x1E3779B97F4A7C15 + key
    i = 0
    while i < length:
        word = eight_bytes(at + i)
        if length - i < 8:
            word &= (1 << (8 * (length - i))) - 1
        word ^= found
        found = multiply_high(word, key) ^ (word * key)
        i += 8
    return found ^ (found >> 29)


@helper
def code_of(table, at, length, row):
    """Return the index of a text in a table, which takes it in where it is new.

    Args:
        table: int64 pointer to its words.
        at: address of the text.
        length: bytes; the table has room for so many, and for an entry.
        row: that it stands in.
    """
    slots, entries = pointer_i32(table[SLOTS]), pointer_i64(table[ENTRIES])
    found = hash_bytes(at, length, table[KEY])
    slot = found & table[MASK]
    while slots[slot] != 0:
        e = ENTRY * (slots[slot] - 1)
        if (
            entries[e + HASH] == found
            and entries[e + LENGTH] == length
            and same_bytes(table[BYTES] + entries[e + START], at, length)
        ):
            return slots[slot] - 1
        slot = (slot + 1) & table[MASK]
    e = ENTRY * table[COUNT]
    entries[e + HASH], entries[e + START], entries[e + LENGTH], entries[e + ROW] = found, table[USED], length, row
    copy_bytes(at, table[BYTES] + table[USED], length)
    table[USED] += length
    table[COUNT] += 1
    slots[slot] = table[COUNT]
    return table[COUNT] - 1


@kernel
def spread_words(entries: PtrI64, count: Int, slots: PtrI32, mask: Int):
    """Enter so many entries into slots that are all 0."""
    for k in range(count):
        slot = entries[ENTRY * k + HASH] & mask
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = k + 1
