"""Elements along an axis, running products and bits against NumPy; images at other places against ONNX's definition and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import Sample, discover
from tests.needs import torch
from tests.ops.support import directional_error, run_op

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
def test_elements_along_an_axis_are_numpys(axis, dtype):
    x = RNG.integers(0, 2, (3, 4, 5)).astype(dtype)
    index = RNG.integers(-x.shape[axis], x.shape[axis], (3, 4, 5))
    assert np.array_equal(run_op("take_along_axis", {"X": x, "Index": index}, {"axis": axis}), np.take_along_axis(x, index, axis))


@pytest.mark.parametrize("reduce", ["assign", "add", "mul", "max", "min"])
def test_elements_are_put_as_onnx_defines_it(reduce):
    x, updates = RNG.normal(size=(4, 6)), RNG.normal(size=(3, 5))
    index = np.array([RNG.permutation(4)[:3] for _ in range(5)]).T if reduce == "assign" else RNG.integers(-4, 4, (3, 5))
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction="none" if reduce == "assign" else reduce)
    (expected,) = ReferenceEvaluator(node).run(None, {"x": x, "i": index, "u": updates})
    found = run_op("put_along_axis", {"X": x, "Index": index, "Updates": updates}, {"axis": 0, "reduce": reduce})
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_the_last_one_at_a_place_stays():
    given = {"X": np.zeros(3), "Index": np.array([1, 1]), "Updates": np.array([5.0, 7.0])}
    assert run_op("put_along_axis", given).tolist() == [0, 7, 0]


@pytest.mark.parametrize("place", [3, -4])
def test_places_outside_are_told(place):
    with pytest.raises(PeError, match=rf"value {place} at row 1 is out of range \[0, 3\)"):
        run_op("take_along_axis", {"X": np.zeros(3), "Index": np.array([0, place])})
    with pytest.raises(PeError, match="lies inside of X"):
        run_op("take_along_axis", {"X": np.zeros((2, 3)), "Index": np.zeros((3, 3), np.int64)})


@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_running_products(exclusive, reverse):
    x = RNG.normal(size=(3, 5, 2))
    line = x[:, ::-1] if reverse else x
    whole = np.cumprod(line, 1)
    expected = np.concatenate([np.ones((3, 1, 2)), whole[:, :-1]], 1) if exclusive else whole
    found = run_op("cumprod", {"X": x}, {"axis": 1, "exclusive": exclusive, "reverse": reverse})
    np.testing.assert_allclose(found, expected[:, ::-1] if reverse else expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_bits_are_numpys(dtype):
    low = 0 if dtype in ("uint8", "bool") else -2000
    x, y = (RNG.integers(low, 2 if dtype == "bool" else 250, (4, 9)).astype(dtype) for _ in range(2))
    for name in ("and", "or", "xor"):
        assert np.array_equal(run_op(f"bitwise_{name}", {"X": x, "Y": y}), getattr(np, f"bitwise_{name}")(x, y))
    assert np.array_equal(run_op("bitwise_not", {"X": x}), np.bitwise_not(x))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_shifts_lose_what_goes_out_and_keep_the_sign(dtype):
    x = np.array([1, 7, 100, -3 if dtype != "uint8" else 3], dtype)
    y = np.array([0, 2, 3, 1], dtype)
    assert np.array_equal(run_op("bitwise_left_shift", {"X": x, "Y": y}), np.left_shift(x, y))
    assert np.array_equal(run_op("bitwise_right_shift", {"X": x, "Y": y}), np.right_shift(x, y))
    far = np.full(4, 200, dtype)
    assert run_op("bitwise_left_shift", {"X": x, "Y": far}).tolist() == [0] * 4
    assert run_op("bitwise_right_shift", {"X": x, "Y": far}).tolist() == [0, 0, 0, -1 if dtype != "uint8" else 0]


def test_the_same_bits_as_another_type():
    x = RNG.normal(size=(3, 4)).astype("float32")
    assert np.array_equal(run_op("bitcast", {"X": x}, {"dtype": "int32"}), x.view("int32"))
    with pytest.raises(PeError, match="4 and 8 bytes"):
        run_op("bitcast", {"X": x}, {"dtype": "int64"})


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_images_at_given_places_are_those_of_torch(mode, padding, corners):
    x, grid = RNG.standard_normal((2, 3, 5, 4)), RNG.uniform(-2.4, 2.4, (2, 6, 3, 2))
    how = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    expected = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), **how)
    np.testing.assert_allclose(run_op("grid_sample", {"X": x, "Grid": grid}, how), expected.numpy(), atol=1e-12)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_volumes_at_given_places_are_those_of_torch(mode, padding):
    x, grid = RNG.standard_normal((1, 2, 3, 5, 4)), RNG.uniform(-1.7, 1.7, (1, 2, 3, 2, 3))
    how = {"mode": mode, "padding_mode": padding, "align_corners": False}
    expected = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), **how)
    np.testing.assert_allclose(run_op("grid_sample", {"X": x, "Grid": grid}, how), expected.numpy(), atol=1e-12)


def test_the_gradient_of_volumes_agrees_with_differences():
    def grid(rng):
        return (rng.integers(-8, 8, (1, 2, 1, 2, 3)) + rng.uniform(0.3, 0.45, (1, 2, 1, 2, 3))) / 6.3

    sample = Sample({"X": (1, 2, 3, 4, 5), "Grid": grid}, {"padding_mode": "border"}, "a volume")
    assert directional_error(discover()["grid_sample"], sample) < 1e-6
