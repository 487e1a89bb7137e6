"""cuBLASLt's C interface as far as `cuda_libraries.cublaslt` asks for it: descriptors as its header has them, numbers by NumPy.

Matrices are stored column by column, D = epilogue(alpha op(A) op(B) + beta C).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.cuda.libraries.bits import HALF, numbers, put

Array = np.ndarray[Any, Any]
#: cudaDataType_t.
KINDS = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 14: HALF}
#: Bytes of each attribute, by the kind of descriptor and number.
SIZES = {
    "MatmulDesc": {3: 4, 4: 4, 7: 4, 8: 8},
    "MatrixLayout": {5: 4, 6: 8},
    "MatmulPreference": {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4},
}
BIAS, RELU = 4, 2
#: Algorithms: right, right with a workspace, wrong, another in every run, right but refused when it is asked for,
#: right but for a NaN, which becomes 0, right but it fails where a graph is made of it.
RIGHT, ROOMY, WRONG, UNSTEADY, REFUSED, DEAF, ONCE = 1, 2, 3, 4, 5, 6, 7
#: What a handle that was made holds, and cublasStatus_t of a call with another one.
HANDLE, NOT_BEGUN = 7, 1


class CublasLt:
    """The functions of libcublasLt.so; results are numbers, places are written through pointers.

    Args:
        stream: enqueues something that takes so many microseconds, in the order of the device's stream.
        costs: algorithm -> microseconds of a call; those that are not named are not found.
        compute: types that a product must ask for: compute and scale; None: any.

    Attributes:
        called: algorithm -> calls.
        open: descriptors that are not destroyed.
        searched: how often algorithms were asked for.
        in_place: 1 where they must be asked for with sums in place.
    """

    def __init__(
        self, stream: Callable[[Callable[[], Any], float], int], costs: dict[int, float], compute: tuple[int, int] | None = (68, 0)
    ) -> None:
        self._stream = stream
        self.costs, self.compute = costs, compute
        self.called: dict[int, int] = {}
        self.open: dict[int, dict[Any, Any]] = {}
        self.searched = self.in_place = 0
        self._made = 0

    def __getattribute__(self, name: str) -> Any:
        if name.endswith("Destroy"):
            return lambda made: self.open.pop(made.value) and 0
        if name.endswith("SetAttribute"):
            return self._set(name.removeprefix("cublasLt").removesuffix("SetAttribute"))
        own = object.__getattribute__(self, name)
        return (lambda *args: own(*args)) if name.startswith("cublasLt") else own

    def _create(self, place: Any, **facts: Any) -> int:
        self._made += 1
        place._obj.value = self._made
        self.open[self._made] = dict(facts)
        return 0

    def _set(self, kind: str) -> Callable[..., int]:
        def act(made: Any, attribute: int, place: Any, size: int) -> int:
            assert size == SIZES[kind][attribute] == ctypes.sizeof(place._obj)
            self.open[made.value][attribute] = place._obj.value
            return 0

        return act

    def cublasLtGetVersion(self) -> int:
        return 131000

    def cublasLtCreate(self, place: Any) -> int:
        place._obj.value = HANDLE
        return 0

    def cublasLtMatmulDescCreate(self, place: Any, compute: int, scale: int) -> int:
        assert self.compute in ((compute, scale), None)
        return self._create(place, scale=scale)

    def cublasLtMatrixLayoutCreate(self, place: Any, kind: int, rows: int, columns: int, line: int) -> int:
        assert line >= rows
        return self._create(place, kind=kind, rows=rows, columns=columns, line=line)

    def cublasLtMatmulPreferenceCreate(self, place: Any) -> int:
        return self._create(place)

    def cublasLtMatmulAlgoGetHeuristic(self, handle: Any, *args: Any) -> int:
        if handle.value != HANDLE:
            return NOT_BEGUN
        *_, preference, asked, found, count = args
        wish = self.open[preference.value]
        parts = 2 if self.open[args[3].value]["kind"] == 14 else 6 | self.in_place
        assert wish[3] == parts, "sums in place depend on which block is first, and sums of bfloat16 are not float32"
        assert all(wish[i] in (4, 8, 16, 32, 64, 128, 256) for i in (5, 6, 7, 8))
        self.searched += 1
        numbers = list(self.costs)[:asked]
        for i, number in enumerate(numbers):
            ctypes.memset(found + 96 * i, 0, 96)
            ctypes.c_uint64.from_address(found + 96 * i).value = number
            ctypes.c_size_t.from_address(found + 96 * i + 64).value = self._workspace(number)
        count._obj.value = len(numbers)
        return 0

    def _workspace(self, number: int) -> int:
        return 64 if number == ROOMY else 0

    def cublasLtMatmulAlgoCheck(self, handle: Any, *args: Any) -> int:
        if handle.value != HANDLE:
            return NOT_BEGUN
        *_, how, told = args
        number = how._obj.data[0]
        told._obj.workspace, told._obj.state = self._workspace(number), 15 if number == REFUSED else 0
        return 0

    def cublasLtMatmul(self, handle: Any, *args: Any) -> int:
        if handle.value != HANDLE:
            return NOT_BEGUN
        number = int(ctypes.c_uint64.from_address(args[-4]).value)
        if number == ONCE and self.called.get(number):
            return 14
        return self._stream(lambda: self._multiply(number, *args), self.costs[number])

    def _multiply(self, number: int, *args: Any) -> None:
        op, alpha, a, at_a, b, at_b, beta, c, at_c, d, at_d, _, room, size, _ = args
        facts = self.open[op.value]
        kind = KINDS[facts["scale"]]
        scale, keeps = (np.frombuffer(ctypes.string_at(at, kind.itemsize), kind)[0] for at in (alpha, beta))
        first, second = (numbers(self._matrix(*where)) for where in ((a, at_a, bool(facts[3])), (b, at_b, bool(facts[4]))))
        into = self._matrix(d, at_d)
        value = scale * np.matmul(first, second)
        if keeps:
            value = value + keeps * numbers(self._matrix(c, at_c))
        if facts[7] & BIAS:
            assert into.dtype != HALF, "a bias is of the result's type"
            bias = np.frombuffer(ctypes.string_at(facts[8], into.shape[1] * kind.itemsize), kind)
            value = value + bias[:, None]
        if facts[7] & RELU:
            value = np.fmax(value, 0) if number == DEAF else np.maximum(value, 0)
        self.called[number] = self.called.get(number, 0) + 1
        if size:
            ctypes.memset(room, 0xFF, size)
        put(into, value + (number == WRONG) + (number == UNSTEADY) * 1e-7 * self.called[number] * np.abs(value).max())

    def _matrix(self, address: int, layout: Any, transposed: bool = False) -> Array:
        """Return matrices: [batch, rows, columns]."""
        f = self.open[layout.value]
        kind, batch, step = KINDS[f["kind"]], f.get(5, 1), f.get(6, 0)
        size = (batch - 1) * step + (f["columns"] - 1) * f["line"] + f["rows"]
        flat = np.ctypeslib.as_array((ctypes.c_uint8 * (size * kind.itemsize)).from_address(address)).view(kind)
        strides = [n * kind.itemsize for n in (step, 1, f["line"])]
        found = np.lib.stride_tricks.as_strided(flat, (batch, f["rows"], f["columns"]), strides)
        return found.transpose(0, 2, 1) if transposed else found
