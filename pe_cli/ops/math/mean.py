"""mean: the average of all elements, as a tensor of shape [1]."""

from __future__ import annotations

import math

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda import cuda_kernel, deal
from pe_cli.kernels.lang import Int, Ptr, PtrF64, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Sample, op

#: Terms of one partial sum: short enough that float32 keeps its digits, long enough to vectorise.
CHUNK = 1024


@helper
def pairwise_sum(x, n):
    """Sum n elements in fixed chunks, whose sums are added in float64 order-independently of threads."""
    total = 0.0
    for begin in range(0, n, CHUNK):
        part = T(0)
        for i in range(begin, min(n, begin + CHUNK)):
            part += x[i]
        total += part
    return total


@kernel
def mean_all(x: Ptr, out: Ptr, n: Int):
    """out[0] = sum(x) / n."""
    out[0] = T(pairwise_sum(x, n) / n)


@kernel
def mean_back(gradient: Ptr, out: Ptr, n: Int):
    """Every element gets gradient / n."""
    share = gradient[0] / T(n)
    for i in range(n):
        out[i] = share


@op(
    "mean",
    inputs="X",
    samples=[
        Sample({"X": (3, 5)}),
        Sample({"X": (1,)}, name="one element"),
        Sample({"X": (40, 70)}, name="several chunks"),
    ],
)
def mean(x: TensorType) -> TensorType:
    """Average all elements.

    Out[0] = sum(X) / size(X); NaN for an empty X, as in NumPy.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: shape [1], element type of X.

    Source:
        fluid.layers.mean.
    """
    return x.with_shape(1)


@mean.lower("cpu")
def mean_cpu(o: Lowering) -> None:
    """Partial sums of fixed size."""
    x = o.input("X")
    o.call(mean_all, x, o.output("Out"), x.size)


@mean.grad(uses="X").lower("cpu")
def mean_grad_cpu(o: Lowering) -> None:
    """One constant."""
    out = o.output("X@GRAD")
    o.call(mean_back, o.input("Out@GRAD"), out, out.size)


# --- CUDA -------------------------------------------------------------------------------------------------------------


#: Most partial sums of a whole tensor: as many threads work on it.
PARTS = 1024


@cuda_kernel
def sum_parts(x: Ptr, parts: PtrF64, count: Int, n: Int):
    """parts[p] = the sum of x[p], x[p + count], ..."""
    for p in range(count):
        total = 0.0
        for i in range(p, n, count):
            total += x[i]
        parts[p] = total


@cuda_kernel
def mean_of_parts(parts: PtrF64, out: Ptr, count: Int, n: Int):
    """out[0] = sum(parts) / n, NaN where n is 0."""
    for r in range(1):
        total = 0.0
        for p in range(count):
            total += parts[p]
        out[r] = T(total / n) if n > 0 else T(math.nan)


def parts_of(n: int) -> int:
    """Return how many partial sums n elements are worth."""
    return max(1, min(PARTS, n // 64))


@mean.lower("cuda")
def mean_cuda(o: Lowering) -> None:
    """Partial sums side by side, then their sum; both orders are fixed."""
    x, count = o.input("X"), parts_of(o.input("X").size)
    parts = o.scratch(count, "float64")
    o.call(sum_parts, x, parts, count, x.size)
    o.call(mean_of_parts, parts, o.output("Out"), count, x.size, dtype=x.dtype)


deal(mean_back)
also_on_cuda(mean)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("mean")
def mean_onnx(o: Writer) -> None:
    """Over all elements, as fluid's vector of one."""
    o.node("Reshape", [o.node("ReduceMean", [o.x()], keepdims=0), o.const(o.out_type().shape)], to="Out")
