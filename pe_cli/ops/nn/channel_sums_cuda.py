"""Sums of every channel on CUDA, in two stages: blocks sum parts of the rows, then a block per channel adds those up.

A thread adds a few numbers in the element type before it adds their sum to one of float64.
Sizes alone decide on the parts, which lie as [2, items, channels]: two sums of
each, of parts and, where rows were joined to wider ones, of the columns of a channel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.channel_norm import finish
from pe_cli.kernels.cuda import cuda, cuda_kernel
from pe_cli.kernels.cuda_math import quotient
from pe_cli.kernels.lang import Int, Ptr, PtrF64, Real, T, helper
from pe_cli.kernels.warp import block_sum
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.nn.batch_norm import fold, output_or_scratch, sizes_of
from pe_cli.ops.nn.conv_tiles_cuda import share

WIDE: Any = np.float64
#: Threads of a block: 32 columns, and as many rows at a time; or a run of neighbours.
DEEP: Any = 8
RUN: Any = 256
RUN_WARPS: Any = 8
#: Numbers that a thread adds in the element type.
FEW: Any = 16
#: Threads that add up the parts of a channel, and their warps.
ADDERS: Any = 128
ADDING_WARPS: Any = 4
#: Blocks that fill a card, and the least rows of a part.
BLOCKS, LEAST = 132 * 8, 64
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
def keep_columns(first, second, a, b, sums, at, apart, me, lane, there):
    """Write the sums of a block's rows to place at, and apart behind it."""
    first[me, lane] = a
    second[me, lane] = b
    cuda.syncthreads()
    if me == 0 and there:
        for k in range(1, DEEP):
            a += first[k, lane]
            b += second[k, lane]
        sums[at] = a
        sums[apart + at] = b


@cuda_kernel(block=(32, DEEP, 1), threads=("width", "8", "parts"))
def column_moments(x: Ptr, sums: PtrF64, rows: Int, width: Int, channels: Int, parts: Int):
    """Sums of [rows, width], whose columns are the channels over and over, less the channel's first number, and of their squares."""
    lane, me, part = int(cuda.threadIdx.x), int(cuda.threadIdx.y), int(cuda.blockIdx.z)
    first, second = cuda.shared.array((DEEP, 32), WIDE), cuda.shared.array((DEEP, 32), WIDE)
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


@cuda_kernel(block=(32, DEEP, 1), threads=("width", "8", "parts"))
def column_gradient_sums(
    x: Ptr, g: Ptr, y: Ptr, cut: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, sums: PtrF64, rows: Int, width: Int, channels: Int,
    parts: Int, cuts: Int,
):  # fmt: skip
    """Sums of g and of g (x - mean), of [rows, width]; where relu's result y tells what of g it let through, that is written to cut."""
    lane, me, part = int(cuda.threadIdx.x), int(cuda.threadIdx.y), int(cuda.blockIdx.z)
    first, second = cuda.shared.array((DEEP, 32), WIDE), cuda.shared.array((DEEP, 32), WIDE)
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


@cuda_kernel(block=(RUN, 1, 1), threads=("channels * 256", "1", "parts"))
def run_moments(x: Ptr, sums: PtrF64, samples: Int, channels: Int, size: Int, parts: Int):
    """As `column_moments`, of [samples, channels, size]: a block does a part of one channel."""
    me, part, c = int(cuda.threadIdx.x), int(cuda.blockIdx.z), int(cuda.blockIdx.x)
    first, second = cuda.shared.array(RUN_WARPS, WIDE), cuda.shared.array(RUN_WARPS, WIDE)
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
    a = block_sum(first, a, me, RUN_WARPS)
    b = block_sum(second, b, me, RUN_WARPS)
    if me == 0:
        sums[part * channels + c] = a
        sums[(parts + part) * channels + c] = b


@cuda_kernel(block=(RUN, 1, 1), threads=("channels * 256", "1", "parts"))
def run_gradient_sums(
    x: Ptr, g: Ptr, y: Ptr, cut: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, sums: PtrF64, samples: Int, channels: Int, size: Int,
    parts: Int, cuts: Int,
):  # fmt: skip
    """As `column_gradient_sums`, of [samples, channels, size]."""
    me, part, c = int(cuda.threadIdx.x), int(cuda.blockIdx.z), int(cuda.blockIdx.x)
    first, second = cuda.shared.array(RUN_WARPS, WIDE), cuda.shared.array(RUN_WARPS, WIDE)
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
    a = block_sum(first, a, me, RUN_WARPS)
    b = block_sum(second, b, me, RUN_WARPS)
    if me == 0:
        sums[part * channels + c] = a
        sums[(parts + part) * channels + c] = b


