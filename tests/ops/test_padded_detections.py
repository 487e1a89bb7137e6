"""padded_locality_nms and padded_proposals against the ops without padding, which are checked from their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.ops.support import run_op
from tests.ops.test_padded_matrix_nms import boxes_of


def in_rows(found, slot, counts):
    return np.concatenate([found[slot][i, :n] for i, n in enumerate(counts)])


@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"keep_top_k": 40}, id="room for all"),
        pytest.param({"keep_top_k": 7, "score_threshold": 0.3, "background_label": 0}, id="the best of each image"),
        pytest.param({"keep_top_k": 9, "nms_top_k": 4, "nms_threshold": 0.6, "nms_eta": 0.9}, id="a threshold that falls"),
        pytest.param({"keep_top_k": 9, "normalized": False, "nms_threshold": 0.1}, id="the last pixel inside"),
    ],
)
def test_detections_are_those_of_locality_aware_nms(attrs, rng):
    scores = rng.uniform(0, 1, (3, 3, 12)).round(1) + 0.01
    inputs = {"BBoxes": boxes_of(rng, 3, 12), "Scores": scores}
    inputs["BBoxes"][:, 3] = inputs["BBoxes"][:, 2] + 0.01  # neighbours that are merged
    wanted = run_op("locality_aware_nms", inputs, {"background_label": -1, **attrs})
    found = run_op("padded_locality_nms", inputs, attrs)
    counts = found["Count"].ravel()
    assert counts.tolist() == np.diff(wanted.lod[0]).tolist()
    np.testing.assert_allclose(in_rows(found, "Out", counts), np.asarray(wanted), rtol=1e-12)
    assert all((found["Out"][i, n:, 0] == -1).all() for i, n in enumerate(counts))


@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"post_nms_topN": 30}, id="room for all"),
        pytest.param({"post_nms_topN": 5, "pre_nms_topN": 20, "nms_thresh": 0.4}, id="the best"),
        pytest.param({"post_nms_topN": 60, "nms_thresh": 0.0, "min_size": 6.0}, id="all that are large enough"),
        pytest.param({"post_nms_topN": 20, "nms_thresh": 0.9, "eta": 0.8}, id="a threshold that falls"),
        pytest.param({"post_nms_topN": 4, "min_size": 90.0}, id="none is large enough"),
    ],
)
def test_proposals_are_those_of_generate_proposals(attrs, rng):
    corner = rng.uniform(0, 30, (4, 5, 3, 2))
    inputs = {
        "Scores": rng.uniform(0, 1, (2, 3, 4, 5)).round(1), "BboxDeltas": rng.standard_normal((2, 12, 4, 5)) * 0.4,
        "ImInfo": np.array([[40.0, 48.0, 1.0], [36.0, 40.0, 2.0]]),
        "Anchors": np.concatenate([corner, corner + rng.uniform(4, 20, (4, 5, 3, 2))], -1), "Variances": np.full((4, 5, 3, 4), 0.7),
    }  # fmt: skip
    wanted, found = run_op("generate_proposals", inputs, attrs), run_op("padded_proposals", inputs, attrs)
    counts, sizes = found["Count"].ravel(), np.diff([0, *wanted["RpnRoisLod"]])
    if "90.0" in str(attrs):
        assert counts.tolist() == [0, 0]
        assert not found["RpnRois"].any()
        return
    assert counts.tolist() == sizes.tolist()
    np.testing.assert_allclose(in_rows(found, "RpnRois", counts), np.asarray(wanted["RpnRois"]), rtol=1e-12)
    np.testing.assert_array_equal(in_rows(found, "RpnRoiProbs", counts), np.asarray(wanted["RpnRoiProbs"]))
    assert all(not found["RpnRois"][i, n:].any() for i, n in enumerate(counts))


def test_what_does_not_fit():
    shapes = {"Scores": (1, 2, 3, 4), "BboxDeltas": (1, 8, 3, 4), "ImInfo": (1, 3), "Anchors": (3, 4, 2, 4), "Variances": (3, 4, 2, 4)}
    with pytest.raises(PeError, match="post_nms_topN of at least 1"):
        run_op("padded_proposals", {s: np.zeros(n) for s, n in shapes.items()}, {"post_nms_topN": 0})
    with pytest.raises(PeError, match=r"Anchors and Variances must be \[3, 4, 2, 4\]"):
        run_op("padded_proposals", {s: np.zeros(n) for s, n in {**shapes, "Anchors": (4, 3, 2, 4)}.items()})
    with pytest.raises(PeError, match="keep_top_k of at least 1"):
        run_op("padded_locality_nms", {"BBoxes": np.zeros((1, 3, 4)), "Scores": np.zeros((1, 2, 3))}, {"keep_top_k": 0})
