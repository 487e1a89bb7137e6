"""center_loss: how far features are from the centers of their classes, which follow them."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T, kernel
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import classes, report
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData


@kernel
def away_from_centers(x: Ptr, label: PtrI64, centers: Ptr, diff: Ptr, loss: Ptr, rows: Int, width: Int, count: Int, status: Status):
    """diff[r] = x[r] - centers[label[r]], and loss[r] half of its square; both 0 for a label that is none."""
    for r in range(rows):
        k = label[r]
        fits = k >= 0 and k < count
        if not fits:
            report(status, r, k, count)
        total = T(0)
        for j in range(width):
            d = x[r * width + j] - centers[k * width + j] if fits else T(0)
            diff[r * width + j] = d
            total += d * d
        loss[r] = total / T(2)


@kernel
def follow(diff: Ptr, label: PtrI64, rate: Ptr, out: Ptr, rows: Int, width: Int, count: Int):
    """out[k] += rate / (1 + rows of class k) times the sum of their diff."""
    # Class by class, not row by row: a thread of CUDA owns a center, and adds its rows in the order of the batch.
    for k in range(count):
        # One more than there are, as in eq. 4 of Wen et al. 2016.
        there = 1
        for r in range(rows):
            if label[r] == k:
                there += 1
        if there > 1:
            for j in range(width):
                total = T(0)
                for r in range(rows):
                    if label[r] == k:
                        total += diff[r * width + j]
                out[k * width + j] += rate[0] * total / T(there)


@kernel
def away_back(diff: Ptr, g: Ptr, dx: Ptr, rows: Int, width: Int):
    """dx = g diff."""
    for i in range(rows * width):
        dx[i] = g[i // width] * diff[i]


_GIVEN = {"X": (4, 3), "Label": classes(0, 5, 4, 1), "Centers": (5, 3), "CenterUpdateRate": (1,)}


@op(
    "center_loss",
    traits=[ReportsData()],
    inputs="X Label Centers CenterUpdateRate",
    outputs="Loss SampleCenterDiff CentersOut",
    attrs={"cluster_num": Attr(0, "number of classes; 0 takes that of Centers"), "need_update": Attr(True, "let the centers follow")},
    differentiable="X",
    samples=[
        Sample(_GIVEN, name="four rows"),
        Sample(_GIVEN | {"Label": fixed([[1], [0], [1], [1]])}, {"need_update": False}, "the centers stay"),
        Sample(_GIVEN | {"X": (0, 3), "Label": classes(0, 5, 0, 1)}, name="an empty batch"),
    ],
)
def center_loss(
    x: TensorType, label: TensorType, centers: TensorType, rate: TensorType, *, cluster_num: int, need_update: bool
) -> tuple[TensorType, TensorType, TensorType]:
    """Measure how far features are from the centers of their classes, and let the centers follow.

    Loss[r] = |X[r] - Centers[Label[r]]|^2 / 2; then
    CentersOut[k] = Centers[k] + rate sum_{r: Label[r] = k} (X[r] - Centers[k]) / (1 + number of such r)

    Args:
        X: [batch, width] float32 or float64.
        Label: [batch, 1] int64.
        Centers: [classes, width] element type of X.
        CenterUpdateRate: [1] element type of X; no unit.
        cluster_num: number of classes.
        need_update: whether the centers follow.

    Returns:
        Loss: [batch, 1].
        SampleCenterDiff: type of X; X - Centers[Label].
        CentersOut: type of Centers; may be the same variable.

    Raises:
        PeError: types that do not fit; while running, a label out of range.

    Source:
        fluid.layers.center_loss; Wen et al. 2016, "A Discriminative Feature Learning Approach for Deep Face Recognition".
    """
    del need_update
    if len(x.shape) != 2 or x.dtype not in FLOATS or len(centers.shape) != 2 or centers != x.with_shape(centers.shape[0], x.shape[1]):
        raise PeError(f"center_loss needs X [batch, width] and Centers [classes, width], got {x} and {centers}")
    if label.dtype != "int64" or (-1 not in (label.size, x.shape[0]) and label.size != x.shape[0]):
        raise PeError(f"center_loss needs an int64 label for each row of X {x}, got {label}", hint="cast it")
    if cluster_num not in (0, centers.shape[0]):
        raise PeError(f"center_loss: cluster_num is {cluster_num}, but Centers are {centers}")
    if rate.size != 1 or rate.dtype != x.dtype:
        raise PeError(f"center_loss needs CenterUpdateRate [1] of type {x.dtype}, got {rate}")
    return x.with_shape(x.shape[0], 1), x, centers


@center_loss.lower("cpu")
def center_loss_cpu(o: Lowering) -> None:
    """The differences, then class by class."""
    x, label, centers = o.input("X"), o.input("Label"), o.input("Centers")
    diff = o.output_or_scratch("SampleCenterDiff", x.size, x.dtype)
    if x.size:
        o.call(away_from_centers, x, label, centers, diff, o.output("Loss"), *x.shape, centers.shape[0], STATUS)
    if o.has("CentersOut"):
        out = o.output("CentersOut")
        # The original names one variable for both, and then the centers are already there.
        if out.name != centers.name:
            o.call(copy, centers, out, out.size)
        if o.attrs["need_update"] and x.size:
            o.call(follow, diff, label, o.input("CenterUpdateRate"), out, *x.shape, centers.shape[0])


# Centers get no gradient: they follow by a rate of their own, which no optimizer sees.
@center_loss.grad(uses="SampleCenterDiff").lower("cpu")
def center_loss_grad_cpu(o: Lowering) -> None:
    """One loop."""
    diff = o.input("SampleCenterDiff")
    o.call(away_back, diff, o.input("Loss@GRAD"), o.output("X@GRAD"), *diff.shape)


deal(away_from_centers, follow, away_back)
also_on_cuda(center_loss)
not_in_onnx(LOSS, "center_loss")
