"""The executor: keeps a program's graph and its plans, splits batches over devices, and merges what is fetched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pe_cli.collectives.protocol import Summing
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.limits import usable_cores
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.protocol import Timeline, device
from pe_cli.devices.scope import Scope
from pe_cli.execute.batch import Batch, StepResult
from pe_cli.execute.batch_split import Sizes, dealt
from pe_cli.execute.diagnostics.hang_report import hang_report
from pe_cli.execute.feeds import Feeds
from pe_cli.execute.lowering.batch_rows import Asked, asked_of
from pe_cli.execute.memory.arenas import Arenas
from pe_cli.execute.numeric_settings import Numerics
from pe_cli.execute.plan.async_fetches import AsyncFetches
from pe_cli.execute.plan.batch_shortcut import Shortcut, Shortcuts, samples_of
from pe_cli.execute.plan.distributed import Told, types_of_all
from pe_cli.execute.plan.plan import Plan
from pe_cli.execute.plan.plan_cache import MAX_PLANS, Plans, Rooms
from pe_cli.execute.request import Request, Requests
from pe_cli.graph.compile import Purpose, Stages, compile_program
from pe_cli.graph.sharded_updates import Rows
from pe_cli.graph.ssa import Graph
from pe_cli.program.ir import Program

Array = np.ndarray[Any, Any]
Feed = Mapping[str, Array]
Value = TypeVar("Value")
#: Held during a step where `remove_unnecessary_lock` is off.
_STEPS = threading.Lock()


def threads_of(execution: ExecutionStrategy, places: Sequence[Place]) -> int:
    """Return the native threads of a step: those that are asked for, else one per device, but no more than cores."""
    return execution.num_threads or min(len(places), usable_cores())


class Executor:
    """Runs one program on some devices.

    Args:
        program: training or evaluation.
        scope: its persistable variables, replicated on the devices; made room for here, filled by a startup program.
        build: strategy of the graph.
        execution: strategy of the schedule.
        seed: of random ops.
        progress: called while kernels compile, with (done, total, name).
        watchdog: seconds without progress, after which a step is ended with an error that says what hangs; 0 for never.
        check_nan_inf: look at every result of every op, and end the step at the first NaN or infinity.
        constants: feeds that are the same at every step; those that the program does not know are left out.
        levels: feed -> levels of its sequences; default: as the program declares.
        peers: processes that share every batch and sum their gradients, each with as many devices; None for this one alone.
        arenas: memory for temporaries that it shares with executors whose steps never run beside its own.
        precision: float32, tf32 or bf16: of products on CUDA; bf16 is how values between products are stored.
        libraries: of CUDA that may take the place of our kernels, where they are faster.
        deterministic: whether theirs must give the same bits in every run.
        sharded: parameter -> rows of each process, with `reduce_strategy: Shard`; None for those that the program updates.

    Attributes:
        program: with the arrays of its sequence ops as feeds.
        sequences: LoD of its variables, and how those arrays are made.
    """

    def __init__(  # noqa: PLR0913 - independent options, each with its own default
        self,
        program: Program,
        scope: Scope,
        *,
        build: BuildStrategy | None = None,
        execution: ExecutionStrategy | None = None,
        seed: int = 0,
        progress: Callable[[int, int, str], None] | None = None,
        watchdog: float = 0.0,
        check_nan_inf: bool = False,
        constants: Mapping[str, Array] | None = None,
        levels: Mapping[str, int] | None = None,
        peers: Summing | None = None,
        arenas: Arenas | None = None,
        precision: str = "float32",
        libraries: frozenset[str] = frozenset(),
        deterministic: bool = True,
        sharded: Mapping[str, Rows] | None = None,
    ) -> None:
        self.peers = peers
        self.watchdog, self.check_nan_inf = watchdog, check_nan_inf
        self.numerics = Numerics(seed, precision, libraries, deterministic)
        self.build = build or BuildStrategy()
        self.scope = scope
        self.execution = execution or ExecutionStrategy()
        rank, processes = (peers.rank, peers.size) if peers else (0, 1)
        purpose = Purpose(scope.places, self.build, processes, check_nan_inf, levels, self.threads, rank, precision, sharded)
        self._stages = compile_program(program, purpose)
        self._fetching: dict[tuple[str, ...], Stages] = {}
        self._asked: dict[tuple[str, ...], Asked] = {}
        self.sequences = self._stages.sequences
        self.program = program = self.sequences.program
        # An exclusive lock over all executors is what fluid's flag means: scripts that leave it on may share variables between executors.
        self._lock = None if self.build.remove_unnecessary_lock else _STEPS
        self.progress = progress
        self.plans = Plans(self._make, device(self.places[0].kind).refits and not self.execution.dry_run)
        self._planning = threading.Lock()
        self._arenas = arenas or Arenas()
        self._moves = scope.moves
        # A step that was begun and not waited for holds its memory: the next one must not write there before its values are taken.
        self._open: list[tuple[Plan, AsyncFetches]] = []  # of steps that may still be running
        self._shortcuts = Shortcuts(MAX_PLANS)
        self._requests = Requests(self._request)
        self._feeds = Feeds(self.sequences, constants or {})
        scope.share(self._stages.shared)
        scope.allocate(self._stages.kept)

    @property
    def places(self) -> tuple[Place, ...]:
        """Devices."""
        return self.scope.places

    @property
    def threads(self) -> int:
        """Native threads of a step."""
        return threads_of(self.execution, self.places)

    def stages(self, fetches: Sequence[str] = ()) -> Stages:
        """Return what becomes of the program for some fetches; a step with these runs this graph."""
        key = tuple(fetches)
        if key not in self._fetching:
            self._fetching[key] = self._stages.fetching(key)
        return self._fetching[key]

    def plan(self, feeds: Sequence[Mapping[str, TensorType]], sizes: Sequence[int], fetches: Sequence[str]) -> Plan:
        """Return the plan for feeds of these types, made on first need and kept in a bounded cache."""
        return self._plan(self._request(feeds, sizes, fetches))

    def _plan(self, request: Request) -> Plan:
        # One thread plans, others wait: two plans for one request would take the memory twice, and one would be forgotten unused.
        with self._planning:
            return self._found(request)

    def _found(self, request: Request) -> Plan:
        if self._moves != self.scope.moves:
            self.scope.allocate(self._stages.kept)  # an error where one has another type by now
            self.plans.clear()
            self._moves = self.scope.moves
        found = self.plans.use(request)
        if found is not None:
            return found
        active = [d for d, n in enumerate(request.sizes) if n] or ([] if self.peers else [0])
        made = self.plans.new(request, self.stages(request.fetches).executed(active))
        made.ends = [self._ends(made, d, dict(part)) for d, part in enumerate(request.feeds)] if self.sequences.lods else []
        self.plans.keep(made)
        return made

    def _make(self, graph: Graph, request: Request, roomy: Rooms | None) -> Plan:
        made = Plan(
            graph,
            request,
            self.scope,
            self.numerics,
            threads=self.threads,
            build=self.build,
            execution=self.execution,
            progress=self.progress,
            peers=self.peers,
            arenas=self._arenas,
            roomy=roomy,
        )
        if self.watchdog:
            made.watch(self.watchdog, hang_report)
        return made

    def _request(
        self, feeds: Sequence[Mapping[str, TensorType]], sizes: Sequence[int], fetches: Sequence[str]
    ) -> Request:
        whole = tuple(tuple(sorted(f.items())) for f in feeds)
        if self.peers is None:
            return Request(whole, tuple(sizes), tuple(fetches))
        return Request(tuple(self._mine(whole)), tuple(self._mine(sizes)), tuple(fetches), (whole, tuple(sizes)))

    def _mine(self, of_all: Sequence[Value]) -> Sequence[Value]:
        """Return the items that belong to the devices of this process."""
        if self.peers is None:
            return of_all
        devices = len(self.places)
        return of_all[self.peers.rank * devices : (self.peers.rank + 1) * devices]

    def _ends(self, plan: Plan, device: int, fed: Mapping[str, TensorType]) -> dict[str, tuple[int, str]]:
        """Return for each feed of offsets the rows that it groups on a device, and a variable that has them.

        Raises:
            PeError: variables of one LoD have other numbers of rows (exit code 3).
        """
        ends: dict[str, tuple[int, str]] = {}
        for name, lod in self.sequences.lods.items():
            rows = plan.rows_of(name, device)
            if rows is None or lod[-1] not in fed:
                continue
            first, other = ends.setdefault(lod[-1], (rows, name))
            if first != rows:
                what = f"'{name}' has {rows} rows, but belongs to the sequences of '{other}', which has {first}"
                raise PeError(what, at=self.program.var(name).at, code=ExitCode.DATA)
        return ends

    def all_plans(self) -> list[Plan]:
        """Return the plans that are kept."""
        return list(self.plans.values())

    def drop_unused(self) -> None:
        """Forget the plans, with their temporaries, that have not run since this was last called."""
        if not self.build.cache_runtime_context:
            self.plans.clear_unused()

    def drop(self) -> None:
        """Forget all plans and their temporaries."""
        self.plans.clear()
        self._shortcuts.clear()

    @property
    def read(self) -> set[str]:
        """What ops read, what gives its type to a gradient, and the offsets that plans look at."""
        return self._feeds.read

    def check_feed(self, feed: Feed) -> dict[str, Array]:
        """Return the arrays that the program is fed, converted where that loses nothing; raises as `Feeds.checked` does."""
        return self._feeds.checked(feed)

    def split(self, feed: Feed | Sequence[Feed]) -> tuple[list[dict[str, Array]], Sequence[int]]:
        """Give every device its part of a batch; views, no copies.

        Args:
            feed: one mapping, whose arrays are cut along axis 0 (those without a batch axis go to every device whole), or a mapping
                for each device.

        Returns:
            Per device, of all processes, its part; and the samples of each.

        Raises:
            PeError: a wrong feed, or a list that has not one mapping per device.
        """
        devices = len(self.places) * (self.peers.size if self.peers else 1)
        if not isinstance(feed, Mapping):
            if len(feed) != devices:
                raise PeError(f"{len(feed)} feeds for {devices} devices", hint="one per device", code=ExitCode.DATA)
            checked = [self.check_feed(f) for f in feed]
            return self._completed(checked), [self._feeds.samples(part) for part in checked]
        arrays = self.check_feed(feed)
        if not self._feeds.divisible:
            return self._completed([dict(arrays) for _ in range(devices)]), [1] * devices
        sizes = self._sizes(self._feeds.samples(arrays))
        return self._completed(self._feeds.parts(arrays, sizes)), sizes

    def _completed(self, parts: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Return what ops read of every device's part of a batch, with the arrays that are made for sequence ops."""
        if not self.sequences.feeds and not self.sequences.recipes:
            return [dict(part) for part in parts]
        return [{k: a for k, a in part.items() if k in self._feeds.read} for part in self.sequences.complete(parts)]

    def samples(self, feed: Feed) -> int:
        """Return the samples of a batch; see `Feeds.samples`."""
        return self._feeds.samples(self.check_feed(feed))

    def known(self, feed: Feed) -> Feed:
        """Return the feeds of a batch that the program reads; other programs may read more of them."""
        return self._feeds.known(feed)

    def part(self, feed: Feed, begin: int, end: int) -> dict[str, Array]:
        """Return the samples of a batch from one up to another, by their numbers."""
        return self._feeds.part(self.check_feed(feed), begin, end)

    def batch(self, feed: Feed | Sequence[Feed], fetches: Sequence[str] = (), samples: int | None = None) -> Batch:
        """Check a batch, split it, and find or make the plan that runs it.

        Args:
            feed: see `split`.
            fetches: names of variables that are read after the step.
            samples: of the batch of all processes, where the feed is this one's share of it; None where it is the whole batch.

        Raises:
            PeError: a wrong feed, or a name that the program does not have.
        """
        # The long way costs more Python calls than a small step takes; a shortcut compares types alone.
        found = self._shortcuts.find(feed, fetches, samples) if self._moves == self.scope.moves else None
        if found is not None and self.plans.use(found.request) is found.plan:
            return found.batch(feed)  # type: ignore[arg-type]
        for name in fetches:
            self.program.var(name)
        first = len(self.places) * self.peers.rank if self.peers else 0
        if self.peers is None or samples is None:
            parts, sizes = self.split(feed)
            made = self.batch_of(parts, sizes, fetches)
        else:
            assert isinstance(feed, Mapping)
            made, sizes, first = self._shared(feed, fetches, samples), [*self._mine(self._sizes(samples))], 0
        if not self.sequences.feeds and not self.sequences.recipes:
            shortcut = Shortcut(made.plan, sizes, self._feeds.batched, slice(first, first + len(self.places)))
            self._shortcuts.keep(feed, fetches, shortcut, made.parts, samples)
        return made

    def _sizes(self, samples: int) -> Sizes:
        """Return the samples of every device of all processes."""
        devices = len(self.places) * (self.peers.size if self.peers else 1)
        return dealt(samples if self._feeds.divisible else devices, devices)

    def _shared(self, feed: Feed, fetches: Sequence[str], samples: int) -> Batch:
        """Find or make the plan for this process's share of a batch.

        What others have follows from the number of samples, but for sequences: of those all tell each other.
        """
        assert self.peers is not None
        arrays, whole = self.check_feed(feed), self._sizes(samples)
        sizes = self._mine(whole)
        parts = self._feeds.parts(arrays, sizes)
        if self.sequences.feeds or self.sequences.recipes:
            told = Told(self.peers)
            parts = [{k: a for k, a in part.items() if k in self._feeds.read} for part in self.sequences.complete(parts, told.longest)]
            plan = self._plan(self._told(parts, whole, fetches, told))
        else:
            plan = self.plan(types_of_all(arrays, whole, self._feeds.batched), whole, fetches)
        return Batch(plan, plan.request, parts, samples_of(plan, sizes))

    def _told(self, parts: Sequence[Mapping[str, Array]], whole: Sizes, fetches: Sequence[str], told: Told) -> Request:
        """Return the request of a batch of which this process knows its own part alone; see `Told.request`."""
        if (key := tuple(fetches)) not in self._asked:
            self._asked[key] = asked_of(self.stages(key).executed(), key)
        return told.request(self._asked[key], parts, whole)

    def batch_of(
        self, parts: Sequence[Mapping[str, Array]], sizes: Sequence[int], fetches: Sequence[str], told: Told | None = None
    ) -> Batch:
        """Find or make the plan of a batch that has been checked and split.

        Args:
            parts: per device, of all processes, what it is fed, with the arrays of `sequences.complete`.
            sizes: samples of each.
            fetches: names of variables that are read after the step.
            told: where parts and sizes are those of this process's devices alone: what the others tell of theirs.
        """
        if told is not None:
            plan = self._plan(self._told(parts, told.sizes(sizes), fetches, told))
            return Batch(plan, plan.request, parts, samples_of(plan, sizes))
        plan = self._plan(self._requests.of(parts, sizes, fetches))
        return Batch(plan, plan.request, self._mine(parts), samples_of(plan, self._mine(sizes)))

    def step(self, batch: Batch, number: int = 0, *, late: bool = False) -> StepResult:
        """Run a batch.

        Args:
            batch: of this executor.
            number: of the step, for random ops.
            late: whether the step may still be running when this returns, see `Plan.run`.

        Raises:
            PeError: a kernel reported an error; see `Plan.run`.
        """
        if self._lock is None:
            return self._step(batch, number, late)
        with self._lock:
            return self._step(batch, number, False)

    def _step(self, batch: Batch, number: int, late: bool) -> StepResult:
        plan = batch.plan
        # Its tape serves another request now, so a plan is found again; the batch itself stays valid, for it holds the feeds.
        if plan.request is not batch.request:  # it has been refitted for other batches since
            plan = self._plan(batch.request)
        times = self.execution.num_iteration_per_run
        # Of several iterations in one run only the last is returned, and each writes where the one before it did: none may be left running.
        late = late and times == 1
        if self._open:
            self._settle(plan if late else None)
        for i in range(times):
            values = plan.run(batch.parts, number * times + i, late=late)
        opened = [(plan, found) for found in values if isinstance(found, AsyncFetches)] if late else []
        self._open += opened
        return StepResult(values, batch.samples, plan.shares, plan, late=bool(opened))

    def _settle(self, plan: Plan | None) -> None:
        # A plan looks at the reports of its own steps alone: its newest one may go on, all others are waited for.
        while self._open and (len(self._open) > 1 or self._open[0][0] is not plan):
            self._open.pop(0)[1].settle()

    def step_timed(self, batch: Batch, number: int = 0) -> tuple[StepResult, Timeline]:
        """Run a batch once, and return when every kernel ran, too; arguments as for `step`."""
        plan = self._plan(batch.request)
        values, line = plan.run_timed(batch.parts, number)
        return StepResult(values, batch.samples, plan.shares, plan), line

    def run(
        self, feed: Feed | Sequence[Feed], fetches: Sequence[str] = (), step: int = 0, samples: int | None = None, *, late: bool = False
    ) -> StepResult:
        """Run one step of a batch; arguments as for `batch` and `step`."""
        return self.step(self.batch(feed, fetches, samples), step, late=late)

