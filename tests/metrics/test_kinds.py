"""Kinds of metrics against scikit-learn, closed forms and counts by hand."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.collection import Collector
from pe_cli.metrics.define import Counted, Declared, Gathered, discover
from tests.metrics.support import measure


def sklearn(name: str, *arguments: object, **options: object) -> float:
    metrics = pytest.importorskip("sklearn.metrics")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(metrics, name)(*arguments, **options)


def softmax(logits: np.ndarray) -> np.ndarray:
    found = np.exp(logits - logits.max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True)


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "labels", "auc"),
    [
        pytest.param([1, 2, 3, 4], [0, 0, 1, 1], 1.0, id="in order"),
        pytest.param([4, 3, 2, 1], [0, 0, 1, 1], 0.0, id="the other way round"),
        pytest.param([5, 5, 5, 5], [0, 1, 0, 1], 0.5, id="all equal"),
        pytest.param([1, 2, 2, 3], [0, 0, 1, 1], 3.5 / 4, id="a tie counts half"),
    ],
)
def test_area_by_hand(scores, labels, auc):
    assert measure("roc_auc", {"scores": np.array(scores, "f")[:, None], "labels": np.array(labels)[:, None]}) == auc


@pytest.mark.parametrize("ties", [False, True], ids=["distinct scores", "many equal scores"])
@pytest.mark.parametrize(("type_", "name"), [("roc_auc", "roc_auc_score"), ("average_precision", "average_precision_score")])
@pytest.mark.parametrize("form", ["column", "row", "two columns"])
def test_rankings_of_two_classes_are_those_of_scikit_learn(rng, ties, type_, name, form):
    scores = rng.standard_normal(501).astype(np.float32)
    if ties:
        scores = np.round(scores * 2) / 2
    labels = (scores + rng.standard_normal(501) > 0.3).astype(np.int64)
    shaped = {"column": scores[:, None], "row": scores, "two columns": np.stack([-scores, scores], axis=1)}[form]
    given = {"scores": shaped, "labels": labels[:, None]}
    expected = sklearn(name, labels, scores)
    assert measure(type_, given) == pytest.approx(expected, rel=1e-12)
    assert measure(type_, given, batches=7) == measure(type_, given), "whatever the batches"
    assert measure(type_, {**given, "labels": labels[:, None].astype(np.float32)}) == measure(type_, given)


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_areas_of_several_classes_are_those_of_scikit_learn(rng, average):
    labels = rng.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    scores = softmax(np.round(rng.standard_normal((300, 4)) + np.eye(4)[labels], 1))
    given = {"scores": scores, "labels": labels[:, None]}
    assert measure("roc_auc", given, 3, average=average) == pytest.approx(
        sklearn("roc_auc_score", labels, scores, multi_class="ovr", average=average), rel=1e-12
    )
    assert measure("average_precision", given, 3, average=average) == pytest.approx(
        sklearn("average_precision_score", np.eye(4)[labels], scores, average=average), rel=1e-12
    )


def test_several_classes_at_once_are_those_of_scikit_learn(rng):
    scores = rng.uniform(size=(200, 3))
    labels = (scores + rng.standard_normal((200, 3)) / 2 > 0.7).astype(np.float32)
    given = {"scores": scores, "labels": labels}
    assert measure("roc_auc", given) == pytest.approx(sklearn("roc_auc_score", labels, scores), rel=1e-12)
    for average in ("micro", "macro", "weighted"):
        for type_ in ("precision", "recall", "f1"):
            expected = sklearn(f"{type_}_score", labels, scores >= 0.6, average=average)
            assert measure(type_, given, 4, average=average, threshold=0.6) == pytest.approx(expected, rel=1e-12)
        for type_, name in (("roc_auc", "roc_auc_score"), ("average_precision", "average_precision_score")):
            assert measure(type_, given, 4, average=average) == pytest.approx(sklearn(name, labels, scores, average=average), rel=1e-12)
    for number in range(3):
        of_one = {"class": number}
        assert measure("average_precision", given, 4, **of_one) == pytest.approx(
            sklearn("average_precision_score", labels[:, number], scores[:, number]), rel=1e-12
        )
        assert measure("f1", given, 4, threshold=0.6, **of_one) == pytest.approx(
            sklearn("f1_score", labels[:, number], scores[:, number] >= 0.6), rel=1e-12
        )


@pytest.mark.parametrize("number", [0, 1])
def test_either_of_two_classes_may_be_meant(rng, number):
    scores = softmax(rng.standard_normal((300, 2)).astype(np.float32))
    labels = (scores[:, 1] + rng.standard_normal(300) / 3 > 0.5).astype(np.int64)
    of_one = {"class": number}
    for given in (scores, scores[:, 1:]):
        found = measure("average_precision", {"scores": given, "labels": labels[:, None]}, 2, **of_one)
        assert found == pytest.approx(sklearn("average_precision_score", labels == number, scores[:, number]), rel=1e-6)
    found = measure("recall", {"scores": scores, "labels": labels[:, None]}, 2, **of_one)
    assert found == pytest.approx(sklearn("recall_score", labels == number, scores[:, number] >= 0.5), rel=1e-12)


@pytest.mark.parametrize("type_", ["precision", "recall", "f1"])
def test_of_several_classes_at_once_each_counts(type_):
    """As in scikit-learn: class 2 neither comes nor is taken."""
    scores, labels = np.array([[0.9, 0.2, 0.1], [0.7, 0.8, 0.3]]), np.array([[1, 0, 0], [0, 1, 0]])
    expected = sklearn(f"{type_}_score", labels, scores >= 0.5, average="macro", zero_division=0)
    assert measure(type_, {"scores": scores, "labels": labels}, 2) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("type_", "labels"), [("roc_auc", [1, 1]), ("roc_auc", [0, 0]), ("average_precision", [0, 0])])
def test_one_class_alone_has_no_order(type_, labels):
    said: list[str] = []
    kind = discover()[type_]
    options = kind.options.model_validate({"scores": "s", "labels": "l"})
    collector = Collector([Declared("m", kind, options, {"scores": "s", "labels": "l"})], said.append)
    collector.add({"s": np.array([[0.1], [0.2]]), "l": np.array(labels)})
    assert collector.results() == {}
    assert said == [f"metric 'm' ({type_}) is left out: {'every' if labels[0] else 'no'} row is of class 1"]


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@pytest.mark.parametrize("type_", ["precision", "recall", "f1"])
@pytest.mark.parametrize("classes", [2, 5])
def test_decisions_are_those_of_scikit_learn(rng, average, type_, classes):
    labels = rng.choice(classes, 400)
    scores = rng.standard_normal((400, classes)).astype(np.float32) + np.eye(classes, dtype=np.float32)[labels]
    scores[:, -1] -= 1.5
    expected = sklearn(f"{type_}_score", labels, scores.argmax(axis=1), average=average)
    assert measure(type_, {"scores": scores, "labels": labels[:, None]}, 6, average=average) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("type_", ["precision", "recall", "f1"])
@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_classes_that_never_come_are_no_part_of_the_mean(type_, average):
    """As in scikit-learn: class 3 neither comes nor is taken; class 2 comes and is never taken; class 4 is taken only."""
    labels, taken = np.array([0, 0, 1, 2, 1]), np.array([0, 1, 1, 0, 4])
    expected = sklearn(f"{type_}_score", labels, taken, average=average, zero_division=0)
    assert measure(type_, {"scores": np.eye(5)[taken], "labels": labels}, average=average) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("threshold", [None, 0.25])
def test_one_score_is_that_of_the_second_class(rng, threshold):
    scores = rng.uniform(size=(150, 1)).astype(np.float32)
    labels = (scores[:, 0] + rng.standard_normal(150) / 4 > 0.5).astype(np.int64)
    given, options = {"scores": scores, "labels": labels}, {"threshold": threshold} if threshold else {}
    taken = scores[:, 0] >= (threshold or 0.5)
    for type_ in ("precision", "recall", "f1"):
        assert measure(type_, given, average="binary", **options) == pytest.approx(sklearn(f"{type_}_score", labels, taken), rel=1e-12)
    assert measure("accuracy", given, **options) == pytest.approx(sklearn("accuracy_score", labels, taken), rel=1e-12)
    assert measure("mcc", given, **options) == pytest.approx(sklearn("matthews_corrcoef", labels, taken), rel=1e-12)


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_kappa_is_that_of_scikit_learn(rng, weights):
    labels, scores = rng.integers(0, 4, 300), rng.normal(size=(300, 4))
    scores[np.arange(300), labels] += 0.7
    given = {"scores": scores, "labels": labels}
    expected = sklearn("cohen_kappa_score", labels, scores.argmax(axis=1), weights=None if weights == "none" else weights)
    assert measure("kappa", given, 7, weights=weights) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_mcc_and_accuracy_are_those_of_scikit_learn(rng, classes):
    labels = rng.choice(classes, 333)
    scores = rng.standard_normal((333, classes)) + np.eye(classes)[labels]
    given = {"scores": scores, "labels": labels[:, None]}
    assert measure("mcc", given, 5) == pytest.approx(sklearn("matthews_corrcoef", labels, scores.argmax(axis=1)), rel=1e-12)
    assert measure("accuracy", given, 5) == pytest.approx(sklearn("accuracy_score", labels, scores.argmax(axis=1)), rel=1e-12)


def test_always_the_same_decision_has_no_correlation():
    assert measure("mcc", {"scores": np.array([[1.0, 0], [1, 0]]), "labels": np.array([0, 1])}) == 0


@pytest.mark.parametrize("axis", [1, -1])
def test_mean_iou_of_positions_is_the_jaccard_score_of_scikit_learn(rng, axis):
    labels = rng.choice(3, (6, 5, 4))
    scores = rng.standard_normal((6, 5, 4, 3)) + np.eye(3)[labels]
    known = labels.copy()
    known[0] = 255
    expected = sklearn("jaccard_score", labels[1:].ravel(), scores[1:].argmax(axis=-1).ravel(), average="macro")
    given = {"scores": np.moveaxis(scores, -1, axis), "labels": known}
    assert measure("mean_iou", given, 3, axis=axis, ignore_index=255) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_is_that_of_scikit_learn(rng, k):
    labels = rng.choice(8, 200)
    scores = rng.standard_normal((200, 8)) + np.eye(8)[labels]
    expected = sklearn("top_k_accuracy_score", labels, scores, k=k, labels=np.arange(8))
    assert measure("top_k", {"scores": scores, "labels": labels[:, None]}, 3, k=k) == pytest.approx(expected, rel=1e-12)


def test_of_equal_scores_the_lower_class_comes_first():
    given = {"scores": np.zeros((4, 4)), "labels": np.array([0, 1, 2, 3])}
    assert [measure("top_k", given, k=k) for k in (1, 2, 3)] == [0.25, 0.5, 0.75]
    assert measure("accuracy", given) == 0.25


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(
    ("type_", "name"),
    [
        ("r2", "r2_score"),
        ("mae", "mean_absolute_error"),
        ("mape", "mean_absolute_percentage_error"),
        pytest.param("rmse", "root_mean_squared_error", id="rmse, of all numbers together"),
    ],
)
def test_errors_of_numbers_are_those_of_scikit_learn(rng, width, type_, name):
    truth = (rng.standard_normal((91, width)) * 3 + 1).astype(np.float32)
    guess = (truth + rng.standard_normal((91, width))).astype(np.float32)
    given = {"predictions": guess, "labels": truth}
    one, two = (a.astype(np.float64) for a in (truth, guess))
    expected = sklearn(name, one.ravel(), two.ravel()) if type_ == "rmse" else sklearn(name, one, two)
    assert measure(type_, given) == pytest.approx(expected, rel=1e-12)
    assert measure(type_, given, batches=9) == measure(type_, given)


def test_labels_may_lack_the_last_axis():
    assert measure("mae", {"predictions": np.array([[1.0], [2]]), "labels": np.array([2.0, 4])}) == 1.5


def test_r2_of_labels_that_are_all_the_same_is_left_out():
    assert measure("r2", {"predictions": np.array([[1.0], [2]]), "labels": np.array([[5.0], [5]])}) is None


def test_perplexity_is_the_exponential_of_the_mean_of_all():
    losses = np.log([[2.0], [8.0], [4.0]])
    assert measure("perplexity", {"losses": losses}, batches=2) == pytest.approx(4.0)
    assert measure("perplexity", {"losses": losses, "weights": np.array([[1.0], [0], [1]])}) == pytest.approx(np.sqrt(8))
    assert measure("perplexity", {"losses": losses, "weights": np.zeros((3, 1))}) is None
    assert measure("perplexity", {"losses": np.full((2, 1), 1e4)}) == float("inf")


def test_sequences_of_other_lengths_in_each_batch_are_gathered():
    kind = discover()["perplexity"]
    options = kind.options.model_validate({"losses": "l", "weights": "w"})
    collector = Collector([Declared("m", kind, options, {"losses": "l", "weights": "w"})], pytest.fail)
    for length in (2, 3):
        collector.add({"l": np.full((1, length), np.log(length)), "w": np.ones((1, length))})
    assert collector.results()["m"] == pytest.approx((2**2 * 3**3) ** 0.2)


# --- calibration ------------------------------------------------------------------------------------------------------


def test_calibration_by_hand():
    """The taken classes have 0.6 (right), 0.8 (wrong) and 0.5 (right)."""
    scores, labels = np.array([[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]), np.array([0, 0, 0])
    assert measure("calibration_error", {"scores": scores, "labels": labels}, bins=1) == pytest.approx(0.1 / 3)
    # 0.5 lies in (0, 0.5], the others in (0.5, 1]
    assert measure("calibration_error", {"scores": scores, "labels": labels}, bins=2) == pytest.approx((0.5 + 0.4) / 3)


def test_one_probability_is_calibrated_as_two(rng):
    one = rng.uniform(size=(200, 1))
    labels = rng.choice(2, 200)
    both = np.concatenate([1 - one, one], axis=1)
    assert measure("calibration_error", {"scores": one, "labels": labels}, 4) == pytest.approx(
        measure("calibration_error", {"scores": both, "labels": labels})
    )


def test_calibration_agrees_with_the_curve_of_scikit_learn(rng):
    """Of the probability of a class where every row has more than half for it."""
    calibration = pytest.importorskip("sklearn.calibration")
    p = rng.uniform(0.5001, 1, 1000)
    labels = (rng.uniform(size=1000) < p**2).astype(np.int64)
    right, mean = calibration.calibration_curve(labels, p, n_bins=10)
    weights = np.bincount((p * 10).astype(int), minlength=10)[5:]
    expected = (np.abs(right - mean) * weights).sum() / 1000
    assert measure("calibration_error", {"scores": p[:, None], "labels": labels}, bins=10) == pytest.approx(expected)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_a_value_that_is_no_number_makes_the_metric_none(rng):
    scores, labels = rng.uniform(size=(20, 1)), np.arange(20) % 2
    scores[3] = np.nan
    for type_ in ("roc_auc", "accuracy"):
        assert np.isnan(measure(type_, {"scores": scores, "labels": labels}, 4))
    assert np.isnan(measure("mae", {"predictions": scores, "labels": labels}))


@pytest.mark.parametrize(
    ("type_", "values", "options", "said"),
    [
        pytest.param("accuracy", {"scores": np.zeros((2, 3)), "labels": np.array([0, 3])}, {}, "a label is 3", id="no such class"),
        pytest.param("top_k", {"scores": np.zeros((2, 3)), "labels": np.array([0, -1])}, {"k": 1}, "a label is -1", id="below all classes"),
        pytest.param("roc_auc", {"scores": np.zeros((2, 1)), "labels": np.array([0, 0.5])}, {}, "a label is 0.5", id="no whole number"),
        pytest.param("calibration_error", {"scores": np.array([[3.0, 1]]), "labels": np.array([0])}, {}, "of probabilities", id="logits"),
    ],
)
def test_values_that_no_metric_can_be_computed_of(type_, values, options, said):
    with pytest.raises(PeError, match=said) as caught:
        measure(type_, values, **options)
    assert caught.value.code == ExitCode.DATA
    assert caught.value.hint
    assert caught.value.message.startswith("metric 'm': ")


@pytest.mark.parametrize(
    ("type_", "shapes", "options", "said"),
    [
        pytest.param("f1", ((-1, 3), (-1, 2)), {}, "labels are", id="other shapes"),
        pytest.param("f1", ((-1, 3), (-1, 1)), {"average": "binary"}, "average: binary is of two classes", id="binary of three"),
        pytest.param("f1", ((-1, 3), (-1, 1)), {"threshold": 0.5}, "the class with the largest score", id="a threshold among classes"),
        pytest.param("f1", ((-1, 3), (-1, 1)), {"axis": 4}, "axis 4", id="no such axis"),
        pytest.param("accuracy", ((-1, 3), (-1, 3)), {}, "one class per row", id="several classes at once"),
        pytest.param("roc_auc", ((-1, 1), (-1, 1)), {"average": "macro"}, "nothing to average", id="an average of two classes"),
        pytest.param("roc_auc", ((-1, 4, 3), (-1, 4)), {}, "[batch, classes]", id="a class per position"),
        pytest.param("f1", ((-1, 3), (-1, 1)), {"class": 3}, "there are 3 classes", id="a class that is not there"),
        pytest.param("f1", ((-1, 3), (-1, 1)), {"class": 1, "average": "micro"}, "has no average", id="one class and an average"),
        pytest.param("top_k", ((-1, 3), (-1, 1)), {"k": 3}, "every row would count", id="as many as classes"),
        pytest.param("top_k", ((-1, -1), (-1, 1)), {"k": 3}, "must be known", id="a number of classes that is not known"),
    ],
)
def test_options_and_types_that_do_not_fit(type_, shapes, options, said):
    kind = discover()[type_]
    made = kind.options.model_validate({"scores": "s", "labels": "l", **options})
    types = {"scores": TensorType(shapes[0]), "labels": TensorType(shapes[1], "float32" if len(shapes[1]) > 1 else "int64")}
    with pytest.raises(PeError) as caught:
        kind.check(made, types)
    assert said in caught.value.message
    assert caught.value.code == ExitCode.USAGE


def test_more_values_than_may_be_kept_are_refused():
    kind = discover()["roc_auc"]
    options = kind.options.model_validate({"scores": "s", "labels": "l"})
    collector = Collector([Declared("m", kind, options, {"scores": "s", "labels": "l"})], pytest.fail, most=2**20)
    batch = {"s": np.zeros((2**15, 1), np.float32), "l": np.zeros((2**15, 1), np.float32)}
    for _ in range(4):
        collector.add(batch)
    with pytest.raises(PeError, match=r"take more than 0\.000976562 GiB"):
        collector.add(batch)
    types = {name: TensorType((-1, 1)) for name in batch}
    collector.expect(types, 2**17)
    with pytest.raises(PeError, match="'l' in all rows"):
        collector.expect(types, 2**17 + 1)


@pytest.mark.parametrize("type_", sorted(discover()))
def test_no_rows_at_all_leave_a_metric_out_or_give_nothing(type_):
    kind = discover()[type_]
    forms = {"scores": np.zeros((0, 1), np.float32), "labels": np.zeros((0, 1), np.int64)}
    if type_ == "detection_map":
        forms |= {"detections": np.zeros((0, 1, 6)), "boxes": np.zeros((0, 1, 4))}
    if type_ == "top_k":
        forms["scores"] = np.zeros((0, 9), np.float32)
    other = np.int64 if type_ in ("bleu", "edit_distance") else np.float32
    given = {key: forms.get(key, np.zeros((0, 1), other)) for key in kind.inputs}
    assert measure(type_, given) in (None, 0.0)


def test_every_kind_is_one_of_both_and_documented():
    for name, kind in discover().items():
        assert kind.name == name
        assert isinstance(kind, Counted | Gathered)
        assert kind.doc.partition("\n")[0].endswith(".")
        assert set(kind.inputs) <= set(kind.options.model_fields)
        assert all(field.description for field in kind.options.model_fields.values())


# --- sequences --------------------------------------------------------------------------------------------------------


def edits_by_hand(a, b):
    if not a or not b:
        return len(a) + len(b)
    return min(edits_by_hand(a[1:], b) + 1, edits_by_hand(a, b[1:]) + 1, edits_by_hand(a[1:], b[1:]) + (a[0] != b[0]))


def test_edits_are_those_of_all_ways(rng):
    guess, truth = rng.integers(0, 4, (30, 6)), rng.integers(0, 4, (30, 5))
    pairs = [[[int(v) for v in row if v != 0] for row in pair] for pair in zip(guess, truth, strict=True)]
    edits = [edits_by_hand(*pair) for pair in pairs]
    given, facts = {"predictions": guess, "labels": truth}, {"ignored_tokens": [0]}
    expected = {
        "label": sum(edits) / sum(len(b) for _, b in pairs), "sequence": sum(edits) / 30, "wrong": sum(e > 0 for e in edits) / 30,
    }  # fmt: skip
    for per, value in expected.items():
        assert measure("edit_distance", given, 4, per=per, **facts) == pytest.approx(value, rel=1e-12)
    assert measure("edit_distance", given, **facts) == measure("edit_distance", given, per="label", **facts)


def test_no_label_has_no_edits_by_label():
    given = {"predictions": np.array([[1, 2]]), "labels": np.array([[0]])}
    assert measure("edit_distance", given, ignored_tokens=[0]) is None
    assert measure("edit_distance", given, ignored_tokens=[0], per="sequence") == 2


@pytest.mark.parametrize("kind", [TensorType((-1, 3)), TensorType((-1, 3, 1), "int64")])
def test_edits_are_of_whole_numbers_in_rows(kind):
    found = discover()["edit_distance"]
    made = found.options.model_validate({"predictions": "p", "labels": "l"})
    with pytest.raises(PeError, match=r"are \[batch, time\] whole numbers"):
        found.check(made, {"predictions": kind, "labels": TensorType((-1, 2), "int64")})
