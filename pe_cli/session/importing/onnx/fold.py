"""Computes nodes of constants and of sizes while a graph is read. Arrays of objects hold sizes of which some are symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pe_cli.session.importing.onnx.derived import derived, is_trained, keeps_parameter
from pe_cli.session.importing.onnx.node import Node, discover
from pe_cli.session.importing.onnx.values import Array, Symbol, Unimportable, Value

#: What Python raises for inputs and attributes that are missing, of other kinds, or of other shapes.
UNFIT = (ValueError, IndexError, TypeError, KeyError, OverflowError, ZeroDivisionError, np.exceptions.AxisError, MemoryError)
#: Elements of a constant that is computed: a mask of 2048 steps by as many.
MOST_FOLDED = 1 << 22
Fold = Callable[[Node, Sequence[Array]], "Array | Sequence[Array]"]
FOLDS: dict[str, Fold] = {}
#: Those that also compute with sizes that are not known yet.
OF_SYMBOLS = frozenset({
    "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Concat", "Slice", "Gather", "Add", "Sub", "Mul", "Div", "ReduceProd",
    "ReduceSum", "Equal", "Where", "Split", "Transpose", "Flatten",
})  # fmt: skip
#: Those whose result is the initializer that they are given, in another form: it keeps its name.
KEEPS_NAME = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "DequantizeLinear"})


def fold(*ops: str) -> Callable[[Fold], Fold]:
    """Register how nodes of these kinds are computed."""

    def keep(fn: Fold) -> Fold:
        FOLDS.update(dict.fromkeys(ops, fn))
        return fn

    return keep


class TooLarge(Unimportable):
    """A constant has more elements than one that is computed may have."""


def bounded(shape: Sequence[Any], what: str) -> tuple[int, ...]:
    """Return the shape of a constant that is made.

    Raises:
        TooLarge: it has too many elements, or a negative size.
    """
    total = 1
    for size in shape:
        total *= int(size)
        if int(size) < 0 or total > MOST_FOLDED:
            raise TooLarge(f"{what} would be {[int(s) for s in shape]}, and a constant has {MOST_FOLDED:,} elements at most")
    return tuple(int(size) for size in shape)


def _axes(node: Node, given: Sequence[Array], index: int = 1) -> list[int] | None:
    if "axes" in node.attrs:
        return [int(v) for v in node.attrs["axes"]]
    return [int(v) for v in given[index].reshape(-1)] if len(given) > index and node.has(index) else None


@fold("Identity")
def _identity(node: Node, given: Sequence[Array]) -> Array:
    return given[0]


@fold("Cast")
def _cast(node: Node, given: Sequence[Array]) -> Array:
    from pe_cli.session.importing.onnx.file import element_type

    name, ours = element_type(int(node.attr("to", 1)))
    if not ours:
        raise Unimportable(f"it casts to {name}, which no variable holds")
    if given[0].dtype == object:
        if ours not in ("int64", "int32"):
            raise Unimportable(f"sizes that are not known become {name}")
        return given[0]
    with np.errstate(all="ignore"):
        return given[0].astype(ours)


@fold("CastLike")
def _cast_like(node: Node, given: Sequence[Array]) -> Array:
    return given[0].astype(given[1].dtype)


@fold("Reshape")
def _reshape(node: Node, given: Sequence[Array]) -> Array:
    x, wanted = given[0], node.attrs["shape"] if "shape" in node.attrs else given[1]
    keep = not node.attr("allowzero", 0)
    return x.reshape([x.shape[i] if int(s) == 0 and keep else int(s) for i, s in enumerate(wanted)])


@fold("Flatten")
def _flatten(node: Node, given: Sequence[Array]) -> Array:
    axis = int(node.attr("axis", 1)) % (given[0].ndim + 1) if given[0].ndim else 0
    return given[0].reshape(int(np.prod(given[0].shape[:axis], dtype=np.int64)), -1)


@fold("Transpose")
def _transpose(node: Node, given: Sequence[Array]) -> Array:
    return given[0].transpose(node.attr("perm"))


@fold("Squeeze")
def _squeeze(node: Node, given: Sequence[Array]) -> Array:
    axes = _axes(node, given)
    return given[0].squeeze(None if axes is None else tuple(axes))


@fold("Unsqueeze")
def _unsqueeze(node: Node, given: Sequence[Array]) -> Array:
    return np.expand_dims(given[0], tuple(_axes(node, given) or []))


@fold("Concat")
def _concat(node: Node, given: Sequence[Array]) -> Array:
    return np.concatenate(given, int(node.attr("axis", 1)))


@fold("Slice")
def _slice(node: Node, given: Sequence[Array]) -> Array:
    return given[0][slices(node, given, given[0].ndim)]


def slices(node: Node, given: Sequence[Array | None], rank: int) -> tuple[slice, ...]:
    """Return the slices of a Slice node whose starts, ends, axes and steps are constants.

    Raises:
        Unimportable: axes and steps do not fit the input.
    """

    def numbers(name: str, index: int) -> list[int] | None:
        if name in node.attrs:
            return [int(v) for v in node.attrs[name]]
        held = given[index] if len(given) > index else None
        return None if held is None else [int(v) for v in held.reshape(-1)]

    starts, ends = numbers("starts", 1) or [], numbers("ends", 2) or []
    axes = numbers("axes", 3) or list(range(len(starts)))
    steps = numbers("steps", 4) or [1] * len(starts)
    found = [slice(None)] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -rank <= axis < rank or step == 0:
            raise Unimportable(f"axes {axes} and steps {steps} do not fit an input with {rank} axes")
        # Backwards as far as the first element, which files write as the smallest number of int32 or int64.
        found[axis] = slice(start, None if step < 0 and end <= -(2**31) + 1 else end, step)
    return tuple(found)


@fold("Gather")
def _gather(node: Node, given: Sequence[Array]) -> Array:
    found: Array = np.take(given[0], given[1].astype(np.int64), axis=int(node.attr("axis", 0)))
    return np.asarray(found, given[0].dtype)


@fold("Split")
def _split(node: Node, given: Sequence[Array]) -> Sequence[Array]:
    axis, sizes = int(node.attr("axis", 0)), node.attrs.get("split")
    if sizes is None and len(given) > 1:
        sizes = [int(v) for v in given[1]]
    parts = len([name for name in node.outputs if name])
    if sizes is None:
        whole, each = given[0].shape[axis], -(-given[0].shape[axis] // parts)
        sizes = [min(each, whole - i * each) for i in range(parts)]
    return np.split(given[0], np.cumsum(sizes)[:-1], axis)


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Pow": np.power, "Equal": np.equal, "Less": np.less, "Greater": np.greater,
    "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
}  # fmt: skip


@fold(*_BINARY)
def _binary(node: Node, given: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        found = np.asarray(_BINARY[node.op](given[0], given[1]))
    if found.dtype == object and node.op == "Equal":
        return found.astype(bool)
    # ONNX's Pow has the type of its base.
    return found.astype(given[0].dtype) if node.op == "Pow" else found


@fold("Div")
def _div(node: Node, given: Sequence[Array]) -> Array:
    x, y = given
    if x.dtype == object or y.dtype == object:
        return np.asarray(np.floor_divide(x, y), object)
    with np.errstate(all="ignore"):
        if x.dtype.kind in "iu":
            if (y == 0).any():
                raise Unimportable("it divides by 0")
            # ONNX cuts quotients towards 0, and NumPy's // goes down.
            return np.asarray(np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)), x.dtype)
        return np.asarray(x / y)


@fold("Mod")
def _mod(node: Node, given: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.fmod(*given) if node.attr("fmod", 0) else np.mod(*given))


@fold("Max", "Min", "Sum")
def _several(node: Node, given: Sequence[Array]) -> Array:
    found = given[0]
    for other in given[1:]:
        found = np.asarray({"Max": np.maximum, "Min": np.minimum, "Sum": np.add}[node.op](found, other))
    return found


_UNARY: dict[str, Callable[[Any], Any]] = {
    "Neg": np.negative, "Abs": np.abs, "Sqrt": np.sqrt, "Exp": np.exp, "Log": np.log, "Floor": np.floor, "Ceil": np.ceil, "Round": np.round,
    "Not": np.logical_not, "Sin": np.sin, "Cos": np.cos, "Tanh": np.tanh, "Reciprocal": lambda x: 1 / x, "Sign": np.sign,
}  # fmt: skip


@fold(*_UNARY)
def _unary(node: Node, given: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(_UNARY[node.op](given[0]), given[0].dtype)


@fold("Where")
def _where(node: Node, given: Sequence[Array]) -> Array:
    return np.asarray(np.where(given[0].astype(bool), given[1], given[2]), given[1].dtype if given[1].dtype != object else object)


@fold("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean")
def _reduce(node: Node, given: Sequence[Array]) -> Array:
    axes, stays = _axes(node, given), node.attr("noop_with_empty_axes", 0)
    if not axes and stays:
        return given[0]
    ways: dict[str, Callable[..., Any]] = {
        "ReduceProd": np.prod, "ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceMean": np.mean,
    }  # fmt: skip
    first = {} if given[0].size else {"initial": _ends(given[0].dtype, node.op)} if node.op in ("ReduceMax", "ReduceMin") else {}
    found = np.asarray(ways[node.op](given[0], axis=tuple(axes) if axes else None, keepdims=bool(node.attr("keepdims", 1)), **first))
    return found if given[0].dtype == object else found.astype(given[0].dtype)


def _ends(dtype: Any, op: str) -> Any:
    """Return what the largest or smallest of nothing is: the other end of a type."""
    if dtype.kind == "f":
        return -np.inf if op == "ReduceMax" else np.inf
    if dtype.kind == "b":
        return op == "ReduceMin"
    return np.iinfo(dtype).min if op == "ReduceMax" else np.iinfo(dtype).max


@fold("ReduceL2")
def _length(node: Node, given: Sequence[Array]) -> Array:
    axes, squares = _axes(node, given), np.square(given[0])
    if not axes and node.attr("noop_with_empty_axes", 0):
        return np.abs(given[0])
    return np.asarray(np.sqrt(squares.sum(axis=tuple(axes) if axes else None, keepdims=bool(node.attr("keepdims", 1)))), given[0].dtype)


@fold("NonZero")
def _nonzero(node: Node, given: Sequence[Array]) -> Array:
    return np.stack(np.nonzero(given[0])).astype(np.int64)


@fold("Unique")
def _unique(node: Node, given: Sequence[Array]) -> Sequence[Array]:
    x = given[0]
    axis = None if "axis" not in node.attrs else int(node.attrs["axis"]) % x.ndim
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = np.asarray(inverse).reshape(-1)
    if not node.attr("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return [np.asarray(one, np.int64) if i else np.asarray(one) for i, one in enumerate((values, first, inverse, counts))]


@fold("Range")
def _range(node: Node, given: Sequence[Array]) -> Array:
    start, stop, step = (v.reshape(-1)[0] for v in given)
    if step == 0:
        raise Unimportable("its step is 0")
    count = max(0, int(np.ceil((float(stop) - float(start)) / float(step))))
    bounded([count], "a range")
    return np.asarray(start + np.arange(count) * step, given[0].dtype)


@fold("ConstantOfShape")
def _filled(node: Node, given: Sequence[Array]) -> Array:
    value = node.attr("value")
    first = np.float32(0) if value is None else value.reshape(-1)[0]
    return np.full(bounded([int(size) for size in given[0].reshape(-1)], "a constant"), first, np.float32 if value is None else value.dtype)


@fold("Expand")
def _expand(node: Node, given: Sequence[Array]) -> Array:
    shape = np.broadcast_shapes(given[0].shape, tuple(int(v) for v in given[1]))
    return np.broadcast_to(given[0], bounded(shape, "a constant")).copy()


@fold("Tile")
def _tile(node: Node, given: Sequence[Array]) -> Array:
    repeats = [int(v) for v in given[1]]
    bounded([size * times for size, times in zip(given[0].shape, repeats, strict=True)], "a constant")
    return np.tile(given[0], repeats)


@fold("Trilu")
def _trilu(node: Node, given: Sequence[Array]) -> Array:
    k = int(given[1].reshape(-1)[0]) if len(given) > 1 else 0
    return np.triu(given[0], k) if node.attr("upper", 1) else np.tril(given[0], k)


@fold("CumSum")
def _cumsum(node: Node, given: Sequence[Array]) -> Array:
    if node.attr("exclusive", 0) or node.attr("reverse", 0):
        raise Unimportable("of constants it is only summed forwards and inclusive")
    return np.cumsum(given[0], int(given[1].reshape(-1)[0]), dtype=given[0].dtype)


@fold("ScatterND")
def _scatter_nd(node: Node, given: Sequence[Array]) -> Array:
    if node.attr("reduction", "none") != "none":
        raise Unimportable("of constants it only replaces")
    found, places = given[0].copy(), given[1]
    found[tuple(places[..., i] for i in range(places.shape[-1]))] = given[2]
    return found


@fold("DequantizeLinear")
def _dequantize(node: Node, given: Sequence[Array]) -> Array:
    x, scale = given[0], given[1].astype(np.float32)
    zero = given[2].astype(np.float32) if len(given) > 2 else np.zeros((), np.float32)
    if node.attr("block_size", 0):
        raise Unimportable("it has scales of blocks")
    shape, axis = [1] * x.ndim, int(node.attr("axis", 1))
    if scale.ndim == 1 and scale.size > 1:
        shape[axis % x.ndim] = scale.size
    elif scale.size == 1:
        shape = [1] * x.ndim
    if zero.size > 1:
        zero = zero.reshape(shape)
    return np.asarray((x.astype(np.float32) - zero) * scale.reshape(shape if scale.size > 1 else ()), np.float32)


def folded(node: Node) -> list[Value] | None:
    """Compute a node of constants, or of sizes; None where it is neither.

    Raises:
        Unimportable: constants do not fit the operator.
    """
    values = [value for value in node.values if value is not None]
    how = FOLDS.get(node.op)
    if how is None or not values or any(value.variable is not None or value.items is not None for value in values):
        return None
    symbols = any(value.sizes is not None for value in values)
    if symbols and node.op not in OF_SYMBOLS:
        return None
    given: list[Array] = []
    for value in values:
        array = value.sizes if value.sizes is not None else value.constant
        assert array is not None
        # As objects, whole numbers let symbols say what a product or quotient with them is.
        given.append(array.astype(object) if symbols and array.dtype != object and array.dtype.kind in "iu" else array)
    try:
        made = how(node, given)
    except TooLarge:
        # What is too large for a constant may still be what a layer makes.
        if symbols or ("", node.op) not in discover():
            raise
        return None
    except UNFIT as error:
        if symbols:
            return None
        raise Unimportable(f"its constants do not fit: {error}") from None
    arrays = [np.asarray(made)] if isinstance(made, np.ndarray | np.generic) else [np.asarray(array) for array in made]
    keeps = node.op in KEEPS_NAME and len(arrays) == 1
    if is_trained(node) and not (keeps and keeps_parameter(node)):
        return derived(node, arrays)
    # Whole numbers with a scale are a parameter that was quantised.
    trained = keeps and (values[0].trained or (node.op == "DequantizeLinear" and values[0].initializer is not None))
    return [_held(array, values[0].initializer if keeps else None, trained) for array in arrays]


def _held(array: Array, initializer: str | None, trained: bool) -> Value:
    if array.dtype == object:
        if any(isinstance(one, Symbol) for one in array.reshape(-1)):
            return Value("int64", sizes=array)
        array = array.astype(np.int64)
    return Value(array.dtype.name, constant=array, initializer=initializer, trained=trained)
