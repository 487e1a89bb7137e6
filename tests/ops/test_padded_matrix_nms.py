"""padded_matrix_nms against the detections of matrix_nms, which is checked from its definition, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.ops.support import run_op


def boxes_of(rng, *shape):
    low = rng.uniform(0, 0.6, (*shape, 2))
    return np.concatenate([low, low + rng.uniform(0.05, 0.4, (*shape, 2))], -1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"keep_top_k": 40, "background_label": -1}, id="room for all"),
        pytest.param({"keep_top_k": 7, "score_threshold": 0.3, "post_threshold": 0.2}, id="the best of each image"),
        pytest.param({"keep_top_k": 9, "nms_top_k": 4, "use_gaussian": True, "gaussian_sigma": 3.0}, id="lowered by a Gaussian"),
        pytest.param({"keep_top_k": 9, "normalized": False}, id="the last pixel inside"),
    ],
)
def test_detections_are_those_of_matrix_nms(attrs, dtype, rng):
    scores = rng.uniform(0, 1, (3, 3, 12)).round(1).astype(dtype)  # many are equal
    inputs = {"BBoxes": boxes_of(rng, 3, 12).astype(dtype), "Scores": scores}
    inputs["BBoxes"][1, 1] = inputs["BBoxes"][1, 0]  # one box twice: they overlap wholly
    wanted, found = run_op("matrix_nms", inputs, attrs), run_op("padded_matrix_nms", inputs, attrs)
    counts = found["Count"].ravel()
    assert counts.tolist() == np.diff(wanted["Out"].lod[0]).tolist()
    rows = np.concatenate([found["Out"][i, :n] for i, n in enumerate(counts)])
    np.testing.assert_allclose(rows, np.asarray(wanted["Out"]), rtol=1e-5, atol=1e-6)
    assert np.concatenate([found["Index"][i, :n] for i, n in enumerate(counts)]).tolist() == np.asarray(wanted["Index"]).ravel().tolist()
    assert all((found["Out"][i, n:, 0] == -1).all() and (found["Index"][i, n:] == -1).all() for i, n in enumerate(counts))


@pytest.mark.parametrize(
    ("shapes", "attrs", "message"),
    [
        (((1, 3, 4), (1, 2, 4)), {}, "score for each box|Scores"),
        (((3, 4), (2, 3)), {}, "needs BBoxes"),
        (((1, 3, 4), (1, 2, 3)), {"keep_top_k": 0}, "at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(shapes, attrs, message):
    with pytest.raises(PeError, match=message):
        run_op("padded_matrix_nms", dict(zip(("BBoxes", "Scores"), map(np.zeros, shapes), strict=True)), attrs)
