"""Whole numbers with scales: the floats that they stand for, and, where nodes read the whole numbers themselves, those."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.fold import bounded
from pe_cli.session.importing.onnx.forms.arithmetic import combined
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Array, Unimportable, Value

_NOTE = "QuantizeLinear and DequantizeLinear pass floats on, which are not rounded to the whole numbers of the file"
#: How values would be rounded, which they are not.
_ROUNDING = frozenset({"axis", "block_size", "output_dtype", "precision", "saturate"})
#: The least and the largest number of the types that are quantized to.
_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


@form("QuantizeLinear")
def quantize(node: Node) -> Value:
    x = node.value(0)
    # A pair that rounds to whole numbers and back says how a quantised runtime would compute. Here the floats between are passed on:
    # nothing is lost, and the graph can be trained.
    if node.takers[node.outputs[0]] == {"DequantizeLinear"}:
        node.attrs.read |= _ROUNDING
        node.emitter.note(_NOTE)
        return x
    if node.attr("output_dtype", 0) not in (0, 2):
        raise Unimportable("its whole numbers, of another type than uint8, are read by other nodes than DequantizeLinear")
    return _whole(node, node.var(0), 1, 2, int(node.attr("axis", 1)), int(node.attr("block_size", 0)))


def _along(node: Node, index: int, x: Value, axis: int, block: int, hint: str) -> Value:
    """Return one number, or those of each place or block along an axis, as they are broadcast."""
    value = node.value(index)
    if value.rank == 0 or value.shape == (1,):
        return node.var(index)
    array = _repeated(node.const(index, hint), x, axis, block)
    return node.emitter.variable(Value(value.dtype, constant=array, initializer=value.initializer), f"{node.key}_{hint}")


def _whole(node: Node, x: Value, scale: int, zero: int, axis: int = 1, block: int = 0) -> Value:
    """Return the whole numbers that floats are rounded to.

    Raises:
        Unimportable: nothing says which type they are of.
    """
    said = "uint8" if not node.has(zero) else node.value(zero).said or node.value(zero).dtype
    if said not in _LIMITS:
        raise Unimportable(f"its whole numbers are {said}, whose limits are not known")
    low, high = _LIMITS[said]
    factor = _along(node, scale, x, axis, block, "scale")
    steps = combined(node, "elementwise_div", x, factor, "steps")
    near = node.mid("round", "near", x=steps, dims=steps.dims)
    if node.has(zero):
        shift = _along(node, zero, x, axis, block, "zero")
        shift = node.mid("cast", "zero_float", x=shift, dtype=x.dtype, dims=shift.dims)
        near = combined(node, "elementwise_add", near, shift, "from_zero")
    cut = node.mid("clip", "cut", x=near, min=float(low), max=float(high), dims=near.dims)
    return node.out("cast", x=cut, dtype="uint8" if said == "uint8" else "int32", dims=x.dims, scalar=x.scalar)


@form("DequantizeLinear")
def dequantize(node: Node) -> Value:
    x = node.var(0)
    if x.dtype in FLOATS:
        node.attrs.read |= _ROUNDING
        return x
    return _floats(node, 0, 1, 2, int(node.attr("axis", 1)), int(node.attr("block_size", 0)))


def _floats(node: Node, index: int, scale_at: int, zero_at: int, axis: int = 1, block: int = 0) -> Value:
    """Return the floats that whole numbers stand for; it is the node's output where they are its first input."""
    x, scale = node.var(index), node.const(scale_at, "scale").astype(np.float32)
    zero = node.const(zero_at, "zero point").astype(np.float32) if node.has(zero_at) else np.zeros((), np.float32)
    as_float = node.mid("cast", f"float_{index}", x=x, dtype="float32", dims=x.dims)
    scale, zero = (_repeated(array, x, axis, block) for array in (scale, zero))
    if scale.size == 1 and zero.size == 1:
        factor, shift = float(scale.reshape(-1)[0]), float(zero.reshape(-1)[0])
        # (x - zero) * scale, as one layer: x * scale - zero * scale.
        return node.mid("scale", f"value_{index}", x=as_float, scale=factor, bias=-shift * factor, dims=x.dims)
    shift_, factor_ = (
        node.emitter.variable(Value("float32", constant=array), f"{node.key}_{what}") for what, array in (("zero", zero), ("scale", scale))
    )
    away = combined(node, "elementwise_sub", as_float, shift_, f"away_{index}")
    return combined(node, "elementwise_mul", away, factor_, f"value_{index}")


