"""strided_slice: every few elements of ranges of some axes, also backwards."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrI64
from pe_cli.ops.define.axes import normal_axis
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import copy_box, place_of, row_major
from pe_cli.ops.define.traits import FedSizes, RowWise

_FED = FedSizes({"Starts": "starts", "Ends": "ends", "Strides": "strides"})


@op(
    "strided_slice",
    traits=[RowWise(lambda attrs, shapes: all(axis > 0 for axis in attrs["axes"])), _FED],
    inputs="Input Starts? Ends? Strides?",
    differentiable="Input",
    attrs={
        "axes": Attr([], "which axes are cut"),
        "starts": Attr([], "first index of each; negative from the end"),
        "ends": Attr([], "index that is not reached, of each; negative from the end"),
        "strides": Attr([], "steps between indices, not 0; below 0 backwards"),
    },
    samples=[
        Sample({"Input": (7, 4)}, {"axes": [0], "starts": [1], "ends": [6], "strides": [2]}, "rows"),
        Sample(
            {"Input": (3, 5, 4)}, {"axes": [1, 2], "starts": [-1, 0], "ends": [-100, 100], "strides": [-2, 3]}, "backwards, and clamped"
        ),
        Sample({"Input": (1,)}, {"axes": [0], "starts": [0], "ends": [1], "strides": [5]}, "one element"),
        Sample({"Input": (0, 4)}, {"axes": [-1], "starts": [3], "ends": [0], "strides": [-1]}, "empty batch"),
    ],
)
def strided_slice(
    x: TensorType,
    fed_starts: TensorType | None = None,
    fed_ends: TensorType | None = None,
    fed_strides: TensorType | None = None,
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    strides: list[int],
) -> TensorType:
    """Take every few elements of ranges of some axes.

    Out = Input[starts[0]:ends[0]:strides[0], ...] along the given axes, as Python slices.

    Args:
        Input: any.
        Starts, Ends, Strides: [axes that are cut] integers, instead of the attributes: only known in the step.
        axes: which axes are cut.
        starts: first index of each.
        ends: index that is not reached, of each.
        strides: steps of each.

    Returns:
        Out: as many axes as Input.

    Raises:
        PeError: the lists differ in length, a stride of 0, or an axis is out of range, there twice, or keeps nothing.

    Source:
        fluid.layers.strided_slice.
    """
    where = [normal_axis("strided_slice", a, len(x.shape)) for a in axes]
    if len(set(where)) < len(where):
        raise PeError(f"strided_slice cuts an axis twice: axes {axes}")
    if any(fed is not None for fed in (fed_starts, fed_ends, fed_strides)):
        return x.with_shape(*(-1 if i in where else s for i, s in enumerate(x.shape)))
    if len({len(v) for v in (axes, starts, ends, strides)}) > 1 or 0 in strides:
        text = f"axes {axes}, starts {starts}, ends {ends}, strides {strides}"
        raise PeError(f"strided_slice needs a number in each list for every axis, and strides that are not 0; got {text}")
    out = list(x.shape)
    for a, *numbers in zip(where, starts, ends, strides, strict=True):
        if out[a] >= 0:
            size, out[a] = out[a], len(range(*slice(*numbers).indices(out[a])))
            if size and not out[a]:
                raise PeError(f"strided_slice of {x} keeps nothing of axis {a}: start {numbers[0]}, end {numbers[1]}, stride {numbers[2]}")
    return x.with_shape(*out)


def _places(o: Lowering, shape: tuple[int, ...]) -> tuple[int, list[int]]:
    """Return the offset of the first element that is taken, and the steps from one to the next along every axis."""
    steps, first = row_major(shape), 0
    strided = list(steps)
    for a, *numbers in zip(*(o.attrs[name] for name in ("axes", "starts", "ends", "strides")), strict=True):
        at = a % len(shape)
        begin, _, stride = slice(*numbers).indices(shape[at])
        first += begin * steps[at]
        strided[at] = stride * steps[at]
    return first, strided


@strided_slice.lower("cpu")
def strided_slice_cpu(o: Lowering) -> None:
    """One copy."""
    x, out = o.input("Input"), o.output("Out")
    first, steps = _places(o, x.shape)
    copy_box(o, x, out, out.shape, steps, row_major(out.shape), x_start=first)


@strided_slice.grad(uses="Starts Ends Strides", traits=[_FED]).lower("cpu")
def strided_slice_grad_cpu(o: Lowering) -> None:
    """Zeros around and between the gradient."""
    gradient, out = o.input("Out@GRAD"), o.output("Input@GRAD")
    first, steps = _places(o, out.shape)
    o.call(fill, out, out.size, 0.0)
    copy_box(o, gradient, out, gradient.shape, row_major(gradient.shape), steps, y_start=first)


# --- CUDA -------------------------------------------------------------------------------------------------------------


@cuda_kernel
def take(x: Ptr, out: Ptr, geometry: PtrI64, rank: Int, first: Int, count: Int):
    """out = the elements of x at first and on; steps may lead backwards, so x is given whole."""
    for e in range(count):
        out[e] = x[first + place_of(e, rank, geometry, 1)]


@cuda_kernel
def put(x: Ptr, out: Ptr, geometry: PtrI64, rank: Int, first: Int, count: Int):
    """The elements of out at first and on = x."""
    for e in range(count):
        out[first + place_of(e, rank, geometry, 1)] = x[e]


def _walk(sizes: Sequence[int], steps: Sequence[int]) -> tuple[Numbers, int]:
    """Return geometry for `place_of` and its rank."""
    # `place_of` has three numbers for each axis; the third is the target's step, which nothing reads here.
    return Numbers(tuple(v for size, step in zip(reversed(sizes), reversed(steps), strict=True) for v in (size, step, 0))), len(sizes)


@strided_slice.lower("cuda")
def strided_slice_cuda(o: Lowering) -> None:
    """One thread per element."""
    x, out = o.input("Input"), o.output("Out")
    first, steps = _places(o, x.shape)
    o.call(take, x, out, *_walk(out.shape, steps), first, out.size)


@strided_slice.grad_op.lower("cuda")  # type: ignore[union-attr]
def strided_slice_grad_cuda(o: Lowering) -> None:
    """Zeros around and between the gradient."""
    gradient, out = o.input("Out@GRAD"), o.output("Input@GRAD")
    first, steps = _places(o, out.shape)
    o.call(fill, out, out.size, 0.0)
    o.call(put, gradient, out, *_walk(gradient.shape, steps), first, gradient.size)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("strided_slice")
def strided_slice_onnx(o: Writer) -> None:
    """ONNX's own, with the steps."""
    lists = [o.const(o.attrs[name]) for name in ("starts", "ends", "axes", "strides")]
    o.node("Slice", [o.x("Input"), *lists], to="Out")
