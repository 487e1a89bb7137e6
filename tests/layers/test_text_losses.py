"""Losses of sequences and of drawn classes, and measures by counting, against PyTorch, scikit-learn and plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.layers.loss.sampled_losses import nce
from pe_cli.layers.tensor.data import data
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
from tests.needs import torch
from tests.ops.support import run_gradient, run_op


@pytest.mark.parametrize("blank", [0, 2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_warpctc_is_the_loss_of_pytorch(rng, blank, dtype):
    x = (rng.standard_normal((9, 4, 5)) * 3).astype(dtype)
    others = [k for k in range(5) if k != blank]
    label = rng.choice(others, (4, 3))
    label[1] = others[0]
    steps, sizes = np.array([9, 7, 5, 1]), np.array([3, 3, 2, 0])
    found = run_op("warpctc", {"Logits": x, "Label": label, "LogitsLength": steps, "LabelLength": sizes}, {"blank": blank})
    t = torch.tensor(x.astype("float64"), requires_grad=True)
    lengths = torch.tensor(steps), torch.tensor(sizes)
    theirs = torch.nn.functional.ctc_loss(t.log_softmax(-1), torch.tensor(label), *lengths, blank=blank, reduction="none")
    theirs.sum().backward()
    tolerance = 1e-10 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(found["Loss"][:, 0], theirs.detach().numpy(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found["WarpCTCGrad"], t.grad.numpy(), rtol=tolerance, atol=tolerance)


def test_warpctc_with_norm_by_times_divides_the_gradient_alone(rng):
    given = {
        "Logits": rng.standard_normal((4, 2, 3)), "Label": np.array([[1], [2]]), "LogitsLength": np.array([4, 2]),
        "LabelLength": np.array([1, 1]),
    }  # fmt: skip
    plain, divided = (run_gradient("warpctc", given, {"norm_by_times": n}, out="Loss")["Logits"] for n in (False, True))
    np.testing.assert_allclose(divided * np.array([4, 2])[None, :, None], plain, rtol=1e-12)


def test_warpctc_of_a_sequence_that_is_too_short_is_0():
    given = {"Logits": np.ones((2, 1, 3)), "Label": np.array([[1, 1]]), "LogitsLength": np.array([2]), "LabelLength": np.array([2])}
    found = run_op("warpctc", given)
    assert not found["Loss"].any()
    assert not found["WarpCTCGrad"].any()


@pytest.mark.parametrize(("label", "what"), [(7, "out of range"), (-1, "out of range")])
def test_warpctc_reports_a_label_that_is_no_class(label, what):
    given = {"Logits": np.ones((2, 1, 3)), "Label": np.array([[label]]), "LogitsLength": np.array([2]), "LabelLength": np.array([1])}
    with pytest.raises(PeError, match=what):
        run_op("warpctc", given)


#: Scheme -> tags of a kind, and which places in a chunk may follow which in the same chunk.
GOES_ON = {
    "IOB": (2, {(0, 1), (1, 1)}),
    "IOE": (2, {(0, 0), (0, 1)}),
    "IOBES": (4, {(0, 1), (0, 2), (1, 1), (1, 2)}),
    "plain": (1, {(0, 0)}),
}


def chunks_of(tags, scheme, kinds):
    """Return (begin, end, kind) of the chunks of tags, by reading them from left to right."""
    per, after = GOES_ON[scheme]
    found, since = [], None
    for i, tag in enumerate([*tags, kinds * per]):
        kind = tag // per
        goes_on = since is not None and kind == since[1] and (tags[i - 1] % per, tag % per) in after
        if since is not None and not goes_on:
            found.append((since[0], i, since[1]))
            since = None
        if since is None and kind < kinds:
            since = (i, kind)
    return found


@pytest.mark.parametrize("scheme", sorted(GOES_ON))
@pytest.mark.parametrize("excluded", [[], [1]])
def test_chunk_eval_counts_what_reading_from_left_to_right_finds(rng, scheme, excluded):
    high = 3 * GOES_ON[scheme][0] + 1
    a = rng.integers(0, high, (40, 9))
    b = np.where(rng.random((40, 9)) < 0.3, rng.integers(0, high, (40, 9)), a)
    sizes = rng.integers(0, 10, 40)
    attrs = {"num_chunk_types": 3, "chunk_scheme": scheme, "excluded_chunk_types": excluded}
    found = run_op("chunk_eval", {"Inference": a, "Label": b, "SeqLength": sizes}, attrs)
    counts = np.zeros(3, int)
    for x, y, n in zip(a, b, sizes, strict=True):
        of_x, of_y = ({c for c in chunks_of(list(t[:n]), scheme, 3) if c[2] not in excluded} for t in (x, y))
        counts += len(of_x), len(of_y), len(of_x & of_y)
    assert [int(found[s][0]) for s in ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")] == list(counts)
    np.testing.assert_allclose(found["Precision"], counts[2] / counts[0], rtol=1e-6)
    np.testing.assert_allclose(found["F1-Score"], 2 * counts[2] / (counts[0] + counts[1]), rtol=1e-6)


def test_auc_is_that_of_scikit_learn(rng):
    metrics = pytest.importorskip("sklearn.metrics")
    scores = rng.integers(0, 101, 300) / 100
    label = (rng.random(300) < scores).astype(int)
    given = {"Predict": np.stack([1 - scores, scores], 1), "Label": label[:, None], "StatPos": np.zeros((1, 101), int)}
    found = run_op("auc", {**given, "StatNeg": given["StatPos"]}, {"num_thresholds": 100})["AUC"]
    bins = (scores * 100).astype(int)
    np.testing.assert_allclose(found, metrics.roc_auc_score(label, bins), rtol=1e-12)


def test_auc_of_the_last_batches_is_that_of_scikit_learn(rng):
    metrics = pytest.importorskip("sklearn.metrics")
    counts = {slot: np.zeros(3 * 51 + 1, int) for slot in ("StatPos", "StatNeg")}
    seen = []
    for _ in range(5):
        scores = rng.integers(0, 51, 30) / 50
        label = (rng.random(30) < scores).astype(int)
        seen.append(((scores * 50).astype(int), label))
        given = {"Predict": np.stack([1 - scores, scores], 1), "Label": label[:, None], **counts}
        found = run_op("auc", given, {"num_thresholds": 50, "slide_steps": 2})
        counts = {slot: found[f"{slot}Out"] for slot in counts}
        bins, labels = (np.concatenate(part) for part in zip(*seen[-2:], strict=True))
        np.testing.assert_allclose(found["AUC"], metrics.roc_auc_score(labels, bins), rtol=1e-12)


@pytest.mark.parametrize(("score", "said"), [(1.5, 2), (7.2, 8), (-0.3, -1), (np.nan, -1), (1e30, 10**15 + 1)])
def test_auc_tells_scores_that_are_no_probabilities(score, said):
    given = {"Predict": np.array([[0, 0.5], [0, score]]), "Label": np.array([[1], [0]]), "StatPos": np.zeros((1, 12), int)}
    with pytest.raises(PeError, match=rf"value {said} at row 1 is out of range") as caught:
        run_op("auc", {**given, "StatNeg": given["StatPos"]}, {"num_thresholds": 11})
    assert "are probabilities" in caught.value.hint


def test_mean_iou_leaves_out_classes_that_are_nowhere():
    metrics = pytest.importorskip("sklearn.metrics")
    a, b = np.array([0, 0, 1, 3, 3, 1]), np.array([0, 1, 1, 3, 0, 0])
    found = run_op("mean_iou", {"Predictions": a, "Labels": b}, {"num_classes": 5})
    np.testing.assert_allclose(found["OutMeanIou"], metrics.jaccard_score(b, a, average="macro"), rtol=1e-6)
    assert list(found["OutCorrect"]) == [1, 1, 0, 1, 0]


def test_sampling_id_draws_by_probabilities():
    drawn = run_op("sampling_id", {"X": np.tile([[0.1, 0.2, 0.3, 0.4]], (20000, 1))})
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20000, [0.1, 0.2, 0.3, 0.4], atol=0.02)


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "custom_dist"])
def test_classes_are_drawn_as_often_as_expected(sampler):
    shares = np.array([0.5, 0.0, 0.1, 0.4])
    given = {"Label": np.zeros((4000, 1), int)} | ({"CustomDistProbs": shares} if sampler == "custom_dist" else {})
    attrs = {"num_total_classes": 4, "num_neg_samples": 5, "sampler": sampler, "dtype": "float64"}
    found = run_op("sample_classes", given, attrs)
    drawn, expected = found["Samples"][:, 1:], found["Expected"][:, 1:]
    for k in np.unique(drawn):
        np.testing.assert_allclose((drawn == k).mean(), expected[drawn == k][0] / 5, atol=0.02)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-14)])
def test_the_cost_of_a_label_that_is_seldom_drawn_has_all_its_digits(dtype, tolerance):
    z = np.concatenate([np.linspace(-80, 80, 33), [-300, -100, 100, 300]]).astype(dtype).reshape(-1, 1)
    for often in (1e-12, 1e-9, 1e-6, 0.3, 5.0):
        b = np.full_like(z, often)
        with np.errstate(over="ignore"):
            exact = np.logaddexp(0, np.log(b.astype("float64")) + np.logaddexp(0, -z.astype("float64")))
        np.testing.assert_allclose(run_op("nce_cost", {"Logits": z, "Expected": b}), exact, rtol=tolerance)


def test_no_class_is_not_the_default_number_of_classes():
    with program_guard(Program(), Program()), pytest.raises(PeError, match="needs 2 classes and 1 sample, got 9 and 0"):
        nce(data("x", [-1, 3]), data("k", [-1, 1], dtype="int64"), num_total_classes=9, num_neg_samples=0)


def test_center_loss_moves_the_centers_that_are_there(rng):
    x, centers, label = rng.standard_normal((4, 3)), rng.standard_normal((5, 3)), np.array([[1], [0], [1], [4]])
    found = run_op("center_loss", {"X": x, "Label": label, "Centers": centers, "CenterUpdateRate": np.array([0.3])})
    away = x - centers[label[:, 0]]
    np.testing.assert_allclose(found["Loss"][:, 0], (away**2).sum(1) / 2, rtol=1e-12)
    moved = centers.copy()
    for k in range(5):
        own = away[label[:, 0] == k]
        moved[k] += 0.3 * own.sum(0) / (1 + len(own))
    np.testing.assert_allclose(found["CentersOut"], moved, rtol=1e-12)
