"""Elements that are taken from places, and put there: GatherND, GatherElements, ScatterND, ScatterElements, and what finds places."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pe_cli.core.types import FLOATS, NUMBERS
from pe_cli.session.importing.onnx.broadcasting import filled_like, spread
from pe_cli.session.importing.onnx.fold import bounded
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Array, NeedsConstant, Size, Symbol, Unimportable, Value, known, product

#: How ONNX joins what is put, and the layer's word for it.
_REDUCTIONS = {"none": "assign", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def whole(node: Node, index: int) -> Value:
    """Return places as a variable of a type that layers take.

    Raises:
        Unimportable: they are no whole numbers.
    """
    places = node.var(index)
    if places.dtype not in ("int32", "int64"):
        raise Unimportable(f"its places are {places.dtype}")
    return places


@form("GatherElements")
def gather_elements(node: Node) -> Value:
    x, places, axis = node.var(0), whole(node, 1), node.axis(0)
    return node.out("take_along_axis", x=x, indices=places, axis=axis, dims=places.dims)


def _reduction(node: Node, x: Value) -> str:
    """Return how what is put is joined.

    Raises:
        Unimportable: it is not known, or the layer has it not for this type.
    """
    how = str(node.attr("reduction", "none"))
    if how not in _REDUCTIONS or (how != "none" and x.dtype not in NUMBERS):
        raise Unimportable(f"it joins {x.dtype} by '{how}', and the layer put_along_axis numbers by {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[how]


@form("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Value:
    x, places, updates, axis = node.var(0), whole(node, 1), node.var(2), node.axis(0)
    how = _reduction(node, x)
    return node.out("put_along_axis", x=x, indices=places, values=updates, axis=axis, reduce=how, dims=x.dims)


def _numbered(node: Node, index: int, sizes: Sequence[Size]) -> Value:
    """Return the places that a last axis of coordinates names, counted through all of these sizes, [places] int64.

    Raises:
        Unimportable: sizes that have to be multiplied with are not known.
    """
    if not all(isinstance(size, int) for size in sizes[1:]):
        raise Unimportable(f"places are counted through {list(known(tuple(sizes)))}, which are not known")
    # Coordinates become numbers of places counted through all axes, row by row: one gather from the flattened value then does what ONNX's
    # gather of many axes does.
    strides = [math.prod(int(str(size)) for size in sizes[i + 1 :]) for i in range(len(sizes))]
    held = node.value(index).constant
    if held is not None and isinstance(sizes[0], int):
        return node.emitter.variable(Value("int64", constant=_counted(held, sizes, strides)), f"{node.key}_places")
    places = whole(node, index)
    if places.dtype != "int64":
        places = node.mid("cast", "ids", x=places, dtype="int64", dims=places.dims)
    # The first axis alone need not be known, since its stride is the product of the others; but its negative coordinates cannot be turned
    # then.
    if len(sizes) > 1 or isinstance(sizes[0], int):
        places = _from_the_start(node, places, sizes)
    flat = node.reshaped(places, [product(places.dims[:-1]), len(sizes)], "coordinates")
    if len(sizes) == 1:
        return node.reshaped(flat, [flat.dims[0]], "numbers")
    factors = node.emitter.variable(Value("int64", constant=np.asarray(strides, np.int64)), f"{node.key}_strides")
    parts = node.mid("elementwise_mul", "parts", x=flat, y=factors, dims=flat.dims)
    return node.mid("reduce_sum", "numbers", input=parts, dim=[1], dims=[flat.dims[0]])


def _counted(held: Array, sizes: Sequence[Size], strides: Sequence[int]) -> Array:
    """Return the numbers of places that are constants."""
    limits, flat = np.asarray(sizes, np.int64), held.reshape(-1, len(sizes)).astype(np.int64)
    if ((flat < -limits) | (flat >= limits)).any():
        raise Unimportable(f"a place lies outside of {list(sizes)}")
    return np.asarray(np.where(flat < 0, flat + limits, flat) @ np.asarray(strides, np.int64), np.int64)


def _from_the_start(node: Node, places: Value, sizes: Sequence[Size]) -> Value:
    """Return coordinates of which negative ones, which count from the end, are counted from the start."""
    known_sizes = np.asarray([size if isinstance(size, int) else 0 for size in sizes], np.int64)
    limits = node.emitter.variable(Value("int64", constant=known_sizes), f"{node.key}_sizes")
    below = node.mid("less_than", "below", x=places, y=node.number_like(0.0, places, "zero"), dims=places.dims)
    turned = node.mid("cast", "turned", x=below, dtype="int64", dims=places.dims)
    around = node.mid("elementwise_mul", "around", x=turned, y=limits, dims=places.dims)
    return node.mid("elementwise_add", "from_0", x=places, y=around, dims=places.dims)


def _depth(node: Node, index: int, first: int) -> int:
    """Return how many axes the last axis of places names.

    Raises:
        Unimportable: it is not known, or more than there are.
    """
    last, rank = node.shape(index)[-1] if node.value(index).rank else 0, node.value(0).rank
    if not isinstance(last, int) or not 1 <= last <= rank - first:
        raise Unimportable(f"places of shape {list(node.sizes(index))} do not fit an input of {list(node.sizes(0))}")
    return last


@form("GatherND")
def gather_nd(node: Node) -> Value:
    x, first = node.var(0), int(node.attr("batch_dims", 0))
    depth = _depth(node, 1, first)
    shape = list(node.shape(1))
    dims = [*shape[:-1], *x.dims[first + depth :]]
    sizes, rest = list(x.dims[first : first + depth]), list(x.dims[first + depth :])
    numbers = _numbered(node, 1, sizes)
    batch: list[Size] = list(x.dims[:first])
    if first:
        if not all(isinstance(size, int) for size in [*batch, *sizes, *shape]):
            raise Unimportable("batch_dims of sizes that are not known")
        bounded([*shape[:-1]], "its starts")
        each, count = math.prod(map(int, map(str, sizes))), math.prod(map(int, map(str, shape[first:-1])))
        starts = np.repeat(np.arange(math.prod(map(int, map(str, batch))), dtype=np.int64) * each, count)
        begin = node.emitter.variable(Value("int64", constant=starts), f"{node.key}_starts")
        numbers = node.mid("elementwise_add", "numbers_of_all", x=numbers, y=begin, dims=numbers.dims)
    rows = node.reshaped(x, [product([*batch, *sizes]), *rest], "rows")
    taken = node.mid("gather", "taken", input=rows, index=numbers, dims=[numbers.dims[0], *rest])
    return node.reshaped(taken, dims)


@form("ScatterND")
def scatter_nd(node: Node) -> Value:
    x, updates = node.var(0), node.var(2)
    how, depth = _reduction(node, x), _depth(node, 1, 0)
    numbers = _numbered(node, 1, x.dims[:depth])
    inner = product(x.dims[depth:])
    if not isinstance(inner, int):
        raise Unimportable("the sizes of the parts that are put are not known")
    rows, count = node.reshaped(x, [product(x.dims[:depth]), inner], "rows"), numbers.dims[0]
    column = node.reshaped(numbers, [count, 1], "column")
    index = node.mid("expand", "index", x=column, expand_times=[1, inner], dims=[count, inner]) if inner > 1 else column
    parts = node.reshaped(updates, [count, inner], "parts")
    made = node.mid("put_along_axis", "put", x=rows, indices=index, values=parts, axis=0, reduce=how, dims=rows.dims)
    return node.reshaped(made, x.dims)


@form("TensorScatter")
def tensor_scatter(node: Node) -> Value:
    """Put an update behind what is there, along one axis, from a place of its own for each row of the batch.

    Raises:
        Unimportable: sizes are not known.
    """
    x, updates = node.var(0), node.var(1)
    axis, count, size = node.axis(-2), updates.dims[int(node.attr("axis", -2))], x.dims[int(node.attr("axis", -2))]
    if not isinstance(count, int) or not isinstance(size, int):
        raise Unimportable("the sizes along its axis are not known")
    steps = np.arange(*bounded([count], "its update"), dtype=np.int64)
    steps = steps.reshape([-1 if a == axis else 1 for a in range(len(x.dims))])
    index = node.emitter.variable(Value("int64", constant=steps), f"{node.key}_places")
    if node.has(2):
        first = node.reshaped(whole(node, 2), [x.dims[0], *([1] * (len(x.dims) - 1))], "first")
        both = [x.dims[0], *(count if a == axis else 1 for a in range(1, len(x.dims)))]
        index, first = spread(node, index, both, [first], "steps"), spread(node, first, both, [first], "first_all")
        index = node.mid("elementwise_add", "places", x=index, y=first, dims=both)
    if node.attr("mode", "linear") == "circular":
        around = node.number_like(float(size), index, "size")
        index = node.mid("elementwise_mod", "around", x=index, y=around, dims=index.dims)
    index = spread(node, index, updates.dims, [updates], "index")
    return node.out("put_along_axis", x=x, indices=index, values=updates, axis=axis, dims=x.dims)


@form("Compress")
def compress(node: Node) -> Value:
    chosen = np.flatnonzero(node.const(1, "the condition"))
    x = node.var(0)
    if "axis" in node.attrs:
        axis = node.axis(0)
    else:
        x, axis = node.reshaped(x, [product(x.dims)], "flat"), 0
    if not len(chosen):
        raise Unimportable("it takes nothing")
    index = node.emitter.variable(Value("int64", constant=chosen.astype(np.int64)), f"{node.key}_places")
    dims = [*x.dims[:axis], len(chosen), *x.dims[axis + 1 :]]
    return taken(node, x, index, axis, dims)


def taken(node: Node, x: Value, index: Value, axis: int, dims: Sequence[Size], hint: str | None = None) -> Value:
    """Take places along an axis; it is the node's output where there is no hint."""
    type, args = ("gather", {"input": x, "index": index}) if axis == 0 else ("index_select", {"x": x, "index": index, "axis": axis})
    return node.out(type, dims=dims, **args) if hint is None else node.mid(type, hint, dims=dims, **args)


