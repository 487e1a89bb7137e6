"""Sums of every channel on CUDA: blocks sum parts of the rows, and the last of them that is done adds those up (`block_sums`).

A thread adds a few numbers in the element type before it adds their sum to one of float64.
Sizes alone decide on the parts, which lie as [2, parts, width]: two sums of
each, of parts and, where rows were joined to wider ones, of the columns of a channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.kernels.calls import Tickets
from pe_cli.kernels.cpu.channel_norm import finish
from pe_cli.kernels.cuda.block_sums import is_last
from pe_cli.kernels.cuda.language import cuda, cuda_kernel
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.warp import block_sum
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, Real, T, helper
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.nn.batch_norm import output_or_scratch, sizes_of
from pe_cli.ops.nn.column_sums_cuda import DEEP, WIDE, WORD, by_columns, keep_columns, last_of_columns, parts_of
from pe_cli.ops.nn.conv_tile_cuda import share

#: Threads of a block: a run of neighbours.
RUN: Any = 256
RUN_WARPS: Any = 8
#: Numbers that a thread adds in the element type.
FEW: Any = 16
#: What is known of relu behind batch_norm: nothing; it cuts where the value computed again is not above 0; or where its result is not.
PLAIN: Any = 0
AGAIN: Any = 1
SEEN: Any = 2


@helper
def normal(x, mean, inverse, scale, bias):
    """Return what batch_norm makes of a number."""
    return (x - mean) * (inverse * scale) + bias


@helper
def let_through(g, x, y, i, mean, inverse, scale, bias, cuts):
    """Return the gradient of element i that relu let through."""
    value = g[i]
    if cuts == AGAIN:
        return value if normal(x[i], mean, inverse, scale, bias) > T(0) else T(0)
    if cuts == SEEN:
        return value if y[i] > T(0) else T(0)
    return value


@helper
def sums_of_channel(sums, c, channels, width, parts):
    """Return both sums of a channel over the columns that are it."""
    a = b = 0.0
    column = c
    while column < width:
        a += sums[column]
        b += sums[parts * width + column]
        column += channels
    return a, b


@helper
def keep_moments(
    x, a, b, c, size, count, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, momentum, epsilon, raw, channels,
    plain,
):  # fmt: skip
    """Write the statistics of a channel's count numbers from their sums less the first of them, x[size c]; see `column_moments`."""
    off = a / max(1, count)
    mean = x[size * c] + off if count > 0 else 0.0
    squares = max(0.0, b - a * off) if b == b else b
    if plain:
        raw[c] = mean
        raw[channels + c] = squares
        if c == 0:
            raw[2 * channels] = count
    else:
        finish(
            mean, squares, count, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, c, momentum, epsilon,
        )  # fmt: skip


@helper
def keep_gradient_sums(a, b, c, inverse, dscale, dbias, raw, channels, count, plain):
    """Write the gradients of a channel's scale and bias; see `column_gradient_sums`."""
    dbias[c] = T(a)
    dscale[c] = T(b * inverse[c])
    if plain:
        raw[c] = a
        raw[channels + c] = b
        if c == 0:
            raw[2 * channels] = count


@cuda_kernel(block=(32, DEEP, 1), threads=("width", "8", "parts"))
def column_moments(
    x: Ptr, sums: PtrF64, rows: Int, width: Int, channels: Int, parts: Int, tickets: PtrI64, each: Int, old_mean: Ptr, old_variance: Ptr,
    new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr, momentum: Real, epsilon: Real, raw: PtrF64, plain: Int,
    count: Int,
):  # fmt: skip
    """Statistics of the columns of [rows, width], which are the channels over and over.

    They are those of `count` numbers each, and come from sums of the numbers less the channel's first, and of their squares. plain:
    means, sums of squared deviations and the count are written to raw, and nothing else.
    """
    lane, me, part = int(cuda.threadIdx.x), int(cuda.threadIdx.y), int(cuda.blockIdx.z)
    first, second = cuda.shared.array((DEEP, 32), WIDE), cuda.shared.array((DEEP, 32), WIDE)
    told = cuda.shared.array(1, WORD)
    column = int(cuda.blockIdx.x) * 32 + lane
    there = column < width
    row = share(rows, part, parts) + me
    end = share(rows, part + 1, parts) if there else 0
    origin = x[column - quotient(column, channels) * channels] if row < end else T(0)
    a = b = 0.0
    while row < end:
        stop = min(end, row + FEW * DEEP)
        p = q = T(0)
        while row + 3 * DEEP < stop:
            at = row * width + column
            d0, d1 = x[at] - origin, x[at + DEEP * width] - origin
            d2, d3 = x[at + 2 * DEEP * width] - origin, x[at + 3 * DEEP * width] - origin
            p += (d0 + d1) + (d2 + d3)
            q += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
            row += 4 * DEEP
        while row < stop:
            d = x[row * width + column] - origin
            p += d
            q += d * d
            row += DEEP
        a += p
        b += q
    keep_columns(first, second, a, b, sums, part * width + column, parts * width, me, lane, there)
    across, blocks = int(cuda.blockIdx.x), int(cuda.gridDim.x)
    if last_of_columns(first, second, sums, tickets, each, told, width, channels, parts, me, lane, across, blocks, part):
        c, apart = (column if me == 0 else channels, channels) if width == channels else (DEEP * lane + me, 32 * DEEP)
        while c < channels:
            a, b = sums_of_channel(sums, c, channels, width, parts)
            keep_moments(
                x, a, b, c, 1, count, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse,
                momentum, epsilon, raw, channels, plain,
            )  # fmt: skip
            c += apart


