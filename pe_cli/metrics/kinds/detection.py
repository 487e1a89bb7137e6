"""Mean average precision of detected boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.define import Array, Gathered, UndefinedError, metric
from pe_cli.ops.detection.detection_map import average_precision, judge


class DetectionOptions(Section):
    """Options of `detection_map`."""

    detections: Name = Field(
        description="variable: [batch, rows, 6] class, score, left, top, right, bottom, as multiclass_nms and detection_output make them"
    )
    boxes: Name = Field(
        description="variable: [batch, most, 4] left, top, right, bottom of true boxes, in parts of the picture; one without a size is none"
    )
    labels: Name = Field(description="variable: [batch, most] classes of the true boxes")
    overlap_threshold: Annotated[float, Field(strict=True, gt=0, lt=1)] = Field(
        default=0.5, description="a detection is right that overlaps a true box of its class by more"
    )
    ap_type: Literal["integral", "11point"] = Field(
        default="integral", description="how precisions are averaged over recall; 11point: at recalls of 0, 0.1, ..., 1"
    )


@metric
class DetectionMap(Gathered[DetectionOptions]):
    """Mean average precision (mAP): the mean over the classes that have true boxes of the average precision of their detections."""

    name = "detection_map"
    inputs = ("detections", "boxes", "labels")
    options = DetectionOptions

    def check(self, options: DetectionOptions, types: Mapping[str, TensorType]) -> None:
        """Check the types.

        Raises:
            PeError: USAGE; shapes or element types that do not fit.
        """
        found, boxes, labels = (types[key] for key in self.inputs)
        if len(found.shape) != 3 or found.shape[2] != 6:
            raise PeError(f"detections are [batch, rows, 6], got {found}", hint="multiclass_nms and detection_output make them")
        if len(boxes.shape) != 3 or boxes.shape[2] != 4:
            raise PeError(f"boxes are [batch, most, 4], got {boxes}", hint="left, top, right, bottom; filled up by boxes without a size")
        if labels.dtype not in ("int32", "int64") or labels.shape[1:] not in (boxes.shape[1:2], (*boxes.shape[1:2], 1)):
            raise PeError(f"labels are {labels}, and boxes are {boxes}", hint="one whole number for each box")

    def result(self, options: DetectionOptions, values: Mapping[str, Array]) -> float:
        """Return the mean; of each class as the op detection_map has it.

        Raises:
            UndefinedError: there is no true box.
        """
        found, boxes = values["detections"].astype(float), values["boxes"].astype(float)
        labels = values["labels"].reshape(boxes.shape[:2])
        there = (boxes[..., 2] > boxes[..., 0]) & (boxes[..., 3] > boxes[..., 1])
        classes, counts = np.unique(labels[there], return_counts=True)
        if not len(classes):
            raise UndefinedError("there is no true box")
        judged = []
        for mine, box, label, real in zip(found, boxes, labels, there, strict=True):
            true = np.column_stack([label[real], np.zeros(int(real.sum())), box[real]])
            judged += judge(mine[mine[:, 0] >= 0], true, options.overlap_threshold, difficult=True)
        rows = np.array(judged).reshape(-1, 3)
        each = []
        for c, count in zip(classes.tolist(), counts.tolist(), strict=True):
            own = rows[rows[:, 0] == c]
            each.append(average_precision(own[np.argsort(-own[:, 1], kind="stable"), 2], count, options.ap_type))
        return math.fsum(each) / len(each)
