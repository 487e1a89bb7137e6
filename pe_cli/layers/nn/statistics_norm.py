"""Normalisation by statistics that are kept: data_norm by those of the data, spectral_norm by a weight's largest singular value."""

from __future__ import annotations

from pe_cli.core.types import product
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.initializer import Constant, Normal
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr

#: Elements nearer to 0 count as 0: data_norm leaves slots that begin with one as zeros.
NOTHING = 1e-7


@layer
def spectral_norm(weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None) -> Variable:
    """Divide a weight by its largest singular value, which a power iteration finds.

    v = W^T u / (|W^T u| + eps), u = W v / (|W v| + eps), repeated; Out = weight / (u W v), W the weight as a matrix with dim's rows

    Gradients hold u and v fixed. The first u and v are drawn once and stay.

    Args:
        weight: two to five axes, sizes known.
        dim: axis of the rows: 0 for the weight of a convolution, 1 for one of fc or conv2d_transpose.
        power_iters: rounds, at least 0.
        eps: added to the lengths.
        name: prefix of the names of u, [rows], and v, [columns].

    Returns:
        Shape and dtype of weight.

    Raises:
        PeError: sizes that are not known, or an axis that is not there.

    Source:
        fluid.layers.spectral_norm; Miyato et al. 2018, algorithm 1.
    """
    helper = LayerHelper("spectral_norm", name)
    shape = weight.shape
    if not 2 <= len(shape) <= 5 or min(shape) < 1 or not 0 <= dim < len(shape):
        raise helper.error(f"spectral_norm needs a weight of two to five known sizes and a dim among them, got {weight} and {dim}")
    rows, columns = shape[dim], product(shape) // shape[dim]
    fixed, drawn = ParamAttr(trainable=False), Normal(0.0, 1.0)
    u, v = (helper.parameter(fixed, (n,), weight.dtype, default=drawn) for n in (rows, columns))
    return append_spectral_norm(helper, weight, u, v, dim, power_iters, eps)


def append_spectral_norm(helper: LayerHelper, weight: Variable, u: Variable, v: Variable, dim: int, rounds: int, eps: float) -> Variable:
    """Append the power iteration and the division; arguments of `spectral_norm`, with the first u and v.

    Raises:
        PeError: a negative number of rounds.
    """
    if rounds < 0:
        raise helper.error(f"{helper.layer_type}: power_iters must be at least 0, got {rounds}")
    rows, columns = u.shape[0], v.shape[0]
    w = weight
    if dim:
        # The weight is turned so that dim's axis counts the rows: the norm is of a matrix, and which one depends on the layer it is of.
        w = helper.one("transpose", {"X": w}, {"axis": [dim, *(i for i, _ in enumerate(weight.shape) if i != dim)]})
    w = helper.one("reshape", {"X": w}, {"shape": [rows, columns]})
    left = helper.one("reshape", {"X": u}, {"shape": [1, rows]})
    right = helper.one("reshape", {"X": v}, {"shape": [columns, 1]})
    for _ in range(rounds):
        right = _unit(helper, helper.one("matmul", {"X": w, "Y": left}, {"transpose_X": True, "transpose_Y": True}), eps)
        left = _unit(helper, helper.one("matmul", {"X": right, "Y": w}, {"transpose_X": True, "transpose_Y": True}), eps)
    # u and v count as constants: the derivative of the largest singular value by the weight is u v^T, their own play no part.
    left.stop_gradient = right.stop_gradient = True
    stretch = helper.one("matmul", {"X": helper.one("matmul", {"X": left, "Y": w}), "Y": right})
    return helper.one("elementwise_div", {"X": weight, "Y": helper.one("reshape", {"X": stretch}, {"shape": [1]})})


def _unit(helper: LayerHelper, x: Variable, eps: float) -> Variable:
    """Divide a vector by its length plus eps."""
    total = helper.one("reduce_sum", {"X": helper.one("square", {"X": x})}, {"reduce_all": True, "keep_dim": True})
    length = helper.one("scale", {"X": helper.one("sqrt", {"X": total})}, {"bias": eps})
    return helper.one("elementwise_div", {"X": x, "Y": length})


