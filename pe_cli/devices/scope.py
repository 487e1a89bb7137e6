"""Scopes: the persistable variables of a run, one replica per device, in arenas that kernels read and write directly."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.aligned_memory import aligned
from pe_cli.devices.protocol import Memory, Spot, device


class Scope:
    """Name -> value, replicated on every device.

    Args:
        places: devices.

    Attributes:
        shared: variables that all devices use one copy of.
        moves: counts how often a variable that was there came to lie elsewhere on a device: plans made before are out of date.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = tuple(places)
        self._types: dict[str, TensorType] = {}
        self._where: dict[str, tuple[list[Memory], int, int]] = {}
        self._arenas = 0
        self.shared: set[str] = set()
        self.moves = 0

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def allocate(self, types: Mapping[str, TensorType]) -> None:
        """Make zeroed room for variables that are not there yet: one contiguous arena per device, in the given order.

        Raises:
            PeError: a variable is there with another type.
        """
        fresh = {}
        for name, kind in types.items():
            if name not in self._types:
                fresh[name] = kind
            elif self._types[name] != kind:
                raise PeError(f"variable '{name}' is {self._types[name]} in the scope and {kind} in the program")
        shared = {name: kind for name, kind in fresh.items() if name in self.shared}
        self._add(shared, self.places[:1])
        self._add({name: kind for name, kind in fresh.items() if name not in shared}, self.places)

    def _add(self, types: Mapping[str, TensorType], places: Sequence[Place]) -> None:
        if not types:
            return
        line = device(places[0].kind).line
        ends = list(accumulate((aligned(k.nbytes, line) for k in types.values()), initial=0))
        offsets, total = dict(zip(types, ends, strict=False)), ends[-1]
        memories = [device(p.kind).allocate(p.index, total) for p in places]
        # Shared variables lie with the first device alone, which all others name.
        memories += memories[:1] * (len(self.places) - len(places))
        for name, offset in offsets.items():
            self._types[name] = types[name]
            self._where[name] = (memories, offset, self._arenas)
        self._arenas += 1

    def forget(self, names: Collection[str]) -> None:
        """Drop variables, so that their names may get other types; their memory is freed with that of their neighbours."""
        for name in names:
            self.moves += self._types.pop(name, None) is not None
            self._where.pop(name, None)

    def share(self, names: Collection[str]) -> None:
        """Make all devices use the first one's copy of variables, of those that are there and of those still to come."""
        self.shared |= set(names)
        for name in names:
            if name in self._where:
                memories, offset, arena = self._where[name]
                self.moves += any(m is not memories[0] for m in memories)
                self._where[name] = (memories[:1] * len(self.places), offset, arena)

    def of_first(self) -> Scope:
        """Return the scope of the first device alone, with the same memory for what is there already."""
        first = Scope(self.places[:1])
        first._types = dict(self._types)
        first._where = {name: (memories[:1], offset, arena) for name, (memories, offset, arena) in self._where.items()}
        first._arenas = self._arenas
        return first

    def copy_first(self) -> None:
        """Give every device that has replicas of its own the values of the first."""
        for name, (memories, _, _) in self._where.items():
            if any(m is not memories[0] for m in memories):
                self.set(name, self.get(name))

    def type(self, name: str) -> TensorType:
        """Return a variable's type.

        Raises:
            PeError: it is not there.
        """
        if name not in self._types:
            raise PeError(
                f"variable '{name}' has no value yet",
                hint=did_you_mean(name, self._types) or "run the startup program first",
            )
        return self._types[name]

    def spot(self, name: str, index: int) -> Spot:
        """Return where a device's replica lies."""
        memories, offset, arena = self._where[name]
        # Devices that share a copy get the same space, as accesses to it have to be ordered; spaces of scopes are below 0.
        copy = memories.index(memories[index])
        return Spot(memories[index], offset, -1 - arena * len(self.places) - copy)

    def get(self, name: str, index: int = 0) -> np.ndarray[Any, Any]:
        """Return a copy of a device's value."""
        kind = self.type(name)
        memories, offset, _ = self._where[name]
        return memories[index].read(offset, kind)

    def held(self, name: str) -> np.ndarray[Any, Any]:
        """Return the first device's value without a copy where that is the host's memory, which the next step may change."""
        if not device(self.places[0].kind).is_host:
            return self.get(name)
        spot = self.spot(name, 0)
        found: np.ndarray[Any, Any] = spot.memory.view(spot.offset, self.type(name))
        return found

    def set(self, name: str, value: np.ndarray[Any, Any], index: int | None = None) -> None:
        """Write a value to every device, or to one.

        Raises:
            PeError: another shape (exit code 3: the value comes from a file).
        """
        kind = self.type(name)
        if tuple(value.shape) != kind.shape:
            raise PeError(
                f"'{name}' is {list(value.shape)} in the file and {list(kind.shape)} in the model", code=ExitCode.DATA
            )
        memories, offset, _ = self._where[name]
        # A shared copy is written once.
        for memory in dict.fromkeys(memories if index is None else [memories[index]]):
            memory.write(offset, kind, value)

    @property
    def nbytes(self) -> int:
        """Bytes of all replicas of all variables."""
        copies = {n: len(set(map(id, memories))) for n, (memories, _, _) in self._where.items()}
        return sum(aligned(kind.nbytes) * copies[name] for name, kind in self._types.items())
