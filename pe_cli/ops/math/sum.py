"""sum: add several tensors of one shape; what gradients of a variable with several readers go through."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrI64, kernel, pointer
from pe_cli.kernels.math.tree_sum import BLOCK
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.lowering import Lowering, Table
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import GradRequest, OpDesc, Sample, op
from pe_cli.ops.define.traits import AddsAll, Folds, InPlace, Layout, Pointwise, Scalar
from pe_cli.ops.math.elementwise import ADD


@kernel(exact=True)
def sum_tables(out: Ptr, sources: PtrI64, count: Int, n: Int):
    """out = sources[0] + sources[1] + ... in that order; out may be one of them."""
    # Block by block: what has been added up stays in the nearest cache, while all inputs pass by it.
    for begin in range(0, n, BLOCK):
        end = min(n, begin + BLOCK)
        x = pointer(sources[0])
        if count == 1:
            for i in range(begin, end):
                out[i] = x[i]
        else:
            y = pointer(sources[1])
            for i in range(begin, end):
                out[i] = x[i] + y[i]
        for k in range(2, count):
            z = pointer(sources[k])
            for i in range(begin, end):
                out[i] += z[i]


@op(
    "sum",
    inputs="X*",
    traits=[AddsAll(), Layout(), InPlace({"Out": "X"})],
    samples=[
        Sample({"X": [(3, 4), (3, 4)]}, name="two"),
        Sample({"X": [(5,)]}, name="one is copied"),
        Sample({"X": [(2, 3), (2, 3), (2, 3), (2, 3)]}, name="four"),
        Sample({"X": [(0, 3), (0, 3)]}, name="empty"),
    ],
)
def sum_op(xs: list[TensorType]) -> TensorType:
    """Add tensors of one type, in order.

    Out = X[0] + X[1] + ...

    Args:
        X: one or more tensors of the same shape and element type.

    Returns:
        Out: their type.

    Raises:
        PeError: no input, or inputs of different types.

    Source:
        fluid.layers.sums.
    """
    if not xs:
        raise PeError("sum needs at least one input")
    found = xs[0]
    for x in xs[1:]:
        pairs = list(zip(x.shape, found.shape, strict=False))
        if x.dtype != found.dtype or len(x.shape) != len(found.shape) or any(-1 not in p and p[0] != p[1] for p in pairs):
            raise PeError(f"sum needs inputs of one type, got {xs[0]} and {x}")
        found = found.with_shape(*(max(p) for p in pairs))
    return found


@sum_op.lower("cpu")
def sum_cpu(o: Lowering) -> None:
    """Block by block through all inputs."""
    xs, out = o.inputs("X"), o.output("Out")
    o.call(sum_tables, out, Table(tuple(xs)), len(xs), out.size)


def _scalars(attrs: Mapping[str, Any], inputs: Mapping[str, Sequence[Any]]) -> list[Scalar]:
    """In the order of the inputs, as `sum_tables` does."""
    count = len(inputs["X"])
    if count == 1:
        return [Scalar("Out", None, ("X 0",))]
    names = ["X 0", *(f"sum {k}" for k in range(2, count)), "Out"]
    return [Scalar(names[k], ADD, (names[k - 1], f"X {k}")) for k in range(1, count)]


sum_op.give(Pointwise(_scalars), Folds(lambda numbers, attrs: functools.reduce(operator.add, numbers)))


@sum_op.make_grad
def sum_grad(request: GradRequest) -> list[OpDesc]:
    """Every input's gradient is the output's."""
    (gradient,) = (request.grads[n] for n in request.op.outputs["Out"])
    times = {n: request.op.inputs["X"].count(n) for n in request.wanted}
    return [
        OpDesc("scale", {"X": [gradient]}, {"Out": [out]}, {"scale": float(times[n])})
        if times[n] > 1
        else OpDesc("assign", {"X": [gradient]}, {"Out": [out]})
        for n, out in request.wanted.items()
    ]


# --- CUDA -------------------------------------------------------------------------------------------------------------


@cuda_kernel
def add_two(x: Ptr, y: Ptr, out: Ptr, n: Int):
    """out = x + y; out may be x."""
    for i in range(n):
        out[i] = x[i] + y[i]


@sum_op.lower("cuda")
def sum_cuda(o: Lowering) -> None:
    """Make one launch for each input."""
    first, *others = o.inputs("X")
    out = o.output("Out")
    if not others:
        o.call(copy, first, out, out.size)
    for other in others:
        o.call(add_two, first, other, out, out.size)
        # From the second input on, the sum so far is the output itself.
        first = out


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("sum")
def total_onnx(o: Writer) -> None:
    """All inputs added."""
    o.node("Sum", o.ins("X"), to="Out")
