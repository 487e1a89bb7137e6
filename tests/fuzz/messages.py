"""Messages between trainers and servers, changed as who knows their form would: the sizes may be right while what they are of is odd."""

from __future__ import annotations

import json
import math
import random
import socket
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.collectives.servers import frames
from pe_cli.collectives.servers.frames import Message

_HEAD = struct.Struct("<4sIQ")
_WIDTHS = {name: kind.itemsize for name, kind in frames.TYPES.items()}
SIZES = [0, 0, 1, 2, 3, 7, 255, 1 << 16, 1 << 31, 549755813888, 1 << 40, 1 << 62, 1 << 63, 1 << 64, 10**300, -1, -(1 << 63)]
ODD: list[Any] = [
    None, True, False, 1.0, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "a", "\0", "\ud800", "é\u202e", "x" * 2000, [], {}, [[]],
    [1, "a"], {"a": 1}, {"a": {"b": {"c": {"d": {"e": 1}}}}}, [[[[[[1]]]]]], *SIZES,
]  # fmt: skip
#: JSON that no value of Python is written as.
RAW = ["9" * 5000, "[" * 900 + "]" * 900, "[" * 100_000, '{"a":' * 900 + "1" + "}" * 900, "1e400", "-", '"\\ud800\\udc00"', "NaN", ""]


class Wire:
    """A socket whose other end has said all that it says."""

    def __init__(self, data: bytes = b"", most: int = 1 << 20) -> None:
        self._data, self._at, self._most = data, 0, most
        self.sent = b""

    def recv(self, count: int, flags: int = 0) -> bytes:
        """Return some bytes."""
        del flags
        found = self._data[self._at : self._at + min(count, self._most)]
        self._at += len(found)
        return found

    def recv_into(self, room: memoryview) -> int:
        """Read some bytes."""
        found = self.recv(len(room))
        room[: len(found)] = found
        return len(found)

    def sendall(self, data: bytes) -> None:
        """Keep some bytes."""
        self.sent += bytes(data)

    def settimeout(self, seconds: float) -> None:
        """Wait for nobody."""

    def as_socket(self) -> socket.socket:
        """Return the same, as what it stands for."""
        found: Any = self
        return found  # type: ignore[no-any-return]


def framed(message: Message) -> bytes:
    """Return the bytes of a message."""
    wire = Wire()
    frames.write(wire.as_socket(), message)
    return wire.sent


def wholes() -> list[bytes]:
    """Return messages of all forms."""
    a, rows = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([0, 2])
    return [
        framed(Message("hello", {"trainer": 0, "agrees": {"config": "0" * 64, "numpy": "2"}})),
        framed(Message("push", {}, {"w@GRAD": a, "t@GRAD": a.astype(np.float64), "t@GRAD@ROWS": rows})),
        framed(Message("pull", {"names": ["w", "b"]})),
        framed(Message("rows", {}, {"t": rows, "none": np.zeros((0, 5), np.int32)})),
        framed(Message("load", {"t": 1}, {"t": a, "w": np.ones((), np.float64), "flag": np.ones(3, bool)})),
        framed(Message("post", {"done": 3, "wishes": ["stop", "save"]})) + framed(Message("alive")),
        framed(Message("gather", {}, {"message": np.arange(9, dtype=np.uint8)})),
        framed(Message("values", {"seen": 1, "bad": [], "rows": {"t": ["t", 0, 4]}}, {"t": a})) + framed(Message("leave")),
        framed(Message("fail", {"message": "the loss is nan", "code": 4, "local": 0})),
        framed(Message("save", {"folder": "/runs/.draft", "names": ["t"]})),
    ]


def changed(data: bytes, draw: random.Random) -> bytes:
    """Return a message with one to three odd things in it."""
    _, length, _ = _HEAD.unpack(data[: _HEAD.size])
    header = json.loads(data[_HEAD.size : _HEAD.size + length])
    for _ in range(draw.randint(1, 3)):
        draw.choice([_kind, _fact, _fact, _array, _array, _shape, _shape, _shape, _twice, _parts])(header, draw)
    text = json.dumps(header)
    if draw.random() < 0.2:
        text = _raw(text, draw)
    size = _size(header)
    if size is None or draw.random() < 0.15:
        size = draw.choice([0, 1, 24, 1 << 16, (1 << 16) + 1, 1 << 40, (1 << 64) - 1])
    bytes_ = text.encode()
    said = len(bytes_) if draw.random() < 0.95 else draw.choice([0, 1, len(bytes_) + 1, 1 << 22, (1 << 22) + 1, (1 << 32) - 1])
    return _HEAD.pack(frames.MAGIC, said, size) + bytes_ + draw.randbytes(min(size, 1 << 16))


def _any(draw: random.Random) -> Any:
    return draw.choice(ODD)


def _kind(header: Any, draw: random.Random) -> None:
    if isinstance(header, list) and header:
        header[0] = draw.choice([*sorted(frames.KINDS), "exec", _any(draw)])


def _fact(header: Any, draw: random.Random) -> None:
    if isinstance(header, list) and len(header) > 1 and isinstance(header[1], dict):
        facts = header[1]
        facts[draw.choice([*facts, "trainer", "names", "x", "é", ""])] = _any(draw)


def _arrays(header: Any) -> list[Any]:
    found = header[2] if isinstance(header, list) and len(header) > 2 else []
    return found if isinstance(found, list) else []


def _array(header: Any, draw: random.Random) -> None:
    arrays = _arrays(header)
    new = [draw.choice(["a", "w", _any(draw)]), draw.choice([*_WIDTHS, "object", "float16", _any(draw)]), _axes(draw)]
    if arrays and draw.random() < 0.5:
        arrays[draw.randrange(len(arrays))] = draw.choice([new, new[:2], [*new, 1], _any(draw)])
    else:
        arrays.append(new)


def _axes(draw: random.Random) -> list[Any]:
    count = draw.choice([0, 1, 2, 3, 15, 16, 17])
    return [draw.choice(SIZES if draw.random() < 0.95 else ODD) for _ in range(count)]


def _shape(header: Any, draw: random.Random) -> None:
    listed = [each for each in _arrays(header) if isinstance(each, list) and len(each) > 2]
    if listed:
        draw.choice(listed)[2] = draw.choice([_axes(draw), _axes(draw), _any(draw)])


def _twice(header: Any, draw: random.Random) -> None:
    arrays = _arrays(header)
    if arrays:
        arrays.append(draw.choice(arrays))


def _parts(header: Any, draw: random.Random) -> None:
    how: Callable[[], object] = draw.choice([lambda: header.append(_any(draw)), header.pop, lambda: header.insert(0, _any(draw))])
    if header and draw.random() < 0.3:
        how()
    elif header:
        header[draw.randrange(len(header))] = _any(draw)


def _raw(text: str, draw: random.Random) -> str:
    places = [i for i, c in enumerate(text) if c in '[{,:"']
    at = draw.choice(places) + 1 if places else 0
    return text[:at] + draw.choice(RAW) + text[at + draw.choice([0, 1]) :]


def _size(header: Any) -> int | None:
    """Return the bytes that the arrays of a header have, None where that is no number of 64 bits."""
    total = 0
    for each in _arrays(header):
        if not isinstance(each, list) or len(each) != 3 or not isinstance(each[1], str) or not isinstance(each[2], list):
            return None
        if not all(type(size) is int for size in each[2]) or each[1] not in _WIDTHS:
            return None
        total += math.prod(each[2]) * _WIDTHS[each[1]]
    return total if 0 <= total < 1 << 64 else None
