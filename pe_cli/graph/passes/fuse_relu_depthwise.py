"""fuse_relu_depthwise_conv: a relu that only depthwise convolutions read becomes part of them, in their gradients too."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pe_cli.graph.passes.fuse_bn_act import refuse
from pe_cli.graph.rewrite import Rewriter, joined, sentence
from pe_cli.program.ir import Operator, Program

NAME = "fuse_relu_depthwise_conv"
CONV, CONV_GRAD = "depthwise_conv2d", "depthwise_conv2d_grad"
FUSED, FUSED_GRAD = "fused_relu_depthwise_conv2d", "fused_relu_depthwise_conv2d_grad"


@dataclass
class _Site:
    """A relu, the one convolution that reads it, and the gradients of both."""

    forward: tuple[int, int]
    backward: list[tuple[int, ...]] = field(
        default_factory=list
    )  # (gradient of the convolution, gradient of relu where there is one)


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fused operators, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    forward = backward = 0
    for place, act in r.places("relu"):
        if not any(r.op(p).type == CONV for p in r.readers(act.outputs["Out"][0])):
            continue
        site = _site(r, place, act)
        if site is None:
            continue
        if any(r.meeting_point(group) is None for group in (site.forward, *site.backward)):
            refuse(r, FUSED, "would move past operators that use the same variables")
            continue
        for group in site.backward:
            _backward(r, act, group)
        conv = r.op(site.forward[1])
        inputs = {**conv.inputs, "Input": act.inputs["X"]}
        r.replace(site.forward, joined([act, conv], FUSED, inputs, conv.outputs, conv.attrs))
        forward, backward = forward + 1, backward + len(site.backward)
    found = [kind for kind in ("relu", CONV) if r.places(kind)]
    nothing = (
        "no relu is read by a depthwise_conv2d"
        if len(found) == 2
        else "the program has no depthwise_conv2d after a relu"
    )
    return (r.finish() if forward else program), sentence(NAME, forward, backward, r.reasons, nothing)


def _site(r: Rewriter, place: int, act: Operator) -> _Site | None:
    """Return what fuses with a relu, or None with a reason: relu's result vanishes, so all or nothing does."""
    name = act.outputs["Out"][0]
    readers = {p: r.op(p) for p in r.readers(name)}
    convs = [p for p, op in readers.items() if op.type == CONV and name not in op.inputs["Filter"]]
    if len(convs) != 1:
        refuse(r, "the output of relu", "is read by several depthwise_conv2d")
        return None
    conv_grads = [p for p, op in readers.items() if op.type == CONV_GRAD]
    relu_grads = [p for p, op in readers.items() if op.type == "relu_grad" and op.inputs["Out"] == [name]]
    if why := r.only_for(name, [*convs, *conv_grads, *relu_grads], stays=True):
        refuse(r, "the output of relu", why)
        return None
    if not all(r.unchanged(act.inputs["X"][0], place, p) for p in (*convs, *conv_grads)):
        refuse(r, "the input of relu", "is overwritten before its last use")
        return None
    site = _Site((place, convs[0]))
    for at in conv_grads:
        gradient = (r.op(at).outputs.get("Input@GRAD") or [""])[0]
        after = r.readers(gradient) if gradient else []
        if gradient and (len(after) != 1 or after[0] not in relu_grads or r.only_for(gradient, after)):
            refuse(r, "the gradient of depthwise_conv2d", "is not read by relu_grad alone")
            return None
        site.backward.append((at, *after))
    if len({p for _, *after in site.backward for p in after}) != len(relu_grads):
        refuse(r, "the gradient of relu", "has parts that depthwise_conv2d_grad does not make")
        return None
    return site


def _backward(r: Rewriter, act: Operator, group: tuple[int, ...]) -> None:
    ops = [r.op(p) for p in group]
    conv = ops[0]
    outputs = {slot: names for slot, names in conv.outputs.items() if slot != "Input@GRAD"}
    if len(ops) > 1:
        outputs = {"Input@GRAD": ops[1].outputs["X@GRAD"], **outputs}
    inputs = {**conv.inputs, "Input": act.inputs["X"]}
    r.replace(group, joined(ops, FUSED_GRAD, inputs, outputs, conv.attrs))
