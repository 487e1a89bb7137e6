"""expand: a tensor repeated along its axes; shape: the sizes as a tensor."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import copy_box, row_major
from pe_cli.ops.define.traits import FedSizes
from pe_cli.ops.tensor.assign import write_integers

#: Copies added one after the other before sums of sums are taken: keeps float32 digits.
CHUNK = 64


@kernel
def add_copies(x: Ptr, out: Ptr, outer: Int, count: Int, chunk: Int, n: Int):
    """out[o, c, :] = sum of x[o, k, :] over k of chunk c; x is [outer, count, n]."""
    chunks = (count + chunk - 1) // chunk
    for o in range(outer):
        for c in range(chunks):
            to = (o * chunks + c) * n
            begin = c * chunk
            end = min(count, begin + chunk)
            # Numbers that lie side by side are added up in a register; longer rows are added whole, so that memory is read in its order.
            if n == 1:
                total = T(0)
                for k in range(begin, end):
                    total += x[o * count + k]
                out[to] = total
            else:
                for i in range(n):
                    out[to + i] = x[(o * count + begin) * n + i]
                for k in range(begin + 1, end):
                    for i in range(n):
                        out[to + i] += x[(o * count + k) * n + i]


@op(
    "expand",
    inputs="X ExpandTimes?",
    differentiable="X",
    traits=[FedSizes({"ExpandTimes": "expand_times"})],
    attrs={"expand_times": Attr([], "copies along each axis, at least 1")},
    samples=[
        Sample({"X": (2, 3)}, {"expand_times": [2, 1]}, "rows again"),
        Sample({"X": (2, 3)}, {"expand_times": [2, 3]}, "both axes"),
        Sample({"X": (2, 1, 3)}, {"expand_times": [1, 5, 1]}, "an axis of size 1"),
        Sample({"X": (1, 1)}, {"expand_times": [7, 150]}, "one element, many times"),
        Sample({"X": (3, 1, 2)}, {"expand_times": [1, 1, 1]}, "once"),
        Sample({"X": (0, 3)}, {"expand_times": [2, 2]}, "empty batch"),
    ],
)
def expand(x: TensorType, fed: TensorType | None = None, *, expand_times: list[int]) -> TensorType:
    """Repeat a tensor along its axes.

    Args:
        X: any.
        ExpandTimes: [axes] integers, instead of the attribute: only known in the step.
        expand_times: copies along each axis; beside ExpandTimes as far as they are known, else -1.

    Returns:
        Out: size k is expand_times[k] times X's.

    Raises:
        PeError: another number of times than axes, or one below 1.

    Source:
        fluid.layers.expand.
    """
    if fed is not None:
        times = expand_times if len(expand_times) == len(x.shape) else [-1] * len(x.shape)
        return x.with_shape(*(s * t if s >= 0 and t > 0 else -1 for s, t in zip(x.shape, times, strict=True)))
    if len(expand_times) != len(x.shape) or any(t < 1 for t in expand_times):
        raise PeError(f"expand of {x} needs {len(x.shape)} times of at least 1, got {expand_times}")
    return x.with_shape(*(-1 if s == -1 else s * t for s, t in zip(x.shape, expand_times, strict=True)))


@expand.lower("cpu")
def expand_cpu(o: Lowering) -> None:
    """One copy whose source stands still along the copies."""
    x, out = o.input("X"), o.output("Out")
    times = o.attrs["expand_times"]
    # Every axis becomes two, copies and elements; along the copies the source has a step of 0.
    box = [s for pair in zip(times, x.shape, strict=True) for s in pair]
    source = [s for step in row_major(x.shape) for s in (0, step)]
    copy_box(o, x, out, box, source, row_major(box))


@expand.grad(uses="ExpandTimes", traits=[FedSizes({"ExpandTimes": "expand_times"})]).lower("cpu")
def expand_grad_cpu(o: Lowering) -> None:
    """Add the copies up, one axis after the other, from the last."""
    gradient, out = o.input("Out@GRAD"), o.output("X@GRAD")
    if out.size == 0:
        return
    times = o.attrs["expand_times"]
    shape = [s for pair in zip(times, out.shape, strict=True) for s in pair]
    # Axes of copies, the last one first. A pass adds up at most CHUNK copies; an axis with more than one sum left is passed over again.
    todo = [i for i in reversed(range(0, len(shape), 2)) if shape[i] > 1]
    source: Buffer = gradient
    while todo:
        axis = todo[0]
        count = shape[axis]
        chunk = CHUNK if count > CHUNK else count
        outer, n = _count(shape[:axis]), _count(shape[axis + 1 :])
        shape[axis] = -(-count // chunk)
        if shape[axis] == 1:
            todo.pop(0)
        target = o.scratch(_count(shape), out.dtype) if todo else out
        o.call(add_copies, source, target, outer, count, chunk, n)
        source = target
    # Nothing was repeated.
    if source is gradient:
        o.call(copy, gradient, out, out.size)


def _count(sizes: list[int]) -> int:
    total = 1
    for s in sizes:
        total *= s
    return total


@op(
    "shape",
    faces=[Face("", "input", "Return the sizes of a tensor.")],
    inputs="Input",
    differentiable="",
    samples=[Sample({"Input": (2, 3, 4)}, name="three sizes"), Sample({"Input": (0,)}, name="an empty vector")],
)
def shape_op(x: TensorType) -> TensorType:
    """Return the sizes of a tensor as a tensor.

    Args:
        Input: any; only its type counts.

    Returns:
        Out: [number of axes] int32.

    Source:
        fluid.layers.shape.
    """
    return TensorType((len(x.shape),), "int32")


@shape_op.lower("cpu")
def shape_cpu(o: Lowering) -> None:
    """The sizes are known when a batch is planned."""
    out = o.output("Out")
    o.call(write_integers, Numbers(o.input("Input").shape), out, out.size)


# --- CUDA -------------------------------------------------------------------------------------------------------------


@on_cuda(add_copies)
def add_copies_cuda(x: Ptr, out: Ptr, outer: Int, count: Int, chunk: Int, n: Int):
    """One thread per element of out."""
    for e in range(outer * ((count + chunk - 1) // chunk) * n):
        chunks = (count + chunk - 1) // chunk
        o, c, i = e // (chunks * n), e // n % chunks, e % n
        total = T(0)
        for k in range(c * chunk, min(count, c * chunk + chunk)):
            total += x[(o * count + k) * n + i]
        out[e] = total


also_on_cuda(expand, shape_op)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("shape")
def shape_onnx(o: Writer) -> None:
    """The sizes as numbers."""
    o.node("Cast", [o.node("Shape", [o.x("Input")])], to="Out", to_=element_type(o.out_type().dtype))


@in_onnx("expand")
def expand_onnx(o: Writer) -> None:
    """Repeats along every axis."""
    o.node("Tile", [o.x(), o.const(o.attrs["expand_times"])], to="Out")
