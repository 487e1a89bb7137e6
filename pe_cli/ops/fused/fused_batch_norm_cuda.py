"""fused_batch_norm_act and fused_bn_add_activation on CUDA: what the separate ops do, one after the other."""

from __future__ import annotations

from dataclasses import replace

from pe_cli.kernels.channel_norm import normalise_first, normalise_last
from pe_cli.ops.define.addto import add
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.fused.fused_batch_norm import fused_batch_norm_act, fused_bn_add_activation
from pe_cli.ops.math.activation import relu
from pe_cli.ops.nn.batch_norm import batch_norm, output_or_scratch, sizes_of


def _norm(o: Lowering, **slots: list[Buffer]) -> Lowering:
    """Return the same place for batch_norm's own lowering, with other buffers in some slots."""
    ins = {s: slots.get(s, b) for s, b in o.input_buffers.items()}
    outs = {s: slots.get(s, b) for s, b in o.output_buffers.items()}
    return replace(o, op=batch_norm, input_buffers=ins, output_buffers=outs)


def _norm_back(o: Lowering, g: Buffer) -> None:
    """Append batch_norm's gradient of what relu let through."""
    low = _norm(o)
    assert batch_norm.grad_op is not None
    batch_norm.grad_op.lowerings["cuda"](replace(low, input_buffers={**low.input_buffers, "Y@GRAD": [g]}))


@fused_batch_norm_act.lower("cuda")
def fused_batch_norm_act_cuda(o: Lowering) -> None:
    """As the separate ops."""
    y = o.output("Y")
    batch_norm.lowerings["cuda"](_norm(o))
    if y.size:
        o.call(relu.kernel, y, y, y.size)


@fused_batch_norm_act.grad_op.lower("cuda")  # type: ignore[union-attr]
def fused_batch_norm_act_grad_cuda(o: Lowering) -> None:
    """Where relu cut is computed again; then as the separate ops."""
    x, scale, bias, g = o.input("X"), o.input("Scale"), o.input("Bias"), o.input("Y@GRAD")
    saved, inverse = o.input("SavedMean"), o.input("SavedVariance")
    n, channels, size = sizes_of(o, x)
    cut = o.scratch_like(x)
    if size == 1:
        o.call(normalise_last, x, saved, inverse, scale, bias, cut, o.scratch(1, x.dtype), n, channels, channels)
    else:
        o.call(normalise_first, x, saved, inverse, scale, bias, cut, n, channels, size)
    assert relu.back_kernel is not None
    if x.size:
        o.call(relu.back_kernel, g, cut, cut, x.size)
    _norm_back(o, cut)


@fused_bn_add_activation.lower("cuda")
def fused_bn_add_activation_cuda(o: Lowering) -> None:
    """As the separate ops; Y may lie where Z does, so that what is normalised goes to scratch."""
    y = o.output("Y")
    made = o.scratch_like(y)
    batch_norm.lowerings["cuda"](_norm(o, Y=[made]))
    if y.size:
        o.call(add, made, o.input("Z"), y, y.size)
        o.call(relu.kernel, y, y, y.size)


@fused_bn_add_activation.grad_op.lower("cuda")  # type: ignore[union-attr]
def fused_bn_add_activation_grad_cuda(o: Lowering) -> None:
    """As the separate ops."""
    x, g = o.input("X"), o.input("Y@GRAD")
    cut = output_or_scratch(o, "Z@GRAD", x)
    assert relu.back_kernel is not None
    if x.size:
        o.call(relu.back_kernel, g, o.input("Y"), cut, x.size)
    _norm_back(o, cut)
