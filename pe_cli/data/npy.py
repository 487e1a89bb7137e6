"""Headers of .npy arrays, checked before anything is allocated."""

from __future__ import annotations

import math
from typing import IO, Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.npy_header import UNREADABLE, claims
from pe_cli.data.dataset import check_dtype
from pe_cli.data.reader_context import Origin


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
    """
    try:
        shape, fortran, dtype = claims(file)
    except UNREADABLE as error:
        # NumPy appends advice about pickles after the first line
        reason = str(error).partition("\n")[0].rstrip(".")
        raise origin.error(f"{what} is no .npy array: {reason}", "write it with np.save") from None
    check_dtype(dtype, what, origin)
    if any(length < 0 for length in shape):
        raise origin.error(f"{what} claims shape {list(shape)}", "write it with np.save")
    header = NpyHeader(shape, dtype, fortran, file.tell())
    found = size - header.offset
    if header.nbytes != found:
        raise origin.error(
            f"{what} claims shape {list(shape)} of {dtype}, {header.nbytes} bytes, but holds {found} bytes",
            "the file is cut off: copy or download it again" if found < header.nbytes else "write it with np.save",
        )
    return header
