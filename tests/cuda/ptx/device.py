"""A driver of the test device: what `pe_cli.devices.cuda` asks of CUDA's, on this CPU."""

from __future__ import annotations

import ctypes
import heapq
import importlib.metadata
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from pe_cli.core.types import BFLOAT16
from pe_cli.devices.cuda_driver_protocol import Extent, OneDevice, packed
from pe_cli.devices.cuda_dry_run import NoMark
from pe_cli.devices.cuda_launches import Filled
from pe_cli.kernels.cuda.compiler import Capability, cubin, ptx
from pe_cli.kernels.cuda.language import Built
from tests import needs
from tests.cuda.ptx.machine import GUARD, Order, Piece, Program
from tests.cuda.ptx.rules import NAMES, refused
from tests.cuda.ptx.static import CAPABILITY, complaints

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
#: Bytes that an allocation is a multiple of.
ALIGNMENT = 256


class PtxDriver(OneDevice):
    """Runs every launch at once, on copies of what the kernel is given, with memory around each that it must not touch.

    Args:
        capability: that kernels are compiled for.
        orders: of threads and blocks; launches take them in turn.
        change: makes another PTX of a kernel's, for mutants.
        strict: whether a kernel may have only what `kernels.tsv` allows, and be launched only as `rules` allow.

    Attributes:
        launches: how many there were.
    """

    def __init__(
        self,
        capability: Capability = (9, 0),
        orders: Sequence[Order] = (Order(), Order("reversed"), Order("random", 1)),
        change: Callable[[Built, str], str] | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.capability = capability
        self.orders = orders
        self.launches = 0
        self._change = change
        self._strict = strict
        self._memory: dict[int, Array] = {}
        self._programs: dict[Built, Program] = {}

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory."""
        held = np.empty(nbytes + ALIGNMENT, np.uint8)
        address = -(-held.ctypes.data // ALIGNMENT) * ALIGNMENT
        self._memory[address] = held
        return address

    def free(self, address: int) -> None:
        """Give memory back."""
        del self._memory[address]

    def zero(self, address: int, nbytes: int) -> None:
        """Write zeros."""
        ctypes.memset(address, 0, nbytes)

    def write(self, address: int, value: Array) -> None:
        """Copy an array to the device."""
        ctypes.memmove(address, value.ctypes.data, value.nbytes)

    send = write

    def read(self, address: int, value: Array) -> None:
        """Copy from the device into an array."""
        ctypes.memmove(value.ctypes.data, address, value.nbytes)

    fetch = read

    def pinned(self, words: int) -> Array:
        """Return host memory."""
        return np.zeros(words, np.int64)

    def ahead(self, address: int, room: int, value: Array) -> None:
        """Copy an array of `pinned` to a room and to its place."""
        self.write(room, value)
        self.write(address, value)

    def ask(self, entry: Any, record: Array) -> None:
        """Call a function of the host at once."""
        entry(record.ctypes.data)

    def mark(self) -> NoMark:
        """Return what notes nothing: a launch returns when it is done."""
        return NoMark()

    def captured(self, launches: Sequence[Callable[[], None]], waits: Sequence[Collection[int]]) -> Callable[[], None]:
        """Return what does all of these, each as late as those that wait for others allow."""
        held = [launches[i] for i in backwards(waits)]

        def run() -> None:
            for launch in held:
                launch()

        return run

    def handles(self) -> None:
        """Return None: no library has a device."""

    def has(self, built: Built) -> bool:
        """Return whether a kernel is loaded."""
        return built in self._programs

    def program(self, built: Built) -> Program:
        """Return a kernel, loaded."""
        if built not in self._programs:
            text = ptx(built, self.capability)
            if self._strict and self.capability == CAPABILITY:
                said = complaints(built, text, cubin(built, CAPABILITY))
                assert not said, "\n".join(said)
            self._programs[built] = Program(self._change(built, text) if self._change else text)
        return self._programs[built]

    def complaints(self) -> list[str]:
        """Return what kernels that are loaded have and `kernels.tsv` does not allow."""
        found = (complaints(built, ptx(built, CAPABILITY), cubin(built, CAPABILITY)) for built in self._programs)
        return [said for each in found for said in each]

    def launcher(self, built: Built, grid: Shape, block: Shape, args: Sequence[Extent | int | float]) -> Callable[[], None]:
        """Load a kernel and return what runs it with these arguments."""
        program, words = self.program(built), packed(built, args)
        if self._strict:
            said = refused(cubin(built, self.capability), program.text, grid, block, len(words))
            assert not said[0], f"{built.kernel}: {NAMES[said[0]]}: {said[1]}"
        extents = [a for a in args if isinstance(a, Extent)]
        inside = [(table, at, extent) for table in extents if isinstance(table, Filled) for at, extent in table.held]
        apart = _merged([*extents, *(extent for _, _, extent in inside)])
        held = np.empty(sum(size + 2 * GUARD + ALIGNMENT for _, size in apart) + ALIGNMENT, np.uint8)
        copies, at = [], -(-held.ctypes.data // ALIGNMENT) * ALIGNMENT
        for address, size in apart:
            at += GUARD
            at += (address - at) % ALIGNMENT  # as aligned as it was
            copies.append(at)
            at += size
        pointers = [i for i, a in enumerate(args) if isinstance(a, Extent)]

        def moved(address: int) -> int:
            k = next(k for k, (begin, size) in enumerate(apart) if begin <= address < begin + size)
            return int(copies[k] + address - apart[k][0])

        for i, extent in zip(pointers, extents, strict=True):
            words[i] = moved(extent.address)
        led = [(moved(table.address + at), extent.address, moved(extent.address)) for table, at, extent in inside]
        small = [a.address for i, a in enumerate(args) if isinstance(a, Extent) and built.element(i) in ("uint8", BFLOAT16)]
        small += [extent.address for _, _, extent in inside]
        shifts = [0 if any(address <= a < address + size for a in small) else 2 for address, size in apart]
        pieces = [Piece(copy, size, shift) for copy, (_, size), shift in zip(copies, apart, shifts, strict=True)]

        def run(_held: Array = held) -> None:
            for copy, (address, size) in zip(copies, apart, strict=True):
                ctypes.memmove(copy, address, size)
            for at, _, there in led:
                ctypes.c_int64.from_address(at).value = there
            program.launch(words, pieces, grid, block, self.orders[self.launches % len(self.orders)])
            self.launches += 1
            for at, address, _ in led:
                ctypes.c_int64.from_address(at).value = address
            for copy, (address, size) in zip(copies, apart, strict=True):
                ctypes.memmove(address, copy, size)

        return run

    def is_done(self) -> bool:
        """Return True: a launch returns when it is done."""
        return True

    def wait(self) -> None:
        """Do nothing: a launch returns when it is done."""


def backwards(waits: Sequence[Collection[int]]) -> list[int]:
    """Return an order of steps that keeps what each waits for, with the last that may be done always first."""
    left = [set(before) for before in waits]
    others: list[list[int]] = [[] for _ in waits]
    for i, before in enumerate(left):
        for j in before:
            others[j].append(i)
    ready = [-i for i, before in enumerate(left) if not before]
    heapq.heapify(ready)
    found = []
    while ready:
        found.append(-heapq.heappop(ready))
        for i in others[found[-1]]:
            left[i].discard(found[-1])
            if not left[i]:
                heapq.heappush(ready, -i)
    return found


def needs_compiler() -> None:
    """Skip a test where kernels cannot be compiled for CUDA."""
    for name in ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink"):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            needs.skip(name, "pip install '.[cuda]'")


def _merged(extents: Sequence[Extent]) -> list[tuple[int, int]]:
    """Return the address and size of every piece of memory; those that share bytes are one."""
    out: list[tuple[int, int]] = []
    for extent in sorted(set(extents), key=lambda e: e.address):
        if out and extent.address < sum(out[-1]):
            begin, size = out[-1]
            out[-1] = begin, max(begin + size, extent.address + extent.nbytes) - begin
        else:
            out.append((extent.address, extent.nbytes))
    return out

