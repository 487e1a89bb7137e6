"""Boxes that are chosen in onnxruntime are those that pe chooses, where the samples of the ops are too few to tell."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from pe_cli.build.build import build as build_programs
from pe_cli.config.load import load_model
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.io.onnx.export import export
from pe_cli.ops.define.registry import discover
from pe_cli.program.prune import prune
from tests.io.test_onnx import onnx_values
from tests.ops.support import build, execute

discover()
#: A pyramid of two levels: proposals of both, the best of them, and what each looks like on the level that its size asks for.
PYRAMID = """\
name: pyramid
feeds:
  image: {shape: [3, 32, 32]}
layers:
  fine:    {type: conv2d, input: image, num_filters: 8, filter_size: 3, padding: 1, stride: 4, act: tanh}
  coarse:  {type: conv2d, input: fine, num_filters: 8, filter_size: 3, padding: 1, stride: 2, act: tanh}
  sides:   {type: fill_constant_batch_size_like, input: image, shape: [-1, 2], value: 32}
  scale:   {type: fill_constant_batch_size_like, input: image, shape: [-1, 1], value: 1}
  info:    {type: concat, input: [sides, scale], axis: 1}
  sure2:   {type: conv2d, input: fine, num_filters: 3, filter_size: 1, act: sigmoid}
  sure3:   {type: conv2d, input: coarse, num_filters: 3, filter_size: 1, act: sigmoid}
  move2:   {type: conv2d, input: fine, num_filters: 12, filter_size: 1}
  move3:   {type: conv2d, input: coarse, num_filters: 12, filter_size: 1}
  anchor2: {type: anchor_generator, input: fine, anchor_sizes: [8], aspect_ratios: [0.5, 1, 2], variance: [1, 1, 1, 1], stride: [4, 4]}
  anchor3: {type: anchor_generator, input: coarse, anchor_sizes: [16], aspect_ratios: [0.5, 1, 2], variance: [1, 1, 1, 1], stride: [8, 8]}
  found2:  {type: generate_proposals, scores: sure2, bbox_deltas: move2, im_info: info, anchors: anchor2.0, variances: anchor2.1,
            pre_nms_top_n: 60, post_nms_top_n: 12, nms_thresh: 0.6}
  found3:  {type: generate_proposals, scores: sure3, bbox_deltas: move3, im_info: info, anchors: anchor3.0, variances: anchor3.1,
            pre_nms_top_n: 40, post_nms_top_n: 8, nms_thresh: 0.6}
  best:    {type: collect_fpn_proposals, multi_rois: [found2.0, found3.0], multi_scores: [found2.1, found3.1], min_level: 2, max_level: 3,
            post_nms_top_n: 20, counts: [found2.2, found3.2]}
  rois:    {type: distribute_fpn_proposals, fpn_rois: best.0, min_level: 2, max_level: 3, refer_level: 3, refer_scale: 16}
  look2:   {type: roi_align, input: fine, rois: rois.0, pooled_height: 3, pooled_width: 3, spatial_scale: 0.25, sampling_ratio: 2}
  look3:   {type: roi_align, input: coarse, rois: rois.1, pooled_height: 3, pooled_width: 3, spatial_scale: 0.125, sampling_ratio: 2}
  looks:   {type: concat, input: [look2, look3], axis: 0}
  looked:  {type: gather, input: looks, index: rois.2}
  kinds:   {type: fc, input: looked, size: 4, act: softmax}
