"""Slicing, flipping and fitting of tensors: strided_slice, crop, crop_tensor, unbind, flip, pad_constant_like, expand_as."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Sizes, fed_sizes, same_axis
from pe_cli.layers.tensor.shape import unstack
from pe_cli.program.ir import Variable

#: An end that lies behind every axis.
END = (1 << 31) - 1


@layer
def strided_slice(input: Variable, axes: list[int], starts: Sizes, ends: Sizes, strides: Sizes) -> Variable:
    """Take every few elements of a range of some axes.

    Out[.., i, ..] = input[.., start + i stride, ..], as long as that is before the end

    Args:
        input: any shape.
        axes: that are cut.
        starts: first index of each; negative ones count from the end.
        ends: index that is not reached, for each; may be beyond the end.
        strides: steps between indices, not 0; below 0 backwards.

    Returns:
        The elements in range.

    Raises:
        PeError: lists of different lengths, a stride of 0, no such axis, or nothing in range.

    Source:
        fluid.layers.strided_slice.
    """
    helper = LayerHelper("strided_slice")
    (first, fed_first), (last, fed_last), (steps, fed_steps) = (
        fed_sizes(helper, name, given, len(axes)) for name, given in (("starts", starts), ("ends", ends), ("strides", strides))
    )
    lists = (axes, first, last, steps)
    if len({len(v) for v in lists}) > 1 or 0 in steps:
        raise helper.error(f"strided_slice: axes, starts, ends and strides are {lists}", hint="one number each per axis, strides not 0")
    given = {"axes": [same_axis(helper, input, axis) for axis in axes], "starts": first, "ends": last}
    inputs = {"Input": input, "Starts": fed_first, "Ends": fed_last}
    # Strides that a step says are -1 here, so this way is for written ones alone.
    if set(steps) <= {1}:
        return helper.one("slice", inputs, given)
    return helper.one("strided_slice", {**inputs, "Strides": fed_steps}, {**given, "strides": steps})


@layer
def crop_tensor(x: Variable, shape: Sizes | None = None, offsets: Sizes | None = None, name: str | None = None) -> Variable:
    """Cut a box out of a tensor.

    Args:
        x: any shape.
        shape: sizes of the box; -1 for all from the offset on.
        offsets: first index along every axis, at least 0; 0 by default.
        name: prefix of the output's name.

    Returns:
        Of that shape, dtype of x.

    Raises:
        PeError: not one number for every axis, or a box that is not inside.

    Source:
        fluid.layers.crop_tensor.
    """
    return _box(LayerHelper("crop_tensor", name), x, shape, offsets)


@layer
def crop(x: Variable, shape: list[int] | None = None, offsets: Sizes | None = None, name: str | None = None) -> Variable:
    """Cut a box out of a tensor; the same as crop_tensor, which the original made of it later.

    Args:
        x: any shape.
        shape: sizes of the box; -1 for all from the offset on.
        offsets: first index along every axis, at least 0; 0 by default.
        name: prefix of the output's name.

    Returns:
        Of that shape, dtype of x.

    Raises:
        PeError: not one number for every axis, or a box that is not inside.

    Source:
        fluid.layers.crop.
    """
    return _box(LayerHelper("crop", name), x, shape, offsets)


def _box(helper: LayerHelper, x: Variable, shape: Sizes | None, offsets: Sizes | None) -> Variable:
    kind, rank = helper.layer_type, len(x.shape)
    if shape is None:
        raise helper.error(f"{kind} needs a shape", hint="one size for each axis; -1 for all from the offset on")
    sizes, fed = fed_sizes(helper, "shape", shape, rank)
    begins, fed_begins = fed_sizes(helper, "offsets", [0] * rank if offsets is None else offsets, rank)
    if len(sizes) != rank or len(begins) != rank:
        raise helper.error(f"{kind}: shape is {sizes} and offsets {begins}, but x is {x}", hint="give one number for each axis")
    if fed is not None or fed_begins is not None:
        return _fed_box(helper, x, shape, sizes, fed, begins, fed_begins)
    ends = []
    for begin, size, have in zip(begins, sizes, x.shape, strict=True):
        # -1 takes what is left, which must be one element at least.
        if begin < 0 or size < -1 or size == 0 or (have >= 0 and begin + max(size, 1) > have):
            raise helper.error(f"{kind}: a box of {sizes} from {begins} on is not inside {x}")
        ends.append(END if size == -1 else begin + size)
    return helper.one("slice", {"Input": x}, {"axes": list(range(rank)), "starts": begins, "ends": ends})


def _fed_box(
    helper: LayerHelper, x: Variable, shape: Sizes, sizes: list[int], fed: Variable | None, begins: list[int], fed_begins: Variable | None
) -> Variable:
    """Cut out a box of which only a step knows the sizes or the offsets; a number -1 among the sizes takes all."""
    if not isinstance(shape, Variable):
        # END for all: slice ends where the axis does.
        _, fed = fed_sizes(helper, "shape", [END if isinstance(size, int) and size == -1 else size for size in shape])
    numbers = [_whole(helper, fed, sizes), _whole(helper, fed_begins, begins)]
    # In int64, where END and an offset together are far from overflow.
    ends = helper.one("elementwise_add", {"X": numbers[0], "Y": numbers[1]})
    attrs = {"axes": list(range(len(x.shape))), "starts": begins, "ends": [-1] * len(sizes)}
    return helper.one("slice", {"Input": x, "Starts": fed_begins, "Ends": ends}, attrs)


def _whole(helper: LayerHelper, fed: Variable | None, numbers: list[int]) -> Variable:
    if fed is None:
        values = [END if n == -1 else n for n in numbers]
        return helper.one("assign_value", {}, {"shape": [len(values)], "dtype": "int64", "values": values})
    return fed if fed.dtype == "int64" else helper.one("cast", {"X": fed}, {"out_dtype": "int64"})


@layer
def unbind(input: Variable, axis: int = 0) -> list[Variable]:
    """Cut a tensor into one part for each index of an axis, and leave the axis out.

    Args:
        input: any shape.
        axis: to cut; its size is known.

    Returns:
        As many tensors as the axis has indices.

    Raises:
        PeError: there is no such axis, or its size is not known.

    Source:
        fluid.layers.unbind.
    """
    return unstack(input, axis)


@layer
def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Put a border at the ends of a tensor, so that it becomes as large as another.

    Args:
        x: its sizes count.
        y: what is padded, with as many axes, none longer than x's.
        pad_value: of the border, in the unit of y.
        name: prefix of the output's name.

    Returns:
        Shape of x, dtype of y.

    Raises:
        PeError: other numbers of axes, y is larger, or sizes that are not known.

    Source:
        fluid.layers.pad_constant_like.
    """
    helper = LayerHelper("pad_constant_like", name)
    pairs = list(zip(x.shape, y.shape, strict=False))
    # Two sizes that are not known are both the batch's: they count as equal, and nothing is padded there.
    if len(x.shape) != len(y.shape) or any((-1 in p and p[0] != p[1]) or p[0] < p[1] for p in pairs):
        raise helper.error(f"pad_constant_like: y {y} does not fit into x {x}", hint="y has x's axes, and none of them is longer")
    return helper.one("pad", {"X": y}, {"paddings": [p for a, b in pairs for p in (0, a - b)], "pad_value": pad_value})


