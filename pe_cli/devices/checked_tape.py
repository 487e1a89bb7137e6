"""A tape that makes its calls one by one, and tells each which memory it may touch; see `pe_cli.kernels.compiler.bounds_check`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.tape import Chain, Instruction, Tape
from pe_cli.kernels.compiler import bounds_check
from pe_cli.kernels.compiler.bounds_check import Range
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.cpu.python_calls import HostKernel

#: There is one table of what a call may touch.
_ONE = threading.Lock()
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class Allowed:
    """Memory that a call may touch, as addresses of begins and ends.

    Args:
        written: what it may write, and read.
        read: what it may only read.
    """

    written: list[Range]
    read: list[Range]


class CheckedTape(Tape):
    """A tape that Python goes through.

    Args:
        allowed: number of an instruction -> memory that it may touch.
        others: as of `Tape`.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        found: dict[Instance, int],
        chains: Sequence[Chain],
        allowed: Callable[[int], Allowed],
    ) -> None:
        super().__init__(instructions, found, chains, 1)
        self._allowed = allowed

    def run(self) -> tuple[Instruction, list[int]] | None:
        """Run the step; see `Tape.run`.

        Raises:
            PeError: BUG; a kernel touched memory that it was not given.
        """
        for i, instruction in enumerate(self.instructions):
            target, record, report = self._tape[i].tolist()
            status = self.status[i]
            found = self._allowed(i)
            written = [*found.written, (int(status.ctypes.data), int(status.ctypes.data) + status.nbytes)]
            failed = None
            kernel: Any = instruction.instance.kernel
            if isinstance(kernel, HostKernel):
                _CALL(target)(record)  # a Python function may wait for other threads, which run steps of their own
            else:
                with _ONE:
                    bounds_check.allow(written, found.read)
                    _CALL(target)(record)
                    failed = bounds_check.touched()
                    # Kernels that are called elsewhere, with no list of their own, must not be held to this one.
                    bounds_check.allow(bounds_check.EVERYTHING)
            if failed is not None:
                who = f"{kernel.name} ({instruction.instance.dtype})"
                raise PeError(f"{who} {failed.told(written, found.read)}", code=ExitCode.BUG)
            if report and status[0]:
                said = status.tolist()
                self._reset()
                return instruction, said
        return None
