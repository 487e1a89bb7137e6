"""Names of 2.x: functions and layers give them and use them up as PaddlePaddle 2.6.2 does, see recordings/names_v2.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pe_cli.paddle as paddle
from pe_cli.paddle.fluid import unique_name
from tests.paddle.recordings.names_v2 import CALLS, named

RECORD: dict[str, Any] = json.loads((Path(__file__).parent / "recordings" / "names_v2.json").read_text(encoding="utf-8"))
#: Keys of the original: others are of this package, and no later name follows from them.
KEYS = {key for found in RECORD.values() for key in found["used"]}
#: Calls that use up other numbers of temporaries here, or give them other names: only their parameters are compared.
OTHERS = {
    "F.max_pool1d(series, 2, return_mask=True)",
    "F.alpha_dropout(x, 0.0)",
    "S.nn.spectral_norm(w)",
    "S.auc(p2, label)[0]",
    "S.nn.switch_case(number, {0: lambda: x, 1: lambda: y})",
    "S.nn.while_loop(lambda i: i < 3, lambda i: [i + 1], [number])",
    "x @ sixes",
    "x.T",
}


def test_every_call_is_recorded() -> None:
    assert set(RECORD) == set(CALLS.strip().splitlines())


@pytest.mark.parametrize("text", sorted(RECORD))
def test_a_call_gives_and_uses_up_the_names_of_the_original(text: str) -> None:
    was, found = RECORD[text], named(paddle, lambda: unique_name.generator.ids, text)
    assert found["parameters"] == was["parameters"]
    # Loops over a cell of the script count their steps in other ways.
    if text not in OTHERS and not text.startswith(("nn.RNN", "nn.BiRNN")):
        assert {key: count for key, count in found["used"].items() if key in KEYS} == was["used"]
        assert found["names"] == was["names"]


def test_layers_that_are_made_after_calls_have_the_originals_names() -> None:
    nn = paddle.nn
    x = paddle.static.data("x", [None, 4, 8, 8])
    hidden = nn.Conv2D(4, 6, 3)(x)
    hidden = nn.GroupNorm(2, 6)(nn.Conv2D(6, 6, 3)(hidden))
    flat = nn.Flatten()(nn.Conv2D(6, 6, 3, groups=6)(hidden))
    states, _ = nn.LSTM(4, 3)(paddle.reshape(flat, [-1, 6, 4]))
    nn.LSTM(3, 2)(states)
    nn.Linear(24, 3)(nn.LayerNorm(24)(nn.Linear(24, 24)(flat)))
    found = [p.name for p in paddle.static.default_main_program().all_parameters() if p.name.endswith("w_0")]
    assert found == [
        "conv2d_0.w_0", "group_norm_0.w_0", "conv2d_2.w_0", "conv2d_4.w_0", "lstm_cell_0.w_0", "lstm_0.w_0", "lstm_cell_1.w_0",
        "lstm_1.w_0", "linear_0.w_0", "layer_norm_0.w_0", "linear_1.w_0",
    ]  # fmt: skip
