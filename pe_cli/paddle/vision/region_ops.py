"""vision.ops of regions and boxes, by 2.x's arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.sizes import two
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.v2_places import searchsorted
from pe_cli.paddle.v2_shapes import both


def _counts(boxes_num: Any) -> Any:
    return boxes_num if boxes_num.dtype == "int64" else layers.cast(boxes_num, "int64")


def roi_pool(x: Any, boxes: Any, boxes_num: Any, output_size: Any, spatial_scale: float = 1.0, name: str | None = None) -> Any:
    """Take the largest pixel of each part of regions, whose edges are rounded to pixels.

    Args:
        x: [images, channels, height, width].
        boxes: [regions, 4]: left, top, right, bottom.
        boxes_num: [images] int32 or int64: regions of each image, in a row.
        output_size: parts of a region, a number or rows and columns.
        spatial_scale: pixels of x to one of the regions' units.
        name: without effect.
    """
    return call("roi_pool", x, boxes, *two(output_size), spatial_scale, batch_roi_nums=_counts(boxes_num))


def psroi_pool(x: Any, boxes: Any, boxes_num: Any, output_size: Any, spatial_scale: float = 1.0, name: str | None = None) -> Any:
    """Average the parts of regions, each in channels of its own; see `roi_pool`.

    Raises:
        FluidValueError: channels that the parts do not divide; a ValueError.
    """
    high, wide = two(output_size)
    if x.shape[1] % (high * wide):
        raise FluidValueError(f"psroi_pool: {x} in {high} times {wide} parts", hint="channels that the parts divide")
    return call("psroi_pool", x, boxes, x.shape[1] // (high * wide), spatial_scale, high, wide, batch_roi_nums=_counts(boxes_num))


def roi_align(
    x: Any,
    boxes: Any,
    boxes_num: Any,
    output_size: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = True,
    name: str | None = None,
) -> Any:
    """Average an image over points of the parts of regions; between pixels it is linear. See `roi_pool`.

    A region that is less than a pixel wide or high counts as a pixel, also with aligned, where 2.6 takes it as it is.

    Args:
        x: [images, channels, height, width].
        boxes: [regions, 4]: left, top, right, bottom.
        boxes_num: [images] int32 or int64: regions of each image, in a row.
        output_size: parts of a region, a number or rows and columns.
        spatial_scale: pixels of x to one of the regions' units.
        sampling_ratio: points along each side of a part; -1: one per pixel, rounded up.
        aligned: pixels are at their centres, so that regions move by half a pixel.
        name: without effect.
    """
    if aligned:
        boxes = layers.scale(boxes, 1.0, -0.5 / spatial_scale)
    return call("roi_align", x, boxes, *two(output_size), spatial_scale, sampling_ratio, batch_roi_nums=_counts(boxes_num))


class _Pool(Layer):
    """The base of pools of regions: the sizes are the object's, the rest is a call's."""

    _function: Any = None

    def __init__(self, output_size: Any, spatial_scale: float = 1.0) -> None:
        super().__init__()
        self._output_size, self._spatial_scale = output_size, spatial_scale

    def forward(self, x: Any, boxes: Any, boxes_num: Any) -> Any:
        """Append the op."""
        return type(self)._function(x, boxes, boxes_num, self._output_size, self._spatial_scale)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"output_size={self._output_size}, spatial_scale={self._spatial_scale}"


class RoIPool(_Pool):
    """`roi_pool` as a layer."""

    _function = staticmethod(roi_pool)


class PSRoIPool(_Pool):
    """`psroi_pool` as a layer."""

    _function = staticmethod(psroi_pool)


class RoIAlign(_Pool):
    """`roi_align` as a layer."""

    _function = staticmethod(roi_align)

    def forward(self, x: Any, boxes: Any, boxes_num: Any, aligned: bool = True) -> Any:
        """Append the op."""
        return roi_align(x, boxes, boxes_num, self._output_size, self._spatial_scale, aligned=aligned)


# --- boxes -------------------------------------------------------------------------------------------------------------


def prior_box(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    input: Any,
    image: Any,
    min_sizes: Any,
    max_sizes: Any = None,
    aspect_ratios: Any = [1.0],  # noqa: B006 (2.x's default)
    variance: Any = [0.1, 0.1, 0.2, 0.2],  # noqa: B006
    flip: bool = False,
    clip: bool = False,
    steps: Any = [0.0, 0.0],  # noqa: B006
    offset: float = 0.5,
    min_max_aspect_ratios_order: bool = False,
    name: str | None = None,
) -> Any:
    """Put boxes of several sizes and shapes at every pixel of a feature map; see `fluid.layers.prior_box`."""
    lists = [list(v) if isinstance(v, (list, tuple)) else [v] for v in (min_sizes, aspect_ratios)]
    most = None if max_sizes is None else list(max_sizes) if isinstance(max_sizes, (list, tuple)) else [max_sizes]
    return layers.prior_box(
        input, image, lists[0], most, lists[1], list(variance), flip, clip, list(steps), offset,
        min_max_aspect_ratios_order=min_max_aspect_ratios_order,
    )  # fmt: skip


def box_coder(
    prior_box: Any,
    prior_box_var: Any,
    target_box: Any,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    axis: int = 0,
    name: str | None = None,
) -> Any:
    """Describe boxes as seen from others, or the inverse; see `fluid.layers.box_coder`."""
    return layers.box_coder(prior_box, prior_box_var, target_box, code_type, box_normalized, None, axis)


def matrix_nms(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    bboxes: Any,
    scores: Any,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    return_rois_num: bool = True,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Lower the scores of boxes that overlap better ones, and keep the best.

    Args:
        bboxes: [images, boxes, 4].
        scores: [images, classes, boxes].
        score_threshold: only higher scores count.
        post_threshold: only higher scores are kept after they are lowered.
        nms_top_k: most boxes of a class that are looked at; -1: all.
        keep_top_k: detections of an image at most.
        use_gaussian: lower scores by a Gaussian of the overlaps.
        gaussian_sigma: factor in its exponent.
        background_label: class that is none; -1: there is none.
        normalized: boxes are parts of the image.
        return_index: return the places, else None.
        return_rois_num: return how many each image has, else None.
        name: without effect.

    Returns:
        [detections, 6]: class, score and box; [images] int32 how many each image has; [detections, 1] int32 their places among all boxes.
    """
    facts = (score_threshold, post_threshold, nms_top_k, keep_top_k, use_gaussian, gaussian_sigma, background_label, normalized)
    rows, counts, places = call("matrix_nms", bboxes, scores, *facts, return_index=True)
    kept = layers.reshape(layers.where(layers.greater_equal(layers.reshape(places, [-1]), _like(places, 0))), [-1])
    out = layers.gather(layers.reshape(rows, [-1, 6]), kept)
    index = layers.gather(layers.reshape(places, [-1, 1]), kept) if return_index else None
    made = (out, layers.reshape(counts, [-1]) if return_rois_num else None, index)
    for v in made:
        if v is not None:
            v.stop_gradient = True
    return made


