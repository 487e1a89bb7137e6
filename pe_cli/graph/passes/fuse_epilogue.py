"""fuse_gemm_epilogue: mul or conv2d, the bias added to its result, and relu of that become one op that writes its result once.

The gradients of relu and of the bias become one op too. Values and gradients keep their arithmetic; no gradient reads what vanishes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pe_cli.graph.passes.fuse_bn_act import gradients_of_relu, refuse
from pe_cli.graph.passes.fuse_elewise_add_act import fuse_gradients
from pe_cli.graph.rewrite import Rewriter, joined, sentence
from pe_cli.ops.fused.fused_elementwise import NAME as FUSED_SUM
from pe_cli.program.ir import Operator, Program

NAME = "fuse_gemm_epilogue"
#: What a bias is added to -> output slot, and the op that does both.
FUSED = {"mul": ("Out", "fused_gemm_epilogue"), "conv2d": ("Output", "conv2d_fusion")}


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fused operators, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    found = r.places(*FUSED)
    done = [_fuse(r, place, op) for place, op in found]
    forward, backward = sum(made for made, _ in done), sum(gradients for _, gradients in done)
    said = sentence(NAME, forward, backward, r.reasons, "the program has no mul or conv2d")
    return (r.finish() if forward else program), said


def _fuse(r: Rewriter, place: int, op: Operator) -> tuple[int, int]:
    """Return how many ops became part of a product or convolution, 0 or 1, and how many gradients were joined."""
    slot, fused = FUSED[op.type]
    (name,) = op.outputs[slot]
    readers = r.readers(name)
    add = r.op(readers[0]) if len(readers) == 1 else None
    relu_inside = add is not None and add.type == FUSED_SUM and "IntermediateOut" not in add.outputs
    if add is None or not (add.type == "elementwise_add" or (relu_inside and add.attrs["functor_list"][0] == "relu")):
        return refuse(r, f"the output of {op.type}", "is not read by elementwise_add alone"), 0
    if not _is_bias(r, op, add, name):
        return refuse(r, f"what is added to the output of {op.type}", "is no bias"), 0
    if why := r.needed(name, readers):
        return refuse(r, f"the output of {op.type}", why), 0
    group = [place, *readers]
    act = add if relu_inside else _relu(r, add, group)
    if act is not None and act is not add:
        group.append(r.readers(add.outputs["Out"][0])[0])
    last = act or add
    backward = 0
    if act is not None and act is not add:
        backward = sum(fuse_gradients(r, add, act, back, at) for at, back in gradients_of_relu(r, act))
    attrs: dict[str, Any] = {**op.attrs, "activation": "relu" if act else "none"}
    inputs = {**op.inputs, "Bias": add.inputs["Y"]}
    gone = [name, *(add.outputs["Out"] if last is not add else ())]
    if not r.replace(group, joined([r.op(p) for p in group], fused, inputs, {slot: last.outputs["Out"]}, attrs)):
        return refuse(r, f"{op.type} and its bias", "would move past operators that use the same variables"), 0
    r.vanish(gone, last.outputs["Out"][0])
    return 1, backward


def _is_bias(r: Rewriter, op: Operator, add: Operator, name: str) -> bool:
    """Whether the other operand is a number per channel, of the last axis or where the images have them."""
    out, bias = r.block.var(name), r.block.var(add.inputs["Y"][0])
    channel = 1 if op.attrs.get("data_format") == "NCHW" else len(out.shape) - 1
    axis = add.attrs["axis"] % len(out.shape) if add.attrs["axis"] != -1 else len(out.shape) - 1
    fits = op.type == "conv2d" or len(r.block.var(op.inputs["Y"][0]).shape) == op.attrs["y_num_col_dims"] + 1
    same = bias.shape == (out.shape[channel],) and bias.dtype == out.dtype
    return add.inputs["X"] == [name] and fits and same and axis == channel


def _relu(r: Rewriter, add: Operator, group: list[int]) -> Operator | None:
    """Return the relu that is the only reader of a sum, which then vanishes too."""
    name = add.outputs["Out"][0]
    readers = [p for p in r.readers(name) if p not in group]
    if len(readers) != 1 or r.op(readers[0]).type != "relu" or r.needed(name, readers):
        return None
    act = r.op(readers[0])
    return act if act.role is add.role and r.meeting_point([*group, readers[0]]) is not None else None