def _repeated(array: Array, x: Value, axis: int, block: int) -> Array:
    """Return numbers of one axis, or of blocks along it, as they are broadcast."""
    axis %= len(x.dims)
    if block and array.ndim:
        bounded([array.size, block], "its scales")
        return np.repeat(array, block, axis)
    if array.size == 1:
        return array.reshape([1] * max(1, len(x.dims)))
    return array.reshape([-1 if a == axis else 1 for a in range(len(x.dims))])


def _away(node: Node, index: int, zero_at: int) -> Value:
    """Return whole numbers less their zero as float64, which holds sums of their products exactly."""
    value = node.value(index)
    zero = node.value(zero_at) if node.has(zero_at) else None
    # Products of bytes summed in float32 are exact up to 2^24 only, that is for 256 terms or so; float64 holds them up to 2^53.
    if value.constant is not None and (zero is None or zero.constant is not None):
        shift = np.zeros(()) if zero is None else np.asarray(zero.constant, np.float64)
        if shift.size > 1:
            # ConvInteger has a zero for each filter, which is the first axis of the weights; MatMulInteger one for each column, the last
            # axis, where it is broadcast as it is.
            shift = shift.reshape(-1, *([1] * (value.rank - 1))) if node.op == "ConvInteger" else shift
        array = np.asarray(value.constant, np.float64) - shift
        return Value("float64", constant=array, initializer=value.initializer, trained=value.initializer is not None)
    wide = node.mid("cast", f"wide_{index}", x=node.var(index), dtype="float64", dims=node.var(index).dims)
    if zero is None:
        return wide
    shift_ = node.var(zero_at)
    shift_ = node.mid("cast", f"zero_{index}", x=shift_, dtype="float64", dims=shift_.dims)
    return combined(node, "elementwise_sub", wide, shift_, f"away_{index}")


@form("MatMulInteger")
def matmul_integer(node: Node) -> Value:
    made = node.by("MatMul", [_away(node, 0, 2), _away(node, 1, 3)], "product")
    return node.out("cast", x=made, dtype="int32", dims=made.dims)


@form("ConvInteger")
def conv_integer(node: Node) -> Value:
    for index in (1, 3):
        if node.has(index):
            node.const(index, "weight")
    weight = _away(node, 1, 3)
    made = node.by("Conv", [_away(node, 0, 2), weight], "product", **_window(node))
    return node.out("cast", x=made, dtype="int32", dims=made.dims)


def _window(node: Node) -> dict[str, Any]:
    """Return the attributes of a convolution."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    return {name: node.attrs[name] for name in names if name in node.attrs}


@form("QLinearMatMul")
def qlinear_matmul(node: Node) -> Value:
    made = node.by("MatMul", [_floats(node, 0, 1, 2), _floats(node, 3, 4, 5, -1)], "product")
    return _whole(node, made, 6, 7)


def _parameter(array: Array, of: Value) -> Value:
    return Value("float32", constant=array, initializer=of.initializer, trained=of.initializer is not None)


@form("QLinearConv")
def qlinear_conv(node: Node) -> Value:
    whole, scale = node.const(3, "weight"), node.const(4, "scale").astype(np.float32).reshape(-1)
    zero = node.const(5, "zero point").astype(np.float32).reshape(-1)
    shape = [-1, *([1] * (whole.ndim - 1))]
    weight = (whole.astype(np.float32) - zero.reshape(shape)) * scale.reshape(shape)
    given: list[Value | None] = [_floats(node, 0, 1, 2), _parameter(weight, node.value(3))]
    if node.has(8):
        # The bias of a quantised convolution is a whole number in units of the product: scale of the input times scale of the weights, with
        # zero at 0.
        bias = node.const(8, "bias").astype(np.float32) * scale * node.const(1, "scale").astype(np.float32)
        given.append(_parameter(np.asarray(bias, np.float32), node.value(8)))
    made = node.by("Conv", given, "product", **_window(node))
    return _whole(node, made, 6, 7)
