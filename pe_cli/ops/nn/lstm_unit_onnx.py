"""lstm_unit, weight_norm, pools of volumes, affine_grid and moved taps of filters in ONNX."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx


@in_onnx("lstm_unit")
def lstm_unit_onnx(o: Writer) -> None:
    """Four parts, by their order."""
    width, order = o.type("C_prev").shape[1], o.attrs["order"]

    def part(gate: str) -> str:
        # Fluid's three forms of an LSTM order the gates differently; `order` names them by letter.
        at = order.index(gate) * width
        return o.node("Slice", [o.x(), o.const([at]), o.const([at + width]), o.const([1])])

    made = {
        "i": o.node("Sigmoid", [part("i")]),
        "f": o.node("Sigmoid", [o.node("Add", [part("f"), o.const(o.attrs["forget_bias"], "X")])]),
        "o": o.node("Sigmoid", [part("o")]),
        "g": o.node("Tanh", [part("g")]),
    }
    old, new = o.node("Mul", [made["f"], o.x("C_prev")]), o.node("Mul", [made["i"], made["g"]])
    cell = o.node("Add", [old, new])
    if o.wanted("C"):
        o.node("Identity", [cell], to="C")
    if o.wanted("H"):
        o.node("Mul", [made["o"], o.node("Tanh", [cell])], to="H")
    if o.wanted("Gates"):
        o.node("Concat", [made[gate] for gate in order], to="Gates", axis=1)


def _norm(o: Writer, slot: str, to: str | None = None) -> str:
    """Return the norm over all axes but one."""
    rank, dim = len(o.type(slot).shape), o.attrs["dim"]
    axes = [k for k in range(rank) if dim < 0 or k != dim]
    # With one axis there is nothing to sum over: the norm of a number is its magnitude.
    if not axes:
        return o.node("Abs", [o.x(slot)], to=to)
    return o.node("ReduceL2", [o.x(slot), o.const(axes)], to=to, keepdims=1)


@in_onnx("norm_except_dim")
def norm_except_dim_onnx(o: Writer) -> None:
    """ONNX's own."""
    _norm(o, "X", "Out")


@in_onnx("weight_norm")
def weight_norm_onnx(o: Writer) -> None:
    """Directions of length 1, times lengths."""
    o.node("Mul", [o.x("V"), o.node("Div", [o.x("G"), _norm(o, "V")])], to="W")


def _adaptive(o: Writer, kind: str) -> str:
    """Return a pool whose windows cover the volume: axis by axis, as windows are boxes that all share their edges."""
    x = o.x()
    for axis, count in enumerate(o.attrs["ksize"], 2):
        size = o.type().shape[axis]
        if size < 0:
            # Parts are cut in the graph, for which their places have to be numbers.
            raise PeError(f"{o.op.type} with adaptive has an ONNX form for known sizes alone, got {o.type()}", hint="give the feed's shape")
        parts = []
        for i in range(count):
            # Rounded outwards, as the op does: neighbouring windows may share a line.
            begin, end = i * size // count, -(-(i + 1) * size // count)
            taken = o.node("Slice", [x, o.const([begin]), o.const([end]), o.const([axis])])
            parts.append(o.node(kind, [taken, o.const([axis])], keepdims=1))
        x = o.node("Concat", parts, axis=axis)
    return x


def _volumes(o: Writer) -> tuple[str, str]:
    """Append a pool of volumes whose windows are told, and return its values and places."""
    a, kind = o.attrs, "MaxPool" if o.attrs.get("pooling_type", "max") == "max" else "AveragePool"
    each = a["paddings"] if len(a["paddings"]) == 6 else [p for p in a["paddings"] for _ in range(2)]
    # ONNX lists all beginnings before all ends.
    facts = {"kernel_shape": a["ksize"], "strides": a["strides"], "pads": [*each[::2], *each[1::2]], "ceil_mode": int(a["ceil_mode"])}
    if kind == "AveragePool":
        facts["count_include_pad"] = int(not a["exclusive"])
    made = [o.fresh() for _ in range(2 if kind == "MaxPool" else 1)]
    o.nodes(kind, [o.x()], made, **facts)
    return made[0], made[-1]


@in_onnx("pool3d")
def pool3d_onnx(o: Writer) -> None:
    """Windows, or all of the volume."""
    largest = o.attrs["pooling_type"] == "max"
    if o.attrs["global_pooling"]:
        o.node("GlobalMaxPool" if largest else "GlobalAveragePool", [o.x()], to="Out")
    elif o.attrs["adaptive"]:
        o.node("Identity", [_adaptive(o, "ReduceMax" if largest else "ReduceMean")], to="Out")
    else:
        o.node("Identity", [_volumes(o)[0]], to="Out")


