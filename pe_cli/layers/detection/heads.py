"""Detection heads: layers between feature maps and detections."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.layers.detection.detection import TENTHS
from pe_cli.program.ir import Variable

Sizes = list[list[float]]


@layer
def multi_box_head(
    inputs: list[Variable],
    image: Variable,
    base_size: float,
    num_classes: int,
    aspect_ratios: list[list[float]],
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: list[list[float]] | None = None,
    max_sizes: list[list[float]] | None = None,
    steps: list[float] | None = None,
    step_w: list[float] | None = None,
    step_h: list[float] | None = None,
    offset: float = 0.5,
    variance: list[float] = list(TENTHS),  # noqa: B006 (never changed)
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """Put SSD's head on feature maps: convolutions for the differences and the classes of the boxes at every pixel.

    Args:
        inputs: feature maps, the largest first.
        image: [batch, channels, height, width].
        base_size: side of the image that ratios are percents of, in pixels.
        num_classes: classes, background included.
        aspect_ratios: of the boxes of each map; 1 is always there.
        min_ratio: percents of base_size, spread over the maps after the first, instead of sizes.
        max_ratio: likewise.
        min_sizes: sides of each map's boxes, in pixels.
        max_sizes: a larger side for each of them, see prior_box.
        steps: image pixels between each map's pixels; by default image size by map size.
        step_w: likewise, for columns alone.
        step_h: likewise, for rows alone.
        offset: centre of a map's first box, in steps.
        variance: four numbers that come with every box.
        flip: the reciprocals of aspect_ratios too.
        clip: keep boxes within the image.
        kernel_size: of the convolutions.
        pad: of the convolutions.
        stride: of the convolutions.
        name: prefix of the names of their parameters.
        min_max_aspect_ratios_order: the box of max_sizes second instead of last.

    Returns:
        Differences [batch, boxes, 4], scores [batch, boxes, classes], boxes and variances [boxes, 4].

    Raises:
        PeError: a list that has not one entry for each map, or neither sizes nor ratios.

    Source:
        fluid.layers.multi_box_head; Liu et al. 2016, "SSD", section 2.2.
    """
    helper, maps = LayerHelper("multi_box_head", name), len(inputs)
    if min_sizes is None and max_sizes is None:
        if maps <= 2 or min_ratio is None or max_ratio is None:
            raise helper.error("multi_box_head needs min_sizes and max_sizes, or three maps and min_ratio and max_ratio")
        min_sizes, max_sizes = _sizes(base_size, min_ratio, max_ratio, maps)
    if min_sizes is None:
        raise helper.error("multi_box_head has max_sizes, but no min_sizes", hint="sides of each map's boxes, in pixels")
    # `steps` stands for both directions and wins over step_w and step_h.
    step_w, step_h = (steps, steps) if steps is not None else (step_w, step_h)
    named = {"aspect_ratios": aspect_ratios, "min_sizes": min_sizes, "max_sizes": max_sizes, "step_w": step_w, "step_h": step_h}
    for key, given in named.items():
        if given is not None and len(given) != maps:
            raise helper.error(f"multi_box_head: {key} has {len(given)} entries for {maps} maps", hint="give one for each")
    parts: list[list[Variable]] = [[], [], [], []]
    for i, x in enumerate(inputs):
        apart = [0.0 if s is None else float(s[i]) for s in (step_w, step_h)]
        most = max_sizes[i] if max_sizes is not None else []
        shape = (aspect_ratios[i], list(variance), flip, clip, apart, offset, None, min_max_aspect_ratios_order)
        boxes, variances = find("prior_box").fn(x, image, min_sizes[i], most, *shape)
        for part, width, what in zip(parts[:2], (4, num_classes), ("loc", "conf"), strict=True):
            own = f"{name}.{what}{i}" if name else None
            # As many filters as prior_box has made boxes: their number is not counted a second time here.
            made = find("conv2d").fn(x, boxes.shape[2] * width, kernel_size, stride, pad, name=own)
            # Channels last, so that the numbers of one box lie side by side, then a row for each box of an image.
            part.append(find("reshape").fn(find("transpose").fn(made, [0, 2, 3, 1]), [0, -1, width]))
        for part, v in zip(parts[2:], (boxes, variances), strict=True):
            part.append(find("reshape").fn(v, [-1, 4]))
    # Predictions are joined by image, priors once for all images.
    found = [p[0] if maps == 1 else find("concat").fn(p, axis) for p, axis in zip(parts, (1, 1, 0, 0), strict=True)]
    for v in found[2:]:
        v.stop_gradient = True
    return found[0], found[1], found[2], found[3]


def _sizes(base: float, low: int, high: int, maps: int) -> tuple[Sizes, Sizes]:
    """Return the least and largest sides of boxes for each feature map, in pixels."""
    # Two maps have ratios of their own, 10% and 20%; the others share the range, as in SSD's first code.
    step = math.floor((high - low) / (maps - 2))
    if step < 1:
        said = f"multi_box_head: ratios from {low} to {high} are too few for {maps} feature maps"
        raise PeError(said, hint=f"a max_ratio of at least {low + maps - 2}, or min_sizes and max_sizes")
    ratios = range(low, high + 1, step)
    least, most = [[base * r / 100.0] for r in ratios], [[base * (r + step) / 100.0] for r in ratios]
    return [[base * 0.10], *least], [[base * 0.20], *most]


@layer(made_of="padded_nms")
def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Keep of every class the boxes that overlap no better one much, and of every image the best, keep_top_k rows for each.

    Args:
        bboxes: [images, boxes, 4]: left, top, right, bottom.
        scores: [images, classes, boxes].
        score_threshold: only higher scores count.
        nms_top_k: most boxes of a class that are looked at, the best first; -1: all.
        keep_top_k: detections of an image at most.
        nms_threshold: a box is dropped that overlaps a better one by more.
        normalized: boxes are parts of the image; else pixels, the last one inside.
        nms_eta: below 1: what nms_threshold is multiplied by after each box that is kept, while it is above 0.5.
        background_label: class that is none; -1: there is none.
        name: prefix of the outputs' names.

    Returns:
        Detections [images, keep_top_k, 6]: class, score and box, by class and falling score, with class -1 behind the last one; and
        how many there are, [images, 1] int32.

    Raises:
        PeError: shapes that do not fit, or keep_top_k below 1.

    Source:
        fluid.layers.multiclass_nms, which gives rows with sequences instead.
    """
    return _thinned(LayerHelper("multiclass_nms", name), bboxes, scores, {
        "score_threshold": float(score_threshold), "nms_top_k": nms_top_k, "keep_top_k": keep_top_k, "normalized": normalized,
        "nms_threshold": float(nms_threshold), "nms_eta": float(nms_eta), "background_label": background_label,
    })  # fmt: skip


