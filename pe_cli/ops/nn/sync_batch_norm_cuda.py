"""The halves of sync_batch_norm on CUDA: one device's sums are those of batch_norm; a thread per channel joins those of all."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.channel_norm import finish, gradient_first, gradient_last, normalise_first, normalise_last
from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrF64, Real, T
from pe_cli.kernels.math.moments import join
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.nn.channel_sums_cuda import append_gradient_sums, append_moments
from pe_cli.ops.nn.sync_batch_norm import (
    every_device,
    sizes_of,
    sync_batch_norm,
    sync_batch_norm_grad,
    sync_batch_norm_grad_sums,
    sync_batch_norm_sums,
)


@cuda_kernel
def join_two(total: PtrF64, sums: PtrF64, out: PtrF64, channels: Int):
    """Write the moments of two sets together; out is another place: every thread reads the counts."""
    for c in range(channels):
        count, more = total[2 * channels], sums[2 * channels]
        mean, squares = join(count, total[c], total[channels + c], more, sums[c], sums[channels + c])
        out[c] = mean
        out[channels + c] = squares
        if c == 0:
            out[2 * channels] = count + more


@cuda_kernel
def finish_channels(
    sums: PtrF64, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr,
    channels: Int, momentum: Real, epsilon: Real,
):  # fmt: skip
    """Write saved and running statistics."""
    for c in range(channels):
        finish(
            sums[c], sums[channels + c], sums[2 * channels], old_mean, old_variance, new_mean, new_variance, saved_mean,
            saved_inverse, c, momentum, epsilon,
        )  # fmt: skip


@cuda_kernel
def add_two(total: PtrF64, sums: PtrF64, out: PtrF64, n: Int):
    """out = total + sums."""
    for i in range(n):
        out[i] = total[i] + sums[i]


@cuda_kernel
def share_sums(sums: PtrF64, inverse: Ptr, dscale: Ptr, dbias: Ptr, channels: Int, count: Int):
    """Write totals as shares of count samples; the gradient's kernel divides by count."""
    for c in range(channels):
        share = count / sums[2 * channels] if sums[2 * channels] > 0 else 0.0
        dbias[c] = T(sums[c] * share)
        dscale[c] = T(sums[channels + c] * share * inverse[c])


def _joined(o: Lowering, channels: int, step: Any, n: int) -> Buffer | Offset:
    """Append the calls that join the sums of all devices in their order, and return where the result is."""
    total: Buffer | Offset
    # One after the other in the order of devices, never as a tree: every device computes the same bits.
    total, *others = every_device(o.inputs("Sums"), channels)
    for other in others:
        # A buffer of its own for each step: threads of one channel still read the counts of the last one.
        made = o.scratch(2 * channels + 1, "float64")
        o.call(step, total, other, made, n)
        total = made
    return total


@sync_batch_norm.lower("cuda")
def sync_batch_norm_cuda(o: Lowering) -> None:
    """Join the sums, then a thread per element."""
    x, y = o.input("X"), o.output("Y")
    samples, channels, size, last = sizes_of(o, x)
    mean, inverse = o.output("SavedMean"), o.output("SavedVariance")
    olds = o.input("Mean"), o.input("Variance"), o.output("MeanOut"), o.output("VarianceOut")
    settings = float(o.attrs["momentum"]), float(o.attrs["epsilon"])
    sums = _joined(o, channels, join_two, channels)
    o.call(finish_channels, sums, *olds, mean, inverse, channels, *settings)
    each = (x, mean, inverse, o.input("Scale"), o.input("Bias"), y)
    if last:
        o.call(normalise_last, *each, o.scratch(1, x.dtype), samples * size, channels, channels)
    else:
        o.call(normalise_first, *each, samples, channels, size)


@sync_batch_norm_grad.lower("cuda")
def sync_batch_norm_grad_cuda(o: Lowering) -> None:
    """Join the sums, then a thread per element."""
    x, inverse = o.input("X"), o.input("SavedVariance")
    samples, channels, size, last = sizes_of(o, x)
    dscale, dbias = o.scratch(channels, x.dtype), o.scratch(channels, x.dtype)
    sums = _joined(o, channels, add_two, 2 * channels + 1)
    o.call(share_sums, sums, inverse, dscale, dbias, channels, samples * size)
    each = (x, o.input("Y@GRAD"), o.input("SavedMean"), inverse, o.input("Scale"), dscale, dbias, o.output("X@GRAD"))
    if last:
        o.call(gradient_last, *each, o.scratch(1, x.dtype), samples * size, channels, channels, samples * size)
    else:
        o.call(gradient_first, *each, samples, channels, size, 1)


@sync_batch_norm_sums.lower("cuda")
def sync_batch_norm_sums_cuda(o: Lowering) -> None:
    """The sums of batch_norm, as many blocks as fill a card."""
    x = o.input("X")
    append_moments(o, x, [o.scratch(1, x.dtype)] * 6, (0.0, 0.0), o.output("Sums"))


@sync_batch_norm_grad_sums.lower("cuda")
def sync_batch_norm_grad_sums_cuda(o: Lowering) -> None:
    """The sums of batch_norm's gradient, as many blocks as fill a card."""
    x, of = o.input("X"), (o.input("SavedMean"), o.input("SavedVariance"))
    dscale, dbias = (o.output(s) if o.has(s) else o.scratch(of[0].size, x.dtype) for s in ("Scale@GRAD", "Bias@GRAD"))
    append_gradient_sums(o, x, o.input("Y@GRAD"), dscale, dbias, raw=o.output("Sums"), of=of)