@form("ReverseSequence")
def reverse_sequence(node: Node) -> Value:
    x, time, batch = node.var(0), int(node.attr("time_axis", 0)), int(node.attr("batch_axis", 1))
    size, rows = x.dims[time], x.dims[batch]
    if {time, batch} != {0, 1} or not isinstance(size, int):
        raise Unimportable("its axes are not the first two, or the number of steps is not known")
    lengths = node.const(1, "the lengths").reshape(-1, 1)
    steps = np.arange(bounded([lengths.size, size], "its places")[1]).reshape(1, -1)
    places = np.where(steps < lengths, lengths - 1 - steps, steps).astype(np.int64)
    places = places if batch == 0 else places.T
    index = node.emitter.variable(Value("int64", constant=places.reshape(*places.shape, *([1] * (len(x.dims) - 2)))), f"{node.key}_places")
    shape = [rows if a == batch else size if a == time else s for a, s in enumerate(x.dims)]
    return node.out("take_along_axis", x=x, indices=spread(node, index, shape, [x], "index"), axis=time, dims=x.dims)


@form("NonZero", "Unique")
def counted_at_once(node: Node) -> Value:
    """Refuse what only values tell the size of.

    Raises:
        NeedsConstant: always.
    """
    raise NeedsConstant(node.inputs[0], "what says how many elements there are")


