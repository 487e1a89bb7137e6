"""What is written past the caches has the bits of what is not."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.types import TensorType
from pe_cli.devices.aligned_memory import Arena
from pe_cli.kernels.cpu.channel_norm import gradient_last, normalise_last
from pe_cli.kernels.cpu.channel_norm_act import normalise_add_relu_last, normalise_relu_last, relu_gradient_last
from pe_cli.kernels.cpu.non_temporal import FAR
from pe_cli.kernels.cpu.transpose import transpose_batch
from pe_cli.kernels.language import Addr, Int, kernel

CHANNELS = 64
#: Rows of as many float32 as channels, together a little more than is far.
ROWS = FAR // (4 * CHANNELS) + 3


@kernel
def turn(x: Addr, y: Addr, batch: Int, rows: Int, columns: Int):
    transpose_batch(x, y, batch, rows, columns)


def array(*shape: int) -> np.ndarray:
    """Return random float32 on a cache line."""
    kind = TensorType(shape, "float32")
    found = Arena(kind.nbytes).read(0, kind)
    found[...] = np.random.default_rng(len(shape)).standard_normal(shape, np.float32)
    return found


@pytest.mark.parametrize("columns", [1024, 1000, 999], ids="{} columns".format)
def test_transpose(call, columns):
    batch, rows = 2, FAR // (8 * columns) // 16 * 16 + 16
    for height in (rows, rows + 5):
        x, y = array(batch, height, columns), array(batch, columns, height)
        call(turn, "float32", x, y, batch, height, columns)
        np.testing.assert_array_equal(y, x.transpose(0, 2, 1))


@pytest.mark.parametrize(("kernel", "arrays", "table"), [
    pytest.param(normalise_last, 1, 4, id="normalise"),
    pytest.param(normalise_relu_last, 1, 4, id="normalise and cut"),
    pytest.param(normalise_add_relu_last, 2, 4, id="normalise, add and cut"),
])  # fmt: skip
def test_values_of_batch_norm(call, kernel, arrays, table):
    given = [array(ROWS, CHANNELS) for _ in range(arrays)]
    vectors = [abs(array(CHANNELS)) for _ in range(4)]
    far, near, room = array(ROWS, CHANNELS), array(ROWS, CHANNELS), array(table * CHANNELS)
    call(kernel, "float32", *given, *vectors, far, room, ROWS, CHANNELS, CHANNELS)
    half = ROWS // 2
    for part in (slice(0, half), slice(half, ROWS)):
        count = near[part].shape[0]
        call(kernel, "float32", *(x[part] for x in given), *vectors, near[part], room, count, CHANNELS, CHANNELS)
    np.testing.assert_array_equal(far, near)
    call(kernel, "float32", *given, *vectors, given[-1], room, ROWS, CHANNELS, CHANNELS)  # in place, so not past the caches
    np.testing.assert_array_equal(far, given[-1])


@pytest.mark.parametrize(("kernel", "vectors", "table"), [
    pytest.param(gradient_last, 5, 5, id="of the normalisation"),
    pytest.param(relu_gradient_last, 6, 6, id="of the normalisation and cut"),
])  # fmt: skip
def test_gradient_of_batch_norm(call, kernel, vectors, table):
    x, g = array(ROWS, CHANNELS), array(ROWS, CHANNELS)
    given = [abs(array(CHANNELS)) for _ in range(vectors)]
    far, room = array(ROWS, CHANNELS), array(table * CHANNELS)
    call(kernel, "float32", x, g, *given, far, room, ROWS, CHANNELS, CHANNELS, 1)
    call(kernel, "float32", x, g, *given, g, room, ROWS, CHANNELS, CHANNELS, 1)  # in place, so not past the caches
    np.testing.assert_array_equal(far, g)
