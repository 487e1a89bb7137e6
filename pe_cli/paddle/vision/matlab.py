"""Whole numbers out of files of MATLAB (version 5). SciPy reads more of them, but damaged ones can end the process there."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

#: Most bytes of a variable; those of the data sets here have a few thousand.
MOST = 1 << 24
_HEADER, _BYTES, _INT32, _UINT32, _MATRIX, _COMPRESSED = 128, 1, 5, 6, 14, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
#: Classes of matrices that hold numbers: double, single, and whole ones of 8 to 64 bits.
_NUMBERS = range(6, 16)


def numbers(data: bytes, name: str) -> Any:
    """Return all numbers of a matrix in a file's bytes, int64 [numbers], column after column.

    Raises:
        KeyError: there is no such variable.
        ValueError: the file is damaged, or the variable holds something else than whole numbers.
    """
    mark = data[126:_HEADER]
    if mark not in (b"IM", b"MI"):
        raise ValueError("it is no file of MATLAB, version 5")
    order = "<" if mark == b"IM" else ">"
    for kind, part in _elements(data[_HEADER:], order, padded=False):
        for inner, matrix in _elements(_unpacked(part), order) if kind == _COMPRESSED else [(kind, part)]:
            if inner == _MATRIX and (found := _matrix(matrix, order, name)) is not None:
                return found
    raise KeyError(name)


def _unpacked(part: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    # Not a byte more than that is unpacked, however large a damaged or hostile file would become.
    found = unpacker.decompress(part, MOST)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError(f"a variable is cut off, or has more than {MOST} bytes")
    return found


def _elements(data: bytes, order: str, padded: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield kind and contents of each element; those of a variable begin at multiples of 8 bytes, those of a file need not."""
    at = 0
    while at < len(data):
        if at + 8 > len(data):
            raise ValueError("an element is cut off")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:  # at most 4 bytes, which stand in the place of the size
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise ValueError(f"a short element of {size} bytes")
        if start + size > len(data):
            raise ValueError("an element is cut off")
        yield kind, data[start : start + size]
        # A short element takes 8 bytes as well, however few of them it uses.
        end = max(start + size, at + 8)
        at = end + (-end % 8 if padded else 0)


def _matrix(data: bytes, order: str, name: str) -> Any | None:
    """Return the numbers of a matrix, or None where it has another name."""
    parts = _elements(data, order)
    heads = [part for _, part in zip(range(3), parts, strict=False)]
    if [kind for kind, _ in heads] != [_UINT32, _INT32, _BYTES] or len(heads[0][1]) != 8:
        raise ValueError("a variable has no name")
    if heads[2][1] != name.encode():
        return None
    flags = struct.unpack_from(f"{order}I", heads[0][1])[0]
    kind, contents = next(parts, (0, b""))
    # The low byte of the flags is the class of the matrix; 0x0800 marks complex numbers.
    if flags & 0xFF not in _NUMBERS or flags & 0x0800 or kind not in _TYPES:
        raise ValueError(f"{name} is no matrix of real numbers")
    type_ = np.dtype(order + _TYPES[kind])
    if len(contents) % type_.itemsize:
        raise ValueError(f"{name} is cut off")
    found = np.frombuffer(contents, type_)
    sizes = np.frombuffer(heads[1][1][: len(heads[1][1]) // 4 * 4], f"{order}i4").tolist()
    expected = 1
    for size in sizes:
        expected *= size
    if expected != len(found):
        raise ValueError(f"{name} has {len(found)} numbers, and its sizes are {sizes}")
    # Doubles hold whole numbers exactly as far as that; beyond, a number of the file may be another one.
    if not (np.isfinite(found) & (np.abs(found.astype(np.float64)) < 2**53)).all() or (found != np.trunc(found)).any():
        raise ValueError(f"{name} has numbers that are not whole")
    return found.astype(np.int64)
