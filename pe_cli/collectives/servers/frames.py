"""Messages between trainers and servers: a header of text and arrays, each with its size announced before it is read.

A frame is `PEPS`, four bytes of the header's length, eight of the arrays' bytes, the header as JSON, and the arrays one after the other.
Nothing in it is run. What arrives is checked before memory is taken for it: kinds, facts, names, element types, shapes and sizes.
"""

from __future__ import annotations

import json
import math
import reprlib
import socket
import struct
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]
MAGIC = b"PEPS"
_HEAD = struct.Struct("<4sIQ")
#: Bytes of a header, arrays of a frame, axes of an array, and characters of a name, at most.
MOST_HEADER, MOST_ARRAYS, MOST_AXES, MOST_NAME = 1 << 22, 1 << 16, 16, 1024
#: Elements that an array may have along its axes of other lengths than 0, and levels of lists and mappings in a fact, at most.
MOST_ELEMENTS, MOST_LEVELS = 1 << 40, 4
#: Element types that are sent, little-endian.
TYPES = {name: np.dtype(name).newbyteorder("<") for name in ("float32", "float64", "int32", "int64", "uint8", "bool")}
#: What a message may be about; `alive` and `wait` say that the sender is still there.
KINDS = frozenset(
    "hello push barrier pull rows count gather post epoch run state load save read fail leave alive wait done values error".split()  # noqa: SIM905
)


class FrameError(PeError):
    """What came is no message, or one that is larger than agreed."""


@dataclass(frozen=True)
class Message:
    """A message.

    Args:
        kind: one of `KINDS`.
        facts: whole numbers of 64 bits and texts by name, and lists and mappings of them.
        arrays: by name.
    """

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """Return a whole number.

        Raises:
            FrameError: it is not there, or something else.
        """
        value = self.facts.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise FrameError(f"message {self.kind}: {name} must be a whole number, got {reprlib.repr(value)}")
        return value

    def text(self, name: str) -> str:
        """Return a text.

        Raises:
            FrameError: it is not there, or something else.
        """
        value = self.facts.get(name)
        if not isinstance(value, str):
            raise FrameError(f"message {self.kind}: {name} must be a text, got {reprlib.repr(value)}")
        return value

    def folder(self, name: str) -> Path:
        """Return the path of a folder.

        Raises:
            FrameError: it is not there, or no path.
        """
        value = self.text(name)
        if "\0" in value:
            raise FrameError(f"message {self.kind}: {name} holds a NUL character, which no path can")
        return Path(value)

    def names(self, name: str) -> list[str]:
        """Return a list of texts.

        Raises:
            FrameError: it is not there, or something else.
        """
        value = self.facts.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise FrameError(f"message {self.kind}: {name} must be a list of texts")
        return value


def write(to: socket.socket, message: Message) -> None:
    """Send a message."""
    arrays = {name: np.asarray(a, order="C") for name, a in message.arrays.items()}
    listed = [[name, a.dtype.name, list(a.shape)] for name, a in arrays.items()]
    header = json.dumps([message.kind, dict(message.facts), listed]).encode()
    size = sum(a.nbytes for a in arrays.values())
    to.sendall(_HEAD.pack(MAGIC, len(header), size) + header)
    for a in arrays.values():
        if a.nbytes:
            to.sendall(_bytes_of(a.astype(TYPES[a.dtype.name], copy=False)))


def read(source: socket.socket, most: int) -> Message:
    """Receive a message.

    Args:
        most: bytes of all arrays, at most.

    Raises:
        FrameError: what came is none.
        EOFError: the other end has closed, before or inside a message.
    """
    magic, length, size = _HEAD.unpack(_bytes(source, _HEAD.size))
    if magic != MAGIC:
        raise FrameError("what came over the network is no message of a trainer or server", hint="look at hosts and ports")
    if length > MOST_HEADER or size > most:
        raise FrameError(f"a message of {length + size} bytes is larger than the {most} that are expected")
    kind, facts, listed = _header(bytes(_bytes(source, length)))
    kinds = [_array_type(each) for each in listed]
    if len({name for name, _, _ in kinds}) < len(kinds):
        raise FrameError(f"message {kind} has two arrays of one name")
    if sum(math.prod(shape) * TYPES[dtype].itemsize for _, dtype, shape in kinds) != size:
        raise FrameError(f"message {kind} has arrays that are not as large as it says")
    return Message(kind, facts, {name: _read_array(source, dtype, shape) for name, dtype, shape in kinds})


def _header(text: bytes) -> tuple[str, dict[str, Any], list[Any]]:
    try:
        kind, facts, listed = json.loads(text)
    except (ValueError, TypeError, RecursionError):  # a ValueError, too, where a number has thousands of digits
        raise FrameError("the header of a message is no JSON of three parts") from None
    if not isinstance(kind, str) or kind not in KINDS or not isinstance(facts, dict) or not isinstance(listed, list):
        raise FrameError(f"the header of a message has an unknown kind {reprlib.repr(kind)} or parts of other types")
    if len(listed) > MOST_ARRAYS:
        raise FrameError(f"message {kind} has {len(listed)} arrays, at most {MOST_ARRAYS} are allowed")
    wrong = next((name for name, fact in facts.items() if not _is_fact(fact, MOST_LEVELS)), None)
    if wrong is not None:
        raise FrameError(f"message {kind}: {reprlib.repr(wrong)} holds something else than whole numbers of 64 bits and texts")
    return kind, facts, listed


def _is_fact(found: object, levels: int) -> bool:
    if isinstance(found, list | dict):
        return levels > 0 and all(_is_fact(each, levels - 1) for each in (found.values() if isinstance(found, dict) else found))
    return isinstance(found, str) or (type(found) is int and -(1 << 63) <= found < 1 << 63)


def _array_type(found: Any) -> tuple[str, str, tuple[int, ...]]:
    fits = isinstance(found, list) and len(found) == 3
    name, dtype, shape = found if fits else (None, None, None)
    if not isinstance(name, str) or len(name) > MOST_NAME or not isinstance(dtype, str) or dtype not in TYPES:
        raise FrameError(f"an array of a message has no name, or no known type: {reprlib.repr(found)}")
    sizes = shape if isinstance(shape, list) and len(shape) <= MOST_AXES else [None]
    if not all(type(s) is int and s >= 0 for s in sizes) or math.prod(s for s in sizes if s) > MOST_ELEMENTS:
        raise FrameError(f"array {reprlib.repr(name)} of a message has no shape: {reprlib.repr(shape)}")
    return name, dtype, tuple(sizes)


def _read_array(source: socket.socket, dtype: str, shape: tuple[int, ...]) -> Array:
    made = np.empty(shape, TYPES[dtype])
    if made.nbytes:
        _fill(source, _bytes_of(made))
    return made.astype(dtype, copy=False)


def _bytes_of(a: Array) -> memoryview:
    """Return the bytes of an array without a copy."""
    found: Any = a.reshape(-1).view(np.uint8)
    return memoryview(found)


def _bytes(source: socket.socket, count: int) -> bytearray:
    made = bytearray(count)
    _fill(source, memoryview(made))
    return made


def _fill(source: socket.socket, room: memoryview) -> None:
    at = 0
    while at < len(room):
        got = source.recv_into(room[at:])
        if not got:
            raise EOFError
        at += got
