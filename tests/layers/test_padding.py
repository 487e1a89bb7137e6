"""Padding of layers of images as PyTorch has it: SAME, VALID, each side by itself."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.layers.nn.padding import edges
from tests.layers.support import layers as L
from tests.layers.support import programs, run
from tests.needs import torch

RNG = np.random.default_rng(7)
X, W = RNG.standard_normal((2, 3, 7, 6)), RNG.standard_normal((4, 3, 3, 2))
#: padding -> above, below, left, right around 7x6 with windows of 3x2; SAME has ceil(7 / stride) x ceil(6 / stride) of them.
SIDES = {
    1: {"SAME": (1, 1, 0, 1), "same": (1, 1, 0, 1), "VALID": (0, 0, 0, 0), (1, 0): (1, 1, 0, 0), (1, 0, 0, 1): (1, 0, 0, 1)},
    2: {"SAME": (1, 1, 0, 0), "VALID": (0, 0, 0, 0), (0, 2, 1, 0): (0, 2, 1, 0)},
}
CASES = [(stride, padding, around) for stride, cases in SIDES.items() for padding, around in cases.items()]


def given(padding):
    return list(padding) if isinstance(padding, tuple) else padding


def bordered(around, value=0.0):
    above, below, left, right = around
    return torch.nn.functional.pad(torch.from_numpy(X), (left, right, above, below), value=value)


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("stride", "padding", "around"), CASES)
def test_images(stride, padding, around, data_format):
    images = X if data_format == "NCHW" else np.moveaxis(X, 1, -1)
    facts = {"data_format": data_format}
    with programs() as (main, startup):
        x = L.data("x", list(images.shape[1:]), dtype="float64")
        convolved = L.conv2d(x, 4, [3, 2], stride, given(padding), bias_attr=False, **facts)
        pooled = [
            L.pool2d(x, [3, 2], kind, stride, given(padding), exclusive=exclusive, **facts)
            for kind, exclusive in (("max", True), ("avg", True), ("avg", False))
        ]
        weight = main.global_block().parameters()[0].name
        found = run(main, startup, {"x": np.ascontiguousarray(images)}, [convolved, *pooled], {weight: W})
    counted, shares = bordered(around), torch.nn.functional.pad(torch.ones(2, 3, 7, 6, dtype=torch.float64), (0, 0, 0, 0))
    left_right = (around[2], around[3], around[0], around[1])
    shares = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(shares, left_right), (3, 2), stride)
    average = torch.nn.functional.avg_pool2d(counted, (3, 2), stride)
    wanted = [
        torch.nn.functional.conv2d(counted, torch.from_numpy(W), stride=stride),
        torch.nn.functional.max_pool2d(bordered(around, -torch.inf), (3, 2), stride),
        average / shares,
        average,
    ]
    for one, want in zip(found, wanted, strict=True):
        one = one if data_format == "NCHW" else np.moveaxis(one, -1, 1)
        np.testing.assert_allclose(one, want.numpy(), rtol=1e-10, atol=1e-12)


def test_transposed_images_undo_the_same_border():
    with programs() as (main, startup):
        x = L.data("x", [3, 7, 6], dtype="float64")
        out = L.conv2d_transpose(x, 4, filter_size=[3, 2], padding="SAME", bias_attr=False)
        weight = main.global_block().parameters()[0].name
        (found,) = run(main, startup, {"x": X}, [out], {weight: np.moveaxis(W, 0, 1)})
    whole = torch.nn.functional.conv_transpose2d(torch.from_numpy(X), torch.from_numpy(np.moveaxis(W, 0, 1).copy())).numpy()
    np.testing.assert_allclose(found, whole[:, :, 1:-1, :-1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("padding", "says"),
    [("EQUAL", "2 or 4 of them, SAME or VALID, got 'EQUAL'"), ([1, 2, 3], "must be a number of at least 0"), ([0, 0, -1, 0], "at least 0")],
)
def test_other_forms(padding, says):
    with programs(), pytest.raises(PeError, match=says):
        edges("conv2d", padding, L.data("x", [3, 7, 6]), 3, 1, "NCHW")
