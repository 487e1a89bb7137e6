"""Curves of classifiers: scikit-learn's numbers, whatever the batches, devices or processes were."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    f1_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from pe_cli.io.view.classifier_report import judgement
from pe_cli.metrics.curves import Scores, evaluate_classifier
from pe_cli.metrics.decisions import Decision


def drawn(classes: int, rows: int = 500, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities with ties, and labels that they say something about."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    logits = rng.standard_normal((rows, classes)).round(1) + 1.5 * np.eye(classes)[labels]
    raised = np.exp(logits)
    return raised / raised.sum(axis=1, keepdims=True), labels


def seen(probabilities: np.ndarray, labels: np.ndarray) -> Scores:
    made = Scores()
    made.add(probabilities, labels)
    return made


@pytest.mark.parametrize("seed", range(3))
def test_two_classes_have_the_numbers_of_scikit_learn(seed: int) -> None:
    probabilities, labels = drawn(2, seed=seed)
    found = evaluate_classifier(seen(probabilities, labels), ["no", "yes"], "eval")
    (curve,) = found.rocs
    false, true, _ = roc_curve(labels, probabilities[:, 1], drop_intermediate=False)
    np.testing.assert_allclose(curve.false, false, rtol=1e-12)
    np.testing.assert_allclose(curve.true, true, rtol=1e-12)
    assert curve.area == pytest.approx(roc_auc_score(labels, probabilities[:, 1]), rel=1e-12)
    right, said = calibration_curve(labels, probabilities[:, 1], n_bins=10)
    np.testing.assert_allclose(found.calibration.said, said, rtol=1e-12)
    np.testing.assert_allclose(found.calibration.right, right, rtol=1e-12)
    assert found.calibration.rows.sum() == 500
    np.testing.assert_array_equal(found.confusion, confusion_matrix(labels, probabilities.argmax(axis=1)))


def test_precision_and_recall_are_those_of_scikit_learn() -> None:
    probabilities, labels = drawn(2)
    found = evaluate_classifier(seen(probabilities, labels), ["no", "yes"], "eval", Decision("label", (0.3,)))
    (curve,) = found.precisions
    precision, recall, _ = precision_recall_curve(labels, probabilities[:, 1])
    np.testing.assert_allclose(curve.precision, precision[-2::-1], rtol=1e-12)
    np.testing.assert_allclose(curve.recall, recall[-2::-1], rtol=1e-12)
    assert curve.average == pytest.approx(average_precision_score(labels, probabilities[:, 1]), rel=1e-12)
    taken = probabilities[:, 1] >= 0.3
    np.testing.assert_array_equal(found.confusion, confusion_matrix(labels, taken))
    assert found.figures[1].f1 == pytest.approx(f1_score(labels, taken), rel=1e-12)
    assert [one.threshold for one in found.figures] == [None, 0.3]


def test_tags_have_figures_of_their_own() -> None:
    rng = np.random.default_rng(1)
    probabilities = rng.uniform(size=(300, 3))
    labels = (probabilities + rng.standard_normal((300, 3)) / 3 > 0.6).astype(np.int64)
    made = Scores(several=True)
    made.add(probabilities[:100], labels[:100].astype(np.float32))
    made.add(probabilities[100:], labels[100:].astype(np.float32))
    limits = (0.3, 0.5, 0.7)
    found = evaluate_classifier(made, list("abc"), "eval", Decision("label", limits))
    taken = probabilities >= limits
    assert found.confusion is None
    assert found.right == (taken == labels).all(axis=1).sum()
    for c, one in enumerate(found.figures):
        assert one.threshold == limits[c]
        assert one.f1 == pytest.approx(f1_score(labels[:, c], taken[:, c]), rel=1e-12)
        assert one.average == pytest.approx(average_precision_score(labels[:, c], probabilities[:, c]), rel=1e-12)
        assert found.rocs[c].area == pytest.approx(roc_auc_score(labels[:, c], probabilities[:, c]), rel=1e-12)
    page = judgement(found)
    assert page.count("<th>a</th>") == 1
    assert "precision-recall" in page
    assert "confusion" not in page


def test_several_classes_are_each_drawn_against_the_others() -> None:
    probabilities, labels = drawn(4)
    found = evaluate_classifier(seen(probabilities, labels), list("abcd"), "eval")
    assert [curve.name for curve in found.rocs] == list("abcd")
    for c, curve in enumerate(found.rocs):
        assert curve.area == pytest.approx(roc_auc_score(labels == c, probabilities[:, c]), rel=1e-12)
    taken = probabilities.argmax(axis=1)
    right, said = calibration_curve(taken == labels, probabilities.max(axis=1), n_bins=10)
    np.testing.assert_allclose(found.calibration.said, said, rtol=1e-12)
    np.testing.assert_allclose(found.calibration.right, right, rtol=1e-12)
    np.testing.assert_array_equal(found.confusion, confusion_matrix(labels, taken))


def test_probabilities_on_the_edges_of_intervals_count_as_in_scikit_learn() -> None:
    edges = np.linspace(0.0, 1.0, 11)
    labels = np.arange(11) % 2
    found = evaluate_classifier(seen(edges[:, None], labels), ["no", "yes"], "eval").calibration
    right, said = calibration_curve(labels, edges, n_bins=10)
    np.testing.assert_allclose(found.said, said, rtol=1e-12)
    np.testing.assert_allclose(found.right, right, rtol=1e-12)


def test_rows_of_several_devices_or_processes_give_the_same_curves_in_any_order() -> None:
    probabilities, labels = drawn(3)
    whole = evaluate_classifier(seen(probabilities, labels), list("abc"), "eval")
    parts = [seen(p, y) for p, y in zip(np.array_split(probabilities, 7), np.array_split(labels, 7), strict=True)]
    merged = parts[3]
    for i in (6, 0, 5, 1, 2, 4):
        merged.merge(parts[i])
    found = evaluate_classifier(merged, list("abc"), "eval")
    for a, b in zip(whole.rocs, found.rocs, strict=True):
        np.testing.assert_array_equal(a.false, b.false)
        np.testing.assert_array_equal(a.true, b.true)
    np.testing.assert_array_equal(whole.confusion, found.confusion)
    np.testing.assert_array_equal(whole.calibration.rows, found.calibration.rows)
    np.testing.assert_allclose(whole.calibration.said, found.calibration.said, rtol=1e-13)


def test_a_class_without_rows_has_no_curve() -> None:
    probabilities, labels = drawn(3)
    labels[labels == 2] = 0
    assert [curve.name for curve in evaluate_classifier(seen(probabilities, labels), list("abc"), "eval").rocs] == ["a", "b"]
