"""Element types, tensor types and places."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pe_cli.core.errors import PeError, did_you_mean

#: Every element type that a variable may have, by name, with its size in bytes.
DTYPES: dict[str, int] = {
    "float32": 4,
    "float64": 8,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
    "bool": 1,
}
FLOATS = ("float32", "float64")


def check_dtype(dtype: str) -> str:
    """Return dtype when it is one of ours.

    Raises:
        PeError: the name is unknown.
    """
    if dtype not in DTYPES:
        raise PeError(f"unknown dtype '{dtype}'", hint=did_you_mean(dtype, DTYPES) or f"one of {', '.join(DTYPES)}")
    return dtype


def product(dims: Iterable[int]) -> int:
    """Multiply sizes; -1 (unknown) makes the product unknown, unless another size is 0."""
    sizes = list(dims)
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
        return product(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, -1 when not known."""
        return -1 if self.size < 0 else self.size * DTYPES[self.dtype]

    @property
    def known(self) -> bool:
        """Whether every size is known."""
        return -1 not in self.shape

    @property
    def numpy(self) -> np.dtype:
        """The NumPy element type."""
        return np.dtype(self.dtype)

    def with_shape(self, *shape: int) -> TensorType:
        """Return the same element type with another shape."""
        return TensorType(tuple(shape), self.dtype)

    def __str__(self) -> str:
        sizes = ", ".join("batch" if s == -1 else str(s) for s in self.shape)
        return f"{self.dtype}[{sizes}]"


@dataclass(frozen=True, order=True)
class Place:
    """Where a device's buffers live: `cpu:0`, `cuda:1`."""

    kind: str = "cpu"
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"
