"""fuse_elewise_add_act_ops: elementwise_add and the activation of its result become fused_elemwise_activation, their gradients too.

Every pointwise op with a gradient is an activation here. Values and gradients keep their arithmetic. The sum is kept only where a
gradient reads it, and then under its own name.
"""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.core.types import FLOATS
from pe_cli.graph.passes.fuse_bn_act import fuse, refuse
from pe_cli.graph.rewrite import Rewriter, joined, sentence
from pe_cli.ops.fused.fused_elementwise import NAME
from pe_cli.ops.math.pointwise import POINTWISE
from pe_cli.program.ir import Operator, Program

PASS = "fuse_elewise_add_act_ops"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fused operators, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    forward = backward = 0
    types = [name for name, of in POINTWISE.items() if of.with_sum is not None]
    acts = [(p, op) for p, op in r.places(*types) if r.block.var(op.inputs["X"][0]).dtype in FLOATS]
    for place, act in acts:
        source = r.writer(act.inputs["X"][0])
        add = r.op(source) if source is not None else None
        if source is None or add is None or add.type != "elementwise_add":
            r.reasons[f"the input of {act.type} is made by {add.type if add else 'no op or several'}"] += 1
            continue
        slot = POINTWISE[act.type].uses
        value = act.outputs["Out"] if slot == "Out" else act.inputs["X"]
        backs = r.readers_of(value, f"{act.type}_grad", slot)
        if not all(r.unchanged(value[0], place, p) for p, _ in backs):
            refuse(r, f"the result of {act.type}", "is overwritten before its gradient")
            continue
        backward += sum(fuse_gradients(r, add, act, back, at) for at, back in backs)
        forward += _forward(r, (source, place))
    nothing = "the program has no activation" if r.places("elementwise_add") else "the program has no elementwise_add"
    return (r.finish() if forward + backward else program), sentence(PASS, forward, backward, r.reasons, nothing)


def _attrs(add: Operator, act: Operator, saved: bool) -> dict[str, object]:
    defaults = act.definition.attrs
    given = {k: v for k, v in act.attrs.items() if v != defaults[k].default}
    functors = [act.type, "elementwise_add"]
    return {"functor_list": functors, "functor_attrs": given, "axis": add.attrs["axis"], "save_intermediate_out": saved}


def _forward(r: Rewriter, group: tuple[int, int]) -> int:
    add, act = (r.op(p) for p in group)
    (middle,) = add.outputs["Out"]
    gradients = [p for p in r.readers(middle) if r.op(p).type in (f"{act.type}_grad", f"{NAME}_grad")]
    if why := r.only_for(middle, [group[1], *gradients], stays=bool(gradients)):
        return refuse(r, "the output of elementwise_add", why)
    outputs = {"Out": act.outputs["Out"], **({"IntermediateOut": [middle]} if gradients else {})}
    return fuse(r, group, joined([add, act], NAME, add.inputs, outputs, _attrs(add, act, bool(gradients))))


def fuse_gradients(r: Rewriter, add: Operator, act: Operator, back: Operator, at: int) -> int:
    """Join the gradient of an activation, at a place, with that of the sum it is applied to; return how many were."""
    (middle,) = back.outputs["X@GRAD"]
    readers = r.readers(middle)
    if len(readers) != 1 or r.op(readers[0]).type != "elementwise_add_grad":
        others = " and ".join(sorted({r.op(p).type for p in readers if r.op(p).type != "elementwise_add_grad"}))
        return refuse(r, f"the gradient of {act.type}", f"is read by {others or 'no op or several'}")
    if why := r.only_for(middle, readers):
        return refuse(r, f"the gradient of {act.type}", why)
    uses_out = POINTWISE[act.type].uses == "Out"
    inputs = {"Out": back.inputs["Out"]} if uses_out else {"IntermediateOut": back.inputs["X"]}
    inputs["Out@GRAD"] = back.inputs["Out@GRAD"]
    split = r.op(readers[0])
    made = joined([back, split], f"{NAME}_grad", inputs, split.outputs, _attrs(add, act, not uses_out))
    return fuse(r, (at, readers[0]), made)
