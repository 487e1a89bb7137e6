"""accuracy: the share of rows whose label is among the best k."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import classes
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import Judges


@kernel
def count_right(indices: PtrI64, label: PtrI64, share: Ptr, correct: PtrI64, total: PtrI64, rows: Int, k: Int):
    """Rows whose label is among their k indices, and their share; NaN without rows."""
    right = 0
    for r in range(rows):
        hit = 0
        for i in range(r * k, r * k + k):
            # Or, not plus: a row counts once, even where its indices name a class twice.
            hit |= indices[i] == label[r]
        right += hit
    correct[0] = right
    total[0] = rows
    share[0] = T(right / rows)


def _orders(rows: int, k: int, n: int):
    return lambda rng: np.argsort(rng.random((rows, n)), axis=1)[:, :k].astype(np.int64)


@op(
    "accuracy",
    traits=[Judges("Indices", "Label")],
    inputs="Out Indices Label",
    outputs="Accuracy Correct Total",
    differentiable="",
    samples=[
        Sample({"Out": (6, 2), "Indices": _orders(6, 2, 4), "Label": classes(0, 4, 6, 1)}, name="the best two of four"),
        Sample({"Out": (1, 1), "Indices": _orders(1, 1, 3), "Label": classes(0, 3, 1, 1)}, name="one row"),
    ],
)
def accuracy(out: TensorType, indices: TensorType, label: TensorType) -> tuple[TensorType, ...]:
    """Count the rows whose label is among the best k.

    Correct = number of rows r with Label[r] in Indices[r];  Total = rows;  Accuracy = Correct / Total, NaN for no rows.

    Args:
        Out: [batch, k] float32 or float64; the k best values of top_k, whose element type counts.
        Indices: [batch, k] int64; their classes.
        Label: [batch, 1] int64.

    Returns:
        Accuracy: [1] element type of Out; from 0 to 1.
        Correct: [1] int64; rows.
        Total: [1] int64; rows.

    Raises:
        PeError: shapes or element types that do not fit.

    Source:
        fluid.layers.accuracy.
    """
    if indices.dtype != "int64" or len(indices.shape) != 2 or not same_sizes(out.shape, indices.shape):
        raise PeError(f"accuracy needs Out and Indices of top_k, [batch, k], got {out} and {indices}")
    if label.dtype != "int64" or not same_sizes(label.shape, (indices.shape[0], 1)):
        hint = "reshape the labels to [batch, 1]" if label.dtype == "int64" else "declare the feed with dtype: int64, or cast it"
        if len(label.shape) == 2 and label.shape[1] > 1:
            hint = "of labels with a column for each class {type: argmax, axis: 1} and then {type: unsqueeze, axes: [1]} make class numbers"
        raise PeError(f"accuracy needs Label [batch, 1] of type int64 for Indices {indices}, got {label}", hint=hint)
    count = TensorType((1,), "int64")
    return out.with_shape(1), count, count


@accuracy.lower("cpu")
def accuracy_cpu(o: Lowering) -> None:
    """One loop."""
    indices = o.input("Indices")
    correct = o.output_or_scratch("Correct", 1, "int64")
    total = o.output_or_scratch("Total", 1, "int64")
    o.call(count_right, indices, o.input("Label"), o.output("Accuracy"), correct, total, *indices.shape)


also_on_cuda(accuracy)


@in_onnx("accuracy")
def accuracy_onnx(o: Writer) -> None:
    """The share of rows whose label is among the indices."""
    equal = o.node("Equal", [o.x("Indices"), o.x("Label")])
    kind = o.out_type("Accuracy").dtype
    # Numbers at once, as ReduceMean and ReduceSum take no bool.
    hits = o.node("ReduceMax", [o.node("Cast", [equal], to_=element_type(kind)), o.const([1])], keepdims=0)
    if o.wanted("Accuracy"):
        o.node("Reshape", [o.node("ReduceMean", [hits], keepdims=0), o.const([1])], to="Accuracy")
    if o.wanted("Correct"):
        right = o.node("ReduceSum", [hits], keepdims=0)
        whole = o.node("Cast", [right], to_=element_type(o.out_type("Correct").dtype))
        o.node("Reshape", [whole, o.const([1])], to="Correct")
    if o.wanted("Total"):
        rows = o.node("Slice", [o.node("Shape", [o.x("Indices")]), o.const([0]), o.const([1])])
        o.node("Cast", [rows], to="Total", to_=element_type(o.out_type("Total").dtype))
