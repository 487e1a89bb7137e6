"""layer_norm: every sample gets mean 0 and variance 1 over its own values, then a scale and a bias per position."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.language import Int, Ptr, PtrF64, Real, T, helper, kernel
from pe_cli.kernels.math.moments import piece_rows, run_moments
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.kernels.math.vector_math import rsqrt
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Narrow, SumsRows


@helper
def _short_moments(x, at, n):
    """Return mean and variance of a row that fits the first cache, as `run_moments`, but without a step in float64."""
    s = T(0)
    for i in range(at, at + n):
        s += x[i]
    # Two walks over a short row: with the mean known, squares are of differences, which lose no digits where the mean is large.
    share = T(1) / T(n)
    centre = s * share
    rest = T(0)
    q = T(0)
    for i in range(at, at + n):
        d = x[i] - centre
        rest += d
        q += d * d
    # The differences do not add up to zero exactly: what is left corrects mean and variance.
    off = rest * share
    return centre + off, (q - rest * off) * share


@kernel
def normalise_rows(
    x: Ptr, scale: Ptr, bias: Ptr, y: Ptr, mean: Ptr, variance: Ptr, rows: Int, n: Int, epsilon: Real, weights: Int
):
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias; weights: 1 scale, 2 bias, 3 both; y may be x."""
    for r in range(rows):
        at = r * n
        # A row longer than a stretch is added up in float64 from stretches.
        if n <= CHUNK:
            centre, v = _short_moments(x, at, n)
        else:
            m, q = run_moments(x, at, n)
            centre, v = T(m), T(q / n)
        mean[r] = centre
        variance[r] = v
        f = rsqrt(v + epsilon)
        if weights == 3:
            for i in range(n):
                y[at + i] = (x[at + i] - centre) * (f * scale[i]) + bias[i]
        else:
            for i in range(n):
                y[at + i] = (x[at + i] - centre) * f
            if weights & 1:
                for i in range(n):
                    y[at + i] *= scale[i]
            if weights & 2:
                for i in range(n):
                    y[at + i] += bias[i]


@helper
def _rows_back(x, g, scale, mean, variance, dx, first, last, n, epsilon, weights):
    """Do `normalise_rows_back` for rows from first to last."""
    for r in range(first, last):
        at = r * n
        m, f = mean[r], T(1.0 / (variance[r] + epsilon) ** 0.5)
        total = 0.0
        slope = 0.0
        for begin in range(0, n, CHUNK):
            a = T(0)
            b = T(0)
            if weights & 1:
                for i in range(begin, min(n, begin + CHUNK)):
                    s = g[at + i] * scale[i]
                    a += s
                    b += s * (x[at + i] - m)
            else:
                for i in range(begin, min(n, begin + CHUNK)):
                    a += g[at + i]
                    b += g[at + i] * (x[at + i] - m)
            total += a
            slope += b
        level = T(total / n) * f
        k = T(slope / n) * f * f * f
        for i in range(n):
            s = g[at + i] * scale[i] if weights & 1 else g[at + i]
            dx[at + i] = f * s - level - k * (x[at + i] - m)


@helper
def _add_positions(x, g, mean, variance, sums, part, first, last, n, epsilon):
    """Add the sums of `position_sums` over a piece of rows to sums."""
    for i in range(2 * n):
        part[i] = T(0)
    # Four rows at once: each sum of a position is read and written once for four gradients.
    whole = first + (last - first) // 4 * 4
    for r in range(first, whole, 4):
        a, b, c, d = r * n, (r + 1) * n, (r + 2) * n, (r + 3) * n
        ma, mb, mc, md = mean[r], mean[r + 1], mean[r + 2], mean[r + 3]
        fa, fb = T(1.0 / (variance[r] + epsilon) ** 0.5), T(1.0 / (variance[r + 1] + epsilon) ** 0.5)
        fc, fd = T(1.0 / (variance[r + 2] + epsilon) ** 0.5), T(1.0 / (variance[r + 3] + epsilon) ** 0.5)
        for i in range(n):
            ga, gb, gc, gd = g[a + i], g[b + i], g[c + i], g[d + i]
            part[i] += (ga + gb) + (gc + gd)
            low = ga * ((x[a + i] - ma) * fa) + gb * ((x[b + i] - mb) * fb)
            part[n + i] += low + (gc * ((x[c + i] - mc) * fc) + gd * ((x[d + i] - md) * fd))
    for r in range(whole, last):
        at = r * n
        m, f = mean[r], T(1.0 / (variance[r] + epsilon) ** 0.5)
        for i in range(n):
            part[i] += g[at + i]
            part[n + i] += g[at + i] * ((x[at + i] - m) * f)
    for i in range(2 * n):
        sums[i] += part[i]


