"""Where programs with data-dependent sizes are cut: which ops run together, and what each part reads, writes and needs to know.

An op that runs on the host is a part of its own, and so is a loop or a branch with such ops inside. All other ops run as early as what
they read is there, so that a part is as large as it can be: ops that wait for the same host op are one part wherever they stand in the
program.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from dataclasses import field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.registry import forward_name
from pe_cli.ops.define.traits import FedSizes, HasRegions, OnHost, Runs
from pe_cli.program.ir import Operator, Program
from pe_cli.program.region import regions_of


def is_dynamic(program: Program) -> bool:
    """Return whether a program has sizes that only values tell."""
    return any(op.definition.has(OnHost) or size_inputs(op) or directs(op) for op in program.top_ops)


def directs(op: Operator) -> bool:
    """Return whether the host directs what a loop or a branch runs, as ops of it run there or states change their sizes."""
    regions = op.definition.get(HasRegions)
    if regions is None or regions.runs is Runs.ROUNDS:
        return False
    return bool(op.attrs.get("varying")) or any(is_dynamic(r.program) for r in regions_of(op).values())


def size_inputs(op: Operator) -> list[str]:
    """Return the variables whose values are attributes of an op."""
    return [name for slot in fed_attributes(op) for name in op.inputs.get(slot, ())]


def fed_attributes(op: Operator) -> Mapping[str, str]:
    """Return the slots of an op that give sizes, with their attributes."""
    sizes = op.definition.get(FedSizes)
    return sizes.attrs if sizes else {}


def unseen(op: Operator) -> set[str]:
    """Return the states of a loop that nobody reads before a round writes them: they need no value before the first round."""
    if not op.attrs.get("varying") or "body" not in op.attrs:
        return set()
    regions = op.attrs["condition"], op.attrs["body"]
    reads = {name for region in regions for o in region.block.ops for name in o.input_names()}
    return {name for arg, name in zip(regions[1].args, op.inputs.get("Init", ()), strict=False) if arg not in reads}


@dataclass(eq=False)
class Part:
    """Operators that run as one program.

    Args:
        ops: they, in the program's order.
        places: their numbers in it.
        host: it is one that runs on the host.
        directed: it is a loop or a branch of which the host directs what runs.

    Attributes:
        reads: what is read before it is written here, fed sizes too.
        writes: what is written.
        likes: what is not read here but gives its type to a gradient.
        sized: for every size that a variable gives: which op of the part, the slot, the attribute, the variable.
        forms: the part as a program, for the sizes that occurred last.
    """

    ops: list[Operator]
    places: list[int]
    host: bool = False
    directed: bool = False
    reads: list[str] = field(init=False)
    writes: list[str] = field(init=False)
    likes: list[str] = field(init=False)
    sized: list[tuple[int, str, str, str]] = field(init=False)
    forms: OrderedDict[tuple[Any, ...], Program] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        made: set[str] = set()
        reads: dict[str, None] = {}
        for op in self.ops:
            reads |= dict.fromkeys(n for n in op.input_names() if n not in made)
            made.update(op.output_names())
        self.reads = list(reads)
        self.writes = list(dict.fromkeys(n for op in self.ops for n in op.output_names()))
        self.likes = [n for n in dict.fromkeys(n for op in self.ops for n in _likes(op)) if n not in reads and n not in made]
        self.sized = [
            (i, slot, attr, name)
            for i, op in enumerate(self.ops)
            for slot, attr in fed_attributes(op).items()
            for name in op.inputs.get(slot, ())
        ]


def _likes(op: Operator) -> list[str]:
    """Return the variables whose types an op's gradients have."""
    return [forward_name(n) for n in op.output_names()] if op.definition.is_grad_of else []


def parts_of(program: Program, awaited: Set[str] = frozenset()) -> list[Part]:
    """Return the parts of a program, in the order in which they run.

    Args:
        program: not changed.
        awaited: variables whose values must be known before a part that reads them is planned.
    """
    ops = program.top_ops
    before = _befores(ops)
    waiting, done = list(range(len(ops))), set[int]()
    found: list[Part] = []
    while waiting:
        # First what runs on the host, up to an op that waits itself: then all that waited for it runs as one part.
        for i in list(waiting):
            if not _alone(ops[i]):
                continue
            if not before[i] <= done:
                break
            found.append(Part([ops[i]], [i], host=not directs(ops[i]), directed=directs(ops[i])))
            done.add(i)
            waiting.remove(i)
        together = _together(ops, before, waiting, done, awaited)
        if together:
            found.append(Part([ops[i] for i in together], together))
            done.update(together)
            waiting = [i for i in waiting if i not in done]
    return found


def _together(
    ops: Sequence[Operator], before: Sequence[set[int]], waiting: Sequence[int], done: set[int], awaited: Set[str]
) -> list[int]:
    """Return the ops that can run now as one part."""
    found: set[int] = set()
    written: set[str] = set()
    for i in waiting:
        # A size that is made here must be known before the part that has it is planned.
        if _alone(ops[i]) or not before[i] <= done | found or not written.isdisjoint(_known_before(ops[i], awaited)):
            continue
        found.add(i)
        written.update(ops[i].output_names())
    return sorted(found)


def _known_before(op: Operator, awaited: Set[str]) -> list[str]:
    """Return the variables whose values an op needs before the part that has it is planned."""
    return [*size_inputs(op), *(name for name in op.input_names() if name in awaited)] if awaited else size_inputs(op)


def _alone(op: Operator) -> bool:
    return op.definition.has(OnHost) or directs(op)


def _befores(ops: Sequence[Operator]) -> list[set[int]]:
    """Return for every op those that must have run: who wrote what it reads, and who reads or wrote before what it writes."""
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    effect = -1
    found = []
    for i, op in enumerate(ops):
        reads, writes = [*op.input_names(), *_likes(op)], op.output_names()
        before = {writer[n] for n in (*reads, *writes) if n in writer}
        before.update(j for n in writes for j in readers.pop(n, ()))
        # Python code may see and change anything: it runs in the program's order.
        if _alone(op) or any(map(callable, op.attrs.values())):
            before |= {effect} - {-1}
            effect = i
        for n in reads:
            readers.setdefault(n, []).append(i)
        writer.update(dict.fromkeys(writes, i))
        found.append(before - {i})
    return found
