"""A plan: one step of a graph for one batch shape, as tapes over planned memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pe_cli.collectives.protocol import Summing
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import TensorType
from pe_cli.devices.protocol import Progress, Stalled, Timeline, Work, device
from pe_cli.devices.scope import Scope
from pe_cli.execute.diagnostics.task_errors import failed_task
from pe_cli.execute.lowering.batch_rows import Counts
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.nodes import lower
from pe_cli.execute.lowering.options import lowering, written_elsewhere
from pe_cli.execute.lowering.sum_processes import under_way
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.lowering.types import Inferred
from pe_cli.execute.memory import alias_check
from pe_cli.execute.memory.arenas import Arenas
from pe_cli.execute.memory.device_memory import DeviceMemory, plan_devices
from pe_cli.execute.memory.placement import ROOM, Placement
from pe_cli.execute.numeric_settings import Numerics
from pe_cli.execute.plan.async_fetches import AsyncFetches
from pe_cli.execute.plan.distributed import types_over_processes
from pe_cli.execute.plan.feed_slots import PlanSlot
from pe_cli.execute.plan.refitting import fits
from pe_cli.execute.plan.task_order import Range, Rules, delayed, dependencies
from pe_cli.execute.request import Request, fetched_rows
from pe_cli.graph.ssa import Graph
from pe_cli.kernels.calls import Buffer, Call
from pe_cli.kernels.cpu.no_op import nothing
from pe_cli.kernels.cpu.python_calls import HostKernel
from pe_cli.program.sparse import table_of

#: A feed of fewer bytes is copied: that takes no longer than to put its address into the tape.
LEND_BYTES = 16384
#: Requests of which a plan keeps what they were lowered to.
MOST = 256
#: Calls of one op that such plans have room for beyond those of their own: sums of more rows take more rounds.
SPARE = 4
#: The space of dependency analysis that stands for the Python interpreter.
HOST = 1 << 62
_Kept = TypeVar("_Kept")


class _Found(dict[str, _Kept]):
    """What a function says of names, kept."""

    def __init__(self, find: Callable[[str], _Kept]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, name: str) -> _Kept:
        found = self[name] = self._find(name)
        return found


class Plan:
    """A step, ready to run.

    Args:
        numerics: how its kernels compute.
        roomy: bytes that (variable, device) pairs have in other plans, for one that batches of any shape will fit into; None for one that
            serves its own batch alone.
        arenas: memory that it shares with plans that run before and after; default: its own.

    Attributes:
        tasks: in order, for pictures.
        step: what runs.
        shares: name of a number -> how much each active device's value counts in the mean over all, see `GraphLowering.shares`.
        counts: the same for every device of this process, and for those of all together.
        samples: of every device of all processes.
        ends: per device: feed of offsets -> the number that it must end with, as kernels trust it, and a variable that has so many rows.
    """

    def __init__(  # noqa: PLR0913 - independent options
        self,
        graph: Graph,
        request: Request,
        scope: Scope,
        numerics: Numerics,
        *,
        threads: int,
        build: BuildStrategy | None = None,
        execution: ExecutionStrategy | None = None,
        progress: Progress | None = None,
        peers: Summing | None = None,
        roomy: Mapping[tuple[str, int], int] | None = None,
        arenas: Arenas | None = None,
    ) -> None:
        self.graph = graph
        self.request = request
        self.ends: list[dict[str, tuple[int, str]]] = []
        self._scope = scope
        self._peers = peers
        self._arenas = arenas or Arenas()
        self._numerics = numerics
        self._strategy = build or BuildStrategy()
        self._execution = execution or ExecutionStrategy()
        self._threads = threads
        self._rows = fetched_rows(graph, request)
        self._inferred = Inferred(graph.program)
        self._lowering, self.tasks = self._lower(request)
        # A roomy plan is made a little larger than its batch, so that later batches fit into it without a plan of their own.
        room = (1.0, {}) if roomy is None else (ROOM, roomy)
        memory = plan_devices(graph, request, self._lowering, self.tasks, self._strategy, threads, *room)
        self._places = Placement(graph, memory, self.tasks, scope, self._arenas, sum(request.sizes))
        self._first: dict[tuple[str, int], Buffer] = {}  # by variable and device: those in whose places others come
        self._fitted: dict[tuple[int, int], tuple[Task, Work]] = {}  # by place and id: tasks of other batches that fit there
        self._known: dict[Request, tuple[GraphLowering, list[Task]]] = {}  # what other batches were lowered to
        self._ins: dict[Buffer, PlanSlot] = {}  # feeds, also of batches that came before
        self._outs: dict[Buffer, PlanSlot] = {}  # what is fetched, too
        self._build(threads, progress, 0 if roomy is None else SPARE)

    def _lower(self, request: Request, like: GraphLowering | None = None) -> tuple[GraphLowering, list[Task]]:
        types, whole = types_over_processes(self.graph, request, self._peers, self._inferred)
        made = lowering(self.graph, types, request.sizes, self._numerics, threads=self._threads, whole=whole, like=like)
        tasks = lower(made)
        return made, delayed(tasks, self.graph) if self._execution.allow_op_delay else tasks

    # --- memory -------------------------------------------------------------------------------------------------------

    @property
    def refitted(self) -> bool:
        """Whether it has served another request than that which it was made for."""
        return bool(self._fitted)

    def rooms(self) -> dict[tuple[str, int], int]:
        """Return the bytes that are there for the variables of every device, by (variable, device)."""
        return {at: self._places.room(b) for at, b in self._lowering.buffers.items()}

    def _buffers(self) -> list[Buffer]:
        """Return the buffers of the batch that is served."""
        return [*self._lowering.buffers.values(), *(b for task in self.tasks for b in task.scratch)]

    @property
    def memory(self) -> list[DeviceMemory]:
        """Memory of every device."""
        return self._places.memory(self._buffers())

    # --- calls --------------------------------------------------------------------------------------------------------

    def _build(self, threads: int, progress: Progress | None, spare: int) -> None:
        waits = self.waits(threads) if threads > 1 else [set() for _ in self.tasks]
        calls = [
            [Call(nothing, (), "float32", "float32") for _ in t.calls] if self._execution.dry_run else t.calls
            for t in self.tasks
        ]
        works = [t.work(c, w, spare if c else 0) for t, c, w in zip(self.tasks, calls, waits, strict=True)]
        self._written = written_elsewhere(self.graph, self.request.fetches)
        indexes = [place.index for place in self.graph.places]
        self.step = device(self.graph.places[0].kind).compile(works, self._places.spot, threads, progress, indexes)
        written = [b for t in self.tasks if t.calls for b in t.writes]
        fetched = [b for (name, _), b in self._lowering.buffers.items() if name in self.request.fetches]
        # What a call writes would change the array of who fed it; what is fetched is copied from the arena.
        self._unlendable = {(id(s.memory), s.offset) for s in map(self._places.spot, (*written, *fetched))}
        self._look_for_aliases()
        self._find_slots()

    def _look_for_aliases(self) -> None:
        alias_check.check(self.tasks, self.graph, lambda b: (self._places.spot(b).space, self._places.spot(b).offset))

    def _find_slots(self) -> None:
        """Find where the feeds of every device go; large ones that no call writes and nobody fetches are not worth a copy."""
        # Closures are kept by the plan's slots: one that held the plan would keep its arenas alive in a circle.
        lowering, active = self._lowering, self.graph.active  # no plan: its memory is given back when the plan goes

        def shares_of(number: str) -> list[int]:
            own = lowering.shares(number).own
            return [own[d] for d in active]

        self.shares: Mapping[str, Sequence[int]] = _Found(shares_of)
        self.counts: Mapping[str, Counts] = _Found(lowering.shares)
        self.samples = lowering.whole.sizes
        # On a card every feed is lent: the step itself copies it there from where the caller has it.
        host = device(self.graph.places[0].kind).is_host
        self._inlets: dict[tuple[str, int], PlanSlot] = {}
        self._outlets: list[list[tuple[str, PlanSlot]]] = []
        for d, feeds in enumerate(self.request.feeds):
            for name, kind in feeds:
                b = self._lowering.buffers[name, d]
                if b not in self._ins:
                    spot = self._places.spot(b)
                    large = not host or (kind.nbytes >= LEND_BYTES and (id(spot.memory), spot.offset) not in self._unlendable)
                    self._ins[b] = PlanSlot(spot, b.type, self.step.loan(spot) if large else None)
                self._inlets[name, d] = self._ins[b]

    def fit(self, request: Request) -> bool:
        """Serve another request of the same graph from now on, where that takes the same tasks in the same memory; see `fits`.

        That is far less work than to make a plan. Otherwise the plan stays what it was, and False is returned.
        """
        made, tasks = self._known.get(request) or self._lower(request, self._lowering)
        # Only what tasks touch has buffers so far, and a feed without a place could not be written.
        for d, feeds in enumerate(request.feeds):  # one that no task reads, such as the offsets of labels, has a place as well
            for name, _ in feeds:
                made.buffer(name, d)
        if made.known is not self._lowering.known:  # it has begun anew
            self._forget()
        first, places = self._first or dict(self._lowering.buffers), self._places
        pairs = {b: first[at] for at, b in made.buffers.items() if at in first and first[at] is not b and not places.is_placed(b)}
        # Larger than its room: neighbours would be overwritten.
        if len(tasks) != len(self.tasks) or any(b.type.nbytes > places.room(old) for b, old in pairs.items()):
            return False
        changed = {i: new for i, (old, new) in enumerate(zip(self.tasks, tasks, strict=True)) if old is not new}
        fresh = {i: new for i, new in changed.items() if (i, id(new)) not in self._fitted}
        if not all(fits(self.tasks[i], new, made.known.variables) for i, new in fresh.items()):
            return False
        self._first = first
        places.place(pairs)
        for i, task in fresh.items():
            places.place_scratch(i, task)
            self._fitted[i, id(task)] = task, task.work(task.calls)
        if not self.step.refill({i: self._fitted[i, id(new)][1] for i, new in changed.items()}, places.spot):
            return False
        # Only here does the plan change: whatever failed before leaves it whole.
        self.request, self._lowering, self.tasks = request, made, tasks
        # Processes exchange rows and sums anew for every batch.
        if self._peers is None:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[request] = made, tasks
        self._look_for_aliases()
        self._find_slots()
        return True

    def _forget(self) -> None:
        """Forget what is known of batches that came before, but for the one that is served."""
        self._places.forget(self._buffers())
        for known in (self._fitted, self._known, self._ins, self._outs):
            known.clear()

    def holds(self, request: Request) -> bool:
        """Whether the same is asked for, and there is room for what is fed."""
        if request.fetches != self.request.fetches:
            return False
        for d, (before, after) in enumerate(zip(self.request.feeds, request.feeds, strict=True)):
            if [name for name, _ in before] != [name for name, _ in after]:
                return False
            buffers = [(self._lowering.buffers[name, d], kind) for name, kind in after]
            if any(kind.nbytes > self._places.room(b) for b, kind in buffers):
                return False
        return True

    def waits(self, threads: int) -> list[set[int]]:
        """Return for every task those that must be done before it when there are so many threads."""
        rules = Rules(
            chained=threads <= len(self.graph.places),
            sequential=self._strategy.enable_sequential_execution,
            updates_last=self._strategy.enable_backward_optimizer_op_deps,
            collectives_last=self._execution.allow_op_delay,
        )
        return dependencies(self.tasks, self.graph, self._ranges, rules)

    def watch(self, seconds: float, explain: Callable[[Plan, Stalled], PeError]) -> None:
        """End every later step that makes no progress for so long.

        Args:
            seconds: without progress.
            explain: makes the error that says what hangs.
        """
        self.step.watch(seconds, lambda found: explain(self, found))

    def _ranges(self, task: Task) -> tuple[list[Range], list[Range]]:
        def of(b: Buffer) -> Range:
            spot = self._places.spot(b)
            low, high = task.spans.get(b, (0, b.size))
            size = b.type.numpy.itemsize
            end = self._places.room(b) if high >= b.size else high * size  # other batches may need all the room
            return spot.space, spot.offset + low * size, spot.offset + max(low * size + 1, end)

        # An address that no buffer has: tasks that run Python conflict there, and so never run at the same time.
        # Python functions may share state: one after the other, in the program's order
        host = [(HOST, 0, 1)] if any(isinstance(c.kernel, HostKernel) for c in task.calls) else []
        return [of(b) for b in task.reads], [*(of(b) for b in (*task.writes, *task.scratch)), *host]

    # --- running ------------------------------------------------------------------------------------------------------

    def run(
        self, feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]], step: int, *, late: bool = False
    ) -> Sequence[Mapping[str, np.ndarray[Any, Any]]]:
        """Feed, run the calls, and copy out what is fetched.

        Args:
            feeds: per device: arrays of the request's types.
            step: number of the step; random ops depend on it.
            late: whether the step may still be running when this returns. Then what is returned waits for it when it is looked into, and
                raises what is wrong with it; another step of this plan may run before that, but no more.

        Returns:
            Per active device: name -> value.

        Raises:
            PeError: a kernel reported an error; it names the layer and the value.
        """
        self._feed(feeds)
        # With several devices a value may be merged from all, and row-sparse gradients are made dense in Python: both want the step done.
        if late and not self._rows and len(self.graph.active) == 1:
            (slots,) = self._fetch_slots()
            finish = self.step.start(step, [slot.place for _, slot in slots])
            if finish is not None:
                return [AsyncFetches([name for name, _ in slots], finish, lambda failed: self._raise(failed, step))]
        self._raise(self.step.run(step), step)
        return self._fetched()

    def run_timed(
        self, feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]], step: int
    ) -> tuple[list[dict[str, np.ndarray[Any, Any]]], Timeline]:
        """Do what `run` does, and return when every kernel ran, too."""
        self._feed(feeds)
        failed, timeline = self.step.run_timed(step)
        self._raise(failed, step)
        return self._fetched(), replace(timeline, beside=under_way(self.graph, self.tasks, self._lowering.pending))

    def _feed(self, feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]]) -> None:
        # Kernels read rows by these offsets and check nothing: an end beyond the rows would read memory of others.
        for given, ends in zip(feeds, self.ends, strict=False):
            for name, (rows, grouped) in ends.items():
                end = given[name][-1]
                if end != rows and (end, rows) != (0, 1):  # sequences that are all empty have one row, which nobody reads
                    what = f"the sequences of '{grouped}' end at {end}, but there are {rows} rows"
                    made, hint = self.graph.program.find_var(grouped), "the lengths of all sequences add up to the rows"
                    raise PeError(what, at=made.at if made else None, hint=hint, code=ExitCode.DATA)
        for d, given in enumerate(feeds):
            for name, value in given.items():
                self._inlets[name, d].feed(value)

    def _raise(self, failed: tuple[int, list[int]] | None, step: int) -> None:
        if failed is not None:
            work, report = failed
            raise failed_task(self.tasks[work], report, step, self.graph, self._lowering)

    def _fetched(self) -> list[dict[str, np.ndarray[Any, Any]]]:
        """Return the fetched values, per active device."""
        found = []
        for slots in self._fetch_slots():
            out = {}
            for name, slot in slots:
                out[name] = slot.read()
            found.append(out)
        for name in self._rows:
            for d, out in zip(self.graph.active, found, strict=True):
                out[name] = self._dense(name, self._outlet(self._rows[name], d).read(), out[name])
        return found

    def _fetch_slots(self) -> list[list[tuple[str, PlanSlot]]]:
        """Return where what is fetched comes out, per active device."""
        if not self._outlets:
            self._outlets = [[(name, self._outlet(name, d)) for name in self.request.fetches] for d in self.graph.active]
        return self._outlets

    def _dense(self, name: str, rows: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a row-sparse gradient as the dense array that it stands for."""
        out = np.zeros(table_of(self.graph.program.main_block, name).shape, values.dtype)
        # Below 0 are places for rows that this batch does not have.
        out[rows[rows >= 0]] = values[rows >= 0]
        return out

    def _outlet(self, name: str, d: int) -> PlanSlot:
        b = self._lowering.value(name, self._written.get((name, d), d))
        if b not in self._outs:
            self._outs[b] = PlanSlot(self._places.spot(b), b.type)
        return self._outs[b]

    def type_of(self, name: str, device: int) -> TensorType:
        """Return the type of a variable on a device, all sizes known."""
        return self._lowering.types[device][name]

    def rows_of(self, name: str, device: int) -> int | None:
        """Return the rows of a variable on a device, None where the plan has no such variable."""
        kind = self._lowering.types[device].get(name)
        return kind.shape[0] if kind is not None and kind.shape else None

    def where(self, b: Buffer) -> str:
        """Return `scope` or a buffer's byte offset in its device's arena."""
        spot = self._places.spot(b)
        return "scope" if spot.space < 0 else str(spot.offset)

    @property
    def nbytes(self) -> int:
        """Bytes of all arenas."""
        return self._places.nbytes
