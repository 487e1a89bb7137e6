"""fuse_bn_statistics: the convolution before a batch_norm finds the mean and the variance of its output, block by block from the caches.

It goes by the same pieces in the same order as batch_norm itself, so that no bit changes. Only training takes statistics, and only images
with the channels last have pieces that are done early.
"""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.core.types import TensorType
from pe_cli.graph.rewrite import Rewriter, fuse_each, joined
from pe_cli.program.ir import Operator, Program

NAME = "fuse_bn_statistics"
NORMS = ("batch_norm", "fused_batch_norm_act", "fused_bn_add_activation")
FUSED = "fused_conv2d_moments"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with convolutions that take statistics, and a sentence on what was done."""
    return fuse_each(NAME, program, fetches, NORMS, _take, "statistics are taken by convolutions", "the program has no batch_norm")


def _take(r: Rewriter, place: int, norm: Operator) -> str:
    """Let the maker of a batch_norm's input find its statistics; return why it does not, empty where it does."""
    if norm.attrs["is_test"] or norm.attrs["use_global_stats"]:
        return "batch_norm uses running statistics"
    if norm.attrs["data_layout"] != "NHWC":
        return "images have their channels first"
    (image,) = norm.inputs["X"]
    source = r.writer(image)
    maker = r.op(source) if source is not None else None
    if source is None or maker is None or maker.type not in ("conv2d", "depthwise_conv2d", FUSED):
        return f"the input of batch_norm is made by {maker.type if maker else 'no op or several'}"
    if maker.role is not norm.role:
        return "a convolution has another role"
    if maker.type != FUSED:
        made = TensorType((2, r.block.var(maker.inputs["Filter"][0]).shape[0]), "float64")
        name = r.block.create_var(r.program.unique(f"{image}.moments"), made, stop_gradient=True).name
        maker = joined([maker], FUSED, maker.inputs, {**maker.outputs, "Moments": [name]}, maker.attrs)
        r.replace([source], maker)
    inputs = {**norm.inputs, "Moments": maker.outputs["Moments"]}
    r.replace([place], joined([norm], norm.type, inputs, norm.outputs, norm.attrs))
    return ""
