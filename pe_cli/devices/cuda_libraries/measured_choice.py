"""Chooses between a library and our kernels for each call: both are measured once on a device, and the result is kept on disk.

What was chosen decides about the last bits of a result. So a choice, once kept, stays: it is read before anything is measured, and of two
processes that measure at a time the first to be done decides. An algorithm counts only if its results are ours within rounding, with NaN
wherever ours have it, and if two runs give the same bits, where they must.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import BFLOAT16, narrowed, widened
from pe_cli.devices.cuda_driver_protocol import Driver, Extent
from pe_cli.devices.cuda_libraries import loaded_libraries
from pe_cli.devices.cuda_libraries.protocol import Libraries, Library, LibraryFailed, NotTaken
from pe_cli.devices.protocol import Spot, Work
from pe_cli.kernels.calls import Buffer, Call, Offset, buffers_of
from pe_cli.kernels.compiler import cache
from pe_cli.kernels.cuda.library_calls import LibraryKernel

Array = np.ndarray[Any, Any]
Launch = Callable[[], None]
#: Begins the hash of what is kept; a new number where its form or what is measured changes.
FORM = "library choice 3"
#: Launches of a graph that is timed, and how often it is.
LAUNCHES, TIMES = 8, 3
#: Most algorithms that are measured.
MOST = 8
#: A library's call must take less than this part of our time.
FASTER = 0.97
#: Bytes at which memory may begin as well as anywhere: addresses are as aligned where they are measured.
ALIGNMENT = 256
#: Most elements that are compared, and random numbers that inputs are filled with, again and again.
COMPARED, RANDOM = 1 << 22, 1 << 18
#: Largest error of a result, in parts of the largest number.
WITHIN = {"float64": 1e-11, "float32": 1e-4, "tf32": 1e-2, "bf16": 4e-2, BFLOAT16: 1e-3}
#: What it may be where the result is rounded to bfloat16: two sums that differ in a last bit may have different neighbours.
ROUNDED = 2**-7


@dataclass(frozen=True, eq=False)
class Chosen:
    """A library's call in the place of a kernel.

    Args:
        params, name: as of a kernel.
        written: numbers of the arguments that are written.
        run: enqueues it.
        record: what it computes, and the hash of all that decides how.
        instead: a call that stands for it where one of a kernel's is needed.
    """

    params: tuple[str, ...]
    name: str
    written: frozenset[int]
    run: Callable[[], None]
    record: tuple[str, str]
    instead: Call


class Steps(Protocol):
    """What a device's steps do for a choice."""

    def extent(self, arg: Any) -> Extent:
        """Return where an argument lies."""

    def elsewhere(self, calls: Sequence[Call], spot: Callable[[Buffer], Spot]) -> tuple[Sequence[Launch], Any]:
        """Return the launches of calls on buffers that lie elsewhere, and what must be held as long."""

    def ahead(self, calls: Sequence[Call]) -> None:
        """Compile the kernels of calls, side by side."""


def settled(driver: Driver, works: Sequence[Work], steps: Steps) -> list[Work]:
    """Return works in whose calls a library's or our own stand for each that a library may do.

    Args:
        driver: of the device.
        works: of a step.
        steps: of the device.
    """
    offered = [call for work in works for call in work.calls if isinstance(call.kernel, LibraryKernel)]
    if not offered:
        return list(works)
    libraries = loaded_libraries.of(driver, {call.kernel.what.library for call in offered})
    made = _found(driver, libraries, offered, steps) if libraries else {}
    instead = {id(call): made.get(id(call)) or list(call.kernel.own) for call in offered}
    return [replace(work, calls=[c for call in work.calls for c in instead.get(id(call), [call])]) for work in works]


def _found(driver: Driver, libraries: Libraries, offered: Sequence[Call], steps: Steps) -> dict[int, list[Call]]:
    """Return the calls with a library's, by the call that offers them, where it is chosen."""
    calls = {id(call): call for call in offered if call.kernel.what.library in libraries.each}
    keys = {at: _key(libraries, call, steps) for at, call in calls.items()}
    missing = {keys[at]: call for at, call in calls.items() if cache.read(keys[at]) is None}
    steps.ahead([c for call in missing.values() for c in call.kernel.calls])
    chosen: dict[str, bytes] = {}
    for key, call in missing.items():
        chosen[key] = json.dumps(_Measured(driver, libraries, call, steps).best()).encode()
        if cache.read(key) is None:
            cache.store(key, chosen[key])
    found = {}
    for at, call in calls.items():
        algorithm = _kept(cache.read(keys[at]) or chosen[keys[at]])
        if algorithm:
            with contextlib.suppress(NotTaken):  # the library has changed though its version has not
                found[at] = with_library(call, libraries.each[call.kernel.what.library], algorithm, steps.extent)
    return found


