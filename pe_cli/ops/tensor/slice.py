"""Boxes of a tensor: slice, reverse, and pad, which puts a tensor into a larger box."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, TensorType
from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrI64
from pe_cli.ops.define.axes import normal_axis
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS, copy_box, row_major
from pe_cli.ops.define.traits import FedSizes, Narrow, RowWise


def clamped(size: int, start: int, end: int) -> tuple[int, int]:
    """Return (first, count) of a slice of an axis, as Python slices."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(0, last - first)


_FED = FedSizes({"Starts": "starts", "Ends": "ends"})


@op(
    "slice",
    traits=[Narrow(), RowWise(lambda attrs, shapes: all(axis > 0 for axis in attrs["axes"])), _FED],
    inputs="Input Starts? Ends?",
    differentiable="Input",
    attrs={
        "axes": Attr([], "which axes are cut"),
        "starts": Attr([], "first index of each; negative from the end"),
        "ends": Attr([], "index after the last of each; negative from the end, clamped to the size"),
    },
    samples=[
        Sample({"Input": (5, 4)}, {"axes": [0], "starts": [1], "ends": [3]}, "rows"),
        Sample(
            {"Input": (3, 5, 4)}, {"axes": [1, 2], "starts": [-3, 0], "ends": [-1, 100]}, "from the end, and clamped"
        ),
        Sample({"Input": (3, 4)}, {"axes": [-1], "starts": [0], "ends": [1]}, "one column"),
        Sample({"Input": (1,)}, {"axes": [0], "starts": [0], "ends": [1]}, "one element"),
        Sample({"Input": (0, 4)}, {"axes": [1], "starts": [1], "ends": [3]}, "empty batch"),
    ],
)
def slice_op(
    x: TensorType,
    fed_starts: TensorType | None = None,
    fed_ends: TensorType | None = None,
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
) -> TensorType:
    """Cut a box out of a tensor.

    Out = Input[starts[0]:ends[0], ...] along the given axes, as Python slices.

    Args:
        Input: any.
        Starts, Ends: [axes that are cut] integers, instead of the attributes: only known in the step.
        axes: which axes are cut.
        starts: first index of each.
        ends: index after the last of each.

    Returns:
        Out: as many axes as Input.

    Raises:
        PeError: the lists differ in length, an axis is out of range or there twice, or keeps nothing.

    Source:
        fluid.layers.slice.
    """
    if fed_starts is not None or fed_ends is not None:
        cut = {normal_axis("slice", a, len(x.shape)) for a in axes}
        return x.with_shape(*(-1 if i in cut else s for i, s in enumerate(x.shape)))
    if not len(axes) == len(starts) == len(ends):
        raise PeError(f"slice needs as many starts and ends as axes, got axes {axes}, starts {starts}, ends {ends}")
    where = [normal_axis("slice", a, len(x.shape)) for a in axes]
    if len(set(where)) < len(where):
        raise PeError(f"slice cuts an axis twice: axes {axes}")
    out = list(x.shape)
    for a, start, end in zip(where, starts, ends, strict=True):
        if out[a] >= 0:
            size, out[a] = out[a], clamped(out[a], start, end)[1]
            # Of an empty axis nothing is kept; of any other one that is a mistake of the program.
            if size and not out[a]:
                raise PeError(f"slice of {x} keeps nothing of axis {a}: start {start}, end {end}")
    return x.with_shape(*out)


def _origin(o: Lowering, shape: Sequence[int], steps: Sequence[int]) -> int:
    """Return the offset of the box's first element."""
    given = zip(o.attrs["axes"], o.attrs["starts"], o.attrs["ends"], strict=True)
    return sum(clamped(shape[a], start, end)[0] * steps[a] for a, start, end in given)


