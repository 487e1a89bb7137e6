"""Writes dicts of arrays as pickles of protocol 2, with the bytes of CPython's and NumPy 1's own; nothing is made of them here.

Source:
    CPython, `pickletools`; NumPy, `ndarray.__reduce__`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
#: Pairs of a dict that are written in one go.
_BATCH = 1000


def write(arrays: Mapping[str, Array]) -> bytes:
    """Return a dict of arrays of numbers as a pickle.

    Raises:
        ValueError: an array holds no numbers.
    """
    made = _Writer()
    made.code(b"\x80\x02}")
    made.keep(None)
    pairs = list(arrays.items())
    for begin in range(0, len(pairs), _BATCH):
        batch = pairs[begin : begin + _BATCH]
        made.code(b"(" if len(batch) > 1 else b"")
        for name, array in batch:
            made.text(name)
            made.array(np.asarray(array))
        made.code(b"u" if len(batch) > 1 else b"s")
    made.code(b".")
    return bytes(made.data)


class _Writer:
    """Instructions, and what they have remembered: a thing that comes again is named by its number."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.kept: dict[Any, int] = {}
        self.count = 0

    def code(self, instructions: bytes) -> None:
        self.data += instructions

    def keep(self, what: Any) -> None:
        """Remember the thing on top of the stack."""
        if what is not None:
            self.kept[what] = self.count
        self.code(b"q" + bytes([self.count]) if self.count < 256 else b"r" + struct.pack("<I", self.count))
        self.count += 1

    def again(self, what: Any) -> bool:
        """Put a thing on the stack that is remembered; return whether it is."""
        number = self.kept.get(what)
        if number is not None:
            self.code(b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number))
        return number is not None

    def text(self, value: str, shared: bool = False) -> None:
        if shared and self.again(("text", value)):
            return
        data = value.encode("utf-8", "surrogatepass")
        self.code(b"X" + struct.pack("<I", len(data)) + data)
        self.keep(("text", value) if shared else None)

    def known(self, module: str, name: str) -> None:
        if not self.again((module, name)):
            self.code(f"c{module}\n{name}\n".encode())
            self.keep((module, name))

    def whole(self, value: int) -> None:
        if 0 <= value < 256:
            self.code(b"K" + bytes([value]))
        elif 0 <= value < 65536:
            self.code(b"M" + struct.pack("<H", value))
        elif -(1 << 31) <= value < 1 << 31:
            self.code(b"J" + struct.pack("<i", value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.code(b"\x8a" + bytes([len(data)]) + data)

    def tuple_of(self, size: int) -> None:
        self.code({1: b"\x85", 2: b"\x86", 3: b"\x87"}[size])
        self.keep(None)

    def sizes(self, shape: tuple[int, ...]) -> None:
        if not shape:
            self.code(b")")
            return
        self.code(b"(" if len(shape) > 3 else b"")
        for size in shape:
            self.whole(size)
        if len(shape) > 3:
            self.code(b"t")
            self.keep(None)
        else:
            self.tuple_of(len(shape))

    def raw(self, data: bytes) -> None:
        """Protocol 2 has texts alone: bytes are those of a text in Latin-1."""
        if len(data) < 2 and self.again(("bytes", data)):  # CPython has one object for each of these
            return
        if not data:
            self.known("__builtin__", "bytes")
            self.code(b")")
        else:
            self.known("_codecs", "encode")
            self.text(data.decode("latin-1"), shared=len(data) == 1)
            self.text("latin1", shared=True)
            self.tuple_of(2)
        self.code(b"R")
        self.keep(("bytes", data) if len(data) < 2 else None)

    def element(self, dtype: np.dtype[Any]) -> None:
        """Put an element type on the stack.

        Raises:
            ValueError: its elements are no numbers.
        """
        if dtype.kind not in "fiub":
            raise ValueError(f"an array has elements of {dtype}")
        what = f"{dtype.kind}{dtype.itemsize}"
        if self.again(("dtype", what)):
            return
        self.known("numpy", "dtype")
        self.text(what)
        self.code(b"\x89\x88")
        self.tuple_of(3)
        self.code(b"R")
        self.keep(("dtype", what))
        self.code(b"(K\x03")
        self.text("<" if dtype.itemsize > 1 else "|", shared=True)
        self.code(b"NNN" + (b"J" + b"\xff" * 4) * 2 + b"K\x00t")
        self.keep(None)
        self.code(b"b")

    def array(self, array: Array) -> None:
        self.known("numpy.core.multiarray", "_reconstruct")
        self.known("numpy", "ndarray")
        self.sizes((0,))
        self.raw(b"b")
        self.tuple_of(3)
        self.code(b"R")
        self.keep(None)
        self.code(b"(K\x01")
        self.sizes(array.shape)
        self.element(array.dtype)
        self.code(b"\x89")
        self.raw(np.asarray(array, array.dtype.newbyteorder("<")).tobytes())
        self.code(b"t")
        self.keep(None)
        self.code(b"b")
