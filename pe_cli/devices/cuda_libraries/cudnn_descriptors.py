"""Descriptors of cuDNN's backend: one is made, its attributes are set, and it is finalized; then it can be read."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

from pe_cli.core.types import BFLOAT16
from pe_cli.devices.cuda_libraries.protocol import NotTaken

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
#: Attribute, type of its elements, elements.
Attribute = tuple[int, int, Sequence[Any]]
#: cudnnBackendDescriptorType_t, and cudnnBackendAttributeName_t of graphs.
GRAPH, TENSOR = 15, 17
GRAPH_OPERATIONS = 801
#: cudnnBackendAttributeType_t, and what holds one.
HANDLE, DATA_TYPE, BOOLEAN, LONG, FLOAT, DOUBLE, ADDRESS, MODE, HEURISTIC, NOTE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 11
POINTWISE, DESCRIPTOR, BEHAVIOUR, CHAR = 14, 15, 19, 24
HOLDS: dict[int, Any] = {
    HANDLE: _POINTER, DATA_TYPE: _INT, BOOLEAN: ctypes.c_bool, LONG: _LONG, FLOAT: ctypes.c_float, DOUBLE: ctypes.c_double,
    ADDRESS: _POINTER, MODE: _INT, HEURISTIC: _INT, NOTE: _INT, POINTWISE: _INT, DESCRIPTOR: _POINTER, BEHAVIOUR: _INT,
    CHAR: ctypes.c_ubyte,
}  # fmt: skip
#: cudnnBackendAttributeName_t of tensors.
ALIGNMENT, TYPE, SIZES, STEPS, UID, VIRTUAL, BY_VALUE = 900, 901, 902, 903, 906, 907, 908
#: cudnnDataType_t.
TYPES = {"float32": 0, "float64": 1, BFLOAT16: 9}


class Descriptor:
    """A backend descriptor, which lives as long as this.

    Args:
        library: the library.
        kind: of descriptor.
        attributes: of it; then it is finalized, unless there are none: it is filled by a question.

    Raises:
        NotTaken: the library says no.
    """

    def __init__(self, library: Any, kind: int, *attributes: Attribute) -> None:
        self._library = library
        self._held = attributes
        self.pointer = _POINTER()
        self._do("CreateDescriptor", kind, ctypes.byref(self.pointer))
        weakref.finalize(self, library.cudnnBackendDestroyDescriptor, self.pointer)
        for attribute, element, values in attributes:
            plain = [v.pointer if isinstance(v, Descriptor) else v for v in values]
            array = (HOLDS[element] * len(plain))(*plain)
            self._do("SetAttribute", self.pointer, attribute, element, len(plain), ctypes.addressof(array))
        if attributes:
            self._do("Finalize", self.pointer)

    def _do(self, name: str, *args: Any) -> None:
        if status := getattr(self._library, f"cudnnBackend{name}")(*args):
            raise NotTaken(f"cudnnBackend{name}: status {status}")

    def read(self, attribute: int, element: int, most: int) -> list[Any]:
        """Return the elements of an attribute, so many at most."""
        array, count = (HOLDS[element] * most)(), _LONG()
        self._do("GetAttribute", self.pointer, attribute, element, most, ctypes.byref(count), ctypes.addressof(array))
        return list(array[: min(most, count.value)])

    def filled(self, attribute: int, kind: int, most: int) -> list[Descriptor]:
        """Return the descriptors of an attribute, so many at most."""
        found = [Descriptor(self._library, kind) for _ in range(most)]
        array, count = (_POINTER * most)(*(each.pointer for each in found)), _LONG()
        self._do("GetAttribute", self.pointer, attribute, DESCRIPTOR, most, ctypes.byref(count), ctypes.addressof(array))
        return found[: min(most, count.value)]


def tensor(
    library: Any, dtype: str, uid: int, sizes: Sequence[int], steps: Sequence[int], address: int = 0, *more: Attribute
) -> Descriptor:
    """Return a tensor.

    Args:
        library: the library.
        dtype: of its elements.
        uid: its number in a graph.
        sizes: of its axes.
        steps: elements from one to the next of each axis.
        address: where it lies, or what that is a multiple of.
        more: attributes, as for `Descriptor`.

    Raises:
        NotTaken: the library says no.
    """
    return Descriptor(
        library, TENSOR, (TYPE, DATA_TYPE, [TYPES[dtype]]), (SIZES, LONG, sizes), (STEPS, LONG, steps), (UID, LONG, [uid]),
        (ALIGNMENT, LONG, [min(address & -address, 64) or 64]), *more,
    )  # fmt: skip


def graph_of(library: Any, operations: Sequence[Descriptor], *more: Attribute) -> Descriptor:
    """Return a graph.

    Args:
        library: the library.
        operations: of it.
        more: attributes, as for `Descriptor`.

    Raises:
        NotTaken: the library says no.
    """
    return Descriptor(library, GRAPH, *more, (GRAPH_OPERATIONS, DESCRIPTOR, operations))
