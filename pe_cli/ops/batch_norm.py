"""batch_norm: every channel gets mean 0 and variance 1 over the batch, then a scale and a bias of its own."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.lang import Int, Ptr, PtrF64, Real, T, helper, kernel
from pe_cli.kernels.moments import column_squares, column_sums, join, piece_rows, run_moments
from pe_cli.ops.cross_entropy import same_sizes
from pe_cli.ops.lowering import Buffer, Lowering
from pe_cli.ops.registry import Attr, Sample, op

# --- statistics -------------------------------------------------------------------------------------------------------


@helper
def finish(mean, squares, count, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, c, momentum, epsilon):
    """Write a channel's saved and running statistics; without samples the running ones stay."""
    variance = squares / count if count > 0 else 0.0
    saved_mean[c] = T(mean)
    saved_inverse[c] = T(1.0 / (variance + epsilon) ** 0.5)
    share = 1.0 - momentum if count > 0 else 0.0
    new_mean[c] = T(old_mean[c] * (1.0 - share) + mean * share)
    new_variance[c] = T(old_variance[c] * (1.0 - share) + variance * share)


@kernel
def statistics_last(
    x: Ptr, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr,
    means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, rows: Int, channels: Int, momentum: Real, epsilon: Real,
):
    """Statistics of [rows, channels]; means, squares, centre and part hold one number a channel."""
    for c in range(channels):
        means[c] = 0.0
        squares[c] = 0.0
    step = piece_rows(channels)
    for first in range(0, rows, step):
        size = min(step, rows - first)
        column_sums(x, first, size, channels, centre)
        for c in range(channels):
            centre[c] = centre[c] / T(size)
        column_squares(x, first, size, channels, centre, part)
        for c in range(channels):
            means[c], squares[c] = join(first, means[c], squares[c], size, centre[c], part[c])
    for c in range(channels):
        finish(
            means[c], squares[c], rows, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, c,
            momentum, epsilon,
        )


@kernel
def statistics_first(
    x: Ptr, old_mean: Ptr, old_variance: Ptr, new_mean: Ptr, new_variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr,
    samples: Int, channels: Int, size: Int, momentum: Real, epsilon: Real,
):
    """Statistics of [samples, channels, size]."""
    for c in range(channels):
        mean = 0.0
        squares = 0.0
        for s in range(samples):
            m, q = run_moments(x, (s * channels + c) * size, size)
            mean, squares = join(s * size, mean, squares, size, m, q)
        finish(
            mean, squares, samples * size, old_mean, old_variance, new_mean, new_variance, saved_mean, saved_inverse, c,
            momentum, epsilon,
        )


@kernel
def statistics_given(mean: Ptr, variance: Ptr, saved_mean: Ptr, saved_inverse: Ptr, channels: Int, epsilon: Real):
    """The running statistics as the saved ones."""
    for c in range(channels):
        saved_mean[c] = mean[c]
        saved_inverse[c] = T(1.0 / (variance[c] + epsilon) ** 0.5)


@kernel
def copy_two(a: Ptr, b: Ptr, c: Ptr, d: Ptr, n: Int):
    """b = a, d = c."""
    for i in range(n):
        b[i] = a[i]
        d[i] = c[i]


# --- values -----------------------------------------------------------------------------------------------------------


@kernel
def normalise_last(x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, factor: Ptr, rows: Int, channels: Int):
    """y = (x - mean) * inverse * scale + bias on [rows, channels]; y may be x; factor holds one number a channel."""
    for c in range(channels):
        factor[c] = inverse[c] * scale[c]
    for r in range(rows):
        at = r * channels
        for c in range(channels):
            y[at + c] = (x[at + c] - mean[c]) * factor[c] + bias[c]


@kernel
def normalise_first(
    x: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, y: Ptr, samples: Int, channels: Int, size: Int
):
    """The same on [samples, channels, size]."""
    for p in range(samples * channels):
        c = p % channels
        m, f, b = mean[c], inverse[c] * scale[c], bias[c]
        for i in range(p * size, p * size + size):
            y[i] = (x[i] - m) * f + b


# --- gradient ---------------------------------------------------------------------------------------------------------


@kernel
def gradient_sums_last(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, dscale: Ptr, dbias: Ptr, sums: PtrF64, part: Ptr, rows: Int, channels: Int
):
    """dbias = sum(g), dscale = sum(g * normalised x) on [rows, channels]; sums and part hold two numbers a channel."""
    for c in range(2 * channels):
        sums[c] = 0.0
    step = piece_rows(channels)
    for first in range(0, rows, step):
        for c in range(2 * channels):
            part[c] = T(0)
        for r in range(first, min(rows, first + step)):
            at = r * channels
            for c in range(channels):
                part[c] += g[at + c]
                part[channels + c] += g[at + c] * (x[at + c] - mean[c])
        for c in range(2 * channels):
            sums[c] += part[c]
    for c in range(channels):
        dbias[c] = T(sums[c])
        dscale[c] = T(sums[channels + c] * inverse[c])


