"""cvm: the first two columns, how often something was shown and clicked, as logarithms."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.kernels.math.vector_math import log
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def counted(x: Ptr, out: Ptr, rows: Int, width: Int, uses: Int):
    """out[r] = x[r] with logarithms in the first two columns, or without these."""
    for r in range(rows):
        if uses:
            show = log(x[r * width] + T(1))
            out[r * width] = show
            out[r * width + 1] = log(x[r * width + 1] + T(1)) - show
            for j in range(2, width):
                out[r * width + j] = x[r * width + j]
        else:
            for j in range(2, width):
                out[r * (width - 2) + j - 2] = x[r * width + j]


@kernel
def counted_back(given: Ptr, g: Ptr, dx: Ptr, rows: Int, width: Int, uses: Int):
    """dx[r] = g[r], but what is given in the first two columns."""
    for r in range(rows):
        for j in range(width):
            # Not a derivative: in this way the original brings the counts back to the table that the embedding came from.
            if j < 2:
                dx[r * width + j] = given[2 * r + j]
            elif uses:
                dx[r * width + j] = g[r * width + j]
            else:
                dx[r * width + j] = g[r * (width - 2) + j - 2]


def _seen(rng):
    return rng.uniform(0.5, 2.0, (4, 5))


@op(
    "cvm",
    inputs="X CVM",
    outputs="Y",
    attrs={"use_cvm": Attr(True, "keep the first two columns")},
    differentiable="X",
    samples=[
        Sample({"X": _seen, "CVM": (4, 2)}, name="with the two columns", grad=False),
        Sample({"X": _seen, "CVM": (4, 2)}, {"use_cvm": False}, "without", grad=False),
    ],
)
def cvm(x: TensorType, given: TensorType, *, use_cvm: bool) -> TensorType:
    """Make logarithms of how often something was shown and clicked, or leave both out.

    Y[r, 0] = ln(X[r, 0] + 1), Y[r, 1] = ln(X[r, 1] + 1) - ln(X[r, 0] + 1); the gradient of both columns of X is CVM, as in the original.

    Args:
        X: [rows, width] float32 or float64; shown and clicked first.
        CVM: [rows, 2] element type of X.
        use_cvm: keep the two columns.

    Returns:
        Y: [rows, width], or [rows, width - 2].

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.continuous_value_model.
    """
    if len(x.shape) != 2 or x.shape[1] < 3 or x.dtype not in FLOATS or given != x.with_shape(given.shape[0], 2):
        raise PeError(f"cvm needs X [rows, 3 or more] and CVM [rows, 2], got {x} and {given}")
    return x if use_cvm else x.with_shape(x.shape[0], x.shape[1] - 2)


@cvm.lower("cpu")
def cvm_cpu(o: Lowering) -> None:
    """Row by row."""
    x = o.input("X")
    o.call(counted, x, o.output("Y"), *x.shape, int(o.attrs["use_cvm"]))


@cvm.grad(uses="CVM").lower("cpu")
def cvm_grad_cpu(o: Lowering) -> None:
    """Row by row."""
    dx = o.output("X@GRAD")
    o.call(counted_back, o.input("CVM"), o.input("Y@GRAD"), dx, *dx.shape, int(o.attrs["use_cvm"]))


deal(counted, counted_back)
also_on_cuda(cvm)
