"""Whole numbers with scales: the floats that they stand for."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Unimportable, Value

_NOTE = "QuantizeLinear and DequantizeLinear pass floats on, which are not rounded to the whole numbers of the file"
#: How values would be rounded, which they are not.
_ROUNDING = frozenset({"axis", "block_size", "output_dtype", "precision", "saturate"})


@form("QuantizeLinear")
def quantize(node: Node) -> Value:
    node.attrs.read |= _ROUNDING
    if node.takers[node.outputs[0]] != {"DequantizeLinear"}:
        raise Unimportable("its whole numbers are read by other nodes than DequantizeLinear")
    node.emitter.note(_NOTE)
    return node.value(0)


@form("DequantizeLinear")
def dequantize(node: Node) -> Value:
    node.attrs.read |= _ROUNDING
    x = node.var(0)
    if x.dtype in FLOATS:
        return x
    scale, zero = node.const(1, "scale"), node.const(2, "zero point") if node.has(2) else None
    if scale.size > 1 or (zero is not None and zero.size > 1):
        raise Unimportable("it has a scale for each channel of what is fed")
    as_float = node.mid("cast", "float", x=x, dtype="float32", dims=x.dims)
    factor, shift = float(scale.reshape(-1)[0]), 0.0 if zero is None else float(zero.reshape(-1)[0])
    args: dict[str, Any] = {"x": as_float, "scale": factor, "bias": -shift * factor}
    return node.out("scale", dims=x.dims, scalar=x.scalar, **args)
