"""Convolutions by cuDNN on the test device: what its backend is asked for gives PyTorch's numbers, in three directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.types import BFLOAT16
from pe_cli.kernels.cuda.library_calls import CUDNN
from tests.cuda.device.test_bfloat16_tensor_cores import computed
from tests.cuda.libraries.card import with_library
from tests.cuda.libraries.cudnn import Cudnn, Engine
from tests.needs import torch
from tests.ops import support

Array = np.ndarray[Any, Any]
#: Notes of engines: tensor cores, and another result in every run.
TENSOR_CORE, NONDETERMINISTIC, COMPILES = 0, 4, 0


def whole(rng: np.random.Generator, *shape: int) -> Array:
    """Return small whole numbers, whose sums are exact."""
    return rng.integers(-3, 4, shape).astype("float32")


@pytest.mark.parametrize(
    ("filters", "attrs"),
    [
        pytest.param((6, 4, 3, 3), {"paddings": [1, 1]}, id="three by three"),
        pytest.param((6, 2, 3, 2), {"strides": [2, 1], "paddings": [1, 0], "dilations": [1, 2], "groups": 2}, id="strides and groups"),
        pytest.param((8, 4, 1, 1), {"strides": [2, 2]}, id="one by one, pixels left over"),
    ],
)
def test_a_convolution_and_its_gradients_are_those_of_pytorch(monkeypatch, rng, filters: tuple[int, ...], attrs: dict[str, Any]):
    _, library = with_library(monkeypatch, CUDNN, lambda stream: Cudnn(stream, Engine(0.5, workspace=256)))
    x, w = whole(rng, 2, 6, 7, 4), whole(rng, *filters)
    xs, ws = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (x.transpose(0, 3, 1, 2), w))
    names = (("stride", "strides"), ("padding", "paddings"), ("dilation", "dilations"), ("groups", "groups"))
    y = torch.nn.functional.conv2d(xs, ws, **{theirs: attrs[ours] for theirs, ours in names if ours in attrs})
    dy = whole(rng, *y.shape).transpose(0, 2, 3, 1).copy()
    y.backward(torch.tensor(dy.transpose(0, 3, 1, 2).copy(), dtype=torch.float64))
    attrs = {**attrs, "data_format": "NHWC"}
    found = support.run_op("conv2d", {"Input": x, "Filter": w}, attrs)
    np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), y.detach().numpy())
    grads = support.run_gradient("conv2d", {"Input": x, "Filter": w}, attrs, "Output", dy)
    dx, dw = grads["Input"], grads["Filter"]
    np.testing.assert_array_equal(dx.transpose(0, 3, 1, 2), xs.grad.numpy())
    np.testing.assert_array_equal(dw, ws.grad.numpy())
    assert (library.called.keys(), library.searched) == ({0}, 6)


def test_bias_and_relu_come_behind_a_convolution(monkeypatch, rng):
    _, library = with_library(monkeypatch, CUDNN, lambda stream: Cudnn(stream, Engine(0.5)))
    x, w, bias = whole(rng, 2, 5, 5, 3), whole(rng, 4, 3, 3, 3), whole(rng, 4)
    attrs = {"data_format": "NHWC", "activation": "relu"}
    found, measured = (support.run_op("conv2d_fusion", {"Input": x, "Filter": w, "Bias": bias}, attrs), library.called[0])
    support.run_op("conv2d_fusion", {"Input": x, "Filter": w, "Bias": bias}, attrs)
    y = torch.nn.functional.conv2d(torch.tensor(x.transpose(0, 3, 1, 2).copy()), torch.tensor(w), torch.tensor(bias)).relu()
    np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), y.numpy())
    assert (library.called[0], library.searched) == (measured + 1, 2)


def test_of_bfloat16_images_go_both_ways_and_filters_get_float32_from_our_kernels(monkeypatch, rng):
    _, library = with_library(monkeypatch, CUDNN, lambda stream: Cudnn(stream, Engine(0.5)), "bf16")
    x, w, dy = whole(rng, 2, 6, 5, 8), whole(rng, 4, 8, 3, 3), whole(rng, 2, 6, 5, 4)
    attrs = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1, "data_format": "NHWC"}
    image, filters = (torch.tensor(v, requires_grad=True) for v in (x, w))
    made = torch.nn.functional.conv2d(image.permute(0, 3, 1, 2), filters, padding=1).permute(0, 2, 3, 1)
    made.backward(torch.tensor(dy))
    with_it = {"libraries": frozenset({CUDNN})}
    found = computed("conv2d", {"Input": x, "Filter": w}, {"Output": dy.shape}, attrs, BFLOAT16, **with_it)["Output"]
    np.testing.assert_array_equal(found, made.detach().bfloat16().float().numpy())
    assert (set(library.called), library.searched) == ({0}, 2)
    given = {"Input": x, "Filter": w, "Output@GRAD": dy}
    back = computed("conv2d_grad", given, {"Input@GRAD": x.shape}, attrs, BFLOAT16, **with_it)["Input@GRAD"]
    np.testing.assert_array_equal(back, image.grad.bfloat16().float().numpy())
    assert library.searched == 4
    back = computed("conv2d_grad", given, {"Filter@GRAD": w.shape}, attrs, "float32", **with_it)["Filter@GRAD"]
    np.testing.assert_array_equal(back, filters.grad.numpy())
    assert library.searched == 4


@pytest.mark.parametrize(
    ("precision", "deterministic", "chosen"),
    [
        pytest.param("float32", True, 4, id="exactly"),
        pytest.param("tf32", True, 3, id="with factors that are rounded"),
        pytest.param("tf32", False, 0, id="whose bits may change from run to run"),
    ],
)
def test_an_engine_is_as_exact_and_as_steady_as_it_must_be(monkeypatch, rng, precision: str, deterministic: bool, chosen: int):
    engines = [
        Engine(0.1, notes=(NONDETERMINISTIC,), wavers=True), Engine(0.1, behaviours=(COMPILES,)), Engine(0.1, off=1.0),
        Engine(0.2, notes=(TENSOR_CORE,)), Engine(0.4), Engine(0.3, workspace=1 << 30),
    ]  # fmt: skip
    _, library = with_library(monkeypatch, CUDNN, lambda stream: Cudnn(stream, *engines), precision, deterministic=deterministic)
    x, w = whole(rng, 1, 4, 4, 2), whole(rng, 3, 2, 3, 3)
    support.run_op("conv2d", {"Input": x, "Filter": w}, {"data_format": "NHWC"})
    before = dict(library.called)
    support.run_op("conv2d", {"Input": x, "Filter": w}, {"data_format": "NHWC"})
    assert {n for n in library.called if library.called[n] > before.get(n, 0)} == {chosen}
