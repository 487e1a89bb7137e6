"""Operators of the original whose sizes are variables, as loops have them that decode step by step."""

from __future__ import annotations

from typing import Any

from pe_cli.io.fluid.program_desc import ELEMENTS
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.layers.ranges import range_
from pe_cli.paddle.fluid.original_blocks.reading import Inner, reads_sized


def _sizes(o: Inner, whole: str, each: str) -> Any:
    """Return sizes: one variable, or one for each axis."""
    return o.one(whole) if o.names(whole) else o.variables(each)


@reads_sized("expand", "ExpandTimes", "expand_times_tensor")
def _expand(o: Inner) -> None:
    o.give("Out", layers.expand(o.one("X"), _sizes(o, "ExpandTimes", "expand_times_tensor")))


@reads_sized("range", "Start", "End", "Step")
def _range(o: Inner) -> None:
    first, last, step = (o.one(slot) for slot in ("Start", "End", "Step"))
    o.give("Out", range_(first, last, step, first.dtype))


@reads_sized("fill_constant", "ShapeTensor", "ShapeTensorList")
def _fill_constant(o: Inner) -> None:
    value = float(o.attr("str_value", "") or o.attr("value", 0.0))
    o.give("Out", layers.fill_constant(_sizes(o, "ShapeTensor", "ShapeTensorList"), o.element("dtype"), value))


@reads_sized("reshape2", "Shape", "ShapeTensor")
def _reshape(o: Inner) -> None:
    o.give("Out", layers.reshape(o.one("X"), _sizes(o, "Shape", "ShapeTensor")))


@reads_sized("slice", "StartsTensor", "EndsTensor", "StartsTensorList", "EndsTensorList")
def _slice(o: Inner) -> None:
    ends = []
    for end in ("Starts", "Ends"):
        slots = f"{end}Tensor", f"{end}TensorList"
        ends.append(_sizes(o, *slots) if any(o.names(slot) for slot in slots) else [int(n) for n in o.attr(end.lower(), [])])
    part = layers.slice(o.one("Input"), [int(a) for a in o.attr("axes", [])], *ends)
    gone = [int(a) for a in o.attr("decrease_axis", [])]
    gone = gone[1:] if len(gone) == len(part.shape) else gone  # one number is kept as a list of one
    o.give("Out", layers.squeeze(part, gone) if gone else part)


@reads_sized("sequence_mask", "MaxLenTensor")
def _sequence_mask(o: Inner) -> None:
    o.give("Y", layers.sequence_mask(o.one("X"), o.one("MaxLenTensor"), ELEMENTS[int(o.attr("out_dtype", 3))]))


@reads_sized("one_hot_v2", "depth_tensor")
def _one_hot(o: Inner) -> None:
    ids = layers.unsqueeze(o.one("X"), [len(o.one("X").shape)])
    o.give("Out", layers.one_hot(ids, o.one("depth_tensor"), o.attr("allow_out_of_range", False)))
