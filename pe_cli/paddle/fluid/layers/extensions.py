"""Layers of the catalogue with fluid's wider arguments: integers, other ranks, and variables as sizes."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.layers.nn.bilinear import rates_of
from pe_cli.paddle.errors import FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.constant_sizes import known_or_fed, sizes_of
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.catalogue import ORDER, adapt
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import greater_equal, less_than
from pe_cli.paddle.fluid.layers.tensor import assign
from pe_cli.paddle.fluid.variable_operators import power, towards_zero
from pe_cli.program.ir import Variable


def elementwise_div(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Any:
    """Divide; quotients of whole numbers are cut towards 0."""
    if x.dtype in FLOATS:
        return call("elementwise_div", x, y, axis, act, name)
    ensure_defaults()
    return LayerHelper("elementwise_div", name).activate(towards_zero(x, y, axis), act)


def elementwise_pow(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Any:
    """Raise to powers; those of whole numbers are cut towards 0."""
    if x.dtype in FLOATS:
        return call("elementwise_pow", x, y, axis, act, name)
    ensure_defaults()
    return LayerHelper("elementwise_pow", name).activate(power(x, y, axis), act)


def reduce_mean(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """Take the mean along axes, or of all elements; that of whole numbers is cut towards 0."""
    axes = [dim] if isinstance(dim, int) else dim
    if input.dtype in FLOATS:
        return call("reduce_mean", input, axes, keep_dim, name)
    # In float64, as a mean in whole numbers would be cut at every step.
    found = call("reduce_mean", call("cast", input, "float64"), axes, keep_dim, name)
    return call("cast", found, input.dtype)


def accuracy(input: Variable, label: Variable, k: Any = 1, correct: Variable | None = None, total: Variable | None = None) -> Any:
    """Measure the share of samples whose label is among the k largest outputs; correct and total count samples, int32."""
    ensure_defaults()
    helper = LayerHelper("accuracy")
    with raised_as(FluidValueError):
        values, places = helper.op("top_k", {"X": input}, {"k": sizes_of("accuracy", "k", k, single=True)}, ("Out", "Indices"))
        inputs = {"Out": values, "Indices": places, "Label": label}
        share, *counts = helper.op("accuracy", inputs, {}, ("Accuracy", "Correct", "Total"))
    for out, count in zip((correct, total), counts, strict=True):
        if out is not None:
            assign(call("cast", count, "int32"), out)
    # A share is float32 in the original whatever the outputs are.
    return share if share.dtype == "float32" else call("cast", share, "float32")


def anchor_generator(
    input: Variable,
    anchor_sizes: Any = None,
    aspect_ratios: Any = None,
    variance: Any = (0.1, 0.1, 0.2, 0.2),
    stride: Any = None,
    offset: float = 0.5,
    name: str | None = None,
) -> Any:
    """Put boxes of several sizes and shapes, one number or several, at every pixel of a feature map, in pixels of the image.

    Raises:
        FluidValueError: no sizes, ratios or stride are given; a ValueError.
    """
    if None in (anchor_sizes, aspect_ratios, stride):
        raise FluidValueError("anchor_generator needs anchor_sizes, aspect_ratios and stride")
    sizes, ratios = ([float(n) for n in np.ravel(given)] for given in (anchor_sizes, aspect_ratios))
    return call("anchor_generator", input, sizes, ratios, [float(v) for v in variance], [float(s) for s in stride], offset, name)


def lod_append(x: Variable, level: Any) -> Any:
    """Add a level of sequences inside those that a tensor has: offsets, or a variable that holds them or has the sequences."""
    if not isinstance(level, Variable):
        return call("lod_append", x, list(level))
    ensure_defaults()
    return LayerHelper("lod_append").one("lod_reset", {"X": x, "Y": level}, {"append": True})


def pad2d(
    input: Variable,
    paddings: Any = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Continue images beyond their edges; paddings are four numbers, or an integer variable [4]."""
    ensure_defaults()
    sizes, fed = known_or_fed("pad2d", "paddings", paddings)
    if fed is None:
        return call("pad2d", input, list(sizes), mode, pad_value, data_format, name)
    helper = LayerHelper("pad2d", name)
    last = data_format == "NHWC"
    # The op pads NCHW alone where its paddings are fed.
    x = call("transpose", input, [0, 3, 1, 2]) if last else input
    with raised_as(FluidValueError):
        made = helper.one("pad2d", {"X": x, "Paddings": fed}, {"mode": mode, "pad_value": float(pad_value)})
    return call("transpose", made, [0, 2, 3, 1]) if last else made


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Normalise groups of channels; there is a scale or a shift only where an attribute is given, as in the original."""
    return call("group_norm", input, groups, epsilon, param_attr or False, bias_attr or False, act, data_layout, name)


def row_conv(input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None) -> Any:
    """Add to every row some rows behind it, each number with a weight of its own: of its sequence, or of [batch, time, width]."""
    if len(input.shape) != 3:
        return call("row_conv", input, future_context_size, param_attr, act)
    ensure_defaults()
    helper = LayerHelper("row_conv")
    _, time, width = input.shape
    weight = helper.parameter(param_attr, (future_context_size + 1, width), input.dtype)
    # Rows of zeros behind the end, so that the last rows have neighbours to look at.
    longer = call("pad", input, [0, 0, 0, future_context_size, 0, 0])
    parts = []
    for t in range(future_context_size + 1):
        own = call("reshape", call("slice", weight, [0], [t], [t + 1]), [width])
        parts.append(call("elementwise_mul", call("slice", longer, [1], [t], [t + time]), own))
    return helper.activate(call("sums", parts), act)


def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Any:
    """Add waves of many lengths to sequences, [batch, time, width] or rows with sequences, by which a model tells places apart.

    Raises:
        FluidValueError: the width of rows is odd; a ValueError.
    """
    if len(input.shape) != 2:
        return call("add_position_encoding", input, alpha, beta, name)
    width = input.shape[1]
    if width < 2 or width % 2:
        raise FluidValueError(f"add_position_encoding needs an even width, got {input}")
    ones = call("fill_constant_batch_size_like", input, [-1, 1], input.dtype, 1.0)
    # A running number of rows over the whole batch, minus that of each sequence's first row.
    number = call("lod_reset", call("cumsum", ones, 0), input)
    first = call("sequence_expand_as", call("sequence_first_step", number), input)
    steps = call("elementwise_sub", number, first)
    waves = call("elementwise_mul", call("expand", steps, [1, width // 2]), assign((1.0 / rates_of(width)).astype(input.dtype)))
    both = call("concat", [call("sin", waves), call("cos", waves)], 1)
    return call("elementwise_add", call("scale", input, float(alpha)), call("scale", both, float(beta)))


def round(x: Variable, name: str | None = None) -> Any:
    """Round to the nearest whole number, halves away from 0; the gradient is 0."""
    size = call("abs", x)
    low = call("floor", size)
    half = call("fill_constant", [1], x.dtype, 0.5)
    # floor(|x| + 0.5) would round 0.49999997 up in float32: the sum is not exact.
    up = call("cast", greater_equal(call("elementwise_sub", size, low), half), x.dtype)
    return call("elementwise_mul", call("elementwise_add", low, up), call("sign", x))


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Any:
    """Put the elements of images into other places, as the original does.

    It makes [batch, channels / blocksize^2, height blocksize, width blocksize] of the same numbers as

    y[b, c, i blocksize + p, j blocksize + q] = x[b, (p blocksize + q) channels / blocksize^2 + c, i, j]

    which the result [batch, channels blocksize^2, height / blocksize, width / blocksize] shows row by row. `space_to_depth` of a model
    file gathers blocks of pixels instead.

    Raises:
        FluidValueError: sizes that blocksize, or the channels that its square, does not divide; a ValueError.
    """
    _, channels, high, wide = x.shape
    if blocksize < 2 or channels % blocksize**2 or high % blocksize or wide % blocksize:
        raise FluidValueError(f"space_to_depth: blocksize {blocksize} does not fit {x}", hint="channels of which its square is a factor")
    parts = call("reshape", x, [-1, blocksize, blocksize, channels // blocksize**2, high, wide])
    moved = call("transpose", parts, [0, 3, 4, 1, 5, 2])
    return call("reshape", moved, [-1, channels * blocksize**2, high // blocksize, wide // blocksize])


def hsigmoid(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Any:
    """Measure classes by the yes-or-no questions on the way to them in a binary tree.

    As in the original, every step that a path is shorter than the longest one adds ln 2, which `hsigmoid` of a model file leaves out.
    """
    costs = call("hsigmoid", input, label, num_classes, param_attr, bias_attr, name, path_table, path_code, is_custom, is_sparse)
    if path_table is not None:
        lacking = call("reduce_sum", call("cast", less_than(path_table, call("fill_constant", [1], "int64", 0)), input.dtype), [1], True)
        return call("elementwise_add", costs, call("scale", lacking, math.log(2)))
    # The first classes are one step higher in the complete tree, unless it has all its leaves at one height.
    # Leaves of a complete binary tree lie on two levels; the first classes are on the higher one.
    higher = 2 ** (num_classes - 1).bit_length() - num_classes
    if not higher:
        return costs
    lacking = call("cast", less_than(label, call("fill_constant", [1], "int64", higher)), input.dtype)
    return call("elementwise_add", costs, call("scale", lacking, math.log(2)))


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Any:
    """Take rows by index. With overwrite, the gradient of a row that is taken several times is that of the last time; else the sum."""
    ensure_defaults()
    with raised_as(FluidValueError):
        return LayerHelper("gather").one("gather", {"X": input, "Index": index}, {"overwrite": bool(overwrite)})


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Any:
    """Weigh all products of an element of x and one of y; the bias is [1, size], as the original's is."""
    made = call("bilinear_tensor_product", x, y, size, None, name, param_attr, False)
    helper = LayerHelper("bilinear_tensor_product", name)
    if bias_attr is not False:
        bias = helper.parameter(bias_attr, (1, size), x.dtype, is_bias=True)
        made = helper.one("elementwise_add", {"X": made, "Y": call("reshape", bias, [size])}, {"axis": 1})
    return helper.activate(made, act)


