"""padded_nms against the detections of multiclass_nms, which is checked from its definition, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.ops.support import run_op

ATTRS = [
    pytest.param({"score_threshold": 0.2, "keep_top_k": 9, "background_label": 1, "nms_threshold": 0.4}, id="the best of two classes"),
    pytest.param({"score_threshold": 0.0, "keep_top_k": 99, "background_label": -1, "nms_threshold": 0.3}, id="more rows than there are"),
    pytest.param({"nms_top_k": 4, "keep_top_k": 12, "nms_threshold": 0.6, "nms_eta": 0.9}, id="few candidates, a falling threshold"),
    pytest.param({"keep_top_k": 20, "nms_threshold": 0.5, "normalized": False}, id="pixels"),
]


def boxes(rng, images, count, dtype):
    low = rng.uniform(0, 0.6, (images, count, 2))
    return np.concatenate([low, low + rng.uniform(0, 0.4, (images, count, 2))], -1).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("attrs", ATTRS)
def test_detections_are_those_of_multiclass_nms(attrs, dtype, rng):
    scores = np.round(rng.uniform(0, 1, (3, 3, 25)), 1).astype(dtype)  # with equal ones
    inputs = {"BBoxes": boxes(rng, 3, 25, dtype) * (1 if attrs.get("normalized", True) else 20), "Scores": scores}
    wanted = run_op("multiclass_nms", inputs, {**attrs, "return_index": True})
    found = run_op("padded_nms", inputs, attrs)
    out, index, count = found["Out"], found["Index"], found["Count"].ravel()
    assert out.shape == (3, attrs["keep_top_k"], 6)
    assert count.tolist() == np.diff(wanted["Out"].lod[0]).tolist()
    real = out[..., 0] >= 0
    assert real.sum(1).tolist() == count.tolist()
    np.testing.assert_array_equal(out[real], np.asarray(wanted["Out"]))
    np.testing.assert_array_equal(index[real], np.asarray(wanted["Index"]).ravel())
    assert (out[~real] == [-1, 0, 0, 0, 0, 0]).all()
    assert (index[~real] == -1).all()


def test_scores_that_are_no_numbers_find_nothing():
    inputs = {"BBoxes": np.array([[[0, 0, 1, 1.0]]]), "Scores": np.array([[[np.nan], [np.nan]]])}
    assert run_op("padded_nms", inputs, {"keep_top_k": 2})["Count"].tolist() == [[0]]


@pytest.mark.parametrize(
    ("shapes", "attrs", "said"),
    [
        (((2, 5, 4), (2, 3, 4)), {}, "a score for each box|BBoxes is"),
        (((2, 5, 8), (2, 3, 5)), {}, "needs BBoxes"),
        (((2, 5, 4), (2, 5)), {}, "needs BBoxes"),
        (((2, 5, 4), (2, 3, 5)), {"keep_top_k": -1}, "keep_top_k of at least 1"),
    ],
)
def test_mistakes(shapes, attrs, said):
    with pytest.raises(PeError, match=said):
        run_op("padded_nms", dict(zip(("BBoxes", "Scores"), map(np.zeros, shapes), strict=True)), attrs)
