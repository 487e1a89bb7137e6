"""Repeating, rolling, picking and rearranging elements."""

from __future__ import annotations

import math

from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Sizes, fed_sizes
from pe_cli.program.ir import Variable


@layer
def tile(x: Variable, repeat_times: Sizes, name: str | None = None) -> Variable:
    """Repeat a tensor along its axes; the last number is of the last axis.

    Args:
        x: any shape.
        repeat_times: copies along each axis, at least 1; more numbers than axes put axes before x's, fewer repeat the last axes.
        name: prefix of the output's name.

    Returns:
        Sizes of x times repeat_times.

    Raises:
        PeError: a number below 1.

    Source:
        paddle.tile.
    """
    helper = LayerHelper("tile", name)
    # A variable gives one number for each axis of the result; a list may be shorter, and then stands for the last axes as in NumPy.
    if isinstance(repeat_times, Variable):
        numbers, fed = fed_sizes(helper, "repeat_times", repeat_times)
        if len(numbers) < len(x.shape):
            raise helper.error(f"tile: repeat_times is {repeat_times}, and x is {x}", hint="give a number for each axis")
    else:
        numbers, fed = fed_sizes(helper, "repeat_times", [*([1] * (len(x.shape) - len(repeat_times))), *repeat_times])
    missing = len(numbers) - len(x.shape)
    source = helper.one("unsqueeze", {"X": x}, {"axes": list(range(missing))}) if missing > 0 else x
    return helper.one("expand", {"X": source, "ExpandTimes": fed}, {} if fed is not None else {"expand_times": numbers})


@layer
def broadcast_to(x: Variable, shape: list[int], name: str | None = None) -> Variable:
    """Repeat axes of size 1, and put axes before the first, up to given sizes.

    Args:
        x: any shape.
        shape: the sizes of the result; -1 keeps x's.
        name: prefix of the output's name.

    Returns:
        Of that shape, dtype of x.

    Raises:
        PeError: fewer sizes than axes, or a size that is neither x's nor x's 1.

    Source:
        paddle.broadcast_to.
    """
    helper = LayerHelper("broadcast_to", name)
    missing = len(shape) - len(x.shape)
    old = [*([1] * missing), *x.shape]
    pairs = enumerate(zip(old, shape, strict=False))
    # -1 keeps a size that is there, so it means nothing for an axis that is new.
    fits = missing >= 0 and all(new == have or (have == 1 and new > 0) or (new == -1 and i >= missing) for i, (have, new) in pairs)
    if not fits:
        raise helper.error(f"broadcast_to cannot make {x} of shape {shape}", hint="sizes of x, -1, or any where x has 1")
    source = helper.one("unsqueeze", {"X": x}, {"axes": list(range(missing))}) if missing else x
    times = [new if have == 1 and new > 0 else 1 for have, new in zip(old, shape, strict=True)]
    return helper.one("expand", {"X": source}, {"expand_times": times})


@layer
def roll(x: Variable, shifts: int | list[int], axis: int | list[int] | None = None, name: str | None = None) -> Variable:
    """Move elements along axes; what leaves at one end comes in at the other.

    Out[i] = x[(i - shift) mod size]

    Args:
        x: any shape; sizes along the axes are known.
        shifts: places to move, one number per axis.
        axis: axis or axes; null moves the elements in a row.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: not one shift per axis, no such axis, or a size that is not known.

    Source:
        paddle.roll.
    """
    helper = LayerHelper("roll", name)
    if axis is None:
        if -1 in x.shape:
            raise helper.error(f"roll: how many elements {x} has is not known", hint="give an axis")
        flat = helper.one("reshape", {"X": x}, {"shape": [math.prod(x.shape)]})
        return helper.one("reshape", {"X": _rolled(helper, flat, as_list(shifts), [0])}, {"shape": list(x.shape)})
    return _rolled(helper, x, as_list(shifts), as_list(axis))


