"""Messages of protobuf as bytes: fields are numbers, texts and further messages; nothing is made that is larger than the file.

Source:
    "Encoding", Protocol Buffers documentation: a key is (field number << 3 | wire type); types are 0 varint, 1 eight bytes,
    2 length-delimited and 5 four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, EIGHT, DELIMITED, FOUR = 0, 1, 2, 5
#: A field's number, its wire type and its value: a whole number without a sign, or the bytes inside.
Field = tuple[int, int, "int | memoryview"]


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a whole number of at most 64 bits, and the place behind it.

    Raises:
        ValueError: it is cut off or too long.
    """
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(message):
            raise ValueError("a message is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number of a message is too long")


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message in their order.

    Raises:
        ValueError: it is cut off or no message.
    """
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        value: int | memoryview
        if kind == VARINT:
            value, at = varint(message, at)
        elif kind in (DELIMITED, EIGHT, FOUR):
            size = 8 if kind == EIGHT else 4
            if kind == DELIMITED:
                size, at = varint(message, at)
            if size > len(message) - at:
                raise ValueError("a message is cut off")
            value, at = message[at : at + size], at + size
        else:
            raise ValueError(f"a message has the wire type {kind}")
        if not number:
            raise ValueError("a message has the field 0")
        yield number, kind, value


def signed(value: int) -> int:
    """Return a whole number whose two's complement a varint holds."""
    return value - (1 << 64) if value >= 1 << 63 else value


def last_whole(kind: int, value: int | memoryview) -> int:
    """Return the whole number of a field that has one: of several the last, as protobuf reads it.

    Raises:
        ValueError: it holds none, or something else.
    """
    found = whole(kind, value)
    if not found:
        raise ValueError("a field holds no whole number")
    return found[-1]


def whole(kind: int, value: int | memoryview) -> list[int]:
    """Return the whole numbers of a field: one, or several in one piece.

    Raises:
        ValueError: it holds something else.
    """
    if isinstance(value, int):
        return [signed(value)]
    if kind != DELIMITED:
        raise ValueError("a field holds no whole number")
    found, at = [], 0
    while at < len(value):
        one, at = varint(value, at)
        found.append(signed(one))
    return found


def floats(kind: int, value: int | memoryview) -> list[float]:
    """Return the float32 numbers of a field: one, or several in one piece.

    Raises:
        ValueError: it holds something else.
    """
    if isinstance(value, int) or kind == EIGHT or len(value) % 4:
        raise ValueError("a field holds no float")
    return list(struct.unpack(f"<{len(value) // 4}f", value))


def inside(kind: int, value: int | memoryview) -> memoryview:
    """Return the bytes of a field that holds a message or a text.

    Raises:
        ValueError: it holds something else.
    """
    if isinstance(value, int) or kind != DELIMITED:
        raise ValueError("a field holds no message")
    return value


def text(kind: int, value: int | memoryview) -> str:
    """Return the text of a field.

    Raises:
        ValueError: it holds something else, or no UTF-8.
    """
    return bytes(inside(kind, value)).decode()


# --- writing --------------------------------------------------------------------------------------------------------


def of_varint(value: int) -> bytes:
    """Return a whole number from -2^63 to 2^64 - 1 as a varint."""
    value &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def of_whole(number: int, value: int) -> bytes:
    """Return a field with a whole number."""
    return of_varint(number << 3) + of_varint(value)


def of_float(number: int, value: float) -> bytes:
    """Return a field with a float32 number."""
    return of_varint(number << 3 | FOUR) + struct.pack("<f", value)


def of_bytes(number: int, value: bytes | str) -> bytes:
    """Return a field with a text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return of_varint(number << 3 | DELIMITED) + of_varint(len(data)) + data
