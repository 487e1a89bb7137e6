"""A server's startup program: first values of its pieces, and of the state of their updates."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.graph.servers.blocks import add, declare
from pe_cli.graph.servers.slicing import Piece
from pe_cli.graph.servers.updates import copied
from pe_cli.ops.define.traits import Random
from pe_cli.program import ir
from pe_cli.program.ir import Operator, Role


def server_startup(origin: ir.Program, main: ir.Program, pieces: Sequence[Piece], whole: int = 0) -> ir.Program:
    """Return the startup program of a server.

    Args:
        origin: the whole startup program.
        main: the server's.
        pieces: of parameters that the server has.
        whole: values of up to so many bytes are drawn for the whole parameter, of which the server keeps its piece, so that they do not
            depend on how it is cut.
    """
    made = type(origin)()
    made.random_seed = origin.random_seed
    block, source = made.global_block(), origin.global_block()
    for v in main.global_block().vars.values():
        declare(block, v.name, v.type, persistable=True)
    targets = _targets(source, block, pieces)
    for op in _needed(source.ops, set(targets)):
        outs = op.output_names()
        found = [name for out in outs for name in targets.get(out, ())]
        if not found:  # another op here reads it
            _whole(source, block, op)
            continue
        for name in found:
            _fill(source, block, op, outs[0], name, pieces, whole)
    return made


def _targets(source: ir.Block, block: ir.Block, pieces: Sequence[Piece]) -> dict[str, list[str]]:
    """Return for each variable of the whole startup program what stands for it on the server."""
    found = {}
    for name in source.vars:
        marked = [f"{name}.block{p.index}" for p in pieces if f"{name}.block{p.index}" in block.vars]
        there = list(dict.fromkeys(marked)) or ([name] if name in block.vars else [])
        if there:
            found[name] = there
    return found


def _needed(ops: Sequence[Operator], wanted: set[str]) -> list[Operator]:
    """Return the ops that make variables, with those that make what they read, in their order."""
    found = []
    for op in reversed(ops):
        if wanted & set(op.output_names()):
            found.append(op)
            wanted |= set(op.input_names())
    return found[::-1]


def _fill(source: ir.Block, block: ir.Block, op: Operator, whole: str, name: str, pieces: Sequence[Piece], most: int) -> None:
    """Add what gives one variable of the server its first value: the op itself, of the piece's shape, or a piece of its result."""
    shape = list(block.vars[name].type.shape)
    made = copied(op)
    together = op.definition.has(Random) and source.vars[whole].type.nbytes <= most
    if "shape" in op.attrs and not op.input_names() and not together:
        made.attrs["shape"] = shape
    elif shape != list(source.vars[whole].type.shape):
        _whole(source, block, op)
        begin = next(p.begin for p in pieces if name in (p.name, f"{whole}.block{p.index}") or p.type.shape == tuple(shape))
        attrs = {"axes": [0], "starts": [begin], "ends": [begin + shape[0]]}
        add(block, "slice", {"Input": [whole]}, {"Out": [name]}, attrs, role=Role.FORWARD)
        return
    made.outputs = {slot: [name] for slot in op.outputs}
    for used in op.input_names():
        declare(block, used, source.vars[used].type)
    block.ops.append(made)


def _whole(source: ir.Block, block: ir.Block, op: Operator) -> None:
    """Add an op as it is, once."""
    if any(o.outputs == op.outputs for o in block.ops):
        return
    for used in (*op.input_names(), *op.output_names()):
        declare(block, used, source.vars[used].type)
    block.ops.append(copied(op))