def scale(
    x: Variable, scale: Any = 1.0, bias: float = 0.0, bias_after_scale: bool = True, act: str | None = None, name: str | None = None
) -> Any:
    """Multiply by a number, or by a variable [1], and add a number, before that without bias_after_scale."""
    factor, fed = known_or_fed("scale", "scale", scale, single=True)
    if x.dtype not in FLOATS:  # the original has all of them in the element type of x
        bias = int(bias)
        factor = int(factor) if fed is None else factor
    if fed is None:
        return adapt(find("scale"))(x, float(factor), float(bias), bias_after_scale, act, name)
    shifted = x if bias_after_scale else call("scale", x, 1.0, float(bias))
    made = call("elementwise_mul", shifted, fed if fed.dtype == x.dtype else call("cast", fed, x.dtype))
    made = call("scale", made, 1.0, float(bias)) if bias_after_scale else made
    return LayerHelper("scale", name).activate(made, act)


def exp(x: Variable, name: str | None = None) -> Any:
    """Raise e to powers; those of whole numbers are cut towards 0."""
    if x.dtype not in ("int32", "int64"):
        return call("exp", x, name)
    return call("cast", call("exp", call("cast", x, "float64"), name), x.dtype)


def l2_normalize(x: Variable, axis: int | None, epsilon: float = 1e-12, name: str | None = None) -> Any:
    """Divide by the length along an axis: where it is None, along the second, or the only one."""
    return call("l2_normalize", x, min(1, len(x.shape) - 1) if axis is None else axis, epsilon, name)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Any:
    """Weigh numbers by their sigmoids: x sigmoid(x). beta has no effect, as in the original, and a warning says so."""
    if beta != 1.0:
        warnings.warn("fluid.layers.swish: beta has no effect, as in the original: write x * sigmoid(scale(x, beta))", stacklevel=2)
    return call("swish", x, 1.0, name)


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> Any:
    """Run one step of a gated recurrent unit; activations have no effect, as in the original, and a warning says so."""
    if (activation, gate_activation) != ("tanh", "sigmoid"):
        words = "fluid.layers.gru_unit: activation and gate_activation have no effect, as in the original: the layer takes tanh and sigmoid"
        warnings.warn(words, stacklevel=2)
    return adapt(find("gru_unit"))(input, hidden, size, param_attr, bias_attr, "tanh", "sigmoid", origin_mode)


