"""batch_norm on CUDA: a block of threads a channel for sums, a thread per element for values."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.channel_norm import (
    copy_two,
    finish,
    gradient_first,
    gradient_last,
    gradient_sums_first,
    gradient_sums_last,
    normalise_first,
    normalise_last,
    statistics_first,
    statistics_given,
    statistics_last,
)
from pe_cli.kernels.cuda import cuda, deal, on_cuda
from pe_cli.kernels.lang import Int, Ptr, PtrF64, Real, T
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.nn.batch_norm import batch_norm

#: Threads that add up one channel; a power of 2.
ADDERS: Any = 256
WIDE: Any = np.float64


@on_cuda(statistics_first, block=(ADDERS,))
def statistics_first_cuda(
    x: Ptr, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr,
    samples: Int, channels: Int, size: Int, momentum: Real, epsilon: Real,
):  # fmt: skip
    """Two passes: the mean, then the squares about it; sums are added in a tree."""
    parts = cuda.shared.array(ADDERS, WIDE)
    me = cuda.threadIdx.x
    count = samples * size
    for c in range(cuda.blockIdx.x, channels, cuda.gridDim.x):
        mean = 0.0
        for squares in range(2):
            total = 0.0
            for i in range(me, count, ADDERS):
                d = x[(i // size * channels + c) * size + i % size] - mean
                total += d * d if squares else d
            parts[me] = total
            cuda.syncthreads()
            half = ADDERS // 2
            while half > 0:
                if me < half:
                    parts[me] += parts[me + half]
                cuda.syncthreads()
                half //= 2
            total = parts[0]
            cuda.syncthreads()
            if not squares:
                mean = total / count if count > 0 else 0.0
        if me == 0:
            finish(
                mean, total, count, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, c,
                momentum, epsilon,
            )  # fmt: skip


@on_cuda(statistics_last, block=(ADDERS,))
def statistics_last_cuda(
    x: Ptr, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr,
    means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, rows: Int, width: Int, channels: Int, momentum: Real,
    epsilon: Real,
):  # fmt: skip
    """The same where channels are innermost; it needs no scratch."""
    parts = cuda.shared.array(ADDERS, WIDE)
    me = cuda.threadIdx.x
    count = rows * (width // channels)
    for c in range(cuda.blockIdx.x, channels, cuda.gridDim.x):
        mean = 0.0
        for second in range(2):
            total = 0.0
            for i in range(me, count, ADDERS):
                d = x[i * channels + c] - mean
                total += d * d if second else d
            parts[me] = total
            cuda.syncthreads()
            half = ADDERS // 2
            while half > 0:
                if me < half:
                    parts[me] += parts[me + half]
                cuda.syncthreads()
                half //= 2
            total = parts[0]
            cuda.syncthreads()
            if not second:
                mean = total / count if count > 0 else 0.0
        if me == 0:
            finish(
                mean, total, count, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, c,
                momentum, epsilon,
            )  # fmt: skip


@on_cuda(normalise_first)
def normalise_first_cuda(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, samples: Int, channels: Int, size: Int
):
    """One thread per element."""
    for i in range(samples * channels * size):
        c = i // size % channels
        y[i] = (x[i] - mean[c]) * (inverse[c] * scale[c]) + bias[c]


@on_cuda(normalise_last)
def normalise_last_cuda(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, table: Ptr, rows: Int, width: Int, channels: Int
):
    """One thread per element, without the table."""
    for i in range(rows * width):
        c = i % channels
        y[i] = (x[i] - mean[c]) * (inverse[c] * scale[c]) + bias[c]


@on_cuda(gradient_sums_first, block=(ADDERS,))
def gradient_sums_first_cuda(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, dscale: Ptr, dbias: Ptr, samples: Int, channels: Int, size: Int
):
    """Sums in a tree."""
    biases = cuda.shared.array(ADDERS, WIDE)
    scales = cuda.shared.array(ADDERS, WIDE)
    me = cuda.threadIdx.x
    for c in range(cuda.blockIdx.x, channels, cuda.gridDim.x):
        a = 0.0
        b = 0.0
        for i in range(me, samples * size, ADDERS):
            at = (i // size * channels + c) * size + i % size
            a += g[at]
            b += g[at] * (x[at] - mean[c])
        biases[me] = a
        scales[me] = b
        cuda.syncthreads()
        half = ADDERS // 2
        while half > 0:
            if me < half:
                biases[me] += biases[me + half]
                scales[me] += scales[me + half]
            cuda.syncthreads()
            half //= 2
        if me == 0:
            dbias[c] = T(biases[0])
            dscale[c] = T(scales[0] * inverse[c])


@on_cuda(gradient_sums_last, block=(ADDERS,))
def gradient_sums_last_cuda(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, dscale: Ptr, dbias: Ptr, sums: PtrF64, table: Ptr, rows: Int, width: Int,
    channels: Int,
):  # fmt: skip
    """The same where channels are innermost; it needs no scratch."""
    biases = cuda.shared.array(ADDERS, WIDE)
    scales = cuda.shared.array(ADDERS, WIDE)
    me = cuda.threadIdx.x
    for c in range(cuda.blockIdx.x, channels, cuda.gridDim.x):
        a = 0.0
        b = 0.0
        for i in range(me, rows * (width // channels), ADDERS):
            at = i * channels + c
            a += g[at]
            b += g[at] * (x[at] - mean[c])
        biases[me] = a
        scales[me] = b
        cuda.syncthreads()
        half = ADDERS // 2
        while half > 0:
            if me < half:
                biases[me] += biases[me + half]
                scales[me] += scales[me + half]
            cuda.syncthreads()
            half //= 2
        if me == 0:
            dbias[c] = T(biases[0])
            dscale[c] = T(scales[0] * inverse[c])


@on_cuda(gradient_first)
def gradient_first_cuda(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, samples: Int, channels: Int,
    size: Int, batch: Int,
):  # fmt: skip
    """One thread per element."""
    share = T(batch / max(1, samples * size))
    for i in range(samples * channels * size):
        c = i // size % channels
        f = scale[c] * inverse[c]
        dx[i] = f * g[i] - f * inverse[c] * dscale[c] * share * (x[i] - mean[c]) - f * dbias[c] * share


@on_cuda(gradient_last)
def gradient_last_cuda(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, table: Ptr, rows: Int,
    width: Int, channels: Int, count: Int,
):  # fmt: skip
    """One thread per element, without the table."""
    share = T(min(1, count) / max(1, count))
    for i in range(rows * width):
        c = i % channels
        f = scale[c] * inverse[c]
        dx[i] = f * g[i] - f * inverse[c] * dscale[c] * share * (x[i] - mean[c]) - f * dbias[c] * share


deal(statistics_given, copy_two)
also_on_cuda(batch_norm)
