"""Broadcasts values as ONNX does, where a layer takes one shape inside the other only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pe_cli.session.importing.onnx.node import Node
from pe_cli.session.importing.onnx.values import BATCH, Size, Symbol, Unimportable, Value, known


def together(shapes: Sequence[Sequence[Size]]) -> tuple[Size, ...]:
    """Return the shape that several are broadcast to.

    Raises:
        Unimportable: they do not fit.
    """
    rank = max(map(len, shapes), default=0)
    made: list[Size] = []
    for axis in range(rank):
        sizes = [shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0]
        sizes = [size for size in sizes if size != 1] or [1]
        numbers = {size for size in sizes if isinstance(size, int)}
        if len(numbers) > 1:
            raise Unimportable(f"shapes {[list(known(tuple(s))) for s in shapes]} do not fit each other")
        # A size that is not known can only be the number beside it; but a batch has any number of rows.
        symbol = next((size for size in sizes if isinstance(size, Symbol)), None)
        if numbers and symbol == BATCH:
            raise Unimportable(f"shapes {[list(known(tuple(s))) for s in shapes]} only fit each other in a batch of {numbers.pop()}")
        made.append(numbers.pop() if numbers else symbol if symbol is not None else 1)
    return tuple(made)


def spread(node: Node, value: Value, target: Sequence[Size], others: Sequence[Value], hint: str, last: bool = False) -> Value:
    """Repeat a variable's axes of size 1 until it has a shape.

    Args:
        node: that needs it.
        value: a variable.
        target: the shape.
        others: variables that have the sizes which are not known.
        hint: of the layer's name.
        last: the result is the node's output.

    Raises:
        Unimportable: no variable has a size that is not known.
    """
    dims = value.dims
    if tuple(dims) == tuple(target) and not last:
        return value
    if len(dims) < len(target):
        value = node.reshaped(value, [1] * (len(target) - len(dims)) + list(dims), f"{hint}_axes")
        dims = value.dims
    times = [size if old == 1 and old != size else 1 for old, size in zip(dims, target, strict=True)]
    if all(isinstance(one, int) for one in times):
        if last:
            return node.out("expand", x=value, expand_times=times, dims=target)
        return node.mid("expand", hint, x=value, expand_times=times, dims=target) if any(one != 1 for one in times) else value
    if value.dtype == "bool":
        number = node.mid("cast", f"{hint}_number", x=value, dtype="int32", dims=dims)
        args: dict[str, Any] = {"x": spread(node, number, target, others, hint), "dtype": "bool"}
        return node.out("cast", dims=target, **args) if last else node.mid("cast", f"{hint}_bool", dims=target, **args)
    # Added to zeros of that shape, which a step makes, a value is repeated as far as they go.
    zeros = filled_like(node, target, [*others, value], value.dtype, 0.0, f"{hint}_zeros")
    args = {"x": zeros, "y": value}
    return node.out("elementwise_add", dims=target, **args) if last else node.mid("elementwise_add", hint, dims=target, **args)


def filled_like(
    node: Node, target: Sequence[Size], others: Sequence[Value], dtype: str, number: float, hint: str, last: bool = False
) -> Value:
    """Return a variable of one number whose shape has one size at most that is not known, which another variable has.

    Raises:
        Unimportable: none has it.
    """
    places = [axis for axis, size in enumerate(target) if isinstance(size, Symbol)]
    if not places:
        args: dict[str, Any] = {"shape": [int(str(size)) for size in target] or [1], "dtype": dtype, "value": number}
        return node.out("fill_constant", scalar=not target, **args) if last else node.mid("fill_constant", hint, **args)
    if len(places) == 1:
        for other in itertools.chain(others, node.emitter.known()):
            for axis, size in enumerate(other.dims):
                if size == target[places[0]]:
                    args = {
                        "input": other, "shape": [-1 if isinstance(s, Symbol) else s for s in target], "dtype": dtype, "value": number,
                        "input_dim_idx": axis, "output_dim_idx": places[0],
                    }  # fmt: skip
                    kind = "fill_constant_batch_size_like"
                    return node.out(kind, dims=target, **args) if last else node.mid(kind, hint, dims=target, **args)
    raise Unimportable(f"it makes the shape {list(known(tuple(target)))}, whose sizes no variable has")


def pair(node: Node, x: Value, y: Value) -> tuple[Value, Value, tuple[Size, ...]]:
    """Return two variables of which one has the shape of the result, and that shape."""
    target = together([x.dims, y.dims])
    if x.dims != target and y.dims != target:
        x = spread(node, x, target, [y], "x")
    return x, y, target
