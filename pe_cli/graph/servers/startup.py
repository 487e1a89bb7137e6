"""A server's startup program: first values of its pieces, and of the state of their updates."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.graph.servers.blocks import add, declare
from pe_cli.graph.servers.server_program import Kept
from pe_cli.graph.servers.update_ops import copied, renamed
from pe_cli.ops.define.traits import Random
from pe_cli.program import ir
from pe_cli.program.ir import Operator, Role

#: What the name of a whole variable ends with where the server has a piece of that name.
WHOLE = "@WHOLE"


def server_startup(origin: ir.Program, main: ir.Program, kept: Sequence[Kept], most: int = 0) -> ir.Program:
    """Return the startup program of a server.

    Args:
        origin: the whole startup program.
        main: the server's.
        kept: what the server keeps between steps.
        most: values of up to so many bytes are drawn for the whole parameter, of which the server keeps its piece, so that they do not
            depend on how it is cut.
    """
    made = type(origin)()
    made.random_seed = origin.random_seed
    block, source = made.main_block, origin.main_block
    for v in main.vars.values():
        declare(block, v.name, v.type, persistable=True)
    targets = _targets(source, block, kept)
    for op in _needed(source.ops, set(targets)):
        found = [k for out in op.output_names() for k in targets.get(out, ())]
        if not found:  # another op here reads it
            _whole(source, block, op)
        for each in found:
            _fill(source, block, op, each, most)
    return made


def _targets(source: ir.Block, block: ir.Block, kept: Sequence[Kept]) -> dict[str, list[Kept]]:
    """Return for each variable of the whole startup program what stands for it on the server."""
    found: dict[str, list[Kept]] = {}
    for each in kept:
        found.setdefault(each.whole, []).append(each)
    alike = [Kept(name, name, v.type) for name, v in source.vars.items() if name in block.vars and name not in found]
    return {k: v for k, v in found.items() if k in source.vars} | {each.name: [each] for each in alike}


def _needed(ops: Sequence[Operator], wanted: set[str]) -> list[Operator]:
    """Return the ops that make variables, with those that make what they read, in their order."""
    found = []
    for op in reversed(ops):
        if wanted & set(op.output_names()):
            found.append(op)
            wanted |= set(op.input_names())
    return found[::-1]


def _fill(source: ir.Block, block: ir.Block, op: Operator, target: Kept, most: int) -> None:
    """Add what gives one variable of the server its first value: the op itself, of the piece's shape, or a piece of its result."""
    whole, kind = source.vars[target.whole].type, block.vars[target.name].type
    made = copied(op)
    together = op.definition.has(Random) and whole.nbytes <= most
    # Pieces of one random draw are cut out of the whole, so that first values are those of a run without servers.
    if kind.shape != whole.shape and ("shape" not in op.attrs or op.input_names() or together):
        given = _whole(source, block, op)
        begin = target.begin or 0
        attrs = {"axes": [0], "starts": [begin], "ends": [begin + kind.shape[0]]}
        add(block, "slice", {"Input": [given[target.whole]]}, {"Out": [target.name]}, attrs, role=Role.FORWARD)
        return
    if "shape" in op.attrs and not op.input_names():
        made.attrs["shape"] = list(kind.shape)
    names = {n: _name(source, block, n) for n in op.input_names()}
    for used, name in names.items():
        declare(block, name, source.vars[used].type)
    made = renamed(made, names)
    made.outputs = {slot: [target.name] for slot in op.outputs}
    block.ops.append(made)


def _name(source: ir.Block, block: ir.Block, name: str) -> str:
    """Return what a whole variable is called on the server, where a piece of it may have its name."""
    there = block.vars.get(name)
    return name if there is None or there.type == source.vars[name].type else name + WHOLE


def _whole(source: ir.Block, block: ir.Block, op: Operator) -> dict[str, str]:
    """Add an op as it is, once; return what its variables are called."""
    names = {n: _name(source, block, n) for n in (*op.input_names(), *op.output_names())}
    made = renamed(op, names)
    # Several pieces may need the same whole variable: its op is added once.
    if all(o.outputs != made.outputs for o in block.ops):
        for used, name in names.items():
            declare(block, name, source.vars[used].type)
        block.ops.append(made)
    return names
