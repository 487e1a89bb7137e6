"""one_hot: class numbers become rows with a single one."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType, check_dtype, product
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import classes, per_sample, report
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FedSizes, ReportsData


@kernel
def mark(x: PtrI64, out: Ptr, count: Int, depth: Int, lenient: Int, per: Int, status: Status):
    """out[i] = 0, and 1 at x[i]; lenient: nothing for a class that is not there."""
    for j in range(count * depth):
        out[j] = T(0)
    for i in range(count):
        k = x[i]
        if k >= 0 and k < depth:
            out[i * depth + k] = T(1)
        elif not lenient:
            report(status, i // per, k, depth)
            return


@op(
    "one_hot",
    traits=[ReportsData(), FedSizes({"Depth": "depth"})],
    inputs="X Depth?",
    attrs={
        "depth": Attr(1, "number of classes"),
        "dtype": Attr("float32", "element type of the output", FLOATS),
        "allow_out_of_range": Attr(False, "a class that is not in [0, depth) gives zeros instead of an error"),
    },
    differentiable="",
    samples=[
        Sample({"X": classes(0, 5, 4, 1)}, {"depth": 5}, "a column of classes"),
        Sample({"X": classes(0, 5, 4)}, {"depth": 5, "dtype": "float64"}, "a vector of classes"),
        Sample({"X": classes(-3, 9, 6)}, {"depth": 5, "allow_out_of_range": True}, "out of range and allowed"),
        Sample({"X": classes(0, 5, 0, 1)}, {"depth": 5}, "empty batch"),
    ],
)
def one_hot(x: TensorType, fed: TensorType | None = None, *, depth: int, dtype: str, allow_out_of_range: bool) -> TensorType:
    """Turn class numbers into rows with a single one.

    Out[..., j] = 1 where j = X[...], else 0.

    Args:
        X: [..., 1] or [n] int64; class numbers from 0.
        Depth: [1] integer, instead of the attribute: only known in the step.
        depth: number of classes, at least 1.
        dtype: of the output.
        allow_out_of_range: see the attribute.

    Returns:
        Out: [..., depth] element type dtype; a last axis of 1 in X is replaced.

    Raises:
        PeError: X is not int64, or depth < 1; while running, a class that is not in [0, depth).

    Source:
        fluid.layers.one_hot.
    """
    if x.dtype != "int64":
        raise PeError(f"one_hot needs X of type int64, got {x}", hint="cast it to int64")
    if fed is None and depth < 1:
        raise PeError(f"one_hot needs depth >= 1, got {depth}")
    leading = x.shape[:-1] if len(x.shape) > 1 and x.shape[-1] == 1 else x.shape
    return TensorType((*leading, depth if fed is None else -1), check_dtype(dtype))


@one_hot.lower("cpu")
def one_hot_cpu(o: Lowering) -> None:
    """Zeros, then ones."""
    x, count = o.input("X"), product(o.input("X").shape)
    per = per_sample(count, x.shape)
    lenient = int(o.attrs["allow_out_of_range"])
    o.call(mark, x, o.output("Out"), count, o.attrs["depth"], lenient, per, STATUS)


@on_cuda(mark)
def mark_cuda(x: PtrI64, out: Ptr, count: Int, depth: Int, lenient: Int, per: Int, status: Status):
    """One thread per element."""
    for e in range(count * depth):
        row = quotient(e, depth)
        k, column = x[row], e - row * depth
        out[e] = T(1) if k == column else T(0)
        # All threads of a row see its bad class; one of them is enough to report it.
        if column == 0 and (k < 0 or k >= depth) and not lenient:
            report(status, row // per, k, depth)


also_on_cuda(one_hot)


@in_onnx("one_hot")
def one_hot_onnx(o: Writer) -> None:
    """Rows with a single one."""
    x, name = o.type(), o.x()
    if len(x.shape) == 1 or x.shape[-1] != 1:
        name = o.node("Unsqueeze", [name, o.const([-1])])
    found = o.node("Equal", [name, o.const(np.arange(o.attrs["depth"]))])
    o.node("Cast", [found], to="Out", to_=element_type(o.attrs["dtype"]))
