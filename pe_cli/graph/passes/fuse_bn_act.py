"""fuse_bn_act_ops: batch_norm and the relu of its result become fused_batch_norm_act, and their gradients fused_batch_norm_act_grad.

Values and gradients keep their arithmetic. The gradient finds out where relu cut from batch_norm's input, so that relu's result is
not read for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pe_cli.graph.rewrite import Rewriter, joined, sentence
from pe_cli.program.ir import Operator, Program

NAME = "fuse_bn_act_ops"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fused operators, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    forward = backward = 0
    relus = r.places("relu")
    for place, act in relus:
        source = r.writer(act.inputs["X"][0])
        norm = r.op(source) if source is not None else None
        if source is None or norm is None or norm.type != "batch_norm":
            r.reasons[f"the input of relu is made by {norm.type if norm else 'no op or several'}"] += 1
            continue
        backward += sum(_backward(r, source, back, at) for at, back in gradients_of_relu(r, act))
        forward += _forward(r, (source, place))
    if not relus:
        return program, sentence(NAME, 0, 0, r.reasons, "the program has no relu")
    done = forward + backward
    return (r.finish() if done else program), sentence(NAME, forward, backward, r.reasons, "")


def gradients_of_relu(r: Rewriter, act: Operator) -> list[tuple[int, Operator]]:
    """Return the gradient operators of a relu, with their places."""
    return r.readers_of(act.outputs["Out"], "relu_grad", "Out")


def refuse(r: Rewriter, what: str, why: str) -> int:
    """Count a reason and return 0, the number of places fused."""
    r.reasons[f"{what} {why}"] += 1
    return 0


def fuse(r: Rewriter, group: Sequence[int], made: Operator) -> int:
    """Replace a group; return 1, or 0 with a reason where other operators stand in the way."""
    roles = {r.op(p).role for p in group}
    if len(roles) > 1:
        return refuse(r, made.type, "would join operators of different roles")
    if not r.replace(group, made):
        return refuse(r, made.type, "would move past operators that use the same variables")
    return 1


def _forward(r: Rewriter, group: tuple[int, int]) -> int:
    norm, act = (r.op(p) for p in group)
    if why := r.only_for(norm.outputs["Y"][0], [group[1]]):
        return refuse(r, "the output of batch_norm", why)
    outputs = {**norm.outputs, "Y": act.outputs["Out"]}
    return fuse(r, group, joined([norm, act], "fused_batch_norm_act", norm.inputs, outputs, norm.attrs))


def _backward(r: Rewriter, source: int, back: Operator, at: int) -> int:
    norm, middle = r.op(source), back.outputs["X@GRAD"][0]
    readers = r.readers(middle)
    second = r.op(readers[0]) if len(readers) == 1 else None
    if (
        second is None
        or second.type != "batch_norm_grad"
        or second.inputs["SavedMean"] != norm.outputs.get("SavedMean")
    ):
        others = sorted({r.op(p).type for p in readers if r.op(p).type != "batch_norm_grad"})
        return refuse(r, "the gradient of relu", f"is read by {' and '.join(others) or 'several operators'}")
    if why := r.only_for(middle, readers):
        return refuse(r, "the gradient of relu", why)
    if not r.unchanged(norm.inputs["Bias"][0], source, at):
        return refuse(r, "the bias of batch_norm", "is overwritten before the gradient")
    inputs = {s: second.inputs[s] for s in ("X", "Scale", "SavedMean", "SavedVariance")}
    inputs |= {"Bias": norm.inputs["Bias"], "Y@GRAD": back.inputs["Out@GRAD"]}
    return fuse(
        r, (at, readers[0]), joined([back, second], "fused_batch_norm_act_grad", inputs, second.outputs, second.attrs)
    )
