"""Boxes as corners and as differences from other boxes: box_coder, box_decoder_and_assign, iou_similarity, yolo_box."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU, Real, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def encode_boxes(prior: Ptr, var: Ptr, target: Ptr, out: Ptr, n: Int, m: Int, one: Real, per: Int, a: Real, b: Real, c: Real, d: Real):
    """out[i, j] = centre and size of target i as seen from prior j, by variances: 0 the four numbers, 1 a row for each prior."""
    for e in range(n * m):
        # All pairs: every target is described from every prior, and later ops choose the pairs that match.
        i, j = e // m * 4, e % m * 4
        w, h = prior[j + 2] - prior[j] + one, prior[j + 3] - prior[j + 1] + one
        tw, th = target[i + 2] - target[i] + one, target[i + 3] - target[i + 1] + one
        v0, v1, v2, v3 = (var[j], var[j + 1], var[j + 2], var[j + 3]) if per else (T(a), T(b), T(c), T(d))
        out[4 * e] = T(((target[i] + target[i + 2]) * T(0.5) - (prior[j] + w * T(0.5))) / w / v0)
        out[4 * e + 1] = T(((target[i + 1] + target[i + 3]) * T(0.5) - (prior[j + 1] + h * T(0.5))) / h / v1)
        # abs as in the original: a box whose corners are swapped gets a code instead of NaN.
        out[4 * e + 2] = T(math.log(abs(tw / w)) / v2)
        out[4 * e + 3] = T(math.log(abs(th / h)) / v3)


@kernel
def decode_boxes(
    prior: Ptr, var: Ptr, target: Ptr, out: Ptr, n: Int, m: Int, by_row: Int, one: Real, per: Int, a: Real, b: Real, c: Real,
    d: Real,
):  # fmt: skip
    """out[i, j] = corners of the box that target[i, j] describes as seen from prior j, or prior i with by_row."""
    for e in range(n * m):
        j = (e // m if by_row else e % m) * 4
        w, h = prior[j + 2] - prior[j] + one, prior[j + 3] - prior[j + 1] + one
        v0, v1, v2, v3 = (var[j], var[j + 1], var[j + 2], var[j + 3]) if per else (T(a), T(b), T(c), T(d))
        x = v0 * target[4 * e] * w + prior[j] + w * T(0.5)
        y = v1 * target[4 * e + 1] * h + prior[j + 1] + h * T(0.5)
        tw, th = math.exp(v2 * target[4 * e + 2]) * w, math.exp(v3 * target[4 * e + 3]) * h
        out[4 * e], out[4 * e + 1] = T(x - tw * T(0.5)), T(y - th * T(0.5))
        # `one` is added to sides and taken from the far corner, so a box of pixels [0, 3] is 4 wide and comes back as [0, 3].
        out[4 * e + 2], out[4 * e + 3] = T(x + tw * T(0.5) - one), T(y + th * T(0.5) - one)


def _corners(*shape: int):
    """Return a maker of boxes whose right and bottom are beyond left and top."""

    def make(rng):
        low = rng.uniform(0, 4, (*shape, 2))
        return [*map(list, _joined(low, low + rng.uniform(1, 5, (*shape, 2))))]

    return make


def _joined(low, high):
    import numpy as np

    return np.concatenate([low, high], -1)


@op(
    "box_coder",
    inputs="PriorBox PriorBoxVar? TargetBox",
    outputs="OutputBox",
    attrs={
        "code_type": Attr("encode_center_size", "what to do", ("encode_center_size", "decode_center_size")),
        "box_normalized": Attr(True, "boxes are parts of the image; else pixels, the last one inside"),
        "axis": Attr(0, "decode: 0, a prior for each column; 1, for each row", (0, 1)),
        "variance": Attr([], "four numbers instead of PriorBoxVar; none: 1"),
    },
    differentiable="",
    samples=[
        Sample({"PriorBox": _corners(3), "PriorBoxVar": lambda rng: rng.uniform(0.1, 0.3, (3, 4)), "TargetBox": _corners(2)},
               name="encode, a variance each"),
        Sample({"PriorBox": _corners(3), "TargetBox": _corners(2)}, {"box_normalized": False, "variance": [0.1, 0.1, 0.2, 0.2]},
               "encode pixels"),
        Sample({"PriorBox": _corners(3), "TargetBox": (2, 3, 4)}, {"code_type": "decode_center_size"}, "decode by column"),
        Sample({"PriorBox": _corners(2), "PriorBoxVar": lambda rng: rng.uniform(0.1, 0.3, (2, 4)), "TargetBox": (2, 3, 4)},
               {"code_type": "decode_center_size", "axis": 1, "box_normalized": False}, "decode by row"),
    ],
)  # fmt: skip
def box_coder(
    prior: TensorType, var: TensorType | None, target: TensorType, *, code_type: str, box_normalized: bool, axis: int,
    variance: list[float],
) -> TensorType:  # fmt: skip
    """Describe boxes as seen from others, or find the boxes of such descriptions.

    Encoding, with centres (x, y) and sizes (w, h) of target and prior (p): ((x - xp) / wp, (y - yp) / hp, ln(w / wp), ln(h / hp)) /
    variance. Decoding is the inverse.

    Args:
        PriorBox: [priors, 4] float32 or float64: left, top, right, bottom.
        PriorBoxVar: [priors, 4]: variances.
        TargetBox: [targets, 4] boxes to encode, or [rows, columns, 4] codes to decode.

    Returns:
        OutputBox: [targets, priors, 4] codes, or type of TargetBox: boxes.

    Raises:
        PeError: types that do not fit, or both kinds of variances; for a step, another number of priors than boxes along the axis.

    Source:
        fluid.layers.box_coder; Girshick et al. 2014, appendix C.
    """
    encode = code_type == "encode_center_size"
    if len(prior.shape) != 2 or prior.shape[1] != 4 or len(target.shape) != 3 - encode or target.shape[-1] != 4:
        wanted = "[targets, 4]" if encode else "[rows, columns, 4]"
        raise PeError(f"box_coder needs PriorBox [priors, 4] and TargetBox {wanted}, got {prior} and {target}")
    if var is not None and (variance or var.shape != prior.shape):
        raise PeError(f"box_coder needs PriorBoxVar of PriorBox's shape, or the attribute, got {var} and {variance}")
    if variance and len(variance) != 4:
        raise PeError(f"box_coder needs four variances, got {variance}")
    return prior.with_shape(target.shape[0], prior.shape[0], 4) if encode else target


def check_priors(prior: TensorType, target: TensorType, code_type: str, axis: int) -> None:
    """Check that there is a prior for every box along the axis that they stand for.

    Raises:
        PeError: there are more, or fewer.
    """
    # Axis 0 has the priors along the columns, axis 1 along the rows; rows and columns of a step's batch may only be known then.
    sizes = prior.shape[0], target.shape[1 - axis] if len(target.shape) == 3 else -1
    if code_type == "decode_center_size" and -1 not in sizes and sizes[0] != sizes[1]:
        raise PeError(f"box_coder: TargetBox {target} needs {sizes[1]} priors for axis {axis}, got {prior}")


@box_coder.lower("cpu")
def box_coder_cpu(o: Lowering) -> None:
    """One pass."""
    prior, target, out = o.input("PriorBox"), o.input("TargetBox"), o.output("OutputBox")
    check_priors(prior.type, target.type, o.attrs["code_type"], o.attrs["axis"])
    per = o.has("PriorBoxVar")
    var = o.input("PriorBoxVar") if per else prior
    one = 0.0 if o.attrs["box_normalized"] else 1.0
    more = (one, int(per), *(float(v) for v in o.attrs["variance"] or [1.0] * 4))
    if o.attrs["code_type"] == "encode_center_size":
        o.call(encode_boxes, prior, var, target, out, *out.shape[:2], *more)
    else:
        o.call(decode_boxes, prior, var, target, out, *out.shape[:2], o.attrs["axis"], *more)


# --- box_decoder_and_assign -------------------------------------------------------------------------------------------


@kernel
def decode_and_choose(prior: Ptr, var: Ptr, target: Ptr, score: Ptr, out: Ptr, chosen: Ptr, n: Int, classes: Int, most: Real):
    """out[i, c] = box of class c of prior i; chosen[i] = that of the best class above 0, or the prior."""
    for i in range(n):
        p = 4 * i
        w, h = prior[p + 2] - prior[p] + T(1), prior[p + 3] - prior[p + 1] + T(1)
        x, y = prior[p] + w * T(0.5), prior[p + 1] + h * T(0.5)
        best = -1
        for c in range(classes):
            a = 4 * (i * classes + c)
            cx, cy = var[0] * target[a] * w + x, var[1] * target[a + 1] * h + y
            # Sizes are bounded before exp, which the first steps of training would otherwise take to infinity; centres need no bound.
            tw = math.exp(min(var[2] * target[a + 2], most)) * w
            th = math.exp(min(var[3] * target[a + 3], most)) * h
            out[a], out[a + 1] = T(cx - tw * T(0.5)), T(cy - th * T(0.5))
            out[a + 2], out[a + 3] = T(cx + tw * T(0.5) - T(1)), T(cy + th * T(0.5) - T(1))
            # Class 0 is the background, and never the best one: a prior without another class stays where it is.
            if c > 0 and (best < 0 or score[i * classes + c] > score[i * classes + best]):
                best = c
        for k in range(4):
            chosen[p + k] = out[4 * (i * classes + best) + k] if best > 0 else prior[p + k]


@op(
    "box_decoder_and_assign",
    faces=[Face("", "prior_box prior_box_var target_box box_score box_clip! name")],
    inputs="PriorBox PriorBoxVar TargetBox BoxScore",
    outputs="DecodeBox OutputAssignBox",
    attrs={"box_clip": Attr(4.135166556742356, "largest logarithm of a size; ln(1000 / 16)")},
    differentiable="",
    samples=[
        Sample({"PriorBox": _corners(3), "PriorBoxVar": lambda rng: rng.uniform(0.1, 0.3, 4), "TargetBox": (3, 12),
                "BoxScore": lambda rng: rng.uniform(0, 1, (3, 3))}, name="three classes"),
        Sample({"PriorBox": _corners(2), "PriorBoxVar": lambda rng: rng.uniform(0.1, 0.3, 4), "TargetBox": (2, 4),
                "BoxScore": (2, 1)}, name="background only"),
    ],
)  # fmt: skip
def box_decoder_and_assign(
    prior: TensorType, var: TensorType, target: TensorType, score: TensorType, *, box_clip: float
) -> tuple[TensorType, TensorType]:
    """Find the box of every class, and take that of the best class other than 0.

    Args:
        PriorBox: [boxes, 4] float32 or float64: left, top, right, bottom, in pixels, the last ones inside.
        PriorBoxVar: [4]: variances.
        TargetBox: [boxes, classes * 4]: differences, as `box_coder` has them.
        BoxScore: [boxes, classes].

    Returns:
        DecodeBox: [boxes, classes * 4].
        OutputAssignBox: [boxes, 4]; PriorBox where class 0 is the only one.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.box_decoder_and_assign.
    """
    if prior.shape[1:] != (4,) or var.size != 4 or len(score.shape) != 2 or target.shape[1:] != (4 * score.shape[1],):
        raise PeError(
            "box_decoder_and_assign needs PriorBox [boxes, 4], PriorBoxVar [4], TargetBox [boxes, classes * 4] and BoxScore "
            f"[boxes, classes], got {prior}, {var}, {target} and {score}"
        )
    return target, prior


@box_decoder_and_assign.lower("cpu")
def box_decoder_and_assign_cpu(o: Lowering) -> None:
    """One pass."""
    ins = [o.input(s) for s in ("PriorBox", "PriorBoxVar", "TargetBox", "BoxScore")]
    outs = [o.output(s) for s in ("DecodeBox", "OutputAssignBox")]
    o.call(decode_and_choose, *ins, *outs, *ins[3].shape, o.attrs["box_clip"])


# --- iou_similarity ---------------------------------------------------------------------------------------------------


@kernel
def overlaps(x: Ptr, y: Ptr, out: Ptr, n: Int, m: Int, one: Real):
    """out[i, j] = area of x[i] and y[j] by that of x[i] or y[j]; 0 where both are empty."""
    for e in range(n * m):
        i, j = e // m * 4, e % m * 4
        w = min(x[i + 2], y[j + 2]) - max(x[i], y[j]) + one
        h = min(x[i + 3], y[j + 3]) - max(x[i + 1], y[j + 1]) + one
        # Decided by both sides: of boxes apart in both directions the two negative sides would give a positive area.
        both = w * h if w > 0 and h > 0 else 0.0
        a = (x[i + 2] - x[i] + one) * (x[i + 3] - x[i + 1] + one)
        b = (y[j + 2] - y[j] + one) * (y[j + 3] - y[j + 1] + one)
        out[e] = T(both / (a + b - both)) if both > 0.0 else T(0)


@op(
    "iou_similarity",
    faces=[Face("", "x y box_normalized name")],
    inputs="X Y",
    attrs={"box_normalized": Attr(True, "boxes are parts of the image; else pixels, the last one inside")},
    differentiable="",
    samples=[
        Sample({"X": _corners(3), "Y": _corners(4)}, name="parts"),
        Sample({"X": _corners(3), "Y": _corners(4)}, {"box_normalized": False}, "pixels"),
        Sample({"X": (0, 4), "Y": _corners(2)}, name="no boxes"),
    ],
)
def iou_similarity(x: TensorType, y: TensorType, *, box_normalized: bool) -> TensorType:
    """Measure how much boxes overlap: the area of both by the area of either.

    Args:
        X: [n, 4] float32 or float64: left, top, right, bottom.
        Y: [m, 4] element type of X.

    Returns:
        Out: [n, m] element type of X, from 0 to 1.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.iou_similarity; the Jaccard index.
    """
    if x.shape[1:] != (4,) or y.shape[1:] != (4,) or x.dtype != y.dtype:
        raise PeError(f"iou_similarity needs boxes X [n, 4] and Y [m, 4] of one element type, got {x} and {y}")
    return x.with_shape(x.shape[0], y.shape[0])


@iou_similarity.lower("cpu")
def iou_similarity_cpu(o: Lowering) -> None:
    """One pass."""
    out = o.output("Out")
    o.call(overlaps, o.input("X"), o.input("Y"), out, *out.shape, 0.0 if o.attrs["box_normalized"] else 1.0)


# --- yolo_box ---------------------------------------------------------------------------------------------------------


@helper
def _sigmoid(v):
    return 1.0 / (1.0 + math.exp(-v))


@kernel
def grid_boxes(
    x: Ptr, image: PtrU, boxes: Ptr, scores: Ptr, n: Int, count: Int, which: Int, classes: Int, H: Int, W: Int, wide: Real,
    high: Real, least: Real, spread: Real, clip: Int,
):  # fmt: skip
    """Read the boxes of one anchor off every cell of a grid; wide, high: of the anchor, in parts of the network's input."""
    # Head channels are [anchor, (x, y, w, h, confidence, classes...)], each a plane of cells.
    cells = H * W
    for e in range(n * cells):
        i, cell = e // cells, e % cells
        at = (i * count + which) * (5 + classes) * cells + cell
        o = (i * count + which) * cells + cell
        confidence = _sigmoid(x[at + 4 * cells])
        # A cell below the threshold keeps its place as zeros: how many boxes there are is a shape, and shapes are known before a step.
        keep = confidence >= least
        h, w = float(image[2 * i]), float(image[2 * i + 1])
        # The centre's range is stretched about the cell's middle by `spread`, so that it can reach the cell's edge without an infinite
        # logit.
        edge = 0.5 * (spread - 1.0)
        cx = (cell % W + _sigmoid(x[at]) * spread - edge) * w / W
        cy = (cell // W + _sigmoid(x[at + cells]) * spread - edge) * h / H
        bw, bh = math.exp(x[at + 2 * cells]) * wide * w / 2, math.exp(x[at + 3 * cells]) * high * h / 2
        a, b, c, d = cx - bw, cy - bh, cx + bw, cy + bh
        if clip:
            a, b, c, d = max(a, 0.0), max(b, 0.0), min(c, w - 1), min(d, h - 1)
        boxes[4 * o] = T(a) if keep else T(0)
        boxes[4 * o + 1] = T(b) if keep else T(0)
        boxes[4 * o + 2] = T(c) if keep else T(0)
        boxes[4 * o + 3] = T(d) if keep else T(0)
        for k in range(classes):
            scores[o * classes + k] = T(confidence * _sigmoid(x[at + (5 + k) * cells])) if keep else T(0)


@op(
    "yolo_box",
    faces=[Face("", "x img_size anchors! class_num! conf_thresh! downsample_ratio! clip_bbox name scale_x_y")],
    inputs="X ImgSize",
    outputs="Boxes Scores",
    attrs={
        "anchors": Attr([1, 1], "width and height of each anchor, in pixels of the network's input"),
        "class_num": Attr(1, "classes"),
        "conf_thresh": Attr(0.01, "confidence below which box and scores are 0"),
        "downsample_ratio": Attr(32, "pixels of the network's input to a cell"),
        "clip_bbox": Attr(True, "keep boxes within the image"),
        "scale_x_y": Attr(1.0, "how far centres may leave their cell: 1 not at all"),
    },
    differentiable="",
    samples=[
        Sample({"X": (2, 14, 3, 4), "ImgSize": lambda rng: [[60, 80], [50, 50]]},
               {"anchors": [10, 13, 16, 30], "class_num": 2, "conf_thresh": 0.4, "scale_x_y": 1.2}, "two anchors"),
        Sample({"X": (1, 6, 1, 1), "ImgSize": lambda rng: [[60, 80]]}, {"clip_bbox": False}, "one cell"),
    ],
)  # fmt: skip
def yolo_box(
    x: TensorType, image: TensorType, *, anchors: list[int], class_num: int, conf_thresh: float, downsample_ratio: int,
    clip_bbox: bool, scale_x_y: float,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Read boxes and scores off the grid of a YOLOv3 head.

    In a cell (column, row): x = (column + s sigmoid(tx) - (s - 1) / 2) / columns with s = scale_x_y, y likewise, w = exp(tw) anchor
    width / input width, h likewise, all times the image's size; score = sigmoid(to) sigmoid(class).

    Args:
        X: [batch, anchors * (5 + classes), rows, columns] float32 or float64.
        ImgSize: [batch, 2] int32 or int64: height and width of each image, in pixels.

    Returns:
        Boxes: [batch, anchors * rows * columns, 4] element type of X: left, top, right, bottom, in pixels.
        Scores: [batch, anchors * rows * columns, classes].

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.yolo_box; Redmon and Farhadi 2018, "YOLOv3", section 2.1.
    """
    count = len(anchors) // 2
    if not anchors or len(anchors) % 2 or min(anchors) <= 0 or class_num < 1:
        raise PeError(f"yolo_box needs pairs of anchors above 0 and a class, got {anchors} and {class_num}")
    if len(x.shape) != 4 or x.shape[1] != count * (5 + class_num):
        raise PeError(f"yolo_box needs X [batch, {count * (5 + class_num)}, rows, columns], got {x}")
    if image.shape[1:] != (2,) or image.dtype not in ("int32", "int64"):
        raise PeError(f"yolo_box needs ImgSize [batch, 2] of integers, got {image}")
    cells = -1 if -1 in x.shape[2:] else count * x.shape[2] * x.shape[3]
    return x.with_shape(x.shape[0], cells, 4), x.with_shape(x.shape[0], cells, class_num)


@yolo_box.lower("cpu")
def yolo_box_cpu(o: Lowering) -> None:
    """Make one pass for each anchor."""
    x, attrs = o.input("X"), o.attrs
    n, _, rows, columns = x.shape
    pairs = list(zip(attrs["anchors"][::2], attrs["anchors"][1::2], strict=True))
    ratio = attrs["downsample_ratio"]
    # An anchor's numbers are constants of its call, so the kernel needs no table of anchors in memory.
    for i, (w, h) in enumerate(pairs):
        o.call(
            grid_boxes, x, o.input("ImgSize"), o.output("Boxes"), o.output("Scores"), n, len(pairs), i, attrs["class_num"],
            rows, columns, w / (ratio * columns), h / (ratio * rows), attrs["conf_thresh"], attrs["scale_x_y"],
            int(attrs["clip_bbox"]),
        )  # fmt: skip


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(encode_boxes, decode_boxes, decode_and_choose, overlaps, grid_boxes)
also_on_cuda(box_coder, box_decoder_and_assign, iou_similarity, yolo_box)
