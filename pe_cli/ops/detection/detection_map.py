"""detection_map: how well detections agree with true boxes, over a batch and over all batches before. It runs on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection.overlaps import Array, overlap


def _found(rng: np.random.Generator) -> Array:
    return np.array([[1, 0.9, 0.1, 0.1, 0.4, 0.4], [1, 0.6, 0.5, 0.5, 0.9, 0.9]], "float32")


def _true(rng: np.random.Generator) -> Array:
    return np.array([[1, 0.1, 0.1, 0.4, 0.45], [2, 0.5, 0.5, 0.8, 0.8]], "float32")


@op(
    "detection_map",
    inputs="DetectRes Label HasState? PosCount? TruePos? FalsePos?",
    outputs="MAP AccumPosCount AccumTruePos AccumFalsePos",
    attrs={
        "class_num": Attr(1, "classes, background included"),
        "background_label": Attr(0, "class that is none; -1: there is none"),
        "overlap_threshold": Attr(0.3, "a detection is right that overlaps a true box of its class by more"),
        "evaluate_difficult": Attr(True, "true boxes marked as difficult count, too"),
        "ap_type": Attr("integral", "how precisions are averaged", ("integral", "11point")),
    },
    differentiable="",
    samples=[Sample({"DetectRes": _found, "Label": _true}, {"class_num": 3}, "one image", keep=("DetectRes", "Label"))],
)
def detection_map(
    found: TensorType,
    true: TensorType,
    has: TensorType | None,
    count: TensorType | None,
    right: TensorType | None,
    wrong: TensorType | None,
    *,
    class_num: int,
    background_label: int,
    overlap_threshold: float,
    evaluate_difficult: bool,
    ap_type: str,
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """Average the precision of detections over recall and classes: mAP.

    Detections of an image are matched with true boxes of their class, the highest score first, each with the box that it overlaps most;
    a second one for the same box is wrong. integral: sum of precision times the step of recall; 11point: mean of the largest precision
    at recalls from 0, 0.1, ... on. Classes without a detection count as 0; the background does not count.

    Args:
        DetectRes: [detections, 6] float32: class, score, left, top, right, bottom in parts of the image; a sequence for each image.
        Label: [boxes, 6] float32: class, 1 for difficult ones, and the box; or [boxes, 5] without the mark; a sequence for each image.
        HasState: [1] int32: 0 ignores the next three.
        PosCount, TruePos, FalsePos: AccumPosCount, AccumTruePos, AccumFalsePos of the batches before.

    Returns:
        MAP: [1] float32.
        AccumPosCount: [class_num, 1] int32: true boxes of each class.
        AccumTruePos: [detections, 3] float32: class, score, and 1 for right ones.
        AccumFalsePos: [detections, 3] float32: class, score, and 1 for wrong ones.

    Raises:
        PeError: shapes that do not fit; while running, not as many images of both, or a class that is not there.

    Source:
        fluid.metrics.DetectionMAP; Everingham et al. 2010, "The PASCAL visual object classes challenge", section 4.2.
    """
    del has, count, right, wrong, background_label, overlap_threshold, evaluate_difficult, ap_type
    if found.shape[1:] != (6,) or true.shape[1:] not in ((5,), (6,)) or found.dtype != "float32" or true.dtype != "float32":
        raise PeError(f"detection_map needs DetectRes [detections, 6] and Label [boxes, 5 or 6], float32; got {found} and {true}")
    if class_num < 1:
        raise PeError(f"detection_map needs class_num of at least 1, got {class_num}")
    rows = TensorType((-1, 3), "float32")
    return TensorType((1,), "float32"), TensorType((class_num, 1), "int32"), rows, rows


def judge(found: Array, true: Array, limit: float, *, difficult: bool) -> list[tuple[float, float, float]]:
    """Judge the detections of an image.

    Args:
        found: [detections, 6]: class, score and box.
        true: [boxes, 6]: class, 1 for difficult ones, and box.
        limit: overlap above which a detection is right.
        difficult: those of difficult boxes count, too; else they are left out.

    Returns:
        (class, score, 1 for right or 0 for wrong) of each.
    """
    judged = []
    # Classes that no detection names need no visit: their true boxes are counted elsewhere.
    for c in np.unique(found[:, 0]):
        mine = found[found[:, 0] == c]
        own = true[true[:, 0] == c]
        seen = np.zeros(len(own), bool)
        for row in mine[np.argsort(-mine[:, 1], kind="stable")]:
            # A detection is cut to the image before it is compared, as the true boxes were drawn inside it.
            shares = overlap(np.clip(row[2:], 0, 1), own[:, -4:], normalized=True)
            best = int(np.argmax(shares)) if len(own) else -1
            hit = best >= 0 and shares[best] > limit
            # A detection of a difficult box counts neither as right nor as wrong.
            if hit and not difficult and own[best, 1]:
                continue
            # A second detection of the same box is wrong, and the better scored one came first.
            judged.append((float(c), float(row[1]), float(hit and not seen[best])))
            if hit:
                seen[best] = True
    return judged


def average_precision(hits: Array, true: int, kind: str) -> float:
    """Return the mean precision of one class; hits: 1 for right ones, the highest score first."""
    right = np.cumsum(hits)
    precision, recall = right / np.arange(1, len(hits) + 1), right / true
    if kind == "integral":
        # The area under the curve by steps: wrong detections do not change the recall, so only right ones add.
        return float(np.sum(precision * np.diff(recall, prepend=0)))
    return float(np.mean([precision[recall >= level / 10].max(initial=0) for level in range(11)]))


@detection_map.host_run
def detection_map_host(run: HostRun) -> dict[str, list[Any]]:
    """Image by image, then class by class.

    Raises:
        PeError: not as many images of both, or a class that is not there (exit code 3).
    """
    a, classes = run.attrs, run.attrs["class_num"]
    true, lod = run.one("Label"), run.values["Label"][0].lod
    images = len(lod[-1]) - 1 if lod else 1
    pairs = list(zip(run.parts("DetectRes", images), run.parts("Label", images), strict=True))
    if len(true) and not 0 <= true[:, 0].min() <= true[:, 0].max() < classes:
        bad = true[:, 0].max() if true[:, 0].max() >= classes else true[:, 0].min()
        raise PeError(f"detection_map: a true box is of class {bad:g}, but class_num is {classes}")
    hard = true[:, 1] != 0 if true.shape[1] == 6 else np.zeros(len(true), bool)
    # Difficult boxes that do not count must not stand in the recall's denominator either.
    counted = true[:, 0] if a["evaluate_difficult"] else true[~hard, 0]
    count = np.bincount(counted.astype(int), minlength=classes)[:classes]
    judged: list[Any] = []
    for found, own in pairs:
        marked = own if own.shape[1] == 6 else np.insert(own, 1, 0, axis=1)
        judged += judge(found, marked, a["overlap_threshold"], difficult=a["evaluate_difficult"])
    right = np.array(judged, "float32").reshape(-1, 3)
    if run.values.get("HasState") and run.one("HasState").ravel()[0]:
        count = count + run.one("PosCount").ravel()
        right = np.concatenate([run.one("TruePos"), right])
    # What is not right is wrong: one table would do, but the original carries both from batch to batch.
    wrong = right * np.array([1, 1, -1], "float32") + np.array([0, 0, 1], "float32")
    every = []
    for c in np.flatnonzero(count):
        if c == a["background_label"]:
            continue
        own = right[right[:, 0] == c]
        # Of all batches so far, since the mean of batches' mAPs is not the mAP.
        hits = own[np.argsort(-own[:, 1], kind="stable"), 2].astype(float)
        every.append(average_precision(hits, int(count[c]), a["ap_type"]))
    mean = np.array([np.mean(every) if every else 0], "float32")
    return {"MAP": [mean], "AccumPosCount": [count.reshape(-1, 1)], "AccumTruePos": [right], "AccumFalsePos": [wrong]}
not_in_onnx(LOSS, "detection_map")