@helper
def both_sums(first, second, sums, items, channels, c, me):
    """Return, in thread 0, both sums of a channel."""
    a = b = 0.0
    i = me
    while i < items:
        a += sums[i * channels + c]
        b += sums[(items + i) * channels + c]
        i += ADDERS
    return block_sum(first, a, me, ADDING_WARPS), block_sum(second, b, me, ADDING_WARPS)


@cuda_kernel(block=(ADDERS,), threads=("channels * 128",))
def finish_moments(
    x: Ptr, sums: PtrF64, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr,
    items: Int, channels: Int, size: Int, count: Int, momentum: Real, epsilon: Real,
):  # fmt: skip
    """The statistics of count numbers a channel from parts of their sums less the first of them, x[size c]."""
    me, c = int(cuda.threadIdx.x), int(cuda.blockIdx.x)
    first, second = cuda.shared.array(ADDING_WARPS, WIDE), cuda.shared.array(ADDING_WARPS, WIDE)
    a, b = both_sums(first, second, sums, items, channels, c, me)
    if me == 0:
        off = a / max(1, count)
        mean = x[size * c] + off if count > 0 else 0.0
        finish(
            mean, max(0.0, b - a * off) if b == b else b, count, old_mean, old_variance, new_mean, new_variance, saved_mean,
            saved_inverse, c, momentum, epsilon,
        )  # fmt: skip


@cuda_kernel(block=(ADDERS,), threads=("channels * 128",))
def finish_gradient_sums(sums: PtrF64, inverse: Ptr, dscale: Ptr, dbias: Ptr, items: Int, channels: Int):
    """The gradients of scale and bias from parts of their sums."""
    me, c = int(cuda.threadIdx.x), int(cuda.blockIdx.x)
    first, second = cuda.shared.array(ADDING_WARPS, WIDE), cuda.shared.array(ADDING_WARPS, WIDE)
    a, b = both_sums(first, second, sums, items, channels, c, me)
    if me == 0:
        dbias[c] = T(a)
        dscale[c] = T(b * inverse[c])


def _parts(blocks: int, rows: int) -> int:
    return max(1, min(BLOCKS // max(1, blocks), rows // LEAST))


def append_statistics(o: Lowering, x: Buffer) -> tuple[Buffer, Buffer]:
    """Append the calls that write all statistics of a batch in training, and return the mean and 1 / deviation to use."""
    mean, variance = o.input("Mean"), o.input("Variance")
    n, channels, size = sizes_of(o, x)
    saved, inverse = output_or_scratch(o, "SavedMean", mean), output_or_scratch(o, "SavedVariance", variance)
    new = output_or_scratch(o, "MeanOut", mean), output_or_scratch(o, "VarianceOut", variance)
    if size == 1:
        rows, width = fold(n, channels)
        parts = _parts(-(-width // 32), rows)
        items = parts * width // channels
        sums = o.scratch(2 * items * channels, "float64")
        o.call(column_moments, x, sums, rows, width, channels, parts)
    else:
        items = _parts(channels, n * size // 4)
        sums = o.scratch(2 * items * channels, "float64")
        o.call(run_moments, x, sums, n, channels, size, items)
    o.call(
        finish_moments, x, sums, mean, variance, *new, saved, inverse, items, channels, size, n * size, o.attrs["momentum"],
        o.attrs["epsilon"],
    )  # fmt: skip
    return saved, inverse


def append_gradient_sums(
    o: Lowering, x: Buffer, g: Buffer, dscale: Buffer, dbias: Buffer, cuts: int = PLAIN, y: Buffer | None = None, cut: Buffer | None = None
) -> None:
    """Append the calls that write the gradients of scale and bias.

    Args:
        o: of a batch_norm-like gradient.
        x, g: its input, and the gradient of its result.
        dscale, dbias: where to.
        cuts: what is known of relu.
        y, cut: where it is seen: its result, and where to write what it let through.
    """
    mean, inverse, scale = o.input("SavedMean"), o.input("SavedVariance"), o.input("Scale")
    bias = o.input("Bias") if cuts == AGAIN else scale
    n, channels, size = sizes_of(o, x)
    each = (x, g, y or g, cut or dscale, mean, inverse, scale, bias)
    if size == 1:
        rows, width = fold(n, channels)
        parts = _parts(-(-width // 32), rows)
        items = parts * width // channels
        sums = o.scratch(2 * items * channels, "float64")
        o.call(column_gradient_sums, *each, sums, rows, width, channels, parts, cuts)
    else:
        items = _parts(channels, n * size // 4)
        sums = o.scratch(2 * items * channels, "float64")
        o.call(run_gradient_sums, *each, sums, n, channels, size, items, cuts)
    o.call(finish_gradient_sums, sums, inverse, dscale, dbias, items, channels)
