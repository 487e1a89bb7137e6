"""Trainers and servers over a scope of the core: a trainer's share of each batch, and the values that it works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pe_cli.collectives.servers.client import Servers
from pe_cli.devices.scope import Scope
from pe_cli.execute.batch import StepResult
from pe_cli.execute.batch_split import cut, split_sizes
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.plan import Plan
from pe_cli.execute.servers.host import Value
from pe_cli.execute.servers.local_updates import LocalUpdates
from pe_cli.execute.servers.trainer import Step
from pe_cli.graph.compile import Purpose, Stages, compile_program
from pe_cli.graph.lod_resolution import resolve
from pe_cli.graph.servers.trainer_parts import parts
from pe_cli.ops.define.lod import Leveled
from pe_cli.program.ir import Program

Array = np.ndarray[Any, Any]
#: Makes an executor of a program on a scope; feeds have sequences of so many levels.
Making = Callable[[Program, Scope, Mapping[str, int]], Executor]


class ScopeHost:
    """A `Host` over a scope of the core.

    Args:
        scope: of one device.
        make: makes executors.

    Attributes:
        number: of the step, from 0, that random ops depend on.
        shares: rows that each value of the last runs was taken over.
        plan: that ran last.
    """

    def __init__(self, scope: Scope, make: Making) -> None:
        self.scope, self._make = scope, make
        self._executors: WeakKeyDictionary[Program, dict[Any, Executor]] = WeakKeyDictionary()
        self.number = 0
        self.shares: dict[str, int] = {}
        self.plan: Plan | None = None

    def has_value(self, name: str) -> bool:
        """Return whether there is such a variable."""
        return name in self.scope

    def read(self, name: str) -> Array:
        """Return a copy of a variable's value."""
        return self.scope.get(name)

    def write(self, name: str, value: Array) -> None:
        """Write a value."""
        self.scope.set(name, value)

    def rows(self, name: str, numbers: Array) -> Array:
        """Return copies of some rows of a variable."""
        return np.asarray(self.view(name)[numbers])

    def put(self, name: str, begin: int, value: Array) -> None:
        """Write some rows of a variable, from row `begin` on."""
        self.view(name)[begin : begin + len(value)] = value

    def view(self, name: str) -> Array:
        """Return the memory of a variable."""
        spot = self.scope.spot(name, 0)
        found: Array = spot.memory.view(spot.offset, self.scope.type(name))
        return found

    def run(self, program: Program, fed: Mapping[str, Value], fetches: Sequence[str]) -> Mapping[str, Value]:
        """Run a program once; see `Host.run`."""
        if not program.top_ops:
            return {}
        executor = self._executor(program, fed)
        sequences, used = executor.sequences, executor.read.union(fetches)
        arrays: dict[str, Array] = {}
        for name, value in fed.items():
            arrays[name] = np.asarray(value)
            if isinstance(value, Leveled):
                arrays |= {o: np.asarray(a, np.int64) for o, a in zip(sequences.feeds.get(name, ()), value.lod, strict=False)}
        # One device has the whole of this trainer's part: what crosses devices is the servers' affair.
        (whole,) = sequences.complete([arrays])
        found = executor.step(executor.batch_of([{n: a for n, a in whole.items() if n in used}], [1], list(fetches)), self.number)
        self.shares |= {name: each[0] for name, each in found.shares.items()}
        self.plan = found.plan
        lods = {name: [whole[o] for o in sequences.lods.get(name, ()) if o in whole] for name in fetches}
        values = found.values[0]
        return {n: Leveled(values[n], tuple(o.tolist() for o in lods[n])) if lods[n] else values[n] for n in fetches}

    def _executor(self, program: Program, fed: Mapping[str, Value]) -> Executor:
        # A feed with and without sequences is two programs: levels are part of what is compiled.
        levels = {name: len(value.lod) for name, value in fed.items() if isinstance(value, Leveled) and value.lod}
        made = self._executors.setdefault(program, {})
        key = (frozenset(fed), tuple(sorted(levels.items())))
        if key not in made:
            copy = program.clone()
            # What is fed counts as data even where the program says it lives between steps, such as a reference that a server hands in.
            for v in copy.list_vars():
                v.is_data = v.is_data or v.name in fed
                v.persistable = v.persistable and v.name not in fed
                v.lod_level = levels.get(v.name, 0)
            made[key] = self._make(copy, self.scope, levels)
        return made[key]

    def executors(self) -> list[Executor]:
        """Return the executors of all programs that have run."""
        return [each for made in self._executors.values() for each in made.values()]


