"""What gives elements another shape or order, and what chooses among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.broadcasting import filled_like, spread, together
from pe_cli.session.importing.onnx.forms.parts import nothing
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import NeedsConstant, Size, Symbol, Unimportable, Value, known, product


@form("Constant")
def constant(node: Node) -> Value:
    kinds = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
    for name, dtype in kinds.items():
        if name in node.attrs:
            return Value(dtype, constant=np.asarray(node.attrs[name], dtype))
    if "value" not in node.attrs:
        raise Unimportable(f"a constant that is given as {', '.join(node.attrs) or 'nothing'}")
    return Value(node.attrs["value"].dtype.name, constant=node.attrs["value"])


@form("Shape")
def shape(node: Node) -> Value:
    value = node.value(0)
    sizes = list(value.shape)
    start, end = int(node.attr("start", 0)), int(node.attr("end", len(sizes)))
    return _sizes(node, sizes[start:end], value)


@form("Size")
def size(node: Node) -> Value:
    total = product(node.value(0).shape)
    return Value("int64", constant=np.asarray(total)) if isinstance(total, int) else Value("int64", sizes=np.asarray(total, object))


def _sizes(node: Node, sizes: Sequence[Size], of: Value) -> Value:
    """Return sizes as numbers, or, as far as they are not known, as what is known when a step begins."""
    if all(isinstance(one, int) for one in sizes):
        return Value("int64", constant=np.asarray(sizes, np.int64))
    held = np.empty(len(sizes), object)
    held[:] = list(sizes)

    def later() -> Value:
        start = next((i for i in range(len(of.dims)) if list(of.dims[i : i + len(sizes)]) == list(sizes)), 0)
        whole = node.mid("shape", "sizes", input=of)
        part = whole if len(sizes) == len(of.dims) else node.mid(
            "slice", "some", input=whole, axes=[0], starts=[start], ends=[start + len(sizes)]
        )  # fmt: skip
        return node.mid("cast", "whole", x=part, dtype="int64") if part.dtype != "int64" else part

    return Value("int64", sizes=held, later=later)


def target_of(node: Node, index: int, name: str = "shape") -> list[Size]:
    """Return the shape that an input or an attribute gives.

    Raises:
        NeedsConstant: it is computed from values.
    """
    if name in node.attrs:
        return [int(v) for v in node.attrs[name]]
    value = node.value(index)
    if value.sizes is not None:
        return list(value.sizes.reshape(-1))
    if value.constant is None:
        raise NeedsConstant(node.inputs[index], name)
    return [int(v) for v in value.constant.reshape(-1)]


def count(dims: Sequence[Size]) -> tuple[int, list[str], Fraction]:
    """Return a number of elements: the product of the known sizes, and the names and factors of the others."""
    numbers = math.prod(size for size in dims if isinstance(size, int))
    symbols = [size for size in dims if isinstance(size, Symbol)]
    factor = Fraction(1)
    for one in symbols:
        factor *= one.factor
    return numbers, sorted(one.name for one in symbols), factor


@form("Reshape")
def reshape(node: Node) -> Value:
    x = node.var(0)
    dims = () if x.scalar else x.dims
    wanted = target_of(node, 1)
    keep = not node.attr("allowzero", 0)
    if any(size == 0 and keep and axis >= len(dims) for axis, size in enumerate(wanted)):
        raise Unimportable(f"the shape {wanted} keeps an axis that is not there")
    made: list[Size] = [dims[axis] if size == 0 and keep else size for axis, size in enumerate(wanted)]
    if 0 in made or 0 in dims:
        return nothing(x, made)
    _lift(dims, made)
    if -1 in made:
        place = made.index(-1)
        made[place] = _rest(dims, [size for axis, size in enumerate(made) if axis != place], f"{node.key}:{place}")
    return node.reshaped(x, made)


def _lift(dims: Sequence[Size], made: list[Size]) -> None:
    """Put a size that is not known where the shape has the number that the file said for it."""
    symbols = [size for size in dims if isinstance(size, Symbol)]
    if len(symbols) != 1 or (-1 in made and made[0] != 1) or any(isinstance(size, Symbol) for size in made) or not made:
        return
    if -1 in made:
        if made[0] == 1 and dims[0] == symbols[0]:
            made[0] = symbols[0]
        return
    # An exporter often writes the batch that it saw into a shape as a number. The first place whose number is the one that the unknown size
    # would have (others divide away) gets the size back, so that any batch can be fed.
    numbers = count(dims)[0]
    total = math.prod(size for size in made if isinstance(size, int))
    for place, size in enumerate(made):
        if isinstance(size, int) and size and total // size == numbers and total % size == 0:
            made[place] = symbols[0] * size if size != 1 else symbols[0]
            return


def _rest(dims: Sequence[Size], others: Sequence[Size], name: str) -> Size:
    """Return the size that is left of a number of elements."""
    mine, names, factor = count(dims)
    given, taken, less = count(others)
    left = list(names)
    for one in taken:
        if one not in left:
            return Symbol(name)
        left.remove(one)
    amount = factor / less * Fraction(mine, given or 1)
    if not left:
        return int(amount) if amount.denominator == 1 else Symbol(name)
    return Symbol(left[0], amount) if len(left) == 1 else Symbol(name)


@form("Flatten")
def flatten(node: Node) -> Value:
    x = node.var(0)
    axis = int(node.attr("axis", 1))
    axis = axis + len(x.dims) if axis < 0 else axis
    if axis == 1 and len(x.dims) == 2:
        return x
    if axis == 1 and len(x.dims) > 1:
        return node.out("flatten", x=x, axis=1, dims=[x.dims[0], _rest(x.dims[1:], [], f"{node.key}:1")])
    return node.reshaped(x, [_rest(x.dims[:axis], [], f"{node.key}:0"), _rest(x.dims[axis:], [], f"{node.key}:1")])


@form("Transpose")
def transpose(node: Node) -> Value:
    x = node.var(0)
    perm = [int(axis) for axis in node.attr("perm", list(range(len(x.dims)))[::-1])]
    if x.scalar or perm == list(range(len(x.dims))):
        return x
    if sorted(perm) != list(range(len(x.dims))):
        raise Unimportable(f"perm {perm} is no order of {len(x.dims)} axes")
    return node.out("transpose", x=x, perm=perm, dims=[x.dims[axis] for axis in perm])


@form("Squeeze")
def squeeze(node: Node) -> Value:
    x = node.var(0)
    axes = node.ints("axes", 1)
    if x.scalar:
        return x
    gone = [axis % len(x.dims) for axis in axes] if axes is not None else [i for i, size in enumerate(x.dims) if size == 1]
    lost = [known(x.dims)[axis] for axis in gone if isinstance(x.dims[axis], int) and x.dims[axis] != 1]
    if lost:
        raise Unimportable(f"it leaves out axes of {lost} of {list(known(x.dims))}")
    return node.reshaped(x, [size for axis, size in enumerate(x.dims) if axis not in gone])


@form("Unsqueeze")
def unsqueeze(node: Node) -> Value:
    x = node.var(0)
    old = [] if x.scalar else list(x.dims)
    axes = node.ints("axes", 1) or []
    rank = len(old) + len(axes)
    places = {axis % rank for axis in axes}
    if len(places) < len(axes) or any(not -rank <= axis < rank for axis in axes):
        raise Unimportable(f"axes {axes} do not fit {rank} axes")
    rest = iter(old)
    return node.reshaped(x, [1 if axis in places else next(rest) for axis in range(rank)])


@form("Expand")
def expand(node: Node) -> Value:
    x = node.var(0)
    wanted = target_of(node, 1)
    own = () if x.scalar else x.dims
    target = together([own, [1 if size == -1 else size for size in wanted]])
    if tuple(target) == tuple(own):
        return x
    return spread(node, x, target, [], "expanded", last=True)


@form("Tile")
def tile(node: Node) -> Value:
    x = node.var(0)
    times = target_of(node, 1, "repeats")
    if len(times) != len(x.dims) or any(isinstance(n, int) and n < 1 for n in times):
        raise Unimportable(f"repeats {list(known(tuple(times)))} do not fit {list(known(x.dims))}")
    dims = [size * n for size, n in zip(x.dims, times, strict=True)]
    if all(isinstance(n, int) for n in times):
        return node.out("expand", x=x, expand_times=times, dims=dims)
    return _tiled_in_steps(node, x, times, dims)


def _tiled_in_steps(node: Node, x: Value, times: Sequence[Size], dims: Sequence[Size]) -> Value:
    """Repeat along one axis as often as a step tells, such as once for each row of a batch."""
    axis = next(i for i, n in enumerate(times) if isinstance(n, Symbol))
    if any(n != 1 for n in times[axis + 1 :]) or any(n != 1 for n in times[:axis]):
        raise Unimportable("it repeats along several axes, along one of them as often as only a step tells")
    if x.dims[axis] == 1:
        return spread(node, x, dims, [], "tiled", last=True)
    apart = node.reshaped(x, [*x.dims[:axis], 1, *x.dims[axis:]], "apart")
    return node.reshaped(spread(node, apart, [*x.dims[:axis], times[axis], *x.dims[axis:]], [], "tiled"), dims)


@form("ConstantOfShape")
def constant_of_shape(node: Node) -> Value:
    value = node.attr("value")
    number, dtype = (0.0, "float32") if value is None else (float(value.reshape(-1)[0]), value.dtype.name)
    return filled_like(node, target_of(node, 0), [], dtype, number, "filled", last=True)


@form("DepthToSpace", "SpaceToDepth")
def blocks(node: Node) -> Value:
    x, block = node.var(0), int(node.attr("blocksize", 1))
    batch, channels, height, width = x.dims
    if not all(isinstance(size, int) for size in (channels, height, width)):
        raise Unimportable("sizes of the image are not known")
    if node.op == "SpaceToDepth":
        # Each axis is cut into blocks and places within them; a transposition brings the blocks' axes to where they are merged.
        cut = node.reshaped(x, [batch, channels, height // block, block, width // block, block], "cut")
        moved = [batch, block, block, channels, height // block, width // block]
        turned = node.mid("transpose", "moved", x=cut, perm=[0, 3, 5, 1, 2, 4], dims=moved)
        return node.reshaped(turned, [batch, channels * block**2, height // block, width // block])
    depth = channels // block**2
    first = node.attr("mode", "DCR") == "DCR"
    # DCR (depth, column, row) has the blocks' axes outside of the channels, CRD inside, as PyTorch's pixel_shuffle.
    cut = node.reshaped(x, [batch, block, block, depth, height, width] if first else [batch, depth, block, block, height, width], "cut")
    perm = [0, 3, 4, 1, 5, 2] if first else [0, 1, 4, 2, 5, 3]
    turned = node.mid("transpose", "moved", x=cut, perm=perm, dims=[batch, depth, height, block, width, block])
    return node.reshaped(turned, [batch, depth, height * block, width * block])


@form("Trilu")
def trilu(node: Node) -> Value:
    x = node.var(0)
    k = int(node.const(1, "k").reshape(-1)[0]) if node.has(1) else 0
    wide = x if x.dtype in FLOATS else node.mid("cast", "float", x=x, dtype="float64", dims=x.dims)
    type = "triu" if node.attr("upper", 1) else "tril"
    if wide is x:
        return node.out(type, input=x, diagonal=k, dims=x.dims)
    return node.out("cast", x=node.mid(type, "part", input=wide, diagonal=k, dims=x.dims), dtype=x.dtype, dims=x.dims)
