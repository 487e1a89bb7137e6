"""2.x functions in their rarer forms, against PyTorch and NumPy, and data sets that feed static programs."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
import pe_cli.paddle.nn.functional as F
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from tests.needs import torch

T = torch.nn.functional


def fed(name, array):
    return fluid.data(name, list(array.shape), str(array.dtype))


def run(*fetches, **feed):
    return [np.asarray(v) for v in fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))]


def test_places_in_images_and_outside(rng):
    a, g = rng.standard_normal((2, 3, 4, 5)).astype("float32"), (1.5 * rng.standard_normal((2, 3, 3, 2))).astype("float32")
    x, grid = fed("x", a), fed("g", g)
    forms = [(m, p, c) for m in ("bilinear", "nearest") for p in ("zeros", "border", "reflection") for c in (True, False)]
    found = run(*[F.grid_sample(x, grid, m, p, c) for m, p, c in forms], x=a, g=g)
    for got, (m, p, c) in zip(found, forms, strict=True):
        right = T.grid_sample(torch.tensor(a), torch.tensor(g), m, p, c)
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5, err_msg=f"{m} {p} {c}")
    with pytest.raises(FluidValueError, match="mode='cubic'"):
        F.grid_sample(x, grid, "cubic")


def test_grids_to_the_edges_and_borders_of_volumes(rng):
    t, v = rng.standard_normal((2, 2, 3)).astype("float32"), rng.standard_normal((1, 2, 3, 4, 3)).astype("float32")
    theta, x = fed("t", t), fed("x", v)
    around = [1, 2, 0, 1, 2, 0]
    grid, *found = run(F.affine_grid(theta, [2, 3, 4, 5], align_corners=False),
                       *[F.pad(x, around, m, data_format="NCDHW") for m in ("reflect", "replicate")], t=t, x=v)  # fmt: skip
    np.testing.assert_allclose(grid, T.affine_grid(torch.tensor(t), [2, 3, 4, 5], align_corners=False), rtol=1e-4, atol=1e-5)
    for got, m in zip(found, ("reflect", "replicate"), strict=True):
        np.testing.assert_array_equal(got, T.pad(torch.tensor(v), around, m))


def test_different_elements_in_order():
    a = np.array([[2, 3], [3, 1], [2, 3]])
    x = fed("x", a)
    whole = paddle.unique(x, return_index=True, return_inverse=True, return_counts=True)
    rows = paddle.unique(x, return_counts=True, axis=0)
    found = run(*whole, *rows, paddle.unique(x), x=a)
    all_of_it = np.unique(a, return_index=True, return_inverse=True, return_counts=True)
    right = [*all_of_it, *np.unique(a, return_counts=True, axis=0), np.unique(a)]
    for got, wanted in zip(found, right, strict=True):
        np.testing.assert_array_equal(got, np.ravel(wanted) if got.ndim == 1 else wanted)


def test_ranges_and_transposes():
    a = np.arange(6, dtype="float32").reshape(2, 3)
    found = run(paddle.arange(4), paddle.arange(1, 7, 2), paddle.arange(2.5), paddle.t(fed("x", a)), x=a)
    assert [v.dtype.name for v in found] == ["int64", "int64", "float32", "float32"]
    for got, right in zip(found, (range(4), [1, 3, 5], [0, 1, 2], a.T), strict=True):
        np.testing.assert_array_equal(got, right)


def test_arrays_are_saved_by_name(tmp_path):
    path, a = str(tmp_path / "deep" / "x.pdparams"), np.arange(3, dtype="float32")
    paddle.save({"w": a, "state": {"step": 7}}, path)
    found = paddle.load(path)
    np.testing.assert_array_equal(found["w"], a)
    assert int(found["state.step"]) == 7
    with pytest.raises(FluidTypeError, match="names and arrays"):
        paddle.save([a], path)
    with pytest.raises(FluidTypeError, match="'v' is Variable"):
        paddle.save({"v": fed("x", a)}, path)
    with pytest.raises(FluidValueError, match="no such file"):
        paddle.load(str(tmp_path / "none"))


def test_data_sets_feed_static_programs():
    class Numbers(fluid.io.Dataset):
        def __getitem__(self, idx):
            return np.full(3, idx, "float32"), np.array([idx])

        def __len__(self):
            return 5

    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], "int64")
    total = fluid.layers.reduce_sum(x)
    assert x.grad_name == "x@GRAD"
    batches = fluid.io.DataLoader(Numbers(), feed_list=[x, y], batch_size=2, drop_last=True)
    exe = fluid.Executor(fluid.CPUPlace())
    assert [float(exe.run(feed=feed, fetch_list=[total])[0][0]) for feed in batches] == [3, 15]
    assert list(fluid.io.BatchSampler(indices=list(range(5)), batch_size=2)) == [[0, 1], [2, 3], [4]]
