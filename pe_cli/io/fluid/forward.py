"""The part of a program that computes forwards, without what `minimize` has appended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid.program_desc import LOD_TENSOR, BlockDesc, OpDesc
from pe_cli.program.ir import EMPTY

#: Bits of the attribute `op_role`: gradients, updates, what trainers send each other, and learning rates; and of the operator of the loss.
_NOT_FORWARD, _OPTIMIZE, _RATES, _LOSS = 1 | 2 | 4 | 8 | 16, 2, 16, 256
#: Operators that move the powers of Adam's betas.
_OF_ADAM = {"scale"}
#: Operators of readers: what they give is fed here.
_READS = {"read", "create_py_reader", "create_double_buffer_reader", "create_custom_reader"}


@dataclass(frozen=True)
class Forward:
    """What a program computes forwards.

    Args:
        blocks: without other operators. A program that does not say what is fetched fetches what operators make and none reads, the
            loss first.
        loss: variable that is made smaller; empty where nothing says it.
        updates: operators that change parameters.
        more_than_updates: there are others in training: of regularization, clipping or learning rates.
    """

    blocks: list[BlockDesc]
    loss: str
    updates: list[OpDesc]
    more_than_updates: bool


def role_of(op: OpDesc) -> int:
    """Return the bits of an operator's role; 0 for one without a role."""
    found = op.attrs.get("op_role", 0)
    return found if isinstance(found, int) else 0


def forward_of(blocks: Sequence[BlockDesc]) -> Forward:
    """Return what a program computes forwards."""
    main = blocks[0]
    kept = [op for op in main.ops if not role_of(op) & _NOT_FORWARD and op.type not in _READS]
    losses = [name for op in kept if role_of(op) & _LOSS for names in op.outputs.values() for name in names]
    read = {name for op in kept for names in op.inputs.values() for name in names}
    kinds = {v.name: v for v in main.vars}
    ends = dict.fromkeys(losses[:1])
    for op in kept:
        if op.type not in ("feed", "fetch"):
            first = next((names[0] for names in _results(op) if names and names[0] != EMPTY), "")
            plain = first in kinds and kinds[first].kind == LOD_TENSOR and not kinds[first].persistable
            if plain and all(name not in read for names in _results(op) for name in names):
                ends[first] = None
    updates = [op for op in main.ops if role_of(op) & _OPTIMIZE and "Param" in op.inputs and "LearningRate" in op.inputs]
    if not any(op.type == "fetch" for op in kept):
        kept += [OpDesc("fetch", {"X": [name]}, {}, {"col": i}) for i, name in enumerate(ends)]
    further = any(role_of(op) & (_OPTIMIZE | _RATES) and op not in updates and op.type not in _OF_ADAM for op in main.ops)
    return Forward([replace(main, ops=kept), *blocks[1:]], losses[0] if losses else "", updates, further)


def _results(op: OpDesc) -> list[list[str]]:
    """Return the outputs of an operator, the slot with its result first."""
    main = [slot for slot in ("Out", "Output", "Y", "Loss", "Accuracy") if slot in op.outputs]
    return [op.outputs[slot] for slot in (*main, *(slot for slot in op.outputs if slot not in main))]
