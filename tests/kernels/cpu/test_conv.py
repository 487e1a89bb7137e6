from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pe_cli.kernels.cpu.conv import (
    adds_images_at_once,
    conv_backward_data,
    conv_backward_data_scratch,
    conv_forward,
    conv_forward_scratch,
)
from pe_cli.kernels.cpu.conv_filter_gradient import conv_backward_weight
from pe_cli.kernels.cpu.depthwise import depthwise_backward_data, depthwise_backward_weight, depthwise_forward
from pe_cli.kernels.cpu.transpose import hwio_to_oihw, oihw_to_hwio
from pe_cli.kernels.language import SIZE, Addr, Int, kernel, pointer_i64
from tests.needs import torch


@kernel
def forward(x: Addr, w: Addr, y: Addr, n0: Int, n1: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    conv_forward(x, w, y, n0, n1, geometry, a[5], scratch)


@kernel
def backward_data(dy: Addr, w: Addr, dx: Addr, n0: Int, n1: Int, acc: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    conv_backward_data(dy, w, dx, n0, n1, acc, geometry, a[2], scratch)


@kernel
def backward_weight(x: Addr, dy: Addr, dw: Addr, n0: Int, n1: Int, a0: Int, a1: Int, acc: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    conv_backward_weight(x, dy, dw, n0, n1, a0, a1, acc, geometry, scratch)


@kernel
def forward_depthwise(x: Addr, w: Addr, y: Addr, n0: Int, n1: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    at_x, at_y = x + SIZE * n0 * a[0] * a[1] * a[2], y + SIZE * n0 * a[3] * a[4] * a[5]
    depthwise_forward(at_x, w, at_y, n1 - n0, geometry)


@kernel
def backward_data_depthwise(dy: Addr, w: Addr, dx: Addr, n0: Int, n1: Int, acc: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    at_x, at_y = dx + SIZE * n0 * a[0] * a[1] * a[2], dy + SIZE * n0 * a[3] * a[4] * a[5]
    depthwise_backward_data(at_y, w, at_x, n1 - n0, geometry)


@kernel
def backward_weight_depthwise(
    x: Addr, dy: Addr, dw: Addr, n0: Int, n1: Int, a0: Int, a1: Int, acc: Int, g: Addr, scratch: Addr
):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    at_x, at_y = x + SIZE * n0 * a[0] * a[1] * a[2], dy + SIZE * n0 * a[3] * a[4] * a[5]
    depthwise_backward_weight(at_x, at_y, dw, n1 - n0, a0, a1, acc, geometry)


MIXED = (forward, backward_data, backward_weight)
DEPTHWISE = (forward_depthwise, backward_data_depthwise, backward_weight_depthwise)


@kernel
def to_hwio(x: Addr, y: Addr, o: Int, i: Int, h: Int, w: Int):
    oihw_to_hwio(x, y, o, i, h, w)


@kernel
def to_oihw(x: Addr, y: Addr, o: Int, i: Int, h: Int, w: Int):
    hwio_to_oihw(x, y, o, i, h, w, 0, h)


@dataclass
class Case:
    """One convolution; pads are (top, left, bottom, right)."""

    x: tuple[int, int, int, int]
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def output(self) -> tuple[int, int, int, int]:
        sizes = [
            (self.x[1 + i] + self.pads[i] + self.pads[2 + i] - (self.kernel[i] - 1) * self.dilation[i] - 1)
            // self.stride[i]
            + 1
            for i in (0, 1)
        ]
        return (self.x[0], *sizes, self.out_channels)

    @property
    def geometry(self) -> np.ndarray:
        numbers = [
            *self.x[1:],
            *self.output[1:],
            *self.kernel,
            *self.stride,
            *self.pads[:2],
            *self.dilation,
            self.groups,
        ]
        return np.array(numbers, np.int64)

    @property
    def kernels(self) -> list[tuple[Any, Any, Any]]:
        """Return all that compute it: forward, gradient of the images, gradient of the filters."""
        return [MIXED, DEPTHWISE] if self.groups == self.x[3] > 1 else [MIXED]

    @property
    def filters(self) -> tuple[int, int, int, int]:
        return (*self.kernel, self.x[3] // self.groups, self.out_channels)

    def scratch(self, size: Any) -> int:
        return size(self.x[3], self.out_channels, *self.kernel, self.groups)

    def reference(self, x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return (y, dx, dw) from torch, in float64."""
        tx = torch.tensor(x.transpose(0, 3, 1, 2), dtype=torch.float64, requires_grad=True)
        tw = torch.tensor(w.transpose(3, 2, 0, 1), dtype=torch.float64, requires_grad=True)
        top, left, bottom, right = self.pads
        padded = torch.nn.functional.pad(tx, (left, right, top, bottom))
        ty = torch.nn.functional.conv2d(padded, tw, stride=self.stride, dilation=self.dilation, groups=self.groups)
        ty.backward(torch.tensor(dy.transpose(0, 3, 1, 2), dtype=torch.float64))
        nhwc, hwio = (0, 2, 3, 1), (2, 3, 1, 0)
        return ty.detach().numpy().transpose(nhwc), tx.grad.numpy().transpose(nhwc), tw.grad.numpy().transpose(hwio)


ONE = (1, 1, 1, 1)
CASES = [
    pytest.param(Case((2, 8, 9, 5), 7, (3, 3), pads=ONE), id="3x3 with odd sizes"),
    pytest.param(Case((2, 9, 9, 3), 50, (5, 5)), id="5x5 without padding to 50 channels"),
    pytest.param(Case((2, 8, 9, 16), 20, (3, 3), (2, 2), ONE), id="stride 2"),
    pytest.param(Case((2, 16, 16, 32), 64, (3, 3), (2, 2), ONE), id="stride 2 to 64 channels"),
    pytest.param(Case((2, 28, 28, 1), 20, (5, 5)), id="one channel"),
    pytest.param(Case((2, 12, 12, 1), 6, (5, 5), pads=(2, 2, 2, 2)), id="one channel with padding"),
    pytest.param(Case((2, 11, 11, 1), 9, (3, 3), (2, 2), ONE), id="one channel with stride 2"),
    pytest.param(Case((2, 11, 11, 2), 9, (3, 3), (1, 1), ONE, (1, 2)), id="two channels with dilation along the width"),
    pytest.param(Case((2, 10, 11, 4), 10, (3, 3), pads=(2, 2, 2, 2), dilation=(2, 2)), id="dilation 2"),
    pytest.param(Case((2, 10, 11, 4), 10, (3, 3), (2, 3), (2, 1, 2, 1), (2, 2)), id="stride (2, 3) with dilation 2"),
    pytest.param(Case((2, 9, 10, 4), 6, (3, 3), (6, 4), (1, 0, 1, 0), (4, 3)), id="stride 6 with dilation 4"),
    pytest.param(Case((1, 13, 13, 4), 5, (2, 2), (3, 3)), id="stride larger than the filter leaves holes"),
    pytest.param(Case((3, 7, 5, 6), 8, (1, 1)), id="1x1"),
    pytest.param(Case((20, 7, 5, 33), 40, (1, 1)), id="1x1 over more pixels than a block"),
    pytest.param(Case((3, 7, 5, 6), 8, (1, 1), (2, 2)), id="1x1 with stride 2"),
    pytest.param(Case((2, 3, 3, 4), 5, (7, 7), pads=(3, 3, 3, 3)), id="filter larger than the image"),
    pytest.param(Case((2, 3, 2, 4), 5, (5, 5), (2, 2), (2, 2, 2, 2)), id="filter larger than the image with stride 2"),
    pytest.param(Case((1, 1, 1, 3), 4, (3, 3), pads=ONE), id="one pixel"),
    pytest.param(Case((2, 8, 8, 4), 6, (3, 2), (1, 2), (0, 1, 2, 0)), id="pads that differ on all sides"),
    pytest.param(
        Case((2, 9, 10, 4), 6, (3, 2), (2, 1), (1, 0, 0, 3), (1, 2)), id="everything different along both axes"
    ),
    pytest.param(Case((2, 40, 56, 40), 24, (3, 3), pads=ONE), id="an image larger than a block of the filter gradient"),
    pytest.param(Case((2, 5, 5, 130), 90, (3, 3), pads=ONE), id="filters that are packed"),
    pytest.param(Case((2, 5, 5, 260), 180, (3, 3), (2, 2), ONE, groups=2), id="filters of two groups that are packed"),
    pytest.param(Case((2, 12, 12, 20), 50, (5, 5)), id="5x5 of 20 channels to 50: 2 and 4 are left over"),
    pytest.param(Case((2, 9, 7, 35), 33, (3, 3), pads=ONE), id="1 and 3 channels left over"),
    pytest.param(Case((2, 12, 11, 20), 18, (3, 3), (2, 1), (2, 1, 1, 0), (2, 1)), id="left over, stride and dilation along the height"),
    pytest.param(Case((2, 40, 56, 34), 36, (3, 3), pads=ONE), id="left over, an image larger than a block of the filter gradient"),
    pytest.param(Case((2, 5, 5, 130), 98, (3, 3), pads=ONE), id="left over, filters that are packed"),
    pytest.param(Case((2, 4, 3, 34), 20, (5, 5), pads=(2, 2, 2, 2)), id="left over, no inner outputs"),
    pytest.param(Case((2, 7, 6, 34), 3, (3, 3), pads=ONE), id="three channels"),
    pytest.param(Case((2, 8, 8, 6), 9, (3, 3), pads=ONE, groups=3), id="three groups"),
    pytest.param(Case((1, 6, 6, 8), 8, (1, 1), groups=2), id="1x1 in two groups"),
    pytest.param(Case((2, 8, 8, 6), 6, (3, 3), pads=ONE, groups=6), id="depthwise"),
    pytest.param(Case((2, 8, 8, 40), 40, (3, 3), (2, 2), ONE, groups=40), id="depthwise with stride 2"),
    pytest.param(Case((2, 5, 17, 117), 117, (3, 3), pads=ONE, groups=117), id="depthwise with vectors of all widths"),
    pytest.param(
        Case((1, 9, 37, 70), 70, (5, 4), (1, 2), (4, 1, 2, 3), (2, 1), groups=70), id="depthwise, everything different"
    ),
    pytest.param(Case((1, 9, 9, 16), 16, (2, 2), (3, 3), groups=16), id="depthwise with a stride that leaves holes"),
    pytest.param(
        Case((1, 3, 2, 16), 16, (5, 5), pads=(2, 2, 2, 2), groups=16),
        id="depthwise with a filter larger than the image",
    ),
    pytest.param(
        Case((2, 8, 8, 6), 12, (3, 3), (2, 2), ONE, (2, 1), groups=6), id="depthwise with two outputs a channel"
    ),
]


def arrays(case: Case, dtype: str, make: Any, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    made = tuple(make(shape, dtype) for shape in (case.x, case.filters, case.output))
    for array in made:
        array[:] = rng.standard_normal(array.shape)
    return made


def close(found: np.ndarray, expected: np.ndarray) -> None:
    tolerance = {"rtol": 1e-4, "atol": 5e-4} if found.dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(found, expected, **tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_all_three_products_match_torch(call, guarded, rng, case, dtype):
    x, w, dy = arrays(case, dtype, guarded, rng)
    y, dx, dw = (guarded(a.shape, dtype) for a in (dy, x, w))
    n, g = case.x[0], case.geometry
    scratch = [guarded((case.scratch(size),), dtype) for size in (conv_forward_scratch, conv_backward_data_scratch)]
    for ahead, to_images, to_filters in case.kernels:
        for array in (y, dx, dw):
            array[:] = np.nan
        call(ahead, dtype, x, w, y, 0, n, g, scratch[0])
        call(to_images, dtype, dy, w, dx, 0, n, 0, g, scratch[1])
        call(to_filters, dtype, x, dy, dw, 0, n, 0, case.kernel[0], 0, g, scratch[0])
        for found, expected in zip((y, dx, dw), case.reference(x, w, dy), strict=True):
            close(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", [c for c in CASES if "depthwise" not in c.id])
def test_a_gradient_of_images_that_is_added_has_the_bits_of_a_sum(call, guarded, rng, case, dtype):
    _, w, dy = arrays(case, dtype, guarded, rng)
    start = rng.standard_normal(case.x).astype(dtype)
    alone, total = guarded(case.x, dtype), guarded(case.x, dtype)
    total[:] = start
    scratch = guarded((case.scratch(conv_backward_data_scratch),), dtype)
    for dx, acc in ((alone, 0), (total, 1)):
        call(backward_data, dtype, dy, w, dx, 0, case.x[0], acc, case.geometry, scratch)
    _, W, _, _, OW, _, _, kw, _, sw, _, pw, _, dw, _ = case.geometry
    if adds_images_at_once(W, kw, OW, sw, pw, dw):
        np.testing.assert_array_equal(total, start + alone)
    else:
        close(total, start + alone)


@pytest.mark.parametrize(
    ("size", "taps", "outputs", "pad", "once"),
    [
        pytest.param(32, 3, 32, 1, True, id="3 taps on 32 pixels: 30 lie inside"),
        pytest.param(12, 5, 8, 0, False, id="5 taps whose 8 outputs came of 12 pixels: 4 are reached by all"),
        pytest.param(8, 1, 8, 0, True, id="1 tap has no border"),
    ],
)
def test_small_images_go_by_taps(size, taps, outputs, pad, once):
    assert adds_images_at_once(size, taps, outputs, 1, pad, 1) is once


@pytest.mark.parametrize("cut", range(1, 5))
def test_channels_left_over_have_the_same_bits_however_work_is_split(call, guarded, rng, cut):
    case = Case((5, 12, 9, 20), 34, (3, 3), pads=ONE)
    x, w, dy = arrays(case, "float32", guarded, rng)
    scratch = guarded((case.scratch(conv_backward_data_scratch),), "float32")
    whole, parts = ([np.full_like(a, np.nan) for a in (dy, x, w)] for _ in range(2))
    for (y, dx, dw), images, taps in ((whole, [(0, 5)], [(0, 3)]), (parts, [(0, cut), (cut, 5)], [(0, cut % 3), (cut % 3, 3)])):
        for n0, n1 in images:
            call(forward, "float32", x, w, y, n0, n1, case.geometry, scratch)
            call(backward_data, "float32", dy, w, dx, n0, n1, 0, case.geometry, scratch)
        for a0, a1 in taps:
            call(backward_weight, "float32", x, dy, dw, 0, 5, a0, a1, 0, case.geometry, scratch)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("groups", [pytest.param(1, id="one group"), pytest.param(6, id="depthwise")])
def test_work_may_be_split_by_images_and_by_rows_of_taps(call, guarded, rng, groups):
    case = Case((5, 8, 7, 6), 6, (3, 3), pads=ONE, groups=groups)
    x, w, dy = arrays(case, "float32", guarded, rng)
    scratch = np.zeros(8192, "f4")
    for ahead, to_images, to_filters in case.kernels:
        y, dx, dw = (np.full_like(a, np.nan) for a in (dy, x, w))
        for n0, n1 in ((0, 2), (2, 2), (2, 5)):
            call(ahead, "float32", x, w, y, n0, n1, case.geometry, scratch)
            call(to_images, "float32", dy, w, dx, n0, n1, 0, case.geometry, scratch)
        for a0, a1 in ((0, 1), (1, 3)):
            call(to_filters, "float32", x, dy, dw, 0, 2, a0, a1, 0, case.geometry, scratch)
            call(to_filters, "float32", x, dy, dw, 2, 5, a0, a1, 1, case.geometry, scratch)
        for found, expected in zip((y, dx, dw), case.reference(x, w, dy), strict=True):
            close(found, expected)


@pytest.mark.parametrize(
    "case", [Case((0, 8, 8, 3), 5, (3, 3), pads=ONE), Case((0, 8, 8, 3), 5, (1, 1))], ids=["3x3", "1x1"]
)
@pytest.mark.parametrize(
    ("acc", "left"), [pytest.param(0, 0, id="zeros dw"), pytest.param(1, 7, id="adds nothing to dw")]
)
def test_an_empty_batch(call, case, acc, left):
    x, y, dw = np.ones(1, "f4"), np.ones(1, "f4"), np.full(case.filters, 7, "f4")
    scratch = np.zeros(8192, "f4")
    call(forward, "float32", x, dw, y, 0, 0, case.geometry, scratch)
    call(backward_data, "float32", y, dw, x, 0, 0, acc, case.geometry, scratch)
    call(backward_weight, "float32", x, y, dw, 0, 0, 0, case.kernel[0], acc, case.geometry, scratch)
    assert (x == 1).all()
    assert (y == 1).all()
    assert (dw == left).all()


@pytest.mark.parametrize("shape", [(20, 1, 5, 5), (64, 32, 3, 3), (3, 5, 1, 1), (17, 19, 7, 5)], ids=str)
def test_filter_layouts_go_there_and_back(call, rng, shape):
    w = rng.standard_normal(shape).astype("f4")
    made, back = np.empty(w.transpose(2, 3, 1, 0).shape, "f4"), np.empty_like(w)
    call(to_hwio, "float32", w, made, *shape)
    np.testing.assert_array_equal(made, w.transpose(2, 3, 1, 0))
    call(to_oihw, "float32", made, back, *shape)
    np.testing.assert_array_equal(back, w)
