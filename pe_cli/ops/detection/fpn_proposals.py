"""distribute_fpn_proposals and collect_fpn_proposals: boxes of a feature pyramid, by level and together. They run on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun, Leveled, offsets_of
from pe_cli.ops.define.onnx import PADDED, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection.box_helpers import check_boxes, per_image


def _boxes(count, size):
    def draw(rng):
        low = rng.uniform(0, size / 2, (count, 2))
        return np.concatenate([low, low + rng.uniform(0, size / 2, (count, 2))], 1)

    return draw


@op(
    "distribute_fpn_proposals",
    inputs="FpnRois",
    outputs="MultiFpnRois* RestoreIndex",
    attrs={
        "min_level": Attr(2, "the finest level"),
        "max_level": Attr(5, "the coarsest level"),
        "refer_level": Attr(4, "level of boxes of refer_scale"),
        "refer_scale": Attr(224, "side of such a box, in pixels"),
    },
    differentiable="",
    samples=[
        Sample({"FpnRois": _boxes(12, 400)}, {"min_level": 2, "max_level": 4, "refer_level": 3, "refer_scale": 60}, "twelve boxes",
               outputs={"MultiFpnRois": 3}),
        Sample({"FpnRois": (0, 4)}, {"min_level": 2, "max_level": 3}, "no boxes", outputs={"MultiFpnRois": 2}),
    ],
)  # fmt: skip
def distribute_fpn_proposals(
    rois: TensorType, *, min_level: int, max_level: int, refer_level: int, refer_scale: int
) -> tuple[list[TensorType], TensorType]:
    """Give every box to the level of a feature pyramid that its size asks for.

    level = floor(refer_level + log2(sqrt(area) / refer_scale)), within min_level and max_level

    Args:
        FpnRois: [boxes, 4] float32 or float64, a sequence for each image.

    Returns:
        MultiFpnRois: for each level its boxes [boxes, 4], a sequence for each image, in their order.
        RestoreIndex: [boxes, 1] int32: the place of each box of FpnRois in the levels' boxes one after the other.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.distribute_fpn_proposals; Lin et al. 2017, "Feature Pyramid Networks", eq. 1.
    """
    check_boxes("distribute_fpn_proposals", FpnRois=rois)
    del refer_level
    if min_level > max_level or refer_scale < 1:
        raise PeError(f"distribute_fpn_proposals: levels {min_level} to {max_level}, refer_scale {refer_scale}", hint="rising, above 0")
    return [rois.with_shape(-1, 4)] * (max_level - min_level + 1), TensorType((rois.shape[0], 1), "int32")


@distribute_fpn_proposals.host_run
def distribute_fpn_proposals_host(run: HostRun) -> dict[str, list[object]]:
    """Choose the levels of all regions by their areas."""
    (given,) = run.values["FpnRois"]
    rois, a = given.array, run.attrs
    offsets = given.lod[-1] if given.lod else [0, len(rois)]
    sides = rois[:, 2:] - rois[:, :2]
    # A box with a side below 0 has area 0 and log2 of -inf, which the clip sends to the finest level; the last pixel is inside.
    area = np.where((sides >= 0).all(1), (sides + 1).prod(1), 0)
    with np.errstate(divide="ignore"):
        # In the element type of the boxes, as the original: a box at a border of two levels must fall on the same side.
        wanted = np.floor(np.log2(np.sqrt(area) / rois.dtype.type(a["refer_scale"])) + rois.dtype.type(a["refer_level"]))
    level = np.clip(wanted, a["min_level"], a["max_level"]).astype(np.int64)
    levels = range(a["min_level"], a["max_level"] + 1)
    order = np.argsort(level, kind="stable")
    restore = np.empty((len(rois), 1), np.int32)
    # order[i] is the box at place i of the levels one after the other, so its inverse tells each box its place.
    restore[order, 0] = np.arange(len(rois))
    image = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    counts = [np.bincount(image[level == k], minlength=len(offsets) - 1) for k in levels]
    made = [Leveled(rois[level == k], (offsets_of(n).tolist(),)) for k, n in zip(levels, counts, strict=True)]
    return {"MultiFpnRois": list(made), "RestoreIndex": [restore]}


@op(
    "collect_fpn_proposals",
    inputs="MultiLevelRois* MultiLevelScores*",
    outputs="FpnRois",
    attrs={"post_nms_topN": Attr(1000, "boxes of the whole batch at most")},
    differentiable="",
    samples=[
        Sample({"MultiLevelRois": [(3, 4), (4, 4)], "MultiLevelScores": [(3, 1), (4, 1)]}, {"post_nms_topN": 5}, "two levels"),
        Sample({"MultiLevelRois": [(2, 4)], "MultiLevelScores": [(2, 1)]}, name="one level"),
    ],
)
def collect_fpn_proposals(
    rois: Sequence[TensorType],
    scores: Sequence[TensorType],
    *,
    post_nms_topN: int,
) -> TensorType:
    """Put the boxes of all levels of a feature pyramid together that have the best scores.

    Args:
        MultiLevelRois: [boxes, 4] float32 or float64 for each level, a sequence for each image.
        MultiLevelScores: [boxes, 1] the same element type, a sequence for each image.

    Returns:
        FpnRois: [boxes, 4] a sequence for each image, its best boxes first; of equal scores the one of the finer level.

    Raises:
        PeError: types that do not fit; while running, boxes and scores of different numbers.

    Source:
        fluid.layers.collect_fpn_proposals.
    """
    check_boxes("collect_fpn_proposals", **{f"MultiLevelRois {i}": kind for i, kind in enumerate(rois)})
    if not rois or len(rois) != len(scores) or post_nms_topN < 0:
        raise PeError(f"collect_fpn_proposals: {len(rois)} boxes, {len(scores)} scores, post_nms_topN {post_nms_topN}")
    if any(s.dtype != rois[0].dtype or r.dtype != rois[0].dtype for r, s in zip(rois, scores, strict=True)):
        raise PeError(f"collect_fpn_proposals needs one element type, got {', '.join(map(str, (*rois, *scores)))}")
    return rois[0].with_shape(-1, 4)


@collect_fpn_proposals.host_run
def collect_fpn_proposals_host(run: HostRun) -> dict[str, list[object]]:
    """Sort by score, then by image.

    Raises:
        PeError: boxes and scores of different numbers (exit code 3).
    """
    first = run.values["MultiLevelRois"][0]
    images = len(first.lod[-1]) - 1 if first.lod else 1
    rois, scores, owner = [], [], []
    for k, given in enumerate(run.values["MultiLevelRois"]):
        ends = [run.offsets(slot, images, k) for slot in ("MultiLevelRois", "MultiLevelScores")]
        if (ends[0] != ends[1]).any():
            message = f"collect_fpn_proposals: level {k} has boxes {ends[0].tolist()}, scores {ends[1].tolist()}"
            raise PeError(message, hint="a score for each box", code=ExitCode.DATA)
        rois.append(given.array)
        scores.append(run.values["MultiLevelScores"][k].array.ravel())
        owner.append(np.repeat(np.arange(images), np.diff(ends[0])))
    # The limit is for the whole batch, not for each image, as in the original: an image of weak proposals may keep none.
    of, best = np.concatenate(owner), np.argsort(-np.concatenate(scores), kind="stable")[: run.attrs["post_nms_topN"]]
    boxes = np.concatenate(rois)
    return {"FpnRois": [per_image([boxes[best[of[best] == i]] for i in range(images)], boxes)]}
not_in_onnx(PADDED, "collect_fpn_proposals", "distribute_fpn_proposals")