@slice_op.lower("cpu")
def slice_cpu(o: Lowering) -> None:
    """One copy."""
    x, out = o.input("Input"), o.output("Out")
    steps = row_major(x.shape)
    copy_box(o, x, out, out.shape, steps, row_major(out.shape), x_start=_origin(o, x.shape, steps))


@slice_op.grad(uses="Starts Ends", traits=[_FED]).lower("cpu")
def slice_grad_cpu(o: Lowering) -> None:
    """Zeros around the gradient."""
    gradient, out = o.input("Out@GRAD"), o.output("Input@GRAD")
    steps = row_major(out.shape)
    o.call(fill, out, out.size, 0.0)
    copy_box(o, gradient, out, gradient.shape, row_major(gradient.shape), steps, y_start=_origin(o, out.shape, steps))


@op(
    "pad",
    faces=[Face("", "x paddings! pad_value name", "Put a border around a tensor.")],
    inputs="X",
    attrs={
        "paddings": Attr([], "elements before and after each axis: [before_0, after_0, before_1, ...]"),
        "pad_value": Attr(0.0, "of the new elements, no unit"),
    },
    samples=[
        Sample({"X": (2, 3)}, {"paddings": [1, 0, 2, 1], "pad_value": 0.5}, "every side differs"),
        Sample({"X": (2, 2, 3)}, {"paddings": [0, 0, 1, 1, 0, 2]}, "three axes"),
        Sample({"X": (1,)}, {"paddings": [0, 0]}, "nothing"),
        Sample({"X": (0, 2)}, {"paddings": [0, 0, 1, 1]}, "empty batch"),
    ],
)
def pad(x: TensorType, *, paddings: list[int], pad_value: float) -> TensorType:
    """Put a constant border around a tensor.

    Args:
        X: any.
        paddings: elements before and after each axis, at least 0.
        pad_value: of the border, converted to X's element type.

    Returns:
        Out: every size grows by its two paddings.

    Raises:
        PeError: another number of paddings than two per axis, or a negative one.

    Source:
        fluid.layers.pad.
    """
    if len(paddings) != 2 * len(x.shape) or any(p < 0 for p in paddings):
        raise PeError(f"pad of {x} needs {2 * len(x.shape)} paddings of at least 0, got {paddings}")
    sides = zip(paddings[::2], paddings[1::2], strict=True)
    return x.with_shape(*(-1 if s == -1 else s + a + b for s, (a, b) in zip(x.shape, sides, strict=True)))


@pad.lower("cpu")
def pad_cpu(o: Lowering) -> None:
    """Fill, then one copy."""
    x, out = o.input("X"), o.output("Out")
    steps = row_major(out.shape)
    # Where nothing is added there is no border to fill.
    if out.size != x.size:
        o.call(fill, out, out.size, o.attrs["pad_value"])
    start = sum(b * s for b, s in zip(o.attrs["paddings"][::2], steps, strict=True))
    copy_box(o, x, out, x.shape, row_major(x.shape), steps, y_start=start)


@pad.grad().lower("cpu")
def pad_grad_cpu(o: Lowering) -> None:
    """The inside of the gradient."""
    gradient, out = o.input("Out@GRAD"), o.output("X@GRAD")
    steps = row_major(gradient.shape)
    start = sum(b * s for b, s in zip(o.attrs["paddings"][::2], steps, strict=True))
    copy_box(o, gradient, out, out.shape, steps, row_major(out.shape), x_start=start)


@op(
    "reverse",
    faces=[
        Face("flip", "input dims:axis! name", "Reverse the order of elements along axes.", kinds={"dims": "int | list[int]"}),
        Face("", "x axis!", "Reverse the order of elements along axes.", kinds={"axis": "int | list[int]"}),
    ],
    inputs="X",
    attrs={"axis": Attr([0], "axes that run backwards")},
    samples=[
        Sample({"X": (3, 4)}, name="rows"),
        Sample({"X": (3, 4)}, {"axis": [-1]}, "columns"),
        Sample({"X": (2, 3, 4)}, {"axis": [0, 2]}, "two axes"),
        Sample({"X": (1,)}, name="one element"),
        Sample({"X": (0, 3)}, {"axis": [1]}, "empty batch"),
    ],
)
def reverse(x: TensorType, *, axis: list[int]) -> TensorType:
    """Let axes run backwards.

    Args:
        X: any.
        axis: which.

    Returns:
        Out: type of X.

    Raises:
        PeError: an axis is out of range.

    Source:
        fluid.layers.reverse.
    """
    for a in axis:
        normal_axis("reverse", a, len(x.shape))
    return x


