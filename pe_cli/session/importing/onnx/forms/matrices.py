"""Axes that are multiplied by matrices which are not trained: resizing, and transforms of signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.session.importing.onnx.node import Node
from pe_cli.session.importing.onnx.values import Array, Value


def frozen(node: Node, array: Array, hint: str) -> dict[str, Any]:
    """Keep a parameter that is not trained; return its attribute."""
    return {"name": node.emitter.parameter(array, f"{node.key}.{hint}"), "trainable": False}


def last_axis(node: Node, x: Value, matrix: Array, hint: str, bias: Array | None = None) -> Value:
    """Multiply the last axis by a matrix [size, out]."""
    table, out = np.asarray(matrix, x.dtype), matrix.shape[1]
    one = len(x.dims) == 1
    if one:
        x = node.reshaped(x, [1, *x.dims], f"{hint}_row")
    args: dict[str, Any] = {"input": x, "size": out, "param_attr": frozen(node, table, f"{hint}_weights"), "bias_attr": False}
    if bias is not None:
        args["bias_attr"] = frozen(node, np.asarray(bias, x.dtype), f"{hint}_bias")
    if len(x.dims) > 2:
        args["num_flatten_dims"] = len(x.dims) - 1
    made = node.mid("fc", hint, dims=[*x.dims[:-1], out], **args)
    return node.reshaped(made, [out], f"{hint}_line") if one else made


def along_axis(node: Node, x: Value, axis: int, matrix: Array, hint: str, bias: Array | None = None) -> Value:
    """Multiply any axis by a matrix [size, out]."""
    last = len(x.dims) - 1
    if axis == last:
        return last_axis(node, x, matrix, hint, bias)
    perm = list(range(len(x.dims)))
    perm[axis], perm[last] = last, axis
    turned = node.mid("transpose", f"{hint}_turned", x=x, perm=perm, dims=[x.dims[a] for a in perm])
    made = last_axis(node, turned, matrix, hint, bias)
    return node.mid("transpose", f"{hint}_back", x=made, perm=perm, dims=[made.dims[a] for a in perm])
