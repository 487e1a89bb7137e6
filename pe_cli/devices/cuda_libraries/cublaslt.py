"""Matrix products by cuBLASLt, through its C interface.

cuBLASLt stores matrices column by column. A matrix that is stored row by row is, read so, its transpose; so it is asked for
C^T = B^T A^T, whose rows are the columns of C. An algorithm is 64 bytes that a library of the same version takes again.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.core.types import BFLOAT16
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_libraries.protocol import LibraryFailed, NotTaken, Ready, declare, version
from pe_cli.kernels.cuda.library_calls import Product

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
#: Function -> types of its arguments; each returns a status, 0 for success.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_POINTER,),
    "cublasLtMatmulDescCreate": (_POINTER, _INT, _INT),
    "cublasLtMatmulDescDestroy": (_POINTER,),
    "cublasLtMatmulDescSetAttribute": (_POINTER, _INT, _POINTER, _SIZE),
    "cublasLtMatrixLayoutCreate": (_POINTER, _INT, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutDestroy": (_POINTER,),
    "cublasLtMatrixLayoutSetAttribute": (_POINTER, _INT, _POINTER, _SIZE),
    "cublasLtMatmulPreferenceCreate": (_POINTER,),
    "cublasLtMatmulPreferenceDestroy": (_POINTER,),
    "cublasLtMatmulPreferenceSetAttribute": (_POINTER, _INT, _POINTER, _SIZE),
    "cublasLtMatmulAlgoGetHeuristic": (*[_POINTER] * 7, _INT, _POINTER, _POINTER),
    "cublasLtMatmulAlgoCheck": (_POINTER,) * 8,
    "cublasLtMatmul": (*[_POINTER] * 14, _SIZE, _POINTER),
}
#: cudaDataType_t, and cublasComputeType_t by element type and precision.
TYPES = {"float32": 0, "float64": 1, "bfloat16": 14}
COMPUTES = {("float64", ""): 70, ("float32", "float32"): 68, ("float32", "tf32"): 77, ("float32", "bf16"): 75, ("bfloat16", ""): 68}
#: cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t and cublasLtMatmulPreferenceAttributes_t.
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
BATCH_COUNT, BATCH_OFFSET = 5, 6
MAX_WORKSPACE, REDUCTIONS, ALIGNMENT_A = 1, 3, 5
#: cublasLtEpilogue_t.
DEFAULT, RELU, BIAS = 1, 2, 4
#: How sums in several parts are added up: in place, where whichever block is first comes first; or out of place, as parts of the type of
#: sums, or of that of the result. What is stored as bfloat16 is rounded once, so that neither the first nor the last is for it.
IN_PLACE, PARTS, PARTS_AS_RESULT = 1, 2, 4
#: Algorithms that are asked for.
ASKED = 8


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", Algorithm),
        ("workspace", _SIZE),
        ("state", _INT),
        ("waves", ctypes.c_float),
        ("reserved", _INT * 4),
    ]


def version_of(library: Any) -> tuple[int, str]:
    """Return a library's version, and as it is written."""
    return version(library.cublasLtGetVersion)


class Descriptors:
    """Descriptors of a product, which live as long as this.

    Args:
        library: the library.
        what: the product.
        bias: address of its bias.
    """

    def __init__(self, library: Any, what: Product, bias: int) -> None:
        self._library = library
        kind, precision = TYPES[what.dtype], what.precision if what.dtype == "float32" else ""
        scale = TYPES["float64" if what.dtype == "float64" else "float32"]
        self.operation = self._create("MatmulDesc", COMPUTES[what.dtype, precision], scale)
        self._set("MatmulDesc", self.operation, TRANSA, _INT(what.b_transposed))
        self._set("MatmulDesc", self.operation, TRANSB, _INT(what.a_transposed))
        epilogue = RELU * what.relu | BIAS * what.bias or DEFAULT
        self._set("MatmulDesc", self.operation, EPILOGUE, ctypes.c_uint32(epilogue))
        if what.bias:
            self._set("MatmulDesc", self.operation, BIAS_POINTER, ctypes.c_uint64(bias))
        first = (what.n, what.k) if not what.b_transposed else (what.k, what.n)
        second = (what.k, what.m) if not what.a_transposed else (what.m, what.k)
        self.first = self._layout(kind, *first, what.b_row, what.batch, what.b_step)
        self.second = self._layout(kind, *second, what.a_row, what.batch, what.a_step)
        self.result = self._layout(TYPES[what.made], what.n, what.m, what.n, what.batch, what.c_step)

    def _layout(self, kind: int, rows: int, columns: int, line: int, batch: int, step: int) -> Any:
        found = self._create("MatrixLayout", kind, rows, columns, line)
        if batch > 1:
            self._set("MatrixLayout", found, BATCH_COUNT, ctypes.c_int32(batch))
            self._set("MatrixLayout", found, BATCH_OFFSET, ctypes.c_int64(step))
        return found

    def preference(self, room: int, alignments: Sequence[int], parts: int) -> Any:
        """Return what an algorithm may take.

        Args:
            room: bytes of workspace.
            alignments: of the first factor, the second, and of the result, twice.
            parts: how sums in several parts may be added up.
        """
        found = self._create("MatmulPreference")
        self._set("MatmulPreference", found, MAX_WORKSPACE, ctypes.c_uint64(room))
        self._set("MatmulPreference", found, REDUCTIONS, ctypes.c_uint32(parts))
        for i, alignment in enumerate(alignments):
            self._set("MatmulPreference", found, ALIGNMENT_A + i, ctypes.c_uint32(alignment))
        return found

    def _create(self, kind: str, *args: Any) -> Any:
        made = _POINTER()
        checked(getattr(self._library, f"cublasLt{kind}Create")(ctypes.byref(made), *args), f"{kind}Create")
        weakref.finalize(self, getattr(self._library, f"cublasLt{kind}Destroy"), made)
        return made

    def _set(self, kind: str, descriptor: Any, attribute: int, value: Any) -> None:
        name = f"cublasLt{kind}SetAttribute"
        checked(getattr(self._library, name)(descriptor, attribute, ctypes.byref(value), ctypes.sizeof(value)), name)


