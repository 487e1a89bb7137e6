"""Layers of detectors with the original's arguments, where the core's catalogue has others, and the head of SSD."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.ir import Variable


def box_coder(
    prior_box: Variable,
    prior_box_var: Any,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Any:
    """Describe boxes as seen from others, or the inverse; prior_box_var is a variable, four numbers, or None."""
    given = isinstance(prior_box_var, Variable)
    variance = None if given or prior_box_var is None else [float(v) for v in prior_box_var]
    var = prior_box_var if given else None
    return call("box_coder", prior_box, var, target_box, code_type, box_normalized, name, axis, variance)


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Any:
    """Cut boxes to their images: [images, boxes, 4], or [boxes, 4] with sequences; im_info is height, width and scale."""
    ensure_defaults()
    return LayerHelper("box_clip", name).one("box_clip", {"Input": input, "ImInfo": im_info}, None, "Output")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _sizes(base: float, low: int, high: int, maps: int) -> tuple[list[float], list[float]]:
    """Return the least and largest sides of boxes for each feature map, in pixels."""
    step = math.floor((high - low) / (maps - 2))
    ratios = range(low, high + 1, step)
    least, most = [base * r / 100.0 for r in ratios], [base * (r + step) / 100.0 for r in ratios]
    return [base * 0.10, *least], [base * 0.20, *most]


def multi_box_head(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    inputs: Sequence[Variable],
    image: Variable,
    base_size: float,
    num_classes: int,
    aspect_ratios: Sequence[Any],
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Sequence[Any] | None = None,
    max_sizes: Sequence[Any] | None = None,
    steps: Sequence[float] | None = None,
    step_w: Sequence[float] | None = None,
    step_h: Sequence[float] | None = None,
    offset: float = 0.5,
    variance: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """Put SSD's head on feature maps: convolutions for the differences and the classes of the boxes at every pixel.

    Args:
        inputs: feature maps, the largest first.
        image: [batch, channels, height, width].
        base_size: side of the image that ratios are percents of, in pixels.
        num_classes: classes, background included.
        aspect_ratios: of each map.
        min_ratio, max_ratio: percents of base_size, spread over the maps after the first, instead of sizes.
        min_sizes, max_sizes: sides of each map's boxes, in pixels.
        steps, step_w, step_h: image pixels between each map's pixels; by default image size by map size.
        offset, variance, flip, clip, min_max_aspect_ratios_order: of `prior_box`.
        kernel_size, pad, stride: of the convolutions.
        name: without effect: the convolutions name their own parameters.

    Returns:
        Differences [batch, boxes, 4], scores [batch, boxes, classes], boxes and variances [boxes, 4].

    Raises:
        FluidValueError: a list that has not one entry for each map; a ValueError.
    """
    del name
    maps = len(inputs)
    if min_sizes is None and max_sizes is None:
        if maps <= 2 or min_ratio is None or max_ratio is None:
            raise FluidValueError("multi_box_head needs min_sizes and max_sizes, or three maps and min_ratio and max_ratio")
        min_sizes, max_sizes = _sizes(base_size, min_ratio, max_ratio, maps)
    step_w, step_h = (steps, steps) if steps is not None else (step_w, step_h)
    named = {"aspect_ratios": aspect_ratios, "min_sizes": min_sizes, "max_sizes": max_sizes, "step_w": step_w, "step_h": step_h}
    for key, given in named.items():
        if given is not None and len(given) != maps:
            raise FluidValueError(f"multi_box_head: {key} has {len(given)} entries for {maps} maps", hint="give one for each")
    parts: list[list[Any]] = [[], [], [], []]
    for i, x in enumerate(inputs):
        apart = [0.0 if s is None else float(s[i]) for s in (step_w, step_h)]
        least, most = ([] if s is None else _listed(s[i]) for s in (min_sizes, max_sizes))
        order = min_max_aspect_ratios_order
        shape = (_listed(aspect_ratios[i]), list(variance), flip, clip, apart, offset, None, order)
        boxes, variances = find("prior_box").fn(x, image, least, most, *shape)
        for part, width in zip(parts[:2], (4, num_classes), strict=True):
            made = call("conv2d", x, boxes.shape[2] * width, kernel_size, stride, pad)
            rows = call("transpose", made, [0, 2, 3, 1])
            part.append(call("reshape", rows, [0, -1, width]))
        for part, v in zip(parts[2:], (boxes, variances), strict=True):
            part.append(call("reshape", v, [-1, 4]))
    axes = (1, 1, 0, 0)
    found = [p[0] if maps == 1 else call("concat", p, axis) for p, axis in zip(parts, axes, strict=True)]
    for v in found[2:]:
        v.stop_gradient = True
    return found[0], found[1], found[2], found[3]


__all__ = ["box_clip", "box_coder", "multi_box_head"]
