"""Constants: fill_constant, and those in the shape of another variable, or with as many rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, check_dtype, product
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import MAX_KNOWN, LodRequest, constant, fixed, sequence_count
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Folds


def _given(numbers: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Return the value in the element type."""
    # Of an op that folds alone, the only thing in `numbers` is the element type.
    return numbers[0](attrs["value"])


@op(
    "fill_constant",
    traits=[Folds(_given, alone=True)],
    outputs="Out",
    attrs={
        "shape": Attr([1], "sizes; no batch axis"),
        "dtype": Attr("float32", "element type"),
        "value": Attr(0.0, "every element, no unit"),
    },
    samples=[
        Sample({}, {"shape": [2, 3], "value": 1.5}, "a matrix of one and a half"),
        Sample({}, {"shape": [0, 3]}, "nothing"),
    ],
)
def fill_constant(*, shape: list[int], dtype: str, value: float) -> TensorType:
    """Make a tensor whose elements all have one value.

    Args:
        shape: sizes.
        dtype: element type.
        value: of every element, converted to dtype.

    Returns:
        Out: of that shape and element type.

    Raises:
        PeError: a negative size or an unknown dtype.

    Source:
        fluid.layers.fill_constant.
    """
    if any(s < 0 for s in shape):
        raise PeError(f"fill_constant needs sizes of at least 0, got shape {shape}")
    return TensorType(tuple(shape), check_dtype(dtype))


@op(
    "fill_like",
    traits=[Folds(_given, alone=True)],
    inputs="X",
    attrs={"value": Attr(0.0, "every element, no unit")},
    differentiable="",
    samples=[Sample({"X": (2, 3)}, {"value": 2.0}, "twos in a matrix's shape")],
)
def fill_like(x: TensorType, *, value: float) -> TensorType:
    """Make a constant tensor in the shape and element type of another.

    Args:
        X: any; only its type counts.
        value: of every element.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.zeros_like and ones_like.
    """
    return x


def like_batch(name: str, input: TensorType, shape: list[int], dtype: str, input_dim_idx: int, output_dim_idx: int) -> TensorType:
    """Return the type of a result that takes the size of one axis from another tensor.

    Args:
        name: of the op, for errors.
        input: type of that tensor.
        shape: sizes; that of axis output_dim_idx is replaced by the one of axis input_dim_idx of input.
        dtype: element type.

    Raises:
        PeError: an axis that is not there, a negative size elsewhere, or an unknown dtype.
    """
    if not 0 <= input_dim_idx < len(input.shape) or not 0 <= output_dim_idx < len(shape):
        raise PeError(f"there is no axis {input_dim_idx} of {input}, or no axis {output_dim_idx} of {shape}")
    sizes = [*shape[:output_dim_idx], input.shape[input_dim_idx], *shape[output_dim_idx + 1 :]]
    if any(s < 0 for i, s in enumerate(sizes) if i != output_dim_idx):
        raise PeError(f"{name} needs sizes of at least 0, got shape {shape}")
    return TensorType(tuple(sizes), check_dtype(dtype))


@op(
    "fill_constant_batch_size_like",
    faces=[Face("", "input shape! dtype value input_dim_idx output_dim_idx")],
    inputs="Input",
    attrs={
        "shape": Attr([1], "sizes; that of one axis is taken from Input"),
        "dtype": Attr("float32", "element type"),
        "value": Attr(0.0, "every element, no unit"),
        "input_dim_idx": Attr(0, "axis of Input whose size is taken"),
        "output_dim_idx": Attr(0, "axis of shape that gets it"),
    },
    differentiable="",
    samples=[
        Sample({"Input": (3, 2)}, {"shape": [-1, 4], "value": 1.5}, "a row for each row"),
        Sample({"Input": (3, 2)}, {"shape": [2, 1], "input_dim_idx": 1, "output_dim_idx": 1}, "another axis"),
    ],
)
def fill_constant_batch_size_like(
    input: TensorType, *, shape: list[int], dtype: str, value: float, input_dim_idx: int, output_dim_idx: int
) -> TensorType:
    """Make a tensor whose elements all have one value, with as many rows as another has.

    Args:
        Input: any; only the size of one axis counts.
        shape: sizes; one of them is replaced.
        value: of every element, converted to dtype.

    Returns:
        Out: shape, but for axis output_dim_idx, which has the size of axis input_dim_idx of Input.

    Raises:
        PeError: an axis that is not there, a negative size elsewhere, or an unknown dtype.

    Source:
        fluid.layers.fill_constant_batch_size_like.
    """
    return like_batch("fill_constant_batch_size_like", input, shape, dtype, input_dim_idx, output_dim_idx)


