"""fused_batch_norm_act and fused_bn_add_activation on CUDA: relu, and the sum before it, in batch_norm's own passes."""

from __future__ import annotations

from pe_cli.kernels.cpu.channel_norm_act import (
    normalise_add_relu_first,
    normalise_add_relu_last,
    normalise_relu_first,
    normalise_relu_last,
    relu_back_first,
    relu_gradient_last,
)
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.vector_access import load_four, store_four
from pe_cli.kernels.language import Int, Ptr, T, helper
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.fused.fused_batch_norm import fused_batch_norm_act, fused_bn_add_activation
from pe_cli.ops.math.activation import relu
from pe_cli.ops.nn.batch_norm import gradients_of, output_or_scratch, sizes_of
from pe_cli.ops.nn.batch_norm_cuda import append_input_gradient, channel_of, slope, statistics_on_cuda
from pe_cli.ops.nn.channel_sums_cuda import AGAIN, SEEN, append_gradient_sums, normal


@helper
def cut(x):
    """Return what relu makes of a number."""
    return T(0) if x <= T(0) else x


@on_cuda(normalise_relu_last)
def normalise_relu_last_cuda(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, table: Ptr, rows: Int, width: Int, channels: Int
):
    """One thread per four elements, or per element, without the table."""
    # Then four neighbours have four channels side by side: no four of them lie across the end of a pixel.
    if channels % 4 == 0:
        for q in range(rows * width // 4):
            i = 4 * q
            c = channel_of(i, channels)
            x0, x1, x2, x3 = load_four(x, i)
            m0, m1, m2, m3 = load_four(mean, c)
            v0, v1, v2, v3 = load_four(inverse, c)
            s0, s1, s2, s3 = load_four(scale, c)
            b0, b1, b2, b3 = load_four(bias, c)
            store_four(
                y, i, cut(normal(x0, m0, v0, s0, b0)), cut(normal(x1, m1, v1, s1, b1)), cut(normal(x2, m2, v2, s2, b2)),
                cut(normal(x3, m3, v3, s3, b3)),
            )  # fmt: skip
    else:
        for i in range(rows * width):
            c = channel_of(i, channels)
            y[i] = cut(normal(x[i], mean[c], inverse[c], scale[c], bias[c]))


@on_cuda(normalise_add_relu_last)
def normalise_add_relu_last_cuda(
    x: Ptr, z: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, table: Ptr, rows: Int, width: Int,
    channels: Int,
):  # fmt: skip
    """One thread per four elements, or per element, without the table; y may be z."""
    if channels % 4 == 0:
        for q in range(rows * width // 4):
            i = 4 * q
            c = channel_of(i, channels)
            x0, x1, x2, x3 = load_four(x, i)
            z0, z1, z2, z3 = load_four(z, i)
            m0, m1, m2, m3 = load_four(mean, c)
            v0, v1, v2, v3 = load_four(inverse, c)
            s0, s1, s2, s3 = load_four(scale, c)
            b0, b1, b2, b3 = load_four(bias, c)
            store_four(
                y, i, cut(normal(x0, m0, v0, s0, b0) + z0), cut(normal(x1, m1, v1, s1, b1) + z1),
                cut(normal(x2, m2, v2, s2, b2) + z2), cut(normal(x3, m3, v3, s3, b3) + z3),
            )  # fmt: skip
    else:
        for i in range(rows * width):
            c = channel_of(i, channels)
            y[i] = cut(normal(x[i], mean[c], inverse[c], scale[c], bias[c]) + z[i])


@on_cuda(normalise_relu_first)
def normalise_relu_first_cuda(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, samples: Int, channels: Int, size: Int
):
    """One thread per element."""
    for i in range(samples * channels * size):
        c = channel_of(quotient(i, size), channels)
        y[i] = cut(normal(x[i], mean[c], inverse[c], scale[c], bias[c]))


@on_cuda(normalise_add_relu_first)
def normalise_add_relu_first_cuda(
    x: Ptr, z: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, row: Ptr, samples: Int, channels: Int, size: Int
):
    """One thread per element; y may be z."""
    for i in range(samples * channels * size):
        c = channel_of(quotient(i, size), channels)
        y[i] = cut(normal(x[i], mean[c], inverse[c], scale[c], bias[c]) + z[i])


@helper
def let(x, g, mean, inverse, scale, bias):
    """Return the gradient that relu let through."""
    return g if normal(x, mean, inverse, scale, bias) > T(0) else T(0)


@on_cuda(relu_gradient_last)
def relu_gradient_last_cuda(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, table: Ptr,
    rows: Int, width: Int, channels: Int, count: Int,
):  # fmt: skip
    """One thread per four elements, or per element, without the table; dx may be g."""
    # 0 where the statistics are fixed, see `gradient_last_cuda`.
    share = T(min(1, count)) / T(max(1, count))
    if channels % 4 == 0:
        for q in range(rows * width // 4):
            i = 4 * q
            c = channel_of(i, channels)
            x0, x1, x2, x3 = load_four(x, i)
            g0, g1, g2, g3 = load_four(g, i)
            m0, m1, m2, m3 = load_four(mean, c)
            v0, v1, v2, v3 = load_four(inverse, c)
            s0, s1, s2, s3 = load_four(scale, c)
            b0, b1, b2, b3 = load_four(bias, c)
            d0, d1, d2, d3 = load_four(dscale, c)
            e0, e1, e2, e3 = load_four(dbias, c)
            store_four(
                dx, i, slope(x0, let(x0, g0, m0, v0, s0, b0), m0, v0, s0, d0, e0, share),
                slope(x1, let(x1, g1, m1, v1, s1, b1), m1, v1, s1, d1, e1, share),
                slope(x2, let(x2, g2, m2, v2, s2, b2), m2, v2, s2, d2, e2, share),
                slope(x3, let(x3, g3, m3, v3, s3, b3), m3, v3, s3, d3, e3, share),
            )  # fmt: skip
    else:
        for i in range(rows * width):
            c = channel_of(i, channels)
            value = let(x[i], g[i], mean[c], inverse[c], scale[c], bias[c])
            dx[i] = slope(x[i], value, mean[c], inverse[c], scale[c], dscale[c], dbias[c], share)


@on_cuda(relu_back_first)
def relu_back_first_cuda(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, out: Ptr, samples: Int, channels: Int, size: Int
):
    """One thread per element; out may be g."""
    for i in range(samples * channels * size):
        c = channel_of(quotient(i, size), channels)
        out[i] = let(x[i], g[i], mean[c], inverse[c], scale[c], bias[c])


@fused_batch_norm_act.lower("cuda")
def fused_batch_norm_act_cuda(o: Lowering) -> None:
    """Statistics, then values with relu."""
    x, y, scale, bias = o.input("X"), o.output("Y"), o.input("Scale"), o.input("Bias")
    each = (*statistics_on_cuda(o, x), scale, bias, y)
    n, channels, size = sizes_of(o, x)
    if size == 1:
        # The CPU's kernel has a table of parameters, which the one of CUDA neither fills nor reads: one element stands in.
        o.call(normalise_relu_last, x, *each, o.scratch(1, x.dtype), n, channels, channels)
    else:
        o.call(normalise_relu_first, x, *each, n, channels, size)


@fused_batch_norm_act.grad_op.lower("cuda")  # type: ignore[union-attr]
def fused_batch_norm_act_grad_cuda(o: Lowering) -> None:
    """Where relu cut is computed again from X, which is read anyway."""
    x, g = o.input("X"), o.input("Y@GRAD")
    dscale, dbias, batch, needed = gradients_of(o)
    if needed:
        append_gradient_sums(o, x, g, dscale, dbias, AGAIN)
    if not o.has("X@GRAD"):
        return
    dx, each = o.output("X@GRAD"), (o.input("SavedMean"), o.input("SavedVariance"), o.input("Scale"), o.input("Bias"))
    n, channels, size = sizes_of(o, x)
    if size == 1:
        o.call(relu_gradient_last, x, g, *each, dscale, dbias, dx, o.scratch(1, x.dtype), n, channels, channels, n * batch)
    else:
        o.call(relu_back_first, x, g, *each, dx, n, channels, size)
        append_input_gradient(o, x, dx, dscale, dbias, batch)


@fused_bn_add_activation.lower("cuda")
def fused_bn_add_activation_cuda(o: Lowering) -> None:
    """Statistics, then values with the sum and relu."""
    x, z, y, scale, bias = o.input("X"), o.input("Z"), o.output("Y"), o.input("Scale"), o.input("Bias")
    each = (*statistics_on_cuda(o, x), scale, bias, y, o.scratch(1, x.dtype))
    n, channels, size = sizes_of(o, x)
    if size == 1:
        o.call(normalise_add_relu_last, x, z, *each, n, channels, channels)
    else:
        o.call(normalise_add_relu_first, x, z, *each, n, channels, size)


@fused_bn_add_activation.grad_op.lower("cuda")  # type: ignore[union-attr]
def fused_bn_add_activation_grad_cuda(o: Lowering) -> None:
    """Z' is what relu lets through, written by the pass that sums; X' comes in a second one."""
    x, y, g = o.input("X"), o.input("Y"), o.input("Y@GRAD")
    through = output_or_scratch(o, "Z@GRAD", x)
    dscale, dbias, batch, needed = gradients_of(o)
    if needed:
        append_gradient_sums(o, x, g, dscale, dbias, SEEN, y, through)
    elif x.size:
        assert relu.back_kernel is not None
        o.call(relu.back_kernel, g, y, through, x.size)
    append_input_gradient(o, x, through, dscale, dbias, batch)
