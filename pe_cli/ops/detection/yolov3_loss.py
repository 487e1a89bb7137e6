"""yolov3_loss: what the head of YOLOv3 says of boxes, objects and classes, against true boxes."""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI32, Real, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


@helper
def _entropy(v, label):
    """Cross entropy of the sigmoid of v and a label."""
    # max(v, 0) - v label + log1p(exp(-|v|)): no exp of a large number.
    return max(v, 0.0) - v * label + math.log1p(math.exp(-abs(v)))


@helper
def _sigmoid(v):
    return 1.0 / (1.0 + math.exp(-v))


@helper
def _overlap(ax, ay, aw, ah, bx, by, bw, bh):
    """Area of both boxes by that of either; given by centres and sizes."""
    w = min(ax + aw / 2, bx + bw / 2) - max(ax - aw / 2, bx - bw / 2)
    h = min(ay + ah / 2, by + bh / 2) - max(ay - ah / 2, by - bh / 2)
    both = 0.0 if w < 0.0 or h < 0.0 else w * h
    return both / (aw * ah + bw * bh - both)


@helper
def _empty(boxes, b):
    # Padding of a batch with fewer boxes: a box without width or height.
    return boxes[4 * b + 2] < 1e-6 or boxes[4 * b + 3] < 1e-6


@kernel
def put(out: PtrF64, at: Int, a: Real, b: Real, c: Real, d: Real):
    """Write four numbers of an attribute."""
    out[at], out[at + 1], out[at + 2], out[at + 3] = a, b, c, d


