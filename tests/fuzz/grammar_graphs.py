"""ONNX graphs: nodes that read what is there, with attributes and constants that mostly fit, and one thing that does not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

#: Operators with how many inputs they read, and attributes that they may have.
_OPS: dict[str, tuple[int, dict[str, Any]]] = {
    "Relu": (1, {}), "Add": (2, {}), "Mul": (2, {}), "Div": (2, {}), "MatMul": (2, {}), "Softmax": (1, {"axis": [-1, 0, 1, 9]}),
    "Transpose": (1, {"perm": [[1, 0], [0, 0], [2, 1, 0]]}), "Reshape": (2, {"allowzero": [0, 1]}),
    "Concat": (2, {"axis": [0, 1, -1, 5]}),
    "Slice": (3, {}), "Gather": (2, {"axis": [0, 1, -3]}), "Shape": (1, {"start": [0, 1, -9]}), "Unsqueeze": (2, {}), "Squeeze": (2, {}),
    "Expand": (2, {}), "ConstantOfShape": (1, {}), "Range": (3, {}), "Tile": (2, {}), "Cast": (1, {"to": [1, 7, 6, 8, 9, 10, 99]}),
    "Conv": (2, {"strides": [[1, 1], [0, 0], [-1, 2]], "pads": [[0, 0, 0, 0], [9, 9, 9, 9], [-1, 0, 0, 0]], "group": [1, 2, 0]}),
    "MaxPool": (1, {"kernel_shape": [[2, 2], [0, 1], [99, 99]], "strides": [[1, 1], [0, 2]]}), "Pad": (2, {"mode": ["constant", "wrap"]}),
    "Split": (2, {"axis": [0, 1, 7]}), "ReduceSum": (2, {"keepdims": [0, 1]}), "Gemm": (3, {"transA": [0, 1], "alpha": [1.0, 1e38]}),
    "Where": (3, {}), "TopK": (2, {"axis": [-1, 3]}), "LayerNormalization": (3, {"axis": [-1, 0, 8]}),
    "Resize": (4, {"mode": ["nearest", "linear", "cubic"], "antialias": [0, 1], "exclude_outside": [1], "axes": [[0, 1], [7]],
                   "coordinate_transformation_mode": ["align_corners", "tf_crop_and_resize", "asymmetric", "odd"],
                   "keep_aspect_ratio_policy": ["not_larger"]}),
    "BatchNormalization": (5, {"training_mode": [0, 1]}), "Flatten": (1, {"axis": [0, 1, -7]}), "CumSum": (2, {}), "OneHot": (3, {}),
    "LSTM": (3, {"hidden_size": [1, 0]}),
    "GatherND": (2, {"batch_dims": [0, 1, 9]}), "GatherElements": (2, {"axis": [0, -1, 7]}),
    "ScatterND": (3, {"reduction": ["add", "max", "nothing"]}), "ScatterElements": (3, {"axis": [0, 7], "reduction": ["mul", "min"]}),
    "TensorScatter": (3, {"axis": [-2, 1], "mode": ["circular", "linear"]}), "Compress": (2, {"axis": [0, 1, -9]}), "NonZero": (1, {}),
    "Unique": (1, {"axis": [0]}),
    "ReverseSequence": (2, {"time_axis": [0, 1], "batch_axis": [1, 0, 5]}),
    "Hardmax": (1, {"axis": [-1, 0, 8]}),
    "CumProd": (2, {"exclusive": [0, 1]}), "EyeLike": (1, {"k": [0, 2**40], "dtype": [1, 7, 99]}),
    "BitShift": (2, {"direction": ["LEFT", "up"]}),
    "BitwiseAnd": (2, {}), "BitwiseNot": (1, {}), "BitCast": (1, {"to": [6, 1, 7, 99]}),
    "GridSample": (2, {"mode": ["linear", "cubic", "odd"]}),
    "DFT": (2, {"axis": [1, 0, 9], "inverse": [0, 1], "onesided": [0, 1]}), "STFT": (4, {"onesided": [0, 1]}), "HannWindow": (1, {}),
    "MelWeightMatrix": (5, {}), "LpPool": (1, {"kernel_shape": [[2, 2], [0, 1], [99, 99]], "p": [2, 0, -1]}),
    "AveragePool": (1, {"kernel_shape": [[2, 2], [3]], "dilations": [[2, 2], [0, 0], [2**40, 1]], "ceil_mode": [0, 1]}),
    "MaxUnpool": (3, {"kernel_shape": [[2, 2], [9]], "strides": [[2, 2], [0, 0]]}), "Col2Im": (3, {"strides": [[1, 1], [0, 0]]}),
    "MatMulInteger": (4, {}), "QuantizeLinear": (3, {"axis": [1, -7], "block_size": [0, 2]}), "QLinearMatMul": (8, {}),
    "DequantizeLinear": (3, {"axis": [1, 9], "block_size": [0, 3, 2**40]}),
    "Attention": (4, {"is_causal": [0, 1], "q_num_heads": [0, 1, 3]}),
    "GRU": (4, {"hidden_size": [1, 0], "linear_before_reset": [0, 1]}), "DeformConv": (3, {"offset_group": [1, 0]}),
    "ConvTranspose": (2, {"output_padding": [[1, 1], [9, 9]], "strides": [[2, 2], [0, 0]]}),
    "SplitToSequence": (2, {"axis": [0, 1, 9], "keepdims": [0, 1]}), "SequenceConstruct": (2, {}), "SequenceEmpty": (0, {"dtype": [1, 99]}),
    "SequenceInsert": (3, {}), "SequenceErase": (2, {}), "SequenceAt": (2, {}), "SequenceLength": (1, {}),
    "ConcatFromSequence": (1, {"axis": [0, 1, -2, 9], "new_axis": [0, 1]}), "Dropout": (3, {}),
    "Einsum": (2, {"equation": ["ij,jk->ik", "i,,", "->"]}), "Identity": (1, {}), "Nonsense": (1, {}),
}  # fmt: skip
_SIZES = [0, 1, 2, 3, 4, -1, -2, 7, 2**31, 2**62]


def _constant(draw: random.Random) -> np.ndarray[Any, Any]:
    """Return values: whole numbers, as shapes and axes are, or floats, some of them none."""
    if draw.random() < 0.6:
        return np.asarray([draw.choice(_SIZES if draw.random() < 0.3 else _SIZES[:6]) for _ in range(draw.randint(0, 4))], np.int64)
    shape = [draw.randint(0, 4) for _ in range(draw.randint(0, 4))]
    array = np.full(shape, draw.choice([0.0, 0.5, -3.0, float("nan"), float("inf")]), draw.choice(["float32", "float64", "float16"]))
    return np.asarray(array)


def _with_rounds(draw: random.Random, name: str, read: str) -> NodeProto:
    """Return a node with graphs inside, of which some do not fit."""
    op, info = draw.choice(["Loop", "Scan", "If"]), helper.make_tensor_value_info
    given = [info("i", TensorProto.INT64, []), info("g", TensorProto.BOOL, []), info("s", TensorProto.FLOAT, None)]
    nodes = [helper.make_node(draw.choice(["Identity", "Not", "Neg"]), [draw.choice(["g", "s", read])], ["k"])]
    nodes.append(helper.make_node("Add", [draw.choice(["s", read, "t"]), draw.choice(["s", read])], ["t"]))
    outputs = [info("k", TensorProto.BOOL, []), *(info(one, TensorProto.FLOAT, None) for one in ("t", draw.choice(["t", "s", "i"])))]
    if op == "Scan":
        body = helper.make_graph(nodes, "b", given[3 - draw.randint(1, 3) :], outputs[1:])
        ways = {"scan_input_directions": draw.choice([[1], [0], [5, 5]]), "scan_input_axes": draw.choice([[0], [1], [9]])}
        return helper.make_node(op, [read] * draw.randint(1, 3), [name], body=body, num_scan_inputs=draw.choice([1, 2, 0]), **ways)
    if op == "If":
        branch = helper.make_graph([helper.make_node("Neg", [read], ["n"])], "b", [], [info("n", TensorProto.FLOAT, None)])
        return helper.make_node(op, [draw.choice(["rounds", read])], [name], then_branch=branch, else_branch=branch)
    body = helper.make_graph(nodes, "b", given[: draw.randint(2, 3)], outputs[: draw.randint(1, 3)])
    return helper.make_node(op, [draw.choice(["rounds", "", read]), draw.choice(["", "rounds"]), read], [name], body=body)


def _part(draw: random.Random, nodes: list[NodeProto], held: list[TensorProto], names: list[str]) -> None:
    """Add nodes that keep the shape of what they read, and that are computed for any rows of four."""
    for i in range(draw.randint(2, 7)):
        op = draw.choice(["Tanh", "Neg", "Add", "Mul", "MatMul", "Elu", "Softmax", "LayerNormalization"])
        inputs = [draw.choice(names) if draw.random() < 0.3 else names[-1]]
        if op in ("Add", "Mul") and draw.random() < 0.5:
            inputs.append(draw.choice(names))
        elif op in ("Add", "Mul", "LayerNormalization"):
            held.append(numpy_helper.from_array(np.full(4, draw.random(), np.float32), f"w{i}"))
            inputs.append(f"w{i}")
        elif op == "MatMul":
            held.append(numpy_helper.from_array(np.full((4, 4), draw.random(), np.float32), f"w{i}"))
            inputs.append(f"w{i}")
        nodes.append(helper.make_node(op, inputs, [f"v{i}"], **({"alpha": draw.choice([0.1, 2.0])} if op == "Elu" else {})))
        names.append(f"v{i}")


def _repeat(draw: random.Random, nodes: list[NodeProto], held: list[TensorProto], names: list[str]) -> str:
    """Write all nodes several times, each reading what the one before has made, under names that mean something elsewhere."""
    part, own, last = list(nodes), [tensor for tensor in held if draw.random() < 0.5], names[-1]
    stem = draw.choice(["layer.", "a/b.", "${a}.", "input.", "named", "x_", "block_0/"])
    for i in range(draw.randint(2, 7)):
        now = {name: f"{stem}{i}.{name}" for name in [*(one for node in part for one in node.output), *(t.name for t in own)]}
        now["x"] = last
        for tensor in own:
            held.append(TensorProto())
            held[-1].CopyFrom(tensor)
            held[-1].name = now[tensor.name]
        for node in part:
            nodes.append(NodeProto())
            nodes[-1].CopyFrom(node)
            for side in (nodes[-1].input, nodes[-1].output):
                side[:] = [now.get(name, name) for name in side]
            if nodes[-1].op_type == "Elu" and draw.random() < 0.3:
                nodes[-1].attribute[0].f = draw.random()
            if draw.random() < 0.03:
                nodes[-1].input[0] = draw.choice(["x", last])
        last = now.get(names[-1], names[-1])
    return last


def graph(draw: random.Random) -> bytes:
    """Return a model."""
    shape = draw.choice([["N", 4], ["N", 3, 4], [2, 3, 8, 8], ["N", "M"], [], [1, 2**40], [0, 3], ["N", 1]])
    kind = draw.choice([TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, 77])
    names, nodes, held = ["x"], [], []
    held.append(numpy_helper.from_array(np.asarray(draw.choice([0, 1, 3, 2**40, -1])), "rounds"))
    repeated = draw.random() < 0.25
    if repeated and draw.random() < 0.8:
        shape, kind = ["N", 4], TensorProto.FLOAT
        _part(draw, nodes, held, names)
    for i in range(draw.randint(1, 6) if not nodes else 0):
        if draw.random() < 0.06:
            nodes.append(_with_rounds(draw, f"v{i}", draw.choice(names)))
            names.append(f"v{i}")
            continue
        op = draw.choice(list(_OPS))
        count, choices = _OPS[op]
        inputs = [draw.choice(names)]
        for j in range(1, count):
            if draw.random() < 0.7:
                held.append(numpy_helper.from_array(_constant(draw), f"c{i}_{j}"))
                inputs.append(held[-1].name)
            else:
                inputs.append(draw.choice([*names, "", f"v{i}", "nothing"]) if draw.random() < 0.2 else draw.choice(names))
        attrs = {name: draw.choice(values) for name, values in choices.items() if draw.random() < 0.5}
        nodes.append(helper.make_node(op, inputs, [f"v{i}"], domain="own" if draw.random() < 0.02 else "", **attrs))
        names.append(f"v{i}")
    if repeated:
        names.append(_repeat(draw, nodes, held, names))
    outputs = [helper.make_tensor_value_info(draw.choice([names[-1], names[-1], "x", "nothing"]), TensorProto.FLOAT, None)]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    given[0].type.tensor_type.elem_type = kind
    made = helper.make_graph(nodes, "g", given, outputs, held)
    model: ModelProto = helper.make_model(made, opset_imports=[helper.make_opsetid("", draw.choice([18, 20, 13, 7, 24, 26, 1, 999]))])
    return bytes(model.SerializeToString())
