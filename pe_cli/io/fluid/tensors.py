"""Files of values as PaddlePaddle 1.x keeps them: tensors with their sequences, one behind the other, without names.

A tensor is: the version 0 (4 bytes), the number of levels (8), for every level its bytes (8) and offsets; the version 0 (4), the bytes
of a description (4), that, and the numbers. The description is a message of protobuf: field 1 is the element type, fields 2 are the sizes.
Nothing is taken at its word: every length is checked against what is left of the file before anything of that length is made.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.fluid import wire
from pe_cli.io.fluid.program_desc import ELEMENT_NUMBERS, ELEMENTS

Array = np.ndarray[Any, Any]
#: Levels of sequences, axes, and bytes of a description at most.
MOST_LEVELS, MOST_AXES, MOST_DESCRIBED = 16, 16, 1024


def of_tensor(value: Array) -> bytes:
    """Return an array as a tensor without sequences; one number has the shape [1].

    Raises:
        PeError: the original has no such element type.
    """
    array = np.asarray(value)
    kind = ELEMENT_NUMBERS.get(str(array.dtype))
    if kind is None:
        raise PeError(f"PaddlePaddle's files have no elements of {array.dtype}", hint="cast them to float32 first")
    description = wire.of_whole(1, kind) + b"".join(wire.of_whole(2, size) for size in array.shape or (1,))
    little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    return struct.pack("<IQIi", 0, 0, 0, len(description)) + description + little.tobytes()


def of_tensors(values: Mapping[str, Array]) -> bytes:
    """Return arrays as one file, in the order of their names."""
    return b"".join(of_tensor(values[name]) for name in sorted(values))


def named(path: Path, data: bytes, names: Sequence[str] | None) -> dict[str, Array]:
    """Return name -> value of a file of tensors.

    Args:
        path: of the file, for errors.
        data: its bytes.
        names: of the tensors, in their order.

    Raises:
        PeError: it is cut off or damaged, or has another number of tensors (exit code 3).
    """
    try:
        values = tensors(memoryview(data))
    except (ValueError, struct.error) as error:
        hint = "write it again with PaddlePaddle"
        raise PeError(f"{path} is no file of values of PaddlePaddle: {error}", hint=hint, code=ExitCode.DATA) from None
    if names is None or len(names) != len(values):
        wanted = "nobody says their names" if names is None else f"there are {len(names)} variables"
        hint = "give the variables that were saved: var_list, or vars"
        raise PeError(f"{path} has {len(values)} tensors without names, and {wanted}", hint=hint, code=ExitCode.DATA)
    return dict(zip(names, values, strict=True))


def tensors(data: memoryview) -> list[Array]:
    """Return the arrays of a file.

    Raises:
        ValueError, struct.error: it is cut off or damaged.
    """
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
    kind, sizes = -1, []
    for number, form, value in wire.fields(message):
        if number == 1:
            kind = wire.last_whole(form, value)
        elif number == 2:
            sizes += wire.whole(form, value)
        else:
            raise ValueError(f"a description has the field {number}")
    if kind not in ELEMENTS:
        raise ValueError(f"a tensor has the element type {kind}")
    if len(sizes) > MOST_AXES or any(not 0 <= size < 1 << 40 for size in sizes):
        raise ValueError(f"a tensor has the sizes {sizes[:MOST_AXES]}")
    return np.dtype(ELEMENTS[kind]).newbyteorder("<"), tuple(sizes)