@kernel
def normalise_rows_back(
    x: Ptr, g: Ptr, scale: Ptr, mean: Ptr, variance: Ptr, dx: Ptr, rows: Int, n: Int, epsilon: Real, weights: Int
):
    """dx = f (s - mean(s) - z mean(s z)) with s = g scale, z the normalised x and f = 1 / sqrt(variance + epsilon)."""
    _rows_back(x, g, scale, mean, variance, dx, 0, rows, n, epsilon, weights)


@kernel
def position_sums(
    x: Ptr, g: Ptr, mean: Ptr, variance: Ptr, dscale: Ptr, dbias: Ptr, sums: PtrF64, part: Ptr, rows: Int, n: Int, epsilon: Real
):
    """dbias = sum of g, dscale = sum of g times the normalised x; sums and part hold two numbers a position."""
    for i in range(2 * n):
        sums[i] = 0.0
    # Some rows at a time, so that both walks over them find them in the cache.
    step = piece_rows(n)
    for first in range(0, rows, step):
        _add_positions(x, g, mean, variance, sums, part, first, min(rows, first + step), n, epsilon)
    for i in range(n):
        dbias[i] = T(sums[i])
        dscale[i] = T(sums[n + i])


@kernel
def normalise_back(
    x: Ptr, g: Ptr, scale: Ptr, mean: Ptr, variance: Ptr, dx: Ptr, dscale: Ptr, dbias: Ptr, sums: PtrF64, part: Ptr, rows: Int, n: Int,
    epsilon: Real, weights: Int,
):  # fmt: skip
    """Do both, piece by piece, so that x and g are read from memory once."""
    for i in range(2 * n):
        sums[i] = 0.0
    step = piece_rows(n)
    for first in range(0, rows, step):
        last = min(rows, first + step)
        _rows_back(x, g, scale, mean, variance, dx, first, last, n, epsilon, weights)
        _add_positions(x, g, mean, variance, sums, part, first, last, n, epsilon)
    for i in range(n):
        dbias[i] = T(sums[i])
        dscale[i] = T(sums[n + i])


@op(
    "layer_norm",
    traits=[
        Narrow(keeps=("Scale", "Bias", "Mean", "Variance")),
        SumsRows(("Scale", "Bias"), lambda attrs, shapes: attrs["begin_norm_axis"] > 0),
    ],
    inputs="X Scale? Bias?",
    floats="X",
    outputs="Y Mean Variance",
    attrs={
        "begin_norm_axis": Attr(1, "first of the axes that are normalised together"),
        "epsilon": Attr(1e-5, "added to the variance, in its unit"),
    },
    differentiable="X Scale Bias",
    samples=[
        Sample({"X": (4, 6), "Scale": (6,), "Bias": (6,)}, name="rows"),
        Sample({"X": (2, 3, 5), "Scale": (15,), "Bias": (15,)}, name="two axes together"),
        Sample({"X": (2, 3, 5), "Scale": (5,), "Bias": (5,)}, {"begin_norm_axis": 2}, "the last axis"),
        Sample({"X": (3, 6)}, name="neither scale nor bias"),
        Sample({"X": (3, 6), "Scale": (6,)}, name="scale only"),
        Sample({"X": (3, 6), "Bias": (6,)}, name="bias only"),
        Sample({"X": (2, 1), "Scale": (1,), "Bias": (1,)}, name="one value per row"),
        Sample({"X": (2, 5000)}, name="rows of more than one piece"),
        Sample({"X": (600, 3), "Scale": (3,), "Bias": (3,)}, name="many rows"),
        Sample({"X": (0, 6), "Scale": (6,), "Bias": (6,)}, name="empty batch"),
    ],
)
def layer_norm(
    x: TensorType, scale: TensorType | None, bias: TensorType | None, *, begin_norm_axis: int, epsilon: float
) -> tuple[TensorType, ...]:
    """Normalise every sample by the mean and variance of its own values.

    Y = Scale (X - m) / sqrt(v + epsilon) + Bias,  m and v (biased) over the axes from begin_norm_axis on.

    Args:
        X: [batch, ...] float32 or float64.
        Scale, Bias: [values normalised together] element type of X; default 1 and 0.
        begin_norm_axis: first axis that is normalised.
        epsilon: see the formula.

    Returns:
        Y: type of X.
        Mean, Variance: [product of the axes before begin_norm_axis] element type of X.

    Raises:
        PeError: begin_norm_axis is not an axis after the first, or Scale or Bias do not have one number per value.

    Source:
        fluid.layers.layer_norm; Ba, Kiros, Hinton 2016, "Layer Normalization", eq. 4.
    """
    rank = len(x.shape)
    if not 1 <= begin_norm_axis < rank:
        raise PeError(
            f"layer_norm needs begin_norm_axis from 1 to {rank - 1} for X {x}, got {begin_norm_axis}",
            hint="the axes from begin_norm_axis on are normalised together",
        )
    each = x.with_shape(product(x.shape[begin_norm_axis:]))
    if each.size == 0:
        raise PeError(f"layer_norm needs at least one value to normalise, got X {x}")
    for name, given in (("Scale", scale), ("Bias", bias)):
        if given is not None and (given.dtype != x.dtype or not same_sizes(given.shape, each.shape)):
            raise PeError(f"layer_norm needs {name} of type {each}, one number per value of X {x}, got {given}")
    rows = x.with_shape(product(x.shape[:begin_norm_axis]))
    return x, rows, rows


