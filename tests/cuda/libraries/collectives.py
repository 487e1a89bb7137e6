"""NCCL as far as `cuda_libraries.nccl` asks for it, over the test library's devices; it adds up in an order of its own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.cuda.ptx.library import Library
from tests.cuda.ptx.streams import STREAM

COMMUNICATOR = 0x9000
INVALID = 4


class Function:
    """A function of C: types may be set on it."""

    def __init__(self, own: Callable[..., Any]) -> None:
        self._own = own

    def __call__(self, *args: Any) -> Any:
        return self._own(*args)


class Nccl:
    """The functions of libnccl.so.2.

    Args:
        library: the driver's.
        failing: function -> result that it gives.

    Attributes:
        sums: (elements, root, devices) of every call, in order.
    """

    def __init__(self, library: Library, failing: dict[str, int] | None = None) -> None:
        self._library, self._failing = library, failing or {}
        self._group: list[tuple[int, int, int, Any, int | None]] | None = None
        self.sums: list[tuple[int, int | None, int]] = []
        self._functions: dict[str, Function] = {}

    def __getattr__(self, name: str) -> Function:
        own = self.__dict__.get("_functions", {})
        if name not in own:
            if name.startswith("_"):
                raise AttributeError(name)
            what = getattr(self, f"_{name}", None)
            own[name] = Function(lambda *args: self._failing.get(name) or what(*args))
        return own[name]

    def _ncclGetVersion(self, found: Any) -> int:
        found._obj.value = 23203
        return 0

    def _ncclGetErrorString(self, result: int) -> bytes:
        return b"remote process exited or there was a network error" if result == 6 else b"invalid argument"

    def _ncclGetLastError(self, communicator: Any) -> bytes:
        return b"a link is down"

    def _ncclCommInitAll(self, communicators: Any, count: int, devices: Any) -> int:
        assert list(devices) == list(range(count))
        for i in range(count):
            communicators[i] = COMMUNICATOR + i
        return 0

    def _ncclGroupStart(self) -> int:
        assert self._group is None
        self._group = []
        return 0

    def _ncclAllReduce(self, source: int, target: int, count: int, kind: int, how: int, communicator: int, stream: Any) -> int:
        return self._ncclReduce(source, target, count, kind, how, None, communicator, stream)

    def _ncclReduce(
        self, source: int, target: int, count: int, kind: int, how: int, root: int | None, communicator: int, stream: Any
    ) -> int:
        assert (source, how) == (target, 0)
        assert self._group is not None
        if communicator - COMMUNICATOR != stream.value - STREAM:
            return INVALID
        self._group.append((source, count, kind, communicator - COMMUNICATOR, root))
        return 0

    def _ncclGroupEnd(self) -> int:
        group, self._group = self._group, None
        assert group
        places = [place for place, *_ in group]
        ((count, kind, root),) = {(count, kind, root) for _, count, kind, _, root in group}
        dtype = {7: np.float32, 8: np.float64}[kind]

        def run() -> None:
            arrays = [np.frombuffer((ctypes.c_char * (count * dtype().nbytes)).from_address(place), dtype) for place in places]
            total = arrays[-1].copy()
            for array in arrays[-2::-1]:
                total += array
            for d, array in enumerate(arrays):
                array[:] = total if root in (None, d) else np.nan
            self.sums.append((count, root, len(arrays)))

        self._library.meet([device for *_, device, _ in group], run)
        return 0


class NcclAcross(Nccl):
    """NCCL of several processes, which are threads.

    Args:
        processes: how many.

    Attributes:
        local: `library`, the driver's library of the thread.
        exchanged: (process, what, bytes or elements of it) of every call, in order.
    """

    def __init__(self, processes: int) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.local = threading.local()
        self._barrier, self._shared = threading.Barrier(processes, timeout=200), dict[int, Any]()
        self.exchanged: list[tuple[int, str, int]] = []

    def give_up(self) -> None:
        """Let nobody wait for a process that has failed."""
        self._barrier.abort()

    def _ncclGetUniqueId(self, found: Any) -> int:
        found._obj.data = b"of the first process"
        return 0

    def _ncclCommInitRank(self, communicator: Any, count: int, known: Any, rank: int) -> int:
        assert known.data == b"of the first process"
        communicator._obj.value = COMMUNICATOR + rank
        return 0

    def _ncclGroupStart(self) -> int:
        self.local.calls = []
        return 0

    def _ncclGroupEnd(self) -> int:
        calls = self.local.calls
        ((library, stream),) = {(library, stream.value) for library, stream, _ in calls}

        def run() -> None:
            for _, _, call in calls:
                call()

        return library._do(ctypes.c_void_p(stream), run)

    def _ncclAllReduce(self, source: int, target: int, count: int, kind: int, how: int, communicator: Any, stream: Any) -> int:
        assert (source, how) == (target, 0)
        return self._exchange("all_reduce", source, target, count, kind, communicator, stream, _added)

    def _ncclReduce(self, source: int, target: int, count: int, kind: int, how: int, root: int, communicator: Any, stream: Any) -> int:
        assert (source, how) == (target, 0)
        return self._exchange("reduce", source, target, count, kind, communicator, stream, _added, root)

    def _ncclAllGather(self, source: int, target: int, count: int, kind: int, communicator: Any, stream: Any) -> int:
        return self._exchange("all_gather", source, target, count, kind, communicator, stream, np.concatenate)

    def _ncclBroadcast(self, source: int, target: int, count: int, kind: int, root: int, communicator: Any, stream: Any) -> int:
        assert source == target
        return self._exchange("broadcast", source, target, count, kind, communicator, stream, lambda arrays: arrays[root])

    def _exchange(
        self, what: str, source: int, target: int, count: int, kind: int, communicator: Any, stream: Any, join: Any, root: int | None = None
    ) -> int:
        dtype, rank = {1: np.uint8, 7: np.float32, 8: np.float64}[kind], communicator.value - COMMUNICATOR

        def view(place: int, elements: int) -> Any:
            return np.frombuffer((ctypes.c_char * (elements * dtype().nbytes)).from_address(place), dtype)

        def call() -> None:
            self._shared[rank] = view(source, count).copy()
            self._barrier.wait()
            made = join([self._shared[r] for r in sorted(self._shared)])
            self._barrier.wait()
            view(target, len(made))[:] = made if root in (None, rank) else np.nan
            self.exchanged.append((rank, what, count))

        self.local.calls.append((self.local.library, stream, call))
        return 0


def _added(arrays: list[Any]) -> Any:
    return sum(arrays[::-1][1:], arrays[-1])
