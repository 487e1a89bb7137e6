"""Reads Parquet's metadata, in Thrift's compact protocol, as numbers, bytes, lists and dicts.

pyarrow's own objects for them end the process where some fields do not fit each other, and headers of pages it does not show at all.

Source:
    Apache Thrift, "Thrift compact protocol encoding".
"""

from __future__ import annotations

from typing import Any

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
#: Levels of structs and lists in each other; Parquet's have seven.
_DEEPEST = 16

#: Number of a field -> its value.
Fields = dict[int, Any]


def fields(data: bytes, at: int = 0, level: int = 0) -> tuple[Fields, int]:
    """Return the fields of a struct, and where it ends.

    Args:
        data: that it stands in.
        at: where it begins.
        level: structs and lists around it.

    Raises:
        ValueError: it is none.
        IndexError: it goes on behind the data.
    """
    # Recursion is bounded by hand, because a file may nest as deep as it likes.
    if level > _DEEPEST:
        raise ValueError("its metadata have too many levels")
    found: Fields = {}
    number = 0
    while data[at]:
        head, at = data[at], at + 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        found[number], at = _value(data, at, head & 15, level)
    return found, at + 1


def length(data: bytes, number: int) -> int:
    """Return how many elements a list among the fields of a struct has, 0 where it is not there; the list itself is not read.

    Raises:
        ValueError: what stands before it is no field.
        IndexError: it stands behind the data.
    """
    at = last = 0
    while data[at]:
        head, at = data[at], at + 1
        last, at = (last + (head >> 4), at) if head >> 4 else _signed(data, at)
        if last == number and head & 15 in (_LIST, _SET):
            return _length(data, at)[0]
        _, at = _value(data, at, head & 15, 0)
    return 0


def _value(data: bytes, at: int, kind: int, level: int) -> tuple[Any, int]:
    if kind in (_I16, _I32, _I64):
        return _signed(data, at)
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _STRUCT:
        return fields(data, at, level + 1)
    if kind in (_LIST, _SET):
        return _list(data, at, level + 1)
    if kind == _BINARY:
        size, at = _number(data, at)
    elif kind in (_BYTE, _DOUBLE):
        size = 1 if kind == _BYTE else 8
    else:
        raise ValueError(f"its metadata have a field of the type {kind}")
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _list(data: bytes, at: int, level: int) -> tuple[list[Any], int]:
    if level > _DEEPEST:
        raise ValueError("its metadata have too many levels")
    kind = data[at] & 15
    count, at = _length(data, at)
    # Counted before anything is made: a list may claim any length.
    if count > len(data) - at:
        raise IndexError  # an element has a byte at least
    found = []
    for _ in range(count):
        value, at = (data[at] == _TRUE, at + 1) if kind in (_TRUE, _FALSE) else _value(data, at, kind, level)
        found.append(value)
    return found, at


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of elements of a list, and where the first one begins."""
    count = data[at] >> 4
    return _number(data, at + 1) if count == 15 else (count, at + 1)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    # Ten groups of seven bits are what 64 need.
    while shift < 70:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("its metadata have a number of more than ten bytes")


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _number(data, at)
    return value >> 1 ^ -(value & 1), at
