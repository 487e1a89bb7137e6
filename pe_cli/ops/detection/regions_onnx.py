"""What is done with regions of images, in ONNX: roi_align, roi_pool and psroi_pool; and box_clip and iou_similarity."""

from __future__ import annotations

from functools import partial

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.detection.nms_onnx import columns, every


def owners_of(o: Writer, slot: str = "X") -> str:
    """Return the image of each region, [regions] int64; a region behind those of the last image ends the run.

    Raises:
        PeError: nothing says whose the regions are.
    """
    regions = o.node("Slice", [o.node("Shape", [o.x("ROIs")]), o.const([0]), o.const([1])])
    if o.has("BatchRoINums"):
        ends = o.node("CumSum", [o.x("BatchRoINums"), o.const(0)])
    elif o.has("RoisLod"):
        ends = o.node("Slice", [o.x("RoisLod"), o.const([1]), o.const([2**31])])
    elif o.type(slot).shape[0] == 1:
        return o.node("Expand", [o.const(0), regions])
    else:
        raise PeError(f"{o.op.type} in ONNX needs to be told whose the regions are", hint="give the number of regions of every image")
    row = o.node("Unsqueeze", [o.node("Range", [o.const(0), o.node("Squeeze", [regions]), o.const(1)]), o.const([1])])
    # A region belongs to the image whose number is that of the images that end at or before it; images without regions are counted over.
    passed = o.node("Cast", [o.node("GreaterOrEqual", [row, ends])], to_=element_type("int64"))
    owner = o.node("ReduceSum", [passed, o.const([1])], keepdims=0)
    images = o.node("Squeeze", [o.node("Shape", [ends])])
    # A row behind the last image's would be no image: Gather then ends the run, with this name in its message.
    every_image = o.node("Range", [o.const(0), images, o.const(1)])
    return o.node("Gather", [every_image, owner], name="the numbers of regions sum to fewer than there are")


@in_onnx("roi_align")
def roi_align_onnx(o: Writer) -> None:
    """One node."""
    a = o.attrs
    o.node(
        "RoiAlign", [o.x(), o.x("ROIs"), owners_of(o)], to="Out", mode="avg", coordinate_transformation_mode="output_half_pixel",
        output_height=a["pooled_height"], output_width=a["pooled_width"], sampling_ratio=max(a["sampling_ratio"], 0),
        spatial_scale=float(a["spatial_scale"]),
    )  # fmt: skip


def _in_doubles(o: Writer, first: int) -> str:
    """Return two numbers of all regions as float64, in which halves are exact."""
    return o.node("Cast", [columns(o, o.x("ROIs"), first, first + 2)], to_=element_type("float64"))


@in_onnx("roi_pool")
def roi_pool_onnx(o: Writer) -> None:
    """Each part is a region of its own, whose edges are pixels: MaxRoiPool would place them by float32 numbers.

    Raises:
        PeError: images whose size is not known.
    """
    kind, a = o.type(), o.attrs
    parts, sizes = (a["pooled_width"], a["pooled_height"]), sizes_of(o)[::-1]
    # MaxRoiPool rounds with float32; in float64 a half stays a half.
    scale, half = (o.const(v, dtype="float64") for v in (a["spatial_scale"], 0.5))
    # Rounds halves up, as the kernel does.
    low, end = (
        o.node("Cast", [o.node("Floor", [o.node("Add", [o.node("Mul", [_in_doubles(o, d), scale]), half])])], to_=element_type("int64"))
        for d in (0, 2)
    )
    sides = o.node("Max", [o.node("Add", [o.node("Sub", [end, low]), o.const(1)]), o.const(1)])
    corners: dict[int, str] = {}
    there = []
    for d, axis in ((0, 1), (1, 2)):  # columns, then rows: [regions, 1, parts, 1] and [regions, parts, 1, 1]
        start, side = (o.node("Unsqueeze", [columns(o, v, d, d + 1), o.const([2, 3])]) for v in (low, sides))
        number = np.arange(parts[d]).reshape((1, 1, -1, 1) if d == 0 else (1, -1, 1, 1))
        first = o.node("Div", [o.node("Mul", [o.const(number), side]), o.const(parts[d])])
        more = o.node("Add", [o.node("Mul", [o.const(number + 1), side]), o.const(parts[d] - 1)])
        first = o.node("Max", [o.node("Add", [start, first]), o.const(0)])
        after = o.node("Min", [o.node("Add", [start, o.node("Div", [more, o.const(parts[d])])]), o.const(sizes[d])])
        corners |= {axis: first, axis + 2: o.node("Sub", [after, o.const(1)])}
        there.append(o.node("Less", [first, after]))
    # MaxRoiPool takes the image's number before each region's corners.
    corners[0] = o.node("Unsqueeze", [owners_of(o), o.const([1, 2, 3])])
    each = o.const([1, *parts[::-1], 1])
    rois = o.node("Concat", [o.node("Expand", [corners[i], each]) for i in range(5)], axis=3)
    single = [o.node("Cast", [v], to_=element_type("float32")) for v in (o.x(), o.node("Reshape", [rois, o.const([-1, 5])]))]
    found = o.node("MaxRoiPool", single, pooled_shape=[1, 1], spatial_scale=1.0)
    found = o.node("Cast", [o.node("Reshape", [found, o.const([-1, *parts[::-1], kind.shape[1]])])], to_=element_type(kind.dtype))
    # A part without pixels is 0, which MaxRoiPool leaves open.
    found = o.node("Where", [o.node("And", there), found, o.const(0, "X")])
    o.node("Transpose", [found], to="Out", perm=[0, 3, 1, 2])