@cuda_kernel(block=(32, DEEP, 1), threads=("width", "8", "parts"))
def column_gradient_sums(
    x: Ptr, g: Ptr, y: Ptr, cut: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, sums: PtrF64, rows: Int, width: Int, channels: Int,
    parts: Int, cuts: Int, tickets: PtrI64, each: Int, dscale: Ptr, dbias: Ptr, raw: PtrF64, plain: Int, count: Int,
):  # fmt: skip
    """Gradients of scale and bias by sums of g and of g (x - mean) over the columns of [rows, width], see `column_moments`.

    Where relu's result y tells what of g it let through, that is written to cut. plain: both sums and the count are written to raw, too.
    """
    lane, me, part = int(cuda.threadIdx.x), int(cuda.threadIdx.y), int(cuda.blockIdx.z)
    first, second = cuda.shared.array((DEEP, 32), WIDE), cuda.shared.array((DEEP, 32), WIDE)
    told = cuda.shared.array(1, WORD)
    column = int(cuda.blockIdx.x) * 32 + lane
    there = column < width
    c = min(column, width - 1) - quotient(min(column, width - 1), channels) * channels
    middle, over, factor, shift = mean[c], inverse[c], scale[c], bias[c]
    row = share(rows, part, parts) + me
    end = share(rows, part + 1, parts) if there else 0
    a = b = 0.0
    while row < end:
        stop = min(end, row + FEW * DEEP)
        p = q = T(0)
        while row < stop:
            i = row * width + column
            value = let_through(g, x, y, i, middle, over, factor, shift, cuts)
            if cuts == SEEN:
                cut[i] = value
            p += value
            q += value * (x[i] - middle)
            row += DEEP
        a += p
        b += q
    keep_columns(first, second, a, b, sums, part * width + column, parts * width, me, lane, there)
    across, blocks = int(cuda.blockIdx.x), int(cuda.gridDim.x)
    if last_of_columns(first, second, sums, tickets, each, told, width, channels, parts, me, lane, across, blocks, part):
        c, apart = (column if me == 0 else channels, channels) if width == channels else (DEEP * lane + me, 32 * DEEP)
        while c < channels:
            a, b = sums_of_channel(sums, c, channels, width, parts)
            keep_gradient_sums(a, b, c, inverse, dscale, dbias, raw, channels, count, plain)
            c += apart


@helper
def last_of_run(first, second, sums, tickets, told, a, b, channels, parts, c, part, me):
    """Return whether this block is the last of a channel's, and in its thread 0 the sums of all parts."""
    a = block_sum(first, a, me, RUN_WARPS)
    b = block_sum(second, b, me, RUN_WARPS)
    if parts == 1:
        return True, a, b
    if me == 0:
        sums[part * channels + c] = a
        sums[(parts + part) * channels + c] = b
    done = is_last(tickets, c, parts, told, me)
    a = b = 0.0
    if done:
        k = me
        while k < parts:
            a += sums[k * channels + c]
            b += sums[(parts + k) * channels + c]
            k += RUN
        a = block_sum(first, a, me, RUN_WARPS)
        b = block_sum(second, b, me, RUN_WARPS)
    return done, a, b


@cuda_kernel(block=(RUN, 1, 1), threads=("channels * 256", "1", "parts"))
def run_moments(
    x: Ptr, sums: PtrF64, samples: Int, channels: Int, size: Int, parts: Int, tickets: PtrI64, old_mean: Ptr, old_variance: Ptr,
    new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr, momentum: Real, epsilon: Real, raw: PtrF64, plain: Int,
):  # fmt: skip
    """As `column_moments`, of [samples, channels, size]: a block does a part of one channel."""
    me, part, c = int(cuda.threadIdx.x), int(cuda.blockIdx.z), int(cuda.blockIdx.x)
    first, second = cuda.shared.array(RUN_WARPS, WIDE), cuda.shared.array(RUN_WARPS, WIDE)
    told = cuda.shared.array(1, WORD)
    i, end = share(samples * size, part, parts) + me, share(samples * size, part + 1, parts)
    origin = x[c * size] if i < end else T(0)
    a = b = 0.0
    while i < end:
        stop = min(end, i + FEW * RUN)
        p = q = T(0)
        while i < stop:
            sample = quotient(i, size)
            d = x[(sample * channels + c) * size + i - sample * size] - origin
            p += d
            q += d * d
            i += RUN
        a += p
        b += q
    done, a, b = last_of_run(first, second, sums, tickets, told, a, b, channels, parts, c, part, me)
    if done and me == 0:
        keep_moments(
            x, a, b, c, size, samples * size, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, momentum,
            epsilon, raw, channels, plain,
        )  # fmt: skip


