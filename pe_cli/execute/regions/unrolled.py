"""Unrolled regions: the calls of every possible iteration, or of both branches, one after the other.

Regions run so on devices whose kernels make no calls. Where only the step knows how many rounds there are or which branch is taken, all
calls run, and flags in the device's memory say which of them count: the states of a round that does not count are put back, its results
are overwritten and its error reports are dropped. The host is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pe_cli.core.types import TensorType
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Nested, Numbers, Offset, Place, Table
from pe_cli.kernels.cuda import unrolled_regions as kernels
from pe_cli.ops.define.copy_kernels import copy, fill


class UnrolledRegion:
    """The calls of an op with regions.

    Args:
        reports: how many calls may report an error, at most.
        room: gives memory that the op has while it runs.
        flags: one per round or branch, which a call sets where it counts; None where every round counts.

    Attributes:
        calls: those that were appended so far.
    """

    def __init__(self, reports: int, room: Callable[[TensorType], Buffer], flags: Buffer | None = None) -> None:
        self.flags = flags
        self._room = room
        self._reporters: list[int] = []
        self._reports = room(TensorType((kernels.WORDS * reports,), "int64")) if reports else None
        self.calls: list[Call] = []
        if self._reports is not None:
            # Reports of the step before would count again.
            self.calls.append(Call(fill, (self._reports, self._reports.size, 0.0), "int64", "float32"))

    def call(self, kernel: Any, *args: Any, dtype: str = "float32") -> None:
        """Append a call."""
        self.calls.append(Call(kernel, args, dtype, "float32"))

    def counters(self, nested: Sequence[Nested], rounds: int) -> Callable[[int], Any]:
        """Return, for each round, the argument that kernels take as the number of the step."""
        if not any(arg is STEP for of in nested for call in of.calls for arg in call.args):
            return lambda at: STEP
        numbers = self._room(TensorType((rounds,), "int64"))
        self.call(kernels.count_rounds, STEP, numbers, rounds)
        return lambda at: Offset(numbers, at)

    def add(self, nested: Nested, at: int = -1, step: Any = STEP, flag: int = -1, wanted: int = 1) -> None:
        """Append the calls of a round, or of a branch.

        Args:
            nested: the calls.
            at: number of the round; -1 for a branch.
            step: the argument that kernels take as the number of the step.
            flag: number of the flag that says whether the calls count; -1 where they always do.
            wanted: value of the flag with which the calls count, 0 or 1.
        """
        for call, label in zip(nested.calls, nested.labels, strict=True):
            args = [step if arg is STEP else in_round(arg, nested.depth, at) for arg in call.args]
            if STATUS in args:
                assert self._reports is not None
                report = Offset(self._reports, kernels.WORDS * (len(self._reporters) // kernels.REPORTER))
                args = [report if arg is STATUS else arg for arg in args]
                self._reporters += label, at + 1, flag, wanted
            self.calls.append(replace(call, args=tuple(args)))

    def keep(self, places: Sequence[tuple[Place, TensorType]], saved: Sequence[Buffer]) -> None:
        """Append copies of values, such as the states before a round."""
        for (place, kind), other in zip(places, saved, strict=True):
            self.call(copy, place, other, kind.size, dtype=kind.dtype)

    def put_back(self, places: Sequence[tuple[Place, TensorType]], saved: Sequence[Buffer | Place], flag: int) -> None:
        """Append copies of saved values back to their places, which are made unless the flag is set."""
        for (place, kind), other in zip(places, saved, strict=True):
            self.call(kernels.put_back, self.flags, flag, other, place, kind.size, dtype=kind.dtype)

    def blank(self, rows: Sequence[tuple[Place, TensorType]], depth: int, at: int) -> None:
        """Append what writes zeros to the rows of a round unless its flag is set."""
        for row, kind in rows:
            self.call(kernels.blank, self.flags, at, in_round(row, depth, at), kind.size, dtype=kind.dtype)

    def hand_on(self) -> None:
        """Append the call that reports the first error of all calls that count."""
        if self._reporters:
            # Where all calls count nobody looks at the flag, but the kernel wants an address.
            flags = self.flags or self._room(TensorType((1,), "bool"))
            count = len(self._reporters) // kernels.REPORTER
            self.call(kernels.hand_on, self._reports, Numbers(tuple(self._reporters)), flags, count, STATUS)


def reporters(*nested: Nested) -> int:
    """Return how many calls of regions may report an error, those of one round each."""
    return sum(STATUS in call.args for of in nested for call in of.calls)


def in_round(arg: Any, depth: int, at: int) -> Any:
    """Return an argument of a nested call for one round of its loop.

    Args:
        arg: of the call.
        depth: how many loops are around that loop.
        at: number of the round.
    """
    if isinstance(arg, Place) and len(arg.strides) > depth:
        return Place(arg.buffer, arg.nbytes + at * arg.strides[depth], arg.strides[:depth])
    return Table(tuple(in_round(b, depth, at) for b in arg.buffers)) if isinstance(arg, Table) else arg
