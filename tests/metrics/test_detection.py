"""Metrics of translations and of boxes: against sacrebleu, the op detection_map, and counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.define import discover
from pe_cli.ops.define.lod import HostRun, Leveled
from pe_cli.ops.detection.detection_map import detection_map_host
from tests.metrics.support import measure

# --- translations -----------------------------------------------------------------------------------------------------

SAID = ["1 2 3 4 5 6", "7 8 9 1 2", "3 3 3 4 5 9 9 1"]
WANTED = ["1 2 3 4 6 5", "7 8 9 1 2 3 4", "3 3 4 5 9 9 1 2"]


def filled(lines, length=9):
    return np.array([[*map(int, line.split()), *[0] * (length - len(line.split()))] for line in lines])


@pytest.mark.parametrize(("order", "score"), [(1, 0.8527145932916143), (2, 0.7896887086023443), (4, 0.7222025736584292)])
def test_bleu_is_that_of_sacrebleu(order, score):
    """Its values: sacrebleu 2.6.0, BLEU(tokenize="none", smooth_method="none", max_ngram_order=order)."""
    given = {"predictions": filled(SAID), "labels": filled(WANTED)}
    for batches in (1, 3):
        assert measure("bleu", given, batches, ignored_tokens=[0], max_order=order) == pytest.approx(score, rel=1e-12)


def test_bleu_at_its_ends():
    rows = filled(SAID)
    assert measure("bleu", {"predictions": rows, "labels": rows}, ignored_tokens=[0]) == 1
    assert measure("bleu", {"predictions": rows, "labels": rows + 20}, ignored_tokens=[0]) == 0
    assert measure("bleu", {"predictions": rows, "labels": np.zeros((3, 4), int)}, ignored_tokens=[0]) is None


# --- boxes ------------------------------------------------------------------------------------------------------------


def drawn_boxes(rng, images, count):
    low = rng.uniform(0, 0.6, (images, count, 2))
    return np.concatenate([low, low + rng.uniform(0.1, 0.4, (images, count, 2))], 2)


@pytest.mark.parametrize("kind", ["integral", "11point"])
def test_detection_map_is_that_of_the_op(rng, kind):
    """The op is compared with recorded values of the original."""
    true, labels = drawn_boxes(rng, 6, 4), rng.integers(1, 4, (6, 4))
    true[rng.uniform(size=(6, 4)) < 0.3] = 0
    near = np.concatenate([true + rng.normal(0, 0.03, true.shape), drawn_boxes(rng, 6, 3)], 1)
    classes = np.concatenate([labels, rng.integers(1, 4, (6, 3))], 1)
    found = np.concatenate([classes[..., None], np.round(rng.uniform(size=(6, 7, 1)), 3), near], 2).astype("float32")
    found[2, 3:, 0] = -1
    there = true[..., 2] > 0
    rows = [(f[f[:, 0] >= 0], np.column_stack([c[t], b[t]])) for f, c, b, t in zip(found, labels, true, there, strict=True)]
    lods = [([0, *np.cumsum([len(pair[k]) for pair in rows]).tolist()],) for k in (0, 1)]
    given = [Leveled(np.concatenate([pair[k] for pair in rows]).astype("float32"), lods[k]) for k in (0, 1)]
    attrs = {"class_num": 4, "background_label": 0, "overlap_threshold": 0.5, "evaluate_difficult": True, "ap_type": kind}
    wanted = detection_map_host(HostRun("detection_map", {"DetectRes": [given[0]], "Label": [given[1]]}, attrs))["MAP"][0][0]
    assert 0.1 < wanted < 0.9
    values = {"detections": found, "boxes": true, "labels": labels}
    for batches in (1, 4):
        assert measure("detection_map", values, batches, ap_type=kind) == pytest.approx(wanted, rel=1e-5)


def test_detections_by_hand():
    true, labels = np.array([[[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]]), np.array([[0, 1]])
    one = [[0, 0.9, 0, 0, 0.5, 0.5], [0, 0.8, 0, 0, 0.5, 0.5], [1, 0.7, 0.5, 0.5, 1, 0.7]]  # right; the same again; too small
    values = {"boxes": true, "labels": labels, "detections": np.array([one])}
    assert measure("detection_map", values) == 0.5
    assert measure("detection_map", {**values, "boxes": np.zeros((1, 2, 4))}) is None


@pytest.mark.parametrize(
    ("key", "kind"), [("detections", TensorType((-1, 5, 5))), ("boxes", TensorType((-1, 4))), ("labels", TensorType((-1, 3), "int64"))]
)
def test_detections_of_other_shapes(key, kind):
    found = discover()["detection_map"]
    types = {"detections": TensorType((-1, 5, 6)), "boxes": TensorType((-1, 2, 4)), "labels": TensorType((-1, 2, 1), "int64")}
    made = found.options.model_validate({"detections": "d", "boxes": "b", "labels": "l"})
    found.check(made, types)
    with pytest.raises(PeError, match=f"{key} are"):
        found.check(made, {**types, key: kind})
