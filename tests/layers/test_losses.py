"""Losses that are made of other layers, values and gradients against PyTorch, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy.stats import gumbel_l

from pe_cli.core.errors import PeError
from tests.layers.support import evaluate, programs
from tests.layers.support import layers as L
from tests.needs import torch

Array = np.ndarray[Any, Any]


def agrees(build: Callable[..., Any], theirs: Callable[..., Any], inputs: Mapping[str, Array], learned: tuple[str, ...]) -> None:
    """Compare a loss with PyTorch's, in float64."""
    out, grads = evaluate(build, inputs, learned)
    tensors = {name: torch.tensor(a, requires_grad=name in learned) for name, a in inputs.items()}
    expected = theirs(torch, **tensors)
    np.testing.assert_allclose(out.reshape(-1), expected.detach().numpy().reshape(-1), rtol=1e-10, atol=1e-12)
    (expected.reshape(-1) * torch.arange(1, expected.numel() + 1)).sum().backward()
    for name in learned:
        np.testing.assert_allclose(grads[name], tensors[name].grad.numpy(), rtol=1e-8, atol=1e-10, err_msg=name)


def numbers(rng: np.random.Generator, *names: str, shape: tuple[int, ...] = (6, 5)) -> dict[str, Array]:
    return {name: rng.standard_normal(shape) for name in names}


# --- classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0])
def test_smoothed_cross_entropy(rng, epsilon):
    given = {"logits": rng.standard_normal((6, 5)) * 3, "label": rng.integers(0, 5, (6, 1))}

    def theirs(torch, logits, label):
        return torch.nn.functional.cross_entropy(logits, label[:, 0], reduction="none", label_smoothing=epsilon)

    agrees(lambda logits, label: L.smoothed_cross_entropy(logits, label, epsilon), theirs, given, ("logits",))


def test_smoothed_cross_entropy_of_ignored_labels(rng):
    given = {"logits": rng.standard_normal((6, 5)) * 3, "label": rng.integers(0, 5, (6, 1))}
    given["label"][[1, 4]] = -100

    def theirs(torch, logits, label):
        return torch.nn.functional.cross_entropy(logits, label[:, 0], reduction="none", label_smoothing=0.2)

    agrees(lambda logits, label: L.smoothed_cross_entropy(logits, label, 0.2), theirs, given, ("logits",))


@pytest.mark.parametrize("prior", [False, True], ids=["spread evenly", "spread as given"])
def test_label_smooth(rng, prior):
    label = np.eye(4)[[0, 2, 3]]
    weights = np.array([[0.1, 0.2, 0.3, 0.4]] * 3)
    given = {"label": label, **({"prior_dist": weights} if prior else {})}
    out, _ = evaluate(lambda **fed: L.label_smooth(**fed, epsilon=0.2, dtype="float64"), given, ("label",))
    np.testing.assert_allclose(out, 0.8 * label + 0.2 * (weights if prior else 0.25), rtol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0, 3.5])
def test_focal_loss(rng, gamma):
    given = {"logits": rng.standard_normal((6, 5)) * 3, "label": rng.integers(0, 5, (6, 1))}

    def theirs(torch, logits, label):
        entropy = torch.nn.functional.cross_entropy(logits, label[:, 0], reduction="none")
        return (1 - torch.exp(-entropy)) ** gamma * entropy

    agrees(lambda logits, label: L.focal_loss(logits, label, gamma), theirs, given, ("logits",))


@pytest.mark.parametrize("alpha", [0.25, 0.9, None])
@pytest.mark.parametrize("gamma", [0.0, 2.0, 1.5])
def test_binary_focal_loss(rng, alpha, gamma):
    given = {"x": rng.standard_normal((6, 3)) * 3, "label": rng.integers(0, 2, (6, 3)).astype(np.float64)}

    def theirs(torch, x, label):
        """As torchvision.ops.sigmoid_focal_loss has it."""
        p = torch.sigmoid(x)
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(x, label, reduction="none")
        loss = entropy * (1 - (p * label + (1 - p) * (1 - label))) ** gamma
        return loss if alpha is None else (alpha * label + (1 - alpha) * (1 - label)) * loss

    agrees(lambda x, label: L.binary_focal_loss(x, label, alpha, gamma), theirs, given, ("x",))


def test_a_certain_hit_has_no_focal_loss_and_a_finite_gradient():
    for gamma in (1.0, 2.0, 2.5):
        for build, logits, label in (
            (lambda logits, label, g=gamma: L.focal_loss(logits, label, g), [[90, -90], [0, 200]], np.array([[0], [1]])),
            (lambda logits, label, g=gamma: L.binary_focal_loss(logits, label, gamma=g), [[90], [-90]], np.array([[1], [0]], "float32")),
        ):
            out, grads = evaluate(build, {"logits": np.array(logits, "float32"), "label": label}, ("logits",))
            np.testing.assert_allclose(out, 0, atol=1e-30)
            np.testing.assert_allclose(grads["logits"], 0, atol=1e-20)


