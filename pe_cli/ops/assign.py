"""assign: a copy."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.kernels.lang import Int, Ptr, kernel
from pe_cli.ops.lowering import Lowering
from pe_cli.ops.registry import GradRequest, OpDesc, Sample, op


@kernel
def copy(x: Ptr, out: Ptr, n: Int):
    """out = x."""
    for i in range(n):
        out[i] = x[i]


@op("assign", inputs="X", inplace={"Out": "X"}, samples=[Sample({"X": (3, 4)}), Sample({"X": (0,)}, name="empty")])
def assign(x: TensorType) -> TensorType:
    """Copy a tensor.

    Args:
        X: any.

    Returns:
        Out: type and values of X.

    Source:
        fluid.layers.assign.
    """
    return x


@assign.lower("cpu")
def assign_cpu(o: Lowering) -> None:
    """One loop."""
    x, out = o.input("X"), o.output("Out")
    o.call(copy, x, out, out.size)


@assign.make_grad
def assign_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient passes."""
    (gradient,) = request.grads.values()
    return [OpDesc("assign", {"X": [gradient]}, {"Out": [name]}) for name in request.wanted.values()]
