"""Matrix products on CUDA by every tile, on tensor cores too: factors as they are stored, and sums that several blocks share."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from pe_cli.config.load import load_run
from pe_cli.core.errors import PeError
from pe_cli.core.types import Place
from pe_cli.execute.executor import Executor
from pe_cli.ops.math import matrix_product_cuda
from tests.cuda.ptx import models
from tests.ops import support
from tests.rotation import of_today, on_its_day

Array = np.ndarray[Any, Any]
#: Largest error of a number that is rounded, relative to it.
ROUNDED = {"float32": 0.0, "tf32": 2.0**-11}


def product(monkeypatch: pytest.MonkeyPatch, x: Array, y: Array, precision: str, flip_x: bool = False, flip_y: bool = False) -> Array:
    """Return x @ y by CUDA, of factors that are stored as they are or transposed."""
    monkeypatch.setattr(support, "PLACE", Place("cuda", 0))
    monkeypatch.setattr(support, "Executor", partial(Executor, precision=precision))
    given = {"X": x.T.copy() if flip_x else x, "Y": y.T.copy() if flip_y else y}
    found: Array = support.run_op("matmul", given, {"transpose_X": flip_x, "transpose_Y": flip_y})
    return found


@pytest.mark.parametrize(
    ("flip_x", "flip_y"),
    of_today([pytest.param(True, False, id="as for gradients of weights"), pytest.param(False, True, id="as for those of inputs")], 2),
)
def test_tensor_cores_multiply_factors_as_they_are_stored(monkeypatch, rng, flip_x: bool, flip_y: bool):
    """Small whole numbers, which every format holds, and so do all sums."""
    x, y = rng.integers(-8, 9, (65, 131)).astype(np.float32), rng.integers(-8, 9, (131, 9)).astype(np.float32)
    np.testing.assert_array_equal(product(monkeypatch, x, y, "bf16", flip_x, flip_y), x @ y)


@pytest.mark.parametrize(
    ("size", "k", "groups", "shares"),
    [
        pytest.param(4, 64 * 32, [1], 32, id="one tile of long sums, shared by as many blocks as may be"),
        pytest.param(4, 64 * 3 + 63, [1], 3, id="sums of three parts and a rest"),
        pytest.param(4, 63, [1], 1, id="sums too short to share"),
        pytest.param(4, 64 * 32, [2], 1, id="two products add up in one matrix: not shared"),
        pytest.param(4, 64 * 32, [1] * 132, 1, id="blocks enough"),
        pytest.param(4, 64 * 32, [1] * 66, 2, id="half as many"),
    ],
)
def test_blocks_share_sums_where_there_are_too_few(size, k, groups, shares):
    assert matrix_product_cuda.BLOCKS == 132
    pairs = [[(0, 0)] * many for many in groups]
    assert matrix_product_cuda.plan(size, size, k, pairs, "float32", "float32")[1] == shares


@pytest.mark.parametrize("precision", of_today(["float32", "tf32"], 2))
def test_the_largest_tile_and_what_rounding_allows(monkeypatch, rng, precision: str):
    monkeypatch.setattr(matrix_product_cuda, "BLOCKS", 1)
    x, y = rng.standard_normal((30, 20)).astype(np.float32), rng.standard_normal((20, 133)).astype(np.float32)
    found, sizes = product(monkeypatch, x, y, precision), np.abs(x).astype(float) @ np.abs(y)
    assert np.all(np.abs(found - x.astype(float) @ y) <= sizes * (2.1 * ROUNDED[precision] + 20 * 2.0**-24))


@on_its_day(0, of=8)
def test_a_config_learns_in_bf16_as_in_float32():
    """Two steps and a half percent of the loss; more is asked of a card."""
    losses = []
    for precision in ("float32", "bf16"):
        losses.append(models.train(models.ROOT / "configs/digits.yaml", "cuda", (f"executor.precision={precision}",), steps=2))
    assert not np.array_equal(*losses)
    np.testing.assert_allclose(losses[1], losses[0], rtol=5e-3)


def test_the_cpu_has_no_tensor_cores():
    with pytest.raises(PeError, match="precision: tf32 is for the tensor cores of place: cuda"):
        load_run(models.ROOT / "configs/digits.yaml", ("executor.precision=tf32",))
