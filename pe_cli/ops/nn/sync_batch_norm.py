"""batch_norm over the samples of all devices, in two halves: each device's sums, and what follows from everybody's.

The pass of that name puts these in the place of batch_norm and its gradient where there are several devices. Sums are joined in
device order, so every device gets the same bits; a device without samples counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.channel_norm import gradient_first, gradient_last, normalise_first, normalise_last
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset, Table
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import ReadsAllDevices, SumsOverDevices
from pe_cli.ops.nn.batch_norm import batch_norm
from pe_cli.ops.nn.sync_batch_norm_kernels import (
    channel_gradient_sums,
    channel_moments,
    join_gradient_sums,
    join_moments,
)

ATTRS = batch_norm.attrs


def every_device(sums: Sequence[Buffer], channels: int) -> tuple[Offset, ...]:
    """Return where the sums of each device are: one buffer has those of one, or of the devices of several processes, in order."""
    # A device tells means, squared distances from them, and how many values there were: joined so, no digits are lost by a large mean.
    step = 2 * channels + 1
    return tuple(Offset(b, begin) for b in sums for begin in range(0, b.size, step))


def sizes_of(o: Lowering, x: Buffer) -> tuple[int, int, int, int]:
    """Return samples, channels, positions per sample, and whether the channels come last."""
    if o.attrs["data_layout"] == "NHWC" or len(x.shape) == 2:
        channels = x.shape[-1]
        return 1, channels, x.size // channels if channels else 0, 1
    channels = x.shape[1]
    samples = x.shape[0]
    return samples, channels, x.size // (samples * channels) if samples * channels else 0, 0


def _check(sums: list[TensorType]) -> None:
    for found in sums:
        # float32 would lose digits of a mean over thousands of pixels.
        if found.dtype != "float64":
            raise PeError(f"Sums must be float64, got {found}")


_VECTOR = (3,)


def _sums(rng):
    return rng.uniform(1.0, 2.0, 7)


def _rows(rng):
    """Sums of two processes, which lie in one variable."""
    return rng.uniform(1.0, 2.0, (2, 7))


@op(
    "sync_batch_norm_sums",
    inputs="X",
    outputs="Sums",
    attrs=ATTRS,
    differentiable="",
    samples=[
        Sample({"X": (4, 3)}, name="a matrix"),
        Sample({"X": (2, 3, 4, 5)}, name="images, channels first"),
        Sample({"X": (2, 4, 5, 3)}, {"data_layout": "NHWC"}, "images, channels last"),
    ],
)
def sync_batch_norm_sums(x: TensorType, *, data_layout: str, **attrs: object) -> TensorType:
    """Collect what one device's samples say of each channel.

    Args:
        X: [batch, channels, ...], or [batch, ..., channels] with data_layout NHWC.

    Returns:
        Sums: [2 * channels + 1] float64: means, sums of squared distances from them, and the number of values per channel.

    Source:
        Chan, Golub and LeVeque 1983, for joining such sums.
    """
    channels = x.shape[-1] if data_layout == "NHWC" else x.shape[1]
    return TensorType((2 * channels + 1,), "float64")


@sync_batch_norm_sums.lower("cpu")
def sums_cpu(o: Lowering) -> None:
    """Two passes."""
    x = o.input("X")
    # What leaves the device is a few numbers for each channel, however large the batch is.
    o.call(channel_moments, x, o.output("Sums"), *sizes_of(o, x))


@op(
    "sync_batch_norm",
    inputs="X Scale Bias Mean Variance Sums*",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance",
    attrs=ATTRS,
    traits=[ReadsAllDevices("Sums")],
    differentiable="",
    samples=[
        Sample(
            {
                "X": (4, 3),
                "Scale": _VECTOR,
                "Bias": _VECTOR,
                "Mean": _VECTOR,
                "Variance": _VECTOR,
                "Sums": [_sums, _sums],
            },
            keep=("Sums",),
        ),
        Sample(
            {"X": (4, 3), "Scale": _VECTOR, "Bias": _VECTOR, "Mean": _VECTOR, "Variance": _VECTOR, "Sums": [_rows]},
            name="sums of two processes",
            keep=("Sums",),
        ),
    ],
)
def sync_batch_norm(
    x: TensorType,
    scale: TensorType,
    bias: TensorType,
    mean: TensorType,
    variance: TensorType,
    sums: list[TensorType],
    **attrs: object,
) -> tuple[TensorType, ...]:
    """Normalise one device's samples by the statistics of all devices.

    Y = (X - mean) / sqrt(variance + epsilon) * Scale + Bias, with mean and variance over the samples of all devices.

    Args:
        X, Scale, Bias, Mean, Variance: as for batch_norm.
        Sums: of every device, from sync_batch_norm_sums, in device order.

    Returns:
        Y, MeanOut, VarianceOut, SavedMean, SavedVariance: as for batch_norm.

    Raises:
        PeError: Sums that are not float64.

    Source:
        batch_norm with fluid's sync_batch_norm.
    """
    _check(sums)
    return x, mean, variance, mean, variance


@sync_batch_norm.lower("cpu")
def apply_cpu(o: Lowering) -> None:
    """Join the sums, then one pass."""
    x, y = o.input("X"), o.output("Y")
    samples, channels, size, last = sizes_of(o, x)
    sums = o.inputs("Sums")
    mean, inverse = o.output("SavedMean"), o.output("SavedVariance")
    olds = o.input("Mean"), o.input("Variance"), o.output("MeanOut"), o.output("VarianceOut")
    settings = float(o.attrs["momentum"]), float(o.attrs["epsilon"])
    # One table for each device, in the order of devices and processes: every device adds up in this order.
    tables = every_device(sums, channels)
    o.call(join_moments, Table(tables), len(tables), *olds, mean, inverse, channels, *settings, dtype=x.dtype)
    scale, bias = o.input("Scale"), o.input("Bias")
    if last:
        table = o.scratch(4 * channels, x.dtype)
        # Every device has the same running statistics, as all have joined the same sums.
        o.call(normalise_last, x, mean, inverse, scale, bias, y, table, samples * size, channels, channels)
    else:
        o.call(normalise_first, x, mean, inverse, scale, bias, y, samples, channels, size)


@op(
    "sync_batch_norm_grad_sums",
    inputs="X SavedMean SavedVariance Y@GRAD",
    outputs="Sums Scale@GRAD Bias@GRAD",
    attrs=ATTRS,
    differentiable="",
    samples=[Sample({"X": (4, 3), "SavedMean": _VECTOR, "SavedVariance": _VECTOR, "Y@GRAD": (4, 3)})],
)
def sync_batch_norm_grad_sums(
    x: TensorType, mean: TensorType, inverse: TensorType, gradient: TensorType, **attrs: object
) -> tuple[TensorType, ...]:
    """Collect what one device's samples say of each channel's gradient.

    Args:
        X: as for batch_norm.
        SavedMean, SavedVariance: from sync_batch_norm; the second is 1 / sqrt(variance + epsilon).
        Y@GRAD: type of X.

    Returns:
        Sums: [2 * channels + 1] float64: sums of the gradient, of it times the distance from the mean, and the count.
        Scale@GRAD, Bias@GRAD: this device's parts; all-reduced like every gradient.

    Source:
        batch_norm_grad with fluid's sync_batch_norm.
    """
    return TensorType((2 * mean.shape[0] + 1,), "float64"), mean, mean


@sync_batch_norm_grad_sums.lower("cpu")
def gradient_sums_cpu(o: Lowering) -> None:
    """One pass."""
    x, mean, inverse = o.input("X"), o.input("SavedMean"), o.input("SavedVariance")
    samples, channels, size, last = sizes_of(o, x)
    parts = [o.output_or_scratch(s, channels, x.dtype) for s in ("Scale@GRAD", "Bias@GRAD")]
    o.call(
        channel_gradient_sums,
        x,
        o.input("Y@GRAD"),
        mean,
        inverse,
        *parts,
        o.output("Sums"),
        samples,
        channels,
        size,
        last,
    )


@op(
    "sync_batch_norm_grad",
    inputs="X Scale SavedMean SavedVariance Y@GRAD Sums*",
    outputs="X@GRAD",
    attrs=ATTRS,
    traits=[ReadsAllDevices("Sums")],
    differentiable="",
    samples=[
        Sample(
            {
                "X": (4, 3),
                "Scale": _VECTOR,
                "SavedMean": _VECTOR,
                "SavedVariance": _VECTOR,
                "Y@GRAD": (4, 3),
                "Sums": [_sums],
            },
            keep=("Sums",),
        ),
        Sample(
            {"X": (4, 3), "Scale": _VECTOR, "SavedMean": _VECTOR, "SavedVariance": _VECTOR, "Y@GRAD": (4, 3), "Sums": [_rows]},
            name="sums of two processes",
            keep=("Sums",),
        ),
    ],
)
def sync_batch_norm_grad(
    x: TensorType,
    scale: TensorType,
    mean: TensorType,
    inverse: TensorType,
    gradient: TensorType,
    sums: list[TensorType],
    **attrs: object,
) -> TensorType:
    """Give one device's samples their gradient from the sums of all devices.

    Args:
        X, Scale, SavedMean, SavedVariance, Y@GRAD: as for sync_batch_norm_grad_sums.
        Sums: of every device, in device order.

    Returns:
        X@GRAD: type of X.

    Source:
        batch_norm_grad with fluid's sync_batch_norm.
    """
    _check(sums)
    return x


@sync_batch_norm_grad.lower("cpu")
def gradient_cpu(o: Lowering) -> None:
    """Join the sums, then one pass."""
    x, g, dx = o.input("X"), o.input("Y@GRAD"), o.output("X@GRAD")
    samples, channels, size, last = sizes_of(o, x)
    sums = o.inputs("Sums")
    mean, inverse, scale = o.input("SavedMean"), o.input("SavedVariance"), o.input("Scale")
    # The op before gave this device's gradients of scale and bias; here those of all devices are joined, for the images alone.
    dscale, dbias = o.scratch(channels, x.dtype), o.scratch(channels, x.dtype)
    tables = every_device(sums, channels)
    o.call(
        join_gradient_sums,
        Table(tables),
        len(tables),
        inverse,
        dscale,
        dbias,
        channels,
        samples * size,
        dtype=x.dtype,
    )
    if last:
        table = o.scratch(5 * channels, x.dtype)
        o.call(
            gradient_last, x, g, mean, inverse, scale, dscale, dbias, dx, table, samples * size, channels, channels, samples * size
        )
    else:
        o.call(gradient_first, x, g, mean, inverse, scale, dscale, dbias, dx, samples, channels, size, 1)


batch_norm.give(SumsOverDevices("sync_batch_norm_sums", "sync_batch_norm", unless="is_test"))
assert batch_norm.grad_op is not None
batch_norm.grad_op.give(SumsOverDevices("sync_batch_norm_grad_sums", "sync_batch_norm_grad", unless="is_test"))
not_in_onnx(
    "it joins several devices; evaluation has batch_norm, which is exported",
    "sync_batch_norm", "sync_batch_norm_grad", "sync_batch_norm_grad_sums", "sync_batch_norm_sums",
)  # fmt: skip
