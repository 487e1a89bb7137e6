"""What kernels report when the data is wrong: a code, the row, the value and a limit, turned into an error with the layer's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.kernels.host import RAISED

if TYPE_CHECKING:
    from pe_cli.program.ir import Operator

#: Codes for word 0 of an error report; the other words are row, value and limit.
OUT_OF_RANGE = 1


def failure(report: list[int], op: Operator, step: int, raised: BaseException | None = None) -> PeError:
    """Return the error of a report.

    Args:
        report: code, row, value, limit, ...
        op: whose kernel reported it.
        step: number of the step.
        raised: what a Python function of the op raised.
    """
    if report[0] == RAISED:
        hint = raised.hint if isinstance(raised, PeError) else "see its traceback, which is the cause of this error"
        text = raised.message if isinstance(raised, PeError) else f"{type(raised).__name__}: {raised}"
        return PeError(f"{op.type}: {text}, at step {step}", at=op.at, hint=hint)
    _, row, value, limit = report[:4]
    return PeError(
        f"{op.type}: value {value} at row {row} is out of range [0, {limit}), at step {step}",
        at=op.at,
        hint="the data has more classes (or ids) than the model, or starts counting at 1",
        code=ExitCode.DATA,
    )
