"""dead_code: ops whose results nobody can see are left out.

What can be told: what is fetched, persistable variables, and errors. An op that checks its data (labels in range) stays for that, and one
that takes this process's rows of a gradient, of which other processes take theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from pe_cli.ops.define.registry import forward_name
from pe_cli.ops.define.traits import OwnRows, ReportsData
from pe_cli.program.ir import Operator, Program, Role
from pe_cli.program.region import with_inner

NAME = "dead_code"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with only the ops that count, and a sentence on what was done."""
    needed = {*fetches, *(v.name for v in program.persistables())}
    alive: list[bool] = []
    # Backwards, so that an op is looked at when all its readers have been decided.
    for op in reversed(program.top_ops):
        outs = set(op.output_names())
        alive.append(not outs or bool(outs & needed) or _reports(op) or op.definition.has(OwnRows))
        if alive[-1]:
            needed |= _needs(op)
    alive.reverse()
    if all(alive):
        return program, f"{NAME}: every op counts"
    made = program.clone()
    block, ops = made.main_block, made.top_ops
    block.ops = [op for op, counts in zip(ops, alive, strict=True) if counts]
    gone = Counter(op.type for op, counts in zip(ops, alive, strict=True) if not counts)
    used = {n for op in block.ops for n in (*op.input_names(), *op.output_names())}
    # Variables that no op touches go, or the startup program would still make room for them.
    for name in {n for op in ops for n in op.output_names()} - used:
        del block.vars[name]
    listed = ", ".join(f"{n} {kind}" for kind, n in gone.most_common(4)) + (", ..." if len(gone) > 4 else "")
    return made, f"{NAME}: {gone.total()} ops left out whose results nobody needs: {listed}"


def _reports(op: Operator) -> bool:
    """Whether an op, or one that it runs, looks for mistakes in the data; a gradient only does again what has been looked at."""
    inside = with_inner(op) if op.role is not Role.BACKWARD else [op]
    return any(each.definition.has(ReportsData) for each in inside)


def _needs(op: Operator) -> set[str]:
    """Return what an op reads, and for a gradient the variables after which its outputs are typed."""
    typed = {forward_name(n) for n in op.output_names()} if op.definition.is_grad_of else set()
    return {*op.input_names(), *typed}
