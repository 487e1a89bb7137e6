"""batch_norm on CUDA: sums in parts (`channel_sums_cuda`), then values and gradients, four at a time where channels allow."""

from __future__ import annotations

from pe_cli.kernels.cpu.channel_norm import (
    copy_two,
    gradient_first,
    gradient_last,
    normalise_first,
    normalise_last,
    statistics_given,
)
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.vector_access import load_four, store_four
from pe_cli.kernels.language import Int, Ptr, T, helper
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.nn.batch_norm import batch_norm, gradients_of, sizes_of, statistics
from pe_cli.ops.nn.channel_sums_cuda import append_gradient_sums, append_statistics, normal


@helper
def channel_of(i, channels):
    """Return the channel of an element with the channels last."""
    return i - quotient(i, channels) * channels


@on_cuda(normalise_first)
def normalise_first_cuda(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, samples: Int, channels: Int, size: Int
):
    """One thread per element."""
    for i in range(samples * channels * size):
        c = channel_of(quotient(i, size), channels)
        y[i] = normal(x[i], mean[c], inverse[c], scale[c], bias[c])


@on_cuda(normalise_last)
def normalise_last_cuda(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, table: Ptr, rows: Int, width: Int, channels: Int
):
    """One thread per four elements, or per element, without the table."""
    # Four elements of one load have channels side by side, which holds only where channels are a multiple of 4.
    if channels % 4 == 0:
        for q in range(rows * width // 4):
            i = 4 * q
            c = channel_of(i, channels)
            x0, x1, x2, x3 = load_four(x, i)
            m0, m1, m2, m3 = load_four(mean, c)
            v0, v1, v2, v3 = load_four(inverse, c)
            s0, s1, s2, s3 = load_four(scale, c)
            b0, b1, b2, b3 = load_four(bias, c)
            store_four(y, i, normal(x0, m0, v0, s0, b0), normal(x1, m1, v1, s1, b1), normal(x2, m2, v2, s2, b2), normal(x3, m3, v3, s3, b3))
    else:
        for i in range(rows * width):
            c = channel_of(i, channels)
            y[i] = normal(x[i], mean[c], inverse[c], scale[c], bias[c])


@helper
def slope(x, g, mean, inverse, scale, dscale, dbias, share):
    """Return the gradient of a number."""
    f = scale * inverse
    return f * g - f * inverse * dscale * share * (x - mean) - f * dbias * share


@on_cuda(gradient_first)
def gradient_first_cuda(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, samples: Int, channels: Int,
    size: Int, batch: Int,
):  # fmt: skip
    """One thread per element."""
    share = T(batch) / T(max(1, samples * size))
    for i in range(samples * channels * size):
        c = channel_of(quotient(i, size), channels)
        dx[i] = slope(x[i], g[i], mean[c], inverse[c], scale[c], dscale[c], dbias[c], share)


@on_cuda(gradient_last)
def gradient_last_cuda(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, table: Ptr, rows: Int,
    width: Int, channels: Int, count: Int,
):  # fmt: skip
    """One thread per four elements, or per element, without the table."""
    # 0 where moments are fixed: the two terms that stand for the moments' dependence on x then vanish, without a second kernel.
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
            d0, d1, d2, d3 = load_four(dscale, c)
            b0, b1, b2, b3 = load_four(dbias, c)
            store_four(
                dx, i, slope(x0, g0, m0, v0, s0, d0, b0, share), slope(x1, g1, m1, v1, s1, d1, b1, share),
                slope(x2, g2, m2, v2, s2, d2, b2, share), slope(x3, g3, m3, v3, s3, d3, b3, share),
            )  # fmt: skip
    else:
        for i in range(rows * width):
            c = channel_of(i, channels)
            dx[i] = slope(x[i], g[i], mean[c], inverse[c], scale[c], dscale[c], dbias[c], share)


deal(statistics_given, copy_two)


def statistics_on_cuda(o: Lowering, x: Buffer) -> tuple[Buffer, Buffer]:
    """Append the calls that write all statistics of a batch_norm-like op, and return the mean and 1 / deviation to use."""
    given = o.attrs["is_test"] or o.attrs["use_global_stats"] or o.has("Moments")
    return statistics(o, x) if given else append_statistics(o, x)


@batch_norm.lower("cuda")
def batch_norm_cuda(o: Lowering) -> None:
    """Statistics, then values."""
    x, y, scale, bias = o.input("X"), o.output("Y"), o.input("Scale"), o.input("Bias")
    each = (*statistics_on_cuda(o, x), scale, bias, y)
    n, channels, size = sizes_of(o, x)
    if size == 1:
        o.call(normalise_last, x, *each, o.scratch(1, x.dtype), n, channels, channels)
    else:
        o.call(normalise_first, x, *each, n, channels, size)


def append_input_gradient(o: Lowering, x: Buffer, g: Buffer, dscale: Buffer, dbias: Buffer, batch: int) -> None:
    """Append the gradient of X, where it is wanted, from g behind any relu."""
    if not o.has("X@GRAD"):
        return
    dx = o.output("X@GRAD")
    each = (x, g, o.input("SavedMean"), o.input("SavedVariance"), o.input("Scale"), dscale, dbias, dx)
    n, channels, size = sizes_of(o, x)
    if size == 1:
        o.call(gradient_last, *each, o.scratch(1, x.dtype), n, channels, channels, n * batch)
    else:
        o.call(gradient_first, *each, n, channels, size, batch)


@batch_norm.grad_op.lower("cuda")  # type: ignore[union-attr]
def batch_norm_grad_cuda(o: Lowering) -> None:
    """Sums for Bias and Scale, then X'."""
    x, g = o.input("X"), o.input("Y@GRAD")
    dscale, dbias, batch, needed = gradients_of(o)
    if needed:
        append_gradient_sums(o, x, g, dscale, dbias)
    append_input_gradient(o, x, g, dscale, dbias, batch)
