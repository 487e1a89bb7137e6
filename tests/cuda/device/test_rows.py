"""Rows that are longer than a warp, more rows than a block has, and sums that a block shares, against NumPy and SciPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from pe_cli.core.types import Place
from tests.ops import support

Array = np.ndarray[Any, Any]
X = np.random.default_rng(1).standard_normal((9, 70)).astype("float32")
G = np.random.default_rng(2).standard_normal((9, 70)).astype("float32")
WIDE, UP = X.astype(np.float64), G.astype(np.float64)
LABEL = np.arange(9).reshape(9, 1) * 8
LABEL[4] = -100
LOSS = np.where(LABEL < 0, 0, -np.take_along_axis(special.log_softmax(WIDE, 1), LABEL % 70, 1))
SCALE = np.linspace(0.5, 1.5, 70)
#: Columns that are whole tiles and some over; enough rows that several threads share each.
TALL = np.random.default_rng(3).standard_normal((40, 3, 35)).astype("float32")


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "PLACE", Place("cuda", 0))


def centred(x: Array) -> Array:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "out", "expected"),
    [
        pytest.param("softmax", {"X": X}, {}, "Out", special.softmax(WIDE, 1), id="softmax"),
        pytest.param("log_softmax", {"X": X}, {}, "Out", special.log_softmax(WIDE, 1), id="log_softmax"),
        pytest.param("softmax_with_cross_entropy", {"Logits": X, "Label": LABEL}, {}, "Loss", LOSS, id="cross-entropy, a row ignored"),
        pytest.param(
            "layer_norm", {"X": X, "Scale": SCALE.astype("float32"), "Bias": X[0]}, {"begin_norm_axis": 1}, "Y",
            centred(WIDE) * SCALE + WIDE[0], id="layer_norm",
        ),
        pytest.param("reduce_sum", {"X": X}, {"dim": [1]}, "", WIDE.sum(1), id="sums of long rows"),
        pytest.param("reduce_sum", {"X": X}, {"reduce_all": True}, "", WIDE.sum(), id="one sum"),
        pytest.param("reduce_sum", {"X": TALL}, {"dim": [0]}, "", TALL.sum(0, dtype=np.float64), id="sums of many rows"),
        pytest.param("reduce_sum", {"X": TALL[:2]}, {"dim": [0]}, "", TALL[:2].sum(0, dtype=np.float64), id="sums of two rows"),
        pytest.param("reduce_sum", {"X": TALL}, {"dim": [0, 2]}, "", TALL.sum((0, 2), dtype=np.float64), id="sums of runs that lie apart"),
    ],
)  # fmt: skip
def test_values(name: str, inputs: dict[str, Array], attrs: dict[str, Any], out: str, expected: Array):
    found = support.run_op(name, inputs, attrs)
    found = found[out] if isinstance(found, dict) else found
    np.testing.assert_allclose(found.reshape(np.shape(expected)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        pytest.param(
            "softmax", {"X": X}, special.softmax(WIDE, 1) * (UP - (UP * special.softmax(WIDE, 1)).sum(1, keepdims=True)), id="softmax"
        ),
        pytest.param("log_softmax", {"X": X}, UP - special.softmax(WIDE, 1) * UP.sum(1, keepdims=True), id="log_softmax"),
    ],
)
def test_gradients(name: str, inputs: dict[str, Array], expected: Array):
    found = support.run_gradient(name, inputs, {}, "Out", G)["X"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_gradients_of_layer_norm():
    z, s = centred(WIDE), UP * SCALE
    spread = np.sqrt(WIDE.var(1, keepdims=True) + 1e-5)
    inner = (s - s.mean(1, keepdims=True) - z * (s * z).mean(1, keepdims=True)) / spread
    inputs = {"X": X, "Scale": SCALE.astype("float32"), "Bias": X[0]}
    found = support.run_gradient("layer_norm", inputs, {"begin_norm_axis": 1}, "Y", G)
    for slot, expected in {"X": inner, "Scale": (UP * z).sum(0), "Bias": UP.sum(0)}.items():
        np.testing.assert_allclose(found[slot], expected, rtol=1e-4, atol=1e-5, err_msg=slot)


def test_the_gradient_of_the_cross_entropy():
    up = np.linspace(-1, 1, 9).reshape(9, 1).astype("float32")
    found = support.run_gradient("softmax_with_cross_entropy", {"Logits": X, "Label": LABEL}, {}, "Loss", up)["Logits"]
    expected = (special.softmax(WIDE, 1) - (np.arange(70) == LABEL)) * up * (LABEL >= 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    # A row that does not count has no gradient, whatever it holds.
    holed = np.where(LABEL < 0, np.nan, X).astype("float32")
    again = support.run_gradient("softmax_with_cross_entropy", {"Logits": holed, "Label": LABEL}, {}, "Loss", up)["Logits"]
    np.testing.assert_array_equal(again, found)


def test_more_ids_than_a_block_sorts_give_the_sums_of_the_cpu():
    rng = np.random.default_rng(4)
    ids, values = rng.integers(-2, 900, (8500, 1)), rng.standard_normal((8500, 2)).astype("float32")
    found = support.run_op("merge_selected_rows", {"Ids": [ids], "X": [values]}, {"height": 880, "padding_idx": [7]})
    kept = [i for i in dict.fromkeys(ids[:, 0].tolist()) if 0 <= i < 880 and i != 7]
    rows = found["Rows"].tolist()
    assert rows == kept + [-1] * (8500 - len(kept))
    for row, got in zip(kept, found["Out"], strict=False):
        total = np.zeros(2, np.float32)
        for value in values[ids[:, 0] == row]:
            total += value
        assert got.tolist() == total.tolist()
    assert not found["Out"][len(kept) :].any()
