"""sync_batch_norm: batch_norm over the samples of all devices, as two ops: a device's sums, and what follows from those of all devices."""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import find, grad_name
from pe_cli.ops.define.traits import SumsOverDevices
from pe_cli.program.ir import Block, Operator, Program
from pe_cli.program.region import every_op

NAME = "sync_batch_norm"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with statistics over all devices, and a sentence on what was done.

    Raises:
        PeError: statistics are taken inside of a loop or condition, which each device runs alone.
    """
    del fetches
    outer = {id(op) for op in program.top_ops}
    for op in every_op(program):
        # Devices may take different branches and other numbers of rounds: a sum over all would wait for ever.
        if id(op) not in outer and _split_up(op) is not None:
            text = f"{NAME}: '{op.scope.strip('/') or op.type}' is inside of a loop or condition, where devices do not wait for each other"
            raise PeError(text, at=op.at, hint="leave build_strategy.sync_batch_norm out, use one device, or move the layer out")
    found = sum(_split_up(op) is not None for op in program.top_ops)
    if not found:
        return program, f"{NAME}: the program takes no statistics of a batch"
    made = program.clone()
    block = made.main_block
    block.ops = [part for op in block.ops for part in _parts(block, op)]
    return made, f"{NAME}: {found} ops take statistics over the samples of all devices"


def _split_up(op: Operator) -> SumsOverDevices | None:
    found = op.definition.get(SumsOverDevices)
    return None if found is None or op.attrs[found.unless] else found


def _parts(block: Block, op: Operator) -> list[Operator]:
    """Return the two ops that one becomes, the first alone where nobody needs the gradient of the image; itself where it stays."""
    split = _split_up(op)
    if split is None:
        return [op]
    first, second = split.sums, split.rest
    out = op.outputs.get("Y") or op.outputs.get(grad_name("X")) or next(iter(op.outputs.values()))
    partial = block.create_var(
        # Sums, sums of squares and the count, in float64: a difference of large float32 sums would lose the variance.
        f"{out[0]}@SYNC", TensorType((2 * block.var(op.inputs["Scale"][0]).shape[0] + 1,), "float64"), stop_gradient=True
    ).name
    known = find(first)
    taken = {s.name for s in (*known.inputs, *known.outputs)}
    early = {s: n for s, n in op.outputs.items() if s in taken}
    left = {s: n for s, n in op.outputs.items() if s not in taken}
    inputs = {s: n for s, n in op.inputs.items() if s in taken}
    sums = Operator(first, inputs, {"Sums": [partial], **early}, dict(op.attrs), op.role, op.role_vars, op.at, op.scope, op.segment)
    rest = Operator(second, {**op.inputs, "Sums": [partial]}, left, dict(op.attrs), op.role, [], op.at, op.scope, op.segment)
    return [sums, rest] if left else [sums]
