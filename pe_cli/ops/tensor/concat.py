"""Joining and cutting tensors along an axis: concat, split, stack, unstack. Each part is one copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.axes import normal_axis
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face, Functional
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import copy_box, row_major
from pe_cli.ops.define.traits import Divisible, FedSizes, Narrow, RowWise

_AXIS = Attr(0, "from the front, or negative from the end")
_FED_AXIS = FedSizes({"Axis": "axis"})
_FED_PARTS = FedSizes({"Axis": "axis", "Sections": "sections"})


def agreed(name: str, xs: Sequence[TensorType], free: int | None) -> list[int]:
    """Return the sizes that tensors have in common; an unknown size gives way to a known one.

    Args:
        name: of the op, for errors.
        xs: at least one.
        free: axis that may differ, or None.

    Raises:
        PeError: no tensor, different element types, different ranks or different sizes.
    """
    if not xs:
        raise PeError(f"{name} needs at least one input")
    out = list(xs[0].shape)
    for x in xs[1:]:
        if x.dtype != xs[0].dtype or len(x.shape) != len(out):
            raise PeError(f"{name} needs inputs of one element type and rank, got {xs[0]} and {x}")
        for i, size in enumerate(x.shape):
            if i != free and -1 not in (size, out[i]) and size != out[i]:
                raise PeError(f"{name}: inputs differ in axis {i}: {xs[0]} and {x}, and {out[i]} != {size}")
            out[i] = size if out[i] == -1 else out[i]
    return out


def _parts(
    o: Lowering, whole: Buffer, parts: Sequence[Buffer | None], sizes: Sequence[int], axis: int, *, gather: bool
) -> None:
    """Append copies between a tensor and its slices along an axis: into the whole (gather) or out of it."""
    steps = row_major(whole.shape)
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        # A gradient that nobody wants has no buffer, but its place counts.
        if part is not None:
            box = [*whole.shape[:axis], size, *whole.shape[axis + 1 :]]
            own = row_major(box)
            if gather:
                copy_box(o, part, whole, box, own, steps, y_start=start * steps[axis])
            else:
                copy_box(o, whole, part, box, steps, own, x_start=start * steps[axis])
        start += size


# --- concat and split -------------------------------------------------------------------------------------------------


def beside_rows(attrs: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether the axis of an op is not that of rows."""
    return bool(attrs["axis"] % max(1, len(next(iter(shapes.values())))))


@op(
    "concat",
    traits=[Divisible(), Narrow(), RowWise(beside_rows), _FED_AXIS],
    inputs="X* Axis?",
    differentiable="X",
    attrs={"axis": _AXIS},
    samples=[
        Sample({"X": [(2, 3), (4, 3)]}, name="rows"),
        Sample({"X": [(2, 3), (2, 1), (2, 5)]}, {"axis": -1}, "columns of odd widths"),
        Sample({"X": [(2, 2, 3, 4), (2, 1, 3, 4)]}, {"axis": 1}, "channels"),
        Sample({"X": [(1,)]}, name="one element"),
        Sample({"X": [(0, 3), (0, 2)]}, {"axis": 1}, "empty batch"),
        Sample({"X": [(0, 3), (2, 3)]}, name="an empty part"),
    ],
)
def concat(xs: list[TensorType], fed: TensorType | None = None, *, axis: int) -> TensorType:
    """Join tensors along an axis.

    Args:
        X: one or more tensors of one element type whose other sizes agree.
        Axis: [1] integer, instead of the attribute: only known in the step.
        axis: along which.

    Returns:
        Out: that size is the sum of X's.

    Raises:
        PeError: no input, different element types, ranks or other sizes, or an axis out of range.

    Source:
        fluid.layers.concat.
    """
    # Which axis grows is a value of the step, so that no size is known before it.
    if fed is not None and xs:
        return xs[0].with_shape(*(-1 for _ in xs[0].shape))
    where = normal_axis("concat", axis, len(xs[0].shape)) if xs else 0
    out = agreed("concat", xs, where)
    sizes = [x.shape[where] for x in xs]
    out[where] = -1 if -1 in sizes else sum(sizes)
    return xs[0].with_shape(*out)


@concat.lower("cpu")
def concat_cpu(o: Lowering) -> None:
    """One copy per part."""
    out, xs = o.output("Out"), o.inputs("X")
    axis = o.attrs["axis"] % len(out.shape)
    _parts(o, out, xs, [x.shape[axis] for x in xs], axis, gather=True)


@concat.grad(uses="X Axis", traits=[_FED_AXIS]).lower("cpu")
def concat_grad_cpu(o: Lowering) -> None:
    """Cut the gradient."""
    gradient = o.input("Out@GRAD")
    axis = o.attrs["axis"] % len(gradient.shape)
    _parts(o, gradient, o.outputs("X@GRAD"), [x.shape[axis] for x in o.inputs("X")], axis, gather=False)


