"""What kernels report when the data is wrong: a code, the row, the value and a limit, turned into an error with the layer's place."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.kernels.cpu.finite_check import KINDS
from pe_cli.kernels.status_codes import EMPTY_SEQUENCE, NOT_A_TREE, RAISED, TOO_LONG, TOO_MANY_ROUNDS
from pe_cli.ops.define.traits import ReportsData


def failure(
    report: list[int], op: str, at: Span | None, step: int, raised: BaseException | None = None, reports: ReportsData | None = None
) -> PeError:
    """Return the error of a report.

    Args:
        report: code, row, value, limit, ...
        op: type of the op whose kernel reported it.
        at: the op's place.
        step: number of the step.
        raised: what a Python function of the op raised.
        reports: what the op says about its reports.
    """
    if report[0] == RAISED:
        # An error of ours keeps its words and its remedy; of any other the type is told, too.
        hint = raised.hint if isinstance(raised, PeError) else "see its traceback, which is the cause of this error"
        text = raised.message if isinstance(raised, PeError) else f"{type(raised).__name__}: {raised}"
        return PeError(f"{op}: {text}, at step {step}", at=at, hint=hint)
    code, row, value, limit = report[:4]
    if code == TOO_LONG:
        return PeError(
            f"{op}: sequence {row} has {value} rows, more than {limit}, at step {step}",
            at=at,
            hint="raise the length, or cut the data",
            code=ExitCode.DATA,
        )
    if code == EMPTY_SEQUENCE:
        return PeError(
            f"{op}: sequence {row} is empty, and there is nothing to divide by, at step {step}",
            at=at,
            hint="leave empty sequences out, or set normalized: false",
            code=ExitCode.DATA,
        )
    if code == TOO_MANY_ROUNDS:
        return PeError(
            f"{op}: its condition still holds after {limit} rounds, at step {step}",
            at=at,
            hint="raise its bound, or look at what its condition reads",
        )
    if code == NOT_A_TREE:
        return PeError(
            f"{op}: node {value} of sample {row} has two parents, or is below itself, at step {step}",
            at=at,
            hint="an edge leads from a parent to its child, and every node but the root has one parent",
            code=ExitCode.DATA,
        )
    return OutOfRangeError(op, at, row, value, limit, step, (reports or ReportsData()).hint)


class OutOfRangeError(PeError):
    """A class or an id of the data that the model has no place for.

    Args:
        op: type of the op that met it.
        at: the op's place.
        row: of the op's input, in this batch and on its device.
        value: what is out of range.
        limit: the first whole number that is.
        step: number of the step.
        hint: what to do.
    """

    def __init__(self, op: str, at: Span | None, row: int, value: int, limit: int, step: int, hint: str) -> None:
        text = f"{op}: value {value} at row {row} is out of range [0, {limit}), at step {step}"
        super().__init__(text, at=at, hint=hint, code=ExitCode.DATA)
        self.value, self.limit, self._said = value, limit, (op, step)

    def of_data(self, where: str) -> None:
        """Say where in the data the value is, in the place of the row in the batch."""
        op, step = self._said
        self.message = f"{op}: value {self.value} {where} is out of range [0, {self.limit}), at step {step}"


def layer_of(variable: str) -> str:
    """Return the layer that a variable's name tells.

    >>> layer_of("stage1/conv.tmp_0@GRAD"), layer_of("rnn.1")
    ('stage1/conv', 'rnn')
    """
    return re.sub(r"(\.\w+)*$", "", variable.partition("@")[0])


def not_finite(
    report: Sequence[int], op: str, name: str, at: Span | None, step: int, shape: Sequence[int], where: str = "", *, joined: bool = False
) -> PeError:
    """Return the error of a result that holds a NaN or an infinity.

    Args:
        report: code, element, kind.
        op: type of the op whose result it is; of one that passes made of several, the layer.
        name: of the result.
        at: place of the result.
        step: number of the step, from 0.
        shape: of the result.
        where: device, where there are several.
        joined: whether passes made the op of others whose results are not looked at.
    """
    hint = "it is the first op of the step whose result is not finite: look at what it reads"
    if joined:
        hint = (
            "it is the first result of the step that is not finite, of this layer or of one before it that is computed together with it:"
            " -o build_strategy.enable_auto_fusion=false tells which, else look at what it reads"
        )
    _, element, kind = report[:3]
    index = [int(i) for i in np.unravel_index(element, tuple(shape))] if shape else []
    there = f" at {index}" if index else ""
    return PeError(
        f"{op}: its result '{name}' is {KINDS[kind]}{there}{f' on {where}' if where else ''}, in step {step + 1}",
        at=at,
        hint=hint,
        code=ExitCode.DIVERGED,
    )
