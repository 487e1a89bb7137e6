"""Convolutions by cuDNN, through its C interface of backend descriptors: a graph of one operation, engines for it, and a plan of one.

A descriptor is made, its attributes are set, and it is finalized; then it can be read. An algorithm is the JSON text of a plan, which a
library of the same version makes the plan of again.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.devices.cuda_libraries.protocol import LibraryFailed, NotTaken, Ready, declare, version
from pe_cli.devices.cuda_protocol import Extent
from pe_cli.kernels.library_calls import Convolution

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
CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN, GRAPH, PACK, TENSOR = 1, 2, 3, 4, 5, 15, 16, 17
#: cudnnBackendAttributeType_t, and what holds one.
HANDLE, DATA_TYPE, LONG, FLOAT, DOUBLE, ADDRESS, MODE, HEURISTIC, NOTE, DESCRIPTOR, BEHAVIOUR, CHAR = 0, 1, 3, 4, 5, 6, 7, 8, 11, 15, 19, 24
HOLDS: dict[int, Any] = {
    HANDLE: _POINTER, DATA_TYPE: _INT, LONG: _LONG, FLOAT: ctypes.c_float, DOUBLE: ctypes.c_double, ADDRESS: _POINTER, MODE: _INT,
    HEURISTIC: _INT, NOTE: _INT, DESCRIPTOR: _POINTER, BEHAVIOUR: _INT, CHAR: ctypes.c_ubyte,
}  # fmt: skip
#: cudnnBackendAttributeName_t: of convolutions, heuristics, engines, plans, graphs, tensors and packs of addresses.
COMPUTE, CONVOLUTION_MODE, DILATIONS, STRIDES, AFTER, BEFORE, AXES = 100, 101, 102, 103, 104, 105, 106
HEURISTIC_MODE, HEURISTIC_GRAPH, RESULTS = 200, 201, 202
CONFIG_ENGINE, NOTES, BEHAVIOURS = 300, 1303, 1305
PLAN_HANDLE, PLAN_CONFIG, PLAN_WORKSPACE, PLAN_JSON = 400, 401, 402, 405
GRAPH_HANDLE, GRAPH_OPERATIONS = 800, 801
ALIGNMENT, TYPE, SIZES, STEPS, UID = 900, 901, 902, 903, 906
PACK_UIDS, PACK_ADDRESSES, PACK_WORKSPACE = 1000, 1001, 1003
#: Direction -> its descriptor, and the attributes for alpha, beta, the convolution, and its images, filters and outputs.
OPERATIONS = {
    "values": (10, 700, 701, 702, (704, 703, 705)),
    "images_back": (12, 706, 707, 708, (710, 709, 711)),
    "filters_back": (11, 712, 713, 714, (716, 715, 717)),
}
CROSS_CORRELATION = 1
#: cudnnBackendHeurMode_t: by a tree of decisions, and what always works.
HEURISTIC_MODES = (3, 2)
#: cudnnBackendNumericalNote_t: an engine of these is never taken, one of the last only for factors that are rounded.
CONVERTS, REDUCES_LESS, NONDETERMINISTIC, TENSOR_CORE = 1, 2, 4, 0
#: cudnnBackendBehaviorNote_t of engines that compile in every process.
COMPILES = 0
#: cudnnDataType_t.
TYPES = {"float32": 0, "float64": 1, "bfloat16": 9}
#: Engines that are asked for, as those that round come first; plans that are returned at most, as each takes a while; bytes of its text.
ASKED, RETURNED, MOST_TEXT = 100, 5, 1 << 20


def version_of(library: Any) -> tuple[int, str]:
    """Return a library's version, and as it is written."""
    return version(library.cudnnGetVersion)


