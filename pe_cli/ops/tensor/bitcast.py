"""The same bits as another element type."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, TensorType, check_dtype
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS


@op(
    "bitcast",
    faces=[Face("", "x dtype! name", example="""\
feeds:
  x: {shape: [4]}
layers:
  out: {type: bitcast, x: x, dtype: int32}
""")],
    inputs="X",
    differentiable="",
    attrs={"dtype": Attr("int32", "element type of Out, of as many bytes as that of X")},
    samples=[
        Sample({"X": lambda rng: rng.integers(0, 9, (3, 4)).astype("int32")}, {"dtype": "float32"}, "numbers of four bytes"),
        Sample({"X": lambda rng: rng.integers(0, 9, 5)}, {"dtype": "float64"}, "whole numbers"),
        Sample({"X": lambda rng: rng.integers(0, 9, (0, 2))}, {"dtype": "float64"}, "nothing"),
    ],
)  # fmt: skip
def bitcast(x: TensorType, *, dtype: str) -> TensorType:
    """Take the bits of numbers as another element type.

    Args:
        X: any shape, any element type.

    Returns:
        Out: shape of X, element type dtype.

    Raises:
        PeError: dtype is none, or has another number of bytes.

    Source:
        numpy.ndarray.view.
    """
    check_dtype(dtype)
    if DTYPES[dtype] != DTYPES[x.dtype]:
        message = f"bitcast of {x} to {dtype}: {DTYPES[x.dtype]} and {DTYPES[dtype]} bytes"
        raise PeError(message, hint="take a type of as many bytes, or cast")
    return TensorType(x.shape, dtype)


@bitcast.lower("cpu")
def bitcast_cpu(o: Lowering) -> None:
    """A copy."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        o.call(copy, x, out, out.size, dtype=MOVED_AS[DTYPES[x.dtype]])


not_in_onnx("ONNX has it from opset 26 on, which is newer than what is written", "bitcast")