def _rolled(helper: LayerHelper, x: Variable, shifts: list[int], axes: list[int]) -> Variable:
    if len(shifts) != len(axes):
        raise helper.error(f"roll needs one shift per axis, got shifts {shifts} and axes {axes}")
    source = x
    for shift, axis in zip(shifts, axes, strict=True):
        if not -len(x.shape) <= axis < len(x.shape) or x.shape[axis] == -1:
            raise helper.error(f"roll: axis {axis} of {x} is not there, or its size is not known")
        size = x.shape[axis]
        # Python's modulo is never negative: a shift in either direction, by any number of rounds, becomes one cut.
        cut = -shift % size if size else 0
        if cut:
            # What is shifted beyond the end begins the axis: two ranges, joined the other way round.
            parts = [
                helper.one("slice", {"Input": x}, {"axes": [axis], "starts": [a], "ends": [b]}) for a, b in ((cut, size), (0, cut))
            ]
            x = helper.one("concat", {"X": parts}, {"axis": axis % len(x.shape)})
    # A layer gives a variable of its own, even where nothing has moved.
    return helper.one("assign", {"X": x}) if x is source else x


@layer
def index_select(x: Variable, index: Variable, axis: int = 0, name: str | None = None) -> Variable:
    """Take slices of an axis by number.

    Out[.., i, ..] = x[.., index[i], ..]

    Args:
        x: any shape.
        index: [count] int32 or int64.
        axis: to take from.
        name: prefix of the output's name.

    Returns:
        x's sizes with count at the axis.

    Raises:
        PeError: no such axis, or index is of another type; in a step, a number that is out of range.

    Source:
        paddle.index_select.
    """
    helper = LayerHelper("index_select", name)
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise helper.error(f"index_select: {x} has no axis {axis}")
    at = axis % rank
    if at == 0:
        return helper.one("gather", {"X": x, "Index": index})
    # gather takes along the first axis: the axis goes there, and back.
    perm = [at, *(a for a in range(rank) if a != at)]
    taken = helper.one("gather", {"X": helper.one("transpose", {"X": x}, {"axis": perm}), "Index": index})
    return helper.one("transpose", {"X": taken}, {"axis": [perm.index(a) for a in range(rank)]})


@layer
def index_sample(x: Variable, index: Variable) -> Variable:
    """Take elements of each row by number.

    Out[i, j] = x[i, index[i, j]]

    Args:
        x: [batch, size].
        index: [batch, count] int32 or int64.

    Returns:
        [batch, count], dtype of x.

    Raises:
        PeError: other numbers of axes; in a step, a number that is out of range.

    Source:
        paddle.index_sample.
    """
    helper = LayerHelper("index_sample")
    helper.check_rank(x, "x", 2, "[batch, size]")
    helper.check_rank(index, "index", 2, "[batch, count]")
    # Numbers of rows, for as many rows as a batch has.
    ones = helper.one("fill_like", {"X": index}, {"value": 1.0})
    rows = helper.one("cumsum", {"X": ones}, {"axis": 0, "exclusive": True})
    places = helper.one("stack", {"X": [rows, index]}, {"axis": 2}, "Y")
    return helper.one("gather_nd", {"X": x, "Index": places})


@layer
def meshgrid(input: list[Variable]) -> list[Variable]:
    """Lay vectors out along the axes of a grid.

    Out_k[i_1, .., i_n] = input_k[i_k]

    Args:
        input: vectors of one dtype; sizes are known.

    Returns:
        One tensor per vector, each with all vectors' sizes.

    Raises:
        PeError: an input with other axes, or of a size that is not known.

    Source:
        paddle.meshgrid.
    """
    helper = LayerHelper("meshgrid")
    vectors = as_list(input)
    for v in vectors:
        if len(v.shape) != 1 or v.shape[0] == -1:
            raise helper.error(f"meshgrid needs vectors of known size, got {v}", hint="reshape it")
    sizes = [v.shape[0] for v in vectors]
    out = []
    for i, v in enumerate(vectors):
        # Vector k runs along axis k: what NumPy calls indexing="ij", not its default "xy", which swaps the first two.
        line = [size if k == i else 1 for k, size in enumerate(sizes)]
        times = [1 if k == i else size for k, size in enumerate(sizes)]
        out.append(helper.one("expand", {"X": helper.one("reshape", {"X": v}, {"shape": line})}, {"expand_times": times}))
    return out