@op(
    "fill_constant_for_sequences",
    inputs="Input Offsets?",
    attrs={
        "shape": Attr([1], "sizes; that of one axis is the number of sequences"),
        "dtype": Attr("float32", "element type"),
        "value": Attr(0.0, "every element, no unit"),
        "output_dim_idx": Attr(0, "axis of shape that gets it"),
    },
    differentiable="",
    samples=[Sample({"Input": (3, 2), "Offsets": fixed([0, 1, 3])}, {"shape": [-1, 4], "value": 1.5}, "a row for each sequence")],
)
def fill_constant_for_sequences(
    input: TensorType, offsets: TensorType | None = None, *, shape: list[int], dtype: str, value: float, output_dim_idx: int
) -> TensorType:
    """Make a tensor whose elements all have one value, with a row for every sequence of another, or every row of one without.

    Args:
        Input: any; only how many sequences it has counts.
        Offsets: of its innermost sequences, int64 [sequences + 1].
        shape: sizes; one of them is replaced.
        value: of every element, converted to dtype.

    Returns:
        Out: shape, but for axis output_dim_idx, which has the number of sequences.

    Raises:
        PeError: an axis that is not there, a negative size elsewhere, or an unknown dtype.

    Source:
        fluid.layers.fill_constant_batch_size_like of sequences.
    """
    rows = input if offsets is None else input.with_shape(sequence_count(offsets), *input.shape[1:])
    return like_batch("fill_constant_for_sequences", rows, shape, dtype, 0, output_dim_idx)


@fill_constant_for_sequences.sequences("Offsets")
def fill_constant_for_sequences_lod(s: LodRequest) -> None:
    """Sequences count, not their rows."""
    if found := s.lod("Input"):
        s.give("Offsets", found[-1])


@fill_constant.sequences()
def fill_constant_known(s: LodRequest) -> None:
    """Whole numbers are known before the step."""
    size = product(s.attrs["shape"])
    if s.attrs["dtype"] in ("int64", "int32") and 0 <= size <= MAX_KNOWN:
        s.know("Out", s.derive(constant, values=[int(s.attrs["value"])] * size))


@fill_constant.lower("cpu")
@fill_like.lower("cpu")
@fill_constant_batch_size_like.lower("cpu")
@fill_constant_for_sequences.lower("cpu")
def fill_cpu(o: Lowering) -> None:
    """One loop."""
    out = o.output("Out")
    o.call(fill, out, out.size, float(o.attrs["value"]))


# --- CUDA -------------------------------------------------------------------------------------------------------------


also_on_cuda(fill_constant, fill_like, fill_constant_batch_size_like, fill_constant_for_sequences)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("fill_constant")
def fill_constant_onnx(o: Writer) -> None:
    """A constant."""
    kind = o.attrs["dtype"]
    o.node("Identity", [o.const(np.full(o.attrs["shape"], o.attrs["value"]), dtype=kind)], to="Out")


@in_onnx("fill_like")
def fill_like_onnx(o: Writer) -> None:
    """A constant of X's shape."""
    o.node("Expand", [o.const(o.attrs["value"], "X"), o.node("Shape", [o.x()])], to="Out")


def sizes_like(o: Writer) -> str:
    """Return the sizes of a result that takes that of one axis from Input."""
    shape, at = o.attrs["shape"], o.attrs["output_dim_idx"]
    taken = o.node("Gather", [o.node("Shape", [o.x("Input")]), o.const([o.attrs["input_dim_idx"]])])
    parts = [o.const(part) for part in (shape[:at], shape[at + 1 :]) if part]
    # An empty part was left out: with `at` 0, the only one there may be stands behind.
    return o.node("Concat", [*parts[: int(at > 0)], taken, *parts[int(at > 0) :]], axis=0)


@in_onnx("fill_constant_batch_size_like")
def fill_constant_batch_size_like_onnx(o: Writer) -> None:
    """A constant of as many rows."""
    o.node("Expand", [o.const(o.attrs["value"], dtype=o.attrs["dtype"]), sizes_like(o)], to="Out")