fetches: [kinds, best.0, best.1]
"""


def both(name, inputs, attrs, outputs=None, slots=None):
    """Return what pe and what onnxruntime compute: name, the one and the other, of all outputs or those of some slots."""
    given = {slot: [np.asarray(array)] for slot, array in inputs.items()}
    program, outs = build(name, given, attrs, outputs or {})
    wanted = [n for slot, names in outs.items() if slots is None or slot in slots for n in names]
    ours = execute(program, given, wanted)
    theirs = onnx_values(program, {f"{s}_{i}": a for s, v in given.items() for i, a in enumerate(v)}, wanted)
    return [(n, ours[n], theirs[n]) for n in wanted]


def same(found):
    for name, ours, theirs in found:
        assert theirs.dtype == ours.dtype, name
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5, err_msg=name)


def boxes(rng, *shape, side=40.0):
    """Return boxes of whole pixels, of which many overlap."""
    low = rng.integers(0, int(side), (*shape, 2))
    return np.concatenate([low, low + rng.integers(0, int(side) // 2, (*shape, 2))], -1).astype("float32")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"nms_eta": 0.9, "nms_threshold": 0.7}, id="a threshold that falls"),
        pytest.param({"normalized": False, "nms_threshold": 0.3}, id="boxes whose last pixel is inside"),
        pytest.param({"normalized": False, "nms_threshold": 0.6, "nms_eta": 0.95, "nms_top_k": 20}, id="both, of the best 20"),
    ],
)
def test_nms_beyond_the_node_of_onnx_keeps_the_same_boxes(seed, attrs):
    rng = np.random.default_rng(seed)
    inputs = {"BBoxes": boxes(rng, 2, 40), "Scores": rng.integers(0, 30, (2, 3, 40)).astype("float32") / 30}
    found = both("padded_nms", inputs, {"score_threshold": 0.1, "keep_top_k": 25, **attrs})
    same(found)
    (count,) = [theirs for _, ours, theirs in found if ours.shape == (2, 1)]
    assert 5 < count.max() <= 25


@pytest.mark.parametrize(
    "attrs",
    [{}, {"nms_top_k": 9, "background_label": 1, "score_threshold": 0.4}, {"nms_eta": 0.7, "nms_threshold": 0.6, "normalized": False}],
)
def test_neighbours_that_are_merged_are_the_same_boxes(attrs):
    rng = np.random.default_rng(8)
    inputs = {"BBoxes": boxes(rng, 3, 40, side=12.0), "Scores": rng.uniform(0.1, 1, (3, 4, 40)).astype("float32")}
    same(both("padded_locality_nms", inputs, {"keep_top_k": 30, **attrs}))


@pytest.mark.parametrize("eta", [0.9, 1.0])
def test_a_point_is_kept_once(eta):
    points = np.full((1, 3, 4), 7, "float32")
    points[0, 2] = 8
    inputs = {"BBoxes": points, "Scores": np.array([[[0.9, 0.8, 0.7]]], "float32")}
    found = both("padded_nms", inputs, {"keep_top_k": 3, "nms_eta": eta, "background_label": -1})
    same(found)
    assert found[2][2].tolist() == [[2]]


def test_boxes_whose_ends_are_turned_have_no_area():
    corners = np.array([[[0, 0, 4, 4], [4, 4, 0, 0], [4, 0, 0, 4], [1, 0, 5, 4]]], "float32")
    inputs = {"BBoxes": corners, "Scores": np.array([[[0.9, 0.8, 0.7, 0.6]]], "float32")}
    same(both("padded_nms", inputs, {"keep_top_k": 4, "background_label": -1, "nms_threshold": 0.3}))


def test_images_with_few_boxes_have_them_in_their_first_rows():
    rng = np.random.default_rng(4)
    scores = rng.uniform(0, 0.1, (3, 4, 20))
    scores[0, 2, 5] = scores[1, 3, 7] = scores[1, 1, 2] = 0.9
    inputs = {"BBoxes": boxes(rng, 3, 20), "Scores": scores.astype("float32")}
    found = both("padded_nms", inputs, {"score_threshold": 0.5, "keep_top_k": 6, "nms_threshold": 0.5})
    same(found)
    (rows,) = [theirs for _, ours, theirs in found if ours.shape == (3, 6, 6)]
    assert rows[..., 0].tolist() == [[2, *[-1] * 5], [1, 3, *[-1] * 4], [-1] * 6]


def proposals(rng, equal=False):
    scores = rng.uniform(0, 1, (2, 3, 6, 7))
    anchors = boxes(rng, 6, 7, 3)
    return {
        "Scores": (np.round(scores * 5) / 5 if equal else scores).astype("float32"),
        "BboxDeltas": (rng.standard_normal((2, 12, 6, 7)) * 0.4).astype("float32"),
        "ImInfo": np.array([[40, 45, 1], [30, 50, 2]], "float32"),
        "Anchors": anchors, "Variances": np.full_like(anchors, 0.7),
    }  # fmt: skip


@pytest.mark.parametrize("equal", [pytest.param(False, id="scores apart"), pytest.param(True, id="many equal scores")])
@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"post_nms_topN": 8}, id="as many as asked for, and no more rounds"),
        pytest.param({"post_nms_topN": 126}, id="fewer than asked for"),
        pytest.param({"post_nms_topN": 140, "pre_nms_topN": 0}, id="more rows than anchors"),
        pytest.param({"post_nms_topN": 20, "nms_thresh": 0.0}, id="none is left out"),
        pytest.param({"post_nms_topN": 50, "nms_thresh": 0.9, "eta": 0.9}, id="a threshold that falls"),
        pytest.param({"post_nms_topN": 20, "pre_nms_topN": 30, "min_size": 9.0}, id="small ones do not count"),
    ],
)
def test_proposals_are_the_same_and_in_the_same_order(attrs, equal):
    same(both("padded_proposals", proposals(np.random.default_rng(3), equal), {"pre_nms_topN": 100, "nms_thresh": 0.5, **attrs}))


@pytest.mark.parametrize("refer", [1, 3, 4, 6])
def test_levels_of_a_pyramid_are_those_of_exact_powers_of_two(refer):
    sides = np.array([0, 1, 27, 27.999, 28, 55.99, 56, 112, 223.9, 224, 448, 1e4, -3], "float32")
    rois = np.stack([np.zeros_like(sides), np.zeros_like(sides), sides - 1, sides - 1], -1)
    attrs = {"min_level": 2, "max_level": 5, "refer_level": refer, "refer_scale": 56}
    found = both("padded_fpn_levels", {"FpnRois": np.stack([rois, rois[::-1]])}, attrs, {"MultiFpnRois": 4})
    for name, ours, theirs in found:
        np.testing.assert_array_equal(theirs, ours, err_msg=name)


@pytest.mark.parametrize("most", [1, 7, 30, 100])
def test_the_best_of_all_levels_are_those_of_the_whole_batch(most):
    rng = np.random.default_rng(most)
    inputs = {
        "Rois": boxes(rng, 3, 12), "Scores": rng.integers(0, 5, (3, 12, 1)).astype("float32"),
        "Counts": rng.integers(0, 5, (3, 3)).astype("int32"),
    }  # fmt: skip
    same(both("padded_fpn_best", inputs, {"sections": [5, 4, 3], "post_nms_topN": most}))


@pytest.mark.parametrize(
    ("op", "channels", "attrs"),
    [
        pytest.param("roi_align", 3, {"sampling_ratio": 2}, id="roi_align"),
        pytest.param("roi_align", 3, {"sampling_ratio": -1}, id="roi_align, as many points as pixels"),
        pytest.param("roi_pool", 3, {}, id="roi_pool"),
        pytest.param("prroi_pool", 3, {}, id="prroi_pool"),
        pytest.param("psroi_pool", 2 * 7 * 7, {"output_channels": 2}, id="psroi_pool"),
    ],
)
def test_regions_of_all_sizes_look_the_same(op, channels, attrs):
    rng = np.random.default_rng(5)
    # sides of 57 and 114 pixels: by float32 numbers a seventh of them is a little too much
    low = rng.uniform(-20, 60, (23, 2))
    rois = np.concatenate([low, low + rng.choice([3.3, 56, 56.4, 113, 120, 0], (23, 2))], -1).astype("float32")
    inputs = {
        "X": rng.standard_normal((3, channels, 70, 66)).astype("float32"), "ROIs": rois,
        "BatchRoINums": np.array([11, 0, 12], "int64"),
    }  # fmt: skip
    ((_, ours, theirs),) = both(op, inputs, {"pooled_height": 7, "pooled_width": 7, "spatial_scale": 1.0, **attrs}, slots=["Out"])
    assert np.abs(ours).max() > 0.1
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4)


def test_regions_that_no_image_has_end_the_run_and_say_so():
    inputs = {"X": np.ones((2, 1, 5, 5), "float32"), "ROIs": np.ones((3, 4), "float32"), "BatchRoINums": np.array([1, 1], "int64")}
    given = {slot: [array] for slot, array in inputs.items()}
    program, outs = build("roi_align", given, {"pooled_height": 2, "pooled_width": 2}, {})
    with pytest.raises(Exception, match="sum to fewer than there are"):
        onnx_values(program, {f"{slot}_0": array for slot, array in inputs.items()}, list(outs["Out"]))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"keep_top_k": 9}, id="linear"),
        pytest.param({"keep_top_k": 70, "use_gaussian": True, "gaussian_sigma": 0.7, "background_label": -1}, id="by a Gaussian"),
        pytest.param({"keep_top_k": 9, "normalized": False, "nms_top_k": 7, "post_threshold": 0.3}, id="pixels, of the best seven"),
    ],
)
def test_scores_that_are_lowered_by_overlaps_are_the_same(seed, attrs):
    rng = np.random.default_rng(seed)
    inputs = {"BBoxes": boxes(rng, 2, 20), "Scores": rng.integers(0, 30, (2, 3, 20)).astype("float32") / 30}
    same(both("padded_matrix_nms", inputs, {"score_threshold": 0.2, **attrs}))


@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"keep_top_k": 12, "nms_threshold": 0.4}, id="more boxes than rows"),
        pytest.param({"keep_top_k": 80, "nms_threshold": 0.3}, id="more rows than boxes"),
        pytest.param({"keep_top_k": 90, "nms_threshold": 0.9, "nms_eta": 0.95}, id="thresholds of classes that fall"),
        pytest.param({"keep_top_k": 9, "nms_top_k": 6, "score_threshold": 0.5}, id="of the best six"),
    ],
)
def test_levels_of_retinanet_give_the_same_boxes(attrs):
    rng = np.random.default_rng(8)
    inputs = {
        "BBoxes": (rng.standard_normal((2, 60, 4)) * 0.2).astype("float32"), "Anchors": boxes(rng, 60, side=9),
        "Scores": rng.integers(0, 20, (2, 60, 3)).astype("float32") / 20, "ImInfo": np.array([[40, 45, 1], [60, 80, 1.5]], "float32"),
    }  # fmt: skip
    same(both("padded_retinanet_output", inputs, {"sections": [35, 25], "score_threshold": 0.2, "nms_top_k": -1, **attrs}))


def test_a_feature_pyramid_looks_at_the_same_regions(tmp_path):
    (tmp_path / "pyramid.yaml").write_text(PYRAMID)
    built = build_programs(load_model(tmp_path / "pyramid.yaml"))
    scope = Scope([Place("cpu", 0)])
    run_startup(built.startup, scope, seed=3)
    held = {v.name: scope.get(v.name) for v in built.eval.list_vars() if v.persistable}
    names, feed = list(built.fetches.values()), {"image": np.random.default_rng(2).standard_normal((3, 3, 32, 32)).astype("float32")}
    (ours,) = Executor(prune(built.eval, names), scope, seed=3).run([feed], names).values
    session = onnxruntime.InferenceSession(export(built.eval, held, names, "pyramid"), providers=["CPUExecutionProvider"])
    theirs = dict(zip(names, session.run(names, feed), strict=True))
    same((name, ours[name], theirs[name]) for name in names)
    assert ours[names[2]].sum() == 20
