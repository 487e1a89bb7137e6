"""Layers of detectors with the original's arguments, where the core's catalogue has others, and the head of SSD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid import unique_name
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.naming import temporary, use
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
    """Describe boxes as seen from others, or the inverse; prior_box_var is a variable, four numbers, or None.

    How many boxes there are is looked at in a step only: scripts declare other numbers than they feed.
    """
    given = isinstance(prior_box_var, Variable)
    variance = None if given or prior_box_var is None else [float(v) for v in prior_box_var]
    var = prior_box_var if given else None
    ensure_defaults()
    inputs = {"PriorBox": prior_box, "PriorBoxVar": var, "TargetBox": target_box}
    attrs = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis, "variance": variance or []}
    with raised_as(FluidValueError):
        return LayerHelper("box_coder", name).one("box_coder", inputs, attrs, "OutputBox")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


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
    del name  # the convolutions name their own parameters
    each = [None if given is None else [_listed(one) for one in given] for given in (aspect_ratios, min_sizes, max_sizes)]
    found = call(
        "multi_box_head", list(inputs), image, base_size, num_classes, each[0], min_ratio, max_ratio, each[1], each[2], steps, step_w,
        step_h, offset, list(variance), flip, clip, kernel_size, pad, stride, None, min_max_aspect_ratios_order,
    )  # fmt: skip
    use({"flatten": 4 * len(inputs)})
    # With one feature map the original joins nothing, and its names are those of the layers.
    if len(inputs) > 1:
        _name_as_the_original(found)
    return tuple(found)


def _name_as_the_original(found: Sequence[Variable]) -> None:
    """Rename the outputs of a head: the original joins boxes and variances first, and gives the other two their last shape by a reshape."""
    locations, scores = found[0].name, found[1].name
    new = [*(temporary(unique_name.generate("reshape2")) for _ in range(2)), locations, scores]
    found[0].block.rename_vars({v.name: name for v, name in zip(found, new, strict=True)})


__all__ = ["box_coder", "multi_box_head"]
