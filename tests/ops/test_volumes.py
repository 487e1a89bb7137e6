"""Ops on volumes and windows beside PyTorch, and beside loops over their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_op

T = torch.nn.functional


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "attrs",
    [
        pytest.param({"ksize": 3, "stride": 2, "paddings": [1, 2]}, id="padded, in strides"),
        pytest.param({"ksize": 2, "dilation": 3}, id="apart"),
        pytest.param({"ksize": 1, "stride": 3}, id="single slices"),
        pytest.param({"ksize": 7, "paddings": [5, 0], "stride": 4}, id="windows that begin outside"),
    ],
)
def test_windows_of_slices(attrs, dtype, rng):
    x = rng.standard_normal((2, 3, 6, 2, 3)).astype(dtype)
    k, step, gap = attrs["ksize"], attrs.get("stride", 1), attrs.get("dilation", 1)
    padded = np.pad(x, [(0, 0), (0, 0), attrs.get("paddings", [0, 0]), (0, 0), (0, 0)])
    places = (padded.shape[2] - gap * (k - 1) - 1) // step + 1
    expected = np.stack([padded[:, :, p * step : p * step + gap * (k - 1) + 1 : gap] for p in range(places)], 1)
    assert np.array_equal(run_op("depth_windows", {"X": x}, attrs), expected)


def test_windows_that_do_not_fit():
    with pytest.raises(PeError, match=r"4 slices \(dilation 2\) do not fit"):
        run_op("depth_windows", {"X": np.zeros((1, 1, 6, 1, 1))}, {"ksize": 4, "dilation": 2})
    with pytest.raises(PeError, match="numbers of at least 1"):
        run_op("depth_windows", {"X": np.zeros((1, 1, 6, 1, 1))}, {"stride": 0})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("taps", "steps", "pads", "gaps"),
    [
        ((2, 3), (1, 1), (0, 0), (1, 1)),
        ((2, 3), (2, 1), (1, 2), (1, 2)),
        ((1, 1), (3, 2), (0, 0), (1, 1)),
        ((5, 6), (1, 1), (0, 0), (1, 1)),
    ],
)
def test_columns(taps, steps, pads, gaps, dtype, rng):
    x = rng.standard_normal((2, 3, 5, 6)).astype(dtype)
    attrs = {"kernel_sizes": list(taps), "strides": list(steps), "paddings": [*pads, *pads], "dilations": list(gaps)}
    expected = T.unfold(torch.tensor(x), taps, gaps, pads, steps).numpy()
    assert np.array_equal(run_op("unfold", {"X": x}, attrs), expected)


def test_columns_with_a_border_on_one_side(rng):
    x = rng.standard_normal((1, 2, 4, 3))
    expected = T.unfold(T.pad(torch.tensor(x), (2, 0, 0, 1)), (2, 2)).numpy()
    assert np.array_equal(run_op("unfold", {"X": x}, {"kernel_sizes": [2, 2], "paddings": [0, 2, 1, 0]}), expected)


def test_a_window_larger_than_the_image():
    with pytest.raises(PeError, match="does not fit into"):
        run_op("unfold", {"X": np.zeros((1, 1, 3, 3))}, {"kernel_sizes": [2, 2], "dilations": [3, 1]})


def _sources(have, wanted, mode):
    """Return where positions come from, and nothing of PyTorch's: it has no align_mode 1."""
    i = np.arange(wanted)
    if mode == "corners":
        return i * ((have - 1) / (wanted - 1) if wanted > 1 else 0.0)
    ratio = have / wanted if wanted > 1 else 0.0
    return i * ratio if mode == "first" else np.maximum((i + 0.5) * ratio - 0.5, 0.0)


def _linear(x, axis, wanted, mode):
    at = _sources(x.shape[axis], wanted, mode)
    low = np.minimum(at.astype(int), x.shape[axis] - 1)
    share = (at - low).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    high = np.minimum(low + 1, x.shape[axis] - 1)
    return np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share


MODES = {
    "corners": {"align_corners": True},
    "centres": {"align_corners": False, "align_mode": 0},
    "first": {"align_corners": False, "align_mode": 1},
}


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("sizes", [(4, 7, 3), (1, 1, 1), (3, 4, 5), (2, 9, 11)])
def test_volumes_of_another_size(mode, sizes, rng):
    x = rng.standard_normal((2, 3, 3, 4, 5))
    attrs = dict(zip(("out_d", "out_h", "out_w"), sizes, strict=True)) | MODES[mode]
    found = run_op("trilinear_interp", {"X": x}, attrs)
    expected = x
    for axis, size in enumerate(sizes, 2):
        expected = _linear(expected, axis, size, mode)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    if mode != "first" and min(sizes) > 1:
        theirs = T.interpolate(torch.tensor(x), sizes, mode="trilinear", align_corners=mode == "corners")
        np.testing.assert_allclose(found, theirs.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sizes_of_a_step(dtype, rng):
    x, volume = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((1, 2, 3, 4, 5))
    for op, given, sizes in (("bilinear_interp", x, [7, 3]), ("nearest_interp", x, [2, 9]), ("trilinear_interp", volume, [2, 7, 4])):
        attrs = dict(zip(("out_w", "out_h", "out_d"), reversed(sizes), strict=False))
        found = run_op(op, {"X": given, "OutSize": np.array(sizes, dtype)}, {})
        assert np.array_equal(found, run_op(op, {"X": given}, attrs))


def test_sizes_that_are_none():
    with pytest.raises(PeError, match="2 sizes of at least 1"):
        run_op("bilinear_interp", {"X": np.zeros((1, 1, 2, 2))}, {"out_h": 0})
    with pytest.raises(PeError, match="rank 5"):
        run_op("trilinear_interp", {"X": np.zeros((1, 1, 2, 2))}, {})
    with pytest.raises(PeError, match="OutSize of 3 integers"):
        run_op("trilinear_interp", {"X": np.zeros((1, 1, 2, 2, 2)), "OutSize": np.array([1, 2])}, {})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        ((2, 2, 2), (2, 2, 2), (0, 0, 0)),
        ((3, 2, 3), (2, 1, 2), (1, 1, 0)),
        ((1, 1, 1), (1, 2, 3), (0, 0, 0)),
    ],
)
def test_places_of_maxima(options, dtype, rng):
    x = rng.standard_normal((2, 3, 4, 5, 7)).astype(dtype)
    ksize, strides, pads = options
    attrs = {"ksize": list(ksize), "strides": list(strides), "paddings": list(pads)}
    found = run_op("max_pool3d_with_index", {"X": x}, attrs)
    values, places = T.max_pool3d(torch.tensor(x), ksize, strides, pads, return_indices=True)
    assert np.array_equal(found["Out"], values.numpy())
    assert np.array_equal(found["Mask"], places.numpy())
    assert found["Mask"].dtype == np.int32


