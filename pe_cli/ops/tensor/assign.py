"""assign: a copy; assign_value: values written in the program."""

from __future__ import annotations

import struct

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType, check_dtype
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, T, kernel
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import MAX_KNOWN, LodRequest, constant
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, in_onnx, same_in_onnx
from pe_cli.ops.define.registry import Attr, GradRequest, OpDesc, Sample, op
from pe_cli.ops.define.traits import Folds, Layout, SameNumbers, View


@op(
    "assign",
    inputs="X",
    traits=[Layout(), View({"Out": "X"}), SameNumbers(), Folds(lambda numbers, attrs: numbers[0])],
    samples=[Sample({"X": (3, 4)}), Sample({"X": (0,)}, name="empty")],
)
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


@kernel
def write_reals(values: PtrF64, out: Ptr, n: Int):
    """out = values."""
    for i in range(n):
        out[i] = T(values[i])


@kernel
def write_integers(values: PtrI64, out: Ptr, n: Int):
    """out = values."""
    for i in range(n):
        out[i] = T(values[i])


@op(
    "assign_value",
    attrs={
        "shape": Attr([1], "sizes; no batch axis"),
        "dtype": Attr("float32", "element type"),
        "values": Attr([], "one number per element, in row-major order, no unit"),
    },
    samples=[
        Sample({}, {"shape": [2, 2], "values": [1.5, -2.0, 0.0, 4.25]}, "four reals"),
        Sample({}, {"shape": [3], "dtype": "int64", "values": [1, -2, 2**60]}, "integers keep every digit"),
        Sample({}, {"shape": [0], "values": []}, "nothing"),
    ],
)
def assign_value(*, shape: list[int], dtype: str, values: list[float]) -> TensorType:
    """Make a tensor of given values.

    Args:
        shape: sizes.
        dtype: element type.
        values: as many as the shape has elements.

    Returns:
        Out: of that shape and element type.

    Raises:
        PeError: a negative size or an unknown dtype; for a step, another number of values.

    Source:
        fluid.layers.assign with an array.
    """
    if any(s < 0 for s in shape):
        raise PeError(f"assign_value needs sizes of at least 0, got shape {shape}")
    return TensorType(tuple(shape), check_dtype(dtype))


@assign_value.lower("cpu")
def assign_value_cpu(o: Lowering) -> None:
    """One loop over the values, which lie beside the tape.

    Raises:
        PeError: there are not as many values as elements.
    """
    out, values = o.output("Out"), o.attrs["values"]
    if len(values) != out.size:
        shape = list(out.shape)
        raise PeError(f"assign_value got {len(values)} values for '{out.name}' of shape {shape}, which has {out.size} elements")
    if out.dtype in FLOATS:
        # The bits of float64 numbers, carried in int64 words.
        o.call(
            write_reals,
            Numbers(struct.unpack(f"{len(values)}q", struct.pack(f"{len(values)}d", *values))),
            out,
            out.size,
        )
    else:
        o.call(write_integers, Numbers(tuple(int(v) for v in values)), out, out.size)


@assign_value.sequences()
def assign_value_known(s: LodRequest) -> None:
    """Whole numbers are known before the step."""
    if s.attrs["dtype"] in ("int64", "int32") and len(s.attrs["values"]) <= MAX_KNOWN:
        s.know("Out", s.derive(constant, values=[int(v) for v in s.attrs["values"]]))


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(write_reals, write_integers)


also_on_cuda(assign, assign_value)


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx({"assign": "Identity"})


@in_onnx("assign_value")
def assign_value_onnx(o: Writer) -> None:
    """A constant."""
    kind = o.attrs["dtype"]
    o.node("Identity", [o.const(np.asarray(o.attrs["values"]).reshape(o.attrs["shape"]), dtype=kind)], to="Out")
