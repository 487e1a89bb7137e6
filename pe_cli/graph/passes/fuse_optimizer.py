"""fuse_all_optimizer_ops: the updates of all parameters of a kind, with their weight decay, become one op over lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from pe_cli.ops.define.registry import OpDef, discover
from pe_cli.ops.define.traits import Decays, UpdatesMany
from pe_cli.program.ir import Block, Operator, Program, Role


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fused updates, and a sentence on what was done."""
    made = program.clone()
    block = made.main_block
    forms = _forms() if any(op.role is Role.OPTIMIZE for op in block.ops) else {}
    decays = _decays(block, set(fetches), forms)
    groups: dict[tuple[Any, ...], list[Operator]] = {}
    for op in block.ops:
        if op.role is Role.OPTIMIZE and op.type in forms and "Rows" not in op.inputs:
            groups.setdefault(_key(block, op, decays.get(id(op))), []).append(op)
    joined = [ops for group in groups.values() if len(ops := _late(block, group)) > 1]
    if not joined:
        kinds = sorted({op.type for op in block.ops if op.role is Role.OPTIMIZE})
        why = "the program updates nothing"
        if kinds:
            why = f"the updates are {', '.join(kinds)}, and no two of a kind share rate and settings"
        return program, f"fuse_all_optimizer_ops: nothing to join: {why}"
    taken = 0
    for ops in joined:
        taken += _join(block, forms[ops[0].type], ops, [decays.get(id(op)) for op in ops])
    count = sum(map(len, joined))
    with_decay = f", {taken} of them with their weight decay" if taken else ""
    return made, f"fuse_all_optimizer_ops: {count} updates became {len(joined)}{with_decay}"


def _late(block: Block, group: list[Operator]) -> list[Operator]:
    """Return the updates of a group that may be done where its last one is: nothing in between looks at what they write."""
    members, found = set(map(id, group)), []
    used: set[str] = set()
    written: set[str] = set()
    first, last = block.ops.index(group[0]), block.ops.index(group[-1])
    # From the end: what stands between an update and the last one must neither read nor write its variables.
    for op in reversed(block.ops[first : last + 1]):
        if id(op) in members and not used & set(op.output_names()) and not written & set(op.input_names()):
            found.append(op)
        else:
            used.update(op.input_names(), op.output_names())
            written.update(op.output_names())
    return found[::-1]


def _forms() -> dict[str, OpDef]:
    """Return the ops over lists, by the update op that each stands for."""
    return {many.update: op for op in discover().values() if (many := op.get(UpdatesMany)) is not None}


def _decays(block: Block, fetches: Collection[str], forms: Mapping[str, OpDef]) -> dict[int, Operator]:
    """Return the weight decay of every update that alone reads its result and whose form over lists decays, by the update's id."""
    # Decay of a row-sparse gradient touches rows alone, and stays with them.
    makers = {op.outputs["Out"][0]: op for op in block.ops if op.definition.has(Decays) and not op.inputs.get("Rows")}
    readers = Counter(n for op in block.ops for n in op.input_names())
    found = {}
    for op in block.ops:
        decay = makers.get(op.inputs["Grad"][0]) if op.type in forms and "decay" in forms[op.type].attrs else None
        if decay is not None and decay.inputs["Param"] == op.inputs["Param"]:
            name = decay.outputs["Out"][0]
            # A decay whose result somebody else reads must still be written.
            if readers[name] == 1 and name not in fetches and name not in decay.input_names():
                found[id(op)] = decay
    return found


def _key(block: Block, op: Operator, decay: Operator | None) -> tuple[Any, ...]:
    dtype = block.var(op.inputs["Param"][0]).dtype
    attrs = tuple(sorted((k, repr(v)) for k, v in op.attrs.items()))
    # One decay coefficient per group, because the joined op has one attribute for it.
    return op.type, dtype, tuple(op.inputs["LearningRate"]), attrs, decay and decay.attrs["coeff"]


def _join(block: Block, fused: OpDef, ops: list[Operator], decays: list[Operator | None]) -> int:
    """Put one op in the place of the last: by then every gradient is ready. Return how many decays it does."""
    first = ops[0]
    taken = [decay for decay in decays if decay is not None]
    inputs = {s.name: [n for op in ops for n in op.inputs[s.name]] for s in fused.inputs if s.name != "LearningRate"}
    outputs = {s.name: [n for op in ops for n in op.outputs[s.name]] for s in fused.outputs}
    attrs = dict(first.attrs)
    if taken:
        inputs["Grad"] = [decay.inputs["Grad"][0] for decay in taken]
    if "decay" in fused.attrs:
        attrs["decay"] = taken[0].attrs["coeff"] if taken else 0.0
    role_vars = [n for op in ops for n in op.role_vars]
    inputs["LearningRate"] = list(first.inputs["LearningRate"])
    made = Operator(fused.name, inputs, outputs, attrs, Role.OPTIMIZE, role_vars, first.at, first.scope)
    # In the place of the last: there every gradient of the group is ready.
    index = block.ops.index(ops[-1])
    block.ops[index] = made
    gone = {*map(id, ops[:-1]), *map(id, taken)}
    block.ops = [op for op in block.ops if id(op) not in gone]
    return len(taken)
