"""vision.ops: what detectors do beside convolutions, by 2.x's arguments."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.fluid import layers
from pe_cli.paddle.reference_names import missing
from pe_cli.paddle.vision import deformable_conv, region_ops


def yolo_box(  # noqa: PLR0913, PLR0917 - the original's arguments
    x: Any,
    img_size: Any,
    anchors: Any,
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Any:
    """Return the boxes and scores that a feature map of YOLO says; see `fluid.layers.yolo_box`."""
    return layers.yolo_box(x, img_size, anchors, class_num, conf_thresh, downsample_ratio, clip_bbox, name, scale_x_y)


def yolo_loss(  # noqa: PLR0913, PLR0917 - the original's arguments
    x: Any,
    gt_box: Any,
    gt_label: Any,
    anchors: Any,
    anchor_mask: Any,
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Any = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Any:
    """Return the loss of a feature map of YOLO, one for each picture; see `fluid.layers.yolov3_loss`."""
    return layers.yolov3_loss(
        x, gt_box, gt_label, anchors, anchor_mask, class_num, ignore_thresh, downsample_ratio, gt_score, use_label_smooth, name, scale_x_y
    )


_MODULES = (region_ops, deformable_conv)
globals().update({name: getattr(module, name) for module in _MODULES for name in module.__all__})
__all__ = ["yolo_box", "yolo_loss", *(name for module in _MODULES for name in module.__all__)]
__getattr__ = missing("paddle.vision.ops", lambda: globals())
