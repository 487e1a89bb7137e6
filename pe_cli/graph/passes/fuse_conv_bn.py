"""fuse_conv_bn: a convolution applies the batch_norm after it, with its relu and what is added before that, block by block from the caches.

That needs statistics that are known before, as in evaluation; in training `fuse_bn_statistics` and `fuse_bn_conv` do what can be done.
Filters stay as they are: to scale them instead would round differently. So no bit changes.
"""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.graph.passes.fuse_bn_statistics import NORMS
from pe_cli.graph.rewrite import Rewriter, fuse_each, joined
from pe_cli.program.ir import Operator, Program

NAME = "fuse_conv_bn"
FUSED = "fused_conv2d_norm"
CONVS = ("conv2d", "depthwise_conv2d")


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with convolutions that normalise, and a sentence on what was done."""
    return fuse_each(NAME, program, fetches, NORMS, _take, "batch_norms are applied by convolutions", "the program has no batch_norm")


def _take(r: Rewriter, place: int, norm: Operator) -> str:
    """Let the maker of a batch_norm's input apply it; return why it does not, empty where it does."""
    (image,) = norm.inputs["X"]
    source = r.writer(image)
    conv = r.op(source) if source is not None else None
    if source is None or conv is None or conv.type not in CONVS:
        return f"the input of batch_norm is made by {conv.type if conv else 'no op or several'}"
    if why := _unfit(conv, norm) or _statistics(r, norm):
        return why
    if why := r.only_for(image, [place]):
        return f"the result of the convolution {why}"
    attrs = {**conv.attrs, "epsilon": norm.attrs["epsilon"], "activation": "none" if norm.type == "batch_norm" else "relu"}
    inputs = {**conv.inputs, **{slot: norm.inputs[slot] for slot in ("Scale", "Bias", "Mean", "Variance")}}
    if norm.inputs.get("Z"):
        inputs["Z"] = norm.inputs["Z"]
    if not r.replace([source, place], joined([conv, norm], FUSED, inputs, {"Output": norm.outputs["Y"]}, attrs)):
        return "it would move past operators that use the same variables"
    r.vanish([image], norm.outputs["Y"][0])
    return ""


def _unfit(conv: Operator, norm: Operator) -> str:
    """Return why a convolution cannot apply a batch_norm, whoever else reads its result; empty where it can."""
    if not (norm.attrs["is_test"] or norm.attrs["use_global_stats"]):
        return "batch_norm uses the statistics of the batch"
    if norm.attrs["data_layout"] != "NHWC":
        return "images have their channels first"
    return "" if conv.role is norm.role else "a convolution has another role"


def _statistics(r: Rewriter, norm: Operator) -> str:
    """Return why a batch_norm has to give its statistics, empty where nobody wants any."""
    for slot in ("SavedMean", "SavedVariance"):
        for name in norm.outputs.get(slot, ()):
            why = r.needed(name, [])
            if why and why != r.END:
                return f"{slot} {why}"
    kept = all(norm.outputs.get(f"{slot}Out", norm.inputs[slot]) == norm.inputs[slot] for slot in ("Mean", "Variance"))
    return "" if kept else "batch_norm copies its statistics to other variables"
