"""Convolutions and attention by cuDNN, through its C interface: a graph of one operation, engines for it, and a plan of one.

An algorithm is the JSON text of a plan, which a library of the same version makes the plan of again. It holds the compiled kernel of an
engine that compiles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_libraries import cudnn_attention, cudnn_convolution
from pe_cli.devices.cuda_libraries.cudnn_descriptors import (
    ADDRESS,
    BEHAVIOUR,
    CHAR,
    DESCRIPTOR,
    HANDLE,
    HEURISTIC,
    LONG,
    NOTE,
    Attribute,
    Descriptor,
    graph_of,
)  # fmt: skip
from pe_cli.devices.cuda_libraries.protocol import LibraryFailed, NotTaken, Ready, declare, version
from pe_cli.kernels.cuda.library_calls import Attention, Convolution

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
#: Function -> types of its arguments; each returns a status, 0 for success.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (_POINTER,),
    "cudnnSetStream": (_POINTER, _POINTER),
    "cudnnBackendCreateDescriptor": (_INT, _POINTER),
    "cudnnBackendDestroyDescriptor": (_POINTER,),
    "cudnnBackendSetAttribute": (_POINTER, _INT, _INT, _LONG, _POINTER),
    "cudnnBackendGetAttribute": (_POINTER, _INT, _INT, _LONG, _POINTER, _POINTER),
    "cudnnBackendFinalize": (_POINTER,),
    "cudnnBackendExecute": (_POINTER, _POINTER, _POINTER),
}
#: cudnnBackendDescriptorType_t.
ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN, PACK = 2, 3, 4, 5, 16
#: cudnnBackendAttributeName_t: of heuristics, engines, plans, graphs and packs of addresses.
HEURISTIC_MODE, HEURISTIC_GRAPH, RESULTS = 200, 201, 202
CONFIG_ENGINE, NOTES, BEHAVIOURS = 300, 1303, 1305
PLAN_HANDLE, PLAN_CONFIG, PLAN_WORKSPACE, PLAN_JSON = 400, 401, 402, 405
GRAPH_HANDLE = 800
PACK_UIDS, PACK_ADDRESSES, PACK_WORKSPACE = 1000, 1001, 1003
#: cudnnBackendHeurMode_t: by a tree of decisions, and what always works.
HEURISTIC_MODES = (3, 2)
#: cudnnBackendNumericalNote_t: an engine of these is never taken, one of the last only for factors that are rounded.
CONVERTS, REDUCES_LESS, NONDETERMINISTIC, TENSOR_CORE = 1, 2, 4, 0
#: cudnnBackendBehaviorNote_t of engines that compile.
COMPILES = 0
#: Engines that are asked for, as those that round come first; plans that are returned at most, as each takes a while; bytes of its text.
ASKED, RETURNED, MOST_TEXT = 100, 5, 1 << 20


def version_of(library: Any) -> tuple[int, str]:
    """Return a library's version, and as it is written."""
    return version(library.cudnnGetVersion)