def batch_norm(*args: Any, **given: Any) -> Any:
    """Normalise every channel over the batch; momentum may be a variable [1], whose value of the step counts.

    Arguments are those of the catalogue's layer.
    """
    named = {**dict(zip(ORDER["batch_norm"].split(), args, strict=False)), **given}
    momentum = named.get("momentum")
    layer = adapt(find("batch_norm"))
    if not isinstance(momentum, Variable):
        return layer(*args, **given)
    try:
        return layer(**{**named, "momentum": float(sizes_of("batch_norm", "momentum", momentum, single=True))})
    except NotThereYet:
        made = layer(**{**named, "momentum": 0.0})
    block = made.block
    # The newest one is this layer's: nothing was appended behind it but its activation.
    at = max(i for i, op in enumerate(block.ops) if op.type == "batch_norm")
    moving = [block.var(block.ops[at].inputs[slot][0]) for slot in ("Mean", "Variance")]
    helper = LayerHelper("batch_norm_momentum")
    rest = call("scale", momentum, -1.0, 1.0)
    for v in moving:  # the op leaves the batch's own here: move only a part of the way there
        before = block.program.unique(f"{helper.name}.tmp")
        block.append_op("assign", {"X": v}, {"Out": before}, index=at)
        way = call("elementwise_mul", call("elementwise_sub", v, block.var(before)), rest)
        helper.op("elementwise_add", {"X": block.var(before), "Y": way}, {}, (), {"Out": v})
    return made


batch_norm.__signature__ = inspect.signature(adapt(find("batch_norm")))  # type: ignore[attr-defined]

__all__ = [
    "accuracy", "add_position_encoding", "anchor_generator", "batch_norm", "bilinear_tensor_product", "elementwise_div", "elementwise_pow",
    "exp", "gather", "group_norm", "gru_unit", "hsigmoid", "l2_normalize", "lod_append", "pad2d", "reduce_mean", "round", "row_conv",
    "scale", "space_to_depth", "swish",
]  # fmt: skip
