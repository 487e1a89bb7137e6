"""Ops that give the same elements another shape: reshape, flatten, squeeze, unsqueeze.

They cost nothing: both names are one memory.
"""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.ops.define.axes import normal_axis
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, OpDef, Sample, op
from pe_cli.ops.define.traits import FedSizes, RowWise, SameNumbers, View

SHARED = {"Out": "X"}
SHARED_BACK = {"X@GRAD": "Out@GRAD"}


@op(
    "reshape",
    inputs="X Shape?",
    attrs={"shape": Attr([-1], "sizes; 0 keeps X's size of that axis, one -1 is worked out")},
    differentiable="X",
    traits=[View(SHARED), RowWise(), SameNumbers(), FedSizes({"Shape": "shape"})],
    samples=[
        Sample({"X": (2, 3, 4)}, {"shape": [0, -1]}, "the first axis stays, the others join"),
        Sample({"X": (6, 1)}, {"shape": [2, 3]}, "a column becomes a matrix"),
        Sample({"X": (1,)}, {"shape": [1, 1, 1]}, "one element"),
        Sample({"X": (0, 4)}, {"shape": [0, 2, -1]}, "empty batch"),
    ],
)
def reshape(x: TensorType, sizes: TensorType | None = None, *, shape: list[int]) -> TensorType:
    """Give the same elements another shape.

    Args:
        X: any.
        Shape: [axes] integers, instead of the attribute: only known in the step.
        shape: sizes; 0 keeps X's size of that axis, one -1 stands for what is left. Beside Shape as far as they are known, else -1.

    Returns:
        Out: the elements of X in row-major order.

    Raises:
        PeError: the numbers of elements differ, several -1, another negative size, or a 0 beyond X's axes.

    Source:
        fluid.layers.reshape.
    """
    if sizes is not None:
        return x.with_shape(*(s if s > 0 else x.shape[i] if s == 0 and i < len(x.shape) else -1 for i, s in enumerate(shape)))
    if any(s < -1 for s in shape) or shape.count(-1) > 1:
        raise PeError(f"reshape takes sizes of at least 1, 0 and one -1, got shape {shape}")
    rest = list(x.shape)
    out = list(shape)
    for i, size in enumerate(shape):
        if size == 0:
            if i >= len(x.shape):
                raise PeError(
                    f"reshape keeps axis {i} of X, which has only {len(x.shape)} axes: {x}", hint=f"shape is {shape}"
                )
            out[i] = x.shape[i]
            # A size that is kept counts on neither side, so that the others are worked out even where it is not known yet.
            rest[i] = 1
    left, given = product(rest), product(s for s in shape if s > 0)
    if -1 in shape:
        if left >= 0 and left % given:
            raise PeError(f"reshape of {x} to {shape}: {left} elements do not divide by {given}")
        out[shape.index(-1)] = left // given if left >= 0 else -1
    elif left >= 0 and left != given:
        raise PeError(
            f"reshape of {x} to {shape}: {left} elements do not fill {given}", hint="write -1 for the size to work out"
        )
    return x.with_shape(*out)


@op(
    "flatten",
    faces=[Face("", "x axis name")],
    inputs="X",
    attrs={"axis": Attr(1, "axes before it become rows, the others columns")},
    traits=[View(SHARED), RowWise(), SameNumbers()],
    samples=[
        Sample({"X": (2, 3, 4)}, name="all but the batch"),
        Sample({"X": (2, 3, 4)}, {"axis": 0}, "one row"),
        Sample({"X": (2, 3, 4)}, {"axis": 3}, "one column"),
        Sample({"X": (0, 3, 4)}, name="empty batch"),
    ],
)
def flatten(x: TensorType, *, axis: int) -> TensorType:
    """Make a matrix.

    Args:
        X: any.
        axis: 0 to the number of X's axes.

    Returns:
        Out: [product of X's sizes before axis, product of the others].

    Raises:
        PeError: axis is out of range.

    Source:
        fluid.layers.flatten.
    """
    if not 0 <= axis <= len(x.shape):
        raise PeError(f"flatten: axis {axis} is out of range [0, {len(x.shape)}] for {x}")
    return x.with_shape(product(x.shape[:axis]), product(x.shape[axis:]))