@kernel
def find_objects(  # noqa: C901 (loops over images, cells and boxes)
    x: Ptr, boxes: Ptr, scores: Ptr, scored: Int, objects: Ptr, matches: PtrI32, anchors: PtrF64, n: Int, M: Int, B: Int, C: Int, H: Int,
    A: Int, ignore: Real, side: Int, spread: Real,
):  # fmt: skip
    """objects = score of a cell's and anchor's true box, -1 where a box overlaps one well, else 0; matches = anchor of each true box."""
    cells = H * H
    for i in range(n):
        for m in range(M):
            # Anchors of all heads compete for a box, but this head only predicts those of its mask, whose places come behind the anchors.
            which = int(anchors[2 * A + m])
            for cell in range(cells):
                at = (i * M + m) * (5 + C) * cells + cell
                # Spread around the middle of the cell, so that a centre can lie on the border of its cell.
                px = (cell % H + _sigmoid(x[at]) * spread - 0.5 * (spread - 1.0)) / H
                py = (cell // H + _sigmoid(x[at + cells]) * spread - 0.5 * (spread - 1.0)) / H
                pw = math.exp(x[at + 2 * cells]) * anchors[2 * which] / side
                ph = math.exp(x[at + 3 * cells]) * anchors[2 * which + 1] / side
                best = 0.0
                for b in range(i * B, (i + 1) * B):
                    if not _empty(boxes, b):
                        best = max(best, _overlap(px, py, pw, ph, boxes[4 * b], boxes[4 * b + 1], boxes[4 * b + 2], boxes[4 * b + 3]))
                # A prediction that overlaps some true box well is not told that it is background, even if another cell has to learn the
                # box.
                objects[(i * M + m) * cells + cell] = T(-1) if best > ignore else T(0)
        for b in range(i * B, (i + 1) * B):
            matches[b] = -1
            if _empty(boxes, b):
                continue
            best = 0.0
            nearest = 0
            # Only the shapes are compared, as if both boxes lay at one place: which anchor fits does not depend on where.
            for a in range(A):
                v = _overlap(0.0, 0.0, anchors[2 * a] / side, anchors[2 * a + 1] / side, 0.0, 0.0, boxes[4 * b + 2], boxes[4 * b + 3])
                if v > best:
                    best = v
                    nearest = a
            # From the last to the first, so that of masks that name one anchor twice the first gets the box.
            for m in range(M - 1, -1, -1):
                if int(anchors[2 * A + m]) == nearest:
                    matches[b] = m
            if matches[b] >= 0:
                column, row = min(max(int(boxes[4 * b] * H), 0), H - 1), min(max(int(boxes[4 * b + 1] * H), 0), H - 1)
                # A box on the right or bottom edge of the image would fall into the next cell, which is none.
                objects[(i * M + matches[b]) * cells + row * H + column] = scores[b] if scored else T(1)


@kernel
def measure(  # noqa: C901, PLR0912 (loops over images, boxes, classes and cells)
    x: Ptr, boxes: Ptr, labels: PtrI32, scores: Ptr, scored: Int, objects: Ptr, matches: PtrI32, anchors: PtrF64, out: Ptr, g: Ptr, n: Int,
    M: Int, B: Int, C: Int, H: Int, A: Int, side: Int, positive: Real, negative: Real, back: Int,
):  # fmt: skip
    """out = loss of each image; with back, out = g times its derivatives by x."""
    cells = H * H
    for i in range(n):
        total = 0.0
        if back:
            for k in range(i * M * (5 + C) * cells, (i + 1) * M * (5 + C) * cells):
                out[k] = T(0)
        for b in range(i * B, (i + 1) * B):
            m = matches[b]
            if m < 0:
                continue
            which = int(anchors[2 * A + m])
            column, row = min(max(int(boxes[4 * b] * H), 0), H - 1), min(max(int(boxes[4 * b + 1] * H), 0), H - 1)
            at = (i * M + m) * (5 + C) * cells + row * H + column
            score = float(scores[b]) if scored else 1.0
            # Small boxes count up to twice: an error of one pixel is a larger part of them.
            share = (2.0 - boxes[4 * b + 2] * boxes[4 * b + 3]) * score
            tx, ty = boxes[4 * b] * H - column, boxes[4 * b + 1] * H - row
            tw = math.log(boxes[4 * b + 2] * side / anchors[2 * which])
            th = math.log(boxes[4 * b + 3] * side / anchors[2 * which + 1])
            if back:
                # Derivative of the cross entropy of a sigmoid by its argument: sigmoid less target. The spread of centres is left out of
                # the loss, as in the original.
                out[at] += T((_sigmoid(x[at]) - tx) * share * g[i])
                out[at + cells] += T((_sigmoid(x[at + cells]) - ty) * share * g[i])
                # The derivative of |v - t| at 0 is taken as -1.
                out[at + 2 * cells] += T((share if x[at + 2 * cells] > tw else -share) * g[i])
                out[at + 3 * cells] += T((share if x[at + 3 * cells] > th else -share) * g[i])
            else:
                total += (_entropy(x[at], tx) + _entropy(x[at + cells], ty)) * share
                total += (abs(x[at + 2 * cells] - tw) + abs(x[at + 3 * cells] - th)) * share
            for c in range(C):
                target = positive if c == labels[b] else negative
                v = x[at + (5 + c) * cells]
                if back:
                    out[at + (5 + c) * cells] += T((_sigmoid(v) - target) * score * g[i])
                else:
                    total += _entropy(v, target) * score
        for e in range(i * M * cells, (i + 1) * M * cells):
            at = (e // cells * (5 + C) + 4) * cells + e % cells
            known = objects[e]
            # A cell with a true box should say its score; one with -1 overlaps a box well and is not punished.
            if known > 1e-5:
                if back:
                    out[at] += T((_sigmoid(x[at]) - 1.0) * known * g[i])
                else:
                    total += _entropy(x[at], 1.0) * known
            elif known > -0.5:
                if back:
                    out[at] += T(_sigmoid(x[at]) * g[i])
                else:
                    total += _entropy(x[at], 0.0)
        if not back:
            out[i] = T(total)


def _boxes(rng):
    found = np.concatenate([rng.uniform(0.2, 0.8, (2, 3, 2)), rng.uniform(0.05, 0.4, (2, 3, 2))], -1)
    found[1, 2] = 0
    return found


def _labels(rng):
    return rng.integers(0, 2, (2, 3)).astype("int32")


_INPUTS = {"X": (2, 14, 3, 3), "GTBox": _boxes, "GTLabel": _labels}
_ANCHORS = {"anchors": [10, 13, 16, 30, 33, 23], "anchor_mask": [0, 1], "class_num": 2, "ignore_thresh": 0.5}
_SCORES = {"GTScore": lambda rng: rng.uniform(0.2, 1, (2, 3))}


@op(
    "yolov3_loss",
    faces=[
        Face(
            "",
            "x gt_box gt_label anchors! anchor_mask! class_num! ignore_thresh! downsample_ratio! gt_score use_label_smooth name scale_x_y",
            returns="Loss",
        ),
    ],
    inputs="X GTBox GTLabel GTScore?",
    outputs="Loss ObjectnessMask GTMatchMask",
    attrs={
        "anchors": Attr([10, 13], "width and height of every anchor, in pixels of the network's input"),
        "anchor_mask": Attr([0], "anchors of this head: places in the list of all"),
        "class_num": Attr(1, "classes"),
        "ignore_thresh": Attr(0.7, "boxes that overlap a true one by more are not told that they are none"),
        "downsample_ratio": Attr(32, "pixels of the network's input to one of X's cells"),
        "use_label_smooth": Attr(True, "labels are min(1 / class_num, 1 / 40) away from 0 and 1"),
        "scale_x_y": Attr(1.0, "how far centres may leave their cell"),
    },
    differentiable="X",
    samples=[
        Sample(_INPUTS, _ANCHORS, "three boxes, one of them empty"),
        Sample({**_INPUTS, **_SCORES}, {**_ANCHORS, "use_label_smooth": False}, "scores"),
        Sample(_INPUTS, {**_ANCHORS, "scale_x_y": 1.2, "anchor_mask": [2, 1]}, "centres outside their cells"),
    ],
)
def yolov3_loss(
    x: TensorType,
    boxes: TensorType,
    labels: TensorType,
    scores: TensorType | None,
    *,
    anchors: list[int],
    anchor_mask: list[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    use_label_smooth: bool,
    scale_x_y: float,
) -> tuple[TensorType, TensorType, TensorType]:
    """Measure the loss of YOLOv3's head: centres, sizes, objects and classes.

    A true box belongs to the cell of its centre and the anchor whose size fits best. There, with s = score, f = s (2 - width height):
    Loss = f (H(x) + H(y) + |w - ln(width side / anchor)| + |h - ...|) + s sum_c H(class c), H the cross entropy of the sigmoid.
    Every cell and anchor adds H(object), against 1 where a true box is, times its score, and against 0 elsewhere, but for boxes that
    overlap a true one by more than ignore_thresh.

    Args:
        X: [images, anchors of the head * (5 + class_num), cells, cells] float32 or float64.
        GTBox: [images, boxes, 4] element type of X: centre, width and height, in parts of the image; a box without a size is none.
        GTLabel: [images, boxes] int32: classes.
        GTScore: [images, boxes] element type of X: how much each box counts; 1 by default.

    Returns:
        Loss: [images] element type of X.
        ObjectnessMask: [images, anchors of the head, cells, cells] element type of X: score, 0 for no object, -1 for ignored.
        GTMatchMask: [images, boxes] int32: anchor of the head, -1 for none.

    Raises:
        PeError: types or attributes that do not fit.

    Source:
        fluid.layers.yolov3_loss; Redmon and Farhadi 2018, "YOLOv3", section 2.
    """
    del use_label_smooth, ignore_thresh, scale_x_y
    count = len(anchors) // 2
    if not anchors or len(anchors) % 2 or not anchor_mask or any(not 0 <= m < count for m in anchor_mask) or min(anchors) <= 0:
        raise PeError(f"yolov3_loss needs anchors in pairs and an anchor_mask of places among them, got {anchors} and {anchor_mask}")
    if class_num < 1 or downsample_ratio < 1:
        raise PeError(f"yolov3_loss needs class_num and downsample_ratio of at least 1, got {class_num} and {downsample_ratio}")
    if len(x.shape) != 4 or x.shape[1] not in (-1, len(anchor_mask) * (5 + class_num)) or x.shape[2] != x.shape[3]:
        expected = f"[images, {len(anchor_mask) * (5 + class_num)}, cells, cells]"
        raise PeError(f"yolov3_loss needs X {expected} for {len(anchor_mask)} anchors and {class_num} classes, got {x}")
    if len(boxes.shape) != 3 or boxes.shape[2] != 4 or boxes.dtype != x.dtype:
        raise PeError(f"yolov3_loss needs GTBox [images, boxes, 4] of X's element type, got {boxes}")
    if len(labels.shape) != 2 or labels.dtype != "int32" or (scores is not None and (len(scores.shape) != 2 or scores.dtype != x.dtype)):
        raise PeError(f"yolov3_loss needs GTLabel [images, boxes] int32 and GTScore in its sizes, got {labels} and {scores}")
    images = x.shape[0]
    return x.with_shape(images), x.with_shape(images, len(anchor_mask), *x.shape[2:]), TensorType(labels.shape, "int32")


def _anchors(o: Lowering) -> Buffer:
    numbers = [float(v) for v in (*o.attrs["anchors"], *o.attrs["anchor_mask"])]
    # Lists of numbers reach kernels as memory, written four at a time by calls: the lists are attributes and known now.
    found = o.scratch(len(numbers) + 3, "float64")
    # Three more, so that the last call of four writes inside.
    for at in range(0, len(numbers), 4):
        o.call(put, found, at, *(numbers[at : at + 4] + [0.0] * 4)[:4], dtype="float64")
    return found


def _measure(o: Lowering, objects: Buffer, matches: Buffer, out: Buffer, g: Buffer, *, back: bool) -> None:
    x, boxes = o.input("X"), o.input("GTBox")
    scores, scored = (o.input("GTScore"), 1) if o.inputs("GTScore") else (x, 0)
    smooth = min(1.0 / o.attrs["class_num"], 1.0 / 40) if o.attrs["use_label_smooth"] else 0.0
    o.call(
        measure, x, boxes, o.input("GTLabel"), scores, scored, objects, matches, _anchors(o), out, g, x.shape[0],
        len(o.attrs["anchor_mask"]), boxes.shape[1], o.attrs["class_num"], x.shape[2], len(o.attrs["anchors"]) // 2,
        x.shape[2] * o.attrs["downsample_ratio"], 1.0 - smooth, smooth, int(back),
    )  # fmt: skip


@yolov3_loss.lower("cpu")
def yolov3_loss_cpu(o: Lowering) -> None:
    """Which cell has which box, then the sums; image by image."""
    x, boxes, out = o.input("X"), o.input("GTBox"), o.output("Loss")
    objects, matches = o.output("ObjectnessMask"), o.output("GTMatchMask")
    scores, scored = (o.input("GTScore"), 1) if o.inputs("GTScore") else (x, 0)
    o.call(
        find_objects, x, boxes, scores, scored, objects, matches, _anchors(o), x.shape[0], len(o.attrs["anchor_mask"]), boxes.shape[1],
        o.attrs["class_num"], x.shape[2], len(o.attrs["anchors"]) // 2, o.attrs["ignore_thresh"], x.shape[2] * o.attrs["downsample_ratio"],
        o.attrs["scale_x_y"],
    )  # fmt: skip
    _measure(o, objects, matches, out, out, back=False)


@yolov3_loss.grad(uses="X GTBox GTLabel GTScore ObjectnessMask GTMatchMask").lower("cpu")
def yolov3_loss_grad_cpu(o: Lowering) -> None:
    """The same loops; which cell has which box has no gradient."""
    if o.has("X@GRAD"):
        _measure(o, o.input("ObjectnessMask"), o.input("GTMatchMask"), o.output("X@GRAD"), o.input("Loss@GRAD"), back=True)


deal(find_objects, measure)
also_on_cuda(yolov3_loss)
not_in_onnx(LOSS, "yolov3_loss")
