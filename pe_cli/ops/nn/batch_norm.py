"""batch_norm: every channel gets mean 0 and variance 1 over the batch, then a scale and a bias of its own."""

from __future__ import annotations

from collections.abc import Iterator

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cpu.channel_norm import (
    copy_two,
    gradient_first,
    gradient_last,
    gradient_sums_first,
    gradient_sums_last,
    moments_of_channels,
    moments_of_columns,
    normalise_first,
    normalise_last,
    statistics_first,
    statistics_found,
    statistics_given,
    statistics_last,
)
from pe_cli.kernels.math.moments import NEAR
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import BatchStatistics, Divisible, InPlace, Layout, Narrow
from pe_cli.ops.define.work_parts import column_pairs, thread_parts, worth

#: Columns that short rows are joined to.
WIDEST = 256


def _variance(channels: int):
    return lambda rng: rng.uniform(0.5, 2.0, channels)


def _sample(name: str, *shape: int, grad: bool = True, **attrs: object) -> Sample:
    channels = shape[-1] if attrs.get("data_layout") == "NHWC" else shape[1]
    each = {"Scale": (channels,), "Bias": (channels,), "Mean": (channels,), "Variance": _variance(channels)}
    return Sample({"X": shape, **each}, attrs, name, grad)

ATTRS = {
    "momentum": Attr(0.9, "share of the old running statistics that stays, no unit"),
    "epsilon": Attr(1e-5, "added to the variance, in its unit"),
    "is_test": Attr(False, "use the running statistics and leave them"),
    "data_layout": Attr("NCHW", "where the channels are", ("NCHW", "NHWC")),
    "use_global_stats": Attr(False, "use the running statistics in training too"),
}