def _turn(o: Lowering, source: str, target: str) -> None:
    x, out = o.input(source), o.output(target)
    # Negative steps from the last element: turning an axis is one strided copy.
    turned = {a % len(x.shape) for a in o.attrs["axis"]}
    steps = row_major(x.shape)
    start = sum((x.shape[a] - 1) * steps[a] for a in turned)
    copy_box(o, x, out, x.shape, [-s if i in turned else s for i, s in enumerate(steps)], steps, x_start=start)


@reverse.lower("cpu")
def reverse_cpu(o: Lowering) -> None:
    """One copy with negative steps."""
    _turn(o, "X", "Out")


reverse_grad = reverse.grad()


@reverse_grad.lower("cpu")
def reverse_grad_cpu(o: Lowering) -> None:
    """The same again."""
    _turn(o, "Out@GRAD", "X@GRAD")


# --- CUDA -------------------------------------------------------------------------------------------------------------


@cuda_kernel
def reversed_elements(x: Ptr, out: Ptr, geometry: PtrI64, rank: Int, n: Int):
    """out = x with some axes running backwards; geometry: size, step and whether it is turned, an axis each."""
    for e in range(n):
        at = 0
        for a in range(rank):
            size, step = geometry[3 * a], geometry[3 * a + 1]
            i = e // step % size
            at += (size - 1 - i if geometry[3 * a + 2] else i) * step
        out[e] = x[at]


def _turn_on_cuda(o: Lowering, source: str, target: str) -> None:
    x, out = o.input(source), o.output(target)
    turned = {a % len(x.shape) for a in o.attrs["axis"]}
    axes = [v for i, (size, step) in enumerate(zip(x.shape, row_major(x.shape), strict=True)) for v in (size, step, i in turned)]
    if x.size:
        o.call(reversed_elements, x, out, Numbers(tuple(map(int, axes))), len(x.shape), x.size, dtype=MOVED_AS[DTYPES[x.dtype]])


@reverse.lower("cuda")
def reverse_cuda(o: Lowering) -> None:
    """One thread per element."""
    _turn_on_cuda(o, "X", "Out")


@reverse_grad.lower("cuda")
def reverse_grad_cuda(o: Lowering) -> None:
    """The same again."""
    _turn_on_cuda(o, "Out@GRAD", "X@GRAD")


also_on_cuda(slice_op, pad)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("slice")
def box_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("Slice", [o.x("Input"), *(o.const(o.attrs[k]) for k in ("starts", "ends", "axes"))], to="Out")


@in_onnx("reverse")
def reverse_onnx(o: Writer) -> None:
    """A slice with steps of -1."""
    axes = o.attrs["axis"]
    ones = [-1] * len(axes)
    # Backwards the first element is reached by an end before it, and -1 would be the last one.
    lowest = [np.iinfo(np.int64).min] * len(axes)
    o.node("Slice", [o.x(), o.const(ones), o.const(lowest), o.const(axes), o.const(ones)], to="Out")


@in_onnx("pad")
def pad_onnx(o: Writer) -> None:
    """ONNX lists what goes before every axis, then what goes after."""
    pairs = o.attrs["paddings"]
    o.node("Pad", [o.x(), o.const([*pairs[::2], *pairs[1::2]]), o.const(o.attrs["pad_value"], "X")], to="Out")
