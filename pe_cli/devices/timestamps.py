"""Tapes that record when and on which thread each instruction ran, for timelines and the watchdog.

The ordinary tape is left as it is: here every instruction is a kernel that stamps, calls the ordinary one, and stamps again. It costs
some tens of nanoseconds an instruction.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.devices.protocol import Timeline
from pe_cli.devices.tape import Chain, Instruction, Tape
from pe_cli.devices.thread_pool import native_function, pool
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.cpu.atomics import atomic_load, call, call_word, cycles
from pe_cli.kernels.language import Addr, PtrI64, kernel

#: Words of an instruction's stamp. A line of memory each, so that threads do not wait for each other's.
BEGIN, END, THREAD, WORDS = 0, 1, 2, 8
#: Seconds that the counter is compared with the clock for, at least: then a nanosecond in 50,000 is the error.
BASELINE = 0.01


@kernel
def stamped_call(target: Addr, record: Addr, stamp: PtrI64, stop: Addr, this_thread: Addr) -> None:
    """Call a kernel between two stamps; do nothing once the stop word is set."""
    if atomic_load(stop) != 0:
        return
    stamp[THREAD] = call_word(this_thread)
    stamp[BEGIN] = cycles()
    call(target, record)
    stamp[END] = cycles()


@kernel
def read_counter(out: PtrI64) -> None:
    """Write the counter that stamps are taken from."""
    out[0] = cycles()


class Clock:
    """The stamps' counter against the process's clock."""

    def __init__(self) -> None:
        self._word = np.zeros(1, np.int64)
        self._record = np.array([self._word.ctypes.data], np.int64)
        self._read = native_function(read_counter)
        self._first = self._pair()

    def now(self) -> int:
        """Return the counter."""
        self._read(self._record.ctypes.data)
        return int(self._word[0])

    def _pair(self) -> tuple[int, int]:
        """Return counter and nanoseconds of one moment: of three tries, the one that took least."""
        tries = []
        # The thread may lose its core between the two clocks: the shortest try has the smallest error.
        for _ in range(3):
            before = time.perf_counter_ns()
            count = self.now()
            after = time.perf_counter_ns()
            tries.append((after - before, count, (before + after) // 2))
        _, count, ns = min(tries)
        return count, ns

    def scale(self) -> tuple[int, int, float]:
        """Return (counter, ns of `time.perf_counter_ns`, ns a count); waits where the clock was started just now."""
        count, ns = self._first
        missing = BASELINE - (time.perf_counter_ns() - ns) / 1e9
        if missing > 0:
            time.sleep(missing)
        count2, ns2 = self._pair()
        return count, ns, (ns2 - ns) / max(1, count2 - count)


@functools.cache
def clock() -> Clock:
    """Return the process's clock."""
    return Clock()


class StampedTape(Tape):
    """A tape that stamps; see `Tape` for its arguments.

    Attributes:
        stamps: [instructions, WORDS]; a begin that is later than its end belongs to an instruction that is running.
        halt: [1] set to 1, instructions that have not begun do nothing.
    """

    def __init__(
        self, instructions: Sequence[Instruction], found: dict[Instance, int], chains: Sequence[Chain], threads: int
    ) -> None:
        super().__init__(instructions, found, chains, threads)
        n = max(1, len(instructions))
        self.clock = clock()
        self.stamps = np.zeros((n, WORDS), np.int64)
        self.halt = np.zeros(1, np.int64)
        self._wrapped = np.zeros((n, 5), np.int64)
        instance = Instance(stamped_call)
        entry = addresses([instance])[instance]
        this_thread = ctypes.cast(ctypes.CDLL(None).pthread_self, ctypes.c_void_p).value or 0
        for i in range(len(instructions)):
            target, record, _ = self._tape[i]
            self._wrapped[i] = target, record, self.stamps[i].ctypes.data, self.halt.ctypes.data, this_thread
            self._tape[i, 0], self._tape[i, 1] = entry, self._wrapped[i].ctypes.data
        if self.threads > 1:
            self._line_up()
        self.work = np.array([i.op for i in instructions], np.int64)
        self.started = 0

    def _aim(self, i: int, target: int, report: int) -> None:
        # The tape calls the stamping kernel; the kernel that it stamps stands in its arguments.
        self._wrapped[i, 0] = target
        super()._aim(i, int(self._tape[i, 0]), report)

    def run(self) -> tuple[Instruction, list[int]] | None:
        """Run the step; see `Tape.run`."""
        self.started = self.clock.now()
        return super().run()

    def abort(self) -> None:
        """Make the instructions that have not begun do nothing, and the threads leave the schedule."""
        self.halt[0] = 1
        if self.threads > 1 and not (self.stamps[:, BEGIN] > self.stamps[:, END]).any():
            self._aborted[0] = 1  # nobody runs: the schedule itself hangs

    def recover(self) -> None:
        """Make the tape runnable again after `abort`."""
        self.halt[0] = 0
        self._reset()

    def run_timed(self) -> tuple[tuple[Instruction, list[int]] | None, Timeline]:
        """Run the step; return what `run` returns, and when everything ran."""
        self.stamps[:] = 0
        failed = self.run()
        start, stop = self.started, self.clock.now()
        count, ns, scale = self.clock.scale()
        lanes = self.lanes()
        used = self.stamps[: len(self.work)]

        def at(counter: Any) -> Any:
            return ns + np.rint((counter - count) * scale).astype(np.int64)

        ran = used[:, BEGIN] != 0
        return failed, Timeline(
            np.where(ran, at(used[:, BEGIN]), 0),
            np.where(ran, at(used[:, END]), 0),
            np.array([lanes.get(int(t), 0) for t in used[:, THREAD]], np.int64),
            self.work,
            int(at(start)),
            int(at(stop)),
            self.threads,
        )

    def lanes(self) -> dict[int, int]:
        """Return thread identity -> index of the workers; any other thread is the caller's, 0."""
        return pool(self.threads).identities if self.threads > 1 else {}
