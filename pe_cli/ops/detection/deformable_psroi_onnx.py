"""deformable_psroi_pooling in ONNX: every point of every part takes its four neighbours by their places."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.detection.nms_onnx import columns
from pe_cli.ops.detection.regions_onnx import nearest_numbers, owners_of, sizes_of

#: Axes of what is computed: regions, outputs, rows and columns of parts, rows and columns of points.
_AXES = 6


def _along(values: np.ndarray, *axes: int) -> np.ndarray:
    """Return an array whose axes stand at some of the six."""
    shape = [1] * _AXES
    for axis, size in zip(axes, values.shape, strict=True):
        shape[axis] = size
    return values.reshape(shape)


@in_onnx("deformable_psroi_pooling")
def deformable_psroi_pooling_onnx(o: Writer) -> None:
    """Places of points, whether they are inside, and a mean of those that are.

    Raises:
        PeError: images whose size is not known.
    """
    a, like, dtype = o.attrs, partial(o.const, like="Input"), o.type("Input").dtype
    sizes, parts, outs = sizes_of(o, "Input"), (a["pooled_height"], a["pooled_width"]), a["output_dim"]
    points, groups, pieces = a["sample_per_part"], a["group_size"], a["part_size"]
    owner = owners_of(o, "Input")
    scale, half, one = like(a["spatial_scale"]), like(0.5), like(1)
    first, last = (nearest_numbers(o, d) for d in (0, 2))
    start = o.node("Sub", [o.node("Mul", [first, scale]), half])
    end = o.node("Sub", [o.node("Mul", [o.node("Add", [last, one]), scale]), half])
    length = o.node("Max", [o.node("Sub", [end, start]), like(0.1)])

    def wide(x: str) -> str:
        return o.node("Reshape", [x, o.const([-1, *[1] * (_AXES - 1)])])

    found = []  # for rows, then columns: lower pixel, upper pixel, distance, inside
    for d in (0, 1):
        begin, long = (wide(columns(o, v, 1 - d, 2 - d)) for v in (start, length))
        part = o.node("Div", [long, like(parts[d])])
        at = o.node("Add", [o.node("Mul", [like(_along(np.arange(parts[d]), 2 + d)), part]), begin])
        if not a["no_trans"]:
            at = o.node("Add", [at, o.node("Mul", [_moves(o, 1 - d, outs, parts, pieces), long])])
        step = o.node("Div", [part, like(points)])
        at = o.node("Add", [at, o.node("Mul", [like(_along(np.arange(points), 4 + d)), step])])
        inside = o.node("And", [
            o.node("GreaterOrEqual", [at, like(-0.5)]), o.node("LessOrEqual", [at, like(sizes[d] - 0.5)]),
        ])  # fmt: skip
        at = o.node("Clip", [at, like(0), like(sizes[d] - 1)])
        low = o.node("Floor", [at])
        found.append((low, o.node("Ceil", [at]), o.node("Sub", [at, low]), inside))
    row, column = found
    all_outs = o.const(_along(np.ones(outs), 1), dtype="bool")  # without moves their points are the same
    there = o.node("And", [o.node("And", [row[3], column[3]]), all_outs])
    group = [np.array([min(math.floor(i * g / n), g - 1) for i in range(n)]) for n, g in zip(parts, groups, strict=True)]
    channel = _along(np.arange(outs), 1) * groups[0] * groups[1] + _along(group[0], 2) * groups[1] + _along(group[1], 3)
    full = o.node("Shape", [there])
    image, channel_name = o.node("Expand", [wide(owner), full]), o.node("Expand", [o.const(channel), full])

    def pixel(y: str, x: str) -> str:
        places = [image, channel_name, *(o.node("Expand", [o.node("Cast", [v], to_=7), full]) for v in (y, x))]
        return o.node("GatherND", [o.x("Input"), o.node("Concat", [o.node("Unsqueeze", [v, o.const([-1])]) for v in places], axis=-1)])

    def between(low: str, high: str, far: str) -> str:
        return o.node("Add", [o.node("Mul", [low, o.node("Sub", [one, far])]), o.node("Mul", [high, far])])

    upper, lower = (between(pixel(y, column[0]), pixel(y, column[1]), column[2]) for y in row[:2])
    value = o.node("Where", [there, between(upper, lower, row[2]), like(0)])
    ends = o.const([4, 5])
    count = o.node("ReduceSum", [o.node("Cast", [there], to_=element_type(dtype)), ends], keepdims=0)
    if o.wanted("TopCount"):
        o.node("Identity", [count], to="TopCount")
    if o.wanted("Output"):
        total = o.node("ReduceSum", [value, ends], keepdims=0)
        o.node("Div", [total, o.node("Max", [count, one])], to="Output")


def _moves(o: Writer, which: int, outs: int, parts: tuple[int, int], pieces: list[int]) -> str:
    """Return how far parts move to the right (0) or down (1), in sides of their regions: [regions, outs, rows, columns, 1, 1]."""
    classes = o.type("Trans").shape[1] // 2
    kinds = np.arange(outs) // (outs // classes) * 2 + which
    rows, columns_ = (np.array([math.floor(i / n * p) for i in range(n)]) for n, p in zip(parts, pieces, strict=True))
    taken = o.x("Trans")
    for axis, places in ((1, kinds), (2, rows), (3, columns_)):
        taken = o.node("Gather", [taken, o.const(places)], axis=axis)
    return o.node("Unsqueeze", [o.node("Mul", [taken, o.const(o.attrs["trans_std"], "Input")]), o.const([4, 5])])