def _like(x: Any, value: float) -> Any:
    return layers.full_like(layers.reshape(x, [-1]), value)


def nms(
    boxes: Any,
    iou_threshold: float = 0.3,
    scores: Any = None,
    category_idxs: Any = None,
    categories: Any = None,
    top_k: int | None = None,
) -> Any:
    """Keep the boxes that overlap no better one by more than a share, and return their numbers.

    Args:
        boxes: [boxes, 4]: left, top, right, bottom.
        iou_threshold: share of both boxes together that they may have in common.
        scores: [boxes]; without them a box is better than those behind it.
        category_idxs: [boxes] whole numbers: boxes of different categories may overlap; or None.
        categories: those that there are, where category_idxs is given.
        top_k: how many are kept at most, the best ones; or None.

    Returns:
        int64, as many as are kept: in the order of the boxes without scores, else by falling scores.

    Raises:
        FluidValueError: sizes that only a step knows, or categories without their list; a ValueError.
    """
    count = boxes.shape[0]
    if count < 1 or (category_idxs is not None and categories is None):
        raise FluidValueError(f"nms: boxes are {boxes}, categories {categories}", hint="boxes of known number, and a list of categories")
    rank = scores if scores is not None else layers.assign(np.arange(count, 0, -1, dtype="float32"))
    kinds = [None] if category_idxs is None else list(categories)
    each = []
    for kind in kinds:
        mine = layers.reshape(rank, [1, count])
        if kind is not None:
            own = layers.reshape(layers.equal(category_idxs, layers.full_like(category_idxs, kind)), [1, count])
            mine = call("select", own, mine, layers.full_like(mine, -math.inf))
        each.append(mine)
    table = layers.stack(each, 1)
    attrs = {
        "background_label": -1, "score_threshold": -3e38, "nms_top_k": -1, "keep_top_k": count, "normalized": True,
        "nms_threshold": float(iou_threshold), "nms_eta": 1.0,
    }  # fmt: skip
    ensure_defaults()
    with raised_as(FluidValueError):
        given = {"BBoxes": layers.unsqueeze(boxes, [0]), "Scores": layers.cast(table, boxes.dtype)}
        places = LayerHelper("padded_nms").op("padded_nms", given, attrs, ("Out", "Index", "Count"))[1]
    kept = layers.reshape(places, [-1])
    found = layers.cast(_chosen(kept), "int64")
    order = layers.argsort(layers.gather(rank, found), descending=True)[1]
    found = layers.gather(found, order)
    if top_k is not None and scores is not None and category_idxs is not None:
        found = layers.slice(found, [0], [0], [top_k])
    found.stop_gradient = True
    return found


