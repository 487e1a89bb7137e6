"""mean: the average of all elements, as a tensor of shape [1]."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, T, helper, kernel
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Sample, op


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
    faces=[Face("", "x name")],
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


deal(mean_back)
assert mean.grad_op
also_on_cuda(mean.grad_op)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("mean")
def mean_onnx(o: Writer) -> None:
    """Over all elements, as fluid's vector of one."""
    o.node("Reshape", [o.node("ReduceMean", [o.x()], keepdims=0), o.const(o.out_type().shape)], to="Out")
