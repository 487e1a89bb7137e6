"""Branches of the original: `conditional_block` and `select_input` of cond and Switch, and the parts of rows of IfElse."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.io.fluid.program_desc import OpDesc
from pe_cli.layers.control.loops import branch
from pe_cli.paddle.fluid.original_blocks.reading import Inner, name_of, reads_block
from pe_cli.program.ir import Variable
from pe_cli.program.outline import Outline


@reads_block("conditional_block", "conditional_block_infer")
def _conditional(o: Inner) -> None:
    blocks = o.blocks
    if not o.attr("is_scalar_condition", True):
        # A block of IfElse: it computes with the rows of its own, of which there may be none.
        blocks.read(o.sub_block())
        return
    fresh = [name for name in o.names("Out", outputs=True) if name not in o.block.vars and name not in blocks.arrays]
    ops = blocks.descs[o.index].ops
    choices = [op for op in ops[o.number :] if op.type == "select_input" and not set(fresh).isdisjoint(op.inputs["X"])]
    if not choices:
        _alone(o)
        return
    others = [name for op in choices for name in op.inputs["X"] if name not in fresh]
    partner = next((blocks.waiting[name] for name in others if name in blocks.waiting), None)
    if partner is None:
        blocks.waiting.update(dict.fromkeys(fresh, o))
        return
    _pair(o, partner, choices)


def _alone(o: Inner) -> None:
    """Append a branch that only writes to variables from outside."""
    yes = Outline(o.block)
    with o.blocks.inside():
        o.blocks.read(o.sub_block())
    yes.cut()
    no = Outline(o.block)
    no.cut()
    branch(o.one("Cond"), yes, no, ([], []))


def _pair(last: Inner, first: Inner, choices: list[OpDesc]) -> None:
    """Append both branches of a cond, of which `choices` take the results."""
    blocks = last.blocks
    ops = blocks.descs[last.index].ops
    given = set(ops[last.number].outputs["Out"])
    # The second of the two variables of a choice counts where the condition holds.
    yes, no = (last, first) if choices[0].inputs["X"][1] in given else (first, last)
    condition, otherwise = (ops[o.number].inputs["Cond"] for o in (yes, no))
    negated = any(op.type == "logical_not" and op.inputs["X"] == condition and op.outputs["Out"] == otherwise for op in ops)
    masks = {op.outputs["Out"][0] for op in ops if op.type == "cast" and op.inputs["X"] == condition}
    if not negated or any(op.inputs["Mask"][0] not in masks for op in choices):
        raise PeError("it is no branch of a cond: its conditions are others than those of what takes its results")
    parts: list[Outline] = []
    rows: list[list[Variable]] = []
    for which, o in ((1, yes), (0, no)):
        parts.append(Outline(last.block))
        with blocks.inside():
            blocks.read(o.sub_block())
            rows.append([blocks.now(op.inputs["X"][which]) for op in choices])
        parts[-1].cut()
    outs = branch(yes.one("Cond"), parts[0], parts[1], (rows[0], rows[1]))
    for op, v in zip(choices, outs, strict=True):
        name_of(blocks, op.outputs["Out"][0], v)
        blocks.chosen.add(id(op))


@reads_block("select_input")
def _select(o: Inner) -> None:
    if id(o.blocks.descs[o.index].ops[o.number]) not in o.blocks.chosen:
        raise PeError("it takes results of what is no branch of a cond")


@reads_block("split_lod_tensor")
def _split(o: Inner) -> None:
    o.unless(level=0)
    outputs = {slot: o.out(slot) for slot in ("OutTrue", "OutFalse")}
    o.emit("split_rows", {"X": o.one("X"), "Mask": o.one("Mask")}, outputs)


@reads_block("merge_lod_tensor", "merge_lod_tensor_infer")
def _merge(o: Inner) -> None:
    o.unless(level=0)
    inputs = {slot: o.one(slot) for slot in ("InTrue", "InFalse", "Mask")}
    o.emit("merge_rows", inputs, {"Out": o.out()})