def _kept(body: bytes) -> bytes | None:
    found = json.loads(body)["algorithm"]
    return bytes.fromhex(found) if found else None


def _key(libraries: Libraries, call: Call, steps: Steps) -> str:
    """Return the hash of all that a choice depends on."""
    kernel: LibraryKernel = call.kernel
    library = libraries.each[kernel.what.library]
    places = [steps.extent(arg).address % ALIGNMENT for arg in call.args]
    own = [(c.kernel.name, *(a for a in c.args if isinstance(a, int))) for c in kernel.own]
    return _hash(FORM, libraries.card, library.name, library.version, repr(kernel.what), repr(places), repr(own))


def _hash(*said: str) -> str:
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:32]


def with_library(call: Call, library: Library, algorithm: bytes, extent: Callable[[Any], Extent]) -> list[Call]:
    """Return a library's call with ours around it.

    Args:
        call: that offers it.
        library: that does it.
        algorithm: of the library's.
        extent: where an argument lies.

    Raises:
        NotTaken: the library says no.
    """
    kernel: LibraryKernel = call.kernel
    args = call.args[: kernel.arguments]
    ready = library.ready(kernel.what, algorithm, [extent(arg) for arg in args])
    if not ready.workspace:  # others may have its bytes meanwhile
        args = args[:-1]
    written = frozenset(i for i in kernel.written if i < len(args))
    name, what = kernel.name.removesuffix("_or_ours"), repr(kernel.what)
    record = f"{name} {_hash(what)[:8]}", _hash(library.version, what, algorithm.hex())
    made = Chosen(kernel.params[: len(args)], name, written, ready.run, record, kernel.own[-1])
    return [*kernel.before, replace(call, kernel=made, args=args), *kernel.after]


