"""Weights of lengths and directions against PyTorch's, and what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.program.initializer import Constant
from pe_cli.program.param_attr import ParamAttr, WeightNormParamAttr
from tests.layers.support import layers as L
from tests.layers.support import programs, run
from tests.needs import torch


@pytest.fixture
def net():
    with programs() as both:
        yield both


def rows(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


@pytest.mark.parametrize(("dim", "shape"), [
    pytest.param(None, (1, 1), id="one length for all"),
    pytest.param(0, (4, 1), id="a length per input"),
    pytest.param(1, (1, 3), id="one length per unit"),
    pytest.param(-1, (1, 3), id="one length per unit, counted from the last axis"),
])  # fmt: skip
def test_fc_starts_and_learns_as_in_torch(net, dim, shape):
    x = L.data("x", [4])
    loss = L.mean(L.square(L.fc(x, 3, param_attr=WeightNormParamAttr(name="w", dim=dim), bias_attr=False)))
    block = net[0].global_block()
    assert {p.name: p.shape for p in block.parameters()} == {"w_v": (4, 3), "w_g": shape}
    OPTIMIZERS["SGD"](learning_rate=0.5).minimize(loss)
    data = rows(5, 4)
    w, v, g, dv, dg, cost = run(*net, {"x": data}, ["w", "w_v", "w_g", "w_v@GRAD", "w_g@GRAD", loss])
    # the fetches are taken after the update: undo it
    first_v, first_g = v + 0.5 * dv, g + 0.5 * dg

    weight = torch.nn.Linear(4, 3, bias=False)
    axis = {None: None, 0: 1, 1: 0, -1: 0}[dim]  # torch keeps the weight transposed
    with torch.no_grad():
        weight.weight.copy_(torch.tensor(first_v.T))
    weight = torch.nn.utils.parametrizations.weight_norm(weight, dim=axis)
    length, direction = weight.parametrizations.weight.original0, weight.parametrizations.weight.original1
    (weight(torch.tensor(data)) ** 2).mean().backward()
    np.testing.assert_allclose(first_g.ravel(), length.detach().numpy().ravel(), rtol=1e-5)
    np.testing.assert_allclose(w, first_v, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(w, weight.weight.detach().numpy().T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dg.ravel(), length.grad.numpy().ravel(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(dv, direction.grad.numpy().T, rtol=1e-4, atol=1e-6)
    assert cost > 0


def test_filters_of_a_convolution(net):
    out = L.conv2d(L.data("x", [2, 5, 5]), 3, 3, param_attr=WeightNormParamAttr(name="w", dim=0), bias_attr=False)
    data, v, g = rows(2, 2, 5, 5), rows(3, 2, 3, 3), np.array([1.0, 2.0, 3.0], "float32").reshape(3, 1, 1, 1)
    (found,) = run(*net, {"x": data}, [out], {"w_v": v, "w_g": g})
    w = torch._weight_norm(torch.tensor(v), torch.tensor(g), 0)
    expected = torch.nn.functional.conv2d(torch.tensor(data), w)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_name_is_shared(net):
    attr = WeightNormParamAttr(name="w", dim=1)
    x = L.data("x", [4])
    a, b = L.fc(x, 3, param_attr=attr, bias_attr=False), L.fc(x, 3, param_attr=attr, bias_attr=False)
    assert [op.type for op in net[0].global_block().ops] == ["weight_norm", "mul", "mul"]
    first, second = run(*net, {"x": rows(2, 4)}, [a, b])
    assert np.array_equal(first, second)
    with pytest.raises(PeError, match="no weight float32"):
        L.fc(x, 3, param_attr=WeightNormParamAttr(name="w", dim=0))


@pytest.mark.parametrize(("attr", "text"), [
    (WeightNormParamAttr(dim=2), "weight_norm has no dim 2, 'fc_0.w_0' is float32"),
    (WeightNormParamAttr(dim=-3), "weight_norm has no dim -3"),
    (WeightNormParamAttr(initializer=Constant(0.0)), "starts at 0, which has no direction"),
])  # fmt: skip
def test_mistakes(net, attr, text):
    with pytest.raises(PeError, match=text):
        L.fc(L.data("x", [4]), 3, param_attr=attr)


def test_a_bias_of_zeros_has_no_direction(net):
    with pytest.raises(PeError, match="'fc_0\\.b_0' starts at 0"):
        L.fc(L.data("x", [4]), 3, bias_attr=WeightNormParamAttr())


def test_both_parameters_have_the_wishes(net):
    attr = WeightNormParamAttr("w", None, 0.5, None, False, False, dim=1)
    LayerHelper("fc").parameter(attr, (4, 3), "float32")
    for p in net[0].global_block().parameters():
        assert (p.learning_rate, p.trainable, p.do_model_average) == (0.5, False, False)
    assert isinstance(attr, ParamAttr)
