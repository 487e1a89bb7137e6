"""A tape whose calls are made one by one, each with the memory that it may touch; see `pe_cli.kernels.bounds`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.devices.tape import Chain, Instruction, Tape
from pe_cli.kernels import bounds
from pe_cli.kernels.instance import Instance

Ranges = list[tuple[int, int]]
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CheckedTape(Tape):
    """A tape that Python goes through.

    Args:
        ranges_of: number of an instruction -> memory that it may touch.
        others: as of `Tape`.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        found: dict[Instance, int],
        chains: Sequence[Chain],
        ranges_of: Callable[[int], Ranges],
    ) -> None:
        super().__init__(instructions, found, chains, 1)
        self._ranges_of = ranges_of

    def run(self) -> tuple[Instruction, list[int]] | None:
        """Run the step; see `Tape.run`.

        Raises:
            PeError: BUG; a kernel touched memory that it was not given.
        """
        for i, instruction in enumerate(self.instructions):
            target, record, report = self._tape[i].tolist()
            status = self.status[i]
            ranges = [*self._ranges_of(i), (int(status.ctypes.data), int(status.ctypes.data) + status.nbytes)]
            bounds.allow(ranges)
            _CALL(target)(record)
            failed = bounds.touched()
            bounds.allow(bounds.EVERYTHING)
            if failed is not None:
                count, address, size = failed
                what = f"{instruction.instance.kernel.name} ({instruction.instance.dtype}) touched {size} bytes"
                raise PeError(f"{what} {bounds.nearest(address, ranges)}, {count} times in all", code=ExitCode.BUG)
            if report and status[0]:
                found = status.tolist()
                self._reset()
                return instruction, found
        return None