class Descriptor:
    """A backend descriptor, which lives as long as this.

    Args:
        library: the library.
        kind: of descriptor.
        attributes: (attribute, type of its elements, elements); then it is finalized, unless there are none: it is filled by a question.

    Raises:
        NotTaken: the library says no.
    """

    def __init__(self, library: Any, kind: int, *attributes: tuple[int, int, Sequence[Any]]) -> None:
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

    def algorithms(self, what: Convolution, places: Sequence[Extent]) -> list[bytes]:
        """Return plans for a convolution; see `Library`."""
        self._enter()
        try:
            operation = operation_of(self._library, what, [place.address for place in places])
            handle = (GRAPH_HANDLE, HANDLE, [self._handle])
            graph = Descriptor(self._library, GRAPH, handle, (GRAPH_OPERATIONS, DESCRIPTOR, [operation]))
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
            wanted = (HEURISTIC_GRAPH, DESCRIPTOR, [graph]), (HEURISTIC_MODE, HEURISTIC, [mode])
            return Descriptor(self._library, HEURISTICS, *wanted).filled(RESULTS, ENGINE_CONFIG, ASKED)
        except NotTaken:
            return []

    def _text(self, what: Convolution, config: Descriptor, room: int) -> bytes:
        """Return a plan as text, where it gives the same bits in every run and is as exact as it is wanted.

        Raises:
            NotTaken: it does not, takes too much memory, or does not work here.
        """
        (engine,) = config.filled(CONFIG_ENGINE, ENGINE, 1)
        never = {CONVERTS, REDUCES_LESS} | ({NONDETERMINISTIC} if what.deterministic else set())
        never |= {TENSOR_CORE} if what.precision == "float32" else set()
        if never & set(engine.read(NOTES, NOTE, 16)) or COMPILES in engine.read(BEHAVIOURS, BEHAVIOUR, 16):
            raise NotTaken("an engine of another kind")
        plan = Descriptor(self._library, PLAN, (PLAN_HANDLE, HANDLE, [self._handle]), (PLAN_CONFIG, DESCRIPTOR, [config]))
        if plan.read(PLAN_WORKSPACE, LONG, 1)[0] > room:
            raise NotTaken("too much workspace")
        return bytes(plan.read(PLAN_JSON, CHAR, MOST_TEXT)).rstrip(b"\0")

    def ready(self, what: Convolution, algorithm: bytes, places: Sequence[Extent]) -> Ready:
        """Return a convolution by a plan; see `Library`.

        Raises:
            NotTaken: it is no plan for this device, or takes more workspace than there is.
        """
        self._enter()
        text = (PLAN_JSON, CHAR, algorithm)
        plan = Descriptor(self._library, PLAN, (PLAN_HANDLE, HANDLE, [self._handle]), text)
        (workspace,) = plan.read(PLAN_WORKSPACE, LONG, 1)
        if workspace > places[-1].nbytes:
            raise NotTaken("too much workspace")
        pack = Descriptor(
            self._library, PACK, (PACK_UIDS, LONG, [1, 2, 3]), (PACK_ADDRESSES, ADDRESS, [p.address for p in places[:3]]),
            (PACK_WORKSPACE, ADDRESS, [places[-1].address]),
        )  # fmt: skip
        execute, handle = self._library.cudnnBackendExecute, self._handle

        def run() -> None:
            if status := execute(handle, plan.pointer, pack.pointer):
                raise LibraryFailed("cudnnBackendExecute", status)

        return Ready(run, workspace)


def operation_of(library: Any, what: Convolution, places: Sequence[int]) -> Descriptor:
    """Return the operation of a convolution.

    Args:
        library: the library.
        what: the convolution.
        places: addresses of images, filters and outputs, which are 1, 2 and 3 to the graph.

    Raises:
        NotTaken: the library says no.
    """
    (h, w, c), (oh, ow, oc) = what.image, what.out
    per = c // what.groups
    sizes = ((what.n, c, h, w), (oc, per, *what.taps), (what.n, oc, oh, ow))
    tensors = [_tensor(library, what.dtype, i + 1, size, at) for i, (size, at) in enumerate(zip(sizes, places, strict=False))]
    how = Descriptor(
        library, CONVOLUTION, (COMPUTE, DATA_TYPE, [TYPES["float64" if what.dtype == "float64" else "float32"]]),
        (CONVOLUTION_MODE, MODE, [CROSS_CORRELATION]), (AXES, LONG, [2]), (DILATIONS, LONG, what.dilations), (STRIDES, LONG, what.strides),
        (BEFORE, LONG, what.before), (AFTER, LONG, what.after),
    )  # fmt: skip
    kind, alpha, beta, convolution, names = OPERATIONS[what.direction]
    number = DOUBLE if what.dtype == "float64" else FLOAT
    factors = (alpha, number, [1.0]), (beta, number, [0.0])
    named = [(name, DESCRIPTOR, [tensor]) for name, tensor in zip(names, tensors, strict=True)]
    return Descriptor(library, kind, (convolution, DESCRIPTOR, [how]), *named, *factors)


def _tensor(library: Any, dtype: str, uid: int, sizes: tuple[int, ...], address: int) -> Descriptor:
    """Return a tensor whose sizes are those of NCHW, and whose channels lie last."""
    _, c, h, w = sizes
    steps = (h * w * c, 1, w * c, c)
    return Descriptor(
        library, TENSOR, (TYPE, DATA_TYPE, [TYPES[dtype]]), (SIZES, LONG, sizes), (STEPS, LONG, steps), (UID, LONG, [uid]),
        (ALIGNMENT, LONG, [min(address & -address, 64) or 64]),
    )  # fmt: skip


#: The library on a device.
ON_DEVICE = Cudnn
