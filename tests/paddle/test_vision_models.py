"""Networks of `vision.models`, beside those of PaddlePaddle 2.6.2: `recordings/later/models.json`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle as paddle
from pe_cli.paddle.errors import NotThereYet
from tests.paddle.later.models import ANSWERS, NAMES, answer, made_of
from tests.rotation import of_today

RECORDED = json.loads((Path(__file__).parent / "recordings" / "later" / "models.json").read_text())


def test_every_function_is_recorded():
    functions = {name for name in paddle.vision.models.__all__ if name[0].islower()}
    assert set(NAMES) == set(RECORDED["made_of"]) == functions | {"LeNet"}
    assert set(ANSWERS) == set(RECORDED["answers"])


@pytest.mark.parametrize("name", of_today(list(NAMES), 8))
def test_parameters_have_the_names_paths_and_shapes_of_the_original(name):
    was = RECORDED["made_of"][name]
    assert made_of(paddle, name) == {**was, "last": tuple(was["last"])}


@pytest.mark.parametrize("name", of_today(list(ANSWERS), 5))
def test_a_network_answers_as_the_original(name):
    for mine, other in zip(answer(paddle, name), RECORDED["answers"][name], strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=2e-4 * max(map(abs, other)))


def test_a_network_trains():
    image, label = paddle.static.data("image", [None, 1, 28, 28]), paddle.static.data("label", [None, 1], "int64")
    loss = paddle.nn.functional.cross_entropy(paddle.vision.models.LeNet()(image), label)
    paddle.optimizer.Adam(0.002).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    feed = {"image": np.random.RandomState(0).rand(8, 1, 28, 28).astype("float32"), "label": np.arange(8)[:, None]}
    losses = [float(np.ravel(exe.run(feed=feed, fetch_list=[loss])[0])[0]) for _ in range(25)]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "mobilenet_v1", "googlenet"])
def test_values_that_others_trained_are_refused(name):
    with pytest.raises(NotThereYet, match=f"{name}: pretrained=True is not there: nothing is downloaded"):
        getattr(paddle.vision.models, name)(pretrained=True)


@pytest.mark.parametrize(("call", "says"), [
    pytest.param(lambda m: m.ResNet(m.resnet.BasicBlock, 20), "depth is 20", id="another depth"),
    pytest.param(lambda m: m.DenseNet(100), "layers is 100", id="another number of layers"),
    pytest.param(lambda m: m.SqueezeNet("2.0"), "version is '2.0'", id="another version"),
    pytest.param(lambda m: m.ShuffleNetV2(0.7), "scale is 0.7", id="another scale"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(paddle.vision.models)
