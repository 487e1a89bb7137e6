"""transpose: axes in another order."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import copy_box, row_major
from pe_cli.ops.define.traits import RowWise, SameNumbers


@op(
    "transpose",
    faces=[Face("", "x perm:axis! name", "Reorder axes.")],
    traits=[RowWise(lambda attrs, shapes: attrs["axis"][0] == 0), SameNumbers()],
    inputs="X",
    attrs={"axis": Attr([], "for every axis of Out the axis of X that it is")},
    samples=[
        Sample({"X": (3, 5)}, {"axis": [1, 0]}, "a matrix"),
        Sample({"X": (37, 45)}, {"axis": [1, 0]}, "a matrix of odd sizes"),
        Sample({"X": (2, 3, 4, 5)}, {"axis": [0, 2, 3, 1]}, "channels last"),
        Sample({"X": (2, 3, 4, 5)}, {"axis": [0, 2, 1, 3]}, "heads before steps"),
        Sample({"X": (2, 3, 4, 5)}, {"axis": [3, 2, 1, 0]}, "reversed"),
        Sample({"X": (2, 1, 4)}, {"axis": [1, 2, 0]}, "an axis of size 1"),
        Sample({"X": (2, 3)}, {"axis": [0, 1]}, "nothing moves"),
        Sample({"X": (1,)}, {"axis": [0]}, "one element"),
        Sample({"X": (0, 3)}, {"axis": [1, 0]}, "empty batch"),
    ],
)
def transpose(x: TensorType, *, axis: list[int]) -> TensorType:
    """Put axes in another order.

    Out[i_axis[0], i_axis[1], ...] = X[i_0, i_1, ...]

    Args:
        X: any.
        axis: a permutation of 0 to the number of axes.

    Returns:
        Out: size k is X's size axis[k].

    Raises:
        PeError: axis is no permutation of X's axes.

    Source:
        fluid.layers.transpose.
    """
    if sorted(axis) != list(range(len(x.shape))):
        raise PeError(f"transpose needs a permutation of the {len(x.shape)} axes of {x}, got axis {axis}")
    return x.with_shape(*(x.shape[a] for a in axis))


def permute(o: Lowering, x: Buffer, out: Buffer, axis: list[int]) -> None:
    """Append the copy out = x with axes in the order `axis`."""
    steps = row_major(x.shape)
    copy_box(o, x, out, out.shape, [steps[a] for a in axis], row_major(out.shape))


@transpose.lower("cpu")
def transpose_cpu(o: Lowering) -> None:
    """One copy."""
    permute(o, o.input("X"), o.output("Out"), o.attrs["axis"])


@transpose.grad().lower("cpu")
def transpose_grad_cpu(o: Lowering) -> None:
    """The inverse permutation."""
    axis = o.attrs["axis"]
    # Sorting by the permutation inverts it.
    permute(o, o.input("Out@GRAD"), o.output("X@GRAD"), sorted(range(len(axis)), key=axis.__getitem__))


# --- CUDA -------------------------------------------------------------------------------------------------------------


also_on_cuda(transpose)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("transpose")
def transpose_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("Transpose", [o.x()], to="Out", perm=o.attrs["axis"])