def _largest_places(o: Writer, counts: list[int]) -> str:
    """Return the place of the first largest value of every window of an adaptive pool."""
    sizes = o.type().shape[2:]
    flat = o.node("Reshape", [o.x(), o.const([0, 0, -1])])
    numbers, found = np.arange(np.prod(sizes)).reshape(sizes), []
    # Windows of an adaptive pool differ in size, so each has a table of its places, of which ArgMax picks the first largest.
    for window in np.ndindex(*counts):
        box = tuple(slice(i * s // n, -(-(i + 1) * s // n)) for i, s, n in zip(window, sizes, counts, strict=True))
        table = o.const(numbers[box].ravel())
        found.append(o.node("Gather", [table, o.node("ArgMax", [o.node("Gather", [flat, table], axis=2)], axis=2, keepdims=1)]))
    return o.node("Reshape", [o.node("Concat", found, axis=2), o.const([0, 0, *counts])])


def _values(o: Writer, places: str, to: str) -> None:
    """Write the values at places, with the volume as one axis."""
    flat, line = (o.node("Reshape", [x, o.const([0, 0, -1])]) for x in (o.x(), places))
    o.node("Reshape", [o.node("GatherElements", [flat, line], axis=2), o.node("Shape", [places])], to=to)


@in_onnx("max_pool3d_with_index")
def max_pool3d_with_index_onnx(o: Writer) -> None:
    """ONNX counts places over all volumes; the windows of an adaptive pool are told one by one.

    Raises:
        PeError: a size is not known.
    """
    sizes = o.type().shape[2:]
    if -1 in sizes:
        raise PeError(f"{o.op.type} has an ONNX form for known sizes alone, got {o.type()}", hint="give the feed's shape")
    if o.attrs["adaptive"] or o.attrs["global_pooling"]:
        place = _largest_places(o, o.attrs["ksize"] if o.attrs["adaptive"] else [1, 1, 1])
    else:
        # ONNX counts places through all channels and samples: the remainder by the volume's size is the place within it.
        place = o.node("Mod", [_volumes(o)[1], o.const(int(np.prod(sizes)))])
    if o.wanted("Out"):
        _values(o, place, "Out")
    if o.wanted("Mask"):
        o.node("Cast", [place], to="Mask", to_=element_type("int32"))


@in_onnx("values_at_places")
def values_at_places_onnx(o: Writer) -> None:
    """Elements of lines."""
    _values(o, o.x("Mask"), "Out")


@in_onnx("affine_grid")
def affine_grid_onnx(o: Writer) -> None:
    """A product of every matrix with all places.

    Raises:
        PeError: a variable has the sizes.
    """
    if o.has("OutputShape"):
        raise PeError("affine_grid has no ONNX form where a variable has its sizes", hint="write them as numbers")
    dtype, (height, width) = o.type("Theta").dtype, o.attrs["output_shape"][2:]

    def line(n: int) -> np.ndarray:
        return np.zeros(1) if n == 1 else 2 * np.arange(n) / (n - 1) - 1

    y, x = np.meshgrid(line(height), line(width), indexing="ij")
    places = np.stack([x, y, np.ones_like(x)], -1).reshape(1, -1, 3)
    turned = o.node("Transpose", [o.x("Theta")], perm=[0, 2, 1])
    flat = o.node("MatMul", [o.const(places, dtype=dtype), turned])
    o.node("Reshape", [flat, o.const([-1, height, width, 2])], to="Output")


@in_onnx("deformable_im2col")
def deformable_im2col_onnx(o: Writer) -> None:
    """Every group is an image of its own, whose places are sampled.

    Raises:
        PeError: a size is not known.
    """
    a, x, offset = o.attrs, o.type(), o.type("Offset")
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = a["ksize"], a["strides"], a["paddings"], a["dilations"]
    groups, (c, h, w), (oh, ow) = a["deformable_groups"], x.shape[1:], offset.shape[2:]
    if -1 in (h, w, oh, ow):
        raise PeError(f"deformable convolutions have an ONNX form for known sizes alone, got {x}", hint="give the feed's shape")
    taps, places = kh * kw, oh * ow
    rows = (np.arange(kh) * dh)[:, None, None, None] + (np.arange(oh) * sh - ph)[:, None] + np.zeros((kh, kw, oh, ow))
    columns = (np.arange(kw) * dw)[:, None, None] + (np.arange(ow) * sw - pw) + np.zeros((kh, kw, oh, ow))
    still = np.stack([rows, columns], 2).reshape(1, taps, 2, places)
    moved = o.node("Add", [o.node("Reshape", [o.x("Offset"), o.const([-1, taps, 2, places])]), o.const(still, "X")])
    # pixel p is at (2 p + 1) / size - 1, where images reach from -1 to 1
    size = o.const(np.array([h, w]).reshape(1, 1, 2, 1), "X")
    # The + 1 and - 1 of the half pixel are folded: (2 p + 1) / size - 1.
    grid = o.node("Div", [o.node("Add", [o.node("Mul", [moved, o.const(2, "X")]), o.const(1, "X")]), size])
    grid = o.node("Transpose", [o.node("Sub", [grid, o.const(1, "X")])], perm=[0, 1, 3, 2])
    # GridSample takes x before y.
    grid = o.node("Gather", [grid, o.const([1, 0])], axis=3)
    # Channels of one group share their offsets: each group becomes an image of its own with a grid of its own.
    images = o.node("Reshape", [o.x(), o.const([-1, c // groups, h, w])])
    made = o.node("GridSample", [images, grid], mode="bilinear", padding_mode="zeros", align_corners=0)
    if o.has("Mask"):
        made = o.node("Mul", [made, o.node("Reshape", [o.x("Mask"), o.const([-1, 1, taps, places])])])
    o.node("Reshape", [made, o.const([-1, c * taps, places])], to="Out")
