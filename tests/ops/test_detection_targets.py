"""Ops that train and judge detectors against brute force from their definitions, SciPy and PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import expit

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import discover
from pe_cli.ops.detection.overlaps import overlap
from tests.needs import torch
from tests.ops.support import directional_error
from tests.ops.support import run_op as run_one

RNG = np.random.default_rng(8)


def run_op(*args):
    """Run an op, and leave out what sequences its outputs have."""
    found = run_one(*args)
    return {slot: np.asarray(v) for slot, v in found.items()} if isinstance(found, dict) else np.asarray(found)


def boxes(*shape):
    low = RNG.uniform(0, 0.6, (*shape, 2))
    return np.concatenate([low, low + RNG.uniform(0.05, 0.4, (*shape, 2))], -1)


# --- matching ---------------------------------------------------------------------------------------------------------


def greedy(x, least=None):
    where, far = np.full(x.shape[1], -1), np.zeros(x.shape[1])
    left = x.copy()
    for _ in range(min(x.shape)):
        row, column = np.unravel_index(left.argmax(), left.shape)
        if left[row, column] < 1e-6:
            break
        where[column], far[column] = row, x[row, column]
        left[row], left[:, column] = -1, -1
    if least is not None:
        for j in np.flatnonzero(where < 0):
            if len(x) and x[:, j].max() >= max(least, 1e-6):
                where[j], far[j] = x[:, j].argmax(), x[:, j].max()
    return where, far


@pytest.mark.parametrize("least", [None, 0.4])
@pytest.mark.parametrize("offsets", [[0, 2, 7], [0, 0, 7], [0, 7]])
def test_the_largest_entries_match_first(offsets, least):
    x = RNG.uniform(0, 1, (7, 5))
    x[3] = 0
    attrs = {} if least is None else {"match_type": "per_prediction", "dist_threshold": least}
    got = run_op("bipartite_match", {"DistMat": x, "Offsets": np.array(offsets)}, attrs)
    for i, (a, b) in enumerate(itertools.pairwise(offsets)):
        where, far = greedy(x[a:b], least) if b > a else (np.full(5, -1), np.zeros(5))
        assert got["ColToRowMatchIndices"][i].tolist() == where.tolist()
        assert got["ColToRowMatchDist"][i].tolist() == far.tolist()


def test_targets_follow_matches_and_negatives_count():
    x = RNG.standard_normal((5, 3, 2))
    match = np.array([[0, -1, 1], [2, 0, -1]], "int32")
    offsets = {"Offsets": np.array([0, 2, 5]), "NegOffsets": np.array([0, 1, 2])}
    inputs = {"X": x, "MatchIndices": match, "NegIndices": np.array([[1], [2]], "int32"), **offsets}
    got = run_op("target_assign", inputs, {"mismatch_value": 9})
    expected = [[x[0, 0], [9, 9], x[1, 2]], [x[4, 0], x[2, 1], [9, 9]]]
    assert np.array_equal(got["Out"], expected)
    assert got["OutWeight"].ravel().tolist() == [1] * 6


@pytest.mark.parametrize("change", [{"MatchIndices": [[3]]}, {"NegIndices": [[1]]}])
def test_targets_that_are_not_there(change):
    base = {"X": np.zeros((3, 1, 1)), "MatchIndices": [[-1]], "NegIndices": [[0]]}
    inputs = {k: np.asarray(v, "int32") if k != "X" else v for k, v in {**base, **change}.items()}
    with pytest.raises(PeError):
        run_op("target_assign", {**inputs, "Offsets": np.array([0, 3]), "NegOffsets": np.array([0, 1])})


@pytest.mark.parametrize("priors", [1, 7, 40])
def test_the_worst_far_columns_are_negative(priors):
    loss, far = RNG.uniform(0, 1, (2, 3, priors))
    match = np.where(RNG.uniform(0, 1, (3, priors)) < 0.3, 0, -1).astype("int32")
    got = run_op("mine_hard_examples", {"ClsLoss": loss, "MatchIndices": match, "MatchDist": far}, {"neg_pos_ratio": 1.5})
    for i in range(3):
        free = np.flatnonzero((match[i] < 0) & (far[i] < 0.5))
        count = min(len(free), int(1.5 * (match[i] >= 0).sum()))
        worst = sorted(free, key=lambda p, i=i: -loss[i, p])[:count]
        assert np.flatnonzero(got["NegMask"][i]).tolist() == sorted(worst)


def test_hard_examples_take_matches_away():
    inputs = {"ClsLoss": np.array([[3.0, 1, 2]]), "LocLoss": np.array([[0, 4, 0.5]]), "MatchIndices": np.array([[0, -1, 1]], "int32")}
    attrs = {"mining_type": "hard_example", "sample_size": 2}
    got = run_op("mine_hard_examples", {**inputs, "MatchDist": np.zeros((1, 3))}, attrs)
    assert got["UpdatedMatchIndices"].tolist() == [[0, -1, -1]]
    assert got["NegMask"].tolist() == [[False, True, False]]
    with pytest.raises(PeError, match="sample_size"):
        run_op("mine_hard_examples", {**inputs, "MatchDist": np.zeros((1, 3))}, {"mining_type": "hard_example"})


# --- yolov3_loss ------------------------------------------------------------------------------------------------------


def centred(a, b):
    corners = [np.concatenate([c[:2] - c[2:] / 2, c[:2] + c[2:] / 2]) for c in (np.asarray(a), np.asarray(b))]
    return overlap(corners[0], corners[1][None], normalized=True)[0]


def yolo(x, true, labels, scores, anchors, mask, classes, ignore, scale, smooth):
    grid, side = x.shape[2], x.shape[2] * 32
    sizes = np.array(anchors).reshape(-1, 2) / side
    x = x.reshape(len(x), len(mask), 5 + classes, grid, grid)

    def cross(v, t):
        logit, target = torch.tensor(v, dtype=torch.float64), torch.tensor(t, dtype=torch.float64)
        return float(torch.nn.functional.binary_cross_entropy_with_logits(logit, target))

    found = []
    for i in range(len(x)):
        total, known = 0.0, np.zeros((len(mask), grid, grid))
        for m, row, column in np.ndindex(*known.shape):
            v = x[i, m, :, row, column]
            centre = (np.array([column, row]) + expit(v[:2]) * scale - (scale - 1) / 2) / grid
            box = [*centre, *(np.exp(v[2:4]) * sizes[mask[m]])]
            known[m, row, column] = -1 if max((centred(box, t) for t in true[i] if t[2] > 0), default=0) > ignore else 0
        for t, label, score in zip(true[i], labels[i], scores[i], strict=True):
            if t[2] == 0:
                continue
            best = int(np.argmax([centred([0, 0, *s], [0, 0, *t[2:]]) for s in sizes]))
            if best not in mask:
                continue
            column, row = (t[:2] * grid).astype(int)
            v = x[i, mask.index(best), :, row, column]
            share = score * (2 - t[2] * t[3])
            total += share * (cross(v[0], t[0] * grid - column) + cross(v[1], t[1] * grid - row))
            total += share * np.abs(v[2:4] - np.log(t[2:] / sizes[best])).sum()
            total += score * sum(cross(v[5 + c], 1 - smooth if c == label else smooth) for c in range(classes))
            known[mask.index(best), row, column] = score
        for m, row, column in np.ndindex(*known.shape):
            k, v = known[m, row, column], x[i, m, 4, row, column]
            total += cross(v, 1) * k if k > 0 else cross(v, 0) if k == 0 else 0.0
        found.append(total)
    return found


@pytest.mark.parametrize(
    ("mask", "scale", "smooth", "scored"), [([0, 1], 1.0, True, False), ([1, 2], 1.3, False, True), ([2], 1.0, True, True)]
)
def test_the_loss_of_yolo(mask, scale, smooth, scored):
    x = RNG.standard_normal((2, len(mask) * 8, 4, 4))
    true = np.concatenate([RNG.uniform(0.1, 0.9, (2, 5, 2)), RNG.uniform(0.03, 0.4, (2, 5, 2))], -1)
    true[0, 3] = 0
    labels = RNG.integers(0, 3, (2, 5)).astype("int32")
    scores = RNG.uniform(0.2, 1, (2, 5)) if scored else np.ones((2, 5))
    anchors = [10, 13, 16, 30, 33, 23]
    attrs = {"anchors": anchors, "anchor_mask": mask, "class_num": 3, "ignore_thresh": 0.3, "scale_x_y": scale, "use_label_smooth": smooth}
    inputs = {"X": x, "GTBox": true, "GTLabel": labels, **({"GTScore": scores} if scored else {})}
    got = run_op("yolov3_loss", inputs, attrs)["Loss"]
    expected = yolo(x, true, labels, scores, anchors, mask, 3, 0.3, scale, 1 / 40 if smooth else 0.0)
    np.testing.assert_allclose(got, expected, rtol=1e-10)


@pytest.mark.parametrize("sample", discover()["yolov3_loss"].samples, ids=lambda sample: sample.name)
def test_the_gradient_of_yolo(sample):
    assert directional_error(discover()["yolov3_loss"], sample) < 1e-6


# --- thinning out -----------------------------------------------------------------------------------------------------


def thin(own, scores, threshold):
    left, kept = sorted(range(len(scores)), key=lambda i: -scores[i]), []
    while left:
        kept.append(left.pop(0))
        left = [i for i in left if overlap(own[kept[-1]], own[i][None], normalized=True)[0] <= threshold]
    return kept


def test_detections_overlap_no_better_one():
    b, s = boxes(2, 30), RNG.uniform(0, 1, (2, 3, 30))
    attrs = {"nms_threshold": 0.4, "score_threshold": 0.2, "keep_top_k": 9, "background_label": 1}
    got = run_op("multiclass_nms", {"BBoxes": b, "Scores": s}, attrs)
    expected = []
    for i in range(2):
        found = []
        for c in (0, 2):
            high = np.flatnonzero(s[i, c] > 0.2)
            found += [(c, s[i, c, high[k]], high[k]) for k in thin(b[i, high], s[i, c, high], 0.4)]
        expected += [(c, v, i * 30 + p) for c, v, p in sorted(sorted(found, key=lambda f: -f[1])[:9], key=lambda f: f[0])]
    np.testing.assert_allclose(got["Out"][:, :2], [e[:2] for e in expected])
    assert got["Index"].ravel().tolist() == [e[2] for e in expected]
    assert np.array_equal(got["Out"][:, 2:], b.reshape(-1, 4)[got["Index"].ravel()])


@pytest.mark.parametrize(("index", "shape"), [(False, (1, 1)), (True, (0, 6))])
def test_nothing_found(index, shape):
    inputs = {"BBoxes": boxes(1, 3), "Scores": np.zeros((1, 2, 3))}
    assert run_op("multiclass_nms", inputs, {"return_index": index})["Out"].shape == shape
    assert run_op("matrix_nms", inputs)["Out"].shape == (0, 6)


def test_the_threshold_falls_with_eta():
    row = np.array([[0, 0, 1, 1], [0, 0, 1, 0.65], [0, 0, 1, 0.5]])[None]
    inputs = {"BBoxes": row, "Scores": np.array([[[0.9, 0.8, 0.7]]])}
    attrs = {"background_label": -1, "nms_threshold": 0.7}
    assert len(run_op("multiclass_nms", inputs, {**attrs, "nms_eta": 0.8})["Out"]) == 2
    assert len(run_op("multiclass_nms", inputs, attrs)["Out"]) == 2
    assert len(run_op("multiclass_nms", inputs, {**attrs, "nms_threshold": 0.8})["Out"]) == 3


def test_polygons_that_are_squares_overlap_like_boxes():
    a, b = boxes(2, 6)
    corners = lambda x: x[:, [0, 1, 2, 1, 2, 3, 0, 3]]  # noqa: E731
    for one, other in zip(a, corners(a), strict=True):
        np.testing.assert_allclose(overlap(other, corners(b), normalized=True), overlap(one, b, normalized=True), atol=1e-12)


@pytest.mark.parametrize("gaussian", [False, True])
def test_scores_are_lowered_by_overlaps(gaussian):
    b, s = boxes(1, 9), RNG.uniform(0, 1, (1, 2, 9))
    got = run_op("matrix_nms", {"BBoxes": b, "Scores": s}, {"use_gaussian": gaussian, "post_threshold": 0.05})
    order = np.argsort(-s[0, 1])
    own, pairs = b[0, order], np.array([overlap(x, b[0, order], normalized=True) for x in b[0, order]])
    expected = []
    for j in range(len(own)):
        shares = [1.0]
        for i in range(j):
            most = max((pairs[k, i] for k in range(i)), default=0)
            shares.append(np.exp(2 * (most**2 - pairs[i, j] ** 2)) if gaussian else (1 - pairs[i, j]) / (1 - most))
        expected.append((s[0, 1, order[j]] * min(shares), order[j]))
    expected = sorted((e for e in expected if e[0] > 0.05), key=lambda e: -e[0])
    np.testing.assert_allclose(got["Out"][:, 1], [e[0] for e in expected])
    assert got["Index"].ravel().tolist() == [e[1] for e in expected]


def test_neighbours_that_overlap_are_merged_by_their_scores():
    own = np.array([[[0, 0, 2, 2], [0, 0, 2, 2.2], [5, 5, 6, 6.0]]])
    got = run_op("locality_aware_nms", {"BBoxes": own, "Scores": np.array([[[0.25, 0.75, 0.5]]])})
    np.testing.assert_allclose(got, [[0, 1.0, 0, 0, 2, 2.15], [0, 0.5, 5, 5, 6, 6]])


# --- mAP --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["integral", "11point"])
def test_average_precision(kind):
    found = np.array([[1, 0.9, 0, 0, 1, 1], [1, 0.8, 0, 0, 0.1, 0.1], [1, 0.7, 0, 0, 0.4, 0.4]], "float32")
    true = np.array([[1, 0, 0, 1, 1], [1, 0, 0, 0.4, 0.4]], "float32")
    got = run_op("detection_map", {"DetectRes": found, "Label": true}, {"class_num": 2, "ap_type": kind})
    exact = 0.5 + 0.5 * 2 / 3 if kind == "integral" else (6 + 5 * 2 / 3) / 11
    np.testing.assert_allclose(got["MAP"], [exact], rtol=1e-6)
    assert got["AccumPosCount"].ravel().tolist() == [0, 2]


def test_difficult_boxes_may_be_left_out():
    found = np.array([[1, 0.9, 0, 0, 1, 1], [1, 0.8, 0, 0, 0.4, 0.4]], "float32")
    true = np.array([[1, 1, 0, 0, 1, 1], [1, 0, 0, 0, 0.4, 0.4]], "float32")
    got = run_op("detection_map", {"DetectRes": found, "Label": true}, {"class_num": 2, "evaluate_difficult": False})
    assert got["MAP"] == [1]
    assert len(got["AccumTruePos"]) == 1


def test_classes_must_be_there():
    true = np.array([[7, 0, 0, 1, 1]], "float32")
    with pytest.raises(PeError, match="class 7"):
        run_op("detection_map", {"DetectRes": np.zeros((0, 6), "float32"), "Label": true}, {"class_num": 3})


def test_polygon_places():
    x = RNG.standard_normal((2, 4, 3, 5))
    got = run_op("polygon_box_transform", {"Input": x})
    rows, columns = np.mgrid[:3, :5] * 4
    np.testing.assert_allclose(got, np.stack([columns, rows] * 2) - x)
