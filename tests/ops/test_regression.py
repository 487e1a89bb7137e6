"""Losses of numbers against closed forms and torch."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op


@pytest.fixture
def xy(rng):
    return {"X": rng.standard_normal((6, 5)) * 2, "Y": rng.standard_normal((6, 5))}


def torch_gradient(function, xy, up):
    """Return a loss and its gradients by torch."""
    x, y = (torch.tensor(xy[k], requires_grad=True) for k in ("X", "Y"))
    out = function(torch.nn.functional, x, y)
    out.backward(torch.tensor(up).reshape(out.shape))
    return out.detach().numpy(), x.grad.numpy(), y.grad.numpy()


def check(name, xy, function, attrs=None, shape=(6, 5)):
    up = np.random.default_rng(5).standard_normal(shape)
    out, dx, dy = torch_gradient(function, xy, up)
    found = run_op(name, xy, attrs)
    found = found["Out"] if isinstance(found, dict) else found
    np.testing.assert_allclose(found, out.reshape(shape), rtol=1e-12)
    gradient = run_gradient(name, xy, attrs, "Out", up)
    np.testing.assert_allclose(gradient["X"], dx, atol=1e-14)
    np.testing.assert_allclose(gradient["Y"], dy, atol=1e-14)


def test_square_error_cost_agrees_with_torch(xy):
    check("square_error_cost", xy, lambda f, x, y: (x - y) ** 2)


def test_mse_loss_agrees_with_torch(xy):
    check("mse_loss", xy, lambda f, x, y: f.mse_loss(x, y), shape=(1,))


@pytest.mark.parametrize("sigma", [1.0, 3.0, 0.5])
def test_smooth_l1_loss_agrees_with_torch(xy, sigma):
    check(
        "smooth_l1_loss",
        xy,
        lambda f, x, y: f.smooth_l1_loss(x, y, reduction="none", beta=1 / sigma**2).sum(1),
        {"sigma": sigma},
        (6, 1),
    )


def test_smooth_l1_loss_weighs_differences_inside_and_losses_outside():
    x, y = np.array([[2.0, 0.0, 0.5]]), np.zeros((1, 3))
    inside, outside = np.array([[1.0, 1.0, 2.0]]), np.array([[3.0, 5.0, 4.0]])
    given = {"X": x, "Y": y, "InsideWeight": inside, "OutsideWeight": outside}
    found = run_op("smooth_l1_loss", given)
    np.testing.assert_allclose(found["Diff"], [[2, 0, 1]])
    np.testing.assert_allclose(found["Out"], [[3 * 1.5 + 4 * 0.5]])
    np.testing.assert_allclose(run_gradient("smooth_l1_loss", given)["X"], [[3, 0, 8]])


@pytest.mark.parametrize("delta", [1.0, 0.3, 5.0])
def test_huber_loss_agrees_with_torch(xy, delta):
    check("huber_loss", xy, lambda f, x, y: f.huber_loss(x, y, reduction="none", delta=delta), {"delta": delta})
    np.testing.assert_array_equal(run_op("huber_loss", xy)["Residual"], xy["Y"] - xy["X"])


@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum", "none"])
def test_kldiv_loss_agrees_with_torch(rng, reduction):
    x, target = rng.standard_normal((4, 3)), rng.random((4, 3))
    target[1, 1] = 0
    t = torch.tensor(x, requires_grad=True)
    # torch warns of its own reduction "mean", which divides by all elements as fluid does.
    out = torch.nn.functional.kl_div(t, torch.tensor(target), reduction="sum" if reduction == "mean" else reduction)
    out = out / x.size if reduction == "mean" else out
    out.sum().backward()
    given, attrs = {"X": x, "Target": target}, {"reduction": reduction}
    found = run_op("kldiv_loss", given, attrs)
    np.testing.assert_allclose(found, out.detach().numpy().reshape(found.shape), rtol=1e-12)
    np.testing.assert_allclose(run_gradient("kldiv_loss", given, attrs)["X"], t.grad.numpy(), atol=1e-14)


@pytest.mark.parametrize("name", ["square_error_cost", "mse_loss", "smooth_l1_loss", "huber_loss"])
def test_nan_comes_out_as_nan(name):
    x = np.full((1, 3), 2.0, np.float32)
    x[0, 1] = np.nan
    found = run_op(name, {"X": x, "Y": np.zeros((1, 3), np.float32)})
    found = found["Out"] if isinstance(found, dict) else found
    assert np.isnan(found.reshape(-1)[1 if found.size == 3 else 0])


@pytest.mark.parametrize("name", ["square_error_cost", "mse_loss", "smooth_l1_loss", "huber_loss"])
def test_other_shapes_are_refused_with_their_values(name):
    with pytest.raises(PeError, match=r"float64\[2, 3\] and float64\[3, 2\]"):
        run_op(name, {"X": np.ones((2, 3)), "Y": np.ones((3, 2))})
