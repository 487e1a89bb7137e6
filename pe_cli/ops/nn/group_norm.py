"""group_norm: every group of channels of a sample gets mean 0 and variance 1, then every channel a scale and a bias."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.language import Int, Ptr, Real, T, helper, kernel
from pe_cli.kernels.math.moments import run_moments
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.kernels.math.vector_math import rsqrt
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import SumsRows


@kernel
def normalise_groups(
    x: Ptr, scale: Ptr, bias: Ptr, y: Ptr, mean: Ptr, variance: Ptr, rows: Int, groups: Int, share: Int, pixels: Int, epsilon: Real,
    weights: Int,
):  # fmt: skip
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias; a row is a group of share channels; weights: 1 scale, 2 bias, 3 both."""
    for r in range(rows):
        n = share * pixels
        m, q = run_moments(x, r * n, n)
        centre, v = T(m), T(q / n)
        mean[r] = centre
        variance[r] = v
        f = rsqrt(v + epsilon)
        for c in range(share):
            k, at = r % groups * share + c, r * n + c * pixels
            # Scale and deviation are one factor per channel, computed once.
            a = f * scale[k] if weights & 1 else f
            b = bias[k] if weights & 2 else T(0)
            for i in range(at, at + pixels):
                y[i] = (x[i] - centre) * a + b


@helper
def _products(x, g, m, f, part, q, pixels):
    """part[2 q], part[2 q + 1] = sums of g, and of g times the normalised x, over the pixels of a channel of a sample."""
    total = 0.0
    slope = 0.0
    # Chunks of the element type vectorise; float64 between them keeps digits over large images.
    for begin in range(q * pixels, (q + 1) * pixels, CHUNK):
        a = T(0)
        b = T(0)
        for i in range(begin, min((q + 1) * pixels, begin + CHUNK)):
            a += g[i]
            b += g[i] * (x[i] - m)
        total += a
        slope += b
    part[2 * q] = T(total)
    part[2 * q + 1] = T(slope) * f


@kernel
def normalise_groups_back(
    x: Ptr, g: Ptr, scale: Ptr, mean: Ptr, variance: Ptr, dx: Ptr, part: Ptr, rows: Int, groups: Int, share: Int, pixels: Int,
    epsilon: Real, weights: Int,
):  # fmt: skip
    """part as `_products`; dx = f (s - mean(s) - z mean(s z)) with s = g scale, z the normalised x; weights: 1 scale, 2 dx is wanted."""
    for r in range(rows):
        n = share * pixels
        m, f = mean[r], T(1.0 / (variance[r] + epsilon) ** 0.5)
        level = 0.0
        k = 0.0
        for c in range(share):
            q = r * share + c
            _products(x, g, m, f, part, q, pixels)
            s = scale[r % groups * share + c] if weights & 1 else T(1)
            level += s * part[2 * q]
            k += s * part[2 * q + 1]
        if weights & 2:
            low, tilt = T(level / n) * f, T(k / n) * f * f
            for c in range(share):
                at = r * n + c * pixels
                s = f * scale[r % groups * share + c] if weights & 1 else f
                for i in range(at, at + pixels):
                    dx[i] = s * g[i] - low - tilt * (x[i] - m)


@kernel
def channel_totals(part: Ptr, dscale: Ptr, dbias: Ptr, batch: Int, channels: Int):
    """dbias, dscale = sums of `_products` over the samples."""
    for k in range(channels):
        a = T(0)
        b = T(0)
        for s in range(batch):
            a += part[2 * (s * channels + k)]
            b += part[2 * (s * channels + k) + 1]
        dbias[k] = a
        dscale[k] = b


