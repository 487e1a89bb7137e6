"""Scopes: the persistable variables of a run, one replica a device, in arenas that kernels read and write directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.memory import Arena, aligned


class Scope:
    """Name -> value, replicated on every device.

    Args:
        places: devices.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = tuple(places)
        self._types: dict[str, TensorType] = {}
        self._where: dict[str, tuple[list[Arena], int]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def allocate(self, types: Mapping[str, TensorType]) -> None:
        """Make zeroed room for variables that are not there yet: one contiguous arena a device, in the given order.

        Raises:
            PeError: a variable is there with another type.
        """
        offsets: dict[str, int] = {}
        total = 0
        for name, kind in types.items():
            if name in self._types:
                if self._types[name] != kind:
                    raise PeError(f"variable '{name}' is {self._types[name]} in the scope and {kind} in the program")
                continue
            offsets[name] = total
            total += aligned(kind.nbytes)
        if not offsets:
            return
        arenas = [Arena(total) for _ in self.places]
        for name, offset in offsets.items():
            self._types[name] = types[name]
            self._where[name] = (arenas, offset)

    def type(self, name: str) -> TensorType:
        """Return a variable's type.

        Raises:
            PeError: it is not there.
        """
        if name not in self._types:
            raise PeError(f"variable '{name}' has no value yet", hint=did_you_mean(name, self._types) or "run the startup program first")
        return self._types[name]

    def address(self, name: str, device: int) -> int:
        """Return the address of a replica."""
        arenas, offset = self._where[name]
        return arenas[device].address + offset

    def view(self, name: str, device: int = 0) -> np.ndarray[Any, Any]:
        """Return a device's replica as an array over its memory."""
        kind = self.type(name)
        arenas, offset = self._where[name]
        return arenas[device].view(offset, kind)

    def get(self, name: str) -> np.ndarray[Any, Any]:
        """Return a copy of the first device's value."""
        return self.view(name).copy()

    def set(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Write a value to every device.

        Raises:
            PeError: another shape (exit code 3: the value comes from a file).
        """
        kind = self.type(name)
        if tuple(value.shape) != kind.shape:
            raise PeError(f"'{name}' is {list(value.shape)} in the file and {list(kind.shape)} in the model", code=ExitCode.DATA)
        for device in range(len(self.places)):
            self.view(name, device)[...] = value

    def replicate(self, names: Sequence[str] | None = None) -> None:
        """Copy the first device's values to the others."""
        for name in names if names is not None else self._types:
            for device in range(1, len(self.places)):
                self.view(name, device)[...] = self.view(name)

    @property
    def nbytes(self) -> int:
        """Bytes of one replica."""
        return sum(aligned(kind.nbytes) for kind in self._types.values())
