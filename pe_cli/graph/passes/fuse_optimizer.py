"""fuse_all_optimizer_ops: the updates of all parameters of a kind become one op over lists."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pe_cli.ops.registry import find
from pe_cli.program.ir import Block, Operator, Program, Role

#: Update ops that have a form over lists.
FUSABLE = ("sgd", "momentum", "adam")


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fused updates, and a sentence on what was done."""
    del fetches
    made = program.clone()
    block = made.global_block()
    groups: dict[tuple[Any, ...], list[Operator]] = {}
    for op in block.ops:
        if op.role is Role.OPTIMIZE and op.type in FUSABLE and "Rows" not in op.inputs:
            groups.setdefault(_key(block, op), []).append(op)
    joined = [ops for ops in groups.values() if len(ops) > 1]
    if not joined:
        kinds = sorted({op.type for op in block.ops if op.role is Role.OPTIMIZE})
        why = f"the updates are {', '.join(kinds)}" if kinds else "the program updates nothing"
        return program, f"fuse_all_optimizer_ops: nothing to join: {why}, and no two of a kind share rate and settings"
    for ops in joined:
        _join(block, ops)
    count = sum(map(len, joined))
    return made, f"fuse_all_optimizer_ops: {count} updates became {len(joined)}"


def _key(block: Block, op: Operator) -> tuple[Any, ...]:
    dtype = block.var(op.inputs["Param"][0]).dtype
    attrs = tuple(sorted((k, repr(v)) for k, v in op.attrs.items()))
    return op.type, dtype, tuple(op.inputs["LearningRate"]), attrs


def _join(block: Block, ops: list[Operator]) -> None:
    """Put one op in the place of the last: by then every gradient is ready."""
    first = ops[0]
    fused = find(f"fused_{first.type}")
    inputs = {s.name: [n for op in ops for n in op.inputs[s.name]] for s in fused.inputs if s.name != "LearningRate"}
    outputs = {s.name: [n for op in ops for n in op.outputs[s.name]] for s in fused.outputs}
    role_vars = [n for op in ops for n in op.role_vars]
    inputs["LearningRate"] = list(first.inputs["LearningRate"])
    made = Operator(fused.name, inputs, outputs, dict(first.attrs), Role.OPTIMIZE, role_vars, first.at, first.scope)
    index = block.ops.index(ops[-1])
    block.ops[index] = made
    gone = set(map(id, ops[:-1]))
    block.ops = [op for op in block.ops if id(op) not in gone]