@op(
    "group_norm",
    traits=[SumsRows(("Scale", "Bias"))],
    inputs="X Scale? Bias?",
    floats="X",
    outputs="Y Mean Variance",
    attrs={
        "groups": Attr(1, "groups of neighbouring channels; they divide the channels"),
        "epsilon": Attr(1e-5, "added to the variance, in its unit"),
    },
    differentiable="X Scale Bias",
    samples=[
        Sample({"X": (2, 6, 3, 2), "Scale": (6,), "Bias": (6,)}, {"groups": 3}, "images"),
        Sample({"X": (2, 3, 5, 7), "Scale": (3,), "Bias": (3,)}, {"groups": 3}, "every channel alone"),
        Sample({"X": (3, 4, 5), "Scale": (4,)}, {"groups": 2}, "scale only, sequences"),
        Sample({"X": (3, 4, 2), "Bias": (4,)}, {"groups": 4}, "bias only"),
        Sample({"X": (3, 6)}, {"groups": 2, "epsilon": 0.01}, "one pixel, neither scale nor bias"),
        Sample({"X": (1, 2, 2, 3, 2), "Scale": (2,), "Bias": (2,)}, name="volumes, one group"),
        Sample({"X": (1, 2, 37, 71), "Scale": (2,), "Bias": (2,)}, {"groups": 2}, "pixels of more than one piece"),
        Sample({"X": (0, 4, 3), "Scale": (4,), "Bias": (4,)}, {"groups": 2}, "an empty batch"),
    ],
)
def group_norm(x: TensorType, scale: TensorType | None, bias: TensorType | None, *, groups: int, epsilon: float) -> tuple[TensorType, ...]:
    """Normalise groups of channels of every sample by the mean and variance of their own values.

    Y = Scale (X - m) / sqrt(v + epsilon) + Bias,  m and v (biased) over the channels of a group and all axes after the channels.

    Args:
        X: [batch, channels, ...] float32 or float64.
        Scale, Bias: [channels] element type of X; default 1 and 0.
        groups: the number of groups; as many as channels is instance_norm.
        epsilon: see the formula.

    Returns:
        Y: type of X.
        Mean, Variance: [batch, groups] element type of X.

    Raises:
        PeError: the groups do not divide the channels, there is nothing to normalise, or Scale or Bias do not have one number per channel.

    Source:
        fluid.layers.group_norm; Wu and He 2018, "Group Normalization", eq. 7.
    """
    if len(x.shape) < 2:
        raise PeError(f"group_norm needs X [batch, channels, ...], got {x}")
    channels = x.shape[1]
    if groups < 1 or channels == 0 or channels % groups:
        raise PeError(f"group_norm: {groups} groups of the {channels} channels of X {x}", hint="give a divisor of the channels")
    if 0 in x.shape[2:]:
        raise PeError(f"group_norm needs at least one value to normalise, got X {x}")
    for name, given in (("Scale", scale), ("Bias", bias)):
        if given is not None and (given.dtype != x.dtype or not same_sizes(given.shape, (channels,))):
            raise PeError(f"group_norm needs {name} of type {x.with_shape(channels)}, one number per channel of X {x}, got {given}")
    rows = x.with_shape(x.shape[0], groups)
    return x, rows, rows


def sizes_of(o: Lowering, x: Buffer) -> tuple[int, int, int, int]:
    """Return rows, groups, channels of a group, and pixels."""
    groups = o.attrs["groups"]
    return x.shape[0] * groups, groups, x.shape[1] // groups, product(x.shape[2:])


def given(o: Lowering) -> tuple[Any, ...]:
    """Return x, scale and bias, or x in the place of what is absent, and which of these are there: 1 scale, 2 bias."""
    x = o.input("X")
    scale, bias = (o.input(s) if o.inputs(s) else x for s in ("Scale", "Bias"))
    return x, scale, bias, int(bool(o.inputs("Scale"))) + 2 * int(bool(o.inputs("Bias")))


@group_norm.lower("cpu")
def group_norm_cpu(o: Lowering) -> None:
    """Group by group."""
    x, scale, bias, weights = given(o)
    sizes = sizes_of(o, x)
    moments = [o.output_or_scratch(slot, sizes[0], x.dtype) for slot in ("Mean", "Variance")]
    o.call(normalise_groups, x, scale, bias, o.output("Y"), *moments, *sizes, o.attrs["epsilon"], weights)


@group_norm.grad(uses="X Scale Mean Variance").lower("cpu")
def group_norm_grad_cpu(o: Lowering) -> None:
    """Group by group, with sums per channel on the way; then these over the samples."""
    x, g, mean, variance = (o.input(s) for s in ("X", "Y@GRAD", "Mean", "Variance"))
    scaled, wanted = bool(o.inputs("Scale")), o.has("X@GRAD")
    scale, dx = o.input("Scale") if scaled else x, o.output("X@GRAD") if wanted else x
    part = o.scratch(2 * x.shape[0] * x.shape[1], x.dtype)
    weights = int(scaled) + 2 * int(wanted)
    o.call(normalise_groups_back, x, g, scale, mean, variance, dx, part, *sizes_of(o, x), o.attrs["epsilon"], weights)
    add_up(o, part)


def add_up(o: Lowering, part: Buffer) -> None:
    """Sum what channels of samples have over the samples, where that is wanted."""
    if o.has("Scale@GRAD") or o.has("Bias@GRAD"):
        x = o.input("X")
        sums = [o.output_or_scratch(slot, x.shape[1], x.dtype) for slot in ("Scale@GRAD", "Bias@GRAD")]
        o.call(channel_totals, part, *sums, x.shape[0], x.shape[1])


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("group_norm")
def group_norm_onnx(o: Writer) -> None:
    """LayerNormalization of a row per group; then scale and bias per channel."""
    x = o.type()
    rows = o.node("Reshape", [o.x(), o.const([0, o.attrs["groups"], -1])])
    width = o.node("Gather", [o.node("Shape", [rows]), o.const([2])])
    ones = o.node("Expand", [o.const(1.0, "X"), width])
    made = o.node("LayerNormalization", [rows, ones], axis=2, epsilon=o.attrs["epsilon"])
    steps = [(kind, slot) for kind, slot in (("Mul", "Scale"), ("Add", "Bias")) if o.has(slot)]
    made = o.node("Reshape", [made, o.node("Shape", [o.x()])], to=None if steps else "Y")
    for kind, slot in steps:
        along = o.node("Reshape", [o.x(slot), o.const([x.shape[1], *[1] * (len(x.shape) - 2)])])
        made = o.node(kind, [made, along], to="Y" if (kind, slot) == steps[-1] else None)
