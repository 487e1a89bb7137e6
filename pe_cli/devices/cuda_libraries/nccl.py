"""Sums by NCCL, through its C interface: over the devices of a process, and over processes, a device of each.

A call is the same for all devices, between `ncclGroupStart` and `ncclGroupEnd`, on the stream of each; captured, it becomes nodes of the
graph. NCCL chooses how it adds up by the devices, by what joins them and by the number of elements: the same bits in every run on the same
machine, but not those of the tree.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import DTYPES
from pe_cli.devices.cuda_driver_protocol import Handles
from pe_cli.devices.cuda_libraries.protocol import written

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
#: Bytes by which the communicators of several processes know that they belong together.
ID_BYTES = 128


class Id(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = (("data", ctypes.c_char * ID_BYTES),)


#: Function -> types of its arguments; each returns a result, 0 for success.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (_POINTER,),
    "ncclCommInitAll": (_POINTER, _INT, _POINTER),
    "ncclGetUniqueId": (_POINTER,),
    "ncclCommInitRank": (_POINTER, _INT, Id, _INT),
    "ncclAllGather": (_POINTER, _POINTER, _SIZE, _INT, _POINTER, _POINTER),
    "ncclBroadcast": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclAllReduce": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclReduce": (_POINTER, _POINTER, _SIZE, _INT, _INT, _INT, _POINTER, _POINTER),
}
#: Those that return text.
TEXTS: dict[str, tuple[Any, ...]] = {"ncclGetErrorString": (_INT,), "ncclGetLastError": (_POINTER,)}
#: ncclDataType_t, of bytes for what is only moved, and ncclRedOp_t.
TYPES, BYTES = {"float32": 7, "float64": 8}, 1
SUM = 0
#: (address, bytes, element type, process that gets the sum or gives to all)
Part = tuple[int, int, str, int | None]


def version_of(library: Any) -> tuple[int, str]:
    """Return the version as the library counts it, and as it is written."""
    found = _INT()
    return (found.value, written(found.value)) if library.ncclGetVersion(ctypes.byref(found)) == 0 else (0, "?")


class _Calls:
    """The functions of NCCL, with errors for results."""

    _hint = "NCCL_DEBUG=INFO in the environment of all processes says more; executor.libraries: none sums by MPI"

    def __init__(self, library: Any) -> None:
        for name, kinds in (FUNCTIONS | TEXTS).items():
            getattr(library, name).argtypes = kinds
            getattr(library, name).restype = ctypes.c_char_p if name in TEXTS else _INT
        self._library = library

    def _do(self, name: str, *args: Any) -> None:
        result = getattr(self._library, name)(*args)
        if result:
            said = [text.decode(errors="replace") for text in self._texts(result) if text]
            raise PeError(f"the CUDA devices failed: {name}: {'; '.join(said)}", hint=self._hint, code=ExitCode.DEVICE)

    def _texts(self, result: int) -> tuple[bytes | None, bytes | None]:
        return self._library.ncclGetErrorString(result), self._library.ncclGetLastError(None)


class Sums(_Calls):
    """Sums over some devices of this process.

    Args:
        library: NCCL.
        indexes: numbers of the devices.
        handles: what libraries are given of each.

    Raises:
        PeError: it does not start (exit code 5).
    """

    _hint = "executor.libraries: none sums by kernels of pe"

    def __init__(self, library: Any, indexes: Sequence[int], handles: Sequence[Handles]) -> None:
        super().__init__(library)
        self._handles = list(handles)
        self._communicators = (_POINTER * len(indexes))()
        self._do("ncclCommInitAll", self._communicators, len(indexes), (_INT * len(indexes))(*indexes))

    def ready(self, places: Sequence[int], count: int, dtype: str, root: int | None) -> Callable[[], None]:
        """Return what enqueues a sum on the streams of all devices, in place.

        Args:
            places: address of the elements on each.
            count: how many there are on each.
            dtype: float32 or float64.
            root: number of the device that gets the sums, None for all of them; what the others have then is not said.
        """
        name = "ncclAllReduce" if root is None else "ncclReduce"
        more = (TYPES[dtype], SUM) if root is None else (TYPES[dtype], SUM, root)
        last = [(communicator, each.stream) for communicator, each in zip(self._communicators, self._handles, strict=True)]
        calls = [(place, place, count, *more, *ends) for place, ends in zip(places, last, strict=True)]

        def run() -> None:
            self._do("ncclGroupStart")
            for args in calls:
                self._do(name, *args)
            self._do("ncclGroupEnd")

        return run


class Across(_Calls):
    """A device of this process among one of each other process.

    Args:
        library: NCCL.
        handles: what libraries are given of the device.
        peers: the processes, which carry the first one's id to all; all of them do this at a time.

    Raises:
        PeError: it does not start, or another process is lost (exit code 5 or 6).
    """

    def __init__(self, library: Any, handles: Handles, peers: Any) -> None:
        super().__init__(library)
        self._handles, self._rank, self._size = handles, peers.rank, peers.size
        own = Id()
        if peers.rank == 0:
            self._do("ncclGetUniqueId", ctypes.byref(own))
        first = peers.gather(bytes(own))[0]
        self._communicator = _POINTER()
        handles.enter()
        self._do("ncclCommInitRank", ctypes.byref(self._communicator), peers.size, Id.from_buffer_copy(first), peers.rank)

    def ready(self, what: str, parts: Sequence[Part]) -> Callable[[], None]:
        """Return what enqueues an exchange on the stream of the device, in place.

        Args:
            what: see `AcrossKernel`.
            parts: that are exchanged together.
        """
        enter = self._handles.enter
        calls = [self._call(what, *part) for part in parts]

        def run() -> None:
            enter()
            self._do("ncclGroupStart")
            for name, *args in calls:
                self._do(name, *args)
            self._do("ncclGroupEnd")

        return run

    def _call(self, what: str, place: int, nbytes: int, dtype: str, root: int | None) -> tuple[Any, ...]:
        """Return a function of NCCL and its arguments."""
        ends = self._communicator, self._handles.stream
        if what == "broadcast":
            return "ncclBroadcast", place, place, nbytes, BYTES, root, *ends
        if what == "all_gather":
            mine = nbytes // self._size
            return "ncclAllGather", place + self._rank * mine, place, mine, BYTES, *ends
        count = nbytes // DTYPES[dtype]
        if what == "reduce":
            return "ncclReduce", place, place, count, TYPES[dtype], SUM, root, *ends
        return "ncclAllReduce", place, place, count, TYPES[dtype], SUM, *ends


@functools.lru_cache(maxsize=8)
def across(library: Any, driver: Any, peers: Any) -> Across:
    """Return the device of a driver among those of other processes; see `Across`."""
    return Across(library, driver.handles(), peers)


#: It joins devices, and has no calls for one.
ON_DEVICE = None