@kernel
def gradient_sums_first(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, dscale: Ptr, dbias: Ptr, samples: Int, channels: Int, size: Int
):
    """The same on [samples, channels, size]."""
    for c in range(channels):
        m = mean[c]
        total = 0.0
        product_ = 0.0
        for s in range(samples):
            start = (s * channels + c) * size
            for begin in range(start, start + size, 1024):
                a = T(0)
                b = T(0)
                for i in range(begin, min(start + size, begin + 1024)):
                    a += g[i]
                    b += g[i] * (x[i] - m)
                total += a
                product_ += b
        dbias[c] = T(total)
        dscale[c] = T(product_ * inverse[c])


@kernel
def gradient_last(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, factors: Ptr, rows: Int,
    channels: Int, batch: Int,
):
    """dx on [rows, channels]; batch: the statistics depend on x; dx may be g; factors hold three numbers a channel."""
    share = T(batch / max(1, rows))
    for c in range(channels):
        f = scale[c] * inverse[c]
        factors[c] = f
        factors[channels + c] = f * inverse[c] * dscale[c] * share
        factors[2 * channels + c] = f * dbias[c] * share
    for r in range(rows):
        at = r * channels
        for c in range(channels):
            d = x[at + c] - mean[c]
            dx[at + c] = factors[c] * g[at + c] - factors[channels + c] * d - factors[2 * channels + c]


@kernel
def gradient_first(
    x: Ptr, g: Ptr, mean: Ptr, inverse: Ptr, scale: Ptr, dscale: Ptr, dbias: Ptr, dx: Ptr, samples: Int, channels: Int,
    size: Int, batch: Int,
):
    """The same on [samples, channels, size]."""
    share = T(batch / max(1, samples * size))
    for p in range(samples * channels):
        c = p % channels
        m, f = mean[c], scale[c] * inverse[c]
        k, b = f * inverse[c] * dscale[c] * share, f * dbias[c] * share
        for i in range(p * size, p * size + size):
            dx[i] = f * g[i] - k * (x[i] - m) - b


# --- the op -----------------------------------------------------------------------------------------------------------


def _variance(channels: int):
    return lambda rng: rng.uniform(0.5, 2.0, channels)


def _sample(name: str, *shape: int, grad: bool = True, **attrs: object) -> Sample:
    channels = shape[-1] if attrs.get("data_layout") == "NHWC" else shape[1]
    each = {"Scale": (channels,), "Bias": (channels,), "Mean": (channels,), "Variance": _variance(channels)}
    return Sample({"X": shape, **each}, attrs, name, grad)


