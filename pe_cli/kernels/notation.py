"""Rewrites a number of a column's notation, such as 1.234,56 €, the way programs write numbers, for the kernels that parse tables.

The same as `pe_cli.data.notation.Notation.plain`, byte by byte.
"""

from __future__ import annotations

from pe_cli.kernels.language import helper
from pe_cli.kernels.text.characters import SPACE, byte, is_blank, put_byte, same_bytes

#: Words of a notation: sign before decimals; key of the signs between thousands, 0 where there are none; address and bytes of the unit.
DECIMAL, GROUP, UNIT, UNIT_SIZE, WORDS = range(5)
#: Bytes of a number at most, as `pe_cli.data.notation.LONGEST`.
LONGEST = 128
_MINUS, _PLUS, _POINT, _COMMA, _QUOTE, _OPEN, _CLOSE, _E, _SMALL_E = 45, 43, 46, 44, 39, 40, 41, 69, 101


@helper
def _wide(text, i, end):
    """Return the last two bytes of a character of three bytes that begins with 0xE2; 0 for another one."""
    if end - i >= 3 and byte(text + i) == 0xE2:
        return (byte(text + i + 1) << 8) | byte(text + i + 2)
    return 0


@helper
def _space(text, i, end):
    """Return the bytes of the space at i, one of those that do not end a line; 0 where there is none."""
    if i >= end:
        return 0
    if byte(text + i) == SPACE:
        return 1
    if end - i >= 2 and byte(text + i) == 0xC2 and byte(text + i + 1) == 0xA0:
        return 2
    wide = _wide(text, i, end)
    return 3 if wide == 0x80AF or wide == 0x8089 else 0


@helper
def _trim(text, i, end):
    """Return start and end of a text without blanks around it, wide ones among them."""
    while i < end:
        size = 1 if is_blank(byte(text + i)) else _space(text, i, end)
        if size == 0:
            break
        i += size
    while i < end:
        if is_blank(byte(text + end - 1)):
            end -= 1
        elif end - i >= 2 and byte(text + end - 1) == 0xA0 and _space(text, end - 2, end) == 2:
            end -= 2
        elif end - i >= 3 and _space(text, end - 3, end) == 3:
            end -= 3
        else:
            break
    return i, end


@helper
def _group(text, i, end, key):
    """Return the bytes of the sign between thousands at i; 0 where there is none."""
    if key == SPACE:
        return _space(text, i, end)
    if key != 0 and byte(text + i) == key:
        return 1
    return 3 if key == _QUOTE and _wide(text, i, end) == 0x8099 else 0


@helper
def _minus(text, i, end):
    """Return the bytes of the minus at i; 0 where there is none."""
    if i < end and byte(text + i) == _MINUS:
        return 1
    return 3 if _wide(text, i, end) == 0x8892 else 0


@helper
def rewrite_number(text, start, end, notation, out):  # noqa: C901, PLR0912, PLR0915 - the parts of a number one after the other
    """Write a number as -1234.5e6; return its bytes, -1 for what is no number of the notation for certain.

    What is written may still be no number: `read_decimal` says so.

    Args:
        text: address.
        start, end: of the cell in it.
        notation: pointer to its words.
        out: address, with room for a byte more than the cell has.
    """
    if end - start > LONGEST:
        return -1
    i, end = _trim(text, start, end)
    signs = 0
    minus = False
    if end - i >= 2 and byte(text + i) == _OPEN and byte(text + end - 1) == _CLOSE:
        signs = 1
        minus = True
        i, end = _trim(text, i + 1, end - 1)
    unit = False
    for _ in range(2):
        size = _minus(text, i, end)
        if size > 0:
            minus = True
        elif i < end and byte(text + i) == _PLUS:
            size = 1
        if size > 0:
            signs += 1
            i, end = _trim(text, i + size, end)
        size = notation[UNIT_SIZE]
        if not unit and 0 < size <= end - i and same_bytes(notation[UNIT], text + i, size):
            unit = True
            i, end = _trim(text, i + size, end)
        elif not unit:
            break
    size = 0
    if end - i > 1 and byte(text + end - 1) == _MINUS:
        size = 1
    elif end - i > 3 and _wide(text, end - 3, end) == 0x8892:
        size = 3
    if size > 0:
        signs += 1
        minus = True
        i, end = _trim(text, i, end - size)
    size = notation[UNIT_SIZE]
    if not unit and 0 < size < end - i and same_bytes(notation[UNIT], text + end - size, size):
        i, end = _trim(text, i, end - size)
    if signs > 1:
        return -1
    length = 0
    if minus:
        put_byte(out, _MINUS)
        length = 1
    groups = 0
    digits = 0
    zero = i < end and byte(text + i) == 48
    while i < end:
        c = byte(text + i)
        if 48 <= c <= 57:
            put_byte(out + length, c)
            length += 1
            digits += 1
            i += 1
            continue
        size = _group(text, i, end, notation[GROUP])
        if size == 0:
            break
        if digits == 0 or digits > 3 or zero or (groups > 0 and digits < 2):
            return -1
        groups += 1
        digits = 0
        i += size
    if groups > 0 and digits != 3:
        return -1
    if i < end:
        c = byte(text + i)
        if c == notation[DECIMAL]:
            c = _POINT
        elif c != _E and c != _SMALL_E:
            return -1
        put_byte(out + length, c)
        length += 1
        i += 1
    while i < end:
        put_byte(out + length, byte(text + i))
        length += 1
        i += 1
    return length