def _chosen(kept: Any) -> Any:
    return layers.gather(kept, layers.reshape(layers.where(layers.greater_equal(kept, layers.full_like(kept, 0))), [-1]))


def distribute_fpn_proposals(
    fpn_rois: Any,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    pixel_offset: bool = False,
    rois_num: Any = None,
    name: str | None = None,
) -> Any:
    """Give every box to the level of a feature pyramid that its size asks for.

    Args:
        fpn_rois: [boxes, 4], in pixels.
        min_level: the finest level.
        max_level: the coarsest level.
        refer_level: level of boxes of refer_scale.
        refer_scale: root of their area, in pixels.
        pixel_offset: the last pixel is inside of a box.
        rois_num: [images] int32: boxes of each image, in a row; None for one image.
        name: without effect.

    Returns:
        The levels' boxes, the finest first; where each box went, [boxes, 1]; for each level how many each image has, [images] int32,
        or None without rois_num.
    """
    # The op counts the last pixel as inside; without it the same boxes end a pixel earlier.
    shift = None if pixel_offset else layers.assign(np.array([0, 0, 1, 1], fpn_rois.dtype))
    given = fpn_rois if shift is None else layers.elementwise_sub(fpn_rois, shift)
    levels, restore = layers.distribute_fpn_proposals(given, min_level, max_level, refer_level, refer_scale)
    made = [v if shift is None else layers.elementwise_add(v, shift) for v in levels]
    return made, restore, None if rois_num is None else _by_image(levels, restore, rois_num)


def _by_image(levels: list[Any], restore: Any, rois_num: Any) -> list[Any]:
    """Return how many boxes of each image went to each level."""
    place = layers.cast(layers.reshape(restore, [-1]), "int64")
    number = layers.elementwise_sub(layers.cumsum(layers.full_like(place, 1), 0), layers.assign(np.array([1])))
    image = searchsorted(layers.cumsum(_counts(rois_num), 0), number, right=True)
    sizes = [layers.slice(layers.shape(v), [0], [0], [1]) for v in levels]
    level = searchsorted(layers.cumsum(layers.cast(layers.concat(sizes), "int64"), 0), place, right=True)
    images = layers.elementwise_sub(layers.cumsum(layers.full_like(_counts(rois_num), 1), 0), layers.assign(np.array([1])))
    found = []
    for i in range(len(levels)):
        mine = layers.cast(layers.equal(level, layers.full_like(level, i)), "int32")
        rows, columns = both(layers.unsqueeze(images, [1]), layers.unsqueeze(image, [0]))
        own = layers.cast(layers.equal(rows, columns), "int32")
        found.append(layers.reduce_sum(layers.elementwise_mul(own, layers.unsqueeze(mine, [0])), 1))
    return found


def generate_proposals(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    scores: Any,
    bbox_deltas: Any,
    img_size: Any,
    anchors: Any,
    variances: Any,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    pixel_offset: bool = False,
    return_rois_num: bool = False,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Choose the best boxes of a region proposal network; see `fluid.layers.generate_proposals`.

    Args:
        img_size: [images, 2]: height and width in pixels.
        pixel_offset: must be True: the last pixel is inside of a box.

    Returns:
        [proposals, 4] boxes; [proposals, 1] scores; [images] int32 how many each image has, or None.

    Raises:
        NotThereYet: pixel_offset is False.
    """
    if not pixel_offset:
        raise NotThereYet("generate_proposals: pixel_offset=False is not there", hint="pixel_offset=True")
    info = layers.concat([img_size, layers.slice(layers.full_like(img_size, 1.0), [1], [0], [1])], 1)
    facts = (pre_nms_top_n, post_nms_top_n, nms_thresh, min_size, eta)
    boxes, found, ends = layers.generate_proposals(scores, bbox_deltas, info, anchors, variances, *facts, return_rois_num=True)
    if not return_rois_num:
        return boxes, found, None
    counts = layers.elementwise_sub(layers.slice(ends, [0], [1], [1 << 30]), layers.slice(ends, [0], [0], [-1]))
    return boxes, found, layers.cast(counts, "int32")


__all__ = [
    "PSRoIPool", "RoIAlign", "RoIPool", "box_coder", "distribute_fpn_proposals", "generate_proposals", "matrix_nms", "nms", "prior_box",
    "psroi_pool", "roi_align", "roi_pool",
]  # fmt: skip
