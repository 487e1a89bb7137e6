"""Layers made of the core's: each appends ops and nothing else."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Variable
from pe_cli.program.sparse import rows_of


def call(layer: str, *args: Any, **given: Any) -> Any:
    """Append a layer of the catalogue."""
    ensure_defaults()
    return find(layer).fn(*args, **given)


def stack(x: Any, axis: int = 0) -> Any:
    """Join tensors along a new axis."""
    return call("stack", list(x) if isinstance(x, (list, tuple)) else [x], axis)


def flip(input: Variable, dims: Any, name: str | None = None) -> Any:
    """Reverse the order along axes."""
    return call("reverse", input, [dims] if isinstance(dims, int) else list(dims))


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Any:
    """Take the largest of every `groups` channels in a row."""
    axis %= len(x.shape)
    sizes = [*x.shape[:axis], x.shape[axis] // groups, groups, *x.shape[axis + 1 :]]
    return call("reduce_max", call("reshape", x, _one_unknown(sizes)), axis + 1)


def _one_unknown(sizes: Any) -> list[int]:
    """Return sizes for reshape: 0 keeps an unknown batch axis."""
    return [0 if i == 0 and s == -1 else s for i, s in enumerate(sizes)]


def prelu(x: Variable, mode: str, param_attr: Any = None, name: str | None = None) -> Any:
    """Let x through where it is above 0, else alpha x, with one alpha, one a channel, or one an element.

    Raises:
        FluidValueError: mode is none of all, channel and element.
    """
    ensure_defaults()
    helper = LayerHelper("prelu", name)
    shapes = {"all": [1], "channel": [1, *x.shape[1:2], *([1] * (len(x.shape) - 2))], "element": [1, *x.shape[1:]]}
    if mode not in shapes:
        raise helper.error(f"prelu: mode is {mode!r}", hint="all, channel or element")
    alpha = helper.parameter(param_attr, shapes[mode], x.dtype, default=Constant(0.25))
    below = call("scale", call("relu", call("scale", x, -1.0)), -1.0)
    return call("elementwise_add", call("relu", x), call("elementwise_mul", below, alpha))


def _moments(x: Variable, axes: list[int], epsilon: float) -> Any:
    """Return x with mean 0 and variance 1 over axes."""
    centred = call("elementwise_sub", x, call("reduce_mean", x, axes, True))
    variance = call("reduce_mean", call("square", centred), axes, True)
    return call("elementwise_mul", centred, call("rsqrt", call("scale", variance, 1.0, epsilon)))


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Normalise every group of channels of every sample; channels first, or last with NHWC.

    Raises:
        FluidValueError: the groups do not divide the channels, or an unknown layout.
    """
    ensure_defaults()
    helper = LayerHelper("group_norm", name)
    last = len(input.shape) - 1
    channels = input.shape[last if data_layout == "NHWC" else 1]
    if data_layout not in ("NCHW", "NHWC") or groups < 1 or channels % groups:
        raise helper.error(f"group_norm: {groups} groups of {channels} channels, {data_layout}", hint="NCHW or NHWC, a divisor")
    if data_layout == "NHWC":
        turned = call("transpose", input, [0, last, *range(1, last)])
        made = group_norm(turned, groups, epsilon, param_attr, bias_attr, act, "NCHW", helper.name)
        return call("transpose", made, [0, *range(2, last + 1), 1])
    sizes = [groups, channels // groups, *input.shape[2:]]
    parted = call("reshape", input, [0, *sizes])
    out = call(
        "reshape",
        _moments(parted, [2, *(3 + i for i, _ in enumerate(input.shape[2:]))], epsilon),
        [0, *input.shape[1:]],
    )
    return helper.activate(_scaled(helper, out, channels, param_attr, bias_attr), act)


def _scaled(helper: LayerHelper, x: Variable, channels: int, param_attr: Any, bias_attr: Any) -> Variable:
    """Append a gain and a bias per channel; False leaves one out."""
    if param_attr is not False:
        gain = helper.parameter(param_attr, [channels], x.dtype, default=Constant(1.0))
        x = call("elementwise_mul", x, gain, 1)
    return helper.add_bias(x, bias_attr, axis=1, end=2)


def instance_norm(
    input: Variable, epsilon: float = 1e-05, param_attr: Any = None, bias_attr: Any = None, name: str | None = None
) -> Any:
    """Normalise every channel of every sample."""
    ensure_defaults()
    axes = [2 + i for i, _ in enumerate(input.shape[2:])]
    out = _moments(input, axes, epsilon)
    return _scaled(LayerHelper("instance_norm", name), out, input.shape[1], param_attr, bias_attr)


def inplace_abn(input: Variable, act: str | None = None, act_alpha: float = 1.0, **given: Any) -> Any:
    """Normalise every channel over the batch, then activate; arguments of batch_norm."""
    given.pop("in_place", None)
    out = call("batch_norm", input, **given)
    if act == "leaky_relu":
        return call("leaky_relu", out, act_alpha)
    return call("elu", out, act_alpha) if act == "elu" else LayerHelper("inplace_abn").activate(out, act)


def pixel_shuffle(x: Variable, upscale_factor: int) -> Any:
    """Turn channels into pixels: [N, C r r, H, W] becomes [N, C, H r, W r]."""
    r = upscale_factor
    _, c, h, w = x.shape
    parted = call("reshape", x, [0, c // (r * r), r, r, h, w])
    return call("reshape", call("transpose", parted, [0, 1, 4, 2, 5, 3]), [0, c // (r * r), h * r, w * r])


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Any:
    """Deal the channels of every group out to all groups."""
    _, c, h, w = x.shape
    parted = call("reshape", x, [0, group, c // group, h, w])
    return call("reshape", call("transpose", parted, [0, 2, 1, 3, 4]), [0, c, h, w])


def fsp_matrix(x: Variable, y: Variable) -> Any:
    """Return the mean product of every pair of channels: [N, channels of x, channels of y]."""
    pixels = x.shape[2] * x.shape[3]
    a, b = (call("reshape", v, [0, v.shape[1], pixels]) for v in (x, y))
    return call("matmul", a, b, False, True, 1.0 / pixels)


def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Any:
    """Pad y at its ends to the sizes of x."""
    paddings = [p for a, b in zip(x.shape, y.shape, strict=True) for p in (0, a - b)]
    return call("pad", y, paddings, pad_value)


def has_nan(x: Variable) -> Any:
    """Tell whether an element is NaN: bool [1]."""
    return _some(_compare("not_equal", x, x))


def has_inf(x: Variable) -> Any:
    """Tell whether an element is infinite: bool [1]."""
    limit = call("fill_constant", [1], x.dtype, float("inf"))
    return _some(_compare("equal", call("abs", x), limit))


def isfinite(x: Variable) -> Any:
    """Tell whether every element is finite: bool [1]."""
    from pe_cli.paddle.fluid.layers.ops import logical_not, logical_or

    return logical_not(logical_or(has_nan(x), has_inf(x)))


def _compare(op: str, x: Variable, y: Variable) -> Variable:
    return LayerHelper(op).one(op, {"X": x, "Y": y})


def _some(x: Variable) -> Any:
    return reduce_any(x)


def is_empty(x: Variable, cond: Variable | None = None) -> Any:
    """Tell whether a tensor has no element: bool [1]."""
    from pe_cli.paddle.fluid.layers import ops

    sizes = call("cast", ops.shape(x), "float64")
    return ops.equal(call("reduce_prod", sizes), call("fill_constant", [1], "float64", 0.0), cond=cond)


def reduce_all(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """Tell whether all elements along axes are true."""
    return call("cast", call("reduce_min", call("cast", input, "float32"), dim, keep_dim), "bool")


def reduce_any(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """Tell whether one element along axes is true."""
    return call("cast", call("reduce_max", call("cast", input, "float32"), dim, keep_dim), "bool")


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Any:
    """Return x W_i y + b_i for every output i."""
    ensure_defaults()
    helper = LayerHelper("bilinear_tensor_product", name)
    weight = helper.parameter(param_attr, [size, x.shape[1], y.shape[1]], x.dtype)
    flat = call("reshape", call("transpose", weight, [1, 0, 2]), [x.shape[1], size * y.shape[1]])
    halves = call("reshape", call("matmul", x, flat), [-1, size, y.shape[1]])
    out = call("reduce_sum", call("elementwise_mul", halves, call("unsqueeze", y, [1])), 2)
    return helper.activate(helper.add_bias(out, bias_attr, axis=1), act)


def unbind(input: Variable, axis: int = 0) -> Any:
    """Return the slices along an axis."""
    return call("unstack", input, axis)


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Any:
    """Repeat x to the sizes of another tensor."""
    times = [1 if a == b else b // a for a, b in zip(x.shape, target_tensor.shape, strict=True)]
    return call("expand", x, times)


def strided_slice(input: Variable, axes: Any, starts: Any, ends: Any, strides: Any) -> Any:
    """Cut out every strides-th element of ranges along axes."""
    from pe_cli.paddle.fluid.layers.constants import sizes_of

    firsts, lasts, steps = (
        sizes_of("strided_slice", n, v) for n, v in (("starts", starts), ("ends", ends), ("strides", strides))
    )
    out = input
    for axis, first, last, step in zip(axes, firsts, lasts, steps, strict=True):
        rows = list(range(*slice(first, last, step).indices(input.shape[axis])))
        if step == 1:
            out = call("slice", out, [axis], [first], [last])
            continue
        parts = [call("slice", out, [axis], [r], [r + 1]) for r in rows]
        out = call("concat", parts, axis)
    return out


def crop_tensor(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Any:
    """Cut out a box: shape from offsets on."""
    from pe_cli.paddle.fluid.layers.constants import sizes_of

    axes = [i for i, _ in enumerate(x.shape)]
    begins = sizes_of("crop_tensor", "offsets", offsets) if offsets is not None else [0] * len(axes)
    sizes = sizes_of("crop_tensor", "shape", shape)
    ends = [x.shape[i] if s == -1 else b + s for i, b, s in zip(axes, begins, sizes, strict=True)]
    return call("slice", x, axes, list(begins), ends)


def merge_selected_rows(x: Variable, name: str | None = None) -> Any:
    """Return the rows of a row-sparse gradient, each once: it is made so; any other variable is copied."""
    return x if rows_of(x.block, x.name) else call("assign", x)


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Any:
    """Return the values of the rows of a row-sparse gradient: [rows, width]; any other variable is copied.

    How many there are only a step tells: the program is cut there.
    """
    rows = rows_of(x.block, x.name)
    if rows is None:
        return call("assign", x)
    helper = LayerHelper("get_tensor_from_selected_rows", name)
    return helper.one("get_tensor_from_selected_rows", {"X": x, "Rows": rows})


__all__ = [
    "bilinear_tensor_product",
    "crop_tensor",
    "expand_as",
    "flip",
    "fsp_matrix",
    "get_tensor_from_selected_rows",
    "group_norm",
    "has_inf",
    "has_nan",
    "inplace_abn",
    "instance_norm",
    "is_empty",
    "isfinite",
    "maxout",
    "merge_selected_rows",
    "pad_constant_like",
    "pixel_shuffle",
    "prelu",
    "reduce_all",
    "reduce_any",
    "shuffle_channel",
    "stack",
    "strided_slice",
    "unbind",
]  # fmt: skip
