"""Trainings and measures: the numbers that PaddlePaddle 1.8.5 gave, recorded by `recordings/steps.py`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.fluid.layers import utils
from tests.paddle.recordings.steps import alone, results

pytestmark = pytest.mark.filterwarnings("ignore:fluid.evaluator")
RECORD = json.loads((Path(__file__).parent / "recordings" / "steps.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(RECORD))
def test_numbers_are_those_of_the_original(name):
    np.testing.assert_allclose(alone(fluid, results(fluid)[name]), RECORD[name], rtol=2e-5, atol=2e-6)


def test_every_training_is_recorded():
    assert sorted(results(fluid)) == sorted(RECORD)


def test_an_activation_is_the_layer_of_its_name():
    x = fluid.data("x", [None, 3])
    given = np.array([[0.3, 0.9, 0.2]], np.float32)
    kinds = ("acos", "asin", "atan", "cosh", "erf", "log1p", "relu6", "selu", "sinh", "tan", "softshrink")
    outs = [(fluid.layers.elementwise_add(x, x, act=k), getattr(fluid.layers, k)(x + x)) for k in kinds if hasattr(fluid.layers, k)]
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": given * 0.5}, fetch_list=[v for pair in outs for v in pair])
    for got, expected in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_array_equal(got, expected)


def test_gradients_are_clipped_by_the_parameters_own_clipping():
    x = fluid.data("x", [None, 2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False))
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(0.1))
    pairs = fluid.clip.append_gradient_clip_ops(fluid.backward.append_backward(loss))
    decayed = fluid.regularizer.append_regularization_ops(pairs, fluid.regularizer.L2Decay(0.5))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    found = exe.run(feed={"x": np.array([[3.0, -0.05]], np.float32)}, fetch_list=[pairs[0][1], decayed[0][1], pairs[0][0]])
    np.testing.assert_allclose(found[0], [[0.1], [-0.05]])
    np.testing.assert_allclose(found[1], found[0] + 0.5 * found[2])


# --- structures -------------------------------------------------------------------------------------------------------

NEST = {"b": [1, (2, 3)], "a": 4}


def test_a_structure_is_flattened_by_sorted_keys_and_packed_again():
    assert utils.flatten(NEST) == [4, 1, 2, 3]
    assert utils.pack_sequence_as(NEST, [4, 1, 2, 3]) == NEST
    assert utils.map_structure(lambda v, w: v * w, NEST, NEST) == {"b": [1, (4, 9)], "a": 16}
    assert [utils.is_sequence(v) for v in ([], (), {}, "text", 3)] == [True, True, True, False, False]


def test_a_number_is_one_for_every_axis():
    assert utils.convert_to_list(3, 2, "stride") == [3, 3]
    assert utils.convert_to_list((1, 2), 2, "stride") == [1, 2]
    for wrong in ([1], "12", [1, "x"], None):
        with pytest.raises(ValueError, match="'stride' must be a number, or 2 of them"):
            utils.convert_to_list(wrong, 2, "stride")


@pytest.mark.parametrize(
    ("other", "kind", "says"),
    [
        pytest.param(3, ValueError, "one is a structure and the other is none", id="no structure"),
        pytest.param([1, [2]], ValueError, "different parts|structures of", id="fewer parts"),
        pytest.param((1, (2, 3)), TypeError, "different types: list and tuple", id="another type"),
        pytest.param([1, (2, 3), 4], ValueError, "structures of 2 and 3 parts", id="more parts"),
    ],
)
def test_structures_that_differ(other, kind, says):
    utils.assert_same_structure([1, (2, 3)], [4, (5, 6)])
    utils.assert_same_structure([1, (2, 3)], (4, [5, 6]), check_types=False)
    with pytest.raises(kind, match=says):
        utils.assert_same_structure([1, (2, 3)], other, check_types=kind is TypeError)
    with pytest.raises(ValueError, match="structure has 3 values, and 2 are given"):
        utils.pack_sequence_as([1, (2, 3)], [1, 2])


# --- loops whose states change their sizes ----------------------------------------------------------------------------


def test_no_gradient_flows_through_a_loop_that_changes_sizes():
    x, most = fluid.data("x", [None, 3]), fluid.data("most", [1], "int64")
    grown = fluid.layers.fc(x, 3)

    def body(i, seen):
        return [i + 1, fluid.layers.concat([seen, seen], 1)]

    begin = fluid.layers.fill_constant([1], "int64", 0)
    _, grown = fluid.layers.while_loop(lambda i, seen: fluid.layers.less_than(i, most), body, [begin, grown])
    with pytest.raises(ValueError, match="no gradients flow through a while whose states change their sizes"):
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(grown))


def test_a_state_that_changes_its_rank_is_refused():
    x, most = fluid.data("x", [None, 3]), fluid.data("most", [1], "int64")
    begin = fluid.layers.fill_constant([1], "int64", 0)
    with pytest.raises(ValueError, match="becomes"):
        fluid.layers.while_loop(
            lambda i, seen: fluid.layers.less_than(i, most), lambda i, seen: [i + 1, fluid.layers.unsqueeze(seen, [1])], [begin, x]
        )
