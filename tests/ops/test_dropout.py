"""dropout: how many values are dropped, which ones, and that devices and steps see what they should."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pe_cli.core.errors import PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.ir import Program
from tests.ops.support import run_gradient, run_op
from tests.ops.test_random import MASK, philox

UP = {"dropout_implementation": "upscale_in_train"}


def masks(devices, x, step=0, seed=5, **attrs):
    """Return the mask of a whole batch, made on some devices."""
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((-1, *x.shape[1:])), is_data=True)
    block.append_op("dropout", {"X": "x"}, {"Out": "out", "Mask": "mask"}, attrs)
    scope = Scope([Place("cpu", i) for i in range(devices)])
    values = Executor(program, scope, seed=seed).run({"x": x}, ["mask", "out"], step).values
    mask = np.concatenate([v["mask"] for v in values])
    np.testing.assert_array_equal(np.concatenate([v["out"] for v in values]), np.where(mask, x, 0))
    return mask


@pytest.mark.parametrize("shape", [(7, 5), (8, 3, 3), (3, 4097), (12, 1)], ids=str)
def test_one_two_and_three_devices_drop_the_same_values(shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    one = masks(1, x)
    assert 0 < one.mean() < 1
    assert np.array_equal(masks(2, x), one)
    assert np.array_equal(masks(3, x), one)


def test_every_step_and_every_seed_drops_other_values():
    x = np.ones((50, 40), np.float32)
    first = masks(1, x, step=0)
    assert np.array_equal(masks(1, x, step=0), first)
    for other in (masks(1, x, step=1), masks(1, x, seed=6)):
        assert 0.4 < (other == first).mean() < 0.6


def test_float64_drops_what_float32_drops():
    x = np.ones((30, 7))
    a = run_op("dropout", {"X": x}, {"seed": 4})["Mask"]
    b = run_op("dropout", {"X": x.astype(np.float32)}, {"seed": 4})["Mask"]
    assert np.array_equal(a, b)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_of_dropped_values_is_the_chance(p):
    mask = run_op("dropout", {"X": np.ones((400, 500), np.float32)}, {"dropout_prob": p})["Mask"]
    assert stats.binomtest(int(mask.size - mask.sum()), mask.size, p).pvalue > 1e-3


def test_neighbours_and_steps_are_dropped_independently():
    x = np.ones((500, 400), np.float32)
    flat, other = masks(1, x).ravel() - 0.5, masks(1, x, step=1).ravel() - 0.5
    for lag in (1, 2, 3, 4, 5, 8, 16, 400):
        assert abs(np.corrcoef(flat[:-lag], flat[lag:])[0, 1]) < 4 / np.sqrt(x.size)
    assert abs(np.corrcoef(flat, other)[0, 1]) < 4 / np.sqrt(x.size)


def test_value_i_is_kept_where_word_i_is_at_least_the_chance():
    mask = run_op("dropout", {"X": np.ones((3, 7))}, {"dropout_prob": 0.3, "seed": 11})["Mask"].ravel()
    words = [w for block in range(6) for w in philox([block, 0, 0, 0], [11 & MASK, 0], rounds=7)]
    assert list(mask) == [int(w >= 0.3 * 2**32) for w in words[:21]]


@pytest.mark.parametrize(
    ("attrs", "factor"),
    [
        pytest.param({"dropout_prob": 0.2}, 1.0, id="training keeps the size"),
        pytest.param({"dropout_prob": 0.2, **UP}, 1.25, id="training, rescaled"),
        pytest.param({"dropout_prob": 0.2, "is_test": True}, 0.8, id="inference shrinks"),
        pytest.param({"dropout_prob": 0.2, "is_test": True, **UP}, 1.0, id="inference changes nothing"),
        pytest.param({"dropout_prob": 0.0, **UP}, 1.0, id="nothing is dropped"),
        pytest.param({"dropout_prob": 1.0, **UP}, 0.0, id="everything is dropped"),
    ],
)
def test_values_and_gradients_that_stay_have_one_factor(attrs, factor):
    x = np.random.default_rng(2).uniform(1, 2, (6, 9))
    found = run_op("dropout", {"X": x}, attrs)
    np.testing.assert_allclose(found["Out"], x * found["Mask"] * factor)
    if attrs.get("is_test"):
        assert found["Mask"].all()
    up = np.random.default_rng(3).standard_normal((6, 9))
    np.testing.assert_allclose(run_gradient("dropout", {"X": x}, attrs, "Out", up)["X"], up * found["Mask"] * factor)


def test_a_chance_above_one_is_refused():
    with pytest.raises(PeError, match=r"within \[0, 1\], got 1.5"):
        run_op("dropout", {"X": np.ones(3)}, {"dropout_prob": 1.5})
