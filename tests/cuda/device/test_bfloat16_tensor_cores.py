"""Products and convolutions of bfloat16 by tensor cores: of small whole numbers, which all formats hold, every sum is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import BFLOAT16, Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.ops.math import matrix_product_cuda
from pe_cli.program.ir import Program
from tests.needs import torch
from tests.rotation import of_today

Array = np.ndarray[Any, Any]


def computed(
    op: str, given: dict[str, Array], outs: dict[str, tuple[int, ...]], attrs: dict[str, Any], stored: str, *,
    wide: tuple[str, ...] = (), **wishes: Any,
) -> dict[str, Array]:  # fmt: skip
    """Return what an op makes of values that are stored as bfloat16, itself stored as `stored`, but for slots in `wide`, of float32."""
    made = Program("p")
    block = made.global_block()
    for slot, value in given.items():
        block.create_var(slot, TensorType(value.shape), persistable=True)
        if slot not in wide:
            block.append_op("cast", {"X": slot}, {"Out": f"{slot}16"}, {"out_dtype": BFLOAT16})
    for slot, shape in outs.items():
        block.create_var(slot, TensorType(shape, "float32" if slot in wide else stored))
    block.append_op(op, {slot: slot if slot in wide else f"{slot}16" for slot in given}, {slot: slot for slot in outs}, attrs)
    scope = Scope([Place("cuda", 0)])
    executor = Executor(made, scope, build=BuildStrategy(data_layout="keep"), precision="bf16", **wishes)
    for slot, value in given.items():
        scope.set(slot, value)
    found: dict[str, Array] = executor.run({}, list(outs), 0).values[0]
    return found


def whole(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("m", "k", "n", "flip_x", "flip_y", "stored", "blocks"),
    of_today(
        [
            pytest.param(72, 136, 40, False, False, BFLOAT16, 132, id="by eights, of shared sums"),
            pytest.param(65, 131, 9, True, True, "float32", 132, id="one by one, both transposed"),
            pytest.param(72, 40, 136, True, False, "float32", 1, id="the large tile"),
        ],
        3,
    ),
)
def test_products(monkeypatch, rng, m: int, k: int, n: int, flip_x: bool, flip_y: bool, stored: str, blocks: int):
    monkeypatch.setattr(matrix_product_cuda, "BLOCKS", blocks)
    x, y = whole(rng, m, k), whole(rng, k, n)
    given = {"X": x.T.copy() if flip_x else x, "Y": y.T.copy() if flip_y else y}
    attrs = {"transpose_X": flip_x, "transpose_Y": flip_y, "alpha": 1.0}
    found = computed("matmul", given, {"Out": (m, n)}, attrs, stored)["Out"]
    np.testing.assert_array_equal(found, rounded(x @ y) if stored == BFLOAT16 else x @ y)


@pytest.mark.parametrize(
    ("channels", "outs", "stride", "groups", "last"),
    of_today(
        [
            pytest.param(16, 12, 1, 1, True, id="sixteen channels"),
            pytest.param(36, 40, 2, 1, True, id="strides, of shared sums"),
            pytest.param(3, 20, 1, 1, True, id="three channels"),
            pytest.param(8, 72, 1, 2, False, id="groups, channels first"),
        ],
        4,
    ),
)
def test_convolutions(rng, channels: int, outs: int, stride: int, groups: int, last: bool):
    """Values, and the gradients of images and of filters, against PyTorch's in float64."""
    x, w = whole(rng, *((2, 7, 6, channels) if last else (2, channels, 7, 6))), whole(rng, outs, channels // groups, 3, 3)
    layout = "NHWC" if last else "NCHW"
    attrs = {"strides": [stride] * 2, "paddings": [1, 1], "dilations": [1, 1], "groups": groups, "data_format": layout}
    image, filters = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (x, w))
    seen = image.permute(0, 3, 1, 2) if last else image
    made = torch.nn.functional.conv2d(seen, filters, stride=stride, padding=1, groups=groups)
    expected = made.permute(0, 2, 3, 1) if last else made
    dy = whole(rng, *expected.shape)
    expected.backward(torch.tensor(dy, dtype=torch.float64))
    found = computed("conv2d", {"Input": x, "Filter": w}, {"Output": dy.shape}, attrs, "float32")["Output"]
    given, outputs = {"Input": x, "Filter": w, "Output@GRAD": dy}, {"Input@GRAD": x.shape, "Filter@GRAD": w.shape}
    back = computed("conv2d_grad", given, outputs, attrs, BFLOAT16)
    np.testing.assert_array_equal(found, expected.detach().numpy())
    np.testing.assert_array_equal(back["Input@GRAD"], rounded(image.grad.numpy()))
    np.testing.assert_array_equal(back["Filter@GRAD"], rounded(filters.grad.numpy()))


def rounded(value: Array) -> Array:
    """Return numbers rounded to bfloat16, of ties to even."""
    bits = value.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
