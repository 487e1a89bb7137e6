"""Ops of two-stage detectors in rows of one number for all images, against the ops without padding, checked from their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.ops.define.lod import HostRun, Leveled
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.traits import OnHost
from tests.ops.support import op_runner, run_gradient, run_op

INFO = np.array([[50.0, 52, 1.0], [48, 50, 1.5], [60, 60, 2.0]])
OFFSETS = np.array([0, 3, 3, 5])
CROWD = np.array([[0], [1], [0], [0], [0]], "int32")


def boxes_of(rng, *shape, room=40.0, least=4.0, most=25.0):
    low = rng.uniform(0, room, (*shape, 2))
    return np.concatenate([low, low + rng.uniform(least, most, (*shape, 2))], -1)


def unpadded(name, attrs, **inputs):
    """Run an op on the host; an input is an array, or one with its offsets, or a list of those."""
    lists = {s: v if isinstance(v, list) else [v] for s, v in inputs.items()}
    given = {s: [Leveled(*v) if isinstance(v, tuple) else Leveled(v) for v in row] for s, row in lists.items()}
    definition = find(name)
    made = definition.get(OnHost).compute(HostRun(name, given, definition.check_attrs(attrs)))
    return {slot: [v if isinstance(v, Leveled) else Leveled(np.asarray(v)) for v in row] for slot, row in made.items()}


@pytest.mark.parametrize("straddle", [pytest.param(2.0, id="inside the image"), pytest.param(-1.0, id="all anchors")])
def test_anchors_are_those_of_rpn_target_assign(straddle, rng):
    anchors, true = boxes_of(rng, 40) - 4, boxes_of(rng, 5, room=20)
    attrs = {"rpn_batch_size_per_im": 12, "rpn_straddle_thresh": straddle, "rpn_positive_overlap": 0.4, "rpn_negative_overlap": 0.2,
             "use_random": False}  # fmt: skip
    given = {"Anchor": anchors, "GtBoxes": true, "IsCrowd": CROWD, "ImInfo": INFO}
    wanted = unpadded(
        "rpn_target_assign", attrs, Anchor=anchors, GtBoxes=(true, (OFFSETS,)), IsCrowd=(CROWD, (OFFSETS,)), ImInfo=INFO,
    )  # fmt: skip
    found = run_op("padded_rpn_targets", {**given, "Offsets": OFFSETS}, attrs)
    rows, moved = found["TargetLabel"].ravel() >= 0, found["BBoxInsideWeight"][:, 0] > 0
    real = wanted["BBoxInsideWeight"][0].array[:, 0] > 0
    for slot in ("ScoreIndex", "TargetLabel"):
        np.testing.assert_array_equal(found[slot][rows], wanted[slot][0].array)
    np.testing.assert_array_equal(found["LocationIndex"][moved], wanted["LocationIndex"][0].array[real])
    np.testing.assert_allclose(found["TargetBBox"][moved], wanted["TargetBBox"][0].array[real], rtol=1e-9)


def test_drawn_anchors_differ_from_step_to_step_and_are_each_as_likely(rng):
    anchors = np.tile([[0.0, 0, 9, 9]], (20, 1)) + np.arange(20)[:, None]  # no box: all are on none
    given = {"Anchor": anchors, "GtBoxes": np.zeros((0, 4)), "ImInfo": INFO[:1], "Offsets": np.array([0, 0])}
    attrs = {"rpn_batch_size_per_im": 5, "rpn_fg_fraction": 0.4, "rpn_straddle_thresh": -1.0}
    run = op_runner("padded_rpn_targets", given, attrs)
    chosen = [run(given, step)["ScoreIndex"] for step in range(80)]
    assert all(len(set(c.tolist())) == 5 for c in chosen)
    counts = np.bincount(np.concatenate(chosen), minlength=20)
    assert ((counts - 20) ** 2 / 20).sum() < 43.8  # chi-square with 19 degrees of freedom: 0.1% are above


def test_anchors_are_those_of_retinanet_target_assign(rng):
    anchors, true, labels = boxes_of(rng, 40), boxes_of(rng, 5, room=20), np.arange(1, 6, dtype="int32")[:, None]
    attrs, level = {"positive_overlap": 0.4, "negative_overlap": 0.2}, (OFFSETS,)
    wanted = unpadded(
        "retinanet_target_assign", attrs, Anchor=anchors, GtBoxes=(true, level), GtLabels=(labels, level), IsCrowd=(CROWD, level),
        ImInfo=INFO,
    )  # fmt: skip
    given = {"Anchor": anchors, "GtBoxes": true, "GtLabels": labels, "IsCrowd": CROWD, "ImInfo": INFO, "Offsets": OFFSETS}
    found = run_op("padded_retinanet_targets", given, attrs)
    label, moves, real = np.full(120, -1), np.zeros((120, 4)), wanted["BBoxInsideWeight"][0].array[:, 0] > 0
    label[wanted["ScoreIndex"][0].array] = wanted["TargetLabel"][0].array.ravel()
    moves[wanted["LocationIndex"][0].array[real]] = wanted["TargetBBox"][0].array[real]
    np.testing.assert_array_equal(found["TargetLabel"].ravel(), label)
    np.testing.assert_array_equal(found["ForegroundNumber"], wanted["ForegroundNumber"][0].array)
    np.testing.assert_allclose(found["TargetBBox"], moves, rtol=1e-9)


@pytest.mark.parametrize("stage", [pytest.param(False, id="the first stage"), pytest.param(True, id="a later stage of a cascade")])
def test_boxes_are_those_of_generate_proposal_labels(stage, rng):
    rois, true = boxes_of(rng, 3, 20), boxes_of(rng, 5, room=25)
    counts, classes = np.array([[20], [13], [5]], "int32"), rng.integers(1, 4, (5, 1)).astype("int32")
    attrs = {
        "batch_size_per_im": 9, "fg_fraction": 0.4, "fg_thresh": 0.3, "bg_thresh_hi": 0.3, "class_nums": 2 if stage else 4,
        "use_random": False, "is_cascade_rcnn": stage, "is_cls_agnostic": stage,
    }  # fmt: skip
    level, ends = (OFFSETS,), np.array([0, 20, 33, 38])
    rows = np.concatenate([rois[i, :n] for i, (n,) in enumerate(counts)])
    wanted = unpadded(
        "generate_proposal_labels", attrs, RpnRois=(rows, (ends,)), GtClasses=(classes, level), IsCrowd=(CROWD, level),
        GtBoxes=(true, level), ImInfo=INFO,
    )  # fmt: skip
    given = {"RpnRois": rois, "Counts": counts, "GtClasses": classes, "IsCrowd": CROWD, "GtBoxes": true, "ImInfo": INFO, "Offsets": OFFSETS}
    found = run_op("padded_proposal_labels", given, attrs)
    kept = found["LabelsInt32"].reshape(3, -1) >= 0
    assert kept.sum(1).tolist() == np.diff(wanted["Rois"][0].lod[0]).tolist()
    np.testing.assert_allclose(found["Rois"][kept], wanted["Rois"][0].array, rtol=1e-9)
    for slot in ("LabelsInt32", "BboxTargets", "BboxInsideWeights", "BboxOutsideWeights"):
        np.testing.assert_allclose(found[slot][kept.ravel()], wanted[slot][0].array, rtol=1e-9, atol=1e-12)
    with pytest.raises(PeError, match="out of range"):
        run_op("padded_proposal_labels", {**given, "GtClasses": classes - 9}, attrs)


def test_masks_are_those_of_generate_mask_labels(rng):
    true, most = boxes_of(rng, 5, room=20, least=12), 6
    shapes, polygons = np.zeros((5, 2, most, 2)), []
    for g, (left, top, right, bottom) in enumerate(true):
        polygons.append([])
        for p in range(int(rng.integers(1, 3))):
            points = [left, top] + rng.uniform(0, 1, (int(rng.integers(3, most)), 2)) * [right - left, bottom - top]
            polygons[g].append(points)
            shapes[g, p] = np.concatenate([points, np.repeat(points[-1:], most - len(points), 0)])
    flat = [points for each in polygons for points in each]
    levels = (OFFSETS, np.cumsum([0, *map(len, polygons)]), np.cumsum([0, *map(len, flat)]))
    regions = [[true[g] + rng.uniform(-3, 3, 4) for g in of] for of in ((0, 2, 2, 0), (0, 1, 2, 3), (3, 4, 4, 3))]
    rois = np.array(regions) * INFO[:, 2][:, None, None]
    labels = np.array([[1, 3, 2, 0], [0, 0, 0, 0], [3, 1, 1, 1]], "int32").reshape(-1, 1)
    classes, attrs, rows, level = np.full((5, 1), 2, "int32"), {"num_classes": 4, "resolution": 9}, (np.array([0, 4, 8, 12]),), (OFFSETS,)
    wanted = unpadded(
        "generate_mask_labels", attrs, ImInfo=INFO, GtClasses=(classes, level), IsCrowd=(CROWD, level),
        GtSegms=(np.concatenate(flat), levels), Rois=(rois.reshape(-1, 4), rows), LabelsInt32=(labels, rows),
    )  # fmt: skip
    objects = {"GtClasses": classes, "IsCrowd": CROWD, "GtSegms": shapes, "Offsets": OFFSETS}
    given = {"ImInfo": INFO, **objects, "Rois": rois, "LabelsInt32": labels}
    found = run_op("padded_mask_labels", given, attrs)
    has = found["RoiHasMaskInt32"].ravel() == 1
    np.testing.assert_array_equal(has, labels.ravel() > 0)
    masks = wanted["MaskInt32"][0].array
    real = [*range(3), *range(4, 8)]  # the second image has one row without a mask
    assert (masks[real] == 1).sum() > 30
    np.testing.assert_array_equal(found["MaskInt32"][has], masks[real])
    assert (found["MaskInt32"][~has] == -1).all()


def test_levels_are_those_of_distribute_fpn_proposals(rng):
    rois = boxes_of(rng, 3, 7, room=100, least=0, most=300)
    attrs = {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 100}
    found = run_op("padded_fpn_levels", {"FpnRois": rois}, attrs, outputs={"MultiFpnRois": 4})
    wanted = unpadded("distribute_fpn_proposals", attrs, FpnRois=(rois.reshape(-1, 4), (np.array([0, 7, 14, 21]),)))
    for level, expected in zip(found["MultiFpnRois"], wanted["MultiFpnRois"], strict=True):
        for i, (a, b) in enumerate(zip(expected.lod[0], expected.lod[0][1:], strict=False)):
            np.testing.assert_array_equal(level[i], np.concatenate([expected.array[a:b], np.zeros((7 - b + a, 4))]))
    joined = np.concatenate([level.reshape(-1, 4) for level in found["MultiFpnRois"]])
    np.testing.assert_array_equal(joined[found["RestoreIndex"].ravel()], rois.reshape(-1, 4))


def test_the_best_are_those_of_collect_fpn_proposals(rng):
    sizes, ends, rois = [4, 3, 2], [0, 4, 7, 9], rng.uniform(0, 50, (3, 9, 4))
    scores, counts = rng.uniform(0, 1, (3, 9, 1)).round(1), np.array([[4, 2, 1], [0, 3, 2], [3, 0, 2]], "int32")
    given = {"Rois": rois, "Scores": scores, "Counts": counts}
    found = run_op("padded_fpn_best", given, {"sections": sizes, "post_nms_topN": 8})

    def levels(of):
        parts = [[of[i, ends[k] : ends[k] + counts[i, k]] for i in range(3)] for k in range(3)]
        return [(np.concatenate(part), (np.cumsum([0, *counts[:, k]]),)) for k, part in enumerate(parts)]

    lists = {"MultiLevelRois": levels(rois), "MultiLevelScores": levels(scores)}
    (wanted,) = unpadded("collect_fpn_proposals", {"post_nms_topN": 8}, **lists)["FpnRois"]
    numbers = found["Count"].ravel()
    assert numbers.tolist() == np.diff(wanted.lod[0]).tolist()
    np.testing.assert_array_equal(np.concatenate([found["FpnRois"][i, :n] for i, n in enumerate(numbers)]), wanted.array)
    assert all(not found["FpnRois"][i, n:].any() for i, n in enumerate(numbers))


@pytest.mark.parametrize("attrs", [
    pytest.param({"keep_top_k": 40}, id="room for all"),
    pytest.param({"nms_top_k": 6, "keep_top_k": 5, "score_threshold": 0.3}, id="the best of each level"),
    pytest.param({"nms_threshold": 0.7, "nms_eta": 0.8, "keep_top_k": 40}, id="a threshold that falls"),
])  # fmt: skip
def test_detections_are_those_of_retinanet_detection_output(attrs, rng):
    sizes, moves, scores, anchors = [8, 5, 4], rng.standard_normal((3, 17, 4)) * 0.3, rng.uniform(0, 1, (3, 17, 3)), boxes_of(rng, 17)
    cut = {"BBoxes": (moves, 1), "Scores": (scores, 1), "Anchors": (anchors, 0)}
    levels = {s: np.split(v, [8, 13], axis) for s, (v, axis) in cut.items()}
    wanted = run_op("retinanet_detection_output", {**levels, "ImInfo": INFO}, attrs)
    found = run_op(
        "padded_retinanet_output", {"BBoxes": moves, "Scores": scores, "Anchors": anchors, "ImInfo": INFO}, {**attrs, "sections": sizes}
    )
    counts = found["Count"].ravel()
    assert counts.tolist() == np.diff(wanted.lod[0]).tolist()
    np.testing.assert_allclose(np.concatenate([found["Out"][i, :n] for i, n in enumerate(counts)]), np.asarray(wanted), rtol=1e-9)
    assert all((found["Out"][i, n:, 0] == -1).all() for i, n in enumerate(counts))


def test_samples_are_those_that_filter_by_instag_keeps(rng):
    rows, tags, wanted = rng.uniform(size=(5, 3)), np.array([[1], [4], [2], [5]]), np.array([4, 5])
    ends, of_tags = np.array([0, 2, 3, 5]), np.array([0, 2, 3, 4])
    found = run_op("mark_by_instag", {"Ins": rows, "Ins_tag": tags, "Filter_tag": wanted, "Offsets": ends, "TagOffsets": of_tags},
                   {"out_val_if_empty": 7})  # fmt: skip
    kept = unpadded("filter_by_instag", {}, Ins=(rows, (ends,)), Ins_tag=(tags, (of_tags,)), Filter_tag=wanted)
    np.testing.assert_array_equal(found["LossWeight"].ravel(), [1, 0, 1])
    np.testing.assert_array_equal(found["Out"][[0, 1, 3, 4]], kept["Out"][0].array)
    assert (found["Out"][2] == 7).all()
    back = run_gradient("mark_by_instag", {"Ins": rows[:4], "Ins_tag": tags, "Filter_tag": wanted}, {"is_lod": False})
    np.testing.assert_array_equal(back["Ins"], [[0] * 3, [1] * 3, [0] * 3, [1] * 3])


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_different_values_are_those_of_numpy(dtype, rng):
    x = rng.integers(-5, 5, 50).astype(dtype)
    found = run_op("padded_unique", {"X": x}, {"dtype": "int64"})
    values, first, counts = np.unique(x, return_index=True, return_counts=True)
    order, n = np.argsort(first), len(values)
    assert found["Count"].tolist() == [n]
    np.testing.assert_array_equal(found["Out"], [*values[order], *[0] * (50 - n)])
    np.testing.assert_array_equal(found["Times"], [*counts[order], *[0] * (50 - n)])
    np.testing.assert_array_equal(found["Out"][found["Index"]], x)


def test_values_beside_nan_are_found_once():
    x = np.array([3, 2, 2, 1, 1, 0, np.nan, np.nan, 0, 3, 2, np.nan], "float32")
    found = run_op("padded_unique", {"X": x}, {"dtype": "int64"})
    np.testing.assert_array_equal(found["Out"], [3, 2, 1, 0, np.nan, np.nan, np.nan, 0, 0, 0, 0, 0])
    assert found["Times"].tolist() == [2, 3, 2, 2, 1, 1, 1, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(found["Out"][found["Index"]], x)


def test_places_are_those_of_numpy(rng):
    condition = rng.random((3, 4, 2)) < 0.4
    found = run_op("padded_where", {"Condition": condition})
    n = found["Count"][0]
    np.testing.assert_array_equal(found["Out"][:n], np.argwhere(condition))
    assert (found["Out"][n:] == -1).all()


@pytest.mark.parametrize(("op", "inputs", "attrs", "text"), [
    pytest.param("padded_fpn_levels", {"FpnRois": np.zeros((3, 4))}, {}, r"needs boxes \[images, rows, 4\]", id="rows without images"),
    pytest.param("padded_fpn_best", {"Rois": np.zeros((1, 3, 4)), "Scores": np.zeros((1, 3, 1))}, {"sections": [2]},
                 r"levels of \[2\] rows", id="levels of other sizes"),
    pytest.param("padded_where", {"Condition": np.zeros(3)}, {}, "bool tensor", id="numbers for a condition"),
    pytest.param("padded_unique", {"X": np.zeros((2, 3))}, {}, "a vector of numbers", id="a matrix"),
    pytest.param("mark_by_instag", {"Ins": np.zeros((3, 2)), "Ins_tag": np.zeros((2, 1), "int64"), "Filter_tag": np.zeros(1, "int64")},
                 {"is_lod": False}, "3 samples, but tags of 2", id="too few tags"),
])  # fmt: skip
def test_what_does_not_fit(op, inputs, attrs, text):
    outputs = {"MultiFpnRois": 4} if op == "padded_fpn_levels" else None
    with pytest.raises(PeError, match=text):
        run_op(op, inputs, attrs, outputs)
