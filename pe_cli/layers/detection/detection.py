"""Layers of detectors: boxes to start from, and boxes as differences from others."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.ops.detection.box_coder import check_priors
from pe_cli.program.ir import Variable

#: SSD's variances: differences are divided by them, so that centres and sides are learned at a similar scale.
TENTHS = (0.1, 0.1, 0.2, 0.2)


def _both(helper: LayerHelper, boxes: str, inputs: dict[str, Variable], attrs: dict[str, Any]) -> tuple[Variable, Variable]:
    first, second = helper.op(helper.layer_type, inputs, attrs, (boxes, "Variances"))
    return first, second


def _steps(helper: LayerHelper, steps: list[float]) -> dict[str, float]:
    if len(steps) != 2:
        raise helper.error(f"{helper.layer_type}: steps must be two numbers, width and height, got {steps}")
    return {"step_w": float(steps[0]), "step_h": float(steps[1])}


@layer
def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: list[float],
    max_sizes: list[float] | None = None,
    aspect_ratios: list[float] = [1.0],  # noqa: B006 (never changed)
    variance: list[float] = list(TENTHS),  # noqa: B006
    flip: bool = False,
    clip: bool = False,
    steps: list[float] = [0.0, 0.0],  # noqa: B006
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """Put boxes of several sizes and shapes at every pixel of a feature map.

    A box of size s and aspect ratio r is s sqrt(r) wide and s / sqrt(r) high, around ((column + offset) step, (row + offset) step).

    Args:
        input: [batch, channels, height, width]: the feature map, of which only the sizes count.
        image: [batch, channels, height, width]: only the sizes count.
        min_sizes: sides of boxes, in pixels of the image.
        max_sizes: for each of them a larger one: a box of their geometric mean; none by default.
        aspect_ratios: width by height; 1 is always there.
        variance: four numbers that come with every box.
        flip: the reciprocals of aspect_ratios too.
        clip: keep boxes within the image.
        steps: image columns and rows between pixels; 0: image size by map size.
        offset: centre of the first box, in steps.
        name: prefix of the outputs' names.
        min_max_aspect_ratios_order: the box of max_sizes second instead of last.

    Returns:
        Boxes [height, width, boxes, 4], left, top, right, bottom as parts of the image, and their variances.

    Raises:
        PeError: sizes that are not known or do not fit.

    Source:
        fluid.layers.prior_box.
    """
    helper = LayerHelper("prior_box", name)
    attrs = {
        "min_sizes": [float(s) for s in min_sizes],
        "max_sizes": [float(s) for s in max_sizes or []],
        "aspect_ratios": [float(r) for r in aspect_ratios],
        "variances": [float(v) for v in variance],
        "flip": flip,
        "clip": clip,
        "offset": float(offset),
        "min_max_aspect_ratios_order": min_max_aspect_ratios_order,
        **_steps(helper, steps),
    }
    return _both(helper, "Boxes", {"Input": input, "Image": image}, attrs)


@layer
def density_prior_box(
    input: Variable,
    image: Variable,
    densities: list[int],
    fixed_sizes: list[float],
    fixed_ratios: list[float],
    variance: list[float] = list(TENTHS),  # noqa: B006 (never changed)
    clip: bool = True,
    steps: list[float] = [0.0, 0.0],  # noqa: B006
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Put boxes at every pixel of a feature map, small ones more densely.

    Args:
        input: [batch, channels, height, width]: the feature map, of which only the sizes count.
        image: [batch, channels, height, width]: only the sizes count.
        densities: boxes along each side of a step, for each of fixed_sizes.
        fixed_sizes: sides of boxes, in pixels of the image.
        fixed_ratios: width by height.
        variance: four numbers that come with every box.
        clip: keep boxes within the image; they always are, with false as in the original too.
        steps: image columns and rows between pixels; 0: image size by map size.
        offset: centre of the first box, in steps.
        flatten_to_2d: [boxes, 4] instead of four axes.
        name: prefix of the outputs' names.

    Returns:
        Boxes [height, width, boxes, 4], left, top, right, bottom as parts of the image, and their variances.

    Raises:
        PeError: sizes that are not known or do not fit.

    Source:
        fluid.layers.density_prior_box.
    """
    helper = LayerHelper("density_prior_box", name)
    attrs = {
        "densities": densities,
        "fixed_sizes": [float(s) for s in fixed_sizes],
        "fixed_ratios": [float(r) for r in fixed_ratios],
        "variances": [float(v) for v in variance],
        "offset": float(offset),
        **_steps(helper, steps),
    }
    # `clip` is not handed on: the op always cuts to the image, as the original's does whatever the argument says.
    boxes, variances = _both(helper, "Boxes", {"Input": input, "Image": image}, attrs)
    if not flatten_to_2d:
        return boxes, variances
    flat = [helper.one("reshape", {"X": v}, {"shape": [-1, 4]}) for v in (boxes, variances)]
    return flat[0], flat[1]


@layer
def anchor_generator(
    input: Variable,
    anchor_sizes: list[float],
    aspect_ratios: list[float],
    variance: list[float] = list(TENTHS),  # noqa: B006 (never changed)
    stride: list[float] = [16.0, 16.0],  # noqa: B006
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Put boxes of several sizes and shapes at every pixel of a feature map, in pixels of the image.

    Args:
        input: [batch, channels, height, width]: the feature map, of which only the sizes count.
        anchor_sizes: sides of boxes, in pixels of the image.
        aspect_ratios: height by width.
        variance: four numbers that come with every box.
        stride: image columns and rows between pixels.
        offset: centre of the first box, in steps less one pixel.
        name: prefix of the outputs' names.

    Returns:
        Anchors [height, width, boxes, 4], left, top, right, bottom, and their variances.

    Raises:
        PeError: sizes that are not known or do not fit.

    Source:
        fluid.layers.anchor_generator.
    """
    attrs = {
        "anchor_sizes": [float(s) for s in anchor_sizes],
        "aspect_ratios": [float(r) for r in aspect_ratios],
        "variances": [float(v) for v in variance],
        "stride": [float(s) for s in stride],
        "offset": float(offset),
    }
    return _both(LayerHelper("anchor_generator", name), "Anchors", {"Input": input}, attrs)


@layer
def box_coder(
    prior_box: Variable,
    prior_box_var: Variable | None,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
    variance: list[float] | None = None,
) -> Variable:
    """Describe boxes as seen from others, or find the boxes of such descriptions.

    Args:
        prior_box: [priors, 4]: left, top, right, bottom.
        prior_box_var: [priors, 4]: variances, or null.
        target_box: [targets, 4] boxes to encode, or [rows, columns, 4] codes to decode.
        code_type: encode_center_size or decode_center_size.
        box_normalized: boxes are parts of the image; else pixels, the last one inside.
        name: prefix of the output's name.
        axis: decode: 0, a prior for each column; 1, for each row.
        variance: four numbers instead of prior_box_var; 1 by default.

    Returns:
        [targets, priors, 4] codes, or boxes in the shape of target_box.

    Raises:
        PeError: shapes that do not fit, or both kinds of variances.

    Source:
        fluid.layers.box_coder.
    """
    check_priors(prior_box.type, target_box.type, code_type, axis)
    inputs = {"PriorBox": prior_box, "PriorBoxVar": prior_box_var, "TargetBox": target_box}
    # An empty list stands for none: variances are then the rows of PriorBoxVar, or 1.
    attrs = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis, "variance": variance or []}
    return LayerHelper("box_coder", name).one("box_coder", inputs, attrs, "OutputBox")
