"""Convolutions and batch_norm whose work is shared by several blocks, of every tile, against PyTorch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.types import Place
from pe_cli.ops.define.registry import discover
from pe_cli.ops.nn import channel_sums_cuda, column_sums_cuda, conv_cuda
from pe_cli.ops.nn.conv_tile_cuda import divisor
from tests.needs import torch
from tests.ops import support
from tests.rotation import of_today, on_its_day

discover()

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "PLACE", Place("cuda", 0))


def close(found: Array, expected: torch.Tensor) -> None:
    exact = expected.detach().numpy()
    np.testing.assert_allclose(found, exact, rtol=2e-5, atol=2e-6 * max(1.0, np.abs(exact).max()))


def to_last(value: torch.Tensor) -> torch.Tensor:
    return value.permute(0, 2, 3, 1)


def check(image: tuple[int, ...], filters: tuple[int, ...], **given: Any) -> None:
    """Compare values and both gradients of a convolution of channels-last images."""
    attrs = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1], "groups": 1, **given}
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("float32") for shape in (image, filters))
    exact, kernels = (torch.tensor(a, dtype=torch.float64) for a in (x, w))
    exact, kernels = exact.permute(0, 3, 1, 2).requires_grad_(), kernels.requires_grad_()
    strides, paddings, dilations = (tuple(attrs[name]) for name in ("strides", "paddings", "dilations"))
    out = torch.nn.functional.conv2d(exact, kernels, None, strides, paddings, dilations, attrs["groups"])
    attrs["data_format"] = "NHWC"
    close(support.run_op("conv2d", {"Input": x, "Filter": w}, attrs), to_last(out))
    up = rng.standard_normal(to_last(out).shape).astype("float32")
    out.backward(torch.tensor(up, dtype=torch.float64).permute(0, 3, 1, 2))
    found = support.run_gradient("conv2d", {"Input": x, "Filter": w}, attrs, "Output", up)
    assert exact.grad is not None
    close(found["Input"], to_last(exact.grad))
    close(found["Filter"], kernels.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "filters", "attrs"),
    of_today([
        pytest.param((2, 7, 9, 16), (20, 16, 3, 3), {"strides": [2, 1], "paddings": [1, 0]}, id="other strides and paddings"),
        pytest.param(
            (2, 9, 7, 20), (18, 20, 5, 3), {"strides": [1, 2], "paddings": [2, 1], "dilations": [2, 1]}, id="channels that fill no step"
        ),
        pytest.param((1, 9, 9, 24), (70, 24, 1, 1), {"strides": [2, 2]}, id="pixels that no filter sees"),
        pytest.param((2, 9, 9, 8), (12, 8, 3, 3), {"strides": [3, 2], "paddings": [1, 1], "dilations": [2, 2]}, id="classes of pixels"),
        pytest.param((1, 6, 6, 32), (64, 16, 3, 3), {"groups": 2, "paddings": [1, 1]}, id="two groups"),
        pytest.param((2, 9, 9, 1), (5, 1, 7, 7), {"paddings": [3, 3]}, id="one channel"),
    ], 2),
)  # fmt: skip
def test_shapes(image: tuple[int, ...], filters: tuple[int, ...], attrs: dict[str, Any]):
    check(image, filters, **attrs)


@on_its_day(2, of=4)
def test_large_tiles_and_filters_in_order(monkeypatch):
    monkeypatch.setattr(conv_cuda, "FULL", 128)  # what fills a card
    monkeypatch.setattr(conv_cuda, "MANY", 1)
    check((2, 9, 9, 16), (68, 16, 3, 3), paddings=[1, 1])


def test_a_sum_is_shared_by_blocks(monkeypatch):
    monkeypatch.setattr(conv_cuda, "STEPS", 1)
    check((1, 5, 5, 32), (20, 32, 3, 3), paddings=[1, 1])


def test_the_same_bits_twice():
    rng = np.random.default_rng(1)
    given = {"Input": rng.standard_normal((2, 8, 8, 16)).astype("float32"), "Filter": rng.standard_normal((8, 16, 3, 3)).astype("float32")}
    up = rng.standard_normal((2, 6, 6, 8)).astype("float32")
    one, two = (support.run_gradient("conv2d", given, {"data_format": "NHWC"}, "Output", up) for _ in range(2))
    assert all(one[slot].tobytes() == two[slot].tobytes() for slot in one)


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_batch_norm_of_many_parts(monkeypatch, last: bool):
    monkeypatch.setattr(column_sums_cuda, "LEAST", 8)
    asked: list[tuple[int, ...]] = []
    parts_of = channel_sums_cuda.parts_of

    def noted(*sizes: int) -> int:
        asked.append(sizes)
        return parts_of(*sizes)

    monkeypatch.setattr(channel_sums_cuda, "parts_of", noted)
    rng = np.random.default_rng(0)
    x = (5 + 2 * rng.standard_normal((7, 5, 9, 12))).astype("float32")
    up = rng.standard_normal(x.shape).astype("float32")
    scale, bias, zeros, ones = (np.linspace(a, b, 12 if last else 5, dtype="float32") for a, b in ((0.5, 1.5), (-1, 1), (0, 0), (1, 1)))
    exact = torch.tensor(x, dtype=torch.float64).requires_grad_()
    each = [torch.tensor(a, dtype=torch.float64).requires_grad_() for a in (scale, bias)]
    out = torch.nn.functional.batch_norm(exact.permute(0, 3, 1, 2) if last else exact, None, None, *each, training=True)
    out = to_last(out) if last else out
    out.backward(torch.tensor(up, dtype=torch.float64))
    attrs = {"data_layout": "NHWC" if last else "NCHW"}
    given = {"X": x, "Scale": scale, "Bias": bias, "Mean": zeros, "Variance": ones}
    close(support.run_op("batch_norm", given, attrs)["Y"], out)
    found = support.run_gradient("batch_norm", given, attrs, "Y", up)
    for slot, value in (("X", exact), ("Scale", each[0]), ("Bias", each[1])):
        close(found[slot], value.grad)  # type: ignore[arg-type]
    assert set(asked) == (set() if last else {(5, 7 * 9 * 12 // 4)}), "channels, and four numbers at a time of each"


@pytest.mark.parametrize("name", ["fused_batch_norm_act", "fused_bn_add_activation"])
def test_relu_behind_batch_norm_by_fours(name: str):
    rng = np.random.default_rng(0)
    x, z, up = (rng.standard_normal((3, 5, 7, 12)).astype("float32") for _ in range(3))
    scale, bias, zeros, ones = (np.linspace(a, b, 12, dtype="float32") for a, b in ((0.5, 1.5), (-1, 1), (0, 0), (1, 1)))
    exact, other, *each = (torch.tensor(a, dtype=torch.float64).requires_grad_() for a in (x, z, scale, bias))
    out = to_last(torch.nn.functional.batch_norm(exact.permute(0, 3, 1, 2), None, None, *each, training=True))
    given, inputs = {"X": x, "Scale": scale, "Bias": bias, "Mean": zeros, "Variance": ones}, {"X": exact, "Scale": each[0], "Bias": each[1]}
    if name == "fused_bn_add_activation":
        out, given["Z"], inputs["Z"] = out + other, z, other
    out = out.relu()
    out.backward(torch.tensor(up, dtype=torch.float64))
    close(support.run_op(name, given, {"data_layout": "NHWC"})["Y"], out)
    found = support.run_gradient(name, given, {"data_layout": "NHWC"}, "Y", up)
    for slot, value in inputs.items():
        close(found[slot], value.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("d", [1, 2, 3, 5, 7, 28, 31, 32, 33, 49, 1000, 65535, 65536, 2**30 + 1, 2**31 - 1])
def test_a_division_by_multiplying_is_exact(d):
    """`through` has 32 bits for the factor and 64 for the product."""
    by, shift = divisor(d)
    assert by < 2**32
    numbers = {0, 1, d - 1, d, min(2 * d - 1, 2**31 - 1), (2**31 - 1) // d * d, (2**31 - 1) // d * d - 1, 2**31 - 1}
    assert [a * by >> shift for a in sorted(numbers)] == [a // d for a in sorted(numbers)]