def sizes_of(o: Writer, slot: str = "X") -> tuple[int, int]:
    """Return height and width of the images.

    Raises:
        PeError: they are not known.
    """
    height, width = o.type(slot).shape[2:]
    if min(height, width, o.type(slot).shape[1]) < 0:
        raise PeError(f"{o.op.type} in ONNX needs images whose size is known, got {o.type(slot)}", hint="give the image a size")
    return height, width


def nearest_numbers(o: Writer, first: int) -> str:
    """Return two numbers of all regions, to the nearest whole one, halves away from 0."""
    v, half = _in_doubles(o, first), o.const(0.5, dtype="float64")
    up, down = o.node("Floor", [o.node("Add", [v, half])]), o.node("Ceil", [o.node("Sub", [v, half])])
    found = o.node("Where", [o.node("GreaterOrEqual", [v, o.const(0, dtype="float64")]), up, down])
    return o.node("Cast", [found], to_=element_type(o.type("ROIs").dtype))


@in_onnx("psroi_pool")
def psroi_pool_onnx(o: Writer) -> None:
    """Sums of rows are one product for each row of parts, those of columns are taken of what comes out.

    Raises:
        PeError: images whose size is not known.
    """
    a, sizes, like = o.attrs, sizes_of(o), partial(o.const, like="X")
    parts, outs, dtype = (a["pooled_height"], a["pooled_width"]), a["output_channels"], element_type(o.type().dtype)
    low, high, scale = nearest_numbers(o, 0), nearest_numbers(o, 2), like(a["spatial_scale"])
    start = o.node("Mul", [low, scale])
    length = o.node("Sub", [o.node("Mul", [o.node("Add", [high, like(1)]), scale]), start])
    # The original's least length of a region, which keeps the division finite.
    length = o.node("Max", [length, like(0.1)])
    masks, numbers = [], []
    for d in (0, 1):
        begin, long = (columns(o, v, 1 - d, 2 - d) for v in (start, length))
        long, edges = o.node("Div", [long, like(parts[d])]), []
        for more, kind in ((0, "Floor"), (1, "Ceil")):
            at = o.node("Add", [o.node("Mul", [like(np.arange(parts[d]) + more), long]), begin])
            edges.append(o.node("Clip", [o.node(kind, [at]), like(0), like(sizes[d])]))
        numbers.append(o.node("Max", [o.node("Sub", edges[::-1]), like(0)]))
        first, after = (o.node("Unsqueeze", [v, o.const([2])]) for v in edges)
        pixel = like(np.arange(sizes[d]))
        masks.append(o.node("And", [o.node("GreaterOrEqual", [pixel, first]), o.node("Less", [pixel, after])]))
    # One product for all images: a region's weights are 0 for the pixels of other images, which costs multiplications but needs no loop.
    images = o.node("Range", [o.const(0), o.node("Squeeze", [o.node("Shape", [o.x()], start=0, end=1)]), o.const(1)])
    owner = owners_of(o)
    mine = o.node("Unsqueeze", [o.node("Equal", [o.node("Unsqueeze", [owner, o.const([1])]), images]), o.const([1, 3])])
    rows = o.node("And", [o.node("Unsqueeze", [masks[0], o.const([2])]), mine])
    weights = o.node("Transpose", [o.node("Cast", [rows], to_=dtype)], perm=[1, 0, 2, 3])
    regions, across = o.node("Shape", [owner]), o.node("Mul", [o.node("Shape", [images]), o.const([sizes[0]])])

    def shaped(x: str, *sizes: str | list[int]) -> str:
        return o.node("Reshape", [x, o.node("Concat", [v if isinstance(v, str) else o.const(v) for v in sizes], axis=0)])

    # Rows of all images stand in one axis, so the sum over rows is a matrix product for every row of parts.
    weights = shaped(weights, [parts[0]], regions, across)
    pixels = o.node("Reshape", [o.x(), o.const([-1, outs, *parts, *sizes])])
    pixels = o.node("Transpose", [pixels], perm=[2, 0, 4, 1, 3, 5])
    pixels = o.node("Reshape", [pixels, o.const([parts[0], -1, outs * parts[1] * sizes[1]])])
    sums = shaped(o.node("MatMul", [weights, pixels]), [parts[0]], regions, [outs, parts[1], sizes[1]])
    sums = o.node("Transpose", [sums], perm=[1, 2, 0, 3, 4])
    taken = o.node("Unsqueeze", [o.node("Cast", [masks[1]], to_=dtype), o.const([1, 2])])
    sums = o.node("ReduceSum", [o.node("Mul", [sums, taken]), o.const([4])], keepdims=0)
    # A part touches rows times columns pixels; 0 where it lies outside the image.
    number = o.node("Mul", [o.node("Unsqueeze", [numbers[0], o.const([1, 3])]), o.node("Unsqueeze", [numbers[1], o.const([1, 2])])])
    some = o.node("Greater", [number, like(0)])
    o.node("Where", [some, o.node("Div", [sums, number]), like(0)], to="Out")