@layer
def diag_embed(input: Variable, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Variable:
    """Make matrices with the numbers of the last axis on a diagonal, and zeros elsewhere.

    Out[.., i, i + offset] = input[.., i]

    Args:
        input: [.., size]; size is known.
        offset: which diagonal; 0 is the main one, above 0 lies above it.
        dim1: axis of the result that counts rows.
        dim2: axis of the result that counts columns.

    Returns:
        input's axes but the last, and two of size + |offset| at dim1 and dim2.

    Raises:
        PeError: a size that is not known, or dim1 and dim2 are the same axis or not there.

    Source:
        fluid.layers.diag_embed.
    """
    helper = LayerHelper("diag_embed")
    rank = len(input.shape) + 1
    known = -1 not in (*input.shape[1:], *input.shape[-1:])
    if any(not -rank <= d < rank for d in (dim1, dim2)) or (dim1 - dim2) % rank == 0 or not known:
        raise helper.error(f"diag_embed of {input} to axes {dim1} and {dim2}: two axes of the result, and known sizes, are needed")
    n, outer = input.shape[-1], list(input.shape[:-1])
    size = n + abs(offset)
    before, after = (max(-offset, 0), max(offset, 0))
    # A row of size + 1 that begins with a number puts that number one place further in every row of size.
    column = helper.one("unsqueeze", {"X": input}, {"axes": [rank - 1]})
    wide = helper.one("pad", {"X": column}, {"paddings": [*([0] * (2 * rank - 1)), size], "pad_value": 0.0})
    line = helper.one("reshape", {"X": wide}, {"shape": [*outer, n * (size + 1)]})
    # The first number belongs at row `before` and column `after`.
    start = before * size + after
    if start:
        # Zeros behind it make the line long enough, whatever the offset cuts off.
        line = helper.one("pad", {"X": line}, {"paddings": [*([0] * (2 * rank - 4)), start, size * size], "pad_value": 0.0})
    cut = helper.one("slice", {"Input": line}, {"axes": [rank - 2], "starts": [0], "ends": [size * size]})
    made = helper.one("reshape", {"X": cut}, {"shape": [*outer, size, size]})
    rows, columns = dim1 % rank, dim2 % rank
    if (rows, columns) == (rank - 2, rank - 1):
        return made
    others = iter(range(rank - 2))
    perm = [rank - 2 if a == rows else rank - 1 if a == columns else next(others) for a in range(rank)]
    return helper.one("transpose", {"X": made}, {"axis": perm})


@layer
def trace(x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None) -> Variable:
    """Add up the diagonals of matrices.

    Out = sum_i x[i, i + offset]

    Args:
        x: two axes or more; sizes of the matrices are known.
        offset: which diagonal; 0 is the main one, above 0 lies above it.
        axis1: axis that counts rows.
        axis2: axis that counts columns.
        name: prefix of the output's name.

    Returns:
        x's axes but those two; [1] when all are gone.

    Raises:
        PeError: axis1 and axis2 are the same axis or not there, a size is not known, or the diagonal has no element.

    Source:
        paddle.trace.
    """
    helper = LayerHelper("trace", name)
    rank = len(x.shape)
    if rank < 2 or any(not -rank <= a < rank for a in (axis1, axis2)) or (axis1 - axis2) % rank == 0:
        raise helper.error(f"trace: axes {axis1} and {axis2} of {x} are no matrix")
    i, j = axis1 % rank, axis2 % rank
    rows, columns = x.shape[i], x.shape[j]
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    if -1 in (rows, columns) or length < 1:
        raise helper.error(f"trace: diagonal {offset} of axes {axis1} and {axis2} of {x} has no element, or a size is not known")
    outer = [a for a in range(rank) if a not in (i, j)]
    kept = helper.one("transpose", {"X": x}, {"axis": [*outer, i, j]}) if [*outer, i, j] != list(range(rank)) else x
    # The diagonal lies in this square, wherever it begins.
    top, left = max(-offset, 0), max(offset, 0)
    cut = {"axes": [rank - 2, rank - 1], "starts": [top, left], "ends": [top + length, left + length]}
    square = helper.one("slice", {"Input": kept}, cut)
    # In rows of length + 1 instead of length, the diagonal is the first column.
    sizes = [x.shape[a] for a in outer]
    line = helper.one("reshape", {"X": square}, {"shape": [*sizes, length * length]})
    longer = helper.one("pad", {"X": line}, {"paddings": [*([0] * (2 * rank - 3)), length], "pad_value": 0.0})
    table = helper.one("reshape", {"X": longer}, {"shape": [*sizes, length, length + 1]})
    diagonal = helper.one("slice", {"Input": table}, {"axes": [rank - 1], "starts": [0], "ends": [1]})
    return helper.one("reduce_sum", {"X": diagonal}, {"dim": [rank - 2, rank - 1]})
