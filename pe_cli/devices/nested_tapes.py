"""Tapes of nested calls, for loops and branches: their layout in native memory; see `pe_cli.kernels.cpu.loop_calls`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.tape import word
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Nested, Numbers, Offset, Place, Table
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.cpu.loop_calls import CALLS, COUNTER, HEAD_WORDS, LABELS, MOVES, N_MOVES, REPORT, TAPE

Words = np.ndarray[Any, Any]


def every_call(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield calls and all calls that these make, however deep."""
    for call in calls:
        yield call
        for arg in call.args:
            if isinstance(arg, Nested):
                yield from every_call(arg.calls)


@dataclass(frozen=True)
class _Moving:
    """An address that moves on with the rounds of loops further out.

    Args:
        target: address of the word that holds it.
        base: what it is in the first round of all of them.
        strides: as of a `Place`.
    """

    target: int
    base: int
    strides: tuple[int, ...]


class NestedTapes:
    """Nested calls of a step.

    Args:
        address: of an argument that is a buffer, or a place in one, in the first round.
        found: address of every kernel.

    Attributes:
        kept: memory of the tapes.
    """

    def __init__(self, address: Callable[[Buffer | Offset | Place], int], found: Mapping[Instance, int]) -> None:
        self._address = address
        self._found = found
        self.kept: list[Words] = []

    def lay_out(self, nested: Nested) -> int:
        """Return the address of the head of nested calls, which lives as long as this does."""
        head, outside = self._lay_out(nested)
        assert not outside, "a loop moves on by the rounds of another that is not around it"
        return head

    def _lay_out(self, nested: Nested) -> tuple[int, list[_Moving]]:
        head = self._words([0] * HEAD_WORDS)
        begins = np.cumsum([0, *(len(c.args) for c in nested.calls)])
        records = self._words([0] * int(begins[-1]))
        moving: list[_Moving] = []
        rows: list[int] = []
        # `begins` has one more than there are calls: the end of the last.
        for call, begin in zip(nested.calls, begins, strict=False):
            reports = 0
            for i, arg in enumerate(call.args, int(begin)):
                records[i] = self._word(arg, _at(head), _at(records, i), moving)
                reports = reports or (_at(head, REPORT) if arg is STATUS else 0)
            rows += self._found[Instance(call.kernel, call.dtype, call.second)], _at(records, int(begin)), reports
        # Addresses that this loop moves it moves from their base in every round; those further out move the base.
        own = [m for m in moving if len(m.strides) > nested.depth and m.strides[nested.depth]]
        moves = self._words([w for m in own for w in (m.target, m.base, m.strides[nested.depth])])
        inner = {id(m) for m in own}
        outside = [m for m in moving if id(m) not in inner]
        outside += [_Moving(_at(moves, 3 * i + 1), m.base, m.strides) for i, m in enumerate(own)]
        head[TAPE], head[CALLS] = _at(self._words(rows)), len(nested.calls)
        head[MOVES], head[N_MOVES] = _at(moves), len(own)
        head[LABELS] = _at(self._words(nested.labels))
        # Strides of this loop and of those in it are dealt with: what is left is for loops further out.
        left = [_Moving(m.target, m.base, m.strides[: nested.depth]) for m in outside]
        return _at(head), [m for m in left if any(m.strides)]

    def _word(self, arg: Any, head: int, at: int, moving: list[_Moving]) -> int:
        """Return an argument as a word of the records, at an address; what moves is noted."""
        if arg is STATUS or arg is STEP:
            return head + 8 * (REPORT if arg is STATUS else COUNTER)
        if isinstance(arg, Nested):
            inner, outside = self._lay_out(arg)
            moving += outside
            return inner
        if isinstance(arg, Numbers):
            return _at(self._words(arg.values))
        if isinstance(arg, Table):
            table = self._words([0] * len(arg.buffers))
            for i, b in enumerate(arg.buffers):
                table[i] = self._word(b, head, _at(table, i), moving)
            return _at(table)
        if not isinstance(arg, (Buffer, Offset, Place)):
            return word(arg)
        base = self._address(arg)
        if isinstance(arg, Place) and any(arg.strides):
            moving.append(_Moving(at, base, arg.strides))
        return base

    def _words(self, values: Sequence[int]) -> Words:
        made = np.array([*values, 0], np.int64)  # one more, so that it has an address when it is empty
        self.kept.append(made)
        return made


def _at(words: Words, i: int = 0) -> int:
    return int(words.ctypes.data) + 8 * i
