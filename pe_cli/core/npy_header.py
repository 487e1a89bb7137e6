"""Reads the header of a .npy array within limits, so that a damaged one cannot exhaust memory."""

from __future__ import annotations

import io
import math
import struct
import threading
import zlib
from tokenize import TokenError
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib import format as npy_format

#: What `claims` may raise: the header is a Python literal, and NumPy lets what its parser says about a malformed one through.
UNREADABLE = (ValueError, TypeError, EOFError, SyntaxError, TokenError, RecursionError, MemoryError)
#: What `zipfile` is known to raise for a damaged archive; RuntimeError is what it says of encryption and of methods.
DAMAGED_ZIP = (BadZipFile, RuntimeError, ValueError, EOFError, zlib.error, struct.error)
#: Bytes of a header; those of arrays of numbers have 118, and NumPy reads none above 10,000.
MOST_HEADER = 1 << 16
#: NumPy parses headers as Python, and CPython 3.11 counts the depth of parsed literals for all threads together (SystemError).
_PARSER = threading.Lock()


def claims(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read a header, and leave the file at the first element.

    Args:
        file: at the first byte of the array.

    Returns:
        Shape, whether the first axis varies fastest, and element type; none of them is checked against what follows.

    Raises:
        ValueError: no array, a version that is not known, or too long a header; and what else is in UNREADABLE.

    Source:
        NEP 1, "A simple file format for NumPy arrays", versions 1.0 and 2.0 (3.0 differs for records only).
    """
    version = npy_format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not supported")
    width = 2 if version == (1, 0) else 4
    written = file.read(width)
    if len(written) < width:
        raise ValueError("it ends in its header")
    length = int.from_bytes(written, "little")
    if length > MOST_HEADER:
        raise ValueError(f"its header claims {length} bytes")
    # Only the bytes that it claims: NumPy would go on reading a header without an end.
    text = io.BytesIO(written + file.read(length))
    with _PARSER:
        shape, fortran, dtype = (npy_format.read_array_header_1_0 if width == 2 else npy_format.read_array_header_2_0)(text)
    return tuple(shape), fortran, dtype


def read_array(file: IO[bytes], left: int) -> np.ndarray[Any, Any]:
    """Read an array and allocate no more than the file really holds.

    Args:
        file: at the first byte of the array.
        left: bytes that follow, at most.

    Raises:
        ValueError: it claims more, or holds Python objects; and what `claims` raises.
    """
    shape, fortran, dtype = claims(file)
    # Arrays of objects are pickles, which run code when they are read.
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    nbytes = math.prod(shape) * dtype.itemsize
    if any(length < 0 for length in shape) or nbytes > left:
        raise ValueError(f"it claims shape {list(shape)} of {dtype}, and there are {left} bytes")
    # Read before an array of that size is made, so that a claim without bytes allocates nothing.
    data = bytearray(file.read(nbytes))
    if len(data) < nbytes:
        raise ValueError("it is cut off")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
