"""Element types, tensor types and places."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError, WrongType, did_you_mean

#: Every element type that a variable may have, by name, with its size in bytes.
DTYPES: dict[str, int] = {
    "float32": 4,
    "float64": 8,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
    "bool": 1,
    "bfloat16": 2,
}
FLOATS = ("float32", "float64")
#: What ops compute with that take whole numbers, too.
NUMBERS = (*FLOATS, "int32", "int64")
#: How a number of float32 may be stored: its upper 16 bits, rounded to the nearest, of ties to even. Nothing is computed in it.
BFLOAT16 = "bfloat16"
#: Element types of NumPy that no variable has, and the one that holds all their numbers.
HOLDS = {"float16": "float32", "int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}


def computed(dtype: str) -> str:
    """Return the element type that numbers of a type are computed in: bfloat16 is read as float32."""
    return "float32" if dtype == BFLOAT16 else dtype


def check_dtype(dtype: str) -> str:
    """Return dtype when it is one of ours.

    Raises:
        WrongType: NumPy has it, and no variable does.
        PeError: the name is unknown.
    """
    if dtype in HOLDS:
        raise WrongType(f"unknown dtype '{dtype}'", hint=f"{HOLDS[dtype]} holds all its numbers; NumPy casts what is fed")
    if dtype not in DTYPES:
        raise PeError(f"unknown dtype '{dtype}'", hint=did_you_mean(dtype, DTYPES) or f"one of {', '.join(DTYPES)}")
    return dtype


def product(dims: Iterable[int]) -> int:
    """Multiply sizes; -1 (unknown) makes the product unknown, unless another size is 0."""
    sizes = list(dims)
    # An empty tensor has 0 elements, whatever the batch will be.
    if 0 in sizes:
        return 0
    return -1 if -1 in sizes else math.prod(sizes)


@dataclass(frozen=True)
class TensorType:
    """Shape and element type. A size of -1 is not known before a batch arrives (the batch axis).

    Args:
        shape: sizes; () is a scalar.
        dtype: a name of `DTYPES`.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Number of elements, -1 when not known."""
        shape = self.shape
        return product(shape) if -1 in shape else math.prod(shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, -1 when not known."""
        size = self.size
        return size if size < 0 else size * DTYPES[self.dtype]

    @property
    def known(self) -> bool:
        """Whether every size is known."""
        return -1 not in self.shape

    @property
    def numpy(self) -> np.dtype:
        """The NumPy element type; of bfloat16, which NumPy does not have, that of its bits."""
        return np.dtype("uint16" if self.dtype == BFLOAT16 else self.dtype)

    @property
    def computed(self) -> TensorType:
        """The type that an op sees: float32 where bfloat16 is stored."""
        return TensorType(self.shape, "float32") if self.dtype == BFLOAT16 else self

    def with_shape(self, *shape: int) -> TensorType:
        """Return the same element type with another shape."""
        return TensorType(tuple(shape), self.dtype)

    def __str__(self) -> str:
        sizes = ", ".join("batch" if s == -1 else str(s) for s in self.shape)
        return f"{self.dtype}[{sizes}]"


def widened(bits: Any) -> Any:
    """Return the numbers of float32 that an array of bfloat16's bits stands for; every one of them is exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrowed(values: Any) -> Any:
    """Return the bits of the numbers of bfloat16 next to those of a float32 array, of ties the even ones; NaN stays NaN."""
    # In integers, because a float32 sum could round twice; NaN apart, as rounding could make an infinity of it.
    words = np.asarray(values, np.float32).view(np.uint32)
    rounded = (words + np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


@dataclass(frozen=True, order=True)
class Place:
    """Where a device's buffers live: `cpu:0`, `cuda:1`."""

    kind: str = "cpu"
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


def check_kind(name: str, x: TensorType, dtypes: Iterable[str] = FLOATS) -> None:
    """Refuse what has another element type than an op takes.

    Raises:
        WrongType: names the op, the types and x.
    """
    if x.dtype not in dtypes:
        raise WrongType(f"{name} takes {' or '.join(dtypes)}, got {x}", hint="put a cast before it")
