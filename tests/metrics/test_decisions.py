"""Thresholds and calibration against scikit-learn and SciPy, and what is refused of a file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pe_cli.metrics.calibrators import isotonic, probabilities, temperature
from pe_cli.metrics.decisions import Decision, DecisionSettings, decide
from pe_cli.metrics.thresholds import Rule, choose


def sklearn(name, *given, **options):
    return getattr(pytest.importorskip("sklearn.metrics"), name)(*given, **options)


def rows(rng, count=400, ties=False):
    hit = rng.uniform(size=count) < 0.2
    scores = 1 / (1 + np.exp(-(rng.standard_normal(count) + 1.5 * hit - 1)))
    return (np.round(scores, 1) if ties else scores), hit


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("ties", [False, True], ids=["distinct scores", "many equal scores"])
def test_thresholds_are_the_best_ones_of_scikit_learn(rng, ties):
    scores, hit = rows(rng, ties=ties)
    precision, recall, _ = sklearn("precision_recall_curve", hit, scores)
    precision, recall = precision[:-1], recall[:-1]
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)

    def taken(rule):
        return scores >= choose(rule, scores, hit).threshold

    assert sklearn("f1_score", hit, taken(Rule("f1"))) == pytest.approx(f1.max(), rel=1e-12)
    for least in (0.3, 0.5, 0.7):
        found = taken(Rule("precision", least))
        assert sklearn("precision_score", hit, found) >= least
        assert sklearn("recall_score", hit, found) == pytest.approx(recall[precision >= least].max(), rel=1e-12)
        found = taken(Rule("recall", least))
        assert sklearn("recall_score", hit, found) >= least
        assert sklearn("precision_score", hit, found) == pytest.approx(precision[recall >= least].max(), rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=40), st.sampled_from([0.3, 0.5, 0.8]))
def test_f1_with_a_precision_is_the_best_of_all_that_have_it(pairs, least):
    scores, hit = np.array([a / 13 for a, _ in pairs]), np.array([b for _, b in pairs])
    if not hit.any() or hit.all():
        return

    def measured(threshold):
        taken = scores >= threshold
        right = (taken & hit).sum()
        return right / max(1, taken.sum()), 2 * right / (taken.sum() + hit.sum())

    found = choose(Rule("f1", least), scores, hit)
    enough = [f1 for precision, f1 in map(measured, scores) if precision >= least]
    assert measured(found.threshold)[1] == pytest.approx(max(enough, default=0.0))
    assert bool(found.short) == (not enough)
    assert enough or not (scores >= found.threshold).any(), "no alarm rather than one that is likely false"
    if least == 0.5:
        assert ((scores >= found.threshold) == hit).mean() >= (~hit).mean(), "as many right rows as by taking none"


def test_what_f1_has_without_the_precision_is_said():
    scores, hit = np.array([0.4, 0.3, 0.2, 0.1]), np.array([False, False, True, False])
    found = choose(Rule("f1", 0.5), scores, hit)
    assert found.threshold == pytest.approx(0.7)
    assert "none has a precision of at least 0.5, and no row is taken for it" in found.short
    assert "the best F1, from 0.15 on, has 0.3333 and finds 1 of the rows (decide: f1)" in found.short


@pytest.mark.parametrize(("missed", "false_alarm"), [(10.0, 1.0), (1.0, 1.0), (1.0, 30.0)])
def test_the_cheapest_threshold_is_that_of_all_that_can_be(rng, missed, false_alarm):
    scores, hit = rows(rng)

    def cost(threshold):
        taken = scores >= threshold
        return missed * (hit & ~taken).sum() + false_alarm * (~hit & taken).sum()

    found = choose(Rule("cost", missed=missed, false_alarm=false_alarm), scores, hit).threshold
    assert cost(found) == min(cost(t) for t in [*scores, 1.0])


def test_what_no_threshold_does_is_said():
    scores, hit = np.array([0.9, 0.8, 0.1]), np.array([False, True, True])
    found = choose(Rule("precision", 0.9), scores, hit)
    assert "the most is 0.6667" in found.short
    assert found.threshold == pytest.approx(0.05)
    for none in (np.zeros(3, bool), np.ones(3, bool)):
        assert choose(Rule("f1"), scores, none).threshold == 0.5
        assert choose(Rule("f1"), scores, none).short
    assert choose(Rule("threshold", 0.25), scores, hit).threshold == 0.25


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40), st.integers(0, 50))
def test_isotonic_regression_is_that_of_scikit_learn(pairs, asked):
    model = pytest.importorskip("sklearn.isotonic").IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    scores, hit = np.array([a / 12 for a, _ in pairs]), np.array([b for _, b in pairs])
    model.fit(scores, hit.astype(float))
    at = np.append(scores, asked / 50)
    np.testing.assert_allclose(isotonic(scores, hit)(at), model.predict(at), atol=1e-9)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "tags"])
@pytest.mark.parametrize("true", [0.4, 1.0, 3.0])
def test_a_temperature_is_the_minimum_that_scipy_finds(rng, kind, true):
    optimize = pytest.importorskip("scipy.optimize")
    special = pytest.importorskip("scipy.special")
    logits = rng.standard_normal((500, {"softmax": 4, "sigmoid": 1, "tags": 3}[kind])) * 2
    if kind == "softmax":
        labels = np.array([rng.choice(4, p=p) for p in special.softmax(logits / true, axis=1)])

        def loss(t):
            return -special.log_softmax(logits / t, axis=1)[np.arange(500), labels].sum()
    else:
        labels = (rng.uniform(size=logits.shape) < special.expit(logits / true)).astype(np.int64)

        def loss(t):
            return -np.where(labels == 1, special.log_expit(logits / t), special.log_expit(-logits / t)).sum()

    found = temperature(logits, labels, several=kind == "tags")
    best = optimize.minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-10}).x
    assert found == pytest.approx(best, rel=1e-5)
    assert loss(found) <= loss(best) + 1e-9


def test_a_temperature_has_bounds():
    logits = np.array([[3.0], [-3.0]])
    assert temperature(logits, np.array([1, 0]), several=False) == 0.02, "all right: as sure as may be"
    assert temperature(logits, np.array([0, 1]), several=False) == 50.0


def test_a_decision_is_kept_as_it_is(rng):
    scores = rng.standard_normal((300, 3))
    labels = (scores + rng.standard_normal((300, 3)) > 0.5).astype(np.int64)
    for calibrate in ("temperature", "isotonic", ""):
        made, _ = decide(DecisionSettings(Rule("f1"), calibrate), "label", scores, labels, "abc", logits=True, several=True)
        read = Decision.from_json(json.loads(json.dumps(made.to_json())))
        assert read == made
        before, after = (one.probabilities(scores, logits=True, several=True) for one in (made, read))
        np.testing.assert_array_equal(before, after)
        plain = probabilities(scores, logits=True, several=True)
        order = np.argsort(plain[:, 0])
        assert (np.diff(after[order, 0]) >= 0).all(), "a calibration changes no order"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"format": 2}, id="a format of later"),
        pytest.param({"thresholds": [1.5]}, id="a threshold above 1"),
        pytest.param({"thresholds": ["0.5"]}, id="a text"),
        pytest.param({"temperature": 0.0}, id="no temperature"),
        pytest.param({"temperature": float("inf")}, id="an infinite temperature"),
        pytest.param({"steps": [{"at": [0.5, 0.2], "to": [0.1, 0.2]}]}, id="points that fall"),
        pytest.param({"steps": [{"at": [0.1, 0.2], "to": [0.1]}]}, id="fewer values"),
        pytest.param({"steps": [{"at": [], "to": []}]}, id="no points"),
        pytest.param({"more": 1}, id="a key that is unknown"),
    ],
)
def test_a_decision_from_elsewhere_is_checked(change):
    with pytest.raises(ValidationError):
        Decision.from_json(Decision("label", (0.5,)).to_json() | change)