@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 2, 3)], ids=["rows", "pictures, channels last"])
def test_dice_loss(rng, shape):
    given = {"input": rng.uniform(0.1, 0.9, shape), "label": rng.integers(0, 3, (*shape[:-1], 1))}

    def theirs(torch, input, label):
        right = torch.nn.functional.one_hot(label[..., 0], 3).to(input.dtype)
        axes = tuple(range(1, len(shape)))
        return (1 - 2 * (input * right).sum(axes) / (input.sum(axes) + right.sum(axes) + 1e-5)).mean()

    agrees(L.dice_loss, theirs, given, ("input",))


# --- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [1.0, 3.5])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_contrastive_loss(rng, margin, dtype):
    given = {**numbers(rng, "first", "second"), "label": rng.integers(0, 2, (6, 1)).astype(dtype)}

    def theirs(torch, first, second, label):
        d = torch.nn.functional.pairwise_distance(first, second)
        same = label[:, 0].to(d.dtype)
        return same * d**2 + (1 - same) * torch.relu(margin - d) ** 2

    agrees(lambda **fed: L.contrastive_loss(**fed, margin=margin), theirs, given, ("first", "second"))


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("margin", [1.0, 0.2])
def test_triplet_margin_loss(rng, swap, margin):
    def theirs(torch, **fed):
        return torch.nn.functional.triplet_margin_loss(**fed, margin=margin, swap=swap, reduction="none")

    given = numbers(rng, "anchor", "positive", "negative")
    agrees(lambda **fed: L.triplet_margin_loss(**fed, margin=margin, swap=swap), theirs, given, tuple(given))


def test_equal_vectors_have_a_finite_gradient():
    same = np.ones((2, 3))
    _, grads = evaluate(L.triplet_margin_loss, {"anchor": same, "positive": same, "negative": same + 0.1}, ("anchor", "positive"))
    assert all(np.isfinite(g).all() for g in grads.values())


@pytest.mark.parametrize("temperature", [0.07, 0.005, 1.0])
def test_info_nce(rng, temperature):
    def theirs(torch, queries, keys):
        one, two = (torch.nn.functional.normalize(v) for v in (queries, keys))
        return torch.nn.functional.cross_entropy(one @ two.T / temperature, torch.arange(len(queries)), reduction="none")

    given = numbers(rng, "queries", "keys")
    agrees(lambda **fed: L.info_nce(**fed, temperature=temperature), theirs, given, ("queries", "keys"))


def test_info_nce_of_a_row_alone_is_nothing():
    out, _ = evaluate(L.info_nce, {"queries": np.ones((1, 3)), "keys": -np.ones((1, 3))}, ("queries",))
    np.testing.assert_allclose(out, 0, atol=1e-12)


@pytest.mark.parametrize("margin", [0.0, 0.3])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_cosine_embedding_loss(rng, margin, dtype):
    given = {**numbers(rng, "first", "second"), "label": (rng.integers(0, 2, (6, 1)) * 2 - 1).astype(dtype)}

    def theirs(torch, first, second, label):
        return torch.nn.functional.cosine_embedding_loss(first, second, label[:, 0], margin=margin, reduction="none")

    agrees(lambda **fed: L.cosine_embedding_loss(**fed, margin=margin), theirs, given, ("first", "second"))


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_quantile_loss(rng, quantile):
    def theirs(torch, input, label):
        d = label - input
        return torch.maximum(quantile * d, (quantile - 1) * d)

    given = numbers(rng, "input", "label", shape=(6, 2))
    agrees(lambda **fed: L.quantile_loss(**fed, quantile=quantile), theirs, given, ("input",))
    metrics = pytest.importorskip("sklearn.metrics")
    out, _ = evaluate(lambda **fed: L.quantile_loss(**fed, quantile=quantile), given, ("input",))
    assert out.mean() == pytest.approx(metrics.mean_pinball_loss(given["label"], given["input"], alpha=quantile), rel=1e-12)


