"""fuse_bn_add_act_ops: batch_norm, the sum with a tensor of the same shape, and relu become fused_bn_add_activation; their gradients too.

Values and gradients keep their arithmetic: the sum of two numbers does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.graph.passes.fuse_bn_act import fuse, gradients_of_relu, refuse
from pe_cli.graph.rewrite import Rewriter, joined, sentence
from pe_cli.program.ir import Operator, Program

NAME = "fuse_bn_add_act_ops"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fused operators, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    forward = backward = 0
    relus = r.places("relu")
    for place, act in relus:
        middle = r.writer(act.inputs["X"][0])
        add = r.op(middle) if middle is not None else None
        if middle is None or add is None or add.type != "elementwise_add":
            r.reasons[f"the input of relu is made by {add.type if add else 'no op or several'}"] += 1
            continue
        source, slot = _operand(r, add)
        if source is None:
            r.reasons["no operand of elementwise_add is made by batch_norm in the other's shape"] += 1
            continue
        norm = r.op(source)
        backward += sum(_backward(r, norm, slot, back, at) for at, back in gradients_of_relu(r, act))
        forward += _forward(r, (source, middle, place), slot)
    if not relus:
        return program, sentence(NAME, 0, 0, r.reasons, "the program has no relu")
    return (r.finish() if forward + backward else program), sentence(NAME, forward, backward, r.reasons, "")


def _operand(r: Rewriter, add: Operator) -> tuple[int | None, str]:
    """Return the batch_norm that makes an operand, the later of two, and the operand's slot."""
    if (
        r.block.var(add.inputs["X"][0]).shape != r.block.var(add.inputs["Y"][0]).shape
        or add.inputs["X"] == add.inputs["Y"]
    ):
        return None, ""
    found: list[tuple[int, str]] = []
    for slot in ("X", "Y"):
        place = r.writer(add.inputs[slot][0])
        if place is not None and r.op(place).type == "batch_norm":
            found.append((place, slot))
    return max(found, default=(None, ""))


def _forward(r: Rewriter, group: tuple[int, int, int], slot: str) -> int:
    norm, add, act = (r.op(p) for p in group)
    if why := r.only_for(norm.outputs["Y"][0], [group[1]]):
        return refuse(r, "the output of batch_norm", why)
    if why := r.only_for(add.outputs["Out"][0], [group[2]]):
        return refuse(r, "the sum", why)
    inputs = {**norm.inputs, "Z": add.inputs["Y" if slot == "X" else "X"]}
    outputs = {**norm.outputs, "Y": act.outputs["Out"]}
    return fuse(r, group, joined([norm, add, act], "fused_bn_add_activation", inputs, outputs, norm.attrs))


def _backward(r: Rewriter, norm: Operator, slot: str, back: Operator, at: int) -> int:
    first = back.outputs["X@GRAD"][0]
    adds = r.readers(first)
    if len(adds) != 1 or r.op(adds[0]).type != "elementwise_add_grad":
        return refuse(r, "the gradient of relu", "is not read by elementwise_add_grad alone")
    add = r.op(adds[0])
    if why := r.only_for(first, adds):
        return refuse(r, "the gradient of relu", why)
    (second,) = add.outputs.get(f"{slot}@GRAD") or [""]
    norms = r.readers(second)
    if len(norms) != 1 or r.op(norms[0]).inputs.get("SavedMean") != norm.outputs.get("SavedMean"):
        return refuse(r, "the gradient of the sum", "is not read by batch_norm_grad alone")
    if why := r.only_for(second, norms):
        return refuse(r, "the gradient of the sum", why)
    last = r.op(norms[0])
    inputs = {s: last.inputs[s] for s in ("X", "Scale", "SavedMean", "SavedVariance")}
    inputs |= {"Y": back.inputs["Out"], "Y@GRAD": back.inputs["Out@GRAD"]}
    other = add.outputs.get("Y@GRAD" if slot == "X" else "X@GRAD")
    outputs = {**last.outputs, **({"Z@GRAD": other} if other else {})}
    made = joined([back, add, last], "fused_bn_add_activation_grad", inputs, outputs, last.attrs)
    return fuse(r, (at, adds[0], norms[0]), made)
