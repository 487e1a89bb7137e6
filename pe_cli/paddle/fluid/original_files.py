"""Files of values as the original writes them: tensors with their sequences, one behind the other, and pickled dicts of arrays.

A tensor is: the version 0 (4 bytes), the number of levels (8), for every level its bytes (8) and offsets; the version 0 (4), the bytes
of a description (4), that, and the numbers. The description is a message of protobuf: field 1 is the element type, fields 2 are the sizes.
Nothing is taken at its word: every length is checked against what is left of the file before anything of that length is made.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.regular_files import open_regular
from pe_cli.paddle import pickled

Array = np.ndarray[Any, Any]
#: Numbers of element types in descriptions.
_TYPES = {0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64", 20: "uint8", 21: "int8"}
#: Levels of sequences, axes, and bytes of a description at most.
MOST_LEVELS, MOST_AXES, MOST_DESCRIBED = 16, 16, 1024


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
    try:
        if data[:1] == b"\x80":
            found = pickled.read(data)
            if not isinstance(found, dict):
                raise ValueError("it holds no dict")
            return {str(name): value for name, value in found.items() if isinstance(value, np.ndarray)}
        values = _tensors(memoryview(data))
    except (ValueError, struct.error) as error:
        hint = "write it again with PaddlePaddle"
        raise PeError(f"{path} is no file of values of PaddlePaddle: {error}", hint=hint, code=ExitCode.DATA) from None
    if names is None or len(names) != len(values):
        wanted = "nobody says their names" if names is None else f"there are {len(names)} variables"
        hint = "give the variables that were saved: var_list, or vars"
        raise PeError(f"{path} has {len(values)} tensors without names, and {wanted}", hint=hint, code=ExitCode.DATA)
    return dict(zip(names, values, strict=True))


def _tensors(data: memoryview) -> list[Array]:
    found, at = [], 0
    while at < len(data):
        value, at = _tensor(data, at)
        found.append(value)
    return found


def _tensor(data: memoryview, at: int) -> tuple[Array, int]:
    """Return the tensor at a place, and the place behind it."""
    version, levels = struct.unpack_from("<IQ", data, at)
    at += 12
    if version or levels > MOST_LEVELS:
        raise ValueError(f"a tensor has the version {version} and {levels} levels of sequences")
    for _ in range(levels):
        (size,) = struct.unpack_from("<Q", data, at)
        at += 8 + size
        if at > len(data):
            raise ValueError(f"a level of {size} bytes is cut off")
    version, size = struct.unpack_from("<Ii", data, at)
    at += 8
    if version or not 0 <= size <= min(MOST_DESCRIBED, len(data) - at):
        raise ValueError(f"a tensor has the version {version} and a description of {size} bytes")
    kind, shape = _described(data[at : at + size])
    at += size
    count, item = math.prod(shape), kind.itemsize
    if count > (len(data) - at) // item:
        raise ValueError(f"a tensor of shape {list(shape)} is cut off")
    return np.frombuffer(data, kind, count, at).reshape(shape).copy(), at + count * item


def _described(message: memoryview) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the element type and the sizes of a description."""
    kind, sizes, at = -1, [], 0
    while at < len(message):
        key, at = _varint(message, at)
        if key == 0x12:  # sizes in one piece
            end, at = _varint(message, at)
            end += at
            if end > len(message):
                raise ValueError("a description is cut off")
            while at < end:
                size, at = _varint(message, at)
                sizes.append(size)
        elif key in (0x08, 0x10):
            value, at = _varint(message, at)
            if key == 0x08:
                kind = value
            else:
                sizes.append(value)
        else:
            raise ValueError(f"a description has the field {key >> 3}")
    if kind not in _TYPES:
        raise ValueError(f"a tensor has the element type {kind}")
    if len(sizes) > MOST_AXES or any(size >= 1 << 40 for size in sizes):
        raise ValueError(f"a tensor has the sizes {sizes[:MOST_AXES]}")
    return np.dtype(_TYPES[kind]).newbyteorder("<"), tuple(sizes)


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a whole number of at most 64 bits, and the place behind it."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(message):
            raise ValueError("a description is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of a description is too long")
