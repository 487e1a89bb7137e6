"""Tapes and schedules: a step of a plan in the form that native threads run."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices import native_loops
from pe_cli.devices.thread_pool import native_function, pool
from pe_cli.kernels.compiler.instance import Instance

#: Words of an error report: code, row, value, limit.
STATUS_WORDS = 8


def word(value: float | int) -> int:
    """Return an argument of a record as an int64: a float as the bits of its float64."""
    return struct.unpack("<q", struct.pack("<d", value))[0] if isinstance(value, float) else int(value)


@dataclass(frozen=True)
class Instruction:
    """One kernel call with everything resolved.

    Args:
        instance: the compiled kernel.
        args: int64 words.
        op: index of the plan's op, for error reports.
        status: position of the error report's address in args, or None.
        room: arguments that one in its place may have; at least its own.
    """

    instance: Instance
    args: tuple[int, ...]
    op: int
    status: int | None
    room: int = 0


@dataclass(frozen=True)
class Chain:
    """Instructions that run one after the other on one thread.

    Args:
        spans: (begin, end) of instructions, in order.
        home: the thread that prefers it; `native.ANYONE` for none.
        successors: chains that wait for it.
    """

    spans: tuple[tuple[int, int], ...]
    home: int
    successors: tuple[int, ...]


class Tape:
    """A step's instructions in native memory, with the chains that may run at the same time.

    Args:
        instructions: in a valid order.
        found: address of every kernel.
        chains: cover the instructions; a valid order too.
        threads: 1 runs the instructions in order, more run chains as they become ready.

    Attributes:
        instructions: as a list of its own.
        records: the arguments of all instructions, one after the other.
        offsets: where those of each begin in there, and the end.
    """

    def __init__(
        self, instructions: Sequence[Instruction], found: dict[Instance, int], chains: Sequence[Chain], threads: int
    ) -> None:
        self.instructions = list(instructions)
        self.chains = chains
        # More threads than chains would only spin.
        self.threads = min(threads, max(1, len(chains)))
        self.offsets = offsets = np.cumsum([0, *(max(len(i.args), i.room) for i in instructions)])
        self.records = np.zeros(max(1, int(offsets[-1])), np.int64)
        self.status = np.zeros((max(1, len(instructions)), STATUS_WORDS), np.int64)
        self._tape = np.zeros((max(1, len(instructions)), 3), np.int64)
        for i, instruction in enumerate(instructions):
            report = self._record(i, instruction)
            self._tape[i] = found[instruction.instance], self.records.ctypes.data + 8 * int(offsets[i]), report
        self._failed = np.zeros(1, np.int64)
        self._serial = np.array([self._tape.ctypes.data, len(instructions), self._failed.ctypes.data], np.int64)
        self._serial_at = int(self._serial.ctypes.data)
        self._run_serial = native_function(native_loops.run_tape)
        # Native code knows addresses alone, which keep no array alive.
        self._keep: list[Any] = []
        if self.threads > 1:
            self._schedule()

    def _record(self, i: int, instruction: Instruction) -> int:
        """Write an instruction's arguments; return the address of its error report, 0 for none."""
        record = self.records[self.offsets[i] : self.offsets[i + 1]]
        record[: len(instruction.args)] = instruction.args
        if instruction.status is None:
            return 0
        report = int(self.status.ctypes.data) + self.status.strides[0] * i
        record[instruction.status] = report
        return report

    def replace(self, i: int, instruction: Instruction, target: int) -> None:
        """Replace an instruction between steps; target: address of its kernel."""
        before, self.instructions[i] = self.instructions[i], instruction
        report = self._record(i, instruction)
        # Arguments are read from the record at every call: the row changes for another kernel alone.
        if before.instance is not instruction.instance and before.instance != instruction.instance:
            self._aim(i, target, report)

    def _aim(self, i: int, target: int, report: int) -> None:
        self._tape[i, 0], self._tape[i, 2] = target, report
        if self.threads > 1:
            self._rows[self._line[i]] = self._tape[i]

    def _words(self, values: Any) -> int:
        array = np.array(values, np.int64)
        self._keep.append(array)
        return int(array.ctypes.data)

    def _lines(self, n: int, initial: Sequence[int] = ()) -> tuple[np.ndarray[Any, Any], int]:
        """Return n words 64 bytes apart."""
        # A cache line each: threads that change neighbouring words would take the line from each other all the time.
        raw = np.zeros((n + 1) * 8, np.int64)
        skip = (-raw.ctypes.data % native_loops.LINE) // 8
        block = raw[skip : skip + 8 * n].reshape(n, 8)
        for i, value in enumerate(initial):
            block[i, 0] = value
        self._keep.append(raw)
        return block, int(block.ctypes.data)

    def _schedule(self) -> None:
        chains, n = self.chains, len(self.chains)
        waits = np.zeros(n, np.int64)
        for chain in chains:
            for s in chain.successors:
                waits[s] += 1
        self._waits = waits
        order = [range(begin, end) for c in chains for begin, end in c.spans]
        self._order = np.array([i for span in order for i in span], np.int64)
        self._line = np.argsort(self._order)  # where the schedule has each instruction
        self._rows = np.zeros((max(1, len(self._order)), 3), np.int64)
        self._line_up()
        ends = np.cumsum([0, *(sum(end - begin for begin, end in c.spans) for c in chains)])
        self._count, count = self._lines(n, waits.tolist())
        # Every queue has a slot for every chain, so that it cannot run over and nobody has to ask.
        self._queue = np.full(self.threads * n, -1, np.int64)
        self._heads, heads = self._lines(self.threads)
        self._tails, tails = self._lines(self.threads)
        self._kept, kept = self._lines(self.threads, [-1] * self.threads)
        flags, flags_at = self._lines(2)
        self._aborted = flags[1].data
        roots = [i for i in range(n) if waits[i] == 0]
        head = np.zeros(32, np.int64)
        head[native_loops.TAPE] = self._rows.ctypes.data
        head[native_loops.BEGIN] = self._words(ends[:-1])
        head[native_loops.END] = self._words(ends[1:])
        head[native_loops.HOME] = self._words([c.home % self.threads if c.home >= 0 else native_loops.ANYONE for c in chains])
        head[native_loops.COUNT] = count
        head[native_loops.INITIAL] = self._words(waits)
        head[native_loops.FIRST] = self._words(np.cumsum([0, *(len(c.successors) for c in chains)]))
        head[native_loops.NEXT] = self._words([s for c in chains for s in c.successors] or [0])
        head[native_loops.QUEUE] = self._queue.ctypes.data
        head[native_loops.HEADS], head[native_loops.TAILS] = heads, tails
        head[native_loops.NODES], head[native_loops.THREADS] = n, self.threads
        head[native_loops.DONE], head[native_loops.ABORT] = flags_at, flags_at + native_loops.LINE
        head[native_loops.KEPT] = kept
        head[native_loops.ROOTS], head[native_loops.N_ROOTS] = self._words(roots), len(roots)
        self._head, self._head_at = head, int(head.ctypes.data)

    def _line_up(self) -> None:
        """Copy the tape's instructions, those of a chain side by side."""
        self._rows[: len(self._order)] = self._tape[self._order]

    def run(self) -> tuple[Instruction, list[int]] | None:
        """Run the step.

        Returns:
            None, or the first instruction in order that reported an error, with its report.
        """
        if self.threads == 1:
            self._run_serial(self._serial_at)
            failed = bool(self._failed[0])
        else:
            pool(self.threads).run(self._head_at)
            failed = self._aborted[0] != 0
        if not failed:
            return None
        # Several threads may have failed: the first in order is the one that a single thread would have met.
        rows = np.flatnonzero(self.status[:, 0])
        report = self.status[rows[0]].tolist()
        self._reset()
        return self.instructions[int(rows[0])], report

    def _reset(self) -> None:
        """Make the tape runnable again after an aborted step."""
        # Threads left off in the middle: counts are half down, and queues half full.
        self.status[:] = 0
        if self.threads > 1:
            self._count[:, 0] = self._waits
            self._queue[:] = self._kept[:, 0] = -1
            self._heads[:], self._tails[:] = 0, 0
