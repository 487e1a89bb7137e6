"""tril_triu: the lower or upper triangle of matrices, zeros elsewhere."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face, Functional
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import InPlace


@kernel
def keep_triangle(x: Ptr, out: Ptr, matrices: Int, rows: Int, columns: Int, diagonal: Int, lower: Int):
    """out = x where column - row <= diagonal (lower) or >= diagonal, else 0; out may be x."""
    for m in range(matrices):
        for i in range(rows):
            at = (m * rows + i) * columns
            for j in range(columns):
                inside = j - i <= diagonal if lower else j - i >= diagonal
                # Chosen, not multiplied by 0 or 1: what is outside may be infinite, and 0 times that is NaN.
                out[at + j] = x[at + j] if inside else T(0)


@op(
    "tril_triu",
    faces=[
        Face("tril", "input diagonal name", "Keep the lower triangle of every matrix.", fixed={"lower": True}),
        Face("triu", "input diagonal name", "Keep the upper triangle of every matrix.", fixed={"lower": False}),
        Functional("tril", "x diagonal=0 name", "Keep what is on and below a diagonal.", layer="tril", at="tensor"),
        Functional("triu", "x diagonal=0 name", "Keep what is on and above a diagonal.", layer="triu", at="tensor"),
    ],
    inputs="X",
    attrs={
        "diagonal": Attr(0, "the last diagonal kept: 0 is the main one, above 0 lies above it"),
        "lower": Attr(True, "keep the lower triangle, otherwise the upper one"),
    },
    traits=[InPlace({"Out": "X"})],
    samples=[
        Sample({"X": (3, 5)}, {}, "the lower triangle of a wide matrix"),
        Sample({"X": (5, 3)}, {"lower": False}, "the upper triangle of a tall matrix"),
        Sample({"X": (2, 4, 4)}, {"diagonal": 1}, "two matrices, one diagonal more"),
        Sample({"X": (4, 4)}, {"diagonal": -2, "lower": False}, "an upper triangle from below the main diagonal"),
        Sample({"X": (1, 1)}, {}, "one element"),
        Sample({"X": (0, 3)}, {}, "no row"),
    ],
)
def tril_triu(x: TensorType, *, diagonal: int, lower: bool) -> TensorType:
    """Keep one triangle of every matrix.

    Out[.., i, j] = X[.., i, j] where j - i <= diagonal (lower) or j - i >= diagonal (upper), else 0

    Args:
        X: [.., rows, columns], any dtype.
        diagonal: the last one kept.
        lower: which triangle.

    Returns:
        Out: type of X.

    Raises:
        PeError: X has fewer than two axes.

    Source:
        fluid.layers.tril and triu.
    """
    if len(x.shape) < 2:
        raise PeError(f"tril and triu need at least two axes, got {x}")
    return x


def _keep(o: Lowering, x: Buffer, out: Buffer) -> None:
    rows, columns = out.shape[-2:]
    if out.size:
        matrices = out.size // (rows * columns)
        o.call(keep_triangle, x, out, matrices, rows, columns, o.attrs["diagonal"], int(o.attrs["lower"]))


@tril_triu.lower("cpu")
def tril_triu_cpu(o: Lowering) -> None:
    """One loop."""
    _keep(o, o.input("X"), o.output("Out"))


@tril_triu.grad().lower("cpu")
def tril_triu_grad_cpu(o: Lowering) -> None:
    """The same triangle of the gradient."""
    _keep(o, o.input("Out@GRAD"), o.output("X@GRAD"))


# --- CUDA -------------------------------------------------------------------------------------------------------------


@on_cuda(keep_triangle)
def keep_triangle_cuda(x: Ptr, out: Ptr, matrices: Int, rows: Int, columns: Int, diagonal: Int, lower: Int):
    """One thread per element."""
    for e in range(matrices * rows * columns):
        line = quotient(e, columns)
        away = e - line * columns - (line - quotient(line, rows) * rows)
        inside = away <= diagonal if lower else away >= diagonal
        out[e] = x[e] if inside else T(0)


also_on_cuda(tril_triu)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("tril_triu")
def triangle_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("Trilu", [o.x(), o.const(o.attrs["diagonal"])], to="Out", upper=int(not o.attrs["lower"]))
