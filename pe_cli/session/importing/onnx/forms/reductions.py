"""What goes along axes: sums, means, softmax, sorting."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import FLOATS, NUMBERS
from pe_cli.session.importing.onnx.forms.elementwise import floats, kept
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Size, Unimportable, Value, known, product

_REDUCE = {
    "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
}  # fmt: skip


def _dims(x: Value, axes: list[int], keep: bool) -> tuple[list[Size], bool]:
    """Return the sizes of what is left, and whether that is no axis."""
    left = [1 if axis in axes else size for axis, size in enumerate(x.dims) if keep or axis not in axes]
    return left or [1], not left


def _axes(node: Node, x: Value) -> list[int] | None:
    """Return the axes that go; None where the input stays as it is."""
    axes, stays = node.ints("axes", 1), node.attr("noop_with_empty_axes", 0)
    if not axes:
        return None if stays else list(range(len(x.dims)))
    rank = len(x.dims)
    if any(not -rank <= axis < rank for axis in axes):
        raise Unimportable(f"axes {axes} do not fit {list(known(x.dims))}")
    return sorted({axis % rank for axis in axes})


def _reduced(node: Node, type: str, x: Value, axes: list[int], hint: str | None = None) -> Value:
    keep = bool(node.attr("keepdims", 1))
    dims, scalar = _dims(x, axes, keep)
    args: dict[str, Any] = {"input": x, "dim": axes, **({"keep_dim": True} if keep else {})}
    if hint is not None:
        made = node.mid(type, hint, dims=dims, **args)
        return Value(made.dtype, variable=made.variable, dims=made.dims, scalar=scalar or x.scalar)
    return node.out(type, dims=dims, scalar=scalar or x.scalar, **args)


@form(*_REDUCE)
def reduce(node: Node) -> Value:
    x = node.var()
    axes = _axes(node, x)
    if axes is None:
        return x
    if x.dtype not in NUMBERS or (node.op == "ReduceMean" and x.dtype not in FLOATS):
        wide = node.mid("cast", "wide", x=x, dtype="float64" if node.op == "ReduceMean" else "int32", dims=x.dims)
        made = _reduced(node, _REDUCE[node.op], wide, axes, "of_wide")
        return node.out("cast", x=made, dtype=x.dtype, dims=made.dims, scalar=made.scalar)
    return _reduced(node, _REDUCE[node.op], x, axes)


@form("ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def reduce_of(node: Node) -> Value:
    x = node.var()
    axes = _axes(node, x)
    axes = [] if axes is None else axes
    first = {"ReduceL1": "abs", "ReduceSumSquare": "square", "ReduceL2": "square"}.get(node.op)
    last = {"ReduceL2": "sqrt", "ReduceLogSum": "log"}.get(node.op)
    if x.dtype not in FLOATS:
        x = node.mid("cast", "float", x=x, dtype="float64", dims=x.dims)
    own = node.var().dtype
    if node.op == "ReduceLogSumExp":
        if not axes:
            return x
        dims, scalar = _dims(x, axes, bool(node.attr("keepdims", 1)))
        made = node.mid("logsumexp", "log", x=x, axis=axes, keepdim=bool(node.attr("keepdims", 1)), dims=dims)
        return node.out("cast" if own != x.dtype else "assign", dims=dims, scalar=scalar, **_copied(made, own, x.dtype))
    terms = x if first is None else node.mid(first, "terms", x=x, dims=x.dims)
    total = _reduced(node, "reduce_sum", terms, axes, "sum") if axes else terms
    made = total if last is None else node.mid(last, "end", x=total, dims=total.dims)
    return node.out("cast" if own != x.dtype else "assign", dims=made.dims, scalar=total.scalar, **_copied(made, own, x.dtype))


def _copied(made: Value, own: str, dtype: str) -> dict[str, Any]:
    return {"x": made, "dtype": own} if own != dtype else {"input": made}


@form("Softmax", "LogSoftmax")
def softmax(node: Node) -> Value:
    x = floats(node)
    type = "softmax" if node.op == "Softmax" else "log_softmax"
    old = node.opset < 13
    axis = node.axis(1 if old else -1)
    # Before operator set 13, softmax flattened everything from its axis on and was taken over all of it, not over one axis.
    if old and axis != len(x.dims) - 1:
        flat = node.reshaped(x, [product(x.dims[:axis]), product(x.dims[axis:])], "flat")
        return node.reshaped(node.mid(type, "of_flat", input=flat, dims=flat.dims), x.dims)
    return kept(node, x, type, input=x, **({} if axis == len(x.dims) - 1 else {"axis": axis}))


@form("ArgMax", "ArgMin")
def arg(node: Node) -> Value:
    x = node.var()
    if x.dtype not in FLOATS:
        x = node.mid("cast", "float", x=x, dtype="float64", dims=x.dims)
    axis, keep = node.axis(0), bool(node.attr("keepdims", 1))
    type = node.op.lower()
    dims, scalar = _dims(x, [axis], False)
    if node.attr("select_last_index", 0):
        return _last_place(node, x, type, axis, keep)
    if not keep:
        return node.out(type, x=x, axis=axis, dims=dims, scalar=scalar)
    made = node.mid(type, "place", x=x, axis=axis, dims=dims)
    return node.reshaped(made, _dims(x, [axis], True)[0])


def _last_place(node: Node, x: Value, type: str, axis: int, keep: bool) -> Value:
    """Find the last of equal numbers: the first one from the other end."""
    size, (dims, scalar) = x.dims[axis], _dims(x, [axis], False)
    if not isinstance(size, int):
        raise Unimportable("select_last_index along an axis whose size is not known")
    # The layers find the first of equal numbers. Turned around, the last one is the first.
    turned = node.mid("reverse", "turned", x=x, axis=[axis], dims=x.dims)
    place = node.mid(type, "place", x=turned, axis=axis, dims=dims)
    args: dict[str, Any] = {"x": place, "scale": -1.0, "bias": float(size - 1)}
    if not keep:
        return node.out("scale", dims=dims, scalar=scalar, **args)
    return node.reshaped(node.mid("scale", "from_0", dims=dims, **args), _dims(x, [axis], True)[0])


@form("CumSum")
def cumsum(node: Node) -> Value:
    x = node.var()
    axis = int(node.const(1, "axis").reshape(-1)[0]) % len(x.dims)
    return kept(node, x, "cumsum", x=x, axis=axis, exclusive=bool(node.attr("exclusive", 0)), reverse=bool(node.attr("reverse", 0)))


@form("TopK")
def topk(node: Node) -> list[Value | None]:
    x, axis = node.var(), node.axis(-1)
    k = int(node.attr("k", 0)) or int(node.const(1, "k").reshape(-1)[0])
    if axis == len(x.dims) - 1 and node.attr("largest", 1) and x.dtype in FLOATS:
        made = node.outs("topk", input=x, k=k)
        return [Value(one.dtype, variable=one.variable, dims=(*x.dims[:-1], k)) for one in made]
    own = x.dtype
    if own not in NUMBERS:
        x = node.mid("cast", "number", x=x, dtype="int32", dims=x.dims)
    # Sorting everything is more work than to find the largest, but it also has the smallest, other axes and whole numbers, which the layer
    # topk has not.
    made = node.outs("argsort", input=x, axis=axis, descending=bool(node.attr("largest", 1)))
    dims = [k if a == axis else size for a, size in enumerate(x.dims)]
    cut: dict[str, Any] = {"axes": [axis], "starts": [0], "ends": [k], "dims": dims}
    held = [Value(one.dtype, variable=one.variable, dims=x.dims) for one in made]
    first, places = (node.mid("slice", f"first_{i}", input=one, **cut) for i, one in enumerate(held))
    return [first if own == x.dtype else node.mid("cast", "own", x=first, dtype=own, dims=dims), places]


@form("LpNormalization")
def lp_normalization(node: Node) -> Value:
    x, axis, p = floats(node), node.axis(-1), int(node.attr("p", 2))
    if p == 2:
        return kept(node, x, "l2_normalize", x=x, axis=axis)
    size = node.mid("abs", "size", x=x, dims=x.dims)
    dims = [1 if i == axis else one for i, one in enumerate(x.dims)]
    total = node.mid("reduce_sum", "total", input=size, dim=[axis], keep_dim=True, dims=dims)
    return kept(node, x, "elementwise_div", x=x, y=total)


@form("OneHot")
def one_hot(node: Node) -> Value:
    index, values = node.var(0), node.const(2, "values").reshape(-1)
    depth = int(node.const(1, "depth").reshape(-1)[0])
    rank = 0 if index.scalar else len(index.dims)
    axis = int(node.attr("axis", -1)) % (rank + 1)
    if index.dtype != "int64":
        index = node.mid("cast", "ids", x=index, dtype="int64", dims=index.dims)
    # ONNX counts negative ids from the end. What still lies outside has no 1, which the layer does where allow_out_of_range is set.
    zero = node.number_like(0.0, index, "zero")
    below = node.mid("less_than", "below", x=index, y=zero, dims=index.dims)
    turned = node.mid("cast", "turned", x=below, dtype="int64", dims=index.dims)
    around = node.mid("scale", "around", x=turned, scale=float(depth), dims=index.dims)
    index = Value("int64", variable=node.mid("elementwise_add", "from_0", x=index, y=around).variable, dims=index.dims, scalar=index.scalar)
    ids = node.reshaped(index, [*(() if index.scalar else index.dims), 1], "places")
    dims = [*ids.dims[:-1], depth]
    off, on = float(values[0]), float(values[1])
    made = node.mid("one_hot", "ones", input=ids, depth=depth, allow_out_of_range=True, dims=dims)
    scaled = made if (off, on) == (0.0, 1.0) else node.mid("scale", "values", x=made, scale=on - off, bias=off, dims=dims)
    if axis == rank:
        return node.out("cast", x=scaled, dtype=values.dtype.name, dims=dims)
    typed = node.mid("cast", "typed", x=scaled, dtype=values.dtype.name, dims=dims)
    # The layer puts the classes last; ONNX puts them wherever the axis says.
    perm = [*range(axis), rank, *range(axis, rank)]
    return node.out("transpose", x=typed, perm=perm, dims=[dims[a] for a in perm])