#: Statistics stay float32, and so do scales and shifts.
NARROW = Narrow(
    keeps=("Scale", "Bias", "Mean", "Variance", "Moments", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"),
)


@op(
    "batch_norm",
    traits=[BatchStatistics(("is_test", "use_global_stats")), Divisible(), Layout("data_layout", ("X", "Y")), NARROW],
    inputs="X Scale Bias Mean Variance Moments?",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance",
    attrs=ATTRS,
    differentiable="X Scale Bias",
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
    x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType, variance: TensorType,
    moments: TensorType | None = None, *, momentum: float, epsilon: float, is_test: bool, data_layout: str,
    use_global_stats: bool,
) -> tuple[TensorType, ...]:
    """Normalise every channel by its mean and variance over the batch and all positions.

    Y = Scale (X - m) / sqrt(v + epsilon) + Bias.  In training m and v are the batch's (v biased: divided by the number
    of values), and MeanOut = momentum Mean + (1 - momentum) m, VarianceOut likewise; with is_test or use_global_stats
    m is Mean and v is Variance.

    Args:
        X: [batch, channels, ...] or, with NHWC, [batch, ..., channels]; 2 to 5 axes, float32 or float64.
        Scale, Bias: [channels] element type of X.
        Mean, Variance: [channels] element type of X; running statistics.
        Moments: [2, channels] float64; mean and sum of squared deviations of X, where its maker has found them (NHWC, in training).
        momentum, epsilon, is_test, data_layout, use_global_stats: see the attributes.

    Returns:
        Y: type of X.
        MeanOut, VarianceOut: the variables Mean and Variance themselves, updated.
        SavedMean: [channels] mean that was used.
        SavedVariance: [channels] 1 / sqrt(v + epsilon) that was used; the name is fluid's.

    Raises:
        PeError: X with fewer than 2 or more than 5 axes, or statistics or parameters that are not one number per channel.

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
    if moments is not None:
        if is_test or use_global_stats or data_layout != "NHWC":
            raise PeError("batch_norm takes Moments in training only, and with the channels last")
        if moments.dtype != "float64" or not same_sizes(moments.shape, (2, channels)):
            raise PeError(f"batch_norm needs Moments float64 [2, {channels}], got {moments}")
    return x, mean, variance, each, each


def sizes_of(o: Lowering, x: Buffer) -> tuple[int, int, int]:
    """Return samples, channels and positions; positions 1 when the channels are innermost in memory."""
    if o.attrs["data_layout"] == "NHWC":
        return product(x.shape[:-1]), x.shape[-1], 1
    return x.shape[0], x.shape[1], product(x.shape[2:])


def fold(rows: int, channels: int) -> tuple[int, int]:
    """Return rows and width of the same numbers in wider rows: few channels would make short loops."""
    times = 1
    # Doubled while rows can be paired: two neighbouring rows of few channels make one of twice as many.
    while rows and rows % (2 * times) == 0 and 2 * times * channels <= WIDEST:
        times *= 2
    return rows // times, channels * times


def sums(o: Lowering, width: int, x: Buffer) -> list[Buffer]:
    """Return what `join_pieces` wants of memory: means, squares, centre and part."""
    doubles = [o.scratch(width, "float64") for _ in range(2)]
    return [*doubles, o.scratch(width, x.dtype), o.scratch(2 * width, x.dtype)]


def columns_of(o: Lowering, x: Buffer, width: int) -> list[tuple[int | None, int, int]]:
    """Cut the columns of [rows, width] into parts that threads share, as `thread_parts`: each sums its own over all rows, in order.

    Large arrays are not cut: memory gives parts of rows more slowly than whole ones, to all threads together.
    """
    # Beyond the caches one thread already waits for memory, and parts would only read its lines several times.
    found = column_pairs(width, worth(o.threads, x.type.nbytes) if x.type.nbytes <= NEAR else 1)
    return [(number if len(found) > 1 else None, low, high) for number, (low, high) in enumerate(found)]


def rows_of(o: Lowering, x: Buffer, width: int, *along: Buffer) -> Iterator[tuple[int | None, int, list[Offset]]]:
    """Cut x, of rows so wide, into parts that threads share: yield number, rows, and where these begin in x and others like it."""
    for number, first, last in thread_parts(x.size // max(1, width), o.threads, x.type.nbytes):
        yield number, last - first, [Offset(b, first * width) for b in (x, *along)]


def take_shared_moments(o: Lowering, x: Buffer, scratch: list[Buffer], moments: Buffer, channels: int) -> None:
    """Append the calls that find the moments of [..., channels], made by parts that come before; scratch is of `sums`."""
    rows, width = fold(x.size // max(1, channels), channels)
    # The parts that make x have all to be done.
    o.wait()
    for part, low, high in columns_of(o, x, width):
        o.call(moments_of_columns, x, *scratch, rows, width, low, high, part=part)
    o.call(moments_of_channels, *scratch[:2], moments, rows, width, channels, dtype=x.dtype)


def output_or_scratch(o: Lowering, slot: str, like: Buffer) -> Buffer:
    return o.output_or_scratch(slot, like.size, like.dtype)


def gradients_of(o: Lowering) -> tuple[Buffer, Buffer, int, bool]:
    """Return where the gradients of scale and bias go, whether the statistics depend on X, and whether those gradients are needed."""
    scale, batch = o.input("Scale"), int(not (o.attrs["is_test"] or o.attrs["use_global_stats"]))
    # Fixed statistics do not depend on X: then the sums matter to Scale and Bias alone.
    if batch or o.has("Scale@GRAD") or o.has("Bias@GRAD"):
        return output_or_scratch(o, "Scale@GRAD", scale), output_or_scratch(o, "Bias@GRAD", scale), batch, True
    # The kernels of X' multiply the sums by 0 then. What scratch memory held before may be NaN, and 0 times that is NaN.
    zeros = o.scratch(scale.size, scale.dtype)
    o.call(fill, zeros, scale.size, 0.0)
    return zeros, zeros, batch, False


def statistics(o: Lowering, x: Buffer) -> tuple[Buffer, Buffer]:
    """Append the calls that write all statistics of a batch_norm-like op, and return the mean and 1 / deviation to use."""
    mean, variance = o.input("Mean"), o.input("Variance")
    n, channels, size = sizes_of(o, x)
    epsilon = o.attrs["epsilon"]
    saved, inverse = output_or_scratch(o, "SavedMean", mean), output_or_scratch(o, "SavedVariance", variance)
    new_mean, new_variance = output_or_scratch(o, "MeanOut", mean), output_or_scratch(o, "VarianceOut", variance)
    if o.attrs["is_test"] or o.attrs["use_global_stats"]:
        o.call(statistics_given, mean, variance, saved, inverse, channels, epsilon)
        # In training the outputs usually are the inputs, and then nothing moves.
        if o.has("MeanOut") and new_mean is not mean:
            o.call(copy_two, mean, new_mean, variance, new_variance, channels)
        return saved, inverse
    both = (mean, variance, new_mean, new_variance, saved, inverse)
    if o.has("Moments"):
        o.call(statistics_found, o.input("Moments"), *both, n, channels, o.attrs["momentum"], epsilon, dtype=x.dtype)
    elif size == 1:
        rows, width = fold(n, channels)
        o.call(statistics_last, x, *both, *sums(o, width, x), rows, width, channels, o.attrs["momentum"], epsilon)
    else:
        o.call(statistics_first, x, *both, n, channels, size, o.attrs["momentum"], epsilon)
    return saved, inverse


@batch_norm.lower("cpu")
def batch_norm_cpu(o: Lowering) -> None:
    """Statistics, then values."""
    x, y = o.input("X"), o.output("Y")
    saved, inverse = statistics(o, x)
    n, channels, size = sizes_of(o, x)
    scale, bias = o.input("Scale"), o.input("Bias")
    if size == 1:
        _, width = fold(n, channels)
        for part, rows, (from_x, to_y) in rows_of(o, x, width, y):
            table = o.scratch(4 * width, x.dtype)
            o.call(normalise_last, from_x, saved, inverse, scale, bias, to_y, table, rows, width, channels, part=part)
    else:
        o.call(normalise_first, x, saved, inverse, scale, bias, y, n, channels, size)


@batch_norm.grad(uses="X Scale SavedMean SavedVariance", traits=[InPlace({"X@GRAD": "Y@GRAD"})]).lower("cpu")
def batch_norm_grad_cpu(o: Lowering) -> None:
    """Sums for Bias and Scale; X' loses its mean and its slope on X, where the statistics are the batch's."""
    x, scale, g = o.input("X"), o.input("Scale"), o.input("Y@GRAD")
    saved, inverse = o.input("SavedMean"), o.input("SavedVariance")
    n, channels, size = sizes_of(o, x)
    dscale, dbias, batch, needed = gradients_of(o)
    rows, width = fold(n, channels)
    if needed:
        if size == 1:
            sums, table = o.scratch(2 * width, "float64"), o.scratch(3 * width, x.dtype)
            o.call(gradient_sums_last, x, g, saved, inverse, dscale, dbias, sums, table, rows, width, channels)
        else:
            o.call(gradient_sums_first, x, g, saved, inverse, dscale, dbias, n, channels, size)
    if not o.has("X@GRAD"):
        return
    dx = o.output("X@GRAD")
    if size == 1:
        for part, some, (from_x, from_g, to_dx) in rows_of(o, x, width, g, dx):
            own = (dscale, dbias, to_dx, o.scratch(5 * width, x.dtype), some, width, channels, n * batch)
            o.call(gradient_last, from_x, from_g, saved, inverse, scale, *own, part=part)
    else:
        o.call(gradient_first, x, g, saved, inverse, scale, dscale, dbias, dx, n, channels, size, batch)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("batch_norm")
def batch_norm_onnx(o: Writer) -> None:
    """With running statistics; those of the batch have no use outside training.

    Raises:
        PeError: the op takes statistics of the batch.
    """
    if not (o.attrs["is_test"] or o.attrs["use_global_stats"]):
        raise PeError("batch_norm in training cannot be exported", hint="export the evaluation program")
    rank = len(o.type().shape)
    last = o.attrs["data_layout"] != "NCHW" and rank > 2
    x = o.node("Transpose", [o.x()], perm=[0, rank - 1, *range(1, rank - 1)]) if last else o.x()
    names = [x, *(o.x(slot) for slot in ("Scale", "Bias", "Mean", "Variance"))]
    made = o.node("BatchNormalization", names, epsilon=o.attrs["epsilon"])
    if last:
        o.node("Transpose", [made], to="Y", perm=[0, *range(2, rank), 1])
    else:
        o.node("Identity", [made], to="Y")
