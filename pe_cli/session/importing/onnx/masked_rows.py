"""Rows of a softmax that masks leave nothing of: where a graph replaces their NaN, training gets no NaN either.

PyTorch writes `scaled_dot_product_attention` as a softmax of scores with -inf for what is hidden, and a `Where` that puts 0 in the place of
the NaN of rows whose scores are all hidden. The gradient of that `Where` is 0 at these rows, and that of the softmax 0 times NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

#: Softmax is of one axis since this version, and ReduceMax has its axes as an input since that one.
_ONE_AXIS, _AXES_AS_INPUT = 13, 18


def keep_from_nan(model: Any) -> None:
    """Let every softmax whose NaN a graph replaces see zeros in rows that are hidden as a whole; the graph's values stay the same.

    Args:
        model: of ONNX's own class; it is changed.
    """
    graph = model.graph
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < _ONE_AXIS or not any(node.op_type == "IsNaN" for node in graph.node):
        return
    readers = Counter(name for node in graph.node for name in node.input)
    readers.update(given.name for given in graph.output)
    makers = {name: node for node in graph.node for name in node.output}
    held = {tensor.name: tensor for tensor in graph.initializer}
    nodes, before = list(graph.node), dict[str, list[Any]]()
    for node in nodes:
        softmax = _replaced(node, makers, readers)
        dtype = _type(node.input[1], held, makers) if softmax is not None else None
        if softmax is not None and dtype is not None:
            before[softmax.output[0]], before[node.output[0]] = _guard(model, softmax, node, opset, dtype)
    if before:
        del graph.node[:]
        graph.node.extend(one for node in nodes for one in (*before.get(node.output[0] if node.output else "", ()), node))


def _type(name: str, held: Mapping[str, Any], makers: Mapping[str, Any]) -> np.dtype[Any] | None:
    """Return the type of what NaN is replaced by, which is that of the scores; None where it is no constant of a float type."""
    from onnx import TensorProto
    from onnx.helper import tensor_dtype_to_np_dtype

    node, tensor = makers.get(name), held.get(name)
    if node is not None and node.op_type == "Constant":
        tensor = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
    if tensor is None or tensor.data_type not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        return None
    return tensor_dtype_to_np_dtype(tensor.data_type)


def _replaced(node: Any, makers: Mapping[str, Any], readers: Counter[str]) -> Any | None:
    """Return the softmax whose NaN a node replaces by something else; None where it does not, or others read what it makes."""
    if node.op_type != "Where" or len(node.input) != 3 or len(node.output) != 1:
        return None
    asked, softmax = makers.get(node.input[0]), makers.get(node.input[2])
    if asked is None or softmax is None or asked.op_type != "IsNaN" or softmax.op_type != "Softmax" or len(softmax.input) != 1:
        return None
    same = list(asked.input) == list(softmax.output) == [node.input[2]]
    return softmax if same and readers[node.input[2]] == 2 and readers[node.input[0]] == 1 else None


def _guard(model: Any, softmax: Any, where: Any, opset: int, dtype: np.dtype[Any]) -> tuple[list[Any], list[Any]]:
    """Give a softmax other scores; return the nodes that stand before it, and before the Where that replaces its NaN."""
    from onnx import helper, numpy_helper

    scores, name = softmax.input[0], f"{softmax.output[0]}@hidden"
    axis = next((attribute.i for attribute in softmax.attribute if attribute.name == "axis"), -1)
    low, zero, axes = (f"{name}_{what}" for what in ("low", "zero", "axes"))
    values = {low: np.array(np.finfo(dtype).min, dtype), zero: np.zeros((), dtype), axes: np.array([axis], np.int64)}
    model.graph.initializer.extend(numpy_helper.from_array(value, key) for key, value in values.items())
    largest = (
        helper.make_node("ReduceMax", [scores, axes], [f"{name}_max"], keepdims=1)
        if opset >= _AXES_AS_INPUT
        else helper.make_node("ReduceMax", [scores], [f"{name}_max"], axes=[axis], keepdims=1)
    )
    made = [
        largest,
        helper.make_node("Less", [f"{name}_max", low], [f"{name}_rows"]),
        helper.make_node("Where", [f"{name}_rows", zero, scores], [f"{name}_scores"]),
    ]
    softmax.input[0] = f"{name}_scores"
    either = helper.make_node("Or", [where.input[0], f"{name}_rows"], [f"{name}_replaced"])
    where.input[0] = f"{name}_replaced"
    return made, [either]
