"""Measures by counting: mean_iou, auc."""

# ruff: noqa: C901, PLR0912 - scores count by many rules
from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.language import Int, Ptr, PtrF32, PtrF64, PtrI32, PtrI64, Status, kernel
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import classes, report
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData

# --- mean_iou ---------------------------------------------------------------------------------------------------------


@kernel
def count_areas(found: PtrI64, label: PtrI64, mean: PtrF32, wrong: PtrI32, right: PtrI32, n: Int, count: Int, status: Status):
    """right[k] = elements that are k in both, wrong[k] = those that are k in one; mean of right / (right + wrong)."""
    for k in range(count):
        wrong[k] = 0
        right[k] = 0
    for i in range(n):
        x, y = found[i], label[i]
        if x < 0 or y < 0 or x >= count or y >= count:
            report(status, i, x if x < 0 or x >= count else y, count)
            return
        if x == y:
            right[x] += 1
        else:
            wrong[x] += 1
            wrong[y] += 1
    total = 0.0
    there = 0
    for k in range(count):
        if wrong[k] + right[k] > 0:
            total += right[k] / (wrong[k] + right[k])
            there += 1
    mean[0] = total / there if there > 0 else 0.0


@op(
    "mean_iou",
    traits=[ReportsData()],
    inputs="Predictions Labels",
    outputs="OutMeanIou OutWrong OutCorrect",
    attrs={"num_classes": Attr(2, "classes that there are")},
    differentiable="",
    samples=[
        Sample({"Predictions": classes(0, 4, 20), "Labels": classes(0, 4, 20)}, {"num_classes": 5}, "one class is nowhere"),
        Sample({"Predictions": classes(0, 2, 2, 3, 1), "Labels": classes(0, 2, 2, 3, 1)}, name="images"),
        Sample({"Predictions": classes(0, 2, 0), "Labels": classes(0, 2, 0)}, name="nothing"),
    ],
)
def mean_iou(found: TensorType, label: TensorType, *, num_classes: int) -> tuple[TensorType, TensorType, TensorType]:
    """Measure how far the areas of classes overlap: the mean of intersection over union, over classes that are there.

    Args:
        Predictions, Labels: int64 classes, any shape, both the same.
        num_classes: classes.

    Returns:
        OutMeanIou: [1] float32, from 0 to 1.
        OutWrong: [classes] int32; elements of the class in one of both alone.
        OutCorrect: [classes] int32; elements of the class in both.

    Raises:
        PeError: types that differ; while running, a class out of range.

    Source:
        fluid.layers.mean_iou.
    """
    if {found.dtype, label.dtype} != {"int64"} or (-1 not in (found.size, label.size) and found.size != label.size) or num_classes < 1:
        raise PeError(f"mean_iou needs int64 Predictions and Labels of one shape, got {found} and {label}", hint="cast them")
    counts = TensorType((num_classes,), "int32")
    return TensorType((1,), "float32"), counts, counts


@mean_iou.lower("cpu")
def mean_iou_cpu(o: Lowering) -> None:
    """One loop."""
    found, n = o.input("Predictions"), o.attrs["num_classes"]
    mean = o.output_or_scratch("OutMeanIou", 1)
    counts = [o.output_or_scratch(s, n, "int32") for s in ("OutWrong", "OutCorrect")]
    o.call(count_areas, found, o.input("Labels"), mean, *counts, found.size, n, STATUS, dtype="float32")


# --- auc --------------------------------------------------------------------------------------------------------------


@kernel
def count_scores(
    x: Ptr, label: PtrI64, positive: PtrI64, negative: PtrI64, out: PtrF64, rows: Int, width: Int, bins: Int, slides: Int, curve: Int,
    status: Status,
):  # fmt: skip
    """Count scores of the last column by bins into both, and out = the area under the curve of all of them.

    With slides, both hold so many batches, their sum, and the number of batches so far.
    """
    at = 0
    if slides > 0:
        # The last number counts batches: modulo the slides it is the place of the oldest batch, which is overwritten.
        at = positive[(slides + 1) * bins] % slides * bins
    total = slides * bins
    # The counts of the oldest batch leave the sum, and this batch takes their place.
    if slides > 0:
        for b in range(bins):
            positive[total + b] -= positive[at + b]
            negative[total + b] -= negative[at + b]
            positive[at + b] = 0
            negative[at + b] = 0
    for r in range(rows):
        v = x[r * width + width - 1]
        if not (v >= 0 and v <= 1):
            # A report has whole numbers: the next one beyond the range, as 1.5 told as 1 would be no mistake. A NaN is told as -1.
            report(status, r, int(min(v * 1.0, 1e15)) + 1 if v > 1 else -1, 2)
            return
        b = int(v * (bins - 1))
        if label[r] > 0:
            positive[at + b] += 1
        else:
            negative[at + b] += 1
    if slides > 0:
        for b in range(bins):
            positive[total + b] += positive[at + b]
            negative[total + b] += negative[at + b]
        positive[(slides + 1) * bins] += 1
        negative[(slides + 1) * bins] += 1
    hits = 0.0
    false = 0.0
    area = 0.0
    there = 0.0
    for b in range(bins):
        there += positive[total + b]
    precision = 1.0
    # From the highest score down: both curves begin where no row is taken for positive.
    for back in range(bins):
        b = bins - 1 - back
        more = positive[total + b] * 1.0
        less = negative[total + b] * 1.0
        if curve == 0:
            area += less * (2.0 * hits + more) / 2.0
        elif more + less > 0:
            then = (hits + more) / (hits + more + false + less)
            # Before the first scores there is no precision: it begins with theirs.
            first = then if hits + false == 0.0 else precision
            area += more * (first + then) / 2.0
            precision = then
        hits += more
        false += less
    if curve == 0:
        # Where all labels are of one class, every trapezoid is 0: the area is told as 0, as in the original, not as NaN.
        out[0] = area / (hits * false) if hits > 0.0 and false > 0.0 else area
    else:
        out[0] = area / there if there > 0.0 else 0.0


