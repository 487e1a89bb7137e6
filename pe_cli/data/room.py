"""Room for columns: memory, or a file without a name where a column is larger than its share of the memory."""

from __future__ import annotations

import math
import tempfile
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.dataset import Array
from pe_cli.data.origin import physical_memory

#: Share of the machine's memory above which one column lies in a file and not in memory.
SHARE = 1 / 8


def room(shape: tuple[int, ...], dtype: np.dtype[Any] | str, what: str = "a column") -> Array:
    """Return an array of zeros that may be written.

    Args:
        shape: sizes.
        dtype: element type.
        what: names it in an error.

    Returns:
        An array in memory; one above `SHARE` of the machine's memory is mapped from a temporary file in `$TMPDIR`, which is gone
        with the array.

    Raises:
        PeError: DEVICE; there is no room on the disk.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size <= physical_memory() * SHARE:
        return np.zeros(shape, kind)
    try:
        with tempfile.TemporaryFile(prefix="pe-column-") as file:
            file.truncate(size)
            return np.memmap(file, kind, "r+", shape=shape)
    except OSError as error:
        raise PeError(
            f"no room for {what} of {size:,} bytes in {tempfile.gettempdir()}: {(error.strerror or str(error)).lower()}",
            hint="set TMPDIR to a folder on a larger disk",
            code=ExitCode.DEVICE,
        ) from None