@pytest.mark.parametrize("size", [(2, 3, 4), (1, 1, 1), (4, 5, 7), (3, 5, 2)])
def test_places_of_adaptive_maxima(size, rng):
    x = rng.standard_normal((2, 2, 4, 5, 7))
    found = run_op("max_pool3d_with_index", {"X": x}, {"ksize": list(size), "adaptive": True})
    values, places = T.adaptive_max_pool3d_with_indices(torch.tensor(x), size)
    assert np.array_equal(found["Out"], values.numpy())
    assert np.array_equal(found["Mask"], places.numpy())


def test_the_first_of_equal_maxima_and_a_nan():
    x = np.zeros((1, 1, 1, 2, 3))
    assert run_op("max_pool3d_with_index", {"X": x}, {"global_pooling": True})["Mask"].item() == 0
    x[..., 1, 1] = np.nan
    found = run_op("max_pool3d_with_index", {"X": x}, {"global_pooling": True})
    assert np.isnan(found["Out"]).all()
    assert found["Mask"].item() == 4


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_a_border_on_one_side(kind, rng):
    x = rng.standard_normal((2, 2, 4, 5, 3))
    attrs = {"pooling_type": kind, "ksize": [2, 3, 2], "strides": [2, 1, 1], "paddings": [1, 0, 0, 2, 0, 1], "exclusive": False}
    padded = torch.tensor(np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 2), (0, 1)], constant_values=-1e300 if kind == "max" else 0.0))
    pool = T.max_pool3d if kind == "max" else T.avg_pool3d
    expected = pool(padded, (2, 3, 2), (2, 1, 1)).numpy()
    np.testing.assert_allclose(run_op("pool3d", {"X": x}, attrs), expected, rtol=1e-12)
    if kind == "avg":
        counted = T.avg_pool3d(torch.tensor(np.pad(np.ones_like(x), [(0, 0), (0, 0), (1, 0), (0, 2), (0, 1)])), (2, 3, 2), (2, 1, 1))
        np.testing.assert_allclose(run_op("pool3d", {"X": x}, attrs | {"exclusive": True}), expected / counted.numpy(), rtol=1e-12)


def _focus(x, axis, indexes):
    """Return the mask by sorting, as the original's text says it."""
    out = np.zeros_like(x)
    for sample, mask in zip(np.moveaxis(x, axis, 1), np.moveaxis(out, axis, 1), strict=True):
        for index in indexes:
            rows, columns = set(), set()
            for p in np.argsort(-sample[index], axis=None, kind="stable"):
                r, c = divmod(int(p), sample.shape[2])
                if r not in rows and c not in columns:
                    rows.add(r)
                    columns.add(c)
                    mask[:, r, c] = 1
    return out


@pytest.mark.parametrize(("axis", "indexes"), [(1, [0]), (1, [2, 0]), (2, [3]), (3, [0, 4]), (3, [1, 1])])
def test_strongest_responses(axis, indexes, rng):
    x = rng.standard_normal((3, 3, 4, 5)).astype("float32")
    assert np.array_equal(run_op("similarity_focus", {"X": x}, {"axis": axis, "indexes": indexes}), _focus(x, axis, indexes))
    equal = np.round(x)
    assert np.array_equal(run_op("similarity_focus", {"X": equal}, {"axis": axis, "indexes": indexes}), _focus(equal, axis, indexes))


def test_strongest_responses_of_the_reference():
    x = [[[0.8, 0.1], [0.4, 0.5]], [[0.9, 0.7], [0.9, 0.9]], [[0.8, 0.9], [0.1, 0.2]]]
    y = [[[0.2, 0.5], [0.3, 0.4]], [[0.9, 0.7], [0.8, 0.4]], [[0.0, 0.2], [0.4, 0.7]]]
    found = run_op("similarity_focus", {"X": np.array([x, y])}, {"axis": 1, "indexes": [0]})
    assert np.array_equal(found, [[[[1.0, 0.0], [0.0, 1.0]]] * 3, [[[0.0, 1.0], [1.0, 0.0]]] * 3])


def test_slices_that_are_not_there():
    with pytest.raises(PeError, match="indexes must be from 0 to 2"):
        run_op("similarity_focus", {"X": np.zeros((1, 3, 2, 2))}, {"indexes": [3]})
