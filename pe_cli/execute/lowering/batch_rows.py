"""Rows of a batch over the devices of all processes: how many lie before a device's part, and how much each device counts in a mean.

Where what every device is fed is known, all of it follows from types. Where each process sees its own sequences alone, processes tell
each other sums of rows: what one of them hears does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import NamedTuple

from pe_cli.collectives.protocol import Summing
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.execute.batch_split import Sizes
from pe_cli.graph.ssa import Compute, Gather, Graph, ScaleLossGrad
from pe_cli.program.ir import Operator, Program, Role

#: Types of all variables of a device.
Types = Mapping[str, TensorType]


class Counts(NamedTuple):
    """How much the value of a number counts in its mean.

    Args:
        own: on each device of this process.
        total: on the devices of all processes together.
    """

    own: Sequence[int]
    total: int


@dataclass(frozen=True)
class Whole:
    """The devices of all processes, of which everything is known; this process has a contiguous range of them.

    Args:
        types: of every variable, by device.
        sizes: samples of each device.
        first: this process's first device.
        count: its devices; None for all.
        peers: the processes; None where nothing runs.
    """

    types: Sequence[Types]
    sizes: Sizes
    first: int = 0
    count: int | None = None
    peers: Summing | None = None

    def rows_before(self, name: str | None, device: int) -> int:
        """Return the rows of a variable on the devices before one of this process's, or the samples of these for no variable."""
        end = self.first + device
        return self.sizes.before(end) if name is None else sum(types[name].shape[0] for types in self.types[:end])

    def type_of(self, name: str, device: int) -> TensorType:
        """Return the type of a variable on a device of all processes."""
        return self.types[device][name]

    def counts(self, number: str, names: Collection[str]) -> Counts:
        """Return how much a number counts on each device.

        Args:
            number: name of the variable.
            names: variables with a batch axis that it is made of.
        """
        found = {tuple(types[n].shape[0] for types in self.types) for n in names}
        # Several variables may lead to a number; where they divide the batch in different ways, samples decide.
        ratios = {tuple(Fraction(r, sum(rows)) for r in rows) for rows in found if sum(rows)}
        rows = min(found) if len(ratios) == 1 and all(map(sum, found)) else self.sizes
        last = None if self.count is None else self.first + self.count
        return Counts(tuple(rows[self.first : last]), sum(rows))


@dataclass(frozen=True)
class ToldRows:
    """What processes have told each other of a batch of which each sees its own part.

    Args:
        sizes: samples of every device of all processes.
        totals: rows of variables on all devices.
        before: the same on the devices of the processes before this one.
        joined: rows of variables that all devices make together.
        uneven: numbers of which several variables divide the batch in different ways.
        by_device: of variables whose rows are exchanged, the rows on every device.
        types: of every variable, by device of this process; they follow from what it is fed.
    """

    sizes: Sizes
    totals: Mapping[str, int]
    before: Mapping[str, int]
    joined: Mapping[str, int]
    uneven: frozenset[str]
    by_device: Mapping[str, tuple[int, ...]]
    types: Sequence[Types] = field(compare=False)


@dataclass(frozen=True)
class ToldWhole(Whole):
    """The devices of all processes, as far as they have told of theirs; `types` are those of this process's devices alone.

    Args:
        told: rows.
    """

    told: ToldRows = field(kw_only=True)

    def rows_before(self, name: str | None, device: int) -> int:
        """Return the rows of a variable on the devices before one of this process's; see `Whole`."""
        if name is None:
            return super().rows_before(name, device)
        return self.told.before[name] + sum(types[name].shape[0] for types in self.types[:device])

    def type_of(self, name: str, device: int) -> TensorType:
        """Return the type of a variable on a device of all processes, where its rows are exchanged."""
        own = self.types[0][name]
        return own.with_shape(self.told.by_device[name][device], *own.shape[1:])

    def counts(self, number: str, names: Collection[str]) -> Counts:
        """Return how much a number counts on each device; see `Whole`."""
        totals = {n: self.told.totals[n] for n in names}
        if not totals or number in self.told.uneven or not all(totals.values()):
            own = self.sizes[self.first : self.first + len(self.types)]
            return Counts(own, self.sizes.total)
        # All divide the batch alike: the least rows are those that a list of all devices would be least by.
        name = min(totals, key=totals.__getitem__)
        return Counts(tuple(types[name].shape[0] for types in self.types), totals[name])


@dataclass(frozen=True)
class Asked:
    """What a graph asks of the rows of other processes' devices; the same on all of them.

    Args:
        program: of the graph.
        fetches: names of variables that are read after the step.
        names: variables whose rows are added up.
        numbers: number -> variables that it is made of, where there are several.
        exchanged: variables of a row-sparse gradient, which all processes tell each other.
        joined: those that are made of them, on all devices together.
    """

    program: Program
    fetches: tuple[str, ...]
    names: tuple[str, ...]
    numbers: Mapping[str, tuple[str, ...]]
    exchanged: tuple[str, ...]
    joined: tuple[str, ...]


def asked_of(graph: Graph, fetches: Collection[str]) -> Asked:
    """Return what a graph asks of the rows of others.

    Args:
        graph: of all devices of this process, with or without samples.
        fetches: names of variables that are read after the step.
    """
    program, nodes = graph.program, [node for node in graph.nodes if isinstance(node, Compute)]
    scaled = {node.op.input_names()[0] for node in nodes if isinstance(node, ScaleLossGrad)}
    numbers = {number: tuple(sorted(averaged(program, number))) for number in sorted({*scaled, *fetches})}
    before = {name for node in nodes if (name := batched(program, node.op)) is not None}
    names = before.union(*numbers.values())
    exchanged = {n for node in nodes if isinstance(node, Gather) for slot in ("Ids", "X") for n in node.op.inputs[slot]}
    several = {number: found for number, found in numbers.items() if len(found) > 1}
    joined = sorted(set(graph.gathered))
    return Asked(program, tuple(fetches), tuple(sorted(names)), several, tuple(sorted(exchanged)), tuple(joined))


def batched(program: Program, op: Operator) -> str | None:
    """Return the first variable of an op that has a batch axis; None for one without."""
    found = ((n, program.find_var(n)) for n in (*op.input_names(), *op.output_names()))
    return next((n for n, variable in found if variable is not None and variable.shape[:1] == (-1,)), None)


def averaged(program: Program, number: str) -> set[str]:
    """Return the variables with a batch axis that a number without one is made of."""
    # A gradient op has the batch axis, too, but says nothing about what a metric is the mean of.
    writers = {n: op for op in program.top_ops if op.role in (Role.FORWARD, Role.LOSS) for n in op.output_names()}
    found, seen, waiting = set(), {number}, [number]
    while waiting:
        op = writers.get(waiting.pop())
        names = op.input_names() if op else []
        with_batch = {n for n in names if program.var(n).shape[:1] == (-1,) and not program.var(n).persistable}
        found |= with_batch
        more = [n for n in names if n not in seen and n not in with_batch] if not with_batch else []
        seen.update(more)
        waiting += more
    return found
