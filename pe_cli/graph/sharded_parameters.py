"""Sharded parameters (reduce_strategy Shard): a process keeps its own rows of a parameter, and has all rows while ops use them.

The program of a process in which it updates its own rows (`sharded_updates`), after all passes, is rewritten: what `take_rows` and
`put_rows` moved between a parameter and these rows is no longer there to be moved. Where forward and backward ops read a parameter,
`all_rows` gathers it from all processes, one group ahead of the ops that read it, so that it comes while the ones before compute. It stays
as long as no more than `held` bytes of other parameters are needed before the next op that reads it; else its memory is free for others,
and it is gathered once more. Gradients are scattered one group after they are there, and only this process's rows of them are kept.

A gather has the bits of what it gathers, so that every result is that of AllReduce. Passes run before, and see whole parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import count

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.graph.replicate import SMALL_BUCKET
from pe_cli.graph.sharded_updates import OWN, WHOLE, Rows, attributes, own_type, share_rows
from pe_cli.ops.define.traits import OwnRows
from pe_cli.program.ir import Block, Operator, Program, Role
from pe_cli.program.operator import UPDATES
from pe_cli.program.region import every_op


@dataclass(frozen=True)
class Sharding:
    """How a program's parameters are sharded.

    Args:
        rows: parameter -> who has which rows.
        rank: of this process.
        group: bytes from which parameters are gathered, and gradients scattered, together.
    """

    rows: Mapping[str, Rows]
    rank: int
    group: int


@dataclass
class _Gather:
    """One gather of a parameter and the ops that read what came.

    Args:
        name: of the parameter.
        ready: place from which on its rows are what is to be gathered, as updates before it write them.
        begin: place of the first reader.
        nbytes: of all rows.
        places: of the readers.
    """

    name: str
    ready: int
    begin: int
    nbytes: int
    places: list[int] = field(default_factory=list)


def shard(program: Program, sharding: Sharding) -> tuple[Program, str]:
    """Return a program whose sharded parameters are this process's rows, and a sentence on what was done.

    Args:
        program: after all passes, with `take_rows` and `put_rows` where it trains; not changed.
        sharding: names that the program has not are left out.
    """
    made = program.clone()
    block = made.main_block
    rows = {n: r for n, r in sharding.rows.items() if n in block.vars}
    if not rows:
        return program, "shard: no parameter is sharded"
    sizes = {n: block.vars[n].type.nbytes for n in rows}
    block.ops = [op for op in block.ops if not _moves(op, rows)]
    gathers = _gathers(block.ops, sizes, held=max(sharding.group, *sizes.values()))
    groups = _grouped(gathers, sharding.group)
    before = _gathered(block, groups, rows, sharding.rank)
    moved = _early(block, sharding.group)
    block.ops = [
        each
        for i, op in enumerate(block.ops)
        for each in (*before.get(i, ()), *(() if op in moved.ops else (op,)), *moved.after.get(i, ()))
    ]
    _keep_own(block, rows, sharding.rank)
    return made, f"shard: {len(rows)} parameters are sharded, and gathered {len(gathers)} times in {len(groups)} groups"


def _moves(op: Operator, rows: Mapping[str, Rows]) -> bool:
    """Return whether an op moves rows between a sharded parameter and this process's rows of it, which are now all that there is."""
    own = op.definition.get(OwnRows)
    return own is not None and (op.outputs if own.gives else op.inputs)[own.slot][0] in rows


def _gathers(ops: Sequence[Operator], sizes: Mapping[str, int], held: int) -> list[_Gather]:
    """Return the gathers, by their first readers; a parameter stays while others of at most `held` bytes together are used."""
    found: list[_Gather] = []
    recent: dict[str, _Gather] = {}  # what is there, the one that was used longest ago first
    ready: dict[str, int] = {}
    for i, op in enumerate(ops):
        for name in dict.fromkeys(n for n in op.input_names() if n in sizes):
            assert op.role not in UPDATES, f"an update reads all rows of '{name}'"
            since = [*recent][[*recent].index(name) + 1 :] if name in recent else []
            if name not in recent or sum(sizes[n] for n in since) > held:
                recent[name] = _Gather(name, ready.get(name, 0), i, sizes[name])
                found.append(recent[name])
            recent[name] = recent.pop(name)
            recent[name].places.append(i)
        for name in (n.removesuffix(OWN) for n in op.output_names()):
            if name in sizes:
                recent.pop(name, None)
                ready[name] = i + 1
    return found


def _grouped(gathers: Sequence[_Gather], least: int) -> list[list[_Gather]]:
    """Return gathers in groups of at least so many bytes, as far as there are as many; what an op reads first is in one group."""
    groups: list[list[_Gather]] = []
    for gather in gathers:
        if not groups or (sum(g.nbytes for g in groups[-1]) >= least and gather.begin > groups[-1][-1].begin):
            groups.append([])
        groups[-1].append(gather)
    return groups


