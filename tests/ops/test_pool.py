"""pool2d against PyTorch and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

CASES = [
    pytest.param((2, 20, 24, 24), {"k": 2, "s": 2, "p": 0}, id="LeNet's"),
    pytest.param((2, 3, 9, 7), {"k": 3, "s": 2, "p": 1}, id="overlapping and padded"),
    pytest.param((2, 3, 7, 7), {"k": 2, "s": 2, "p": 0, "ceil": True}, id="rounded up"),
    pytest.param((1, 17, 5, 5), {"k": 3, "s": 3, "p": 1, "ceil": True}, id="rounded up with padding"),
]


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("shape", "case"), CASES)
def test_values_and_gradients_agree_with_pytorch(rng, shape, case, kind, data_format):
    x = rng.standard_normal(shape).astype("float32")
    t = torch.tensor(x, requires_grad=True)
    f = torch.nn.functional
    ceil = case.get("ceil", False)
    if kind == "max":
        out = f.max_pool2d(t, case["k"], case["s"], case["p"], ceil_mode=ceil)
    else:
        out = f.avg_pool2d(t, case["k"], case["s"], case["p"], ceil_mode=ceil, count_include_pad=False)
    up = rng.standard_normal(tuple(out.shape)).astype("float32")
    (out * torch.tensor(up)).sum().backward()
    last = data_format == "NHWC"
    order, back = ((0, 2, 3, 1), (0, 3, 1, 2)) if last else ((0, 1, 2, 3), (0, 1, 2, 3))
    settings = {"pooling_type": kind, "ksize": [case["k"]] * 2, "strides": [case["s"]] * 2, "paddings": [case["p"]] * 2}
    settings |= {"ceil_mode": ceil, "data_format": data_format}
    given = {"X": np.ascontiguousarray(x.transpose(order))}
    np.testing.assert_allclose(
        run_op("pool2d", given, settings).transpose(back), out.detach().numpy(), rtol=1e-5, atol=1e-6
    )
    gradient = run_gradient("pool2d", given, settings, upstream=np.ascontiguousarray(up.transpose(order)))
    np.testing.assert_allclose(gradient["X"].transpose(back), t.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_the_average_with_zeros_counts_the_border():
    x = np.ones((1, 1, 2, 2), "float64")
    settings = {"pooling_type": "avg", "paddings": [1, 1], "exclusive": False}
    assert run_op("pool2d", {"X": x}, settings).tolist() == [[[[0.25, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 0.25]]]]


def test_ties_send_the_gradient_to_the_first():
    gradient = run_gradient("pool2d", {"X": np.ones((1, 1, 2, 2), "float64")}, {})
    assert gradient["X"].tolist() == [[[[1.0, 0.0], [0.0, 0.0]]]]


def test_nan_comes_through():
    x = np.array([[[[1.0, np.nan], [2.0, 3.0]]]])
    assert np.isnan(run_op("pool2d", {"X": x}, {})).all()


def test_a_window_larger_than_the_image_is_an_error():
    with pytest.raises(PeError, match="does not fit into images of 2x2") as caught:
        run_op("pool2d", {"X": np.zeros((1, 1, 2, 2), "float32")}, {"ksize": [3, 3]})
    assert "transpose, perm: [0, 3, 1, 2]" in str(caught.value.hint)
