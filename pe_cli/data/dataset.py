"""Data sets: samples that are taken by index."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.collectives.launcher_environment import started_by
from pe_cli.core.types import BFLOAT16, DTYPES, TensorType
from pe_cli.data.reader_context import Origin

Array = NDArray[Any]
Batch = dict[str, Array]

# the smallest of our types that holds every value of a type that we do not have
_WIDER = {
    "float16": "float32",
    "int8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",
}


class Dataset(Protocol):
    """Samples that are taken by index, in any order, from any thread, without changing the data set.

    One that has fields whose samples are sequences of rows names them in an attribute `sequences` (`sequence_fields`). Such a
    field's type is that of a row; `take` gives the rows of all samples one after the other, and their offsets, int64
    [batch + 1], as `offsets_name(field, 0)`.
    """

    @property
    def fields(self) -> dict[str, TensorType]:
        """Type of one sample's fields, without a batch axis."""

    def __len__(self) -> int:
        """Number of samples, at least 1."""

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return copies of some samples.

        Args:
            indices: int64 [batch] in [0, samples); repeats are allowed.

        Returns:
            For every field a C-contiguous array [batch, *shape] of the field's type.
        """


def sequence_fields(dataset: Dataset) -> frozenset[str]:
    """Return the fields of a data set whose samples are sequences."""
    return frozenset(getattr(dataset, "sequences", ()))


def one_field(dataset: Dataset, name: str, indices: NDArray[np.int64]) -> Array:
    """Return copies of some samples of one field; the other fields are not read where the data set can do without."""
    one = getattr(dataset, "one", None)
    found: Array = one(name, indices) if one is not None else dataset.take(indices)[name]
    return found


def field_dtype(dtype: np.dtype[Any]) -> str | None:
    """Return the element type that a stored type is read as, or None for one that is no number.

    Args:
        dtype: as stored, in any byte order.

    Returns:
        A name of `DTYPES`: the same, or the next wider one that holds all values (uint64 is checked as it is read).
    """
    # Byte order is a matter of the file.
    name = dtype.newbyteorder("=").name
    return name if name in DTYPES and name != BFLOAT16 else _WIDER.get(name)


def check_dtype(dtype: np.dtype[Any], what: str, origin: Origin) -> str:
    """Return the element type that a stored type is read as.

    Args:
        dtype: as stored.
        what: names the array in an error.
        origin: gives the error its place.

    Raises:
        PeError: the type holds Python objects, text, records or complex numbers.
    """
    if dtype.hasobject:
        raise origin.error(
            f"{what} holds Python objects; they are pickled, and a pickle may run any code, so it is not read",
            "save it as numbers: np.save(path, np.asarray(values, dtype='float32'))",
        )
    name = field_dtype(dtype)
    if name is None:
        raise origin.error(
            f"{what} has element type {dtype}, which is no type that a model computes with",
            f"convert it to one of {', '.join(n for n in DTYPES if n != BFLOAT16)}; text labels become class indices with "
            "np.unique(labels, return_inverse=True)",
        )
    return name


class ArrayDataset:
    """Fields that are arrays, in memory or mapped from a file.

    Args:
        arrays: field -> [samples, *shape]; mapped ones are read only where they are taken.
        origin: gives errors their place.
        classes: field -> names of its classes in the order of their indices, where the file had names.

    Raises:
        PeError: no field, no sample, empty samples, fields of different lengths, or an element type that is no number.
    """

    def __init__(
        self, arrays: Mapping[str, Array], origin: Origin, classes: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        if not arrays:
            raise origin.error("the data has no field", "name at least one array under fields or files")
        self.fields: dict[str, TensorType] = {}
        self.classes = dict(classes or {})
        for name, array in arrays.items():
            dtype = check_dtype(array.dtype, f"field '{name}'", origin)
            if array.ndim == 0:
                raise origin.error(f"field '{name}' is a single number, and needs an axis of samples", "save [samples]")
            self.fields[name] = TensorType(tuple(int(size) for size in array.shape[1:]), dtype)
        # All at once, so that the message can name every field's length.
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise origin.error(f"fields differ in their number of samples: {said}", "pair arrays of the same samples")
        empty = [name for name, array in arrays.items() if array.size == 0]
        if empty:
            shape = list(arrays[empty[0]].shape)
            raise origin.error(f"field '{empty[0]}' has shape {shape}: there is nothing in it", "check what wrote it")
        # a plain view: np.memmap's own indexing does Python work for every batch
        self._arrays = {name: np.asarray(array) for name, array in arrays.items()}
        self.arrays: Mapping[str, Array] = self._arrays
        self._maps = [(name, found, found.size()) for name, array in arrays.items() if (found := _map_of(array)) is not None]
        self._scattered = {name: made for name, array in arrays.items() if (made := _scattered(array)) is not None}
        self._origin = origin

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values())))

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return copies of some samples; see `Dataset.take`.

        Raises:
            PeError: a uint64 above the largest int64, or the file of a mapped field was cut since it was opened.
        """
        self._check_maps()
        return {name: self._rows(name, array, indices) for name, array in self._arrays.items()}

    def one(self, name: str, indices: NDArray[np.int64]) -> Array:
        """Return copies of some samples of one field; see `take`."""
        self._check_maps()
        return self._rows(name, self._arrays[name], indices)

    def _check_maps(self) -> None:
        # A file that was cut would end the process by a signal when a page behind its end is touched.
        for name, mapped, size in self._maps:
            # to read what is no longer in the file would end the process with SIGBUS
            if mapped.size() < size:
                raise self._origin.error(
                    f"the file of field '{name}' was cut while it is read: {mapped.size()} bytes of {size} are left",
                    "write a new file beside it and rename that: who reads the old one keeps it",
                )

    def _rows(self, name: str, array: Array, indices: NDArray[np.int64]) -> Array:
        # Asked for before the rows are copied, so that the disk works on all of them together.
        if name in self._scattered:
            self._scattered[name].ask(indices)
        # not np.take: on a map that is unaligned or in Fortran order it would first copy the whole file
        rows = array[indices]
        if rows.dtype == np.uint64 and rows.size and int(rows.max()) > np.iinfo(np.int64).max:
            raise self._origin.error(
                f"field '{name}' has the value {rows.max()}, and the largest int64 is {np.iinfo(np.int64).max}",
                "save it as int64 or float64",
            )
        return np.ascontiguousarray(rows, dtype=self.fields[name].numpy)


