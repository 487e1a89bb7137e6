"""Running sums, orders, and parts by index against NumPy; images at other places against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_running_sums(dtype, exclusive, reverse):
    x = RNG.integers(-9, 9, (3, 5, 2)).astype(dtype)
    found = run_op("cumsum", {"X": x}, {"axis": 1, "exclusive": exclusive, "reverse": reverse})
    line = x[:, ::-1] if reverse else x
    expected = np.cumsum(line, 1, dtype=dtype) - (line if exclusive else 0)
    assert np.array_equal(found, expected[:, ::-1] if reverse else expected)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_orders_are_numpy_s_and_stable(n, axis):
    x = RNG.integers(0, 5, (n, n, 3)).astype("float64")
    found = run_op("argsort", {"X": x}, {"axis": axis})
    assert np.array_equal(found["Indices"], np.argsort(x, axis, kind="stable"))
    assert np.array_equal(found["Out"], np.sort(x, axis))
    falling = run_op("argsort", {"X": x}, {"axis": axis, "descending": True})
    assert np.array_equal(falling["Indices"], np.argsort(-x, axis, kind="stable"))


def test_not_a_number_counts_as_the_largest():
    x = np.array([2.0, np.nan, -np.inf, np.nan, np.inf])
    assert run_op("argsort", {"X": x})["Indices"].tolist() == [2, 0, 4, 1, 3]
    assert run_op("argsort", {"X": x}, {"descending": True})["Indices"].tolist() == [1, 3, 4, 0, 2]


def test_parts_by_index():
    x, index = RNG.standard_normal((4, 3, 2)), np.array([[[0, 2], [3, 1]], [[3, 1], [1, 0]]])
    assert np.array_equal(run_op("gather_nd", {"X": x, "Index": index}), x[index[..., 0], index[..., 1]])
    whole = np.arange(12).reshape(4, 3)
    assert run_op("gather_nd", {"X": whole, "Index": index}).tolist() == [[2, 10], [10, 3]]
    updates = RNG.standard_normal((2, 2, 2))
    expected = x.copy()
    np.add.at(expected, (index[..., 0], index[..., 1]), updates)
    np.testing.assert_allclose(run_op("scatter_nd_add", {"X": x, "Index": index, "Updates": updates}), expected)


def test_rows_that_are_written():
    x, updates = RNG.standard_normal((5, 2)), RNG.standard_normal((4, 2))
    ids = np.array([3, 0, 3, 1])
    inputs = {"X": x, "Ids": ids, "Updates": updates}
    expected = x.copy()
    expected[ids] = updates
    assert np.array_equal(run_op("scatter", inputs), expected)
    gradient = run_gradient("scatter", inputs)
    assert gradient["Updates"].tolist() == [[0, 0], [1, 1], [1, 1], [1, 1]]  # the first one is overwritten
    assert gradient["X"][:, 0].tolist() == [0, 0, 1, 0, 1]
    expected[ids] = 0
    np.add.at(expected, ids, updates)
    np.testing.assert_allclose(run_op("scatter", inputs, {"overwrite": False}), expected)


@pytest.mark.parametrize("name", ["gather_nd", "scatter_nd_add", "scatter"])
def test_an_index_out_of_range_is_named(name):
    inputs = {"X": np.zeros((3, 2)), "Index": np.array([[1], [3]]), "Updates": np.zeros((2, 2))}
    if name == "scatter":
        inputs["Ids"] = inputs.pop("Index")
    if name == "gather_nd":
        del inputs["Updates"]
    with pytest.raises(PeError, match=r"value 3 at row 1 is out of range \[0, 3\)"):
        run_op(name, inputs)


# --- images -----------------------------------------------------------------------------------------------------------


def test_images_at_given_places_are_those_of_torch():
    x, grid = RNG.standard_normal((2, 3, 5, 4)), RNG.uniform(-1.4, 1.4, (2, 6, 3, 2))
    expected = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), align_corners=True)
    np.testing.assert_allclose(run_op("grid_sampler", {"X": x, "Grid": grid}), expected.numpy(), atol=1e-12)


@pytest.mark.parametrize("size", [(7, 9), (3, 2), (1, 1), (5, 4)])
@pytest.mark.parametrize("corners", [True, False])
def test_sizes_by_linear_pixels_are_those_of_torch(size, corners):
    x = RNG.standard_normal((2, 3, 5, 4))
    attrs = {"out_h": size[0], "out_w": size[1], "align_corners": corners, "align_mode": 0}
    expected = torch.nn.functional.interpolate(torch.tensor(x), size, mode="bilinear", align_corners=corners).numpy()
    if size == (1, 1):
        expected = x[:, :, :1, :1]  # the original takes the first pixel, torch that of the middle unless corners are aligned
    np.testing.assert_allclose(run_op("bilinear_interp", {"X": x}, attrs), expected, atol=1e-12)


def test_sizes_by_first_corners():
    x = np.arange(4.0).reshape(1, 1, 1, 4)
    found = run_op("bilinear_interp", {"X": x}, {"out_h": 1, "out_w": 8, "align_corners": False})
    assert found.ravel().tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]


@pytest.mark.parametrize("size", [(7, 9), (3, 2), (1, 1)])
def test_sizes_by_nearest_pixels(size):
    x = RNG.standard_normal((2, 3, 5, 4))
    attrs = {"out_h": size[0], "out_w": size[1]}
    expected = torch.nn.functional.interpolate(torch.tensor(x), size, mode="nearest").numpy()
    assert np.array_equal(run_op("nearest_interp", {"X": x}, {**attrs, "align_corners": False}), expected)
    rows, columns = (
        np.floor(np.arange(w) * ((s - 1) / (w - 1) if w > 1 else 0) + 0.5).astype(int)
        for s, w in zip((5, 4), size, strict=True)
    )
    assert np.array_equal(run_op("nearest_interp", {"X": x}, attrs), x[:, :, rows][..., columns])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_images_beyond_their_edges_are_numpy_s(mode):
    x = RNG.standard_normal((2, 2, 4, 5))
    more = {"constant_values": 2.5} if mode == "constant" else {}
    expected = np.pad(x, ((0, 0), (0, 0), (1, 3), (4, 0)), mode, **more)
    found = run_op("pad2d", {"X": x}, {"paddings": [1, 3, 4, 0], "mode": mode, "pad_value": 2.5})
    assert np.array_equal(found, expected)


def test_a_mirror_is_no_wider_than_the_image():
    with pytest.raises(PeError, match="nothing to mirror"):
        run_op("pad2d", {"X": np.zeros((1, 1, 3, 3))}, {"paddings": [3, 0, 0, 0], "mode": "reflect"})
