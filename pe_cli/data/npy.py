"""Headers of .npy arrays, checked before anything is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from pe_cli.data.dataset import check_dtype
from pe_cli.data.origin import Origin

# the header is a Python literal, and NumPy lets what its parser says about a malformed one through
_UNREADABLE = (ValueError, TypeError, EOFError, SyntaxError, TokenError, RecursionError, MemoryError)


@dataclass(frozen=True)
class NpyHeader:
    """What a .npy header claims.

    Args:
        shape: sizes, the first is the number of samples.
        dtype: element type as stored, never of objects.
        fortran: whether the first axis varies fastest.
        offset: bytes from the start of the header to the first element.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], size: int, what: str, origin: Origin) -> NpyHeader:
    """Read the header of a .npy array and compare it with the bytes that are there.

    Args:
        file: at the array's first byte; afterwards at its first element.
        size: bytes of header and elements together.
        what: names the array in an error.
        origin: gives the error its place.

    Raises:
        PeError: no .npy array, a broken header, an element type that is no number, or another size than claimed.

    Source:
        NEP 1, "A simple file format for NumPy arrays", versions 1.0 and 2.0 (3.0 differs for records only).
    """
    try:
        version = npy_format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version[0]}.{version[1]} of the format is not supported")
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except _UNREADABLE as error:
        # NumPy appends advice about pickles after the first line
        reason = str(error).partition("\n")[0].rstrip(".")
        raise origin.error(f"{what} is no .npy array: {reason}", "write it with np.save") from None
    check_dtype(dtype, what, origin)
    if any(length < 0 for length in shape):
        raise origin.error(f"{what} claims shape {list(shape)}", "write it with np.save")
    header = NpyHeader(tuple(shape), dtype, fortran, file.tell())
    found = size - header.offset
    if header.nbytes != found:
        raise origin.error(
            f"{what} claims shape {list(shape)} of {dtype}, {header.nbytes} bytes, but holds {found} bytes",
            "the file is cut off: copy or download it again" if found < header.nbytes else "write it with np.save",
        )
    return header
