"""Products of matrices, and tables of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.broadcasting import spread, together
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Unimportable, Value, product


@form("MatMul")
def matmul(node: Node) -> Value:
    left, right = node.value(0), node.value(1)
    array = right.constant if right.later is None else None
    # A constant matrix on the right is what an exporter makes of a fully connected layer. As a layer it has a parameter that can be trained
    # on; every other product is one of two variables.
    if left.constant is None and array is not None and array.ndim == 2 and left.rank >= 2 and array.dtype.name in FLOATS and array.size:
        return _connected(node, node.var(0), False)
    x, y = node.var(0), node.var(1)
    if x.dtype not in FLOATS:
        raise Unimportable(f"it multiplies matrices of {x.dtype}, and the layer matmul takes floats")
    if left.rank == 1:
        # As in numpy, a vector is a row on the left and a column on the right, and the axis that it gained is left out of the product.
        x = node.reshaped(x, [1, *x.dims], "row")
    if right.rank == 1:
        y = node.reshaped(y, [*y.dims, 1], "column")
    batch = together([x.dims[:-2], y.dims[:-2]])
    x, y = spread(node, x, [*batch, *x.dims[-2:]], [y], "x"), spread(node, y, [*batch, *y.dims[-2:]], [x], "y")
    dims = [*batch, x.dims[-2], y.dims[-1]]
    if left.rank > 1 and right.rank > 1:
        return node.out("matmul", x=x, y=y, dims=dims)
    product = node.mid("matmul", "product", x=x, y=y, dims=dims)
    axes = ([len(dims) - 2] if left.rank == 1 else []) + ([len(dims) - 1] if right.rank == 1 else [])
    return node.reshaped(product, [size for axis, size in enumerate(dims) if axis not in axes])


def _connected(node: Node, x: Value, turned: bool, bias: int | None = None, factor: float = 1.0, bias_factor: float = 1.0) -> Value:
    """Append a fully connected layer for a product with a constant matrix."""
    weight, name = node.parameter(1, "weight", lambda a: _scaled(a.T if turned else a, factor))
    attr: object = False
    if bias is not None:
        _, bias_name = node.parameter(bias, "bias", lambda a: _scaled(np.broadcast_to(a.reshape(-1), (weight.shape[1],)), bias_factor))
        attr = {"name": bias_name}
    if isinstance(x.dims[-1], int) and x.dims[-1] != weight.shape[0]:
        raise Unimportable(f"inner sizes differ: {x.dims[-1]} and {weight.shape[0]}")
    args: dict[str, Any] = {"input": x, "size": weight.shape[1], "param_attr": {"name": name}, "bias_attr": attr}
    if len(x.dims) > 2:
        args["num_flatten_dims"] = len(x.dims) - 1
    return node.out("fc", dims=[*x.dims[:-1], weight.shape[1]], **args)


def _scaled(array: np.ndarray, factor: float) -> np.ndarray:
    return array if factor == 1 else np.asarray(array * factor, array.dtype)


@form("Gemm")
def gemm(node: Node) -> Value:
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    turn_x, turn_y = bool(node.attr("transA", 0)), bool(node.attr("transB", 0))
    weight, bias = node.value(1).constant, node.value(2).constant if node.has(2) else None
    if node.value(1).later is not None:
        weight = None
    # A bias is flat where each output has one number: a matrix that is added would differ from row to row, which no bias of a layer does.
    flat = (bias is not None and bias.shape[-1:] and bias.size in (1, bias.shape[-1])) or (bias is not None and bias.size == 1)
    dense = weight is not None and weight.ndim == 2 and not turn_x and node.value(0).constant is None and weight.dtype.name in FLOATS
    if dense and (flat or not node.has(2)):
        return _connected(node, node.var(0), turn_y, 2 if node.has(2) else None, alpha, beta)
    x, y = node.var(0), node.var(1)
    if x.dtype not in FLOATS:
        raise Unimportable(f"it multiplies matrices of {x.dtype}, and the layer matmul takes floats")
    dims = [x.dims[1 if turn_x else 0], y.dims[0 if turn_y else 1]]
    args: dict[str, Any] = {"x": x, "y": y, "transpose_x": turn_x, "transpose_y": turn_y, "alpha": alpha}
    if not node.has(2) or beta == 0:
        return node.out("matmul", dims=dims, **args)
    product = node.mid("matmul", "product", dims=dims, **args)
    added = node.var(2)
    if beta != 1:
        added = node.mid("scale", "bias", x=added, scale=beta, dims=added.dims)
    return node.out("elementwise_add", x=product, y=added, dims=dims)


@form("Gather")
def gather(node: Node) -> Value:
    table, places = node.value(0), node.value(1)
    axis = node.axis(0)
    # A constant matrix whose rows are looked up is an embedding, whose table is trained.
    rows = table.constant if table.later is None else None
    if rows is not None and rows.ndim == 2 and axis == 0 and rows.dtype.name in FLOATS and places.constant is None and rows.size:
        return _embedded(node, rows)
    if table.sizes is None and places.constant is not None and places.constant.size == 1 and isinstance(table.shape[axis], int):
        return _one_place(node, axis, int(places.constant.reshape(-1)[0]), places.constant.ndim)
    x, index = node.var(0), node.var(1)
    size = x.dims[axis]
    if places.constant is not None and (places.constant < 0).any():
        if not isinstance(size, int):
            raise Unimportable("places are counted from an end that is not known")
        turned = np.where(places.constant < 0, places.constant + size, places.constant)
        index = node.emitter.variable(Value(turned.dtype.name, constant=turned), f"{node.key}_places")
    elif places.constant is None:
        node.emitter.note(f"{node.key}: places that are computed have to be 0 or more; ONNX counts negative ones from the end")
    if index.dtype not in ("int32", "int64"):
        raise Unimportable(f"its places are {index.dtype}")
    flat = index if len(index.dims) == 1 else node.reshaped(index, [product(index.dims)], "places")
    dims = [*x.dims[:axis], *places.shape, *x.dims[axis + 1 :]]
    type, args = ("gather", {"input": x, "index": flat}) if axis == 0 else ("index_select", {"x": x, "index": flat, "axis": axis})
    if places.rank == 1:
        return node.out(type, dims=dims, **args)
    taken = node.mid(type, "rows", dims=[*x.dims[:axis], flat.dims[0], *x.dims[axis + 1 :]], **args)
    return node.reshaped(taken, dims)


def _one_place(node: Node, axis: int, place: int, rank: int) -> Value:
    """Take one slice."""
    x = node.var(0)
    size = x.dims[axis]
    assert isinstance(size, int), "looked at before"
    if not -size <= place < size:
        raise Unimportable(f"it takes place {place} of {size}")
    place %= size
    kept = [*x.dims[:axis], 1, *x.dims[axis + 1 :]]
    dims = [*x.dims[:axis], *([1] * rank), *x.dims[axis + 1 :]]
    args: dict[str, Any] = {"input": x, "axes": [axis], "starts": [place], "ends": [place + 1]}
    if rank == 1:
        return node.out("slice", dims=kept, **args)
    return node.reshaped(node.mid("slice", "one", dims=kept, **args) if size > 1 else x, dims)


def _embedded(node: Node, rows: np.ndarray) -> Value:
    """Look up rows of a table that is trained."""
    index = node.var(1)
    if index.dtype != "int64":
        index = node.mid("cast", "ids", x=index, dtype="int64", dims=index.dims)
    _, name = node.parameter(0, "table")
    args: dict[str, Any] = {"size": list(rows.shape), "param_attr": {"name": name}, "dtype": rows.dtype.name}
    dims = [*node.shape(1), rows.shape[1]]
    ids = node.reshaped(index, [*index.dims, 1], "places") if not node.value(1).scalar else index
    made = node.mid("embedding", "rows", input=ids, **args) if node.value(1).scalar else None
    if made is not None:
        return node.reshaped(made, dims)
    return node.out("embedding", input=ids, dims=dims, **args)


def _is_one_number(equation: str) -> bool:
    """Tell whether an equation leaves no axis."""
    given, arrow, wanted = equation.partition("->")
    return not wanted if arrow else "." not in given and not any(given.count(letter) == 1 for letter in given if letter != ",")


@form("Einsum")
def einsum(node: Node) -> Value:
    operands = [node.var(i) for i in range(len(node.values))]
    equation = str(node.attr("equation", "")).replace(" ", "")
    return node.out("einsum", equation=equation, operands=operands, scalar=_is_one_number(equation))