@layer
def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """Repeat a tensor along its axes until it is as large as another.

    Args:
        x: any shape.
        target_tensor: as many axes, whose sizes are multiples of x's; where one is not known, x's is 1, or not known either and the same.
        name: prefix of the output's name.

    Returns:
        Shape of target_tensor, dtype of x.

    Raises:
        PeError: other numbers of axes, or sizes that are no multiples.

    Source:
        fluid.layers.expand_as.
    """
    helper, target = LayerHelper("expand_as", name), target_tensor
    pairs = list(zip(x.shape, target.shape, strict=False))
    opened = (1, -1) in pairs
    fits = all(a == b or (a, b) == (1, -1) or (-1 not in (a, b) and a > 0 and b % a == 0) for a, b in pairs)
    if len(x.shape) != len(target.shape) or not fits:
        raise helper.error(f"expand_as cannot repeat {x} to {target}", hint="give sizes that are multiples of x's")
    times = [1 if a == b or b < 0 else b // a for a, b in pairs]
    out = helper.one("expand", {"X": x}, {"expand_times": times})
    if not opened:
        return out
    # How large such axes are only a step tells: zeros of the target's shape have their sizes.
    zeros = helper.one("fill_like", {"X": target}, {"value": 0.0})
    if zeros.dtype != x.dtype:
        zeros = helper.one("cast", {"X": zeros}, {"out_dtype": x.dtype})
    return helper.one("elementwise_add", {"X": zeros, "Y": out})
