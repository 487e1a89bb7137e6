"""conv2d_transpose against PyTorch: values, gradients of everything, and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.program.backward import gradients
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
from tests.needs import torch

CASES = [
    pytest.param({"filter_size": 3}, {}, id="plain"),
    pytest.param({"filter_size": 3, "stride": 2}, {"stride": 2}, id="stride"),
    pytest.param({"filter_size": 4, "stride": 2, "padding": 1}, {"stride": 2, "padding": 1}, id="twice the size"),
    pytest.param({"filter_size": 3, "dilation": 2, "padding": 3}, {"dilation": 2, "padding": 3}, id="dilation"),
    pytest.param({"filter_size": [2, 3], "stride": [3, 1], "padding": [0, 2]}, {"stride": (3, 1), "padding": (0, 2)}, id="uneven"),
    pytest.param({"filter_size": 3, "stride": 2, "groups": 2}, {"stride": 2, "groups": 2}, id="groups"),
    pytest.param({"filter_size": 1, "stride": 3, "padding": 0}, {"stride": 3}, id="one pixel"),
    pytest.param({"filter_size": 3, "padding": 3, "stride": 3}, {"padding": 3, "stride": 3}, id="more is cut than the filter adds"),
    pytest.param(
        {"filter_size": 3, "stride": 2, "padding": 1, "output_size": [8, 10]}, {"stride": 2, "padding": 1, "output_padding": 1},
        id="an output size",
    ),
]  # fmt: skip


def built(x: np.ndarray, **given: Any) -> tuple[Program, Program, Any, Any]:
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup):
        feed = LayerHelper("images").parameter(None, x.shape, "float64")
        out = find("conv2d_transpose").fn(feed, given.pop("num_filters", 6), **given)
    return main, startup, feed, out


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("ours", "theirs"), CASES)
def test_values_and_gradients_are_those_of_pytorch(ours: dict[str, Any], theirs: dict[str, Any], data_format: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 4, 5))
    fed = x if data_format == "NCHW" else x.transpose(0, 2, 3, 1)
    main, startup, feed, out = built(fed, data_format=data_format, **ours)
    _, weight, bias = main.global_block().parameters()
    with program_guard(main, startup):
        found = [v.name for v in gradients([find("reduce_sum").fn(find("square").fn(out))], [feed, weight, bias]) if v is not None]
    scope = Scope([Place()])
    run_startup(startup, scope, 1)
    w, b = rng.standard_normal(weight.shape), rng.standard_normal(bias.shape)
    scope.set(feed.name, fed)
    scope.set(weight.name, w)
    scope.set(bias.name, b)
    values = Executor(main, scope).run({}, [out.name, *found]).values[0]

    tensors = [torch.tensor(v, requires_grad=True) for v in (x, w, b)]
    expected = torch.nn.functional.conv_transpose2d(*tensors, **theirs)
    (expected**2).sum().backward()
    back = (0, 1, 2, 3) if data_format == "NCHW" else (0, 3, 1, 2)
    np.testing.assert_allclose(values[out.name].transpose(back), expected.detach().numpy(), rtol=1e-10, atol=1e-10)
    assert values[out.name].shape == out.shape
    for name, tensor in zip(found, tensors, strict=True):
        value = values[name].transpose(back) if name == found[0] else values[name]
        np.testing.assert_allclose(value, tensor.grad.numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


def test_a_filter_that_the_output_asks_for() -> None:
    main, *_, out = built(np.zeros((1, 4, 4, 5)), stride=2, output_size=[10, 12])
    assert out.shape == (1, 6, 10, 12)
    assert main.global_block().parameters()[1].shape == (4, 6, 4, 4)


def test_four_paddings() -> None:
    *_, out = built(np.zeros((1, 4, 4, 5)), filter_size=3, stride=2, padding=[1, 0, 0, 1])
    assert out.shape == (1, 6, 8, 10)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({}, "filter_size is missing", id="no filter"),
        pytest.param({"filter_size": 3, "groups": 3}, "3 groups do not divide", id="groups"),
        pytest.param({"filter_size": 1, "padding": 3}, "no pixel is left", id="padding"),
        pytest.param({"filter_size": 3, "stride": 2, "output_size": 12}, "output_size 12 is not one of 9 to 10", id="output size"),
    ],
)
def test_sizes_that_do_not_fit_are_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PeError, match=said):
        built(np.zeros((1, 4, 4, 5)), **given)
