"""cast: another element type."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import BFLOAT16, TensorType, check_dtype, computed
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU8, kernel
from pe_cli.ops.define.copy_kernels import convert, copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Layout, SameNumbers


@kernel(scalar=True)
def convert_to_byte(x: Ptr, out: PtrU8, n: Int):
    """out = x modulo 256; straight from a float, a negative number has no defined byte."""
    for i in range(n):
        out[i] = np.uint8(np.int64(x[i]) & 255)


@kernel(scalar=True)
def convert_to_bool(x: Ptr, out: PtrU8, n: Int):
    """out = 1 where x is not 0 (NaN is not 0)."""
    for i in range(n):
        out[i] = x[i] != 0


def _mixed(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-5.0, 5.0, (3, 7)).astype("float64")


# Central differences of 1e-6 drown in the steps of float32, so the gradient is checked on float64 only.
_OTHERS = [Sample({"X": _mixed}, {"out_dtype": kind}, f"to {kind}", grad=False) for kind in ("float32", "int64", "int32", "bool")]


@op(
    "cast",
    inputs="X",
    attrs={
        "in_dtype": Attr("", "element type of X; empty for whatever it is"),
        "out_dtype": Attr("float32", "element type of Out"),
    },
    traits=[Layout(), SameNumbers()],
    samples=[
        Sample({"X": (3, 4)}, {"out_dtype": "float64"}, "to float64"),
        *_OTHERS,
        Sample({"X": lambda rng: rng.integers(-9, 9, (2, 5))}, {"out_dtype": "float32"}, "from int64"),
        Sample({"X": (0, 3)}, {"out_dtype": "int32"}, "empty", grad=False),
    ],
)
def cast(x: TensorType, *, in_dtype: str, out_dtype: str) -> TensorType:
    """Convert to another element type.

    Out = X; fractions are cut off on the way to integers (NaN and numbers out of range become undefined ones), bytes are taken modulo 256,
    bool is whether X differs from 0. To bfloat16 numbers are rounded as float32, to the nearest, of ties to the even one; all ops read it
    as float32. The gradient is cast back.

    Args:
        X: any shape and dtype.
        in_dtype: dtype of X, may be left out.
        out_dtype: dtype of Out.

    Returns:
        Out: shape of X.

    Raises:
        PeError: an unknown dtype, or in_dtype is not X's.

    Source:
        fluid.layers.cast.
    """
    if in_dtype and check_dtype(in_dtype) != x.dtype:
        raise PeError(f"cast: in_dtype is {in_dtype}, and X is {x}", hint="leave in_dtype away")
    return TensorType(x.shape, check_dtype(out_dtype))


def _convert(o: Lowering, x: Buffer, out: Buffer) -> None:
    if x.dtype == out.dtype:
        o.call(copy, x, out, out.size)
    # A plain conversion would make false of 0.5, and has no defined byte for a negative float.
    elif out.dtype == "bool":
        o.call(convert_to_bool, x, out, out.size)
    elif out.dtype == "uint8":
        o.call(convert_to_byte, x, out, out.size)
    else:
        o.call(convert, x, out, out.size)


@cast.sequences()
def cast_lod(s: LodRequest) -> None:
    """Whole numbers stay what they are, and rows too."""
    x = s.inputs["X"][0]
    if x in s.known and s.attrs["out_dtype"] == "int64":
        s.know("Out", s.known[x])
    s.out("Out", *s.lod("X"))


@cast.lower("cpu")
def cast_cpu(o: Lowering) -> None:
    """One loop."""
    _convert(o, o.input("X"), o.output("Out"))


@cast.grad().lower("cpu")
def cast_grad_cpu(o: Lowering) -> None:
    """The gradient in X's type."""
    _convert(o, o.input("Out@GRAD"), o.output("X@GRAD"))


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(convert_to_byte, convert_to_bool)
also_on_cuda(cast)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("cast")
def cast_onnx(o: Writer) -> None:
    """Append ONNX's Cast; to bfloat16 and back to float32 at once, because all ops read bfloat16 as float32."""
    kind = o.attrs["out_dtype"]
    x = o.node("Cast", [o.x()], to_=element_type(BFLOAT16)) if kind == BFLOAT16 else o.x()
    o.node("Cast", [x], to="Out", to_=element_type(computed(kind)))
