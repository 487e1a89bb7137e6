"""Convolutions, pooling and normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.fold import bounded
from pe_cli.session.importing.onnx.forms.elementwise import floats, kept
from pe_cli.session.importing.onnx.forms.windows import tap_by_tap, window
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Unimportable, Value, known
from pe_cli.session.importing.onnx.weight_normalisation import weight_attr


def sides(pads: Sequence[int]) -> Any:
    """Return paddings as a layer takes them: one number, one for each axis, or one for each side."""
    axes = len(pads) // 2
    before, after = list(pads[:axes]), list(pads[axes:])
    if before != after:
        return [side for pair in zip(before, after, strict=True) for side in pair]
    return before[0] if len(set(before)) == 1 else before


def alike(numbers: Sequence[int]) -> Any:
    """Return one number where all are the same."""
    return numbers[0] if len(set(numbers)) == 1 else list(numbers)


def as_images(node: Node, x: Value) -> Value:
    """Return rows [batch, channels, width] as images of one row."""
    return node.reshaped(x, [*x.dims[:2], 1, x.dims[2]], "image") if len(x.dims) == 3 else x


def channels_bias(node: Node, index: int) -> Any:
    """Return the attribute of a bias, or False for none."""
    held = node.value(index) if node.has(index) else None
    if held is None or (held.constant is not None and held.initializer is None and held.later is None and not held.constant.any()):
        return False
    return {"name": node.parameter(index, "bias")[1]}


@form("Conv")
def conv(node: Node) -> Value:
    x, weight = floats(node), node.const(1, "weight")
    axes = weight.ndim - 2
    if axes not in (1, 2, 3) or len(x.dims) != weight.ndim:
        raise Unimportable(f"filters {list(weight.shape)} over {list(known(x.dims))}: layers convolve 1, 2 and 3 axes")
    strides, dilations, pads = window(node, weight.shape[2:], x.dims[2:])
    # One axis is convolved as an image of one row: its filters, strides and paddings have a 1 or a 0 in front.
    if axes == 1:
        x = as_images(node, x)
        strides, dilations, pads = [1, *strides], [1, *dilations], [0, pads[0], 0, pads[1]]
    filters = weight_attr(node, 1, (lambda a: a[:, :, None]) if axes == 1 else None)
    taps = [1, *weight.shape[2:]] if axes == 1 else list(weight.shape[2:])
    args: dict[str, Any] = {"input": x, "num_filters": weight.shape[0], "filter_size": alike(taps)}
    for key, value, plain in (("stride", alike(strides), 1), ("padding", sides(pads), 0), ("dilation", alike(dilations), 1)):
        args |= {} if value == plain else {key: value}
    args |= {"groups": int(node.attr("group", 1))} if node.attr("group", 1) != 1 else {}
    args |= {"param_attr": filters, "bias_attr": channels_bias(node, 2)}
    type = "conv3d" if axes == 3 else "conv2d"
    if axes != 1:
        return node.out(type, **args)
    made = node.mid(type, "row", **args)
    return node.reshaped(made, [made.dims[0], made.dims[1], made.dims[3]])


@form("DeformConv")
def deform_conv(node: Node) -> Value:
    x, offset, weight = floats(node), node.var(2), node.const(1, "weight")
    if weight.ndim != 4:
        raise Unimportable(f"filters {list(weight.shape)}: the layer deformable_conv goes over images")
    strides, dilations, pads = window(node, weight.shape[2:], x.dims[2:])
    if pads[:2] != pads[2:]:
        raise Unimportable(f"paddings {pads} that differ from side to side, which the layer deformable_conv has not")
    args: dict[str, Any] = {"input": x, "offset": offset, "num_filters": weight.shape[0], "filter_size": list(weight.shape[2:])}
    args |= {"stride": strides, "padding": pads[:2], "dilation": dilations, "groups": int(node.attr("group", 1))}
    args |= {"deformable_groups": int(node.attr("offset_group", 1)), "param_attr": weight_attr(node, 1)}
    args |= {"mask": node.var(4)} if node.has(4) else {"mask": None, "modulated": False}
    return node.out("deformable_conv", bias_attr=channels_bias(node, 3), **args)


@form("ConvTranspose")
def conv_transpose(node: Node) -> Value:
    x, weight = floats(node), node.const(1, "weight")
    axes = weight.ndim - 2
    if axes not in (1, 2, 3):
        raise Unimportable(f"filters {list(weight.shape)}: layers convolve 1, 2 and 3 axes")
    strides, dilations = node.ints("strides", None, [1] * axes) or [], node.ints("dilations", None, [1] * axes) or []
    extra = node.ints("output_padding", None, [0] * axes) or []
    sizes = [(size - 1) * stride if isinstance(size, int) else size for size, stride in zip(x.dims[2:], strides, strict=True)]
    reach = [dilation * (taps - 1) + 1 for taps, dilation in zip(weight.shape[2:], dilations, strict=True)]
    pads = node.ints("pads", None, [0] * (2 * axes)) or []
    wanted = node.ints("output_shape")
    auto = node.attr("auto_pad", "NOTSET")
    if wanted is not None or auto.startswith("SAME"):
        if not all(isinstance(size, int) for size in sizes):
            raise Unimportable("a given size of the output, where that of the input is not known")
        outs = wanted[-axes:] if wanted is not None else [s * stride for s, stride in zip(x.dims[2:], strides, strict=True)]
        # ONNX's own formula, solved for the padding: what is too much of the widest output is cut off, the odd one behind for SAME_UPPER
        # and in front otherwise.
        total = [max(0, size + more + r - out) for size, more, r, out in zip(sizes, extra, reach, outs, strict=True)]
        small = [t // 2 for t in total]
        large = [t - s for t, s in zip(total, small, strict=True)]
        pads = [*small, *large] if auto == "SAME_UPPER" else [*large, *small]
        extra = [max(0, out - (size + r - t)) for out, size, r, t in zip(outs, sizes, reach, total, strict=True)]
    if any(extra):
        # output_padding lengthens the output behind, which is the same as to cut less off there.
        pads = [*pads[:axes], *(p - more for p, more in zip(pads[axes:], extra, strict=True))]
    if min(pads, default=0) < 0:
        return _widened(node, pads, axes)
    taps = list(weight.shape[2:])
    if axes == 1:
        x = as_images(node, x)
        strides, dilations, pads, taps = [1, *strides], [1, *dilations], [0, pads[0], 0, pads[1]], [1, *taps]
    group = int(node.attr("group", 1))
    filters = weight_attr(node, 1, (lambda a: a[:, :, None]) if axes == 1 else None)
    args: dict[str, Any] = {"input": x, "num_filters": weight.shape[1] * group, "filter_size": alike(taps)}
    for key, value, plain in (("stride", alike(strides), 1), ("padding", sides(pads), 0), ("dilation", alike(dilations), 1)):
        args |= {} if value == plain else {key: value}
    args |= {"groups": group} if group != 1 else {}
    args |= {"param_attr": filters, "bias_attr": channels_bias(node, 2)}
    type = "conv3d_transpose" if axes == 3 else "conv2d_transpose"
    if axes != 1:
        return node.out(type, **args)
    made = node.mid(type, "row", **args)
    return node.reshaped(made, [made.dims[0], made.dims[1], made.dims[3]])


def _widened(node: Node, pads: list[int], axes: int) -> Value:
    """Set zeros beside what a transposed convolution makes, where it is wider than that, and add the bias then.

    Raises:
        Unimportable: it is to be wider in front, too.
    """
    if min(pads[:axes]) < 0:
        raise Unimportable(f"paddings {pads} below 0 in front")
    names = ("dilations", "group", "kernel_shape", "strides")
    attrs = {name: node.attrs[name] for name in names if name in node.attrs}
    made = node.by("ConvTranspose", [node.value(0), node.value(1)], "cut", pads=[max(0, p) for p in pads], **attrs)
    more = [max(0, -p) for p in pads[axes:]]
    dims = [*made.dims[:2], *(size + m if isinstance(size, int) else size for size, m in zip(made.dims[2:], more, strict=True))]
    args: dict[str, Any] = {"x": made, "paddings": [0, 0, 0, 0, *(side for m in more for side in (0, m))], "pad_value": 0.0}
    if not node.has(2):
        return node.out("pad", dims=dims, **args)
    bias = node.const(2, "bias").reshape(-1, *([1] * axes))
    held = node.value(2)
    value = Value(bias.dtype.name, constant=bias, initializer=held.initializer, trained=held.trained)
    added = node.emitter.variable(value, f"{node.key}_bias")
    return node.out("elementwise_add", x=node.mid("pad", "wide", dims=dims, **args), y=added, dims=dims)


@form("MaxPool", "AveragePool")
def pool(node: Node) -> Value | list[Value | None]:
    x = node.var() if node.op == "MaxPool" else floats(node)
    if x.dtype not in FLOATS:
        wide = node.mid("cast", "float", x=x, dtype="float64", dims=x.dims)
        made = node.by("MaxPool", [wide], "of_float", **{name: dict.__getitem__(node.attrs, name) for name in node.attrs})
        node.attrs.read |= node.attrs.keys()
        return node.out("cast", x=made, dtype=x.dtype, dims=made.dims)
    taps = node.ints("kernel_shape") or []
    if len(taps) not in (1, 2, 3) or len(x.dims) != len(taps) + 2:
        raise Unimportable(f"windows {taps} over {list(known(x.dims))}: layers pool 1, 2 and 3 axes")
    strides, dilations, pads = window(node, taps, x.dims[2:])
    beyond = node.op == "AveragePool" and node.attr("ceil_mode", 0) and node.attr("count_include_pad", 0) and any(pads)
    if set(dilations) != {1} or beyond or node.wants(1):
        return tap_by_tap(node, x, taps)
    rows = len(taps) == 1
    if rows:
        x, taps, strides, pads = as_images(node, x), [1, *taps], [1, *strides], [0, pads[0], 0, pads[1]]
    args: dict[str, Any] = {"input": x, "pool_size": alike(taps), "pool_type": "max" if node.op == "MaxPool" else "avg"}
    args |= {"pool_stride": alike(strides)} if alike(strides) != 1 else {}
    args |= {"pool_padding": sides(pads)} if any(pads) else {}
    args |= {"ceil_mode": True} if node.attr("ceil_mode", 0) else {}
    args |= {"exclusive": False} if node.op == "AveragePool" and node.attr("count_include_pad", 0) and any(pads) else {}
    type = "pool3d" if len(taps) == 3 else "pool2d"
    if not rows:
        return node.out(type, **args)
    made = node.mid(type, "row", **args)
    return node.reshaped(made, [made.dims[0], made.dims[1], made.dims[3]])


@form("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node) -> Value:
    x = floats(node)
    how = "max" if node.op == "GlobalMaxPool" else "mean"
    if len(x.dims) == 4:
        return node.out("pool2d", input=x, pool_type="max" if how == "max" else "avg", global_pooling=True)
    return node.out(f"reduce_{how}", input=x, dim=list(range(2, len(x.dims))), keep_dim=True)


@form("BatchNormalization")
def batch_norm(node: Node) -> list[Value | None]:
    x = floats(node)
    if node.attr("training_mode", 0):
        node.emitter.check_training("it takes statistics of the batch in evaluation, too")
        if any(node.wants(i) for i in range(1, len(node.outputs))):
            raise Unimportable("what it makes of the running statistics is read, and the layer keeps that to itself")
    names = [node.parameter(i, what)[1] for i, what in ((1, "scale"), (2, "bias"), (3, "mean"), (4, "variance"))]
    if len(set(names)) < 4:
        raise Unimportable("its statistics and its scale and bias are not four values of their own")
    args: dict[str, Any] = {"epsilon": float(node.attr("epsilon", 1e-5)), "momentum": float(node.attr("momentum", 0.9))}
    named: dict[str, Any] = {"param_attr": {"name": names[0]}, "bias_attr": {"name": names[1]}}
    moving: dict[str, Any] = {"moving_mean_name": names[2], "moving_variance_name": names[3]}
    shape = x.dims
    if len(shape) == 3:
        made = node.mid("batch_norm", "image", input=as_images(node, x), **args, **named, **moving)
        return [node.reshaped(made, shape)]
    if len(shape) > 4:
        # A layer for images has four axes. Statistics are of a channel, wherever its elements lie.
        rest = math.prod(size for size in shape[3:] if isinstance(size, int))
        flat = node.reshaped(x, [*shape[:3], rest], "image")
        return [node.reshaped(node.mid("batch_norm", "flat", input=flat, dims=flat.dims, **args, **named, **moving), shape)]
    return [node.out("batch_norm", input=x, dims=x.dims, **args, **named, **moving)]


@form("InstanceNormalization")
def instance_norm(node: Node) -> Value:
    x = floats(node)
    args: dict[str, Any] = {"param_attr": {"name": node.parameter(1, "scale")[1]}, "bias_attr": {"name": node.parameter(2, "bias")[1]}}
    return kept(node, x, "instance_norm", input=x, epsilon=float(node.attr("epsilon", 1e-5)), **args)


@form("GroupNormalization")
def group_norm(node: Node) -> Value:
    x = floats(node)
    groups, channels = int(node.attr("num_groups", 1)), x.dims[1] if len(x.dims) > 1 else 0
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise Unimportable(f"{groups} groups do not divide the channels of {list(known(x.dims))}")
    bounded([channels], "its scale")
    scale = node.const(1, "scale")
    # Before operator set 21 scale and bias have a number for each group; the layer, as ONNX since then, has one for each channel.
    spread = (lambda a: np.repeat(a, channels // groups)) if scale.size == groups != channels and node.opset < 21 else None
    names = [node.parameter(index, what, spread)[1] for index, what in ((1, "scale"), (2, "bias"))]
    args: dict[str, Any] = {"param_attr": {"name": names[0]}, "bias_attr": {"name": names[1]}}
    return kept(node, x, "group_norm", input=x, groups=groups, epsilon=float(node.attr("epsilon", 1e-5)), **args)


@form("LayerNormalization")
def layer_norm(node: Node) -> list[Value | None]:
    x = floats(node)
    axis, epsilon = node.axis(-1), float(node.attr("epsilon", 1e-5))
    if node.wants(1) or node.wants(2):
        raise Unimportable("its mean or deviation is read")
    first = axis == 0
    # The layer keeps axis 0 for the batch and normalises from axis 1 on: to normalise over everything, the whole value becomes one sample.
    if first:
        x = node.reshaped(x, [1, *x.dims], "sample")
        axis = 1
    flat = [size for size in x.dims[axis:] if isinstance(size, int)]
    if len(flat) != len(x.dims) - axis:
        raise Unimportable("sizes that are normalised over are not known")
    count = math.prod(bounded(flat, "its scale"))
    own = {}
    for index, key, name in ((1, "param_attr", "scale"), (2, "bias_attr", "bias")):
        if node.has(index):
            if node.const(index, name).dtype.name not in FLOATS:
                raise Unimportable(f"its {name} has whole numbers")
            own[key] = {"name": node.parameter(index, name, lambda a: np.broadcast_to(a, flat).reshape(count))[1]}
    args: dict[str, Any] = {"input": x, "begin_norm_axis": axis, "epsilon": epsilon, "scale": node.has(1), "shift": node.has(2), **own}
    if not first:
        return [node.out("layer_norm", dims=x.dims, **args)]
    return [node.reshaped(node.mid("layer_norm", "sample_norm", dims=x.dims, **args), x.dims[1:])]


@form("LRN")
def lrn(node: Node) -> Value:
    x, size = floats(node), int(node.attr("size", 1))
    # ONNX divides alpha by the size of the neighbourhood, the layer (as the paper of AlexNet) does not.
    alpha, beta = float(node.attr("alpha", 1e-4)) / size, float(node.attr("beta", 0.75))
    return kept(node, x, "lrn", input=x, n=size, k=float(node.attr("bias", 1.0)), alpha=alpha, beta=beta)