class Scattered:
    """A mapped array of which this process takes a share, here and there: no sample that another process takes is read ahead.

    Args:
        mapped: its file.
        begin: of the first sample in what is mapped, in bytes.
        size: bytes of a sample.
    """

    def __init__(self, mapped: mmap.mmap, begin: int, size: int) -> None:
        self._mapped, self._begin, self._size = mapped, begin, size
        # Processes read far apart from each other, where reading ahead would fetch what nobody uses.
        mapped.madvise(mmap.MADV_RANDOM)

    def ask(self, indices: NDArray[np.int64]) -> None:
        """Let the system read some samples, all at once; without that each page would be waited for."""
        for i in indices.tolist():
            begin = self._begin + i * self._size
            low = begin - begin % mmap.PAGESIZE
            self._mapped.madvise(mmap.MADV_WILLNEED, low, begin + self._size - low)


def _scattered(array: Array) -> Scattered | None:
    """Return how a share of an array is taken; None where all of it is, or where it is in memory, or a page has several samples."""
    mapped, size = _map_of(array), array.nbytes // max(1, len(array))
    # Only then does reading ahead hurt: a single process goes through a file from its beginning.
    started = started_by(os.environ)
    apart = started is not None and started.size > 1 and hasattr(mmap, "MADV_RANDOM")
    if mapped is None or not apart or size < mmap.PAGESIZE or not array.flags.c_contiguous:
        return None
    return Scattered(mapped, array.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data, size)


class Window:
    """Some neighbouring samples of a data set.

    Args:
        dataset: the whole.
        start: first sample.
        count: number of samples; start + count <= samples of the whole.
    """

    def __init__(self, dataset: Dataset, start: int, count: int) -> None:
        assert start >= 0
        assert 0 < count <= len(dataset) - start
        self.fields = dataset.fields
        self.classes: dict[str, tuple[str, ...]] = getattr(dataset, "classes", {})
        self.sequences = sequence_fields(dataset)
        self._dataset, self._start, self._count = dataset, start, count

    def __len__(self) -> int:
        return self._count

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return copies of some samples, counted from the window's first; see `Dataset.take`."""
        assert not indices.size or (indices.min() >= 0 and indices.max() < self._count), "index outside the window"
        return self._dataset.take(indices + self._start)

    def one(self, name: str, indices: NDArray[np.int64]) -> Array:
        """Return copies of some samples of one field; see `take`."""
        return one_field(self._dataset, name, indices + self._start)


def _map_of(array: Array) -> mmap.mmap | None:
    """Return what maps the file of an array; None for one in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def map_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, fortran: bool = False) -> Array:
    """Map an array of a file without reading it.

    Args:
        path: the file; the caller has checked that it is long enough.
        dtype: element type as stored.
        shape: sizes, all > 0 (an empty file part cannot be mapped, so that shape gives an empty array in memory).
        offset: bytes before the first element; any alignment.
        fortran: whether the first axis varies fastest.

    Returns:
        A read-only array backed by the file.
    """
    if 0 in shape or not dtype.itemsize:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C")
