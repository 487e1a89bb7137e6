"""group_norm against torch and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

SHAPES = [((2, 6, 5, 7), 3), ((3, 4, 9), 4), ((2, 8), 2), ((2, 2, 3, 4, 300), 1)]


@pytest.mark.parametrize(("shape", "groups"), SHAPES)
def test_values_and_gradients_agree_with_torch(rng, shape, groups):
    x, up = rng.standard_normal(shape) * 3 + 2, rng.standard_normal(shape)
    scale, bias = rng.standard_normal((2, shape[1]))
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, scale, bias)]
    y = torch.nn.functional.group_norm(tensors[0], groups, tensors[1], tensors[2], 1e-3)
    y.backward(torch.tensor(up))
    given, attrs = {"X": x, "Scale": scale, "Bias": bias}, {"groups": groups, "epsilon": 1e-3}
    found = run_op("group_norm", given, attrs)
    np.testing.assert_allclose(found["Y"], y.detach().numpy(), rtol=1e-11, atol=1e-12)
    rows = x.reshape(shape[0], groups, -1)
    np.testing.assert_allclose(found["Mean"], rows.mean(2), rtol=1e-12)
    np.testing.assert_allclose(found["Variance"], rows.var(2), rtol=1e-12)
    gradient = run_gradient("group_norm", given, attrs, "Y", up)
    for slot, tensor in zip(("X", "Scale", "Bias"), tensors, strict=True):
        np.testing.assert_allclose(gradient[slot], tensor.grad.numpy(), rtol=1e-9, atol=1e-11)


def test_float32_data_of_mean_1000_gives_its_variance(rng):
    x = (rng.standard_normal((1, 2, 100, 100)) + 1000).astype(np.float32)
    found = run_op("group_norm", {"X": x}, {"groups": 2, "epsilon": 0.0})
    wide = x.astype(np.float64).reshape(1, 2, -1)
    np.testing.assert_allclose(found["Variance"], wide.var(2), rtol=2e-6)


def test_nan_stays_in_its_group(rng):
    x = rng.standard_normal((2, 4, 10)).astype(np.float32)
    x[1, 3, 5] = np.nan
    found = run_op("group_norm", {"X": x}, {"groups": 2})["Y"]
    assert np.isnan(found[1, 2:]).all()
    assert np.isfinite(found[0]).all()
    assert np.isfinite(found[1, :2]).all()


@pytest.mark.parametrize(
    ("given", "groups", "message"),
    [
        pytest.param({"X": np.zeros((2, 6))}, 4, "4 groups of the 6 channels", id="groups that do not divide"),
        pytest.param({"X": np.zeros(3)}, 1, r"needs X \[batch, channels, ...\]", id="no channels"),
        pytest.param({"X": np.zeros((2, 2, 0))}, 1, "at least one value", id="nothing to normalise"),
        pytest.param({"X": np.zeros((2, 6)), "Scale": np.zeros(3)}, 1, "needs Scale of type", id="a scale per group"),
    ],
)
def test_refusals(given, groups, message):
    with pytest.raises(PeError, match=message):
        run_op("group_norm", given, {"groups": groups})