@layer
def data_norm(
    input: Variable,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    slot_dim: int = -1,
    enable_scale_and_shift: bool = False,
    batch_size: float = 1e4,
    batch_sum: float = 0.0,
    batch_square: float = 1e4,
    scale_w: float = 1.0,
    bias: float = 0.0,
) -> Variable:
    """Normalise every channel by statistics of the data that are parameters: how many, their sum, the sum of their squares.

    Out = act((input - sum / count) sqrt(count / squares)); with enable_scale_and_shift times scale_w, plus bias

    A training step leaves the statistics as they are: they are set from outside.

    Args:
        input: [batch, channels], or images.
        act: name of an activation, or None.
        data_layout: NCHW or NHWC.
        name: prefix of the names of the parameters.
        slot_dim: channels in a slot; of a slot whose first channel is 0 all outputs are 0. -1 for no slots.
        enable_scale_and_shift: learn a scale and a bias.
        batch_size: first value of the counts.
        batch_sum: first value of the sums.
        batch_square: first value of the sums of squares.
        scale_w: first value of the scale.
        bias: first value of the bias.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: sizes that are not known, an unknown layout or value, or slots that do not fit.

    Source:
        fluid.layers.data_norm.
    """
    helper = LayerHelper("data_norm", name)
    if data_layout not in ("NCHW", "NHWC"):
        raise helper.error(f"data_norm: data_layout is {data_layout!r}", hint="NCHW or NHWC")
    if len(input.shape) < 2:
        raise helper.error(f"data_norm needs at least two axes, got {input}")
    axis = 1 if data_layout == "NCHW" else len(input.shape) - 1

    def made(end: str, value: float, *, trainable: bool) -> Variable:
        attr = ParamAttr(name=f"{helper.name}.{end}", trainable=trainable)
        return helper.parameter(attr, (input.shape[axis],), input.dtype, default=Constant(value))

    first = {"scale_w": scale_w, "bias": bias} if enable_scale_and_shift else {}
    learned = [made(end, value, trainable=True) for end, value in first.items()]
    known = {"batch_size": batch_size, "batch_sum": batch_sum, "batch_square_sum": batch_square}
    count, total, squares = (made(end, value, trainable=False) for end, value in known.items())
    mean = helper.one("elementwise_div", {"X": total, "Y": count})
    # Squares are taken as they are kept: that of the mean is not subtracted, as in the original.
    scale = helper.one("sqrt", {"X": helper.one("elementwise_div", {"X": count, "Y": squares})})
    out = helper.one("elementwise_sub", {"X": input, "Y": mean}, {"axis": axis})
    out = helper.one("elementwise_mul", {"X": out, "Y": scale}, {"axis": axis})
    if learned:
        out = helper.one("elementwise_mul", {"X": out, "Y": learned[0]}, {"axis": axis})
        out = helper.one("elementwise_add", {"X": out, "Y": learned[1]}, {"axis": axis})
    if slot_dim > 0:
        out = _shown(helper, input, out, slot_dim, scaled=bool(learned))
    return helper.activate(out, act)


def _shown(helper: LayerHelper, x: Variable, out: Variable, slot: int, *, scaled: bool) -> Variable:
    """Write zeros into slots of `slot` channels whose first one is 0 in x.

    Raises:
        PeError: not [batch, channels], channels that the slots do not fill, or a learned scale beside them.
    """
    if len(x.shape) != 2 or x.shape[1] % slot:
        raise helper.error(f"data_norm: slots of {slot} channels do not fill {x}", hint="give slot_dim a divisor of the channels")
    if scaled:
        raise helper.error("data_norm: slot_dim and enable_scale_and_shift do not go together", hint="leave one out")
    slots = [-1, x.shape[1] // slot, slot]
    parted = helper.one("reshape", {"X": x}, {"shape": slots})
    leading = helper.one("slice", {"Input": parted}, {"axes": [2], "starts": [0], "ends": [1]})
    least = helper.one("fill_constant", {}, {"shape": [1], "dtype": x.dtype, "value": NOTHING})
    there = helper.one("greater_equal", {"X": helper.one("abs", {"X": leading}), "Y": least})
    shown = helper.one("cast", {"X": there}, {"out_dtype": x.dtype})
    shown.stop_gradient = True
    kept = helper.one("elementwise_mul", {"X": helper.one("reshape", {"X": out}, {"shape": slots}), "Y": shown})
    return helper.one("reshape", {"X": kept}, {"shape": [-1, x.shape[1]]})