@op(
    "squeeze",
    faces=[Face("", "input axes! name", "Leave out axes of size 1.")],
    inputs="X",
    attrs={"axes": Attr([], "axes of size 1; none: all of them")},
    traits=[View(SHARED), RowWise(), SameNumbers()],
    samples=[
        Sample({"X": (2, 1, 3, 1)}, {"axes": [1]}, "one axis"),
        Sample({"X": (2, 1, 3, 1)}, {"axes": [-1, 1]}, "two axes, one from the end"),
        Sample({"X": (2, 1, 3, 1)}, name="every axis of size 1"),
        Sample({"X": (0, 1)}, {"axes": [1]}, "empty batch"),
    ],
)
def squeeze(x: TensorType, *, axes: list[int]) -> TensorType:
    """Drop axes of size 1.

    Args:
        X: any.
        axes: which; none drops all axes of size 1.

    Returns:
        Out: the elements of X without those axes.

    Raises:
        PeError: an axis is out of range or not of size 1, or no axes are given and a size is unknown.

    Source:
        fluid.layers.squeeze.
    """
    if not axes and not x.known:
        raise PeError(f"squeeze of {x} without axes: a batch of 1 would lose its axis", hint="name the axes")
    gone = {normal_axis("squeeze", a, len(x.shape)) for a in axes} or {i for i, s in enumerate(x.shape) if s == 1}
    for i in gone:
        if x.shape[i] not in (1, -1):
            raise PeError(f"squeeze: axis {i} of {x} has size {x.shape[i]}, not 1")
    return x.with_shape(*(s for i, s in enumerate(x.shape) if i not in gone))


@op(
    "unsqueeze",
    inputs="X Axes?",
    differentiable="X",
    attrs={"axes": Attr([0], "places of the new axes in the result")},
    traits=[View(SHARED), RowWise(), SameNumbers(), FedSizes({"Axes": "axes"})],
    samples=[
        Sample({"X": (2, 3)}, {"axes": [1]}, "in the middle"),
        Sample({"X": (2, 3)}, {"axes": [0, 3]}, "at both ends"),
        Sample({"X": (2, 3)}, {"axes": [-1]}, "last"),
        Sample({"X": (0,)}, {"axes": [1]}, "empty batch"),
    ],
)
def unsqueeze(x: TensorType, fed: TensorType | None = None, *, axes: list[int]) -> TensorType:
    """Insert axes of size 1.

    Args:
        X: any.
        Axes: [new axes] integers, instead of the attribute: only known in the step.
        axes: places in the result, inserted one after the other.

    Returns:
        Out: the elements of X with those axes.

    Raises:
        PeError: an axis is out of range.

    Source:
        fluid.layers.unsqueeze.
    """
    if fed is not None:
        return x.with_shape(*[-1] * (len(x.shape) + fed.shape[0]))
    sizes = list(x.shape)
    for axis in axes:
        sizes.insert(normal_axis("unsqueeze", axis, len(sizes) + 1), 1)
    return x.with_shape(*sizes)


def _copy_cpu(source: str, target: str) -> Any:
    """Return a lowering for programs that name one variable as input and output: there the memory is one already."""

    def lower(o: Lowering) -> None:
        x, out = o.input(source), o.output(target)
        if x is not out:
            o.call(copy, x, out, out.size)

    return lower


_FAMILY: tuple[OpDef, ...] = (reshape, flatten, squeeze, unsqueeze)
for _op in _FAMILY:
    _op.lower("cpu")(_copy_cpu("X", "Out"))
    _op.grad(traits=[View(SHARED_BACK)]).lower("cpu")(_copy_cpu("Out@GRAD", "X@GRAD"))


# --- CUDA -------------------------------------------------------------------------------------------------------------


also_on_cuda(*_FAMILY)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("reshape", "squeeze", "unsqueeze")
def reshape_onnx(o: Writer) -> None:
    """The inferred shape, with what is left for the batch."""
    given = o.attrs["shape"] if o.op.type == "reshape" else [0]
    shape = list(o.out_type().shape) if 0 in given else given
    if shape.count(-1) > 1:  # which one node of ONNX cannot find out: sizes are those of the same axes, as here
        _as_given(o)
        return
    # An empty tensor has sizes of 0, which ONNX would take for "as in X" without allowzero.
    o.node("Reshape", [o.x(), o.const(shape)], to="Out", allowzero=int(0 in shape))


@in_onnx("flatten")
def flatten_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("Flatten", [o.x()], to="Out", axis=o.attrs["axis"])


def _as_given(o: Writer) -> None:
    """Keep sizes that are not known by their axes."""
    if o.op.type == "reshape":
        o.node("Reshape", [o.x(), o.const(o.attrs["shape"])], to="Out")
        return
    rank = len((o.type() if o.op.type == "squeeze" else o.out_type()).shape)
    axes = [axis % rank for axis in o.attrs["axes"]]
    if o.op.type == "squeeze":
        axes = [axis for axis in axes or range(rank) if o.type().shape[axis] == 1]
    o.node("Squeeze" if o.op.type == "squeeze" else "Unsqueeze", [o.x(), o.const(axes)], to="Out")