class _Measured:
    """A call on memory of its own.

    Args:
        driver, libraries, steps: of the device.
        call: that a library may do.
    """

    def __init__(self, driver: Driver, libraries: Libraries, call: Call, steps: Steps) -> None:
        self._driver, self._libraries, self._steps, self._call = driver, libraries, steps, call
        self._kernel: LibraryKernel = call.kernel
        self._library = libraries.each[self._kernel.what.library]
        self._memory: dict[Buffer, Spot] = {}
        self._taken: list[int] = []
        self._given: Sequence[Launch] = ()
        self._random = np.random.default_rng(0).standard_normal(RANDOM)

    def best(self) -> dict[str, Any]:
        """Return what is kept: the fastest algorithm, None where ours is as fast or memory does not suffice; microseconds of both."""
        try:
            for b in dict.fromkeys(b for arg in self._call.args for b in buffers_of(arg)):
                self._memory[b] = self._place(b)
            return self._fastest()
        except PeError as error:
            if not error.message.startswith("cannot allocate"):
                raise
            return {"what": self._kernel.name.removesuffix("_or_ours"), "algorithm": None}
        finally:
            for address in self._taken:
                self._driver.free(address)

    def _place(self, b: Buffer) -> Spot:
        """Return memory for a buffer, as aligned as where it lies in the plan."""
        address = self._driver.allocate(b.type.nbytes + 2 * ALIGNMENT)
        self._taken.append(address)
        return Spot(_At(address + (self._steps.extent(b).address - address) % ALIGNMENT), 0, 0)

    def _extent(self, arg: Any) -> Extent:
        (b,) = buffers_of(arg)
        skipped = arg.elements * b.type.numpy.itemsize if isinstance(arg, Offset) else 0
        return Extent(self._memory[b].memory.address + skipped, b.type.nbytes - skipped)

    def _fastest(self) -> dict[str, Any]:
        self._given, given = self._steps.elsewhere(self._kernel.given, self._memory.__getitem__)
        launches, held = self._steps.elsewhere(self._kernel.own, self._memory.__getitem__)
        wanted, spoilt = (self._computed(launches, spoil=spoil) for spoil in (False, True))
        ours = self._seconds(launches)
        algorithm, least = None, float("inf")
        places = [self._extent(arg) for arg in self._call.args[: self._kernel.arguments]]
        for each in self._library.algorithms(self._kernel.what, places)[:MOST]:
            with contextlib.suppress(NotTaken, LibraryFailed):
                calls = with_library(self._call, self._library, each, self._extent)
                launches, held = self._steps.elsewhere(calls, self._memory.__getitem__)
                for launch in launches:  # what fails, fails outside of a capture
                    launch()
                self._driver.wait()
                if (seconds := self._library_seconds(launches)) < least and self._is_right(launches, wanted, spoilt):
                    algorithm, least = each, seconds
        del held, given
        # A little faster is no reason: the next measurement might say the opposite.
        taken = algorithm is not None and least < FASTER * ours
        times = {"ours_us": ours * 1e6, "library_us": least * 1e6 if algorithm is not None else None}
        return {"what": self._kernel.name.removesuffix("_or_ours"), "algorithm": algorithm.hex() if algorithm and taken else None, **times}

    def _seconds(self, launches: Sequence[Launch]) -> float:
        """Return how long launches take in a graph, where the host is no part of it."""
        # One launch takes less than the clock and the host: many behind one another are measured.
        many = [*launches] * LAUNCHES
        graph = self._driver.captured(many, [[i - 1] if i else [] for i in range(len(many))])
        graph()
        return min(self._libraries.seconds(graph) for _ in range(TIMES)) / LAUNCHES

    def _library_seconds(self, launches: Sequence[Launch]) -> float:
        """Return what `_seconds` does.

        Raises:
            NotTaken: no graph can be made of a library's call.
        """
        try:
            return self._seconds(launches)
        except PeError as error:
            raise NotTaken(error.message) from error

    def _is_right(self, launches: Sequence[Launch], wanted: Sequence[Array], spoilt: Sequence[Array]) -> bool:
        """Return whether two runs are ours within rounding, and of the same bits where they must be, and no NaN is lost.

        Args:
            launches: of a library.
            wanted, spoilt: our results, of numbers, and of inputs with NaNs.
        """
        runs = (self._computed(launches, spoil=spoil) for spoil in (False, False, True))
        each = zip(self._kernel.results, wanted, spoilt, *runs, strict=True)
        return all(self._is_ours(b.dtype, *arrays) for b, *arrays in each)

    def _is_ours(self, dtype: str, wanted: Array, spoilt: Array, first: Array, again: Array, nans: Array) -> bool:
        what = self._kernel.what
        parts = WITHIN[what.precision if what.dtype == "float32" else what.dtype]
        within = max(parts, ROUNDED if dtype == BFLOAT16 else 0) * np.abs(wanted).max()
        lost = np.isnan(spoilt) & ~np.isnan(nans)
        same = first.tobytes() == again.tobytes() or not what.deterministic
        return bool(same and max(np.abs(run - wanted).max() for run in (first, again)) <= within and not lost.any())

    def _computed(self, launches: Sequence[Launch], *, spoil: bool) -> list[Array]:
        self._fill(spoil=spoil)
        for launch in launches:
            launch()
        self._driver.wait()
        return [self._result(b) for b in self._kernel.results]

    def _fill(self, *, spoil: bool) -> None:
        for b, spot in self._memory.items():
            numbers = self._random.copy()
            numbers[0] = np.nan if spoil and b not in self._kernel.results else numbers[0]
            values = narrowed(numbers) if b.dtype == BFLOAT16 else numbers.astype(b.type.numpy)
            for begin in range(0, b.size, RANDOM):
                self._driver.write(spot.memory.address + begin * values.itemsize, values[: b.size - begin])
        for launch in self._given:
            launch()

    def _result(self, b: Buffer) -> Array:
        found = np.empty(min(b.size, COMPARED), b.type.numpy)
        self._driver.read(self._memory[b].memory.address, found)
        return widened(found) if b.dtype == BFLOAT16 else found


@dataclass(frozen=True)
class _At:
    """Memory from an address on."""

    address: int
