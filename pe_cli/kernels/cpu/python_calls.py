"""Python functions as instructions of a tape: the native loop calls them like kernels, and they hold the GIL while they run."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.kernels.status_codes import RAISED

Array = np.ndarray[Any, Any]
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_RUNNING = threading.local()


@dataclass(eq=False)
class HostKernel:
    """A function of arrays, called as `fn(inputs, outputs)`: it gets copies of the inputs and fills the outputs.

    Args:
        fn: any Python function.
        name: `module:function`.
        inputs, outputs: types of the arrays, all sizes known.

    Attributes:
        error: what the function raised last.
    """

    fn: Callable[[Sequence[Array], Sequence[Array]], None]
    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    error: BaseException | None = field(default=None, init=False)

    def entry(self, addresses: Sequence[int]) -> Any:
        """Return a C function `void f(int64 *record)` that calls this over arrays at these addresses; word 0 is the error report.

        It is valid as long as the object returned lives.
        """
        kinds = (*self.inputs, *self.outputs)
        arrays = [_view(at, kind) for at, kind in zip(addresses, kinds, strict=True)]
        ins, outs = arrays[: len(self.inputs)], arrays[len(self.inputs) :]

        def run(record: int) -> None:
            _RUNNING.inside = True
            try:
                self.call([a.copy() for a in ins], outs)  # what it keeps must not point into the arena
            except BaseException as error:  # noqa: BLE001 (no exception may cross native code: the executor raises it)
                self.error = error
                ctypes.c_int64.from_address(ctypes.c_int64.from_address(record).value).value = RAISED
            finally:
                _RUNNING.inside = False

        return _ENTRY(run)

    def call(self, ins: Sequence[Array], outs: Sequence[Array]) -> None:
        """Call the function."""
        self.fn(ins, outs)


@dataclass(eq=False)
class MirroredKernel(HostKernel):
    """A function of what lies on a device whose memory is not the host's: its outputs are copies on the host.

    The copy of a place is the same array whenever the step runs, also for other such functions of the step. Arguments of a call: STATUS,
    then one for each output.

    Args:
        takes, gives: (output, elements from, to) that are copied to the host before, and back after.
    """

    takes: Sequence[tuple[int, int, int]] = ()
    gives: Sequence[tuple[int, int, int]] = ()

    @property
    def params(self) -> tuple[str, ...]:
        """Annotation names of the arguments."""
        return ("Ptr",) * (1 + len(self.outputs))

    def call(self, ins: Sequence[Array], outs: Sequence[Array]) -> None:
        """Call the function while nothing is collected: a thread of the driver's may not ask it for anything, nor give memory back."""
        collects = gc.isenabled()
        gc.disable()
        try:
            self.fn(ins, outs)
        finally:
            if collects:
                gc.enable()


def inside_host() -> bool:
    """Return whether this thread is inside a function that a step called."""
    return getattr(_RUNNING, "inside", False)


def _view(at: int, kind: TensorType) -> Array:
    """Return the array at an address."""
    if kind.size == 0:
        return np.empty(kind.shape, kind.numpy)
    # numpy makes no array of a bare address: a ctypes array is one that it takes.
    memory = (ctypes.c_char * kind.nbytes).from_address(at)
    return np.ndarray(kind.shape, kind.numpy, memory)  # type: ignore[arg-type]
