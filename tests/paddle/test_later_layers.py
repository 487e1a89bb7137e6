"""Functions of 2.1 to 2.6 that draw numbers, or that the original computes on GPUs alone: NumPy is the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli import paddle
from pe_cli.paddle import fluid

functional = paddle.nn.functional
RNG = np.random.RandomState(3)


def run(feed, *made):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [np.asarray(v) for v in exe.run(feed=feed, fetch_list=list(made))]


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "keys up to the query"])
@pytest.mark.parametrize("given", [None, "mask", "dropout"])
def test_attention_of_heads(causal, given):
    feed = {n: RNG.randn(2, 5, 3, 4).astype("float32") for n in "qkv"} | {"m": RNG.randn(2, 1, 5, 5).astype("float32")}
    fed = {n: fluid.data(n, list(v.shape)) for n, v in feed.items()}
    mask = fed["m"] if given == "mask" else None
    # A drop chance so small that nothing is dropped takes the way of those who drop.
    chance = 1e-9 if given == "dropout" else 0.0
    found = run(feed, functional.scaled_dot_product_attention(fed["q"], fed["k"], fed["v"], mask, chance, causal))[0]
    q, k, v = (feed[n].transpose(0, 2, 1, 3) for n in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / 2 + (feed["m"] if mask is not None else 0) + (np.triu(np.full((5, 5), -1e9), 1) if causal else 0)
    np.testing.assert_allclose(found, (_softmax(scores) @ v).transpose(0, 2, 1, 3), atol=2e-6)


def test_a_margin_lowers_the_cosine_of_the_label():
    x, label = RNG.uniform(-0.9, 0.9, (3, 4)).astype("float32"), np.array([1, 3, 0])
    fed = fluid.data("x", [3, 4]), fluid.data("label", [3], "int64")
    loss, soft = functional.margin_cross_entropy(*fed, 0.9, 0.4, 0.1, 10.0, return_softmax=True, reduction=None)
    found = run({"x": x, "label": label}, loss, soft)
    moved = x.astype("float64")
    rows = np.arange(3)
    moved[rows, label] = np.cos(0.9 * np.arccos(moved[rows, label]) + 0.4) - 0.1
    wanted = _softmax(10 * moved)
    np.testing.assert_allclose(found[1], wanted, atol=1e-5)
    np.testing.assert_allclose(found[0], -np.log(wanted[rows, label])[:, None], rtol=1e-5)


def test_rrelu_draws_a_slope_per_element_and_takes_the_mean_in_tests():
    x = fluid.data("x", [None, 500])
    out = functional.rrelu(x, 0.2, 0.6)
    test = fluid.default_main_program().clone(for_test=True)
    feed = {"x": np.full((2, 500), -1.0, "float32")}
    drawn = -run(feed, out)[0]
    assert ((drawn >= 0.2) & (drawn <= 0.6)).all()
    assert len(np.unique(drawn)) > 900
    assert abs(drawn.mean() - 0.4) < 0.02
    np.testing.assert_allclose(fluid.Executor().run(test, feed=feed, fetch_list=[out])[0], -0.4, rtol=1e-6)


def test_gumbel_softmax_draws_classes_as_often_as_their_probabilities_say():
    x = fluid.data("x", [None, 3])
    x.stop_gradient = False
    hard = functional.gumbel_softmax(x, 0.5, hard=True)
    soft = functional.gumbel_softmax(x, 0.5)
    weights = paddle.assign(np.array([1.0, 2.0, 4.0], "float32"))
    slope = fluid.gradients(paddle.sum(soft * weights), [x])[0]
    steep = fluid.gradients(paddle.sum(hard * weights), [x])[0]
    shares = np.array([0.2, 0.5, 0.3])
    found = run({"x": np.tile(np.log(shares), (4000, 1)).astype("float32")}, hard, soft, slope, steep)
    assert set(np.unique(found[0].round(6))) == {0.0, 1.0}
    assert np.abs(found[0].mean(0) - shares).max() < 0.04
    w = np.array([1.0, 2.0, 4.0])
    # The softmax's own slope, which 2.6 does not divide by the temperature.
    np.testing.assert_allclose(found[2], found[1] * (w - (found[1] * w).sum(1, keepdims=True)), atol=1e-5)
    assert np.abs(found[3]).max() > 0.1


def test_parts_of_regions_have_channels_of_their_own():
    x, boxes, counts = fluid.data("x", [2, 8, 8, 8]), fluid.data("b", [3, 4]), fluid.data("n", [2], "int32")
    ops = paddle.vision.ops
    made = [ops.psroi_pool(x, boxes, counts, 2, 0.5), ops.PSRoIPool(2, 0.5)(x, boxes, counts)]
    feed = {"x": RNG.randn(2, 8, 8, 8).astype("float32"), "n": np.array([1, 2], "int32")}
    feed["b"] = np.array([[0, 0, 11, 11], [2, 4, 9, 13], [4, 4, 7, 7]], "float32")
    found = run(feed, *made)
    # The first region has the pixels 0 to 5, and each of its parts three by three of them.
    parts = [[feed["x"][0, 4 * c + 2 * i + j, 3 * i : 3 * i + 3, 3 * j : 3 * j + 3].mean() for i in (0, 1) for j in (0, 1)] for c in (0, 1)]
    np.testing.assert_allclose(found[0][0].reshape(2, 4), parts, atol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])
    with pytest.raises(ValueError, match="in 3 times 3 parts"):
        ops.psroi_pool(x, boxes, counts, 3)


def test_layers_by_name():
    nn = paddle.nn
    layers = nn.LayerDict({"a": nn.Linear(2, 3), "b": nn.ReLU()})
    layers.update([("c", nn.Linear(3, 1))])
    layers["a"] = nn.Linear(2, 2)
    assert list(layers) == list(layers.keys()) == ["a", "b", "c"]
    assert len(layers) == 3
    assert "b" in layers
    assert len(layers.parameters()) == 4
    assert layers.pop("c").weight.shape == (3, 1)
    del layers["b"]
    assert [name for name, _ in layers.items()] == ["a"]
    assert len(list(layers.values())) == 1
    layers.clear()
    assert not layers.parameters()


@pytest.mark.parametrize(("call", "says"), [
    pytest.param(lambda f, x: f.pixel_unshuffle(x, 3), "pixel_unshuffle: .* by 3", id="a factor that does not divide"),
    pytest.param(lambda f, x: f.max_unpool2d(x, x, 2, output_size=[12, 12]), "output_size is", id="a size that no pool makes"),
    pytest.param(lambda f, x: f.fold(x, 4, 2), "fold: ", id="no windows"),
    pytest.param(lambda f, x: f.rrelu(x, 0.5, 0.2), "lower is 0.5, upper 0.2", id="slopes the wrong way round"),
    pytest.param(lambda f, x: f.gumbel_softmax(x, 0.0), "temperature is 0", id="no temperature"),
    pytest.param(lambda f, x: f.triplet_margin_loss(x, x, x, -1.0), "margin is -1", id="a negative margin"),
    pytest.param(lambda f, x: f.poisson_nll_loss(x, x, epsilon=0.0), "epsilon is 0", id="no epsilon"),
    pytest.param(lambda f, x: f.gaussian_nll_loss(x, x, fluid.data("v", [3])), "variance", id="a variance that fits nothing"),
    pytest.param(lambda f, x: f.soft_margin_loss(x, x, "average"), "reduction is 'average'", id="another reduction"),
    pytest.param(lambda f, x: f.channel_shuffle(x, 2, "NCL"), "channel_shuffle: ", id="another layout"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(functional, fluid.data("x", [2, 4, 4, 4]))
