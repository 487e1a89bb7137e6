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
from pe_cli.core.types import DTYPES, TensorType
from pe_cli.devices.aligned_memory import ALIGN, Arena
from pe_cli.devices.chains import chains
from pe_cli.devices.checked_tape import Allowed, CheckedTape
from pe_cli.devices.nested_tapes import NestedTapes, every_call
from pe_cli.devices.parallel_parts import in_order, pieces, settle
from pe_cli.devices.protocol import Carried, Loan, Progress, Spot, Stalled, Takers, Timeline, Work
from pe_cli.devices.stall_inspection import StampedStep
from pe_cli.devices.tape import Chain, Instruction, Tape, word
from pe_cli.devices.tape_lines import Laid, Line
from pe_cli.devices.thread_pool import runners
from pe_cli.devices.timestamps import StampedTape
from pe_cli.devices.watchdog import Guard
from pe_cli.devices.zero_copy_feeds import Entry, ZeroCopyFeeds
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Nested, Numbers, Offset, Place, Table, buffers_of
from pe_cli.kernels.compiler.bounds_check import CHECKED, Range
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.cpu.no_op import nothing
from pe_cli.kernels.cpu.python_calls import HostKernel

#: Arguments that there is room for at least, where other calls may come in the place of a work's.
WORDS = 32
#: Works of other batches that are kept as they stand on the tape; beyond, all are forgotten.
MOST = 4096
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
        self._spot = spot
        self._reach = [(w.written, w.buckets) for w in works]
        self._progress = progress
        # Kernels read the number of the step here, so that no record changes from step to step.
        self._step = np.zeros(1, np.int64)
        self._loans = ZeroCopyFeeds()
        self._entries: list[Any] = []
        self._apart = [threads > len({w.home for w in works}) or w.takers is not Takers.DEVICE for w in works]
        calls = [self._ordered(i, w.calls) + [NOTHING] * w.spare for i, w in enumerate(works)]
        self._instances: dict[tuple[int, str, str], Instance] = {}
        instances = [[self._instance(c) for c in row] for row in calls]
        pairs = [(c, n) for row, of in zip(calls, instances, strict=True) for c, n in zip(row, of, strict=True)]
        compiled = (n for c, n in pairs if not isinstance(c.kernel, HostKernel))
        found = addresses([*compiled, *_inside(c for c, _ in pairs), *runners(threads)], progress)
        found |= {n: self._host(c) for c, n in pairs if isinstance(c.kernel, HostKernel)}
        self._found = found
        self._first = list(itertools.accumulate((len(row) for row in calls), initial=0))
        self._places = [[c.part for c in row] for row in calls]
        self._real = [tuple(c is not NOTHING for c in row) for row in calls]
        # Calls of other batches, which may come here, may have more arguments, and a record cannot grow.
        rooms = [max(WORDS, *(len(c.args) for c in row)) if w.spare else 0 for row, w in zip(calls, works, strict=True)]
        sizes = [max(len(c.args), room) for row, room in zip(calls, rooms, strict=True) for c in row]
        self._begins = list(itertools.accumulate(sizes, initial=0))
        whole = [(i, c, n) for i, (row, of) in enumerate(zip(calls, instances, strict=True)) for c, n in zip(row, of, strict=True)]
        self._lines = [self._line(work, c, n, i) for i, (work, c, n) in enumerate(whole)]  # what stands on the tape
        self._laid: dict[int, Laid] = {}  # by the id of a work of another batch
        self._seen: set[int] = set()
        instructions = [line.instruction for line in self._lines]
        joined = self._chains(works, calls, threads) if threads > 1 else []
        self.tape = CheckedTape(instructions, found, joined, self._allowed) if CHECKED else Tape(instructions, found, joined, threads)
        self._loans.renew(self.tape)
        for line in self._lines:
            self._loans.note(line.notes, line.entries)
        self._waits = [w.waits for w in works]
        self._parts = found, joined, threads
        self._stamped: StampedTape | None = None
        self._guard: Guard | None = None

    def _ordered(self, work: int, calls: Sequence[Call]) -> list[Call]:
        """Return a work's calls in the order of the tape; without parts where every thread has a device of its own.

        Parts of its ops would only be moved about.
        """
        row = in_order(calls)
        return row if self._apart[work] else [c if c.part is None else replace(c, part=None) for c in row]

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
        rows = {work: self._settled(work, given) for work, given in works.items() if id(given) not in self._laid}
        # The other batch has more calls or other parts than there is room for here: it gets a plan of its own.
        if any(row is None for row in rows.values()):
            return False
        fresh = {work: (row, [self._instance(c) for c in row]) for work, row in rows.items() if row is not None}
        needed = [*(n for _, of in fresh.values() for n in of), *_inside(c for row, _ in fresh.values() for c in row)]
        if missing := [n for n in needed if n not in self._found]:
            self._found |= addresses(missing, self._progress)
        self._loans.end()
        self._spot = spot
        for work, given in works.items():
            self._reach[work] = given.written, given.buckets
            laid = self._laid[id(given)] if work not in fresh else self._lay(work, given, *fresh[work])
            self._real[work] = laid.real
            for i, line in enumerate(laid.lines, self._first[work]):
                if line is not self._lines[i]:
                    self._put(i, line)
        if len(self._seen) > MOST:
            self._laid.clear()
            self._seen.clear()
        return True

    def _settled(self, work: int, given: Work) -> list[Call] | None:
        """Return the calls for a work's places on the tape, of another batch; None where there is no room for them."""
        settled = settle(self._places[work], self._ordered(work, given.calls))
        if settled is None:
            return None
        row = [c or NOTHING for c in settled]
        begins = self._begins[self._first[work] :]
        return row if all(len(c.args) <= end - begin for c, begin, end in zip(row, begins, begins[1:], strict=False)) else None

    def _instance(self, call: Call) -> Instance:
        """Return what a call calls; the same object for equal ones, as there are many."""
        key = id(call.kernel), call.dtype, call.second
        found = self._instances.get(key)
        if found is None:
            found = self._instances[key] = Instance(call.kernel, call.dtype, call.second)
        return found

    def _lay(self, work: int, given: Work, row: Sequence[Call], instances: Sequence[Instance]) -> Laid:
        """Resolve a work's calls. What comes a second time is kept: its sizes come again, which those of others may never do."""
        lines = []
        for i, (call, instance) in enumerate(zip(row, instances, strict=True), self._first[work]):
            idle = call is NOTHING and self._lines[i].instruction.instance is instance
            lines.append(self._lines[i] if idle else self._line(work, call, instance, i))
        laid = Laid(given, tuple(lines), tuple(c is not NOTHING for c in row))
        if id(given) in self._seen:
            self._laid[id(given)] = laid
        self._seen.add(id(given))
        return laid

    def _put(self, i: int, line: Line) -> None:
        """Put a line in the place of another one of the tape."""
        before = self._lines[i]
        if line.notes != before.notes or line.entries or before.entries:
            self._loans.forget(before.notes, before.entries)
            self._loans.note(line.notes, line.entries)
        self._lines[i] = line
        for tape in self._tapes():
            tape.replace(i, line.instruction, self._found[line.instruction.instance])

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

    def _line(self, work: int, call: Call, instance: Instance, i: int) -> Line:
        """Resolve a call of a work in a place of the tape."""
        begin, end = self._begins[i : i + 2]
        status = None
        words: list[int] = []
        notes: list[int] = []
        line = Line()
        for at, arg in enumerate(call.args, begin):
            if type(arg) is int:  # most are
                words.append(arg)
            elif arg is STATUS:
                status = at - begin
                words.append(0)
            elif isinstance(arg, (Buffer, Offset, Place)):
                spot, offset = (self._spot(arg), 0) if type(arg) is Buffer else self._place(arg)
                words.append(int(spot.memory.address) + spot.offset + offset)
                if CHECKED:
                    self._loans.forbid(spot)
                elif not isinstance(call.kernel, HostKernel):
                    notes += (self._loans.number(spot), at, offset)
            else:
                words.append(self._word(arg, at, line))
        if CHECKED:
            line.allowed = self._reached(work, call, line)
        line.notes = tuple(notes)
        line.instruction = Instruction(instance, tuple(words), work, status, end - begin)
        return line

    def _allowed(self, i: int) -> Allowed:
        """Return the memory that an instruction may touch."""
        found = self._lines[i].allowed
        assert found is not None
        return found

    def _reached(self, work: int, call: Call, line: Line) -> Allowed:
        """Return the memory that the arguments of a work's call lead to."""
        changed, buckets = self._reach[work]
        ends = {row[0]: row for row in buckets}
        written: list[Range] = []
        read = [_range(self._step)]
        for b in dict.fromkeys(b for arg in call.args for b in buffers_of(arg)):
            row = ends.get(b, [b])
            into = read if changed.isdisjoint(row) else written
            into.append((self._range_of(b)[0], self._range_of(row[-1])[1]))
        read += map(_range, line.tables)
        written += [_range(kept) for tapes in line.nested for kept in tapes.kept]
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

    def _word(self, arg: Any, at: int, line: Line) -> int:
        """Return an argument of a line that is no buffer as the word of the records at an index."""
        if arg is STEP:
            return int(self._step.ctypes.data)
        if isinstance(arg, Nested):
            for touched in buffers_of(arg):
                self._loans.forbid(self._spot(touched))
            line.nested += (NestedTapes(self._address, self._found),)
            return line.nested[-1].lay_out(arg)
        if isinstance(arg, (Table, Numbers)):
            values = arg.values if isinstance(arg, Numbers) else [self._address(b) for b in arg.buffers]
            # One word more, so that an empty table has an address, too.
            array = np.array([*values, 0], np.int64)
            line.tables += (array,)
            for i, b in enumerate(arg.buffers if isinstance(arg, Table) else ()):
                spot, offset = self._place(b)
                line.entries += (Entry(self._loans.number(spot), at, offset, array, i),)
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
            return self._spot(arg.buffer), arg.elements * DTYPES[arg.buffer.type.dtype]
        return self._spot(arg), 0


def _range(array: np.ndarray[Any, Any]) -> Range:
    begin = int(array.ctypes.data)
    return begin, begin + array.nbytes


def _inside(calls: Iterable[Call]) -> list[Instance]:
    """Return the kernels of what calls make."""
    made = (c for call in calls for arg in call.args if isinstance(arg, Nested) for c in every_call(arg.calls))
    return list(dict.fromkeys(Instance(c.kernel, c.dtype, c.second) for c in made))


DEVICE = CpuDevice()
