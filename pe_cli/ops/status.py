"""What kernels report when the data is wrong: a code, the row, the value and a limit, turned into an error with the layer's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pe_cli.core.errors import ExitCode, PeError

if TYPE_CHECKING:
    from pe_cli.program.ir import Operator

#: Codes for word 0 of an error report; the other words are row, value and limit.
OUT_OF_RANGE = 1
TOO_LONG = 2
EMPTY = 3


def failure(report: list[int], op: Operator, step: int) -> PeError:
    """Return the error of a report.

    Args:
        report: code, row, value, limit, ...
        op: whose kernel reported it.
        step: number of the step.
    """
    code, row, value, limit = report[:4]
    if code == TOO_LONG:
        return PeError(
            f"{op.type}: sequence {row} has {value} rows, more than {limit}, at step {step}",
            at=op.at,
            hint="raise the length, or cut the data",
            code=ExitCode.DATA,
        )
    if code == EMPTY:
        return PeError(
            f"{op.type}: sequence {row} is empty, and there is nothing to divide by, at step {step}",
            at=op.at,
            hint="leave empty sequences out, or set normalized: false",
            code=ExitCode.DATA,
        )
    return PeError(
        f"{op.type}: value {value} at row {row} is out of range [0, {limit}), at step {step}",
        at=op.at,
        hint="the data has more classes (or ids) than the model, or starts counting at 1",
        code=ExitCode.DATA,
    )
