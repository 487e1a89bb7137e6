"""LoDTensor: an array of variable-length sequences; users see lengths, `lod` shows offsets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError

Lengths = list[list[int]]


def to_offsets(lengths: Sequence[Sequence[int]]) -> Lengths:
    """Return [[0, 2, 3]] for [[2, 1]]."""
    return [list(accumulate(level, initial=0)) for level in lengths]


def to_lengths(offsets: Sequence[Sequence[int]]) -> Lengths:
    """Return [[2, 1]] for [[0, 2, 3]]."""
    return [[b - a for a, b in pairwise(level)] for level in offsets]


class LoDTensor:
    """An array with levels of sequences over its first axis."""

    def __init__(self, array: Any = None, lengths: Sequence[Sequence[int]] = ()) -> None:
        self._array = None if array is None else np.asarray(array)
        self._offsets = to_offsets(lengths)
        self._dims: tuple[int, ...] = (0,)

    def set(self, array: Any, place: Any = None) -> None:
        """Take a copy of an array."""
        self._array = np.array(array)

    def shape(self) -> list[int]:
        """Return the sizes; `[0]` where it has no value."""
        return list(self._value().shape) if self._is_initialized() else [*self._dims]

    def _value(self) -> np.ndarray[Any, Any]:
        if self._array is None:
            raise FluidValueError("the tensor has no value yet", hint="call set first")
        return self._array

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The value itself, not a copy."""
        return self._value()

    def _is_initialized(self) -> bool:
        return self._array is not None

    def _dtype(self) -> str:
        return str(self._value().dtype)

    # What scripts call of the original's tensors below its documented names.

    def _get_dims(self) -> list[int]:
        return self.shape()

    def _set_dims(self, dims: Sequence[int]) -> None:
        sizes = [int(size) for size in dims]
        if self._is_initialized():
            value = self._value()
            if math.prod(sizes) != value.size:
                raise EnforceNotMet(f"{value.size} elements cannot have the sizes {sizes}", hint="set takes an array of other sizes")
            self.set(value.reshape(sizes))
        self._dims = tuple(sizes)

    def _alloc(self, dtype: str) -> None:
        self.set(np.zeros(self._get_dims(), dtype))

    def _alloc_float(self, place: Any = None) -> None:
        self._alloc("float32")

    def _alloc_double(self, place: Any = None) -> None:
        self._alloc("float64")

    def _alloc_int(self, place: Any = None) -> None:
        self._alloc("int32")

    def _elements(self, dtype: str, at: int) -> np.ndarray[Any, Any]:
        """Return a copy of the elements in a row, which have a type and reach to a place."""
        value = np.array(self._value())
        if value.dtype != dtype:
            raise EnforceNotMet(f"the elements are {value.dtype}, and not {dtype}")
        if not 0 <= at < value.size:
            raise EnforceNotMet(f"there is no element {at} of {value.size}")
        return value.reshape(-1)

    def _put(self, dtype: str, at: int, number: float) -> None:
        elements = self._elements(dtype, at)
        elements[at] = number
        self.set(elements.reshape(self.shape()))

    def _get_float_element(self, at: int) -> float:
        return float(self._elements("float32", at)[at])

    def _get_double_element(self, at: int) -> float:
        return float(self._elements("float64", at)[at])

    def _set_float_element(self, at: int, number: float) -> None:
        self._put("float32", at, number)

    def _set_double_element(self, at: int, number: float) -> None:
        self._put("float64", at, number)

    def _copy(self, place: Any = None) -> LoDTensor:
        return LoDTensor(np.array(self._value()), self.recursive_sequence_lengths())

    def _clear(self) -> None:
        self._array = None

    def lod(self) -> Lengths:
        """Return the offsets of every level."""
        return [list(level) for level in self._offsets]

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the offsets of every level.

        Raises:
            FluidValueError: offsets do not start at 0, or fall.
        """
        # Offsets begin at 0 and do not fall; whether they end at the number of rows is asked when the tensor is fed.
        if any(list(level) != sorted(level) or list(level[:1]) != [0] for level in lod):
            raise FluidValueError(f"offsets start at 0 and do not fall, got {list(lod)}")
        self._offsets = [[int(o) for o in level] for level in lod]

    def recursive_sequence_lengths(self) -> Lengths:
        """Return the lengths of every level."""
        return to_lengths(self._offsets)

    def set_recursive_sequence_lengths(self, lengths: Sequence[Sequence[int]]) -> None:
        """Set the lengths of every level."""
        self.set_lod(to_offsets(lengths))

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Return whether every level says how the next one is cut, and the last one how the rows are."""
        # Each level counts the sequences of the next, and the last one the rows.
        sizes = [len(level) - 1 for level in self._offsets[1:]] + [len(self._array) if self._array is not None else 0]
        return (
            all(level[-1] == size for level, size in zip(self._offsets, sizes, strict=True)) if self._offsets else True
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = self._value()
        # Always a copy: writing into an array that a script took must not change the tensor.
        return value.astype(dtype) if dtype is not None else value.copy()

    def __bool__(self) -> bool:
        """Whether there is a tensor, which scripts ask: there is, however many rows it has."""
        return True

    def __len__(self) -> int:
        return len(self._value())

    def __getitem__(self, index: Any) -> Any:
        return self._value()[index]

    def __str__(self) -> str:
        if self._array is None:
            return "LoDTensor without a value"
        sizes = ", ".join(map(str, self.shape()))
        return f"lod: {self.lod()}\n  dim: {sizes}\n  dtype: {self._dtype()}\n  data: {self._value().ravel().tolist()}"


Tensor = LoDTensor


class LoDTensorArray(list[LoDTensor]):
    """A list of tensors."""

    def append(self, tensor: Any) -> None:
        """Add a tensor, or an array as one.

        Raises:
            FluidTypeError: neither; a TypeError.
        """
        if isinstance(tensor, np.ndarray):
            tensor = LoDTensor(tensor)
        if not isinstance(tensor, LoDTensor):
            raise FluidTypeError(f"a LoDTensorArray takes tensors, got {type(tensor).__name__}")
        super().append(tensor)


def create_lod_tensor(data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Any) -> LoDTensor:
    """Make a tensor from data and lengths.

    Args:
        data: an array, a tensor, or a list of sequences of integers, which become [total, 1] int64.
        recursive_seq_lens: lengths of every level.
        place: where it lies; the CPU.

    Raises:
        FluidValueError: lengths that do not add up; a ValueError.
        FluidTypeError: data of another type; a TypeError.
    """
    if isinstance(data, LoDTensor):
        return create_lod_tensor(np.array(data), recursive_seq_lens, place)
    if isinstance(data, list):
        lengths = [len(sequence) for sequence in data]
        if not recursive_seq_lens or [lengths] != [list(recursive_seq_lens[-1])]:
            raise FluidValueError(f"the data has sequences of {lengths}, recursive_seq_lens is {recursive_seq_lens}")
        # Sequences of ids become a column, as fluid's examples feed words.
        flat = np.concatenate([np.asarray(s) for s in data], axis=0).astype("int64")
        return create_lod_tensor(flat.reshape(len(flat), 1), recursive_seq_lens, place)
    if not isinstance(data, np.ndarray):
        raise FluidTypeError(f"data must be a LoDTensor, an array or a list, got {type(data).__name__}")
    made = LoDTensor(data.copy(), recursive_seq_lens)
    if not made.has_valid_recursive_sequence_lengths():
        message = f"lengths {[list(s) for s in recursive_seq_lens]} do not fit data of {len(data)} rows"
        raise FluidValueError(message, hint="the last level adds up to the rows, others to the next level's sequences")
    return made


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]], base_shape: Sequence[int], place: Any, low: int, high: int
) -> LoDTensor:
    """Make a tensor of random integers from low to high, both reached; arguments of `create_lod_tensor`.

    Raises:
        FluidTypeError: base_shape is no list.
    """
    if not isinstance(base_shape, (list, tuple)):
        raise FluidTypeError(f"base_shape must be a list, got {base_shape!r}")
    rows = sum(recursive_seq_lens[-1])
    data = np.random.randint(low, high + 1, [rows, *base_shape], dtype="int64")  # noqa: NPY002 - what scripts seed
    return create_lod_tensor(data, recursive_seq_lens, place)
