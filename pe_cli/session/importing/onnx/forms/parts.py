"""What cuts values into parts, and sets values beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.session.importing.onnx.fold import bounded, slices
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Array, Size, Symbol, Unimportable, Value, known


@form("Concat")
def concat(node: Node) -> Value:
    axis = node.axis(1)
    # Empty parts are left out: no variable has an axis of 0, and they add nothing.
    whole = [i for i in range(len(node.values)) if node.shape(i)[axis] != 0] or [0]
    values = [node.var(i) for i in whole]
    if len(values) == 1:
        return values[0]
    dims: list[Size] = list(values[0].dims)
    total: Size = 0
    for value in values:
        added = value.dims[axis]
        total = total + added if isinstance(total, int) and isinstance(added, int) else Symbol(f"{node.key}:{axis}")
    dims[axis] = total
    return node.out("concat", input=values, axis=axis, dims=dims)


@form("Split")
def split(node: Node) -> list[Value | None]:
    x, axis, parts = node.var(0), node.axis(0), len(node.outputs)
    size = x.dims[axis]
    sizes = node.ints("split", 1)
    if sizes is None:
        if not isinstance(size, int):
            raise Unimportable("it cuts an axis whose size is not known")
        # The last part is the smaller one where they are not of equal size.
        each = -(-size // parts)
        sizes = [min(each, size - i * each) for i in range(parts)]
    if len(sizes) != parts or min(sizes) < 0 or (isinstance(size, int) and sum(sizes) != size):
        raise Unimportable(f"it cuts {known((size,))[0]} into {sizes}")
    if 0 in sizes:
        return _some_parts(node, x, axis, sizes)
    if parts == 1:
        return [x]
    made = node.outs("split", input=x, num_or_sections=sizes, dim=axis)
    rest = x.dims[axis + 1 :]
    return [Value(one.dtype, variable=one.variable, dims=(*x.dims[:axis], n, *rest)) for one, n in zip(made, sizes, strict=True)]


def _some_parts(node: Node, x: Value, axis: int, sizes: Sequence[int]) -> list[Value | None]:
    """Cut an axis into parts of which some have no elements."""
    made: list[Value | None] = []
    for i, size in enumerate(sizes):
        dims = [size if a == axis else one for a, one in enumerate(x.dims)]
        args = {"axes": [axis], "starts": [sum(sizes[:i])], "ends": [sum(sizes[: i + 1])]}
        whole = size == x.dims[axis]
        made.append(x if whole else node.mid("slice", f"part_{i}", input=x, dims=dims, **args) if size else nothing(x, dims))
    return made


def nothing(x: Value, dims: Sequence[Size]) -> Value:
    """Return a constant without elements.

    Raises:
        Unimportable: sizes are not known.
    """
    if not all(isinstance(size, int) for size in dims):
        raise Unimportable(f"it makes {list(known(tuple(dims)))}, which has no elements")
    return Value(x.dtype, constant=np.zeros([int(str(size)) for size in dims], x.dtype))


@form("Slice")
def slice_(node: Node) -> Value:
    x = node.var(0)
    given: list[Array | None] = [None]
    for index, name in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")):
        given.append(node.const(index, name) if node.has(index) else None)
    dims, cuts = list(x.dims), []
    parts = slices(node, given, len(x.dims))
    if any(isinstance(size, int) and not range(size)[part] for size, part in zip(x.dims, parts, strict=True)):
        return nothing(x, [len(range(size)[part]) if isinstance(size, int) else size for size, part in zip(x.dims, parts, strict=True)])
    for axis, part in enumerate(parts):
        if part != slice(None):
            dims[axis], cut = _cut(part, x.dims[axis], f"{node.key}:{axis}")
            cuts += [] if cut is None else [(axis, *cut)]
    if not cuts:
        return x
    axes, starts, ends, steps = (list(numbers) for numbers in zip(*cuts, strict=True))
    if all(step == 1 for step in steps):
        return node.out("slice", input=x, axes=axes, starts=starts, ends=ends, dims=dims)
    return node.out("strided_slice", input=x, axes=axes, starts=starts, ends=ends, strides=steps, dims=dims)


def _cut(part: slice, size: Size, name: str) -> tuple[Size, tuple[int, int, int] | None]:
    """Return the size that is left of an axis, and start, end and stride; None where all of it is left.

    Raises:
        Unimportable: it goes backwards over a size that is not known.
    """
    if isinstance(size, int):
        start, stop, step = part.indices(size)
        length = len(range(start, stop, step))
        whole = length == size and step == 1
        # An end below 0 counts from the end, for the layer as for Python. To go backwards through element 0 the end has to lie one before
        # it, which no such number says; -size - 1 is cut to it.
        return length, None if whole else (start, -size - 1 if step < 0 and stop < 0 else stop, step)
    far = 2**31 - 1
    start, stop, step = int(part.start or 0), far if part.stop is None else min(int(part.stop), far), int(part.step or 1)
    if step < 0:
        # Forwards, numbers below 0 or beyond the end mean the same to ONNX and to the layer, whatever the size will be. Backwards, the end
        # that lies before element 0 depends on it.
        raise Unimportable("it goes backwards over an axis whose size is not known")
    if start == 0 and stop == far and step == 1:
        return size, None
    return Symbol(name), (start, stop, step)


@form("Pad")
def pad(node: Node) -> Value:
    x, mode = node.var(0), node.attr("mode", "constant")
    pads = node.ints("pads", 1) or []
    axes = [axis % len(x.dims) for axis in node.ints("axes", 3) or range(len(x.dims))]
    number = node.number("value", 2, 0.0)
    rank, each = len(x.dims), len(axes)
    if len(pads) != 2 * each:
        raise Unimportable(f"pads {pads} do not fit {each} axes")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[each + i]
    if min(before + after) < 0:
        raise Unimportable(f"pads {pads} cut off")
    dims: list[Size] = [
        size + b + a if isinstance(size, int) else size if not (a or b) else Symbol(f"{node.key}:{axis}")
        for axis, (size, b, a) in enumerate(zip(x.dims, before, after, strict=True))
    ]
    if not any(before + after):
        return x
    sides = [side for pair in zip(before, after, strict=True) for side in pair]
    # The layers pad by finite numbers, and the layer pad2d reflects and repeats within images alone: the rest is put together by taking
    # places, or by setting constants beside it.
    if mode == "constant" and math.isfinite(number):
        return node.out("pad", x=x, paddings=sides, pad_value=number, dims=dims)
    pairs = list(zip(before, after, strict=True))
    if mode == "constant":
        return _beside(node, x, number, pairs)
    if mode not in ("reflect", "edge", "wrap"):
        raise Unimportable(f"mode {mode} is not known")
    if mode != "wrap" and rank == 4 and not any(sides[:4]):
        return node.out("pad2d", input=x, paddings=sides[4:], mode=mode, dims=dims)
    if mode != "wrap" and rank == 3 and not any(sides[:4]):
        image = node.reshaped(x, [*x.dims[:2], 1, x.dims[2]], "image")
        made = node.mid("pad2d", "wide", input=image, paddings=[0, 0, *sides[4:]], mode=mode, dims=[*dims[:2], 1, dims[2]])
        return node.reshaped(made, dims)
    return _continued(node, x, mode, pairs)


def _continued(node: Node, x: Value, mode: str, sides: Sequence[tuple[int, int]]) -> Value:
    """Take what continues each axis from the axis itself.

    Raises:
        Unimportable: a size is not known.
    """
    modes: dict[str, Any] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    for axis, (before, after) in enumerate(sides):
        size = x.dims[axis]
        if not before and not after:
            continue
        if not isinstance(size, int) or size < 1:
            raise Unimportable(f"mode {mode} beside a size that is not known")
        bounded([size + before + after], "what continues it")
        places = np.pad(np.arange(size, dtype=np.int64), (before, after), mode=modes[mode])
        index = node.emitter.variable(Value("int64", constant=places), f"{node.key}_places_{axis}")
        dims = [len(places) if a == axis else one for a, one in enumerate(x.dims)]
        args: dict[str, Any] = {"input": x, "index": index} if axis == 0 else {"x": x, "index": index, "axis": axis}
        x = node.mid("gather" if axis == 0 else "index_select", f"wide_{axis}", dims=dims, **args)
    return x


def _beside(node: Node, x: Value, number: float, sides: Sequence[tuple[int, int]]) -> Value:
    """Set what an infinite number is beside each axis.

    Raises:
        Unimportable: sizes are not known.
    """
    for axis, pair in enumerate(sides):
        parts: list[Value] = [x]
        for i, count in enumerate(pair):
            dims = [count if a == axis else one for a, one in enumerate(x.dims)]
            if count:
                filled = np.full(bounded(all_known(dims), "a side"), number, x.dtype)
                part = node.emitter.variable(Value(x.dtype, constant=filled), f"{node.key}_side_{axis}_{i}")
                parts = [part, *parts] if i == 0 else [*parts, part]
        if len(parts) > 1:
            size = x.dims[axis]
            total = size + sum(pair) if isinstance(size, int) else Symbol(f"{node.key}:{axis}")
            dims = [total if a == axis else one for a, one in enumerate(x.dims)]
            x = node.mid("concat", f"wide_{axis}", input=parts, axis=axis, dims=dims)
    return x


def all_known(dims: Sequence[Size]) -> Sequence[Size]:
    """Return sizes that are all known.

    Raises:
        Unimportable: one is not.
    """
    if not all(isinstance(size, int) for size in dims):
        raise Unimportable(f"it sets an infinite number beside {list(known(tuple(dims)))}")
    return dims
