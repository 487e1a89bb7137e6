"""Functions of regions, boxes and convolutions whose taps move."""

from __future__ import annotations

import numpy as np

from tests.paddle.later import Case, f

IMAGES = f(2, 4, 8, 8)
BOXES = np.array([[0, 1, 5, 6], [2.5, 0.5, 7, 7.5], [1, 2, 6, 7], [0, 0, 3, 4]], "float32")
COUNTS = np.array([1, 3], "int32")
MANY = np.concatenate([BOXES, BOXES + np.float32(0.5), BOXES * np.float32([1, 1, 0.5, 0.5]) + 1])
SCORES = np.abs(f(12, seed=4))
KINDS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 1, 2, 0, 0])
OFFSETS, MASK = f(2, 18, 6, 6, seed=3), np.abs(f(2, 9, 6, 6, seed=4))


def _ops(p):
    return p.vision.ops


def _listed(made):
    return made if isinstance(made, list) else [made]


#: Without psroi_pool, which crashes 2.6.2 in static mode.
CASES = {
    "roi_pool": Case(lambda p, x, b, n: _ops(p).roi_pool(x, b, n, 2), {"x": IMAGES, "b": BOXES, "n": COUNTS}),
    "RoIPool": Case(lambda p, x, b, n: _ops(p).RoIPool((2, 3), 0.5)(x, b, n), {"x": IMAGES, "b": 2 * BOXES, "n": COUNTS}),
    "roi_align": Case(lambda p, x, b, n: _ops(p).roi_align(x, b, n, 2), {"x": IMAGES, "b": BOXES, "n": COUNTS}, near=1e-5),
    "roi_align at corners": Case(
        lambda p, x, b, n: _ops(p).roi_align(x, b, n, (2, 3), 0.5, 2, False), {"x": IMAGES, "b": 2 * BOXES, "n": COUNTS}, near=1e-5
    ),
    "RoIAlign": Case(lambda p, x, b, n: _ops(p).RoIAlign(3)(x, b, n), {"x": IMAGES, "b": BOXES, "n": COUNTS}, near=1e-5),
    "prior_box": Case(
        lambda p, x, y: _ops(p).prior_box(x, y, [4.0], [9.0], [1.0, 2.0], flip=True, clip=True), {"x": f(1, 2, 3, 3), "y": f(1, 3, 12, 12)},
        slopes=False,
    ),
    "box_coder": Case(
        lambda p, x, y: _ops(p).box_coder(x, [0.1, 0.1, 0.2, 0.2], y), {"x": BOXES, "y": BOXES[:3] + np.float32(0.5)}, slopes=False
    ),
    "box_coder back": Case(
        lambda p, x, v, y: _ops(p).box_coder(x, v, y, "decode_center_size", False, 1),
        {"x": BOXES, "v": np.abs(f(4, 4)), "y": f(4, 3, 4, seed=2)}, slopes=False,
    ),
    "nms": Case(lambda p, x: _ops(p).nms(x, 0.4), {"x": MANY}),
    "nms by scores": Case(lambda p, x, s: _ops(p).nms(x, 0.3, s), {"x": MANY, "s": SCORES}, slopes=False),
    "nms of categories": Case(lambda p, x, s, k: _ops(p).nms(x, 0.3, s, k, [0, 1, 2]), {"x": MANY, "s": SCORES, "k": KINDS}, slopes=False),
    "nms of the best": Case(lambda p, x, s, k: _ops(p).nms(x, 0.3, s, k, [0, 1, 2], 4), {"x": MANY, "s": SCORES, "k": KINDS}, slopes=False),
    "matrix_nms": Case(
        lambda p, x, s: _ops(p).matrix_nms(x, s, 0.1, 0.2, 8, 6, return_index=True),
        {"x": np.stack([MANY, MANY[::-1]]), "s": np.abs(f(2, 3, 12, seed=5)) / 2}, slopes=False, near=1e-5,
    ),
    "distribute_fpn_proposals": Case(
        lambda p, x, n: [v for part in _ops(p).distribute_fpn_proposals(x, 2, 4, 3, 4, rois_num=n) for v in _listed(part)],
        {"x": MANY * 2, "n": np.array([5, 7], "int32")}, slopes=False,
    ),
    "deform_conv2d": Case(
        lambda p, x, o, w: _ops(p).deform_conv2d(x, o, w), {"x": IMAGES, "o": OFFSETS, "w": f(3, 4, 3, 3, seed=2)}, near=1e-5
    ),
    "deform_conv2d with everything": Case(
        lambda p, x, o, w, b, m: _ops(p).deform_conv2d(x, o, w, b, 2, 1, 1, 2, 2, m),
        {"x": IMAGES, "o": f(2, 36, 4, 4, seed=3), "w": f(6, 2, 3, 3, seed=2), "b": f(6, seed=6), "m": np.abs(f(2, 18, 4, 4))}, near=1e-5,
    ),
}  # fmt: skip