class Cudnn:
    """cuDNN on one device; see `Library`.

    Args:
        library: its functions.
        version: as it is written.
        stream: of the device.
        enter: lets this thread use the device.

    Raises:
        NotTaken: the library does not work with this device.
    """

    name = "cudnn"

    def __init__(self, library: Any, version: str, stream: Any, enter: Callable[[], None]) -> None:
        declare(library, FUNCTIONS)
        self.version = version
        self._library, self._enter = library, enter
        self._handle = _POINTER()  # as long as the process: it goes with the device
        if library.cudnnCreate(ctypes.byref(self._handle)) or library.cudnnSetStream(self._handle, stream):
            raise NotTaken("cudnnCreate")
        self._of_graph: list[Attribute] = [(GRAPH_HANDLE, HANDLE, [self._handle])]
        self._of_question: list[Attribute] = []
        self._of_plan: list[Attribute] = [(PLAN_HANDLE, HANDLE, [self._handle])]

    def algorithms(self, what: Convolution | Attention, places: Sequence[Extent]) -> list[bytes]:
        """Return plans; see `Library`."""
        self._enter()
        try:
            operation = _operations(what).operation_of(self._library, what, [place.address for place in places[:-1]])
            graph = graph_of(self._library, [operation], *self._of_graph)
        except NotTaken:
            return []
        found: list[bytes] = []
        for mode in HEURISTIC_MODES:
            for config in self._configs(graph, mode):
                try:
                    text = self._text(what, config, places[-1].nbytes)
                except NotTaken:
                    continue
                if text not in found:
                    found.append(text)
                if len(found) == RETURNED:
                    return found
        return found

    def _configs(self, graph: Descriptor, mode: int) -> list[Descriptor]:
        try:
            wanted: list[Attribute] = [(HEURISTIC_GRAPH, DESCRIPTOR, [graph]), (HEURISTIC_MODE, HEURISTIC, [mode]), *self._of_question]
            return Descriptor(self._library, HEURISTICS, *wanted).filled(RESULTS, ENGINE_CONFIG, ASKED)
        except NotTaken:
            return []

    def _text(self, what: Convolution | Attention, config: Descriptor, room: int) -> bytes:
        """Return a plan as text, where it gives the same bits in every run and is as exact as it is wanted.

        Raises:
            NotTaken: it does not, takes too much memory, or does not work here.
        """
        (engine,) = config.filled(CONFIG_ENGINE, ENGINE, 1)
        never = {CONVERTS, REDUCES_LESS} | ({NONDETERMINISTIC} if what.deterministic else set())
        never |= {TENSOR_CORE} if what.precision == "float32" else set()
        compiles = COMPILES in engine.read(BEHAVIOURS, BEHAVIOUR, 16)
        if never & set(engine.read(NOTES, NOTE, 16)) or (compiles and not what.compiled):
            raise NotTaken("an engine of another kind")
        plan = Descriptor(self._library, PLAN, *self._of_plan, (PLAN_CONFIG, DESCRIPTOR, [config]))
        if plan.read(PLAN_WORKSPACE, LONG, 1)[0] > room:
            raise NotTaken("too much workspace")
        return bytes(plan.read(PLAN_JSON, CHAR, MOST_TEXT)).rstrip(b"\0")

    def ready(self, what: Convolution | Attention, algorithm: bytes, places: Sequence[Extent]) -> Ready:
        """Return a call by a plan; see `Library`.

        Raises:
            NotTaken: it is no plan for this device, or takes more workspace than there is.
        """
        self._enter()
        plan = Descriptor(self._library, PLAN, *self._of_plan, (PLAN_JSON, CHAR, algorithm))
        (workspace,) = plan.read(PLAN_WORKSPACE, LONG, 1)
        if workspace > places[-1].nbytes:
            raise NotTaken("too much workspace")
        numbers = _operations(what).numbers_of(what)
        addresses = {i + 1: place.address for i, place in enumerate(places[:-1])}
        addresses |= {uid: ctypes.addressof(number) for uid, number in numbers.items()}
        pack = Descriptor(
            self._library, PACK, (PACK_UIDS, LONG, [*addresses]), (PACK_ADDRESSES, ADDRESS, [*addresses.values()]),
            (PACK_WORKSPACE, ADDRESS, [places[-1].address]),
        )  # fmt: skip
        execute, handle, enter = self._library.cudnnBackendExecute, self._handle, self._enter

        def run(_held: Any = numbers) -> None:
            enter()
            if status := execute(handle, plan.pointer, pack.pointer):
                raise LibraryFailed("cudnnBackendExecute", status)

        return Ready(run, workspace)


def _operations(what: Convolution | Attention) -> Any:
    """Return the module that knows the operation: `operation_of` makes it, and `numbers_of` are those that it reads from the host."""
    return cudnn_attention if isinstance(what, Attention) else cudnn_convolution


#: The library on a device.
ON_DEVICE = Cudnn
