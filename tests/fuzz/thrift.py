"""Thrift's compact protocol, as a tree that can be changed and written again: what Parquet's metadata are written in.

Source:
    Apache Thrift, "Thrift compact protocol encoding".
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
#: Fields of a struct: [number, type, value]; of a list: [type, values] in a tuple.
Tree = list[list[Any]]


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _number(data, at)
    return value >> 1 ^ -(value & 1), at


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _BYTE:
        return data[at], at + 1
    if kind in (_I16, _I32, _I64):
        return _signed(data, at)
    if kind == _DOUBLE:
        return data[at : at + 8], at + 8
    if kind == _BINARY:
        size, at = _number(data, at)
        return data[at : at + size], at + size
    if kind in (_LIST, _SET):
        head, at = data[at], at + 1
        size, inner = head >> 4, head & 15
        if size == 15:
            size, at = _number(data, at)
        values = []
        for _ in range(size):
            each, at = (data[at] == 1, at + 1) if inner in (_TRUE, _FALSE) else _value(data, at, inner)
            values.append(each)
        return (inner, values), at
    if kind == _STRUCT:
        return read(data, at)
    raise ValueError(f"type {kind}")


def read(data: bytes, at: int = 0) -> tuple[Tree, int]:
    """Return a struct and where it ends."""
    found: Tree = []
    last = 0
    while data[at]:
        head, at = data[at], at + 1
        if head >> 4:
            last += head >> 4
        else:
            last, at = _signed(data, at)
        value, at = _value(data, at, head & 15)
        found.append([last, head & 15, value])
    return found, at + 1


def _written(value: int) -> bytes:
    value &= (1 << 70) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _of(kind: int, value: Any) -> bytes:
    if kind in (_TRUE, _FALSE):
        return b""
    if kind == _BYTE:
        return bytes([value & 0xFF])
    if kind in (_I16, _I32, _I64):
        return _written(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == _DOUBLE:
        return bytes(value)
    if kind == _BINARY:
        return _written(len(value)) + value
    if kind in (_LIST, _SET):
        inner, values = value
        head = bytes([len(values) << 4 | inner]) if len(values) < 15 else bytes([0xF0 | inner]) + _written(len(values))
        return head + b"".join(bytes([1 if v else 2]) if inner in (_TRUE, _FALSE) else _of(inner, v) for v in values)
    return write(value)


def write(tree: Tree) -> bytes:
    """Return a struct as bytes."""
    out, last = b"", 0
    for number, kind, value in tree:
        kind = (_TRUE if value else _FALSE) if kind in (_TRUE, _FALSE) else kind
        step = number - last
        out += (bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _of(_I16, number)) + _of(kind, value)
        last = number
    return out + b"\0"


def leaves(tree: Tree, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the numbers of the fields that lead to a value, and the value."""
    for number, kind, value in tree:
        if kind == _STRUCT:
            yield from leaves(value, (*path, number))
        elif kind in (_LIST, _SET):
            for each in value[1]:
                if value[0] == _STRUCT:
                    yield from leaves(each, (*path, number))
                else:
                    yield (*path, number), each
        else:
            yield (*path, number), value


def change(tree: Tree, draw: random.Random, numbers: tuple[int, ...]) -> None:  # noqa: C901 - one case per type
    """Change one field, somewhere in a struct: its value, or that it is there."""
    structs = [tree]
    for each in structs:
        for _, kind, value in each:
            if kind == _STRUCT:
                structs.append(value)
            elif kind in (_LIST, _SET) and value[0] == _STRUCT:
                structs += value[1]
    inside = draw.choice([each for each in structs if each] or [tree])
    if not inside:
        return
    at = draw.randrange(len(inside))
    kind, value = inside[at][1:]
    how = draw.randrange(8)
    if how == 0:
        del inside[at]
    elif kind in (_TRUE, _FALSE):
        inside[at][2] = not value
    elif kind in (_BYTE, _I16, _I32, _I64):
        inside[at][2] = draw.choice((*numbers, value + 1, value - 1, draw.randrange(12)))
    elif kind == _BINARY:
        inside[at][2] = draw.choice((b"", value[:-1], value + b"\xff", value * 2, draw.randbytes(len(value))))
    elif kind in (_LIST, _SET) and value[1]:
        inside[at][2] = (value[0], draw.choice((value[1][:-1], value[1] * 2, value[1][::-1], [])))