_SCORES = {
    "Predict": lambda rng: rng.uniform(0, 1, (20, 2)), "Label": classes(0, 2, 20, 1), "StatPos": fixed(np.zeros((1, 12))),
    "StatNeg": fixed(np.ones((1, 12))),
}  # fmt: skip
_SLIDING = {"StatPos": fixed(np.zeros(37)), "StatNeg": fixed(np.zeros(37))}


@op(
    "auc",
    traits=[ReportsData("its scores are probabilities: put a softmax or a sigmoid before it")],
    inputs="Predict Label StatPos StatNeg",
    outputs="AUC StatPosOut StatNegOut",
    attrs={
        "curve": Attr("ROC", "which curve", ("ROC", "PR")),
        "num_thresholds": Attr(4095, "bins of the score, less 1"),
        "slide_steps": Attr(0, "batches that count; 0 for all"),
    },
    differentiable="",
    samples=[
        Sample(_SCORES, {"num_thresholds": 11}, "all batches"),
        Sample(_SCORES, {"num_thresholds": 11, "curve": "PR"}, "precision over recall"),
        Sample({**_SCORES, **_SLIDING}, {"num_thresholds": 11, "slide_steps": 2}, "the last two batches"),
    ],
)
def auc(
    x: TensorType, label: TensorType, positive: TensorType, negative: TensorType, *, curve: str, num_thresholds: int, slide_steps: int
) -> tuple[TensorType, TensorType, TensorType]:
    """Measure how well scores tell two classes apart: the area under a curve, by trapezoids between counted bins.

    ROC: hits over false alarms. PR: precision over recall. A score falls into bin floor(score num_thresholds).

    Args:
        Predict: [batch, 2] float32 or float64 probabilities, of which the last column counts.
        Label: [batch, 1] int64; 0 or 1.
        StatPos, StatNeg: int64 counts so far: [1, num_thresholds + 1]; with slide_steps [(slide_steps + 1) (num_thresholds + 1) + 1].
            Without, too, there may be one more, which stays as it is.
        curve, num_thresholds, slide_steps: see the attributes.

    Returns:
        AUC: [1] float64, from 0 to 1.
        StatPosOut, StatNegOut: counts with those of this batch; may be the same variables.

    Raises:
        PeError: types that do not fit; while running, a score that is not from 0 to 1.

    Source:
        fluid.layers.auc; Fawcett 2006.
    """
    del curve
    if len(x.shape) != 2 or x.dtype not in FLOATS or label.dtype != "int64":
        raise PeError(f"auc needs Predict [batch, 2] and int64 Label, got {x} and {label}", hint="cast the labels to int64")
    size = (num_thresholds + 1) * (slide_steps + 1) + (slide_steps > 0)
    # fluid.layers.auc makes its counts of one batch with a place for the number of batches even with slide_steps 0.
    sizes = (size, size + 1) if slide_steps == 0 else (size,)
    if num_thresholds < 1 or slide_steps < 0 or positive.dtype != "int64" or positive != negative or positive.size not in sizes:
        raise PeError(f"auc needs int64 counts, {size} of each, got {positive} and {negative}")
    return TensorType((1,), "float64"), positive, negative


@auc.lower("cpu")
def auc_cpu(o: Lowering) -> None:
    """Count, then one loop over the bins."""
    x, a = o.input("Predict"), o.attrs
    counts = []
    for slot in ("StatPos", "StatNeg"):
        given = o.input(slot)
        out = o.output_or_scratch(f"{slot}Out", given.size, "int64")
        if out.name != given.name:
            o.call(copy, given, out, out.size)
        counts.append(out)
    bins = a["num_thresholds"] + 1
    o.call(count_scores, x, o.input("Label"), *counts, o.output("AUC"), *x.shape, bins, a["slide_steps"], int(a["curve"] == "PR"), STATUS)


# Not dealt: all elements count into the same classes or bins.
also_on_cuda(mean_iou, auc)
not_in_onnx(LOSS, "auc")
