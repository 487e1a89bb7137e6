"""Winograd's convolutions against PyTorch, to the bit where bits are promised, and inside their buffers."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.kernels.cpu.winograd import BLOCK_COLUMNS, MANY, suits, tiles_at_once, winograd_scratch
from pe_cli.kernels.cpu.winograd_transforms import PAIR, PIXELS, TAPS, TO_PAIR, TO_TAPS
from pe_cli.ops.nn.conv_kernels import backward_data_winograd, backward_weight_winograd, forward_winograd
from tests.kernels.cpu.test_conv import ONE, Case, arrays

CASES = [
    pytest.param(Case((2, 8, 8, 32), 32, (3, 3), pads=ONE), id="even sizes"),
    pytest.param(Case((3, 9, 7, 33), 41, (3, 3), pads=ONE), id="odd sizes and channels"),
    pytest.param(Case((2, 8, 11, 40), 70, (3, 3)), id="without padding"),
    pytest.param(Case((2, 7, 6, 17), 5, (3, 3), pads=(2, 2, 2, 2)), id="two pixels of padding"),
    pytest.param(Case((2, 6, 7, 3), 4, (3, 3), pads=(1, 0, 1, 0)), id="padding of the rows alone"),
    pytest.param(Case((2, 9, 9, 4), 6, (3, 3), pads=(0, 2, 0, 2)), id="padding of the columns alone"),
    pytest.param(Case((1, 1, 1, 3), 2, (3, 3), pads=ONE), id="one pixel"),
    pytest.param(Case((2, 30, 30, 16), 16, (3, 3), pads=ONE), id="more tiles than a block"),
    pytest.param(Case((1, 14, 14, 200), 130, (3, 3), pads=ONE), id="many channels"),
]
TYPES = ("float32", "float64")


def close(found: np.ndarray, expected: np.ndarray) -> None:
    """Compare with what sums of so many terms may be off."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=scale * (5e-6 if found.dtype == np.float32 else 1e-13), rtol=0)


def made(case: Case, dtype: str, guarded, rng):
    """Return images, taps [OC, C, 3, 3], gradients of outputs, the facts of the convolution to y and to dx, and scratch."""
    x, w, dy = arrays(case, dtype, guarded, rng)
    taps = np.ascontiguousarray(w.transpose(3, 2, 0, 1))
    scratch = guarded((winograd_scratch(case.x[3], case.out_channels),), dtype)
    scratch[:] = np.nan
    forth, back = (np.append(case.geometry, pixel) for pixel in (case.out_channels, case.x[3]))
    return x, w, taps, dy, forth, back, scratch


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_all_three_products_match_torch_inside_their_buffers(call, guarded, rng, case, dtype):
    x, w, taps, dy, g, b, scratch = made(case, dtype, guarded, rng)
    y, dx, dw = guarded(dy.shape, dtype), guarded(x.shape, dtype), guarded(taps.shape, dtype)
    for array in (y, dx, dw):
        array[:] = np.nan
    n = case.x[0]
    call(forward_winograd, dtype, x, taps, y, scratch, g, n)
    call(backward_data_winograd, dtype, dy, taps, dx, scratch, scratch, b, n, 0)
    call(backward_weight_winograd, dtype, x, dy, dw, scratch, g, n, 0, 3)
    for found, expected in zip((y, dx, dw.transpose(2, 3, 1, 0)), case.reference(x, w, dy), strict=True):
        close(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_an_image_has_the_same_bits_in_any_batch_and_gradients_are_added_to_the_bit(call, guarded, rng, dtype):
    case = Case((5, 9, 10, 34), 33, (3, 3), pads=ONE)
    x, _, taps, dy, g, b, scratch = made(case, dtype, guarded, rng)
    y, one = np.empty(case.output, dtype), np.empty(case.output, dtype)
    call(forward_winograd, dtype, x, taps, y, scratch, g, 5)
    for i in range(5):
        call(forward_winograd, dtype, x[i : i + 1], taps, one[i : i + 1], scratch, g, 1)
    np.testing.assert_array_equal(one, y)
    start = rng.standard_normal(case.x).astype(dtype)
    alone, total = np.empty(case.x, dtype), start.copy()
    for dx, acc in ((alone, 0), (total, 1)):
        call(backward_data_winograd, dtype, dy, taps, dx, scratch, scratch, b, 5, acc)
    np.testing.assert_array_equal(total, start + alone)


def test_of_no_images_gradients_are_zero(call):
    case = Case((0, 8, 8, 32), 32, (3, 3), pads=ONE)
    dw, scratch = np.full((32, 32, 3, 3), 7, "f4"), np.full(winograd_scratch(32, 32), np.nan, "f4")
    call(backward_weight_winograd, "float32", np.ones(1, "f4"), np.ones(1, "f4"), dw, scratch, case.geometry, 0, 0, 3)
    assert (dw == 0).all()


def test_the_matrices_are_those_of_minimal_filtering(rng):
    d, g, pair = rng.standard_normal(4), rng.standard_normal(3), rng.standard_normal(2)
    pixels, taps, back, two, three = (np.array(m) for m in (PIXELS, TAPS, TO_PAIR, PAIR, TO_TAPS))
    np.testing.assert_allclose(back @ ((pixels @ d) * (taps @ g)), np.correlate(d, g))
    np.testing.assert_allclose(three @ ((pixels @ d) * (two @ pair)), np.correlate(d, pair))


@pytest.mark.parametrize(
    ("changed", "does"),
    [
        pytest.param({}, True, id="3x3 of enough channels"),
        pytest.param({"filters": (64, 64, 5, 5)}, False, id="5x5"),
        pytest.param({"filters": (64, 3, 3, 3)}, False, id="few channels"),
        pytest.param({"filters": (512, 512, 3, 3)}, False, id="taps beyond the caches"),
        pytest.param({"out": (4, 4, 64)}, False, id="tiny images"),
        pytest.param({"strides": [2, 2]}, False, id="a stride"),
        pytest.param({"dilations": [1, 2]}, False, id="dilated"),
        pytest.param({"paddings": [3, 1]}, False, id="more padding than taps reach"),
        pytest.param({"groups": 2}, False, id="groups"),
    ],
)
def test_which_convolutions_are_done_so(changed, does):
    facts = {
        "filters": (64, 64, 3, 3), "out": (28, 28, 64), "strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1,
    }  # fmt: skip
    assert suits(**(facts | changed)) is does


def test_blocks_shrink_as_channels_grow():
    assert tiles_at_once(1) == MANY
    assert tiles_at_once(64) > tiles_at_once(128) > tiles_at_once(256) >= tiles_at_once(10_000)
    assert tiles_at_once(64, 8) < tiles_at_once(64)
    assert BLOCK_COLUMNS * 4 == 3 * 64, "three registers of 64 bytes"
