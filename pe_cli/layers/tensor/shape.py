"""Layers that rearrange, join, cut or repeat: the same elements in another order or shape."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Size, Sizes, fed_size, fed_sizes
from pe_cli.program.ir import Variable


@layer
def reshape(x: Variable, shape: Sizes, act: str | None = None, name: str | None = None) -> Variable:
    """Give the same elements another shape.

    Args:
        x: any shape.
        shape: new sizes; 0 keeps the size of x at that axis, one -1 takes what is left.
        act: name of an activation, or None.
        name: prefix of the output's name.

    Returns:
        The elements of x in shape.

    Raises:
        PeError: the numbers of elements differ.

    Source:
        fluid.layers.reshape.
    """
    helper = LayerHelper("reshape", name)
    sizes, fed = fed_sizes(helper, "shape", shape)
    return helper.activate(helper.one("reshape", {"X": x, "Shape": fed}, {"shape": sizes}), act)


@layer
def concat(input: list[Variable], axis: Size = 0, name: str | None = None) -> Variable:
    """Join tensors along an axis.

    Args:
        input: tensors of one dtype whose sizes agree but at axis.
        axis: to join along.
        name: prefix of the output's name.

    Returns:
        Sizes of the inputs, summed at axis.

    Raises:
        PeError: sizes differ elsewhere.

    Source:
        fluid.layers.concat.
    """
    helper = LayerHelper("concat", name)
    number, fed = fed_size(helper, "axis", axis)
    # Where a step says the axis, the attribute's 0 only takes the place of a number.
    return helper.one("concat", {"X": as_list(input), "Axis": fed}, {"axis": 0 if fed is not None else number})


@layer
def split(
    input: Variable,
    num_or_sections: int | Sizes,
    dim: Size = -1,
    name: str | None = None,
) -> list[Variable]:
    """Cut a tensor into parts along an axis.

    Args:
        input: any shape.
        num_or_sections: number of equal parts, or the size of every part.
        dim: axis to cut.
        name: prefix of the outputs' names.

    Returns:
        The parts, in order.

    Raises:
        PeError: the parts do not fill the axis.

    Source:
        fluid.layers.split.
    """
    helper = LayerHelper("split", name)
    equal = isinstance(num_or_sections, int)
    sections, fed = ([], None) if isinstance(num_or_sections, int) else fed_sizes(helper, "num_or_sections", num_or_sections)
    axis, fed_axis = fed_size(helper, "dim", dim)
    count = num_or_sections if isinstance(num_or_sections, int) else len(sections)
    if count < 1:
        raise helper.error(f"split: num_or_sections is {num_or_sections}", hint="at least one part")
    names = [helper.program.unique(f"{helper.name}.tmp") for _ in range(count)]
    attrs = {"num": count if equal else 0, "sections": sections, "axis": 0 if fed_axis is not None else axis}
    helper.op("split", {"X": input, "Axis": fed_axis, "Sections": fed}, attrs, (), {"Out": names})
    return [helper.block.var(n) for n in names]


@layer
def unsqueeze(input: Variable, axes: Sizes, name: str | None = None) -> Variable:
    """Insert axes of size 1.

    Args:
        input: any shape.
        axes: where the new axes are in the result.
        name: prefix of the output's name.

    Returns:
        The elements of input with those axes.

    Raises:
        PeError: an axis is out of range.

    Source:
        fluid.layers.unsqueeze.
    """
    helper = LayerHelper("unsqueeze", name)
    places, fed = fed_sizes(helper, "axes", axes)
    return helper.one("unsqueeze", {"X": input, "Axes": fed}, {} if fed is not None else {"axes": places})


def slice_(input: Variable, axes: list[int], starts: Sizes, ends: Sizes) -> Variable:
    """Take a range of some axes.

    Args:
        input: any shape.
        axes: that are cut.
        starts: first index of each; negative ones count from the end.
        ends: index after the last of each; may be beyond the end.

    Returns:
        The elements in range.

    Raises:
        PeError: lists of different lengths, or no such axis.

    Source:
        fluid.layers.slice.
    """
    helper = LayerHelper("slice")
    first, fed_first = fed_sizes(helper, "starts", starts, len(axes))
    last, fed_last = fed_sizes(helper, "ends", ends, len(axes))
    attrs = {"axes": axes, "starts": first, "ends": last}
    return helper.one("slice", {"Input": input, "Starts": fed_first, "Ends": fed_last}, attrs)


layer(name="slice")(slice_)


@layer
def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """Cut a tensor into one part for each index of an axis, and leave the axis out.

    Args:
        x: any shape.
        axis: to cut; its size is known.
        num: size of the axis, checked when given.

    Returns:
        As many tensors as the axis has indices.

    Raises:
        PeError: the size of the axis is not known, or is not num.

    Source:
        fluid.layers.unstack.
    """
    helper = LayerHelper("unstack")
    size = x.shape[axis] if -len(x.shape) <= axis < len(x.shape) else num
    count = size if num is None else num
    if count is None or count < 1:
        raise helper.error(f"unstack: axis {axis} of {x} has no known size", hint="give num")
    names = [helper.program.unique(f"{helper.name}.tmp") for _ in range(count)]
    helper.op("unstack", {"X": x}, {"axis": axis, "num": count}, (), {"Y": names})
    return [helper.block.var(n) for n in names]


@layer
def expand(x: Variable, expand_times: Sizes, name: str | None = None) -> Variable:
    """Repeat a tensor along its axes.

    Args:
        x: any shape.
        expand_times: copies along each axis.
        name: prefix of the output's name.

    Returns:
        Sizes of x times expand_times.

    Raises:
        PeError: not one number for each axis.

    Source:
        fluid.layers.expand.
    """
    helper = LayerHelper("expand", name)
    times, fed = fed_sizes(helper, "expand_times", expand_times, len(x.shape))
    return helper.one("expand", {"X": x, "ExpandTimes": fed}, {} if fed is not None else {"expand_times": times})