def checked(status: int, name: str) -> None:
    """Return nothing where a status is success.

    Raises:
        NotTaken: it is another.
    """
    if status:
        raise NotTaken(f"{name}: status {status}")


class CublasLt:
    """cuBLASLt on one device; see `Library`.

    Args:
        library: its functions.
        version: as it is written.
        stream: of the device.
        enter: lets this thread use the device.

    Raises:
        NotTaken: the library does not work with this device.
    """

    name = "cublasLt"

    def __init__(self, library: Any, version: str, stream: Any, enter: Callable[[], None]) -> None:
        declare(library, FUNCTIONS)
        self.version = version
        self._library, self._stream, self._enter = library, stream, enter
        self._handle = _POINTER()  # as long as the process: it goes with the device
        checked(library.cublasLtCreate(ctypes.byref(self._handle)), "cublasLtCreate")

    def algorithms(self, what: Product, places: Sequence[Extent]) -> list[bytes]:
        """Return algorithms for a product; see `Library`."""
        self._enter()
        a, b, c, bias, room = places
        try:
            d = Descriptors(self._library, what, bias.address)
            parts = PARTS if what.made == BFLOAT16 else PARTS | PARTS_AS_RESULT | (0 if what.deterministic else IN_PLACE)
            preference = d.preference(room.nbytes, [_alignment(p.address) for p in (b, a, c, c)], parts)
        except NotTaken:
            return []
        found, count = (Heuristic * ASKED)(), _INT()
        layouts = d.operation, d.first, d.second, d.result, d.result
        status = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle, *layouts, preference, ASKED, ctypes.addressof(found), ctypes.byref(count)
        )
        return [bytes(each.algorithm) for each in found[: 0 if status else count.value] if not each.state]

    def ready(self, what: Product, algorithm: bytes, places: Sequence[Extent]) -> Ready:
        """Return a product by an algorithm; see `Library`.

        Raises:
            NotTaken: it is no algorithm for this, or takes more workspace than there is.
        """
        self._enter()
        a, b, c, bias, room = places
        if len(algorithm) != ctypes.sizeof(Algorithm):
            raise NotTaken("no algorithm")
        d, how, told = Descriptors(self._library, what, bias.address), Algorithm.from_buffer_copy(algorithm), Heuristic()
        layouts = d.operation, d.first, d.second, d.result, d.result
        status = self._library.cublasLtMatmulAlgoCheck(self._handle, *layouts, ctypes.byref(how), ctypes.byref(told))
        checked(status or told.state, "cublasLtMatmulAlgoCheck")
        if told.workspace > room.nbytes:
            raise NotTaken(f"{told.workspace} bytes of workspace")
        number = ctypes.c_double if what.dtype == "float64" else ctypes.c_float
        alpha, beta = number(what.alpha), number(what.adds)
        held = d, how, alpha, beta
        args = (
            self._handle, d.operation, ctypes.addressof(alpha), b.address, d.first, a.address, d.second, ctypes.addressof(beta),
            c.address, d.result, c.address, d.result, ctypes.addressof(how), room.address, told.workspace, self._stream,
        )  # fmt: skip
        multiply, enter = self._library.cublasLtMatmul, self._enter

        def run(_held: Any = held) -> None:
            enter()
            if status := multiply(*args):
                raise LibraryFailed("cublasLtMatmul", status)

        return Ready(run, told.workspace)


def _alignment(address: int) -> int:
    """Return the largest power of two, up to 256, that an address is a multiple of."""
    return min(address & -address, 256) or 256


#: The library on a device.
ON_DEVICE = CublasLt