def _sizes(o: Lowering, x: Buffer) -> tuple[int, int]:
    axis = o.attrs["begin_norm_axis"]
    return product(x.shape[:axis]), product(x.shape[axis:])


@layer_norm.lower("cpu")
def layer_norm_cpu(o: Lowering) -> None:
    """Row by row."""
    x = o.input("X")
    rows, n = _sizes(o, x)
    # A pointer has to be given; `weights` says that the kernel does not read it.
    scale = o.input("Scale") if o.has("Scale") else x
    bias = o.input("Bias") if o.has("Bias") else x
    mean, variance = (o.output_or_scratch(slot, rows, x.dtype) for slot in ("Mean", "Variance"))
    weights = int(o.has("Scale")) + 2 * int(o.has("Bias"))
    o.call(normalise_rows, x, scale, bias, o.output("Y"), mean, variance, rows, n, o.attrs["epsilon"], weights)


@layer_norm.grad(uses="X Scale Mean Variance").lower("cpu")
def layer_norm_grad_cpu(o: Lowering) -> None:
    """Some rows for X, then their sums for Scale and Bias, and so on."""
    # Where only one of both is wanted, there is nothing to share between the walks.
    if not (o.has("X@GRAD") and (o.has("Scale@GRAD") or o.has("Bias@GRAD"))):
        layer_norm_grad_apart(o)
        return
    x, g, scale, mean, variance, rows, n, epsilon, weights = given(o)
    o.call(normalise_back, x, g, scale, mean, variance, o.output("X@GRAD"), *_sums(o, n, x.dtype), rows, n, epsilon, weights)


def layer_norm_grad_apart(o: Lowering) -> None:
    """Lower the gradient row by row for X, then as sums over rows for Scale and Bias."""
    x, g, scale, mean, variance, rows, n, epsilon, weights = given(o)
    if o.has("X@GRAD"):
        o.call(normalise_rows_back, x, g, scale, mean, variance, o.output("X@GRAD"), rows, n, epsilon, weights)
    if o.has("Scale@GRAD") or o.has("Bias@GRAD"):
        o.call(position_sums, x, g, mean, variance, *_sums(o, n, x.dtype), rows, n, epsilon)


def given(o: Lowering) -> tuple[Any, ...]:
    """Return the arguments that the gradient's kernels share: x, g, scale, mean, variance, rows, n, epsilon, weights."""
    x, scaled = o.input("X"), bool(o.inputs("Scale"))
    scale = o.input("Scale") if scaled else x
    rows, n = _sizes(o, x)
    return x, o.input("Y@GRAD"), scale, o.input("Mean"), o.input("Variance"), rows, n, o.attrs["epsilon"], int(scaled)


def _sums(o: Lowering, n: int, dtype: str) -> tuple[Buffer, ...]:
    """Return where the sums over rows go, and room for them meanwhile."""
    sums = (o.output_or_scratch(slot, n, dtype) for slot in ("Scale@GRAD", "Bias@GRAD"))
    # Stretches are added up in the element's type, and their sums in float64.
    return *sums, o.scratch(2 * n, "float64"), o.scratch(2 * n, dtype)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("layer_norm")
def layer_norm_onnx(o: Writer) -> None:
    """ONNX's own; scale and bias get the shape of the axes."""
    begin, shape = o.attrs["begin_norm_axis"], o.type().shape
    inner = shape[begin:]
    ones = o.const(1.0, "X")
    names = [o.x()]
    for slot, absent in (("Scale", ones), ("Bias", "")):
        if o.has(slot):
            names.append(o.node("Reshape", [o.x(slot), o.const(inner)]))
        else:
            names.append(o.node("Expand", [absent, o.const(inner)]) if absent else "")
    o.node("LayerNormalization", names, to="Y", axis=begin, epsilon=o.attrs["epsilon"])
