"""Metrics by counting: chunk_eval, mean_iou, auc."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Variable


@layer(judges=True)
def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: list[int] | None = None,
    seq_length: Variable | None = None,
) -> list[Variable]:
    """Count the chunks that tags make, and those that the labels have, too.

    Args:
        input: int64 tags, [rows, 1] with sequences, or [sequences, time] with seq_length.
        label: likewise.
        chunk_scheme: what tags say: IOB, IOE, IOBES or plain.
        num_chunk_types: kinds of chunks.
        excluded_chunk_types: kinds that do not count.
        seq_length: rows of each sequence, integers.

    Returns:
        Precision, recall and F1, float32 [1]; chunks of input, of label, and of both, int64 [1].

    Raises:
        PeError: types that do not fit; in a step, a tag out of range.

    Source:
        fluid.layers.chunk_eval.
    """
    helper = LayerHelper("chunk_eval")
    attrs = {
        "num_chunk_types": num_chunk_types, "chunk_scheme": chunk_scheme, "excluded_chunk_types": list(excluded_chunk_types or []),
    }  # fmt: skip
    inputs = {"Inference": input, "Label": label, "SeqLength": seq_length}
    found = {slot: as_int64(helper, v) for slot, v in inputs.items() if v is not None}
    slots = ("Precision", "Recall", "F1-Score", "NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
    return helper.op("chunk_eval", found, attrs, slots)


@layer(judges=True)
def mean_iou(input: Variable, label: Variable, num_classes: int) -> list[Variable]:
    """Measure how far the areas of classes overlap: the mean of intersection over union.

    Args:
        input: int32 or int64 classes, any shape.
        label: of the same shape.
        num_classes: classes that there are.

    Returns:
        The mean over classes that are there, float32 [1]; elements of each class in one of both alone, and in both, int32 [classes].

    Raises:
        PeError: types that do not fit; in a step, a class out of range.

    Source:
        fluid.layers.mean_iou.
    """
    helper = LayerHelper("mean_iou")
    inputs = {"Predictions": as_int64(helper, input), "Labels": as_int64(helper, label)}
    return helper.op("mean_iou", inputs, {"num_classes": num_classes}, ("OutMeanIou", "OutWrong", "OutCorrect"))


@layer(judges=True)
def auc(
    input: Variable, label: Variable, curve: str = "ROC", num_thresholds: int = 4095, topk: int = 1, slide_steps: int = 1
) -> list[Variable | list[Variable]]:
    """Measure how well probabilities tell two classes apart: the area under a curve, of all batches so far and of the last ones.

    Args:
        input: [batch, 2] probabilities; the last column counts.
        label: [batch, 1] int64, 0 or 1.
        curve: ROC, or PR for precision over recall.
        num_thresholds: bins of the probability, less 1.
        topk: only 1.
        slide_steps: batches of the second area; 0 for all.

    Returns:
        Both areas, float64 [1], and the counts that are kept between steps: of the last batches and of all.

    Raises:
        PeError: types that do not fit, or topk is not 1; in a step, a probability out of range.

    Source:
        fluid.layers.auc.
    """
    helper = LayerHelper("auc")
    if topk != 1:
        raise helper.error(f"auc: topk is {topk}", hint="1")
    bins = num_thresholds + 1
    # Bins for each of the last steps and for their sum, then a counter that says whose turn it is to be overwritten.
    size = (1 + slide_steps) * bins + 1
    areas, kept = [], []
    # The same counts twice: those of the last steps, which forget, and those of all batches.
    for steps, shape in ((slide_steps, [size]), (0, [1, bins])):
        counts = []
        for _ in range(2):
            name = helper.program.unique(f"{helper.name}.stat")
            counts.append(kept_counts(helper, name, shape))
        inputs = {"Predict": input, "Label": as_int64(helper, label), "StatPos": counts[0], "StatNeg": counts[1]}
        attrs = {"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps}
        areas.append(helper.op("auc", inputs, attrs, ("AUC",), {"StatPosOut": counts[0], "StatNegOut": counts[1]})[0])
        kept += counts
    return [areas[1], areas[0], kept]


def kept_counts(helper: LayerHelper, name: str, shape: list[int]) -> Variable:
    """Return int64 counts that live between steps and are 0 at first."""
    from pe_cli.core.types import TensorType

    # Counts are no parameters, so that neither optimizer nor averages see them; they are persistable, so that checkpoints do.
    made = helper.block.create_var(name, TensorType(tuple(shape), "int64"), persistable=True, stop_gradient=True)
    Constant(0.0)(made, helper.startup.main_block)
    return made


def as_int64(helper: LayerHelper, x: Variable) -> Variable:
    """Return whole numbers as int64."""
    return x if x.dtype != "int32" else helper.one("cast", {"X": x}, {"out_dtype": "int64"})