def _thinned(helper: LayerHelper, boxes: Variable, scores: Variable, attrs: dict[str, float]) -> tuple[Variable, Variable]:
    # Suppression picks among boxes, and a choice has no gradient: the original's output stops it, too.
    found, _, count = helper.op("padded_nms", {"BBoxes": boxes, "Scores": scores}, attrs, ("Out", "Index", "Count"))
    for v in (found, count):
        v.stop_gradient = True
    return found, count


@layer
def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
) -> tuple[Variable, Variable]:
    """Find the boxes of SSD's differences and thin them out, keep_top_k rows for each image.

    Args:
        loc: [images, priors, 4]: differences.
        scores: [images, priors, classes], of which the softmax is taken.
        prior_box: [priors, 4]: left, top, right, bottom as parts of the image.
        prior_box_var: [priors, 4]: variances.
        background_label: of multiclass_nms, as all that follow.
        nms_threshold: a box is dropped that overlaps a better one by more.
        nms_top_k: most boxes of a class that are looked at.
        keep_top_k: detections of an image at most.
        score_threshold: only higher scores count.
        nms_eta: below 1: what nms_threshold is multiplied by after each box that is kept, while it is above 0.5.

    Returns:
        Detections [images, keep_top_k, 6]: class, score, left, top, right, bottom, with class -1 behind the last one; and how many
        there are, [images, 1] int32.

    Raises:
        PeError: shapes that do not fit, or keep_top_k below 1.

    Source:
        fluid.layers.detection_output, which gives rows with sequences instead.
    """
    boxes = find("box_coder").fn(prior_box, prior_box_var, loc, "decode_center_size")
    # Suppression goes class by class: the scores of one class have to lie side by side.
    shares = find("transpose").fn(find("softmax").fn(scores), [0, 2, 1])
    return _thinned(LayerHelper("detection_output"), boxes, shares, {
        "score_threshold": float(score_threshold), "nms_top_k": nms_top_k, "keep_top_k": keep_top_k,
        "nms_threshold": float(nms_threshold), "nms_eta": float(nms_eta), "background_label": background_label,
    })  # fmt: skip
