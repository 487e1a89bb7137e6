"""The CPU: arenas of host memory, and tapes of native kernels."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.devices.aligned_memory import ALIGN, Arena
from pe_cli.devices.chains import chains
from pe_cli.devices.checked_tape import Allowed, CheckedTape
from pe_cli.devices.nested_tapes import NestedTapes, every_call
from pe_cli.devices.parallel_parts import in_order, pieces, settle
from pe_cli.devices.protocol import Carried, Loan, Progress, Spot, Stalled, Takers, Timeline, Work
from pe_cli.devices.stall_inspection import StampedStep
from pe_cli.devices.tape import Chain, Instruction, Tape, word
from pe_cli.devices.thread_pool import runners
from pe_cli.devices.timestamps import StampedTape
from pe_cli.devices.watchdog import Guard
from pe_cli.devices.zero_copy_feeds import ZeroCopyFeeds
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Nested, Numbers, Offset, Place, Table, buffers_of
from pe_cli.kernels.compiler.bounds_check import CHECKED, Range
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.cpu.no_op import nothing
from pe_cli.kernels.cpu.python_calls import HostKernel

#: Arguments that there is room for at least, where other calls may come in the place of a work's.
WORDS = 32
#: What is called where other batches make more calls.
NOTHING = Call(nothing, (), "float32", "float32")


class CpuDevice:
    """All CPU devices of this process."""

    lowers = "cpu"
    is_host = True
    shares_memory = True
    refits = True
    native_threads = True
    makes_calls = True
    caches_blocks = True
    line = ALIGN

    def allocate(self, index: int, nbytes: int) -> Arena:
        """Return zeroed host memory; the index does not matter."""
        del index
        return Arena(nbytes)

    def carried(self, calls: Sequence[Call], feeds: Sequence[TensorType], fetches: Sequence[TensorType]) -> Carried:
        """Return nothing: steps read arrays where they lie, and small ones are copied into the arena."""
        del calls, feeds, fetches
        return Carried(0, 0)

    def compile(
        self, works: Sequence[Work], spot: Callable[[Buffer], Spot], threads: int, progress: Progress | None, indexes: Sequence[int] = (0,)
    ) -> CpuStep:
        """Return a tape of native kernels."""
        del indexes
        return CpuStep(works, spot, threads, progress)


class CpuStep:
    """Works as a tape.

    Attributes:
        tape: what runs.
        chosen: nothing, see `Step`.
    """

    chosen: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, works: Sequence[Work], spot: Callable[[Buffer], Spot], threads: int, progress: Progress | None
    ) -> None:
        # What a call may touch is in one table of the process: checked calls come one after the other.
        threads = 1 if CHECKED else threads
        self._ranges: dict[int, Allowed] = {}  # by where an instruction's arguments begin in the records
        self._spot = spot
        self._reach = [(w.written, w.buckets) for w in works]
        self._progress = progress
        # Kernels read the number of the step here, so that no record changes from step to step.
        self._step = np.zeros(1, np.int64)
        self._loans = ZeroCopyFeeds()
        self._words = 0
        self._entries: list[Any] = []
        self._tables: dict[int, np.ndarray[Any, Any]] = {}  # by the word of the records that is their address
        self._apart = [threads > len({w.home for w in works}) or w.takers is not Takers.DEVICE for w in works]
        calls = [self._ordered(i, w.calls) + [NOTHING] * w.spare for i, w in enumerate(works)]
        instances = [[Instance(c.kernel, c.dtype, c.second) for c in row] for row in calls]
        pairs = [(c, n) for row, of in zip(calls, instances, strict=True) for c, n in zip(row, of, strict=True)]
        compiled = (n for c, n in pairs if not isinstance(c.kernel, HostKernel))
        found = addresses([*compiled, *_inside(c for c, _ in pairs), *runners(threads)], progress)
        found |= {n: self._host(c) for c, n in pairs if isinstance(c.kernel, HostKernel)}
        self._found = found
        self._nested: dict[int, NestedTapes] = {}  # by the word of the records that is their address
        instructions: list[Instruction] = []
        self._first = list(itertools.accumulate((len(row) for row in calls), initial=0))
        self._places = [[c.part for c in row] for row in calls]
        self._real = [[c is not NOTHING for c in row] for row in calls]
        for i, (row, of) in enumerate(zip(calls, instances, strict=True)):
            # Calls of other batches, which may come here, may have more arguments, and a record cannot grow.
            room = max(WORDS, *(len(c.args) for c in row)) if works[i].spare else 0
            instructions += [self._instruction(i, c, instance, room) for c, instance in zip(row, of, strict=True)]
        joined = self._chains(works, calls, threads) if threads > 1 else []
        self.tape = CheckedTape(instructions, found, joined, self._allowed) if CHECKED else Tape(instructions, found, joined, threads)
        self._loans.renew(self.tape)
        self._waits = [w.waits for w in works]
        self._parts = found, joined, threads
        self._stamped: StampedTape | None = None
        self._guard: Guard | None = None

    def _ordered(self, work: int, calls: Sequence[Call]) -> list[Call]:
        """Return a work's calls in the order of the tape; without parts where every thread has a device of its own.

        Parts of its ops would only be moved about.
        """
        row = in_order(calls)
        return row if self._apart[work] else [replace(c, part=None) for c in row]

    @staticmethod
    def _chains(works: Sequence[Work], calls: Sequence[Sequence[Call]], threads: int) -> list[Chain]:
        homes = [w.home for w in works]
        devices = len(set(homes))
        steps = {Takers.DEVICE: devices, Takers.ALL: 1, Takers.IDLE: 0}
        apart = [steps[w.takers] for w in works]
        cut = pieces(homes, calls, [w.waits for w in works], apart, threads)
        return chains([p.home for p in cut], [set(p.waits) for p in cut], [p.begin for p in cut], [p.end for p in cut])

    def run(self, step: int) -> tuple[int, list[int]] | None:
        """Run the tape; return None, or the first work that reported an error with its report."""
        self._step[0] = step
        failed = self.tape.run() if self._guard is None else self._guarded()
        return None if failed is None else (failed[0].op, failed[1])

    def start(self, step: int, wanted: Sequence[tuple[Spot, Any]]) -> None:
        """Return None: a step is over when it returns."""
        del step, wanted

    def run_timed(self, step: int) -> tuple[tuple[int, list[int]] | None, Timeline]:
        """Run a second tape, which writes down when each instruction ran; see `run`."""
        self._step[0] = step
        failed, line = self._stamps().run_timed()
        kept = np.array([real for row in self._real for real in row], bool)
        if not kept.all():  # the rest is room for more calls
            line = replace(
                line, begin=line.begin[kept], end=line.end[kept], thread=line.thread[kept], work=line.work[kept]
            )
        return (None if failed is None else (failed[0].op, failed[1])), line

    def refill(self, works: Mapping[int, Work], spot: Callable[[Buffer], Spot]) -> bool:
        """Make other calls for some works; see `Step.refill`."""
        offsets = self.tape.offsets.tolist()
        room = [end - begin for begin, end in itertools.pairwise(offsets)]
        rows = {}
        for work, given in works.items():
            settled = settle(self._places[work], self._ordered(work, given.calls))
            # The other batch has more calls or other parts than there is room for here: it gets a plan of its own.
            if settled is None:
                return False
            rows[work] = [c or NOTHING for c in settled]
            if any(len(c.args) > room[i] for i, c in enumerate(rows[work], self._first[work])):
                return False
        made = [(work, c, Instance(c.kernel, c.dtype, c.second)) for work, row in rows.items() for c in row]
        missing = [n for n in (*(n for _, _, n in made), *_inside(c for _, c, _ in made)) if n not in self._found]
        if missing:
            self._found |= addresses(missing, self._progress)
        for work, row in rows.items():
            self._real[work] = [c is not NOTHING for c in row]
            self._reach[work] = works[work].written, works[work].buckets
        tapes = self._tapes()
        self._loans.end()
        self._spot = spot
        places = (i for work in rows for i in range(self._first[work], self._first[work + 1]))
        for i, (work, call, instance) in zip(places, made, strict=True):
            if call is NOTHING and self.tape.instructions[i].instance == instance:
                continue
            self._words = offsets[i]
            self._loans.forget(range(offsets[i], offsets[i + 1]))
            instruction = self._instruction(work, call, instance, room[i])
            for tape in tapes:
                tape.replace(i, instruction, self._found[instance])
        return True

    def _tapes(self) -> list[Tape]:
        return [tape for tape in (self.tape, self._stamped) if tape is not None]

    def loan(self, spot: Spot) -> Loan | None:
        """Return a zero-copy feed, by which the step reads a caller's array instead of the bytes at a spot; see `Step.loan`."""
        return self._loans.loan(spot)

    def watch(self, seconds: float, tell: Callable[[Stalled], PeError]) -> None:
        """Watch every step from now on.

        Args:
            seconds: without progress, after which a step is ended.
            tell: makes the error of what hangs.
        """
        tape = self._stamps()
        self.tape = tape
        self._guard = Guard(seconds, StampedStep(tape, self._waits, tell))

    def _stamps(self) -> StampedTape:
        if self._stamped is None:
            self._stamped = StampedTape(self.tape.instructions, *self._parts)
            self._loans.renew(self._stamped)
        return self._stamped

    def _guarded(self) -> tuple[Instruction, list[int]] | None:
        assert self._guard is not None
        assert self._stamped is not None
        tape = self._stamped
        found: list[tuple[Instruction, list[int]] | None] = []
        try:
            self._guard.run(lambda: found.append(tape.run()))
        except PeError:
            tape.recover()
            raise
        return found[0]

    def _instruction(self, work: int, call: Call, instance: Instance, room: int = 0) -> Instruction:
        status = None
        words = []
        begin = self._words
        for i, arg in enumerate(call.args):
            if arg is STATUS:
                status = i
                words.append(0)
            elif isinstance(arg, (Buffer, Offset, Place)):
                spot, offset = self._place(arg)
                words.append(int(spot.memory.address) + spot.offset + offset)
                if CHECKED:
                    self._loans.forbid(spot)
                elif not isinstance(call.kernel, HostKernel):
                    self._loans.note(spot, self._words + i, offset)
            else:
                words.append(self._word(arg, self._words + i))
        if CHECKED:
            self._ranges[begin] = self._reached(work, call, begin)
        self._words += max(len(words), room)
        return Instruction(instance, tuple(words), work, status, room)

    def _allowed(self, i: int) -> Allowed:
        """Return the memory that an instruction may touch."""
        return self._ranges[int(self.tape.offsets[i])]

    def _reached(self, work: int, call: Call, begin: int) -> Allowed:
        """Return the memory that the arguments of a work's call lead to, which stand at an index of the records."""
        changed, buckets = self._reach[work]
        ends = {row[0]: row for row in buckets}
        written: list[Range] = []
        read = [_range(self._step)]
        for b in dict.fromkeys(b for arg in call.args for b in buffers_of(arg)):
            row = ends.get(b, [b])
            into = read if changed.isdisjoint(row) else written
            into.append((self._range_of(b)[0], self._range_of(row[-1])[1]))
        for k in range(begin, begin + len(call.args)):
            read += [_range(self._tables[k])] if k in self._tables else []
            written += map(_range, self._nested[k].kept) if k in self._nested else []
        return Allowed(written, read)

    def _range_of(self, b: Buffer) -> Range:
        spot = self._spot(b)
        begin = int(spot.memory.address) + spot.offset
        return begin, begin + b.type.nbytes

    def _host(self, call: Call) -> int:
        """Return the address of a Python function's entry."""
        for b in call.args[1:]:
            self._loans.forbid(self._place(b)[0])
        entry = call.kernel.entry([self._address(b) for b in call.args[1:]])
        self._entries.append(entry)
        return ctypes.cast(entry, ctypes.c_void_p).value or 0

    def _word(self, arg: Any, at: int) -> int:
        """Return an argument that is no buffer as the word of the records at an index."""
        if arg is STEP:
            return int(self._step.ctypes.data)
        if isinstance(arg, Nested):
            for touched in buffers_of(arg):
                self._loans.forbid(self._spot(touched))
            self._nested[at] = NestedTapes(self._address, self._found)
            return self._nested[at].lay_out(arg)
        if isinstance(arg, (Table, Numbers)):
            values = arg.values if isinstance(arg, Numbers) else [self._address(b) for b in arg.buffers]
            # One word more, so that an empty table has an address, too.
            array = self._tables[at] = np.array([*values, 0], np.int64)
            for i, b in enumerate(arg.buffers if isinstance(arg, Table) else ()):
                spot, offset = self._place(b)
                self._loans.note_table(spot, at, array, i, offset)
            return int(array.ctypes.data)
        return word(arg)

    def _address(self, arg: Buffer | Offset | Place) -> int:
        spot, offset = self._place(arg)
        return int(spot.memory.address) + spot.offset + offset

    def _place(self, arg: Buffer | Offset | Place) -> tuple[Spot, int]:
        """Return where a buffer lies, and how many bytes after its start an argument does."""
        if isinstance(arg, Place):
            return self._spot(arg.buffer), arg.nbytes
        if isinstance(arg, Offset):
            return self._spot(arg.buffer), arg.elements * arg.buffer.type.numpy.itemsize
        return self._spot(arg), 0


def _range(array: np.ndarray[Any, Any]) -> Range:
    begin = int(array.ctypes.data)
    return begin, begin + array.nbytes


def _inside(calls: Iterable[Call]) -> list[Instance]:
    """Return the kernels of what calls make."""
    made = (c for call in calls for arg in call.args if isinstance(arg, Nested) for c in every_call(arg.calls))
    return list(dict.fromkeys(Instance(c.kernel, c.dtype, c.second) for c in made))


DEVICE = CpuDevice()
