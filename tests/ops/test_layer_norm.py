"""layer_norm against torch and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

SHAPES = [((4, 6), 1), ((2, 3, 5), 1), ((2, 3, 5), 2), ((3, 9001), 1), ((500, 7), 1)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_values_and_gradients_agree_with_torch(rng, shape, axis):
    x, up = rng.standard_normal(shape) * 3 + 2, rng.standard_normal(shape)
    inner = shape[axis:]
    scale, bias = rng.standard_normal(inner), rng.standard_normal(inner)
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, scale, bias)]
    y = torch.nn.functional.layer_norm(tensors[0], inner, tensors[1], tensors[2], 1e-3)
    y.backward(torch.tensor(up))
    given = {"X": x, "Scale": scale.ravel(), "Bias": bias.ravel()}
    attrs = {"begin_norm_axis": axis, "epsilon": 1e-3}
    found = run_op("layer_norm", given, attrs)
    np.testing.assert_allclose(found["Y"], y.detach().numpy(), rtol=1e-11, atol=1e-12)
    rows = x.reshape(-1, int(np.prod(inner)))
    np.testing.assert_allclose(found["Mean"], rows.mean(1), rtol=1e-12)
    np.testing.assert_allclose(found["Variance"], rows.var(1), rtol=1e-12)
    gradient = run_gradient("layer_norm", given, attrs, "Y", up)
    for slot, tensor in zip(("X", "Scale", "Bias"), tensors, strict=True):
        expected = tensor.grad.numpy().reshape(gradient[slot].shape)
        np.testing.assert_allclose(gradient[slot], expected, rtol=1e-9, atol=1e-11)


def test_float32_data_of_mean_1000_gives_its_variance(rng):
    x = (rng.standard_normal((3, 20_000)) + 1000).astype(np.float32)
    found = run_op("layer_norm", {"X": x}, {"epsilon": 0.0})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found["Variance"], wide.var(1), rtol=2e-6)
    np.testing.assert_allclose(found["Y"], (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True), atol=1e-4)


def test_nan_stays_in_its_row(rng):
    x = rng.standard_normal((3, 40)).astype(np.float32)
    x[1, 5] = np.nan
    found = run_op("layer_norm", {"X": x})["Y"]
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize(
    ("given", "axis", "text"),
    [
        pytest.param({"X": np.ones((2, 3))}, 0, "from 1 to 1", id="the batch axis"),
        pytest.param({"X": np.ones((2, 3))}, 2, "got 2", id="no axis left"),
        pytest.param({"X": np.ones((2, 3)), "Scale": np.ones(2)}, 1, r"Scale of type float64\[3\]", id="a short scale"),
    ],
)
def test_wrong_arguments_are_refused_with_their_values(given, axis, text):
    with pytest.raises(PeError, match=text):
        run_op("layer_norm", given, {"begin_norm_axis": axis})