class ServerExecutor:
    """Runs a program of a trainer: its share of every batch, with rows from servers and gradients to them.

    Args:
        source: the program before it was divided, whose feeds batches are made for.
        program: what runs.
        host: values and executors.
        servers: connections.
        trainer: number of this one.
        trainers: number of all.
        constants: feeds that are the same at every step.
        learned: where the trainer updates by itself, returns what it tells servers of that; first asked for after a step.
        ids: table -> variables of the ids that its rows are looked up by, of tables of which `learned` tells single rows.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a step needs
        self,
        source: Program,
        program: Program,
        host: ScopeHost,
        servers: Servers,
        trainer: int,
        trainers: int,
        constants: Mapping[str, Array],
        learned: Callable[[], LocalUpdates] | None = None,
        ids: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._source, self._learned, self._ids = source, learned, ids or {}
        self.program, self._host, self._servers = program, host, servers
        self._trainer, self._trainers = trainer, trainers
        sequences = resolve(source)
        self._levels = sequences.feeds
        offsets = {o for each in self._levels.values() for o in each}
        data = {v.name: v.type for v in source.list_vars() if v.is_data}
        self._batched = {n for n, kind in data.items() if kind.shape[:1] == (-1,)} - offsets - set(self._levels)
        self._constants = {name: value for name, value in constants.items() if name in data}
        self._parts = parts(program)

    # --- batches ------------------------------------------------------------------------------------------------------

    def samples(self, feed: Mapping[str, Array]) -> int:
        """Return the samples of a batch: rows, or outermost sequences."""
        for name, levels in self._levels.items():
            if name in feed and levels[0] in feed:
                return len(feed[levels[0]]) - 1
        return next((len(a) for name, a in feed.items() if name in self._batched), 1)

    def head(self, feed: Mapping[str, Array], samples: int) -> dict[str, Array]:
        """Return the first samples of a batch."""
        return self._cut(feed, 0, samples)

    def _cut(self, feed: Mapping[str, Array], begin: int, end: int) -> dict[str, Array]:
        return cut(feed, self._levels, self._batched, begin, end)

    def _share(self, feed: Mapping[str, Array]) -> tuple[dict[str, Value], int, int]:
        """Return this trainer's part of a batch, its samples, and those of the batch."""
        samples = self.samples(feed)
        # Every trainer reads whole batches and takes its part by number, so that the order of data is that of a run on one machine.
        sizes = split_sizes(samples, self._trainers)
        begin = sum(sizes[: self._trainer])
        found = self._cut(feed, begin, begin + sizes[self._trainer]) | self._constants
        values: dict[str, Value] = dict(found)
        for name, levels in self._levels.items():
            if name in found and all(o in found for o in levels):
                values[name] = Leveled(found[name], tuple(found[o].tolist() for o in levels))
                for o in levels:
                    values.pop(o, None)
        return values, sizes[self._trainer], samples

    # --- steps --------------------------------------------------------------------------------------------------------

    def run(self, feed: Mapping[str, Array], fetches: Sequence[str] = (), step: int = 0, samples: int | None = None) -> StepResult:
        """Run this trainer's share of a batch, which is given whole; see `Executor.run`."""
        assert samples is None, "it takes its share itself"
        values, mine, samples = self._share(feed)
        self._host.number, self._host.shares = step, {}
        # The weight makes a mean over trainers the mean over samples where the remainder of a batch makes parts unequal.
        made = Step(self.program, self._parts, self._host, self._servers, mine * self._trainers / samples)
        learned = self._learned() if self._learned is not None else None
        if mine:
            more = [name for names in self._ids.values() for name in names]
            found = made.run(values, list(dict.fromkeys([*fetches, *more])))
        else:
            # A trainer without samples must still be counted at the barrier, or the others would wait for it.
            made.stand_by()
        if learned is not None:
            learned.step({table: [np.asarray(found[n]) for n in names] for table, names in self._ids.items()} if mine else {})
        if not mine:
            return StepResult([], [], {name: [] for name in fetches})
        shares = {name: [self._host.shares.get(name, mine)] for name in fetches}
        return StepResult([{name: np.asarray(found[name]) for name in fetches}], [mine], shares, self._host.plan)

    def stages(self, fetches: Sequence[str] = ()) -> Stages:
        """Return the stages of the program, for pictures."""
        return compile_program(self._source, Purpose(self._host.scope.places), fetches)

    def drop_unused(self) -> None:
        """Forget temporaries that have not been used lately."""
        for each in self._host.executors():
            each.drop_unused()
