"""Names that layers use up: as many of each key as PaddlePaddle 1.8.5, so that what is appended later has its names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from tests.paddle.recordings.names_used import PROGRAMS, used

pytestmark = pytest.mark.filterwarnings("ignore:fluid.layers.LSTMCell")
RECORD = json.loads((Path(__file__).parent / "recordings" / "names_used.json").read_text(encoding="utf-8"))
#: Keys of the original: others are of this package, and no later name follows from them.
KEYS = {key for found in RECORD.values() for key in found["used"]}
#: Programs whose results have other names here: loops return variables of their own.
OTHER_NAMES = {"while_loop", "dynamic_decode, greedy", "dynamic_decode, drawn", "dynamic_decode, given", "dynamic_decode, beams"}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_uses_up_the_names_that_the_original_does(name):
    found = used(fluid, lambda: fluid.unique_name.generator.ids, PROGRAMS[name])
    assert {key: count for key, count in found["used"].items() if key in KEYS} == RECORD[name]["used"]
    if name not in OTHER_NAMES:
        assert found["names"] == RECORD[name]["names"]


def test_every_program_is_recorded():
    assert sorted(PROGRAMS) == sorted(RECORD)


def test_a_layer_in_front_of_all_feeds_has_its_name():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        assert fluid.layers.full([2], 1.0).name == "full_0.tmp_0"


def test_both_weights_of_a_gru_cell_have_names_of_their_own():
    cell = fluid.layers.GRUCell(4, param_attr=fluid.ParamAttr(name="w"), bias_attr=fluid.ParamAttr(name="b"))
    cell(fluid.data("x", [None, 6]), fluid.data("h", [None, 4]))
    names = sorted(p.name for p in fluid.default_main_program().all_parameters())
    assert names == ["b_candidate", "b_gate", "w_candidate", "w_gate"]


def test_a_prefix_of_a_guard_stands_in_front_of_layers_and_of_their_variables():
    # as the zoo's SSD has it: names of PaddlePaddle 1.8.5
    layers = fluid.layers
    x = fluid.data("x", [None, 4, 8, 8])
    hidden = layers.batch_norm(layers.conv2d(x, 4, 3), act="relu")
    with fluid.unique_name.guard("train"):
        flat = layers.reshape(hidden, [0, 144])
        out = layers.fc(flat, 3, act="softmax")
        loss = layers.reduce_mean(layers.cross_entropy(out, fluid.data("y", [None, 1], "int64")))
        made = [flat, out, layers.batch_norm(hidden, act="relu"), x * 1.0, layers.topk(out, 2)[0], hidden[:, 0], loss]
        fluid.optimizer.SGD(0.1).minimize(loss + layers.reduce_mean(layers.relu(hidden)))
    assert [v.name for v in made] == [
        "traintrainreshape2_0.tmp_0", "traintrainfc_0.tmp_2", "traintrainbatch_norm_0.tmp_3", "traintmp_0", "traintraintop_k_0.tmp_0",
        "trainbatch_norm_0.tmp_3_slice_0", "traintrainreduce_mean_0.tmp_0",
    ]  # fmt: skip
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 4, 8, 8), np.float32), "y": np.zeros((2, 1), np.int64)}
    assert np.isfinite(executor.run(feed=feed, fetch_list=[loss])[0]).all()


def test_classes_that_are_declared_as_float32_are_fed_as_int64():
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
    with pytest.warns(UserWarning, match="'y' is declared float32 and counts as int64 classes"):
        loss = fluid.layers.softmax_with_cross_entropy(x, y)
    feed = {"x": np.zeros((2, 3), np.float32), "y": np.array([[0], [2]])}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[loss])
    np.testing.assert_allclose(found, np.full((2, 1), np.log(3)), rtol=1e-6)