@form("Range")
def range_(node: Node) -> Value:
    """Count from 0 up to a size that a step tells, such as the rows of a batch; a range of constants is folded.

    Raises:
        NeedsConstant: values tell where it begins or ends, or how far its steps go.
        Unimportable: no variable has that size.
    """
    open_ = next((i for i, value in enumerate(node.values) if value is not None and value.constant is None and value.sizes is None), None)
    if open_ is not None:
        raise NeedsConstant(node.inputs[open_], ("the start", "the limit", "the step")[open_])
    size = node.value(1).sizes
    if size is None or not isinstance(size.reshape(-1)[0], Symbol) or node.const(0, "the start") != 0 or node.const(2, "the step") != 1:
        raise Unimportable("it counts to a size that is not known, and does so from another number than 0, or not by 1")
    dims = [size.reshape(-1)[0]]
    ones = filled_like(node, dims, [], "int64", 1.0, "ones")
    return node.out("cumsum", x=ones, axis=0, exclusive=True, dims=dims)


@form("Hardmax")
def hardmax(node: Node) -> Value:
    x, old = node.var(0), node.opset < 13
    axis = node.axis(1 if old else -1)
    flat = x
    if old and axis != len(x.dims) - 1:
        flat = node.reshaped(x, [product(x.dims[:axis]), product(x.dims[axis:])], "flat")
        axis = 1
    size = flat.dims[axis]
    if not isinstance(size, int) or flat.dtype not in FLOATS:
        raise Unimportable("the size that it goes along is not known, or it is given whole numbers")
    left = [*flat.dims[:axis], *flat.dims[axis + 1 :]]
    place = node.mid("argmax", "place", x=flat, axis=axis, dims=left)
    last = axis == len(flat.dims) - 1 and flat is x
    ones = node.mid("one_hot", "ones", input=node.reshaped(place, [*left, 1], "places"), depth=size, dims=[*left, size])
    if flat.dtype != "float32":
        ones = node.mid("cast", "floats", x=ones, dtype=flat.dtype, dims=ones.dims)
    if last:
        return node.out("assign", input=ones, dims=x.dims)
    perm = [*range(axis), len(left), *range(axis, len(left))]
    turned = ones if axis == len(left) else node.mid("transpose", "turned", x=ones, perm=perm, dims=flat.dims)
    return node.reshaped(turned, x.dims)


@form("CumProd")
def cumprod(node: Node) -> Value:
    x = node.var(0)
    axis = int(node.const(1, "axis").reshape(-1)[0]) % len(x.dims)
    flags = {name: bool(node.attr(name, 0)) for name in ("exclusive", "reverse")}
    return node.out("cumprod", x=x, axis=axis, dims=x.dims, **flags)


@form("EyeLike")
def eye_like(node: Node) -> Value:
    from pe_cli.session.importing.onnx.file import element_type

    sizes = node.shape(0)
    if len(sizes) != 2 or not all(isinstance(size, int) for size in sizes):
        raise Unimportable(f"it makes a diagonal of {list(known(sizes))}, which is no matrix of a known size")
    rows, columns = bounded([int(str(size)) for size in sizes], "a diagonal")
    dtype = element_type(int(node.attr("dtype", 0)))[1] if "dtype" in node.attrs else node.value(0).dtype
    return Value(dtype, constant=np.eye(rows, columns, int(node.attr("k", 0)), dtype=dtype))