def section_sizes(name: str, size: int, num: int, sections: Sequence[int]) -> list[int]:
    """Return the sizes of the parts of an axis; -1 where not known.

    Raises:
        PeError: the axis does not divide, or the sections do not fill it.
    """
    if not sections:
        if num < 1:
            raise PeError(f"{name} needs num of at least 1 or sections, got num {num}")
        if size >= 0 and size % num:
            raise PeError(
                f"{name}: an axis of size {size} does not divide into {num} equal parts", hint="give sections instead"
            )
        return [size // num if size >= 0 else -1] * num
    if any(s < -1 for s in sections) or list(sections).count(-1) > 1:
        raise PeError(f"{name} takes sections of at least 0 and one -1, got {list(sections)}")
    given = sum(s for s in sections if s >= 0)
    rest = size - given if size >= 0 else -1
    if size >= 0 and (rest < 0 or (rest and -1 not in sections)):
        raise PeError(f"{name}: sections {list(sections)} do not fill an axis of size {size}")
    return [rest if s == -1 else s for s in sections]


@op(
    "split",
    traits=[Narrow(), RowWise(beside_rows), _FED_PARTS],
    inputs="X Axis? Sections?",
    differentiable="X",
    outputs="Out*",
    attrs={
        "num": Attr(0, "equal parts, where sections is empty"),
        "sections": Attr([], "sizes of the parts; one may be -1, for what is left"),
        "axis": _AXIS,
    },
    samples=[
        Sample({"X": (6, 2)}, {"num": 3}, "three equal parts", outputs={"Out": 3}),
        Sample({"X": (2, 7)}, {"sections": [1, -1, 2], "axis": 1}, "one part is worked out", outputs={"Out": 3}),
        Sample({"X": (2, 5, 3)}, {"sections": [2, 3], "axis": -2}, "in the middle", outputs={"Out": 2}),
        Sample({"X": (1,)}, {"num": 1}, "one element", outputs={"Out": 1}),
        Sample({"X": (0, 4)}, {"num": 2, "axis": 1}, "empty batch", outputs={"Out": 2}),
    ],
)
def split(
    x: TensorType,
    fed_axis: TensorType | None = None,
    fed_sections: TensorType | None = None,
    *,
    num: int,
    sections: list[int],
    axis: int,
) -> tuple[list[TensorType]]:
    """Cut a tensor along an axis.

    Args:
        X: any.
        Axis: [1] integer, instead of the attribute: only known in the step.
        Sections: [parts] integers, likewise; the attribute then only has as many.
        num: number of equal parts, where no sections are given.
        sections: sizes of the parts.
        axis: along which.

    Returns:
        Out: the parts in order.

    Raises:
        PeError: the axis is out of range or does not divide, or the sections do not fill it.

    Source:
        fluid.layers.split.
    """
    if fed_axis is not None:
        return ([x.with_shape(*(-1 for _ in x.shape)) for _ in range(len(sections) or num)],)
    where = normal_axis("split", axis, len(x.shape))
    if fed_sections is not None:
        return ([x.with_shape(*x.shape[:where], -1, *x.shape[where + 1 :]) for _ in sections],)
    sizes = section_sizes("split", x.shape[where], num, sections)
    return ([x.with_shape(*x.shape[:where], s, *x.shape[where + 1 :]) for s in sizes],)


@split.lower("cpu")
def split_cpu(o: Lowering) -> None:
    """One copy per part."""
    x = o.input("X")
    axis = o.attrs["axis"] % len(x.shape)
    sizes = section_sizes("split", x.shape[axis], o.attrs["num"], o.attrs["sections"])
    _parts(o, x, o.outputs("Out"), sizes, axis, gather=False)


@split.grad(uses="Axis Sections", traits=[_FED_PARTS]).lower("cpu")
def split_grad_cpu(o: Lowering) -> None:
    """Join the gradients."""
    out = o.output("X@GRAD")
    axis = o.attrs["axis"] % len(out.shape)
    sizes = section_sizes("split", out.shape[axis], o.attrs["num"], o.attrs["sections"])
    _parts(o, out, o.inputs("Out@GRAD"), sizes, axis, gather=True)


# --- stack and unstack ------------------------------------------------------------------------------------------------


@op(
    "stack",
    faces=[
        Face("", "x axis", "Join tensors of one type along a new axis."),
        Functional("", "x axis=0 name", "Put tensors of one shape side by side along a new axis.", at="tensor"),
    ],
    inputs="X*",
    outputs="Y",
    attrs={"axis": Attr(0, "of the new axis in the result; negative from the end")},
    samples=[
        Sample({"X": [(2, 3), (2, 3)]}, name="in front"),
        Sample({"X": [(2, 3), (2, 3), (2, 3)]}, {"axis": -1}, "behind"),
        Sample({"X": [(2, 3), (2, 3)]}, {"axis": 1}, "in the middle"),
        Sample({"X": [(1,)]}, name="one element"),
        Sample({"X": [(0, 3), (0, 3)]}, {"axis": 1}, "empty batch"),
    ],
)
def stack(xs: list[TensorType], *, axis: int) -> TensorType:
    """Join tensors along a new axis.

    Args:
        X: one or more tensors of one shape and element type.
        axis: place of the new axis in the result.

    Returns:
        Y: with one more axis, whose size is the number of inputs.

    Raises:
        PeError: no input, inputs of different types, or an axis out of range.

    Source:
        fluid.layers.stack.
    """
    sizes = agreed("stack", xs, None)
    sizes.insert(normal_axis("stack", axis, len(sizes) + 1), len(xs))
    return xs[0].with_shape(*sizes)


@stack.lower("cpu")
def stack_cpu(o: Lowering) -> None:
    """One copy per part."""
    out, xs = o.output("Y"), o.inputs("X")
    _parts(o, out, xs, [1] * len(xs), o.attrs["axis"] % len(out.shape), gather=True)


@stack.grad().lower("cpu")
def stack_grad_cpu(o: Lowering) -> None:
    """Cut the gradient."""
    gradient, outs = o.input("Y@GRAD"), o.outputs("X@GRAD")
    _parts(o, gradient, outs, [1] * len(outs), o.attrs["axis"] % len(gradient.shape), gather=False)


@op(
    "unstack",
    inputs="X",
    outputs="Y*",
    attrs={"axis": _AXIS, "num": Attr(0, "number of parts, where the size of the axis is not known")},
    samples=[
        Sample({"X": (2, 3)}, name="rows", outputs={"Y": 2}),
        Sample({"X": (2, 3, 4)}, {"axis": -1}, "the last axis", outputs={"Y": 4}),
        Sample({"X": (1, 1)}, {"axis": 1}, "one element", outputs={"Y": 1}),
        Sample({"X": (0, 2)}, {"axis": 1}, "empty batch", outputs={"Y": 2}),
    ],
)
def unstack(x: TensorType, *, axis: int, num: int) -> tuple[list[TensorType]]:
    """Cut a tensor into the slices of an axis, without that axis.

    Args:
        X: any.
        axis: which.
        num: its size, where that is not known.

    Returns:
        Y: the slices in order.

    Raises:
        PeError: the axis is out of range, its size is not known and num is not given, or num is another size.

    Source:
        fluid.layers.unstack.
    """
    where = normal_axis("unstack", axis, len(x.shape))
    size = x.shape[where]
    count = num or size
    if count < 0:
        raise PeError(f"unstack of {x} along axis {where}, whose size is not known", hint="give num")
    if size not in (-1, count):
        raise PeError(f"unstack of {x} along axis {where}: num is {num}, the size is {size}")
    return ([x.with_shape(*x.shape[:where], *x.shape[where + 1 :])] * count,)


@unstack.lower("cpu")
def unstack_cpu(o: Lowering) -> None:
    """One copy per part."""
    x, outs = o.input("X"), o.outputs("Y")
    _parts(o, x, outs, [1] * len(outs), o.attrs["axis"] % len(x.shape), gather=False)


@unstack.grad().lower("cpu")
def unstack_grad_cpu(o: Lowering) -> None:
    """Join the gradients."""
    out, parts = o.output("X@GRAD"), o.inputs("Y@GRAD")
    _parts(o, out, parts, [1] * len(parts), o.attrs["axis"] % len(out.shape), gather=True)


# --- CUDA -------------------------------------------------------------------------------------------------------------


also_on_cuda(concat, split, stack, unstack)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("concat")
def concat_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("Concat", o.ins("X"), to="Out", axis=o.attrs["axis"])


@in_onnx("split")
def split_onnx(o: Writer) -> None:
    """ONNX's own, with the size of every part."""
    outs = o.op.outputs["Out"]
    axis = o.attrs["axis"]
    if o.attrs["sections"]:
        # Types have the size of the part that -1 left to be worked out.
        sizes = [o.type_of(name).shape[axis] for name in outs]
        o.nodes("Split", [o.x(), o.const(sizes)], outs, axis=axis)
    else:
        o.nodes("Split", [o.x()], outs, axis=axis, num_outputs=len(outs))


@in_onnx("stack")
def stack_onnx(o: Writer) -> None:
    """A new axis for each, then joined."""
    axis = o.const([o.attrs["axis"]])
    o.node("Concat", [o.node("Unsqueeze", [name, axis]) for name in o.ins("X")], to="Y", axis=o.attrs["axis"])


@in_onnx("unstack")
def unstack_onnx(o: Writer) -> None:
    """Cut into single slices, whose axis goes."""
    outs = o.op.outputs["Y"]
    parts = [o.fresh() for _ in outs]
    o.nodes("Split", [o.x()], parts, axis=o.attrs["axis"], num_outputs=len(outs))
    for part, out in zip(parts, outs, strict=True):
        o.nodes("Squeeze", [part, o.const([o.attrs["axis"]])], [out])
