"""Files of values as the original writes them: tensors, one behind the other, and pickled dicts of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.fluid import pickled, tensors
from pe_cli.io.regular_files import open_regular

Array = np.ndarray[Any, Any]


def is_original(path: Path) -> bool:
    """Return whether a file begins as one of the original's does, and not as a safetensors file: a length of 8 bytes and a brace.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        begin = file.read(9)
    return begin[8:] != b"{" and (begin[:1] == b"\x80" or begin[:4] == b"\0" * 4)


def read_original(path: Path, names: Sequence[str] | None) -> dict[str, Array]:
    """Return name -> value of a file of the original.

    Args:
        path: of the file.
        names: of the tensors in the file, in its order; a pickle has them itself.

    Raises:
        PeError: it is cut off or damaged, has another number of tensors, or calls something (exit code 3).
    """
    with open_regular(path) as file:
        data = file.read()
    if data[:1] != b"\x80":
        return tensors.named(path, data, names)
    try:
        found = pickled.read(data)
        if not isinstance(found, dict):
            raise ValueError("it holds no dict")
    except ValueError as error:
        hint = "write it again with PaddlePaddle"
        raise PeError(f"{path} is no file of values of PaddlePaddle: {error}", hint=hint, code=ExitCode.DATA) from None
    return {str(name): value for name, value in found.items() if isinstance(value, np.ndarray)}