def _far(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((40, 3)) + 10.0


@op(
    "batch_norm",
    inputs="X Scale Bias Mean Variance",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance",
    attrs={
        "momentum": Attr(0.9, "share of the old running statistics that stays, no unit"),
        "epsilon": Attr(1e-5, "added to the variance, in its unit"),
        "is_test": Attr(False, "use the running statistics and leave them"),
        "data_layout": Attr("NCHW", "where the channels are", ("NCHW", "NHWC")),
        "use_global_stats": Attr(False, "use the running statistics in training too"),
    },
    differentiable="X Scale Bias",
    layout={"attr": "data_layout", "slots": ("X", "Y")},
    samples=[
        _sample("channels first", 2, 3, 4, 5),
        _sample("channels last", 2, 4, 5, 3, data_layout="NHWC"),
        _sample("a matrix", 7, 3),
        _sample("sequences", 2, 5, 3),
        _sample("volumes, channels last", 2, 2, 3, 2, 5, data_layout="NHWC"),
        _sample("volumes, channels first", 2, 5, 2, 3, 2),
        _sample("more rows than one piece", 300, 3),
        _sample("inference, channels first", 2, 3, 4, 5, is_test=True),
        _sample("inference, channels last", 2, 4, 5, 3, data_layout="NHWC", is_test=True),
        _sample("running statistics in training", 5, 3, use_global_stats=True),
        _sample("one channel", 3, 1, 2, 2),
        _sample("one row", 1, 2),
        _sample("empty batch", 0, 3, 2, 2),
    ],
)
def batch_norm(
    x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType, variance: TensorType, *, momentum: float,
    epsilon: float, is_test: bool, data_layout: str, use_global_stats: bool,
) -> tuple[TensorType, ...]:
    """Normalise every channel by its mean and variance over the batch and all positions.

    Y = Scale (X - m) / sqrt(v + epsilon) + Bias.  In training m and v are the batch's (v biased, divided by the number of values), and
    MeanOut = momentum Mean + (1 - momentum) m, VarianceOut likewise; with is_test or use_global_stats m is Mean and v is Variance.

    Args:
        X: [batch, channels, ...] or, with NHWC, [batch, ..., channels]; 2 to 5 axes, float32 or float64.
        Scale, Bias: [channels] element type of X.
        Mean, Variance: [channels] element type of X; running statistics.
        momentum, epsilon, is_test, data_layout, use_global_stats: see the attributes.

    Returns:
        Y: type of X.
        MeanOut, VarianceOut: the variables Mean and Variance themselves, updated.
        SavedMean: [channels] mean that was used.
        SavedVariance: [channels] 1 / sqrt(v + epsilon) that was used; the name is fluid's.

    Raises:
        PeError: X with fewer than 2 or more than 5 axes, or statistics or parameters that are not one number a channel.

    Source:
        fluid.layers.batch_norm; Ioffe, Szegedy 2015, algorithms 1 and 2.
    """
    if not 2 <= len(x.shape) <= 5:
        raise PeError(f"batch_norm needs 2 to 5 axes, got X {x}")
    channels = x.shape[-1 if data_layout == "NHWC" else 1]
    each = x.with_shape(channels)
    for name, given in (("Scale", scale), ("Bias", bias), ("Mean", mean), ("Variance", variance)):
        if given.dtype != x.dtype or not same_sizes(given.shape, each.shape):
            raise PeError(f"batch_norm needs {name} of type {each}, one number per channel of X {x}, got {given}")
    return x, mean, variance, each, each


def _sizes(o: Lowering, x: Buffer) -> tuple[int, int, int]:
    """Return samples, channels and positions; positions 1 when the channels are innermost in memory."""
    if o.attrs["data_layout"] == "NHWC":
        return product(x.shape[:-1]), x.shape[-1], 1
    return x.shape[0], x.shape[1], product(x.shape[2:])


def _output(o: Lowering, slot: str, like: Buffer) -> Buffer:
    return o.output(slot) if o.has(slot) else o.scratch(like.size, like.dtype)


@batch_norm.lower("cpu")
def batch_norm_cpu(o: Lowering) -> None:
    """Statistics, then values."""
    x, mean, variance, y = o.input("X"), o.input("Mean"), o.input("Variance"), o.output("Y")
    n, channels, size = _sizes(o, x)
    epsilon = o.attrs["epsilon"]
    saved, inverse = _output(o, "SavedMean", mean), _output(o, "SavedVariance", variance)
    new_mean, new_variance = _output(o, "MeanOut", mean), _output(o, "VarianceOut", variance)
    if o.attrs["is_test"] or o.attrs["use_global_stats"]:
        o.call(statistics_given, mean, variance, saved, inverse, channels, epsilon)
        if o.has("MeanOut") and new_mean is not mean:
            o.call(copy_two, mean, new_mean, variance, new_variance, channels)
    else:
        both = (mean, variance, new_mean, new_variance, saved, inverse)
        if size == 1:
            doubles = [o.scratch(channels, "float64") for _ in range(2)]
            parts = [o.scratch(channels, x.dtype) for _ in range(2)]
            o.call(statistics_last, x, *both, *doubles, *parts, n, channels, o.attrs["momentum"], epsilon)
        else:
            o.call(statistics_first, x, *both, n, channels, size, o.attrs["momentum"], epsilon)
    scale, bias = o.input("Scale"), o.input("Bias")
    if size == 1:
        factor = o.scratch(channels, x.dtype)
        o.call(normalise_last, x, saved, inverse, scale, bias, y, factor, n, channels)
    else:
        o.call(normalise_first, x, saved, inverse, scale, bias, y, n, channels, size)


@batch_norm.grad(uses="X Scale SavedMean SavedVariance", inplace={"X@GRAD": "Y@GRAD"}).lower("cpu")
def batch_norm_grad_cpu(o: Lowering) -> None:
    """Sums of the gradient for Bias and Scale; X' takes its mean and its slope on X away, where the statistics are the batch's."""
    x, scale, g = o.input("X"), o.input("Scale"), o.input("Y@GRAD")
    saved, inverse = o.input("SavedMean"), o.input("SavedVariance")
    n, channels, size = _sizes(o, x)
    dscale, dbias = _output(o, "Scale@GRAD", scale), _output(o, "Bias@GRAD", scale)
    batch = int(not (o.attrs["is_test"] or o.attrs["use_global_stats"]))
    if batch or o.has("Scale@GRAD") or o.has("Bias@GRAD"):
        if size == 1:
            sums, part = o.scratch(2 * channels, "float64"), o.scratch(2 * channels, x.dtype)
            o.call(gradient_sums_last, x, g, saved, inverse, dscale, dbias, sums, part, n, channels)
        else:
            o.call(gradient_sums_first, x, g, saved, inverse, dscale, dbias, n, channels, size)
    if not o.has("X@GRAD"):
        return
    dx = o.output("X@GRAD")
    if size == 1:
        factors = o.scratch(3 * channels, x.dtype)
        o.call(gradient_last, x, g, saved, inverse, scale, dscale, dbias, dx, factors, n, channels, batch)
    else:
        o.call(gradient_first, x, g, saved, inverse, scale, dscale, dbias, dx, n, channels, size, batch)