@cuda_kernel(block=(RUN, 1, 1), threads=("channels * 256", "1", "parts"))
def run_gradient_sums(
    x: Ptr, g: Ptr, y: Ptr, cut: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, sums: PtrF64, samples: Int, channels: Int, size: Int,
    parts: Int, cuts: Int, tickets: PtrI64, dscale: Ptr, dbias: Ptr, raw: PtrF64, plain: Int,
):  # fmt: skip
    """As `column_gradient_sums`, of [samples, channels, size]."""
    me, part, c = int(cuda.threadIdx.x), int(cuda.blockIdx.z), int(cuda.blockIdx.x)
    first, second = cuda.shared.array(RUN_WARPS, WIDE), cuda.shared.array(RUN_WARPS, WIDE)
    told = cuda.shared.array(1, WORD)
    i, end = share(samples * size, part, parts) + me, share(samples * size, part + 1, parts)
    middle, over, factor, shift = mean[c], inverse[c], scale[c], bias[c]
    a = b = 0.0
    while i < end:
        stop = min(end, i + FEW * RUN)
        p = q = T(0)
        while i < stop:
            sample = quotient(i, size)
            at = (sample * channels + c) * size + i - sample * size
            value = let_through(g, x, y, at, middle, over, factor, shift, cuts)
            if cuts == SEEN:
                cut[at] = value
            p += value
            q += value * (x[at] - middle)
            i += RUN
        a += p
        b += q
    done, a, b = last_of_run(first, second, sums, tickets, told, a, b, channels, parts, c, part, me)
    if done and me == 0:
        keep_gradient_sums(a, b, c, inverse, dscale, dbias, raw, channels, samples * size, plain)


def append_moments(o: Lowering, x: Buffer, statistics: Sequence[Buffer], settings: tuple[float, float], raw: Buffer | None = None) -> None:
    """Append the call that writes the statistics of a batch.

    Args:
        o: where to.
        x: the batch.
        statistics: running mean and variance, those to write, and the mean and 1 / deviation of the batch.
        settings: momentum and epsilon.
        raw: where means, sums of squared deviations and the count go instead, [2 channels + 1] float64.
    """
    n, channels, size = sizes_of(o, x)

    def behind(sums: Buffer) -> tuple[Any, ...]:
        return (*statistics, *settings, raw or sums, int(raw is not None))

    if size == 1:
        rows, width, parts, sums, tickets = by_columns(o, n, channels)
        o.call(column_moments, x, sums, rows, width, channels, parts, *tickets, *behind(sums), n)
    else:
        parts = parts_of(channels, n * size // 4)
        sums = o.scratch(2 * parts * channels, "float64")
        o.call(run_moments, x, sums, n, channels, size, parts, Tickets(channels), *behind(sums))


def append_statistics(o: Lowering, x: Buffer) -> tuple[Buffer, Buffer]:
    """Append the call that writes all statistics of a batch in training, and return the mean and 1 / deviation to use."""
    mean, variance = o.input("Mean"), o.input("Variance")
    saved, inverse = output_or_scratch(o, "SavedMean", mean), output_or_scratch(o, "SavedVariance", variance)
    new = output_or_scratch(o, "MeanOut", mean), output_or_scratch(o, "VarianceOut", variance)
    append_moments(o, x, (mean, variance, *new, saved, inverse), (o.attrs["momentum"], o.attrs["epsilon"]))
    return saved, inverse


def append_gradient_sums(
    o: Lowering,
    x: Buffer,
    g: Buffer,
    dscale: Buffer,
    dbias: Buffer,
    cuts: int = PLAIN,
    y: Buffer | None = None,
    cut: Buffer | None = None,
    *,
    raw: Buffer | None = None,
    of: tuple[Buffer, Buffer] | None = None,
) -> None:
    """Append the call that writes the gradients of scale and bias.

    Args:
        o: of a batch_norm-like gradient.
        x, g: its input, and the gradient of its result.
        dscale, dbias: where to.
        cuts: what is known of relu.
        y, cut: where it is seen: its result, and where to write what it let through.
        raw: where both sums and the count go, too, [2 channels + 1] float64.
        of: mean and 1 / deviation, where the op calls them otherwise and has no scale.
    """
    mean, inverse = of or (o.input("SavedMean"), o.input("SavedVariance"))
    scale = inverse if of else o.input("Scale")
    bias = o.input("Bias") if cuts == AGAIN else scale
    n, channels, size = sizes_of(o, x)
    each = (x, g, y or g, cut or dscale, mean, inverse, scale, bias)
    plain = int(raw is not None)
    if size == 1:
        rows, width, parts, sums, tickets = by_columns(o, n, channels)
        o.call(column_gradient_sums, *each, sums, rows, width, channels, parts, cuts, *tickets, dscale, dbias, raw or sums, plain, n)
    else:
        parts = parts_of(channels, n * size // 4)
        sums = o.scratch(2 * parts * channels, "float64")
        o.call(run_gradient_sums, *each, sums, n, channels, size, parts, cuts, Tickets(channels), dscale, dbias, raw or sums, plain)