@in_onnx("box_clip")
def box_clip_onnx(o: Writer) -> None:
    """Limits of each image, for its own boxes."""
    info, one = o.x("ImInfo"), o.const(1, "Input")
    sizes = o.node("Div", [columns(o, info, 0, 2), columns(o, info, 2, 3)])
    last = o.node("Sub", [o.node("Floor", [o.node("Add", [sizes, o.const(0.5, "Input")])]), one])
    # Limits for left, top, right, bottom are width, height, width, height.
    limits = o.node("Gather", [last, o.const([1, 0, 1, 0])], axis=1)
    if o.has("Owner"):
        limits = o.node("Gather", [limits, o.x("Owner")])
    if len(o.type("Input").shape) == 3:
        limits = o.node("Unsqueeze", [limits, o.const([1])])
    elif not o.has("Owner"):
        limits = o.node("Reshape", [limits, o.const([1, 4])])
    o.node("Max", [o.node("Min", [o.x("Input"), limits]), o.const(0, "Input")], to="Output")


@in_onnx("iou_similarity")
def iou_similarity_onnx(o: Writer) -> None:
    """Each of the one with each of the other."""
    none, one = o.const(0, "X"), o.const(0.0 if o.attrs["box_normalized"] else 1.0, "X")
    x, y = o.node("Unsqueeze", [o.x("X"), o.const([1])]), o.node("Unsqueeze", [o.x("Y"), o.const([0])])

    def area(low: str, end: str) -> tuple[str, str]:
        sides = o.node("Add", [o.node("Sub", [end, low]), one])
        return sides, o.node("ReduceProd", [sides, o.const([-1])], keepdims=0)

    low = o.node("Max", [columns(o, x, 0, 2), columns(o, y, 0, 2)])
    sides, both = area(low, o.node("Min", [columns(o, x, 2, 4), columns(o, y, 2, 4)]))
    # Both sides have to be above 0: two negative ones would multiply to a positive area.
    meet = every(o, o.node("Greater", [sides, none]))
    either = o.node("Sub", [o.node("Add", [area(columns(o, v, 0, 2), columns(o, v, 2, 4))[1] for v in (x, y)]), both])
    o.node("Where", [meet, o.node("Div", [both, either]), none], to="Out")