def _gathered(
    block: Block, groups: Sequence[Sequence[_Gather]], rows: Mapping[str, Rows], rank: int
) -> dict[int, list[Operator]]:
    """Let readers read what gathers make, and return the ops of these by the place before which they stand."""
    found: dict[int, list[Operator]] = {}
    numbers = count()
    # A group is gathered while the ops of the one before compute, but not before its rows have been updated.
    for number, group in enumerate(groups):
        place = max(groups[max(0, number - 1)][0].begin, *(gather.ready for gather in group))
        for gather in group:
            one = block.vars[gather.name]
            whole = f"{gather.name}{WHOLE}{next(numbers)}"
            block.create_var(whole, one.type, stop_gradient=True, at=one.at)
            for i in gather.places:
                reader = block.ops[i]
                reader.inputs = {s: [whole if n == gather.name else n for n in names] for s, names in reader.inputs.items()}
            attrs = attributes(rows[gather.name], rank)
            found.setdefault(place, []).append(Operator("all_rows", {"Rows": [gather.name]}, {"Out": [whole]}, attrs, Role.DIST, at=one.at))
    return found


@dataclass(frozen=True)
class _Moved:
    """Ops that have another place: they, and which of them stand behind which place."""

    ops: frozenset[Operator]
    after: Mapping[int, list[Operator]]


def _early(block: Block, least: int) -> _Moved:
    """Return where ops take rows of gradients: behind the last gradient of the next group, so that a group is summed meanwhile."""
    last = {n: i for i, op in enumerate(block.ops) for n in op.output_names() if op.role not in UPDATES}
    read: dict[str, list[Operator]] = {}
    for op in block.ops:
        for n in op.input_names():
            read.setdefault(n, []).append(op)
    takes = [op for op in block.ops if (own := op.definition.get(OwnRows)) is not None and not own.gives]
    takes = [op for op in takes if (n := op.inputs["X"][0]) in last and all(other.definition.has(OwnRows) for other in read[n])]
    groups: list[list[Operator]] = []
    nbytes = least
    for op in sorted(takes, key=lambda op: last[op.inputs["X"][0]]):
        if nbytes >= least:
            groups.append([])
            nbytes = 0
        groups[-1].append(op)
        nbytes += block.vars[op.inputs["X"][0]].type.nbytes
    ends = [max(last[op.inputs["X"][0]] for op in group) for group in groups]
    after: dict[int, list[Operator]] = {}
    for number, group in enumerate(groups):
        for op in group:
            op.role, op.role_vars = Role.DIST, []
            after.setdefault(ends[min(number + 1, len(groups) - 1)], []).append(op)
    return _Moved(frozenset(takes), after)


def _keep_own(block: Block, rows: Mapping[str, Rows], rank: int) -> None:
    """Make this process's rows of each parameter what lives between steps, under the parameter's name."""
    for name, of_all in rows.items():
        one = block.vars[name]
        one.whole, one.type = one.type, own_type(one.type, of_all, rank)
        block.vars.pop(name + OWN, None)
    for op in block.ops:
        for slots in (op.inputs, op.outputs):
            for slot, names in slots.items():
                slots[slot] = [n.removesuffix(OWN) if n.removesuffix(OWN) in rows else n for n in names]


def group_bytes(wanted: int, total: int) -> int:
    """Return the bytes of a group; about five groups are there at once, so that there are sixteen at least.

    Args:
        wanted: by the strategy.
        total: of all sharded parameters.
    """
    return max(1, min(wanted, max(SMALL_BUCKET, total // 16)))


def sharded_parameters(program: Program, rows: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return the parameters that can be sharded, with their rows: those whose updates look at this process's rows alone.

    Args:
        program: in which processes share the updates.
        rows: parameter -> who updates which rows.
    """
    return {n: r for n, r in rows.items() if n not in set(_read_whole(program))}


def frozen_rows(programs: Sequence[Program], size: int) -> dict[str, Rows]:
    """Return the parameters that nothing updates, with the rows of each process; they are shared out among themselves.

    Args:
        programs: all that train.
        size: processes.
    """
    written = {n for program in programs for op in every_op(program) for n in op.output_names()}
    found = {p.name: p.type for program in programs for p in program.parameters() if p.name not in written}
    found = {n: t for n, t in found.items() if t.shape and t.size > 1}
    rows = share_rows([(t.shape[0], t.nbytes // t.shape[0]) for t in found.values()], size)
    return dict(zip(found, rows, strict=True))


def _read_whole(program: Program) -> Iterator[str]:
    """Yield what updates read or write as a whole."""
    for op in program.top_ops:
        if op.role in UPDATES and not op.definition.has(OwnRows):
            yield from (*op.input_names(), *op.output_names())