@pytest.mark.parametrize("log_input", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_poisson_nll_loss(rng, log_input, full):
    given = {"input": rng.uniform(0.1, 3, (6, 2)), "label": rng.poisson(2, (6, 2)).astype(np.float64)}

    def theirs(torch, input, label):
        return torch.nn.functional.poisson_nll_loss(input, label, log_input=log_input, full=full, reduction="none")

    agrees(lambda **fed: L.poisson_nll_loss(**fed, log_input=log_input, full=full), theirs, given, ("input",))


def test_weibull_nll_loss_is_that_of_scipy(rng):
    given = {name: rng.normal(1, 1, (40, 1)) for name in ("input", "label")}
    given["event"] = rng.integers(0, 2, (40, 1)).astype(np.float64)
    fed = {**given, "log_shape": np.full((40, 1), 0.4)}
    out, grads = evaluate(lambda **fed: L.weibull_nll_loss(**fed), fed, ("input", "log_shape"))
    # The logarithm of a Weibull time has the distribution of the smallest extreme value; its median is where half of the times end.
    shape = np.exp(0.4)
    scaled = gumbel_l(loc=given["input"] - np.log(np.log(2)) / shape, scale=1 / shape)
    expected = np.where(given["event"] == 1, -scaled.logpdf(given["label"]), -scaled.logsf(given["label"]))
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(scaled.median(), given["input"], rtol=1e-12)
    step = 1e-6
    moved = gumbel_l(loc=given["input"] + step - np.log(np.log(2)) / shape, scale=1 / shape)
    above = np.where(given["event"] == 1, -moved.logpdf(given["label"]), -moved.logsf(given["label"]))
    np.testing.assert_allclose(grads["input"] / np.arange(1, 41)[:, None], (above - expected) / step, rtol=1e-4, atol=1e-4)


def test_weibull_nll_loss_at_the_answer_of_lifelines():
    """The constants are lambda_, rho_ and log_likelihood_ of WeibullFitter, lifelines 0.30.3, of these times."""
    rng = np.random.default_rng(7)
    times, seen = np.round(rng.weibull(1.5, 40) * 10, 1) + 0.1, (rng.random(40) < 0.6).astype(np.float64)
    scale, shape, likelihood = 13.6738026105565, 1.8148769913487752, -80.13277765375159
    median = np.log(scale) + np.log(np.log(2)) / shape
    given = {"input": np.full((40, 1), median), "label": np.log(times)[:, None], "event": seen[:, None],
             "log_shape": np.full((40, 1), np.log(shape))}  # fmt: skip
    out, grads = evaluate(lambda **fed: L.weibull_nll_loss(**fed), given, ("input", "log_shape"))
    # Densities of times and of their logarithms differ by a factor of the time.
    assert -out.sum() - (seen * np.log(times)).sum() == pytest.approx(likelihood, rel=1e-6)
    weights = np.arange(1, 41)[:, None]
    assert np.abs((grads["input"] / weights).sum()) < 0.01
    assert np.abs((grads["log_shape"] / weights).sum()) < 0.01


# --- what is wrong ----------------------------------------------------------------------------------------------------

FEEDS = {"x": ([4], "float32"), "y": ([4], "float32"), "one": ([1], "float32"), "label": ([1], "int64"), "deep": ([2, 4], "float32"),
         "any": ([-1, -1], "float32")}  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "inputs", "options", "said"),
    [
        pytest.param("smoothed_cross_entropy", "x label", {"epsilon": 1.5}, "epsilon must be from 0 to 1, got 1.5", id="epsilon"),
        pytest.param("label_smooth", "label", {}, "label must be float32 or float64", id="class numbers to smooth"),
        pytest.param("label_smooth", "any", {}, "how many classes float32[batch, batch] has is not known", id="any number of classes"),
        pytest.param("focal_loss", "x label", {"gamma": 0.5}, "gamma must be 0 or at least 1, got 0.5", id="gamma"),
        pytest.param("focal_loss", "x label", {"gamma": -2.0}, "gamma must be 0 or at least 1, got -2", id="gamma below 0"),
        pytest.param("binary_focal_loss", "x y", {"alpha": 1.5}, "alpha must be from 0 to 1, got 1.5", id="alpha"),
        pytest.param("contrastive_loss", "x y label", {"margin": 0.0}, "margin must be > 0, got 0", id="margin of pairs"),
        pytest.param("contrastive_loss", "x y x", {}, "label should be [batch, 1]", id="labels of pairs"),
        pytest.param("contrastive_loss", "x one label", {}, "needs inputs of one type", id="vectors of other widths"),
        pytest.param("triplet_margin_loss", "x y deep", {}, "needs inputs of one type", id="vectors of other shapes"),
        pytest.param("triplet_margin_loss", "deep deep deep", {}, "should be [batch, width]", id="vectors of three axes"),
        pytest.param("triplet_margin_loss", "x y x", {"margin": -1.0}, "margin must be > 0, got -1", id="margin of triples"),
        pytest.param("info_nce", "x y", {"temperature": 0.0}, "temperature must be > 0, got 0", id="temperature"),
        pytest.param("cosine_embedding_loss", "x y label", {"margin": 2.0}, "margin must be from -1 to 1, got 2", id="margin of cosines"),
        pytest.param("quantile_loss", "x y", {"quantile": 1.0}, "quantile must be > 0 and < 1, got 1", id="quantile"),
        pytest.param("quantile_loss", "x one", {}, "needs inputs of one type", id="one label for several predictions"),
        pytest.param("weibull_nll_loss", "one x one one", {}, "needs inputs of one type", id="times of several columns"),
        pytest.param("poisson_nll_loss", "x label", {}, "needs inputs of one type", id="whole numbers"),
    ],
)
def test_refusals(layer, inputs, options, said):
    with programs():
        fed = [L.data(name + str(i), FEEDS[name][0], dtype=FEEDS[name][1]) for i, name in enumerate(inputs.split())]
        with pytest.raises(PeError) as caught:
            getattr(L, layer)(*fed, **options)
        assert said in caught.value.message
        assert caught.value.message.startswith(layer)
