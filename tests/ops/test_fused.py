"""Fused ops against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

RNG = np.random.default_rng(4)


@pytest.mark.parametrize(
    ("functor", "attrs", "expected"),
    [
        pytest.param("relu", {}, lambda s: np.maximum(s, 0), id="relu"),
        pytest.param("tanh", {}, np.tanh, id="tanh"),
        pytest.param(
            "leaky_relu", {"alpha": 0.1}, lambda s: np.where(s > 0, s, 0.1 * s), id="leaky_relu with its slope"
        ),
        pytest.param(
            "stanh", {"scale_a": 0.5, "scale_b": 2.0}, lambda s: 2 * np.tanh(0.5 * s), id="stanh with two numbers"
        ),
        pytest.param("pow", {"factor": 2.0}, np.square, id="pow 2, which has kernels of its own"),
    ],
)
@pytest.mark.parametrize(
    ("x", "y", "axis"),
    [
        ((5, 7), (7,), -1),
        ((300, 3), (3,), -1),
        ((2, 3, 4, 5), (3,), 1),
        ((3, 3), (3,), 0),
        ((4, 6), (4, 6), -1),
        ((4,), (3, 4), -1),
    ],
)
def test_the_activation_of_a_sum_and_its_gradients(functor, attrs, expected, x, y, axis):
    x, y = RNG.standard_normal(x), RNG.standard_normal(y)
    wide = y.reshape(y.shape + (1,) * (x.ndim - axis - y.ndim)) if axis >= 0 else y
    total = x + wide
    given = {
        "functor_list": [functor, "elementwise_add"],
        "functor_attrs": attrs,
        "axis": axis,
        "save_intermediate_out": True,
    }
    out = run_op("fused_elemwise_activation", {"X": x, "Y": y}, given)
    np.testing.assert_allclose(out["Out"], expected(total), rtol=1e-6)
    np.testing.assert_allclose(out["IntermediateOut"], total, rtol=1e-12)
    up = RNG.standard_normal(total.shape)
    slope = (expected(total + 1e-6) - expected(total - 1e-6)) / 2e-6 * up
    found = run_gradient("fused_elemwise_activation", {"X": x, "Y": y}, given, "Out", up)
    for name, operand, shape in (("X", x, x.shape), ("Y", y, wide.shape)):
        axes = (
            *range(slope.ndim - len(shape)),
            *(
                i + slope.ndim - len(shape)
                for i, n in enumerate(shape)
                if n == 1 and slope.shape[i + slope.ndim - len(shape)] != 1
            ),
        )
        np.testing.assert_allclose(found[name], slope.sum(axis=axes).reshape(operand.shape), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("functors", "message"),
    [
        (["elementwise_add", "relu"], "functor_list must be [activation, elementwise_add]"),
        (["softmax", "elementwise_add"], "'softmax' is no pointwise op with a gradient"),
        (["rleu", "elementwise_add"], "there is no op 'rleu'"),
    ],
)
def test_functor_lists_of_another_form_are_refused(functors, message):
    with pytest.raises(PeError) as caught:
        run_op("fused_elemwise_activation", {"X": np.zeros(2), "Y": np.zeros(2)}, {"functor_list": functors})
    assert message in str(caught.value)


def test_a_gradient_that_needs_the_sum_says_so():
    given = {"functor_list": ["gelu", "elementwise_add"]}
    with pytest.raises(PeError) as caught:
        run_gradient("fused_elemwise_activation", {"X": np.ones(3), "Y": np.ones(3)}, given)
    assert "the gradient of gelu needs the sum" in str(caught.value)


@pytest.mark.parametrize("test", [False, True], ids=["training", "inference"])
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("add", [False, True], ids=["alone", "with a sum"])
def test_batch_norm_with_relu_agrees_with_pytorch(add, last, test):
    x, z, up = (RNG.standard_normal((6, 3, 5, 4)) for _ in range(3))
    scale, bias, mean, variance = (
        RNG.standard_normal(3),
        RNG.standard_normal(3),
        RNG.standard_normal(3),
        RNG.uniform(0.5, 2, 3),
    )
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, z, scale, bias)]
    running = torch.tensor(mean), torch.tensor(variance)
    y = torch.nn.functional.batch_norm(tensors[0], *running, tensors[2], tensors[3], not test, 0.1, 1e-5)
    y = torch.relu(y + tensors[1] if add else y)
    y.backward(torch.tensor(up))

    def turned(a):
        return np.ascontiguousarray(a.transpose(0, 2, 3, 1)) if last else a

    inputs = {"X": turned(x), "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    inputs |= {"Z": turned(z)} if add else {}
    attrs = {"data_layout": "NHWC" if last else "NCHW", "is_test": test}
    name = "fused_bn_add_activation" if add else "fused_batch_norm_act"
    np.testing.assert_allclose(run_op(name, inputs, attrs)["Y"], turned(y.detach().numpy()), rtol=1e-9, atol=1e-12)
    found = run_gradient(name, inputs, attrs, "Y", turned(up))
    wanted = {"X": turned(tensors[0].grad.numpy()), "Scale": tensors[2].grad.numpy(), "Bias": tensors[3].grad.numpy()}
    wanted |= {"Z": turned(tensors[1].grad.numpy())} if add else {}
    assert found.keys() == wanted.keys()
    for slot, value in wanted.items():
        np.testing.assert_allclose(found[slot], value, rtol=1e-8, atol=1e-10, err_msg=slot)


def test_relu_and_depthwise_convolution_agree_with_pytorch():
    x, w, up = RNG.standard_normal((3, 4, 7, 6)), RNG.standard_normal((8, 1, 3, 3)), RNG.standard_normal((3, 8, 4, 3))
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, w)]
    y = torch.nn.functional.conv2d(torch.relu(tensors[0]), tensors[1], stride=2, padding=1, groups=4)
    y.backward(torch.tensor(up))
    attrs = {"groups": 4, "strides": [2, 2], "paddings": [1, 1]}
    out = run_op("fused_relu_depthwise_conv2d", {"Input": x, "Filter": w}, attrs)
    np.testing.assert_allclose(out, y.detach().numpy(), rtol=1e-10, atol=1e-12)
    found = run_gradient("fused_relu_depthwise_conv2d", {"Input": x, "Filter": w}, attrs, upstream=up)
    np.testing.assert_allclose(found["Input"], tensors[0].grad.numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found["Filter"], tensors[1].grad.numpy(), rtol=1e-10, atol=1e-12)


def test_a_nan_of_the_sum_stays_a_nan():
    out = run_op("fused_elemwise_activation", {"X": np.array([np.nan, -1.0]), "Y": np.array([0.0, np.nan])})
    assert np.isnan(out).all()
