"""fuse_bn_conv: a convolution applies the batch_norm and the relu before it itself, and again for its gradients.

What they give is never kept, which is half of the images that a model of 1x1 and depthwise convolutions keeps for its gradients. It comes
after `fuse_bn_statistics`: statistics that convolutions find need no pass over the images either. No bit changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pe_cli.graph.rewrite import Rewriter, joined, sentence
from pe_cli.ops.fused.fused_norm_conv import takes
from pe_cli.program.ir import Operator, Program

NAME = "fuse_bn_conv"
NORM, CONV = "fused_batch_norm_act", "fused_conv2d_moments"
GRADS = ("conv2d_grad", "depthwise_conv2d_grad")
EACH = ("SavedMean", "SavedVariance", "Scale", "Bias")
GIVEN = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with fused operators, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    norms = r.places(NORM)
    forward = backward = 0
    for place, norm in norms:
        (name,) = norm.outputs["Y"]
        convs = [p for p in r.readers(name) if r.op(p).type == CONV]
        grads = [p for p in r.readers(name) if r.op(p).type in GRADS]
        if why := _refused(r, place, norm, convs, grads):
            r.reasons[why] += 1
            continue
        for p in grads:
            _replace(r, p, norm, "fused_norm_conv2d_back")
        _replace(r, convs[0], norm, "fused_norm_conv2d")
        inputs = {slot: norm.inputs[slot] for slot in ("X", "Moments", "Mean", "Variance")}
        outputs = {slot: names for slot, names in norm.outputs.items() if slot != "Y"}
        attrs = {a: norm.attrs[a] for a in ("momentum", "epsilon")}
        r.replace([place], joined([norm], "batch_norm_statistics", inputs, outputs, attrs))
        r.vanish([name], norm.inputs["X"][0])
        forward, backward = forward + 1, backward + len(grads)
    nothing = "the program has no batch_norm with relu"
    return (r.finish() if forward else program), sentence(NAME, forward, backward, r.reasons, nothing)


def _refused(r: Rewriter, place: int, norm: Operator, convs: list[int], grads: list[int]) -> str:
    """Return why a batch_norm with relu stays, empty where the only convolution after it takes it over."""
    (name,) = norm.outputs["Y"]
    if "Moments" not in norm.inputs:
        return "no convolution takes the statistics before batch_norm"
    if not all(norm.outputs.get(slot) for slot in GIVEN):
        return "batch_norm does not give all its statistics"
    if len(convs) != 1:
        return f"the result is read by {len(convs) or 'no'} convolutions that take statistics"
    readers = (*convs, *grads)
    if why := r.only_for(name, readers, stays=True) or _unfit(r, name, readers):
        return f"the result {why}"
    used = (norm.inputs["X"][0], *_each(norm).values())
    overwritten = not all(r.unchanged(n, place, p) for n in used for p in readers)
    return "its input or a parameter is overwritten before its last use" if overwritten else ""


def _unfit(r: Rewriter, name: str, readers: Iterable[int]) -> str:
    """Return why a convolution or its gradient cannot apply batch_norm to an image, empty where it can."""
    channels = r.block.var(name).shape[-1]
    for op in map(r.op, readers):
        (filters,) = op.inputs["Filter"]
        if name == filters:
            return "is a filter"
        if not takes(channels, r.block.var(filters).shape, op.attrs):
            return "goes to a convolution that is neither 1x1 nor depthwise"
    return ""


def _each(norm: Operator) -> dict[str, str]:
    return {slot: (norm.outputs if slot.startswith("Saved") else norm.inputs)[slot][0] for slot in EACH}


def _replace(r: Rewriter, place: int, norm: Operator, kind: str) -> None:
    """Let an operator read what batch_norm reads instead of what it gives."""
    op = r.op(place)
    inputs = {"Input": norm.inputs["X"], **{slot: [name] for slot, name in _each(norm).items()}}
    inputs |= {slot: names for slot, names in op.inputs.items() if slot not in inputs}
    r.replace([place], joined([op], kind, inputs, op.outputs, op.attrs))
